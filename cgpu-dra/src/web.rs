// SPDX-License-Identifier: GPL-2.0 OR MIT
//! HTTP on a port, with TLS or without: what Prometheus and the apiserver ask. A client that is
//! slow or silent holds up nobody.

use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    body::{Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, future::Future, path::Path, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::Semaphore,
};
use tokio_rustls::{
    rustls::{
        pki_types::{pem::PemObject, CertificateDer, PrivateKeyDer},
        ServerConfig,
    },
    TlsAcceptor,
};

/// How many clients may be connected at once; more wait.
const CONNECTIONS: usize = 64;
/// How many requests are answered at once; more wait.
const AT_ONCE: usize = 4;
/// How long a client may take for its request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest body of a request, bytes: an object has at most 1.5 MiB, and a review may have two.
const LARGEST: usize = 4 << 20;

/// Makes a response of a text.
pub fn response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert("content-type", kind);
    response
}

/// TLS with this certificate and key, both PEM files. An error is a sentence.
pub fn tls(certificate: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let failed =
        |path: &Path, why: &dyn std::fmt::Display| format!("cannot use {}: {why}", path.display());
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| failed(certificate, &e))?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| failed(key, &e))?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|made| made.with_no_client_auth().with_single_cert(chain, secret))
        .map_err(|e| failed(certificate, &e))?;
    Ok(Arc::new(config).into())
}

/// Serves for as long as it is polled.
pub async fn serve<F, A>(listener: TcpListener, tls: Option<TlsAcceptor>, handler: F)
where
    F: Fn(Request<Bytes>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    // A request takes a turn when it is whole: a client that is slow or silent holds up nobody.
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(connected) = connections.clone().acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Too many files are open; a wait lets some be closed.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (tls, handler, turns) = (tls.clone(), handler.clone(), turns.clone());
        tokio::spawn(async move {
            let _connected = connected;
            // A client that speaks something else, or nothing, is no concern of ours.
            let spoken = async move {
                match tls {
                    None => talk(stream, handler, turns).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            talk(stream, handler, turns).await;
                        }
                    }
                }
            };
            let _ = tokio::time::timeout(2 * PATIENCE, spoken).await;
        });
    }
}

async fn talk<S, F, A>(stream: S, handler: F, turns: Arc<Semaphore>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Fn(Request<Bytes>) -> A + Clone,
    A: Future<Output = Response<Full<Bytes>>>,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (handler, turns) = (handler.clone(), turns.clone());
        async move {
            let (head, body) = request.into_parts();
            let Ok(body) = Limited::new(body, LARGEST).collect().await else {
                let said = format!("the body of a request has {LARGEST} bytes at most\n");
                let status = StatusCode::PAYLOAD_TOO_LARGE;
                return Ok(response(status, "text/plain", said));
            };
            // Nobody closes the semaphore.
            let _turn = turns.acquire().await;
            Ok::<_, Infallible>(handler(Request::from_parts(head, body.to_bytes())).await)
        }
    });
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
