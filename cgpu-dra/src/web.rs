// SPDX-License-Identifier: GPL-2.0 OR MIT
//! HTTP on a port, with TLS or without: what Prometheus and the apiserver ask. A client that is
//! slow or silent holds up nobody, many clients take little memory, and one with many connections
//! keeps nobody out.

use futures_util::future::{AbortHandle, Abortable};
use http::{request::Parts, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Body, Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::Future,
    net::{IpAddr, Ipv6Addr},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{Semaphore, SemaphorePermit},
};
use tokio_rustls::{
    rustls::{
        self,
        pki_types::{pem::PemObject, CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
        ServerConfig,
    },
    TlsAcceptor,
};

/// How many connections there may be at once. For one more that of a peer with the most is ended.
const CONNECTIONS: usize = 128;
/// How many requests are answered at once; more wait.
const AT_ONCE: usize = 4;
/// How long a client may take for its request.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take for the request's body.
const FOR_BODY: Duration = Duration::from_secs(5);
/// Longest body that every client may send at once, bytes; nearly all reviews are shorter.
const SMALL: usize = 64 << 10;
/// How many longer bodies are in memory at once; more wait.
const LARGE_AT_ONCE: usize = 4;

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
    acceptor(chain, secret).map_err(|e| failed(certificate, &e))
}

/// TLS with a new certificate that nobody has signed, for clients that verify none: what they say
/// is hidden from a program that only listens. An error is a sentence.
pub fn own_tls() -> Result<TlsAcceptor, String> {
    let own = rcgen::generate_simple_self_signed(["cgpu-dra".to_owned()]);
    let own = own.map_err(|e| e.to_string())?;
    let secret = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    acceptor(vec![own.cert.into()], secret.into()).map_err(|e| e.to_string())
}

fn acceptor(
    chain: Vec<CertificateDer<'static>>,
    secret: PrivateKeyDer<'static>,
) -> Result<TlsAcceptor, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)?;
    Ok(Arc::new(config).into())
}

/// The room that clients share.
struct Room {
    large: Semaphore,
    turns: Semaphore,
}

/// The connections: whose each is and how it is ended, by its number.
#[derive(Default)]
struct Connections(Mutex<BTreeMap<u64, (IpAddr, AbortHandle)>>);

/// A place among the connections, until it is dropped.
struct Place(Arc<Connections>, u64);

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.0 .0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.1);
    }
}

/// In a request's extensions: the machine that has sent it.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// The machine behind an address. It may have many addresses of IPv6, in one network.
fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

impl Connections {
    /// A place for a connection with this number, which is higher than those before. If there is no
    /// room, the last one of a peer with the most connections is ended; if that is this peer, there
    /// is no place.
    fn admit(self: &Arc<Self>, number: u64, peer: IpAddr, end: AbortHandle) -> Option<Place> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= CONNECTIONS {
            let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
            for (whose, _) in all.values() {
                *counts.entry(*whose).or_default() += 1;
            }
            let own = counts.get(&peer).copied().unwrap_or_default();
            let (most, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
            let last = all.iter().rfind(|(_, (whose, _))| *whose == most);
            let last = last.map(|(number, _)| *number).filter(|_| own < count)?;
            if let Some((_, end)) = all.remove(&last) {
                end.abort();
            }
        }
        all.insert(number, (peer, end));
        drop(all);
        Some(Place(self.clone(), number))
    }
}

/// Serves for as long as it is polled. `longest` says from a request's head how many bytes its body
/// may have. If that is `None`, the body is not read.
pub async fn serve<L, F, A>(listener: TcpListener, tls: Option<TlsAcceptor>, longest: L, handler: F)
where
    L: Fn(&Parts) -> Option<usize> + Clone + Send + Sync + 'static,
    F: Fn(Request<Bytes>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let connections: Arc<Connections> = Arc::default();
    let room = Arc::new(Room {
        large: Semaphore::new(LARGE_AT_ONCE),
        turns: Semaphore::new(AT_ONCE),
    });
    for number in 0.. {
        let Ok((stream, address)) = listener.accept().await else {
            // Too many files are open; a wait lets some be closed.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (end, ended) = AbortHandle::new_pair();
        let peer = peer(address.ip());
        let Some(place) = connections.admit(number, peer, end) else {
            continue;
        };
        let (tls, longest) = (tls.clone(), longest.clone());
        let (handler, room) = (handler.clone(), room.clone());
        let handler = move |mut request: Request<Bytes>| {
            request.extensions_mut().insert(Peer(peer));
            handler(request)
        };
        let connection = async move {
            let _place = place;
            // A client that speaks something else, or nothing, is no concern of ours.
            let spoken = async move {
                match tls {
                    None => talk(stream, longest, handler, room).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            talk(stream, longest, handler, room).await;
                        }
                    }
                }
            };
            let _ = tokio::time::timeout(2 * PATIENCE, spoken).await;
        };
        tokio::spawn(Abortable::new(connection, ended));
    }
}

