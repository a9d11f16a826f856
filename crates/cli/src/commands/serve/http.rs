//! `/metrics` and `/status.json` of a running server, and the signals that stop it.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use zonda_exports::snapshot::Snapshot;
use zonda_exports::{Handle, METRICS_CONTENT_TYPE, metrics_text, retry_address_in_use};

use super::connections;
use super::control::{Control, Kind};
use super::guard::Names;

/// Timeout of a snapshot of the server's status.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(2);

/// Programs such as `timeout` signal a process and its group: what follows within this time is the same
/// signal.
const SAME_SIGNAL_MAX: Duration = Duration::from_millis(300);

/// The part of a query that requests zone maps.
const ZONES: &str = "zones";

const PAGE: &str = "zonda

/metrics       metrics for Prometheus
/status.json   the status as JSON; `zonda status` shows it as text, and `zonda top` as it changes
               /status.json?zones has the zone maps of drives, too
";

/// Why the wait for a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The server has stopped.
    Stopped,
    /// A second signal was received before the server had stopped.
    SecondSignal,
}

/// Signals, HTTP requests and control sockets, handled while the server runs in its own thread.
pub(super) struct ControlPlane {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// Reloads the configuration on SIGHUP; `None` if the server has no configuration file.
    reload: Option<Sender<()>>,
    /// The control sockets of volumes and pools.
    controls: Vec<Control>,
}

impl ControlPlane {
    /// Installs handlers for SIGTERM, SIGINT and SIGHUP, and opens the control sockets.
    pub(super) fn new(
        volumes: &[PathBuf],
        pools: &[PathBuf],
        handle: &Handle,
        reload: Option<Sender<()>>,
    ) -> io::Result<ControlPlane> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        // Without a handler SIGHUP would end the process and leave the drives open.
        let hangup = signal(SignalKind::hangup())?;
        let volumes = volumes.iter().map(|volume| (volume, Kind::Volume));
        let all = volumes.chain(pools.iter().map(|pool| (pool, Kind::Pool)));
        let controls = all.map(|(place, kind)| {
            let failed =
                |error| io::Error::other(format!("cannot open the control socket in {}: {error}", place.display()));
            Control::listen(place, kind, handle).map_err(failed)
        });
        let controls = controls.collect::<Result<_, _>>()?;
        drop(inside);
        Ok(ControlPlane { runtime, terminate, interrupt, hangup, reload, controls })
    }

    /// Answers HTTP requests until the server has stopped; the first signal stops the server.
    pub(super) fn run(
        self,
        listener: Option<TcpListener>,
        names: Names,
        handle: &Handle,
        mut stopped: oneshot::Receiver<()>,
        on_signal: impl FnOnce(),
    ) -> io::Result<Ended> {
        let ControlPlane { runtime, mut terminate, mut interrupt, mut hangup, reload, controls: _controls } = self;
        runtime.block_on(async {
            if let Some(listener) = listener {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let app = router(handle.clone());
                tokio::spawn(connections::serve(listener, app, names));
            }
            loop {
                tokio::select! {
                    // A SIGHUP that was followed by SIGTERM is handled first.
                    biased;
                    _ = &mut stopped => return Ok(Ended::Stopped),
                    _ = hangup.recv() => hung_up(reload.as_ref()),
                    _ = terminate.recv() => break,
                    _ = interrupt.recv() => break,
                }
            }
            on_signal();
            handle.stop();
            // A second signal ends the wait; the drives are then recovered when they are next
            // opened.
            let first = Instant::now();
            loop {
                tokio::select! {
                    _ = &mut stopped => return Ok(Ended::Stopped),
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if first.elapsed() >= SAME_SIGNAL_MAX {
                    return Ok(Ended::SecondSignal);
                }
            }
        })
    }
}

/// Requests a reload, if there is a configuration file.
fn hung_up(reload: Option<&Sender<()>>) {
    match reload {
        Some(reload) => {
            // The thread that reloads lives as long as this.
            let _ = reload.send(());
        }
        None => tracing::info!("SIGHUP: no configuration file to read again, and the server continues"),
    }
}

/// Binds the HTTP server, before anything is served. Retries an address that is in use, which a
/// killed server may hold for a short time.
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
    match snapshot(handle, false).await {
        Some(snapshot) => ([(header::CONTENT_TYPE, METRICS_CONTENT_TYPE)], metrics_text(&snapshot)).into_response(),
        None => unavailable(),
    }
}

async fn status(State(handle): State<Handle>, RawQuery(query): RawQuery) -> Response {
    let has_zones = query.is_some_and(|query| query.split('&').any(|part| part == ZONES));
    match snapshot(handle, has_zones).await {
        Some(snapshot) => {
            let text = serde_json::to_string(&snapshot).expect("snapshots hold only text keys and finite numbers");
            ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response()
        }
        None => unavailable(),
    }
}

/// A snapshot, taken by the event loop of the server between two iterations. Waiting for it does
/// not block other requests.
async fn snapshot(handle: Handle, has_zones: bool) -> Option<Snapshot> {
    let take = move || match has_zones {
        true => handle.snapshot_with_zones(SNAPSHOT_TIMEOUT),
        false => handle.snapshot(SNAPSHOT_TIMEOUT),
    };
    tokio::task::spawn_blocking(take).await.ok().flatten()
}

fn unavailable() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "the server is stopping or busy\n").into_response()
}
