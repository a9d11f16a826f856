//! `/metrics` and `/status.json` of a running server, and the signals that stop it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use zonda_exports::snapshot::Snapshot;
use zonda_exports::{Handle, METRICS_CONTENT_TYPE, metrics_text, retry_address_in_use};

use super::connections;
use super::control::Control;
use super::guard::Names;

/// How long the server may take to tell how it is.
const PATIENCE: Duration = Duration::from_secs(2);

const PAGE: &str = "zonda

/metrics       for Prometheus
/status.json   the same for programs; `zonda status` shows it to people
";

/// How the wait for a server came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The server has ended.
    Server,
    /// A second signal has ended the wait; the server goes on.
    Patience,
}

/// What waits for signals and HTTP requests while the server works in its own thread.
pub(super) struct Attendant {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    /// Where volumes can be managed.
    controls: Vec<Control>,
}

impl Attendant {
    /// From here on SIGTERM and SIGINT end nothing by themselves.
    pub(super) fn new(volumes: &[PathBuf], handle: &Handle) -> io::Result<Attendant> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let controls = volumes.iter().map(|volume| Control::listen(volume, handle)).collect::<Result<_, _>>()?;
        drop(inside);
        Ok(Attendant { runtime, terminate, interrupt, controls })
    }

    /// Answers HTTP requests, and hands on signals as a wish to stop, until the server has ended.
    pub(super) fn attend(
        self,
        listener: Option<TcpListener>,
        names: Names,
        handle: &Handle,
        mut ended: oneshot::Receiver<()>,
        on_signal: impl FnOnce(),
    ) -> io::Result<Ended> {
        let Attendant { runtime, mut terminate, mut interrupt, controls: _controls } = self;
        runtime.block_on(async {
            if let Some(listener) = listener {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let app = router(handle.clone());
                tokio::spawn(connections::serve(listener, app, names));
            }
            tokio::select! {
                _ = &mut ended => return Ok(Ended::Server),
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            on_signal();
            handle.stop();
            // A second signal ends the wait; what the drives still have to do is then done by recovery.
            Ok(tokio::select! {
                _ = &mut ended => Ended::Server,
                _ = terminate.recv() => Ended::Patience,
                _ = interrupt.recv() => Ended::Patience,
            })
        })
    }
}

/// Takes the address of the HTTP server, before anything is served. One that a killed server had is soon free.
pub(super) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    retry_address_in_use(|| TcpListener::bind(address))
}

fn router(handle: Handle) -> Router {
    Router::new()
        .route("/", get(async || PAGE))
        .route("/metrics", get(metrics))
        .route("/status.json", get(status))
        .with_state(handle)
}

async fn metrics(State(handle): State<Handle>) -> Response {
    match snapshot(handle).await {
        Some(snapshot) => ([(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], metrics_text(&snapshot)).into_response(),
        None => unavailable(),
    }
}

async fn status(State(handle): State<Handle>) -> Response {
    match snapshot(handle).await {
        Some(snapshot) => {
            let text = serde_json::to_string(&snapshot).expect("snapshots hold only text keys and finite numbers");
            ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response()
        }
        None => unavailable(),
    }
}

/// The server's loop answers between two turns; the wait for it is no reason to hold up other requests.
async fn snapshot(handle: Handle) -> Option<Snapshot> {
    tokio::task::spawn_blocking(move || handle.snapshot(PATIENCE)).await.ok().flatten()
}

fn unavailable() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the server is stopping, or too busy to tell\n").into_response()
}