/// Why a body was not read.
enum Unread {
    TooLong,
    TooSlow,
    Broken,
}

/// Reads a body. A long one takes one of the few places for such, and keeps it until its request
/// is answered.
async fn read<'a>(
    mut body: Incoming,
    longest: usize,
    room: &'a Room,
) -> Result<(Bytes, Option<SemaphorePermit<'a>>), Unread> {
    let (mut read, mut place) = (Vec::new(), None);
    let announced = body.size_hint();
    let fits = |length: u64| usize::try_from(length).is_ok_and(|n| n <= longest);
    if !fits(announced.lower()) {
        return Err(Unread::TooLong);
    }
    let mut late = tokio::time::Instant::now() + FOR_BODY;
    loop {
        let frame = tokio::time::timeout_at(late, body.frame()).await;
        let Some(frame) = frame.map_err(|_| Unread::TooSlow)? else {
            return Ok((read.into(), place));
        };
        let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else {
            continue;
        };
        let length = read.len() + data.len();
        if length > longest {
            return Err(Unread::TooLong);
        }
        if length > SMALL && place.is_none() {
            // Nobody closes the semaphore. The wait is not the client's fault.
            place = room.large.acquire().await.ok();
            late = tokio::time::Instant::now() + FOR_BODY;
            // In one piece, instead of growing, which takes twice the memory.
            let whole = announced.exact().filter(|n| fits(*n));
            let whole = whole.and_then(|n| usize::try_from(n).ok());
            read.reserve_exact(whole.unwrap_or(longest) - read.len());
        }
        read.extend_from_slice(&data);
    }
}

