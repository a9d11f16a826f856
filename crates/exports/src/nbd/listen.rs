//! Where clients connect: TCP ports and the files of Unix sockets.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use zonda_ring::{Address, Socket};

use crate::start::{ServeError, listen_on};

/// The file of a Unix socket that we made. It goes with this, if it is still ours.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// A listener, where it listens, and the file that is to go with it.
pub(crate) struct Listener {
    pub(crate) socket: Socket,
    pub(crate) address: Address,
    pub(crate) file: Option<SocketFile>,
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<SocketFile> {
        let metadata = fs::symlink_metadata(path)?;
        // Clients may be told it from another directory.
        let path = fs::canonicalize(path)?;
        Ok(SocketFile { path, device: metadata.dev(), inode: metadata.ino() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if is_ours {
            // Whoever serves there next finds a socket that nobody answers, and replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on an address.
pub(crate) fn listen(address: &Address) -> Result<Listener, ServeError> {
    match address {
        Address::Tcp(_) => {
            let socket = listen_on(address).map_err(|error| unheard(address, &error))?;
            // Port 0 has become a real one.
            let address = socket.local_address().unwrap_or_else(|_| address.clone());
            Ok(Listener { socket, address, file: None })
        }
        Address::Unix(path) => listen_on_file(address, path),
    }
}

/// Listens on a Unix socket. One that a server has left behind when it was killed is replaced.
fn listen_on_file(address: &Address, path: &Path) -> Result<Listener, ServeError> {
    let socket = match Socket::listen(address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(path)?;
            Socket::listen(address)
        }
        result => result,
    };
    let socket = socket.map_err(|error| unheard(address, &error))?;
    let file = SocketFile::of(path).map_err(|error| unheard(address, &error))?;
    Ok(Listener { socket, address: Address::Unix(file.path.clone()), file: Some(file) })
}

fn remove_stale(path: &Path) -> Result<(), ServeError> {
    let shown = path.display();
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if !is_socket {
        let help = "it may be somebody's: choose another path, or remove it";
        return Err(ServeError::new(format!("{shown} is there already, and is no socket"), help));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path).map_err(|error| {
            ServeError::new(format!("the stale socket {shown} cannot be removed: {error}"), "remove it by hand")
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(ServeError::new(
            format!("{shown} is there already, and whether somebody listens cannot be found out: {error}"),
            "choose another path, or remove it",
        )),
        Ok(_) => Err(ServeError::new(
            format!("another server listens on {shown}"),
            "stop it, or choose another path with --nbd unix:PATH",
        )),
    }
}

fn unheard(address: &Address, error: &io::Error) -> ServeError {
    let help = match (address, error.kind()) {
        (_, io::ErrorKind::AddrInUse) => "another server has it: choose another with --nbd HOST:PORT",
        (Address::Tcp(_), io::ErrorKind::PermissionDenied) => "ports below 1024 need a privilege: choose another",
        (Address::Unix(_), _) => "choose a path in a directory that is there and may be written",
        _ => "choose an address of this machine with --nbd HOST:PORT, or unix:PATH",
    };
    ServeError::new(format!("no NBD client can be heard on {address}: {error}"), help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn address(directory: &tempfile::TempDir) -> Address {
        Address::Unix(directory.path().join("nbd.sock"))
    }

    #[test]
    fn a_socket_that_nobody_answers_is_replaced_and_one_that_lives_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nbd.sock");
        // Dropped, a listener of the standard library leaves its file, as a server does that is killed.
        drop(UnixListener::bind(&path).expect("a free path"));
        let first = listen(&address(&directory)).expect("the stale one is replaced");
        let error = listen(&address(&directory)).err().expect("the first one lives");
        assert!(error.message.contains("another server listens"), "{error}");
        drop(first);
        assert!(!path.exists(), "the file goes with its server");
        drop(listen(&address(&directory)).expect("the path is free again"));
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nbd.sock");
        fs::write(&path, "precious").expect("it can be written");
        let error = listen(&address(&directory)).err().expect("it is in the way");
        assert!(error.message.contains("is no socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("it is still there"), "precious");
    }

    #[test]
    fn the_socket_of_the_next_server_is_not_removed_by_the_last() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nbd.sock");
        let first = listen(&address(&directory)).expect("a free path");
        fs::remove_file(&path).expect("somebody removes it");
        let second = listen(&address(&directory)).expect("the path is free");
        drop(first);
        assert!(path.exists());
        drop(second);
    }
}
