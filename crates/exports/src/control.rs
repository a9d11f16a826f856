//! Requests of other threads to a running server.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use zonda_devices::{DriveError, PoolReport, PoolRequest, VolumeReport, VolumeRequest};
use zonda_ring::Waker;

use crate::config::ServerPlan;
use crate::report::ZoneMaps;
use crate::snapshot::{ConfigurationSnapshot, Snapshot};
use crate::start::ServeError;

/// The channel for the reply to a volume request.
pub(crate) type ReplySender = Sender<Result<VolumeReport, DriveError>>;

/// The channel for the reply to a pool request; without a report if the pool is not served.
pub(crate) type PoolReplySender = Sender<Option<Result<PoolReport, DriveError>>>;

/// Requests of other threads.
#[derive(Debug)]
pub(crate) enum Request {
    /// Report the state of the server.
    Snapshot(ZoneMaps, Sender<Snapshot>),
    /// Execute a request on the volume in a directory.
    Volume(PathBuf, VolumeRequest, ReplySender),
    /// Execute a request on the pool in a directory.
    Pool(PathBuf, PoolRequest, PoolReplySender),
    /// Change to another plan.
    Reload(Box<ServerPlan>, Sender<Result<Vec<String>, ServeError>>),
    /// Report this state of the configuration file in snapshots.
    SetConfiguration(ConfigurationSnapshot),
    /// Complete outstanding commands, and stop.
    Stop,
}

/// A running server, for other threads.
#[derive(Clone, Debug)]
pub struct Handle {
    requests: Sender<Request>,
    waker: Waker,
}

impl Handle {
    pub(crate) fn new(waker: Waker) -> (Handle, Receiver<Request>) {
        let (requests, receiver) = mpsc::channel();
        (Handle { requests, waker }, receiver)
    }

    /// Requests the server to complete outstanding commands and stop. Returns at once.
    pub fn stop(&self) {
        self.ask(Request::Stop);
    }

    /// The state of the server; `None` if it has stopped, or does not reply within `timeout`.
    #[must_use]
    pub fn snapshot(&self, timeout: Duration) -> Option<Snapshot> {
        self.ask_snapshot(ZoneMaps::LeftOut, timeout)
    }

    /// The same with the zone maps of drives.
    #[must_use]
    pub fn snapshot_with_zones(&self, timeout: Duration) -> Option<Snapshot> {
        self.ask_snapshot(ZoneMaps::Included, timeout)
    }

    fn ask_snapshot(&self, zones: ZoneMaps, timeout: Duration) -> Option<Snapshot> {
        let (answer, receiver) = mpsc::channel();
        self.ask(Request::Snapshot(zones, answer));
        receiver.recv_timeout(timeout).ok()
    }

    /// Executes a request on the volume in a directory, and returns its state after that; `None` as
    /// of [`snapshot`](Handle::snapshot).
    #[must_use]
    pub fn volume(
        &self,
        volume: &Path,
        request: VolumeRequest,
        timeout: Duration,
    ) -> Option<Result<VolumeReport, DriveError>> {
        let (answer, receiver) = mpsc::channel();
        self.ask(Request::Volume(volume.to_owned(), request, answer));
        receiver.recv_timeout(timeout).ok()
    }

    /// Executes a request on the pool in a directory, and returns its state after that, or `None`
    /// inside if the server does not serve it any more; `None` as of [`snapshot`](Handle::snapshot).
    #[must_use]
    pub fn pool(
        &self,
        pool: &Path,
        request: PoolRequest,
        timeout: Duration,
    ) -> Option<Option<Result<PoolReport, DriveError>>> {
        let (answer, receiver) = mpsc::channel();
        self.ask(Request::Pool(pool.to_owned(), request, answer));
        receiver.recv_timeout(timeout).ok()
    }

    /// Changes a running server to another plan: subsystems, namespaces of images and in memory,
    /// hosts and secrets come and go while hosts are connected. Returns the changes as text, or why
    /// nothing was changed; `None` as of [`snapshot`](Handle::snapshot).
    #[must_use]
    pub fn reload(&self, plan: ServerPlan, timeout: Duration) -> Option<Result<Vec<String>, ServeError>> {
        let (answer, receiver) = mpsc::channel();
        self.ask(Request::Reload(Box::new(plan), answer));
        receiver.recv_timeout(timeout).ok()
    }

    /// Reports this state of the configuration file in [`snapshot`](Handle::snapshot)s from now on.
    pub fn set_configuration(&self, configuration: ConfigurationSnapshot) {
        self.ask(Request::SetConfiguration(configuration));
    }

    fn ask(&self, request: Request) {
        // A server that has stopped drops the request.
        if self.requests.send(request).is_ok() {
            self.waker.wake();
        }
    }
}
