// SPDX-License-Identifier: GPL-2.0 OR MIT
//! gRPC as the kubelet speaks it on a socket. It frames messages itself, so that a fault of the
//! driver's framing cannot hide behind the same library.

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::path::Path;
use tokio::net::UnixStream;

/// A connection to a socket.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
}

impl Connection {
    pub(crate) async fn open(socket: &Path) -> Self {
        Self::open_as(socket, "localhost").await
    }

    /// The kubelet names the socket itself as the host when it registers a driver.
    pub(crate) async fn open_as(socket: &Path, authority: &str) -> Self {
        let stream = UnixStream::connect(socket).await.expect("connected");
        let made = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = made.expect("HTTP/2");
        tokio::spawn(connection);
        Self {
            sender,
            authority: authority.to_owned(),
        }
    }

    async fn send(&mut self, path: &str, message: &[u8]) -> http::Response<Incoming> {
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(u32::try_from(message.len()).expect("short"));
        frame.put_slice(message);
        let request = http::Request::post(format!("http://{}{path}", self.authority))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(frame.freeze()))
            .expect("a request");
        self.sender.ready().await.expect("open");
        self.sender.send_request(request).await.expect("answered")
    }

    /// The answer to a call, or the number of its status.
    pub(crate) async fn call<A: Message + Default>(
        &mut self,
        path: &str,
        message: &impl Message,
    ) -> Result<A, String> {
        self.raw(path, &message.encode_to_vec()).await
    }

    /// The same for any bytes.
    pub(crate) async fn raw<A: Message + Default>(
        &mut self,
        path: &str,
        message: &[u8],
    ) -> Result<A, String> {
        let response = self.send(path, message).await;
        let status = |headers: &http::HeaderMap| {
            let value = headers.get("grpc-status")?.to_str().ok()?;
            Some(value.to_owned())
        };
        let early = status(response.headers());
        let body = response.into_body().collect().await.expect("a body");
        let status = body.trailers().and_then(status).or(early);
        match status.as_deref() {
            Some("0") => {}
            other => return Err(other.unwrap_or("none").to_owned()),
        }
        let bytes = body.to_bytes();
        let framed = bytes.get(5..).ok_or("no frame")?;
        A::decode(framed).map_err(|e| e.to_string())
    }

    /// The first answer of a stream.
    pub(crate) async fn first<A: Message + Default>(&mut self, path: &str) -> A {
        let mut body = self.send(path, &[]).await.into_body();
        let frame = body.frame().await.expect("a frame").expect("read");
        let data = frame.into_data().expect("data");
        A::decode(&data[5..]).expect("a message")
    }
}
