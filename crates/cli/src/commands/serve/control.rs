//! The sockets through which `zonda volume` and `zonda member` reach the volumes of a running server: one in the directory of each.
//! A request and an answer are a line of JSON each.

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

/// How long the server may take to do what is asked. Opening a drive that is far away takes the longest.
const PATIENCE: Duration = Duration::from_secs(30);
/// More than any request has.
const REQUEST_BYTES_MAX: u64 = 64 << 10;

/// What a request is answered with.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answer {
    /// It is done; the volume is like this.
    Report(Box<VolumeReport>),
    /// It cannot be.
    Error {
        /// Why.
        message: String,
        /// What to do.
        help: String,
    },
}

/// The socket of one volume; removed when it is dropped.
pub(super) struct Control {
    volume: PathBuf,
    socket: PathBuf,
    /// Device and inode of the socket: by the end there may be another server's in its place.
    identity: Option<(u64, u64)>,
}

impl Control {
    /// Takes requests for this volume from now on. The server holds the volume's lock, so a socket that is there is a dead one's.
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
                    // Who asked may be gone before the answer is there.
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
            // One that stays is taken for what it is by the next server.
            let _ = fs::remove_file(&self.socket);
        }
    }
}

/// Device and inode of what a path names.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

async fn serve(stream: UnixStream, volume: PathBuf, handle: Handle) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    if BufReader::new(read.take(REQUEST_BYTES_MAX)).read_line(&mut line).await? == 0 {
        // Somebody only looked whether there is a server.
        return Ok(());
    }
    let answer = match serde_json::from_str::<VolumeRequest>(&line) {
        Ok(request) => {
            let asked = tokio::task::spawn_blocking(move || handle.volume(&volume, request, PATIENCE)).await;
            match asked.ok().flatten() {
                Some(Ok(report)) => Answer::Report(Box::new(report)),
                Some(Err(error)) => Answer::Error { message: error.message, help: error.help },
                None => Answer::Error {
                    message: "the server is stopping, or too busy to answer".to_owned(),
                    help: "try again".to_owned(),
                },
            }
        }
        Err(error) => Answer::Error {
            message: format!("this is no request that the server knows: {error}"),
            help: "use the same version of zonda as the server".to_owned(),
        },
    };
    let text = serde_json::to_string(&answer).map_err(io::Error::other)?;
    write.write_all((text + "\n").as_bytes()).await
}