async fn talk<S, L, F, A>(stream: S, longest: L, handler: F, room: Arc<Room>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    L: Fn(&Parts) -> Option<usize> + Clone,
    F: Fn(Request<Bytes>) -> A + Clone,
    A: Future<Output = Response<Full<Bytes>>>,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (longest, handler, room) = (longest.clone(), handler.clone(), room.clone());
        async move {
            let (head, body) = request.into_parts();
            let Some(longest) = longest(&head) else {
                return Ok(handler(Request::from_parts(head, Bytes::new())).await);
            };
            let (body, _place) = match read(body, longest, &room).await {
                Ok(read) => read,
                Err(why) => {
                    let (status, said) = match why {
                        Unread::TooLong => (
                            StatusCode::PAYLOAD_TOO_LARGE,
                            format!("a body has {longest} bytes at most\n"),
                        ),
                        Unread::TooSlow => (
                            StatusCode::REQUEST_TIMEOUT,
                            format!("a body comes within {FOR_BODY:?}\n"),
                        ),
                        Unread::Broken => (
                            StatusCode::BAD_REQUEST,
                            "the body cannot be read\n".to_owned(),
                        ),
                    };
                    return Ok(response(status, "text/plain", said));
                }
            };
            // A request takes a turn when it is whole. Nobody closes the semaphore.
            let _turn = room.turns.acquire().await;
            Ok::<_, Infallible>(handler(Request::from_parts(head, body)).await)
        }
    });
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(SMALL)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpSocket, TcpStream},
    };

    /// A server that says how long each body was, and reads none that is sent to `/unread`.
    async fn start(longest: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("bound");
        let longest = move |head: &Parts| (head.uri.path() != "/unread").then_some(longest);
        tokio::spawn(serve(listener, None, longest, |request| {
            let said = format!("{} bytes", request.body().len());
            std::future::ready(response(StatusCode::OK, "text/plain", said))
        }));
        at
    }

    /// A client that has said so much.
    async fn client(at: SocketAddr, said: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(at).await.expect("connected");
        stream.write_all(said).await.expect("sent");
        stream
    }

    /// The answer to it, which does not wait for the patience of others.
    async fn answer(mut stream: TcpStream) -> String {
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let read = tokio::time::timeout(FOR_BODY / 2, read).await;
        // A connection whose body was not read may be reset.
        let _ = read.expect("in time");
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn post(announced: usize, sent: usize) -> Vec<u8> {
        let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {announced}\r\n\r\n");
        [head.into_bytes(), vec![b'x'; sent]].concat()
    }

    #[tokio::test]
    async fn no_body_is_longer_than_allowed() {
        for (longest, length, said) in [
            (0, 0, "0 bytes"),
            (0, 1, "0 bytes at most"),
            (2 * SMALL, 2 * SMALL, "131072 bytes"),
            (2 * SMALL, 2 * SMALL + 1, "131072 bytes at most"),
        ] {
            let at = start(longest).await;
            let head = client(at, &post(length, 0)).await;
            let whole = client(at, &post(length, length.min(longest))).await;
            let text = answer(whole).await;
            assert!(
                text.ends_with(said) || text.ends_with(&format!("{said}\n")),
                "{text}"
            );
            // A body that is too long is refused before it comes.
            if length > longest {
                let text = answer(head).await;
                assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
            }
            let chunk = "x".repeat(length);
            let chunks = "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
            let chunks = format!("{chunks}{length:x}\r\n{chunk}\r\n");
            let end = if length == 0 { "\r\n" } else { "0\r\n\r\n" };
            let text = answer(client(at, (chunks + end).as_bytes()).await).await;
            assert!(text.contains(said) || text.is_empty(), "{text}");
        }
    }

    /// The numbers of the connections.
    fn numbers(connections: &Connections) -> Vec<u64> {
        let all = connections.0.lock().expect("held");
        all.keys().copied().collect()
    }

    #[test]
    fn one_peer_keeps_nobody_out() {
        let connections: Arc<Connections> = Arc::default();
        let [many, one] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().expect("an address"));
        let admit = |number: usize, peer| {
            let (end, _ended) = AbortHandle::new_pair();
            let number = u64::try_from(number).expect("small");
            (connections.admit(number, peer, end.clone()), end)
        };
        let mut all: Vec<_> = (0..CONNECTIONS).map(|n| admit(n, many)).collect();
        assert!(all
            .iter()
            .all(|(place, end)| place.is_some() && !end.is_aborted()));
        // The peer with the most gets no more, and gives way to others until they have as many.
        assert!(admit(CONNECTIONS, many).0.is_none());
        let half = CONNECTIONS / 2;
        let others: Vec<_> = (0..half).map(|n| admit(1000 + n, one)).collect();
        assert!(others.iter().all(|(place, _)| place.is_some()));
        assert!(admit(2000, one).0.is_none() && admit(2001, many).0.is_none());
        let ended = all.iter().map(|(_, end)| end.is_aborted());
        assert!(ended.eq((0..CONNECTIONS).map(|n| n >= half)));
        // One that was ended leaves later, and takes no other's place along.
        all.truncate(half);
        assert_eq!(numbers(&connections).len(), CONNECTIONS);
        drop((all, others));
        assert!(numbers(&connections).is_empty());
    }

    #[tokio::test]
    async fn a_full_server_answers_another_peer() {
        let at = start(0).await;
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS {
            silent.push(client(at, b"GET /").await);
        }
        // Nothing is answered before all of them are let in.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let get = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
        assert_eq!(answer(client(at, get).await).await, "");
        let other = TcpSocket::new_v4().expect("a socket");
        other
            .bind("127.0.0.2:0".parse().expect("an address"))
            .expect("bound");
        let mut other = other.connect(at).await.expect("connected");
        other.write_all(get).await.expect("sent");
        assert!(answer(other).await.ends_with("0 bytes"));
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let of = |text: &str| peer(text.parse().expect("an address"));
        assert_eq!(of("fd00::1"), of("fd00::ffff:1"));
        assert_ne!(of("fd00::1"), of("fd00:0:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[tokio::test]
    async fn few_long_bodies_are_in_memory() {
        let at = start(2 * SMALL).await;
        let mut slow = Vec::new();
        for _ in 0..LARGE_AT_ONCE {
            slow.push(client(at, &post(2 * SMALL, 2 * SMALL - 1)).await);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        // A short one takes no place, and nor does one that is not read. A long one waits until the
        // slow ones are late.
        let long = post(2 * SMALL, SMALL);
        let unread = [b"POST /unread", &long[b"POST /".len()..]].concat();
        let text = answer(client(at, &unread).await).await;
        assert!(text.ends_with("0 bytes"), "{text}");
        let text = answer(client(at, &post(SMALL, SMALL)).await).await;
        assert!(text.ends_with("65536 bytes"), "{text}");
        let mut long = client(at, &post(2 * SMALL, 2 * SMALL)).await;
        let mut first = [0; 12];
        let early = tokio::time::timeout(FOR_BODY / 5, long.read_exact(&mut first)).await;
        assert!(early.is_err(), "{early:?}");
        let late = tokio::time::timeout(FOR_BODY, long.read_exact(&mut first)).await;
        assert!(late.is_ok_and(|read| read.is_ok()) && first == *b"HTTP/1.1 200");
        let mut told = String::new();
        let one = slow.first_mut().expect("there");
        one.read_to_string(&mut told).await.expect("read");
        assert!(told.starts_with("HTTP/1.1 408 "), "{told}");
    }
}
