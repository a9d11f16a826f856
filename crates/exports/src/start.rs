//! Starting a server: everything that can fail does so here, before a host is let in.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use zonda_ring::{Address, Backend, Ring, Socket};
use zonda_target::Target;

use crate::auth_pool::AuthPool;
use crate::config::ServerPlan;
use crate::control::Handle;
use crate::drives::Drives;
use crate::memory::{self, Memory};
use crate::nbd::{self, Nbd};
use crate::server::{self, Server};
use crate::sockets::Sockets;
use crate::{build, report};

/// How long a TCP address may be in use until that is an error.
pub const ADDRESS_IN_USE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two attempts to listen on it.
const ADDRESS_IN_USE_INTERVAL: Duration = Duration::from_millis(5);
/// How long a drive, or the lock of a socket, may be in use by another program until that is an error. A killed server keeps its
/// locks until what the disk is doing for it has ended: 30 to 300 ms with 200 MiB to be synced (measured, Linux 6.18).
pub(crate) const LOCK_IN_USE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time between two attempts to lock it.
const LOCK_IN_USE_INTERVAL: Duration = Duration::from_millis(20);

/// Why a server does not start, or did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeError {
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// What was made for a server before its loop begins.
pub(crate) struct Parts {
    pub(crate) ring: Ring,
    pub(crate) target: Target,
    pub(crate) sockets: Sockets,
    pub(crate) nbd: Option<Nbd>,
    pub(crate) drives: Drives,
    pub(crate) auth: AuthPool,
}

/// What a server that has started says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// Where hosts connect; ports that the system chose included.
    pub listen: Vec<SocketAddr>,
    /// `io_uring` or `epoll`.
    pub backend: &'static str,
    /// Why not io_uring.
    pub fallback_reason: Option<String>,
    /// What is served.
    pub subsystems: Vec<SubsystemInfo>,
    /// What is exported over NBD.
    pub nbd: Vec<NbdExportInfo>,
}

/// An export over NBD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdExportInfo {
    /// What clients ask for.
    pub name: String,
    /// For clients on this machine, one for each address.
    pub urls: Vec<String>,
    /// Bytes.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// A subsystem that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemInfo {
    /// NVMe Qualified Name.
    pub nqn: String,
    /// In the order of their ids.
    pub namespaces: Vec<NamespaceInfo>,
}

/// A namespace that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Namespace id.
    pub id: u32,
    /// The directory of the image, or `memory`.
    pub source: String,
    /// Zones.
    pub zones: u32,
    /// Bytes that can be written to a zone.
    pub zone_capacity_bytes: u64,
    /// What opening the drive has found, in a few words.
    pub state: String,
    /// Whether it is write protected.
    pub read_only: bool,
}

/// A server in a thread of its own.
#[derive(Debug)]
pub struct Running {
    info: ServerInfo,
    handle: Handle,
    thread: JoinHandle<Result<(), ServeError>>,
}

impl ServeError {
    pub(crate) fn new(message: impl Into<String>, help: impl Into<String>) -> ServeError {
        ServeError { message: message.into(), help: help.into() }
    }
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.message, self.help)
    }
}

impl std::error::Error for ServeError {}

impl Running {
    /// What it serves, and where.
    #[must_use]
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// For asking it how it is, and to stop.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits until it has stopped.
    ///
    /// # Errors
    /// When it stopped for another reason than being asked to, or the drives did not close.
    ///
    /// # Panics
    /// When the server did.
    pub fn wait(self) -> Result<(), ServeError> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Opens the drives, takes the ports, and serves in a thread of its own. With `epoll`, io_uring is not even tried.
///
/// # Errors
/// What is wrong with a drive or an address, and what to do about it. Nothing is served then.
pub fn start(plan: ServerPlan, epoll: bool) -> Result<Running, ServeError> {
    let (tell, told) = mpsc::channel();
    // A ring belongs to the thread that made it, so everything is made there.
    let thread = thread::Builder::new().name("zonda-serve".to_owned()).spawn(move || {
        let (server, info, handle) = match prepare(&plan, epoll) {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = tell.send(Err(error));
                return Ok(());
            }
        };
        let _ = tell.send(Ok((info, handle)));
        server.run()
    });
    let thread = thread.map_err(|error| ServeError::new(format!("no thread can be started: {error}"), ""))?;
    match told.recv() {
        Ok(Ok((info, handle))) => Ok(Running { info, handle, thread }),
        Ok(Err(error)) => Err(error),
        Err(_) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("the thread tells before it ends"),
        },
    }
}

