//! Control sockets, through which `zonda volume`, `zonda member` and `zonda namespace` manage the
//! volumes and pools of a running server, and `zonda top` reads its status: one in the directory of
//! each. Requests and answers are lines of JSON.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use zonda_devices::{CONTROL_SOCKET, PoolReport, PoolRequest, VolumeReport, VolumeRequest};
use zonda_exports::Handle;
use zonda_exports::snapshot::Snapshot;

use super::connections::ACCEPT_PAUSE;
use crate::commands::control_path::ControlPath;

/// Timeout of a request. Connecting to a remote drive takes the longest.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a request.
const REQUEST_BYTES_MAX: u64 = 64 << 10;

/// The answer to a request to a volume.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    /// The request succeeded; the state of the volume afterwards.
    Report(Box<VolumeReport>),
    /// The request failed.
    Error {
        /// The reason.
        message: String,
        /// The remedy.
        help: String,
    },
}

/// The answer to a request to a pool.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PoolAnswer {
    /// The request succeeded; the state of the pool afterwards.
    Report(Box<PoolReport>),
    /// The server does not serve the pool any more.
    NotServed,
    /// The request failed.
    Error {
        /// The reason.
        message: String,
        /// The remedy.
        help: String,
    },
}

/// The request for the status of the server, which every control socket answers.
pub(crate) const STATUS_REQUEST: &str = "status";

/// The answer to [`STATUS_REQUEST`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StatusAnswer {
    /// The state of the server, with the zone maps of drives.
    Status(Box<Snapshot>),
    /// The request failed.
    Error {
        /// The reason.
        message: String,
        /// The remedy.
        help: String,
    },
}

/// What a directory has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Volume,
    Pool,
}

/// The control socket of one volume or pool; removed on drop.
pub(super) struct Control {
    socket: PathBuf,
    /// Device and inode of the socket, to not remove the socket of another server.
    identity: Option<(u64, u64)>,
}

impl Control {
    /// Starts to accept requests for the volume or pool in this directory. The server holds its lock,
    /// so an existing socket is stale.
    pub(super) fn listen(directory: &Path, kind: Kind, handle: &Handle) -> io::Result<Control> {
        let socket = directory.join(CONTROL_SOCKET);
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(ControlPath::of(&socket)?.path())?;
        let identity = identity(&socket);
        let (directory, handle) = (directory.to_owned(), handle.clone());
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                let (directory, handle) = (directory.clone(), handle.clone());
                tokio::spawn(async move {
                    // The client may have disconnected.
                    let _ = serve(stream, directory, kind, handle).await;
                });
            }
        });
        Ok(Control { socket, identity })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if identity(&self.socket) == self.identity {
            // If this fails, the next server removes the stale socket.
            let _ = fs::remove_file(&self.socket);
        }
    }
}

/// Device and inode of a path.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

async fn serve(stream: UnixStream, directory: PathBuf, kind: Kind, handle: Handle) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    if BufReader::new(read.take(REQUEST_BYTES_MAX)).read_line(&mut line).await? == 0 {
        // The client only checked whether a server is running.
        return Ok(());
    }
    let is_status = serde_json::from_str::<String>(&line).is_ok_and(|request| request == STATUS_REQUEST);
    let answered = tokio::task::spawn_blocking(move || match kind {
        _ if is_status => serde_json::to_string(&ask_status(&handle)),
        Kind::Volume => serde_json::to_string(&ask_volume(&line, &directory, &handle)),
        Kind::Pool => serde_json::to_string(&ask_pool(&line, &directory, &handle)),
    });
    let text = answered.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
    write.write_all((text + "\n").as_bytes()).await
}

fn ask_status(handle: &Handle) -> StatusAnswer {
    match handle.snapshot_with_zones(TIMEOUT) {
        Some(snapshot) => StatusAnswer::Status(Box::new(snapshot)),
        None => {
            let (message, help) = busy();
            StatusAnswer::Error { message, help }
        }
    }
}

fn ask_volume(line: &str, volume: &Path, handle: &Handle) -> Answer {
    let error = |(message, help)| Answer::Error { message, help };
    match serde_json::from_str::<VolumeRequest>(line) {
        Ok(request) => match handle.volume(volume, request, TIMEOUT) {
            Some(Ok(report)) => Answer::Report(Box::new(report)),
            Some(Err(failed)) => error((failed.message, failed.help)),
            None => error(busy()),
        },
        Err(invalid) => error(not_a_request(&invalid)),
    }
}

fn ask_pool(line: &str, pool: &Path, handle: &Handle) -> PoolAnswer {
    let error = |(message, help)| PoolAnswer::Error { message, help };
    match serde_json::from_str::<PoolRequest>(line) {
        Ok(request) => match handle.pool(pool, request, TIMEOUT) {
            Some(Some(Ok(report))) => PoolAnswer::Report(Box::new(report)),
            Some(Some(Err(failed))) => error((failed.message, failed.help)),
            Some(None) => PoolAnswer::NotServed,
            None => error(busy()),
        },
        Err(invalid) => error(not_a_request(&invalid)),
    }
}

fn busy() -> (String, String) {
    ("the server is stopping or busy".to_owned(), "try again".to_owned())
}

fn not_a_request(error: &serde_json::Error) -> (String, String) {
    (format!("invalid request: {error}"), "use the same version of zonda as the server".to_owned())
}
