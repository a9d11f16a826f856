//! Connections over HTTP: few, short, and one request each.
//!
//! Whoever opens more than there is room for ends the oldest of them, and whoever is slow is cut, so that half a request keeps nobody
//! out for long.

use std::collections::VecDeque;
use std::convert::Infallible;
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

/// At the same time; the oldest gives way to a new one.
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
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS_MAX
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let connection = answer(stream, app.clone(), names.clone());
        connections.push_back(tokio::spawn(tokio::time::timeout(CONNECTION_MAX, connection)).abort_handle());
    }
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
