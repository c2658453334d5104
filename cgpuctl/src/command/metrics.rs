// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `metrics`: the figures for Prometheus, once or over HTTP.

use super::{info, inst_list, target};
use crate::{
    client::errno,
    error::{Failure, Problem},
    exit::Exit,
    host::Host,
    metrics::{limits_of, text_of, Figures, CONTENT_TYPE},
    output::Report,
    verb::Verb,
};
use clap::Args;
use futures_util::{stream::FuturesUnordered, StreamExt};
use http::{
    header::{HeaderValue, CONTENT_TYPE as KIND},
    Method, Request, Response, StatusCode,
};
use http_body_util::Full;
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use std::{cell::Cell, convert::Infallible, io::Write, net::SocketAddr, time::Duration};
use tokio::net::{TcpListener, TcpStream};

/// How many clients may be connected at once; more wait.
const CONNECTIONS: usize = 64;
/// How long a client may take for its request, and again for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Print the figures of all instances as Prometheus reads them.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl metrics --listen 127.0.0.1:9400")]
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
        Err("only this machine may ask: take 127.0.0.1 or [::1], and for others a proxy with TLS, as /usr/share/doc/cgpu/docs/metrics.md says")
    }
}

#[derive(Serialize)]
struct MetricsMembers {
    content_type: &'static str,
    text: String,
}

impl Verb for Metrics {
    fn attempt(&self) -> String {
        "print the metrics".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let text = once(host)?;
        let members = MetricsMembers {
            content_type: CONTENT_TYPE,
            text: text.clone(),
        };
        Ok(Report::new(members, text)?)
    }

    fn stay(&self, host: &dyn Host, _: bool, err: &mut dyn Write) -> Option<Result<Exit, Failure>> {
        let served = |address| serve(host, address, None, err).map(|()| Exit::Done);
        self.listen.map(served)
    }
}

fn once(host: &dyn Host) -> Result<String, Problem> {
    let control = target::open(host)?;
    let (version, gpus) = match info::driver(&*control) {
        // Instances outlive the driver, and so do their figures.
        Err(Problem::DriverMissing | Problem::UnknownDriver) => (control.version()?, vec![]),
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
    let failed = |e: std::io::Error| {
        let errno = errno(&e);
        Problem::Listen { address, errno }.when("serve the metrics")
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        // With port 0 the kernel chooses; and a script may wait for the line.
        let _ = writeln!(said, "cgpuctl: serving http://{bound}/metrics");
        let _ = said.flush();
        let mut connections = FuturesUnordered::new();
        let mut left = most.unwrap_or(usize::MAX);
        while left > 0 {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                    Ok((stream, _)) => connections.push(connection(host, stream)),
                    // Too many files are open; a wait lets some be closed.
                    Err(_) => tokio::time::sleep(PATIENCE / 50).await,
                },
                Some(is_answered) = connections.next() => left -= usize::from(is_answered),
            }
        }
        Ok(())
    })
}

/// A client's connection to its end: whether it was answered. One that is silent holds up nobody.
async fn connection(host: &dyn Host, stream: TcpStream) -> bool {
    let is_answered = Cell::new(false);
    let service = service_fn(|request| {
        let response = answer(host, &request);
        is_answered.set(true);
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A client that has gone, or speaks something else, is no concern of ours.
    let _ = tokio::time::timeout(2 * PATIENCE, connection).await;
    is_answered.get()
}

fn answer(host: &dyn Host, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let get = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, kind, text) = match (get, request.uri().path()) {
        (true, "/metrics") => match once(host) {
            Ok(text) => (StatusCode::OK, CONTENT_TYPE, text),
            Err(problem) => (
                StatusCode::SERVICE_UNAVAILABLE,
                PLAIN,
                format!("{problem}\n"),
            ),
        },
        (true, _) => (
            StatusCode::NOT_FOUND,
            PLAIN,
            "the figures are at /metrics\n".to_owned(),
        ),
        (false, _) => (
            StatusCode::METHOD_NOT_ALLOWED,
            PLAIN,
            "the figures can be got, nothing else\n".to_owned(),
        ),
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(KIND, HeaderValue::from_static(kind));
    response
}

const PLAIN: &str = "text/plain; charset=utf-8";
