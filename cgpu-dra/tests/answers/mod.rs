// SPDX-License-Identifier: GPL-2.0 OR MIT
//! An apiserver of a test, which answers as the test says.

use cgpu_dra::web;
use http::{Request, StatusCode};
use hyper::body::Bytes;
use kube::{Client, Config};
use tokio::net::TcpListener;

/// An apiserver that gives these answers. Without words it never answers. It runs for as long as
/// the test does.
pub(crate) async fn serve<F, A>(answer: F) -> Client
where
    F: Fn(&Request<Bytes>) -> A + Clone + Send + Sync + 'static,
    A: std::fmt::Display,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let handler = move |request: Request<Bytes>| {
        let text = format!("{}\n", answer(&request));
        async move {
            if text == "\n" {
                std::future::pending::<()>().await;
            }
            web::response(StatusCode::OK, "application/json", text)
        }
    };
    tokio::spawn(web::serve(listener, None, |_| Some(4 << 20), handler));
    let at = format!("http://{address}").parse().expect("an address");
    Client::try_from(Config::new(at)).expect("a client")
}
