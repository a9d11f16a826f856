//! Control sockets, through which `zonda volume` and `zonda member` manage the volumes of a running
//! server: one in the directory of each volume. Requests and answers are lines of JSON.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use zonda_devices::{CONTROL_SOCKET, VolumeReport, VolumeRequest};
use zonda_exports::Handle;

/// Timeout of a request. Connecting to a remote drive takes the longest.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a request.
const REQUEST_BYTES_MAX: u64 = 64 << 10;

/// The answer to a request.
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

/// The control socket of one volume; removed on drop.
pub(super) struct Control {
    volume: PathBuf,
    socket: PathBuf,
    /// Device and inode of the socket, to not remove the socket of another server.
    identity: Option<(u64, u64)>,
}

impl Control {
    /// Starts to accept requests for this volume. The server holds the lock of the volume, so an
    /// existing socket is stale.
    pub(super) fn listen(volume: &Path, handle: &Handle) -> io::Result<Control> {
        let socket = volume.join(CONTROL_SOCKET);
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&socket)?;
        let identity = identity(&socket);
        let control = Control { volume: volume.to_owned(), socket, identity };
        let (volume, handle) = (control.volume.clone(), handle.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (volume, handle) = (volume.clone(), handle.clone());
                tokio::spawn(async move {
                    // The client may have disconnected.
                    let _ = serve(stream, volume, handle).await;
                });
            }
        });
        Ok(control)
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

async fn serve(stream: UnixStream, volume: PathBuf, handle: Handle) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    if BufReader::new(read.take(REQUEST_BYTES_MAX)).read_line(&mut line).await? == 0 {
        // The client only checked whether a server is running.
        return Ok(());
    }
    let answer = match serde_json::from_str::<VolumeRequest>(&line) {
        Ok(request) => {
            let asked = tokio::task::spawn_blocking(move || handle.volume(&volume, request, TIMEOUT)).await;
            match asked.ok().flatten() {
                Some(Ok(report)) => Answer::Report(Box::new(report)),
                Some(Err(error)) => Answer::Error { message: error.message, help: error.help },
                None => {
                    Answer::Error { message: "the server is stopping or busy".to_owned(), help: "try again".to_owned() }
                }
            }
        }
        Err(error) => Answer::Error {
            message: format!("invalid request: {error}"),
            help: "use the same version of zonda as the server".to_owned(),
        },
    };
    let text = serde_json::to_string(&answer).map_err(io::Error::other)?;
    write.write_all((text + "\n").as_bytes()).await
}