fn prepare(plan: &ServerPlan, epoll: bool) -> Result<(Server, ServerInfo, Handle), ServeError> {
    let ring = server::ring(epoll, plan.spin)?;
    let (listeners, listen) = listen(&plan.listen)?;
    let memory = Memory::of(plan.memory_bytes.unwrap_or_else(memory::default_bytes), !plan.nbd.is_empty());
    let built = build::build(plan, &memory, &ring, &listen)?;
    let sockets = Sockets::new(&ring, listeners);
    let (nbd, exports) = nbd::prepare(plan, memory.nbd_connections, &ring, &built.candidates)?;
    let (handle, requests) = server::handle(&ring);
    let info = ServerInfo {
        listen,
        backend: backend_name(&ring),
        fallback_reason: ring.fallback_reason().map(str::to_owned),
        subsystems: built.subsystems,
        nbd: exports,
    };
    let facts = report::Facts { listen: info.listen.iter().map(ToString::to_string).collect(), layout: built.layout };
    let auth = AuthPool::new(&ring.waker()).map_err(|error| {
        ServeError::new(format!("cannot start a thread: {error}"), "raise the limit of threads (ulimit -u)")
    })?;
    let parts = Parts { auth, ring, target: built.target, sockets, nbd, drives: built.drives };
    Ok((Server::new(parts, requests, facts), info, handle))
}

fn listen(addresses: &[SocketAddr]) -> Result<(Vec<Socket>, Vec<SocketAddr>), ServeError> {
    let mut sockets = Vec::with_capacity(addresses.len());
    let mut bound = Vec::with_capacity(addresses.len());
    for address in addresses {
        let socket = listen_on(&Address::Tcp(*address)).map_err(|error| {
            let help = match error.kind() {
                io::ErrorKind::AddrInUse => "another server has it: choose another with --listen HOST:PORT",
                io::ErrorKind::PermissionDenied => "ports below 1024 need a privilege: choose another",
                _ => "choose an address of this machine with --listen HOST:PORT",
            };
            ServeError::new(format!("nobody can be heard on {address}: {error}"), help)
        })?;
        // Port 0 has become a real one.
        bound.push(match socket.local_address() {
            Ok(Address::Tcp(address)) => address,
            _ => *address,
        });
        sockets.push(socket);
    }
    Ok((sockets, bound))
}

/// Listens on a TCP address, see [`retry_address_in_use`].
pub(crate) fn listen_on(address: &Address) -> io::Result<Socket> {
    retry_address_in_use(|| Socket::listen(address))
}

/// Listens again for [`ADDRESS_IN_USE_TIMEOUT`] while the address is in use: the kernel closes the sockets of a killed
/// server's io_uring up to 30 ms (measured, Linux 6.18) after the process has ended, and a server that is started at once
/// must not be refused. A TCP port does not tell who owns it, so an address that a living server has is refused after this
/// time too.
///
/// # Errors
/// What `listen` said last.
pub fn retry_address_in_use<T>(listen: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let is_in_use = |result: &io::Result<T>| matches!(result, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
    retry_while(is_in_use, ADDRESS_IN_USE_TIMEOUT, ADDRESS_IN_USE_INTERVAL, listen)
}

/// Tries to lock something again for [`LOCK_IN_USE_TIMEOUT`] while another program owns the lock: that may be a server that was
/// killed, and is still ending. Returns the last result.
pub(crate) fn retry_lock_in_use<T>(is_in_use: impl Fn(&T) -> bool, lock: impl FnMut() -> T) -> T {
    retry_while(is_in_use, LOCK_IN_USE_TIMEOUT, LOCK_IN_USE_INTERVAL, lock)
}

fn retry_while<T>(
    is_in_use: impl Fn(&T) -> bool,
    timeout: Duration,
    interval: Duration,
    mut attempt: impl FnMut() -> T,
) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        let result = attempt();
        if !is_in_use(&result) || Instant::now() >= deadline {
            return result;
        }
        thread::sleep(interval);
    }
}

pub(crate) fn backend_name(ring: &Ring) -> &'static str {
    match ring.backend() {
        Backend::IoUring => "io_uring",
        Backend::Epoll => "epoll",
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_that_is_closed_a_moment_later_is_waited_for() {
        let dead = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let address = Address::Tcp(dead.local_addr().expect("it is bound"));
        let closing = thread::spawn(move || {
            thread::sleep(ADDRESS_IN_USE_TIMEOUT / 10);
            drop(dead);
        });
        listen_on(&address).expect("it is free in time");
        closing.join().expect("it is closed");
    }

    #[test]
    fn a_port_that_another_server_has_is_an_error_in_the_end() {
        let alive = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let address = Address::Tcp(alive.local_addr().expect("it is bound"));
        assert_eq!(listen_on(&address).err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
    }

    #[test]
    fn other_errors_are_told_at_once() {
        let mut attempts = 0;
        let result: io::Result<()> = retry_address_in_use(|| {
            attempts += 1;
            Err(io::ErrorKind::PermissionDenied.into())
        });
        assert_eq!((result.map_err(|error| error.kind()), attempts), (Err(io::ErrorKind::PermissionDenied), 1));
    }
}
