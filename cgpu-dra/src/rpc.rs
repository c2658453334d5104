// SPDX-License-Identifier: GPL-2.0 OR MIT
//! gRPC on a Unix socket: the listener, and calls with one answer or with a stream of them. The
//! services' own code (`kubelet.rs`) chooses by the path of the call. Also calls of another's
//! service.

use bytes::{BufMut, BytesMut};
use futures_util::{future::BoxFuture, stream::BoxStream};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    body::Incoming, client::conn::http2 as client, server::conn::http2, service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::{
    convert::Infallible,
    future::Future,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
};
use tonic::{
    body::Body,
    server::{Grpc, ServerStreamingService, UnaryService},
    Request, Response, Status,
};
use tonic_prost::ProstCodec;

/// Bytes in front of a message: whether it is compressed, and its length.
const FRAME: usize = 5;

/// A call as it came.
pub type Call = http::Request<Incoming>;
/// The answer to a call.
pub type Answer = http::Response<Body>;

/// Puts a socket at this path, in the place of one that nobody listens at any more.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => UnixListener::bind(path),
    }
}

/// The file that a path leads to: another one has another number, or another time of birth.
pub fn identity(path: &Path) -> Option<(u64, i64, i64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.ino(), found.ctime(), found.ctime_nsec()))
}

/// The file of a socket, which goes when this is dropped. That of another process that has taken
/// its place stays.
pub struct SocketFile {
    path: PathBuf,
    file: Option<(u64, i64, i64)>,
}

impl SocketFile {
    /// The file that is there now.
    pub fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            file: identity(path),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path) == self.file {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Waits for the stop. What it is told by does not stay held.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Serves until it is stopped. Calls that have begun are ended first.
pub async fn serve<F, A>(listener: UnixListener, handler: F, mut stop: watch::Receiver<bool>)
where
    F: Fn(Call) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    loop {
        let stream = tokio::select! {
            () = stopped(&mut stop) => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Too many files are open; a wait lets some be closed.
                Err(_) => {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let (handler, mut stop) = (handler.clone(), stop.clone());
        tokio::spawn(async move {
            let service = service_fn(move |call| {
                let answer = handler(call);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let connection = http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service);
            tokio::pin!(connection);
            tokio::select! {
                // The kubelet has gone, or speaks something else; it connects again.
                _ = connection.as_mut() => {}
                () = stopped(&mut stop) => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        });
    }
}

struct Unary<F>(F);

impl<Q, A, F, R> UnaryService<Q> for Unary<F>
where
    F: FnMut(Q) -> R,
    R: Future<Output = Result<A, Status>> + Send + 'static,
{
    type Response = A;
    type Future = BoxFuture<'static, Result<Response<A>, Status>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answer = (self.0)(request.into_inner());
        Box::pin(async move { answer.await.map(Response::new) })
    }
}

/// Answers a call that has one question and one answer.
pub async fn unary<Q, A, F, R>(call: Call, method: F) -> Answer
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
    F: FnMut(Q) -> R,
    R: Future<Output = Result<A, Status>> + Send + 'static,
{
    let codec = ProstCodec::<A, Q>::default();
    Grpc::new(codec).unary(Unary(method), call).await
}

struct Streamed<A>(Option<BoxStream<'static, Result<A, Status>>>);

impl<Q, A> ServerStreamingService<Q> for Streamed<A> {
    type Response = A;
    type ResponseStream = BoxStream<'static, Result<A, Status>>;
    type Future = std::future::Ready<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, _request: Request<Q>) -> Self::Future {
        let stream = self.0.take();
        std::future::ready(
            stream
                .map(Response::new)
                .ok_or_else(|| Status::internal("asked twice")),
        )
    }
}

/// Answers a call that has one question and many answers.
pub async fn streamed<Q, A>(call: Call, answers: BoxStream<'static, Result<A, Status>>) -> Answer
where
    Q: Message + Default + 'static,
    A: Message + Default + 'static,
{
    let codec = ProstCodec::<A, Q>::default();
    Grpc::new(codec)
        .server_streaming::<Streamed<A>, _>(Streamed(Some(answers)), call)
        .await
}

/// Calls a service at a socket: one question, one answer of at most so many bytes. An error is a
/// sentence.
pub async fn ask<Q, A>(
    socket: &Path,
    method: &str,
    question: &Q,
    largest: usize,
) -> Result<A, String>
where
    Q: Message,
    A: Message + Default,
{
    let stream = UnixStream::connect(socket).await;
    let stream = stream.map_err(|e| format!("cannot connect to {}: {e}", socket.display()))?;
    let made = client::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = made.map_err(|e| e.to_string())?;
    // It ends when the sender is dropped.
    tokio::spawn(connection);
    let mut frame = BytesMut::new();
    let length = u32::try_from(question.encoded_len()).map_err(|e| e.to_string())?;
    frame.put_u8(0);
    frame.put_u32(length);
    question.encode(&mut frame).map_err(|e| e.to_string())?;
    let request = http::Request::post(format!("http://localhost{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(frame.freeze()))
        .map_err(|e| e.to_string())?;
    let answer = sender.send_request(request).await;
    let (head, body) = answer.map_err(|e| e.to_string())?.into_parts();
    let body = Limited::new(body, largest).collect().await;
    let body = body.map_err(|e| e.to_string())?;
    let trailers = body.trailers().and_then(|t| t.get("grpc-status"));
    let status = trailers.or_else(|| head.headers.get("grpc-status"));
    if status.is_none_or(|status| status != "0") {
        return Err(format!("{method} ended with the status {status:?}"));
    }
    let bytes = body.to_bytes();
    let message = bytes.get(FRAME..).ok_or("an answer without a frame")?;
    A::decode(message).map_err(|e| e.to_string())
}

/// The answer to a call that no service has.
pub fn unknown(path: &str) -> Answer {
    let path: String = path.chars().take(200).collect();
    Status::unimplemented(format!("there is no {path}")).into_http()
}
