//! HTTP connections: limited in number and duration, with one request each.
//!
//! When the limit is reached, a new connection closes the oldest one of the address with the most
//! connections, so that a client that opens many closes its own. Connections with incomplete
//! requests time out.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::IpAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::guard::Names;

/// Maximum number of concurrent connections; a new one closes an old one.
const CONNECTIONS_MAX: usize = 32;
/// Timeout from the start of a connection until its request is complete.
const REQUEST_MAX: Duration = Duration::from_secs(5);
/// Timeout from the start of a connection until its response is sent, which includes up to two
/// seconds for the snapshot.
const CONNECTION_MAX: Duration = Duration::from_secs(15);
/// Maximum size of the request line and headers; the minimum that the library accepts.
const HEAD_BYTES_MAX: usize = 8192;
/// Maximum number of header lines of a request.
const HEADERS_MAX: usize = 64;
/// Delay before accepting again after a system error such as too many open files.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const _: () = assert!(REQUEST_MAX.as_secs() < CONNECTION_MAX.as_secs());

/// Accepts connections and answers requests; never returns.
pub(super) async fn serve(listener: TcpListener, app: Router, names: Names) {
    let mut connections: VecDeque<(IpAddr, AbortHandle)> = VecDeque::new();
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        connections.retain(|(_, connection)| !connection.is_finished());
        let addresses = connections.iter().map(|(address, _)| *address);
        if connections.len() >= CONNECTIONS_MAX
            && let Some((_, connection)) = connections.remove(victim(addresses))
        {
            connection.abort();
        }
        let connection = answer(stream, app.clone(), names.clone());
        let task = tokio::spawn(tokio::time::timeout(CONNECTION_MAX, connection)).abort_handle();
        connections.push_back((peer.ip(), task));
    }
}

/// Index of the connection to close for a new one: the oldest of the address with the most
/// connections.
fn victim(addresses: impl Iterator<Item = IpAddr> + Clone) -> usize {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    addresses.clone().for_each(|address| *counts.entry(address).or_default() += 1);
    let most = counts.into_iter().max_by_key(|&(_, count)| count).map(|(address, _)| address);
    addresses.into_iter().position(|address| Some(address) == most).unwrap_or(0)
}

/// Answers one request and closes the connection.
async fn answer(stream: TcpStream, app: Router, names: Names) {
    let app = TowerToHyperService::new(app);
    let guarded = service_fn(move |request: Request<Incoming>| {
        let admitted = names.check(request.headers()).map(|()| app.call(request));
        async move {
            let response: Response = match admitted {
                Ok(answer) => answer.await?,
                Err(refusal) => refusal.into_response(),
            };
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), guarded);
    // Errors of disconnected or misbehaving clients are ignored.
    let _ = connection.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_with_many_connections_closes_its_own() {
        let addresses = |text: &str| text.bytes().map(|last| IpAddr::from([192, 0, 2, last])).collect::<Vec<_>>();
        let place = |text: &str| victim(addresses(text).into_iter());
        assert_eq!([place("abb"), place("aab"), place("cbab")], [1, 0, 1]);
    }
}
