//! The client of control sockets: requests to the server that uses a volume or a pool on this machine.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use zonda_devices::CONTROL_SOCKET;

use crate::commands::control_path::ControlPath;
use crate::errors::Failure;

/// The control socket of the server that uses what is in a directory, if there is one.
pub(crate) fn socket_of_server(directory: &Path) -> Result<Option<PathBuf>, Failure> {
    let socket = directory.join(CONTROL_SOCKET);
    match connect(&socket) {
        Ok(_) => Ok(Some(socket)),
        // Not in use, or a stale socket of a killed server.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => {
            let message = format!("cannot connect to {}: {error}", socket.display());
            Err(Failure::input(message, "run zonda as the user that runs the server"))
        }
    }
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(ControlPath::of(socket)?.path())
}

/// Sends a request, and reads the answer: a line each.
///
/// # Errors
/// Why there is no answer.
pub(crate) fn exchange<A: DeserializeOwned>(
    socket: &Path,
    request: &impl Serialize,
    timeout: Duration,
) -> Result<A, String> {
    let line = line_of(socket, request, timeout).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => format!("none within {} s", timeout.as_secs()),
        _ => error.to_string(),
    })?;
    serde_json::from_str(&line).map_err(|error| error.to_string())
}

fn line_of(socket: &Path, request: &impl Serialize, timeout: Duration) -> io::Result<String> {
    let mut stream = connect(socket)?;
    stream.set_read_timeout(Some(timeout))?;
    let text = serde_json::to_string(request).map_err(io::Error::other)?;
    stream.write_all((text + "\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}
