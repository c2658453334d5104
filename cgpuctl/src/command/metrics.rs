// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `metrics`: the figures for Prometheus, once or over HTTP.

use super::info::driver;
use super::{inst_list, open};
use crate::client::errno;
use crate::control::Host;
use crate::error::{Failure, Problem};
use crate::metrics::{text_of, Compute, CONTENT_TYPE};
use crate::output::Report;
use serde::Serialize;
use std::io::Write;
use std::net::SocketAddr;
use tiny_http::{Header, Method, Request, Response, Server};

#[derive(Serialize)]
struct Body {
    content_type: &'static str,
    text: String,
}

pub(super) fn run(host: &dyn Host) -> Result<Report, Failure> {
    once(host)
        .and_then(|text| {
            let body = Body {
                content_type: CONTENT_TYPE,
                text: text.clone(),
            };
            Report::new(body, text)
        })
        .map_err(|problem| problem.when("tell the metrics"))
}

fn once(host: &dyn Host) -> Result<String, Problem> {
    let control = open(host)?;
    let (version, gpus) = match driver(&*control) {
        // Idle instances outlive the driver, and so do their figures.
        Err(Problem::DriverMissing) => {
            let version = control
                .version()
                .map_err(|errno| Problem::explain(errno, &Default::default()))?;
            (version, vec![])
        }
        told => told?,
    };
    let instances = inst_list::all(&*control)?;
    let explain = |errno| Problem::explain(errno, &Default::default());
    let compute = Compute {
        // As above: without the driver there are no GPUs to tell of.
        gpus: match gpus.is_empty() {
            true => vec![],
            false => control.gpu_compute().map_err(explain)?,
        },
        instances: control.instance_compute().map_err(explain)?,
    };
    Ok(text_of(&version, &gpus, &instances, &compute))
}

/// Serves the figures over HTTP, as they are at each request, until the program is stopped or, for
/// tests, so many requests were answered.
pub fn serve(
    host: &dyn Host,
    address: SocketAddr,
    most: Option<usize>,
    said: &mut dyn Write,
) -> Result<(), Failure> {
    let failed = |e: &std::io::Error| {
        let problem = Problem::Listen {
            address,
            errno: errno(e),
        };
        problem.when("serve the metrics")
    };
    let server = Server::http(address).map_err(|e| match e.downcast::<std::io::Error>() {
        Ok(e) => failed(&e),
        Err(_) => failed(&std::io::Error::from_raw_os_error(nix::libc::EIO)),
    })?;
    // With port 0 the kernel chooses; and a script may wait for the line.
    let _ = writeln!(
        said,
        "cgpuctl: serving http://{}/metrics",
        server.server_addr()
    );
    let _ = said.flush();
    for _ in 0..most.unwrap_or(usize::MAX) {
        let request = server.recv().map_err(|e| failed(&e))?;
        answer(host, request);
    }
    Ok(())
}

fn answer(host: &dyn Host, request: Request) {
    let path = request.url().split('?').next().unwrap_or_default();
    let (code, kind, text) = match (request.method(), path) {
        (Method::Get | Method::Head, "/metrics") => match once(host) {
            Ok(text) => (200, CONTENT_TYPE, text),
            Err(problem) => (503, PLAIN, format!("{problem}\n")),
        },
        (Method::Get | Method::Head, _) => (404, PLAIN, "the figures are at /metrics\n".to_owned()),
        _ => (
            405,
            PLAIN,
            "the figures can be got, nothing else\n".to_owned(),
        ),
    };
    let mut response = Response::from_string(text).with_status_code(code);
    if let Ok(header) = Header::from_bytes("Content-Type", kind) {
        response = response.with_header(header);
    }
    // Who asked has gone; that is no failure of ours.
    let _ = request.respond(response);
}

const PLAIN: &str = "text/plain; charset=utf-8";
