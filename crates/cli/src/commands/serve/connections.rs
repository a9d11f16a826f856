//! Connections over HTTP: few, short, and one request each.
//!
//! When there are too many, the oldest of the address with the most is ended, so that who opens many ends its own. Whoever is slow is
//! cut, so that half a request does not keep others out for long.

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

/// At the same time; one gives way to a new one.
const CONNECTIONS_MAX: usize = 32;
/// From the start of a connection until its request is there.
const REQUEST_MAX: Duration = Duration::from_secs(5);
/// From the start of a connection until its answer has been taken. The server itself may take two seconds to tell.
const CONNECTION_MAX: Duration = Duration::from_secs(15);
/// Bytes of a request's line and headers; the least that the library takes.
const HEAD_BYTES_MAX: usize = 8192;
/// Lines of a request's headers.
const HEADERS_MAX: usize = 64;
/// After an error of the system, such as too many open files, connections are accepted again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const _: () = assert!(REQUEST_MAX.as_secs() < CONNECTION_MAX.as_secs());

/// Answers requests to this server for as long as it is polled.
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
            && let Some((_, connection)) = connections.remove(gives_way(addresses))
        {
            connection.abort();
        }
        let connection = answer(stream, app.clone(), names.clone());
        let task = tokio::spawn(tokio::time::timeout(CONNECTION_MAX, connection)).abort_handle();
        connections.push_back((peer.ip(), task));
    }
}

/// The place of the connection that is ended for a new one: the oldest of the address with the most.
fn gives_way(addresses: impl Iterator<Item = IpAddr> + Clone) -> usize {
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    addresses.clone().for_each(|address| *counts.entry(address).or_default() += 1);
    let most = counts.into_iter().max_by_key(|&(_, count)| count).map(|(address, _)| address);
    addresses.into_iter().position(|address| Some(address) == most).unwrap_or(0)
}

/// One request, and the end.
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
    // A client that is gone or speaks nonsense hears nothing more.
    let _ = connection.await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_opens_many_connections_ends_its_own() {
        let addresses = |text: &str| text.bytes().map(|last| IpAddr::from([192, 0, 2, last])).collect::<Vec<_>>();
        let place = |text: &str| gives_way(addresses(text).into_iter());
        assert_eq!([place("abb"), place("aab"), place("cbab")], [1, 0, 1]);
    }
}
