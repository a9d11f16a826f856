//! [`ControlPath`]: the path of a control socket, short enough for the address of a socket.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a path in the address of a socket on Linux (`sun_path`), without the zero at its end.
const PATH_BYTES_MAX: usize = 107;

/// A path by which a socket can be bound or connected to. A longer one leads through the descriptor
/// of its directory, which is open as long as this exists.
#[derive(Debug)]
pub(crate) struct ControlPath {
    path: PathBuf,
    _directory: Option<File>,
}

impl ControlPath {
    /// The path of this socket, which need not exist.
    ///
    /// # Errors
    /// When the path is too long, and its directory cannot be opened.
    pub(crate) fn of(socket: &Path) -> io::Result<ControlPath> {
        let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
            return Ok(ControlPath { path: socket.to_owned(), _directory: None });
        };
        if socket.as_os_str().as_bytes().len() <= PATH_BYTES_MAX {
            return Ok(ControlPath { path: socket.to_owned(), _directory: None });
        }
        let directory = File::open(directory)?;
        let path = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
        Ok(ControlPath { path, _directory: Some(directory) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_socket_is_bound_and_connected_to_by_a_path_of_any_length() {
        let above = tempfile::TempDir::new().expect("there is space");
        for length in [1, 50, 80, 90, 100, 110, 250] {
            let directory = above.path().join("d".repeat(length));
            std::fs::create_dir(&directory).expect("there is space");
            let socket = directory.join("control");
            let listener = UnixListener::bind(ControlPath::of(&socket).expect("it exists").path());
            let _listener = listener.unwrap_or_else(|error| panic!("{length}: {error}"));
            assert!(socket.exists(), "{length}");
            let connected = UnixStream::connect(ControlPath::of(&socket).expect("it exists").path());
            connected.unwrap_or_else(|error| panic!("{length}: {error}"));
        }
    }
}
