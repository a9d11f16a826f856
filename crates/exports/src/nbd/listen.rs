//! Listening for clients on TCP ports and Unix sockets.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use zonda_ring::{Address, Socket};

use super::limits::{DEAD_SOCKET_INTERVAL, DEAD_SOCKET_TIMEOUT};
use super::lock::SocketLock;
use crate::start::{ServeError, listen_on, retry_lock_in_use};

/// The file of a Unix socket that this server created. It is removed when this is dropped, if it is
/// still the same.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Released once the socket is removed.
    _lock: SocketLock,
}

/// A listener, its address, and the file of its socket.
pub(crate) struct Listener {
    pub(crate) socket: Socket,
    pub(crate) address: Address,
    pub(crate) file: Option<SocketFile>,
}

impl SocketFile {
    fn of(path: &Path, lock: SocketLock) -> io::Result<SocketFile> {
        let metadata = fs::symlink_metadata(path)?;
        // Clients may use it from another directory.
        let path = fs::canonicalize(path)?;
        Ok(SocketFile { path, device: metadata.dev(), inode: metadata.ino(), _lock: lock })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if is_ours {
            // If it stays, the next server finds a stale socket, and replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on an address.
pub(crate) fn listen(address: &Address) -> Result<Listener, ServeError> {
    match address {
        Address::Tcp(_) => {
            let socket = listen_on(address).map_err(|error| cannot_listen(address, &error))?;
            // Port 0 was replaced by a real one.
            let address = socket.local_address().unwrap_or_else(|_| address.clone());
            Ok(Listener { socket, address, file: None })
        }
        Address::Unix(path) => listen_on_file(address, path),
    }
}

/// Listens on a Unix socket. A stale socket of a killed server is replaced.
fn listen_on_file(address: &Address, path: &Path) -> Result<Listener, ServeError> {
    let is_in_use = |lock: &io::Result<Option<SocketLock>>| matches!(lock, Ok(None));
    let lock = match retry_lock_in_use(is_in_use, || SocketLock::acquire(path)) {
        Ok(Some(lock)) => lock,
        Ok(None) => return Err(in_use(path)),
        Err(error) => return Err(cannot_lock(address, path, &error)),
    };
    let deadline = Instant::now() + DEAD_SOCKET_TIMEOUT;
    let socket = loop {
        match Socket::listen(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if !remove_stale(path)? {
                    // No zonda holds the lock: the owner was just killed, or is another program.
                    if Instant::now() >= deadline {
                        return Err(in_use(path));
                    }
                    thread::sleep(DEAD_SOCKET_INTERVAL);
                }
            }
            result => break result.map_err(|error| cannot_listen(address, &error))?,
        }
    };
    let file = SocketFile::of(path, lock).map_err(|error| cannot_listen(address, &error))?;
    Ok(Listener { socket, address: Address::Unix(file.path.clone()), file: Some(file) })
}

/// Removes a socket that accepts no connections; `false` when it accepts them.
fn remove_stale(path: &Path) -> Result<bool, ServeError> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        _ => {
            let help = "choose another path, or remove the file if it is not needed";
            return Err(ServeError::new(format!("{shown} exists and is not a socket"), help));
        }
    }
    match accepts_connections(path) {
        Ok(true) => Ok(false),
        Ok(false) => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(ServeError::new(format!("cannot remove the stale socket {shown}: {error}"), "remove it manually"))
            }
            _ => Ok(true),
        },
        Err(error) => Err(ServeError::new(
            format!("{shown} exists, and cannot be checked for a listening server: {error}"),
            "choose another path, or remove it",
        )),
    }
}

