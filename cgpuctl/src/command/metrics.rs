// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `metrics`: the figures for Prometheus, once or over HTTP.

use super::{info, inst_list, target};
use crate::{
    client::errno,
    error::{Failure, Problem},
    host::Host,
    metrics::{limits_of, text_of, Figures, CONTENT_TYPE},
    output::Report,
    verb::Verb,
};
use clap::Args;
use serde::Serialize;
use std::{io::Write, net::SocketAddr};
use tiny_http::{Header, Method, Request, Response, Server};

/// Print the figures of all instances as Prometheus reads them.
#[derive(Args)]
pub(crate) struct Metrics {
    /// Serve them over HTTP instead, at /metrics of this loopback address, until stopped.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = loopback, conflicts_with = "json")]
    listen: Option<SocketAddr>,
}

fn loopback(text: &str) -> Result<SocketAddr, &'static str> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "an address and a port are needed, like 127.0.0.1:9400 or [::1]:9400")?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("only this machine may ask: take 127.0.0.1 or [::1], and a proxy that asks who it is")
    }
}

#[derive(Serialize)]
struct MetricsMembers {
    content_type: &'static str,
    text: String,
}

impl Verb for Metrics {
    fn attempt(&self) -> String {
        "tell the metrics".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let text = once(host)?;
        let members = MetricsMembers {
            content_type: CONTENT_TYPE,
            text: text.clone(),
        };
        Ok(Report::new(members, text)?)
    }

    fn stay(&self, host: &dyn Host, _: bool, err: &mut dyn Write) -> Option<Result<(), Failure>> {
        self.listen.map(|address| serve(host, address, None, err))
    }
}

fn once(host: &dyn Host) -> Result<String, Problem> {
    let control = target::open(host)?;
    let (version, gpus) = match info::driver(&*control) {
        // Idle instances outlive the driver, and so do their figures.
        Err(Problem::DriverMissing) => (control.version()?, vec![]),
        read => read?,
    };
    let instances = inst_list::all(&*control)?;
    let figures = Figures {
        // Without the driver there are no GPUs to report on.
        gpu_compute: if gpus.is_empty() {
            vec![]
        } else {
            control.gpu_compute()?
        },
        instance_compute: control.instance_compute()?,
        limits: limits_of(&*control, &instances)?,
        version,
        gpus,
        instances,
    };
    Ok(text_of(&figures))
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
    // The client has gone; that is no failure of the server.
    let _ = request.respond(response);
}

const PLAIN: &str = "text/plain; charset=utf-8";
