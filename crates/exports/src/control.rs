//! How other threads talk to a running server.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use zonda_devices::{DriveError, VolumeReport, VolumeRequest};
use zonda_ring::Waker;

use crate::snapshot::Snapshot;

/// Where the answer to a request to a volume goes.
pub(crate) type Answerer = Sender<Result<VolumeReport, DriveError>>;

/// What other threads ask of a server.
#[derive(Debug)]
pub(crate) enum Request {
    /// Tell how things stand.
    Snapshot(Sender<Snapshot>),
    /// Do something with the volume in a directory.
    Volume(PathBuf, VolumeRequest, Answerer),
    /// End what is under way, and stop.
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

    /// Asks the server to end what is under way and to stop. Returns at once.
    pub fn stop(&self) {
        self.ask(Request::Stop);
    }

    /// How things stand; `None` if the server has stopped, or does not answer in `patience`.
    #[must_use]
    pub fn snapshot(&self, patience: Duration) -> Option<Snapshot> {
        let (answer, receiver) = mpsc::channel();
        self.ask(Request::Snapshot(answer));
        receiver.recv_timeout(patience).ok()
    }

    /// Asks something of the volume in a directory, and says how it is then; `None` as of [`snapshot`](Handle::snapshot).
    #[must_use]
    pub fn volume(
        &self,
        volume: &Path,
        request: VolumeRequest,
        patience: Duration,
    ) -> Option<Result<VolumeReport, DriveError>> {
        let (answer, receiver) = mpsc::channel();
        self.ask(Request::Volume(volume.to_owned(), request, answer));
        receiver.recv_timeout(patience).ok()
    }

    fn ask(&self, request: Request) {
        // A server that is gone has nothing to say.
        if self.requests.send(request).is_ok() {
            self.waker.wake();
        }
    }
}