/// Whether anything listens on a socket.
fn accepts_connections(path: &Path) -> io::Result<bool> {
    // It does not block: the backlog of a killed server may be full, and no process accepts from
    // it.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match net::connect(&probe, &SocketAddrUnix::new(path)?) {
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn in_use(path: &Path) -> ServeError {
    ServeError::new(
        format!("another server listens on {}", path.display()),
        "stop the other server, or choose another path with --nbd unix:PATH",
    )
}

fn cannot_lock(address: &Address, path: &Path, error: &io::Error) -> ServeError {
    let lock = SocketLock::path_for(path);
    // Without the directory the address itself is unusable.
    if !lock.parent().is_none_or(|above| above.as_os_str().is_empty() || above.is_dir()) {
        return cannot_listen(address, error);
    }
    let help = "choose a path in a writable directory; or remove the lock file, if no server uses it";
    ServeError::new(format!("cannot listen on {address}: cannot lock {}: {error}", lock.display()), help)
}

fn cannot_listen(address: &Address, error: &io::Error) -> ServeError {
    let help = match (address, error.kind()) {
        (_, io::ErrorKind::AddrInUse) => {
            "stop the other server, or choose another address: --nbd, or listen of [[nbd]] in a configuration"
        }
        (Address::Tcp(_), io::ErrorKind::PermissionDenied) => {
            "ports below 1024 require privileges: choose another port"
        }
        (Address::Unix(_), _) => "choose a path in an existing, writable directory",
        _ => "choose an address of this machine with --nbd HOST:PORT, or unix:PATH",
    };
    ServeError::new(format!("cannot listen for NBD clients on {address}: {error}"), help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start::LOCK_IN_USE_TIMEOUT;
    use std::os::unix::net::{UnixListener, UnixStream};

    fn address(directory: &tempfile::TempDir) -> Address {
        Address::Unix(directory.path().join("nbd.sock"))
    }

    #[test]
    fn a_stale_socket_is_replaced_and_one_in_use_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nbd.sock");
        // A dropped listener of the standard library leaves its file, as a killed server does.
        drop(UnixListener::bind(&path).expect("a free path"));
        let first = listen(&address(&directory)).expect("the stale one is replaced");
        let error = listen(&address(&directory)).err().expect("the first one lives");
        assert!(error.message.contains("another server listens"), "{error}");
        drop(first);
        assert!(!path.exists(), "the file goes with its server");
        drop(listen(&address(&directory)).expect("the path is free again"));
    }

    #[test]
    fn listening_waits_for_the_lock_of_a_server_that_is_exiting() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nbd.sock");
        let lock = SocketLock::acquire(&path).expect("it can be created").expect("it is free");
        let ending = thread::spawn(move || {
            thread::sleep(LOCK_IN_USE_TIMEOUT / 10);
            drop(lock);
        });
        let listener = listen(&address(&directory)).expect("the lock is released in time");
        ending.join().expect("it has exited");
        drop(listener);
    }

    #[test]
    fn listening_waits_for_a_dead_servers_socket_that_the_kernel_has_yet_to_close() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nbd.sock");
        // It accepts, and no process holds the lock.
        let dead = UnixListener::bind(&path).expect("a free path");
        let closing = thread::spawn(move || {
            thread::sleep(DEAD_SOCKET_TIMEOUT / 10);
            drop(dead);
        });
        let listener = listen(&address(&directory)).expect("the socket is closed in time, and replaced");
        closing.join().expect("it is closed");
        UnixStream::connect(&path).expect("the new one listens");
        drop(listener);
        assert_eq!(fs::read_dir(directory.path()).expect("it exists").count(), 0, "neither socket nor lock stays");
    }

    #[test]
    fn a_dead_servers_socket_whose_queue_is_full_does_not_block() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nbd.sock");
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = || net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket");
        let (dead, at) = (socket(), SocketAddrUnix::new(&path).expect("a short path"));
        net::bind(&dead, &at).and_then(|()| net::listen(&dead, 0)).expect("a free path");
        let mut waiting = Vec::new();
        loop {
            let client = socket();
            match net::connect(&client, &at) {
                Ok(()) => waiting.push(client),
                Err(error) => break assert_eq!(error, Errno::AGAIN),
            }
        }
        assert!(accepts_connections(&path).expect("it can be checked"));
        drop(dead);
        assert!(!accepts_connections(&path).expect("it can be checked"));
    }

    #[test]
    fn the_socket_of_another_program_is_not_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nbd.sock");
        let other = UnixListener::bind(&path).expect("a free path");
        let error = listen(&address(&directory)).err().expect("it is in use, although it has no lock");
        assert!(error.message.contains("another server listens"), "{error}");
        UnixStream::connect(&path).expect("it still listens");
        drop(other);
    }

    #[test]
    fn a_directory_that_is_missing_is_an_error_with_a_remedy() {
        let directory = tempfile::tempdir().expect("a directory");
        let address = Address::Unix(directory.path().join("none/nbd.sock"));
        let error = listen(&address).err().expect("there is no such directory");
        assert!(error.help.contains("existing, writable directory"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_a_socket_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nbd.sock");
        fs::write(&path, "precious").expect("it can be written");
        let error = listen(&address(&directory)).err().expect("it is in the way");
        assert!(error.message.contains("is not a socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("it still exists"), "precious");
    }

    #[test]
    fn the_socket_of_the_next_server_is_not_removed_by_the_last() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("nbd.sock");
        let first = listen(&address(&directory)).expect("a free path");
        fs::remove_file(&path).expect("it can be removed");
        assert!(listen(&address(&directory)).is_err(), "the first one lives");
        fs::remove_file(SocketLock::path_for(&path)).expect("its lock can be removed, too");
        let second = listen(&address(&directory)).expect("the path is free");
        drop(first);
        assert!(path.exists());
        drop(second);
    }
}
