//! Starting a server: everything that can fail does so here, before a connection is accepted.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use zonda_ring::{Address, Backend, Ring, Socket};
use zonda_target::Target;
use zonda_zoned::CompletionQueue;

use crate::auth_pool::AuthPool;
use crate::config::ServerPlan;
use crate::control::Handle;
use crate::drives::Drives;
use crate::memory::{self, Memory};
use crate::nbd::{self, Candidate, Nbd};
use crate::server::{self, Server};
use crate::sockets::Sockets;
use crate::{build, process, report};

/// How long to wait for a TCP address that is in use.
pub const ADDRESS_IN_USE_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between two attempts to listen on it.
const ADDRESS_IN_USE_INTERVAL: Duration = Duration::from_millis(5);
/// How long to wait for a drive, or the lock of a socket, that is in use by another program. A
/// killed server holds its locks until its disk I/O has ended: 30 to 300 ms with 200 MiB to be
/// synced (measured, Linux 6.18).
pub(crate) const LOCK_IN_USE_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between two attempts to lock it.
const LOCK_IN_USE_INTERVAL: Duration = Duration::from_millis(20);

/// Why a server failed to start, or to stop cleanly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeError {
    /// The error.
    pub message: String,
    /// The remedy.
    pub help: String,
}

/// The parts of a server, before its loop starts.
pub(crate) struct Parts {
    pub(crate) ring: Ring,
    pub(crate) target: Target,
    pub(crate) sockets: Sockets,
    pub(crate) nbd: Option<Nbd>,
    /// Namespaces that could be exported over NBD.
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) drives: Drives,
    pub(crate) auth: AuthPool,
}

/// Facts about a started server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInfo {
    /// The addresses for hosts, with ports that the kernel chose.
    pub listen: Vec<SocketAddr>,
    /// `io_uring` or `epoll`.
    pub backend: &'static str,
    /// Why io_uring is not used.
    pub fallback_reason: Option<String>,
    /// The subsystems.
    pub subsystems: Vec<SubsystemInfo>,
    /// The NBD exports.
    pub nbd: Vec<NbdExportInfo>,
}

/// An export over NBD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdExportInfo {
    /// The export name.
    pub name: String,
    /// NBD URIs for clients on this machine, one for each address.
    pub urls: Vec<String>,
    /// Bytes.
    pub size_bytes: u64,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// A subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubsystemInfo {
    /// NVMe Qualified Name.
    pub nqn: String,
    /// Hosts that may connect; `None`: any host.
    pub hosts: Option<Vec<HostInfo>>,
    /// In the order of their ids.
    pub namespaces: Vec<NamespaceInfo>,
}

/// A host that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInfo {
    /// NVMe Qualified Name.
    pub nqn: String,
    /// Whether it must authenticate.
    pub has_secret: bool,
    /// Whether the controller can authenticate to it.
    pub has_controller_secret: bool,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Namespace id.
    pub id: u32,
    /// The directory of the image, or `memory`.
    pub source: String,
    /// Zones.
    pub zones: u32,
    /// Zone capacity, in bytes.
    pub zone_capacity_bytes: u64,
    /// Capacity of all zones, in bytes.
    pub size_bytes: u64,
    /// Whether it is a volume: conventional, without zones.
    pub is_volume: bool,
    /// The state in which the drive was opened, as a short text.
    pub state: String,
    /// Whether it is write protected.
    pub read_only: bool,
}

/// A server running in its own thread.
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
    /// Its exports and addresses.
    #[must_use]
    pub fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// A handle for its state, and to stop it.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Waits until it has stopped.
    ///
    /// # Errors
    /// When it stopped without a request, or the drives did not close.
    ///
    /// # Panics
    /// When the server panicked.
    pub fn wait(self) -> Result<(), ServeError> {
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Opens the drives, listens, and serves in its own thread. With `epoll`, io_uring is not tried.
///
/// # Errors
/// An error of a drive or an address, with its remedy. No connection is accepted then.
pub fn start(plan: ServerPlan, epoll: bool) -> Result<Running, ServeError> {
    start_with(plan, epoll, || Ok(()))
}

/// The same; `before_opening` is called when the server listens on all its addresses, before it
/// opens the first drive.
///
/// # Errors
/// As of [`start`], and the error of `before_opening`.
pub fn start_with(
    plan: ServerPlan,
    epoll: bool,
    before_opening: impl FnOnce() -> Result<(), ServeError> + Send + 'static,
) -> Result<Running, ServeError> {
    let (started_sender, started) = mpsc::channel();
    // A ring belongs to the thread that created it, so everything is created there.
    let thread = thread::Builder::new().name("zonda-serve".to_owned()).spawn(move || {
        let (server, info, handle) = match prepare(plan, epoll, before_opening) {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = started_sender.send(Err(error));
                return Ok(());
            }
        };
        let _ = started_sender.send(Ok((info, handle)));
        server.run()
    });
    let thread = thread.map_err(|error| {
        ServeError::new(
            format!("cannot start a thread: {error}"),
            "raise the limits on threads and memory (ulimit -u, -v)",
        )
    })?;
    match started.recv() {
        Ok(Ok((info, handle))) => Ok(Running { info, handle, thread }),
        Ok(Err(error)) => Err(error),
        Err(_) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => unreachable!("the thread sends its result before it exits"),
        },
    }
}

fn prepare(
    plan: ServerPlan,
    epoll: bool,
    before_opening: impl FnOnce() -> Result<(), ServeError>,
) -> Result<(Server, ServerInfo, Handle), ServeError> {
    let memory_bytes = plan.memory_bytes.unwrap_or_else(memory::default_bytes);
    let memory = Memory::of(memory_bytes, memory::files()?, !plan.nbd.is_empty());
    let ring = server::ring(epoll, plan.spin, memory::registered_bytes(memory_bytes))?;
    let (listeners, listen) = listen(&plan.listen)?;
    let nbd_listeners = nbd::listen(&plan)?;
    let auth = AuthPool::new(&ring.waker()).map_err(|error| {
        ServeError::new(
            format!("cannot start a thread: {error}"),
            "raise the limits on threads and memory (ulimit -u, -v)",
        )
    })?;
    before_opening()?;
    // Drives are opened last: opening writes to them.
    let mut drives = Drives::default();
    let opened = build::build(&plan, &memory, &ring, &listen, &mut drives).and_then(|built| {
        let nbd = nbd::prepare(&plan, nbd_listeners, memory.nbd_connections, &ring, &built.candidates)?;
        Ok((built, nbd))
    });
    let (built, (nbd, exports)) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            close(drives, &ring);
            return Err(error);
        }
    };
    let sockets = Sockets::new(&ring, listeners);
    let (handle, requests) = server::handle(&ring);
    let info = ServerInfo {
        listen,
        backend: backend_name(&ring),
        fallback_reason: ring.fallback_reason().map(str::to_owned),
        subsystems: built.subsystems,
        nbd: exports,
    };
    let facts = report::Facts {
        listen: info.listen.iter().map(ToString::to_string).collect(),
        layout: built.layout,
        // Without /proc the process cannot be identified, and is not signalled.
        started_ticks: process::started_ticks(std::process::id()).unwrap_or(0),
        configuration: None,
    };
    let parts = Parts { auth, ring, target: built.target, sockets, nbd, candidates: built.candidates, drives };
    Ok((Server::new(parts, plan, requests, facts), info, handle))
}

/// Closes the drives of a server that does not start: a refused command leaves no drive that has
/// to be recovered.
fn close(mut drives: Drives, ring: &Ring) {
    let until = ring.now() + server::CLOSE_MAX;
    let mut completions = CompletionQueue::new();
    loop {
        let now = ring.now();
        drives.advance_close(now);
        drives.poll(now, &mut completions, &mut |_, _, _| unreachable!("no command was submitted"));
        if drives.are_closed() || now >= until {
            break;
        }
        let next = drives.next_timeout().map_or(until, |at| at.min(until));
        if ring.run_once(Some(next)).is_err() {
            break;
        }
    }
    // Why the server does not start is reported as an error; what the drives report is logged.
    drives.log_notices();
    drives.log_close_errors();
}

fn listen(addresses: &[SocketAddr]) -> Result<(Vec<Socket>, Vec<SocketAddr>), ServeError> {
    let mut sockets = Vec::with_capacity(addresses.len());
    let mut bound = Vec::with_capacity(addresses.len());
    for address in addresses {
        let socket = listen_on(&Address::Tcp(*address)).map_err(|error| {
            let help = match error.kind() {
                io::ErrorKind::AddrInUse => "stop the other server, or choose another --listen address",
                io::ErrorKind::PermissionDenied => "ports below 1024 require privileges: choose another port",
                _ => "choose an address of this machine with --listen HOST:PORT",
            };
            ServeError::new(format!("cannot listen on {address}: {error}"), help)
        })?;
        // Port 0 was replaced by a real one.
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

/// Retries for [`ADDRESS_IN_USE_TIMEOUT`] while the address is in use: the kernel closes the
/// sockets of a killed server's io_uring up to 30 ms (measured, Linux 6.18) after the process has
/// ended, and a server that is started at once must not fail. A TCP port does not show its owner,
/// so an address in use by a running server fails after this time too.
///
/// # Errors
/// The last error of `listen`.
pub fn retry_address_in_use<T>(listen: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let is_in_use = |result: &io::Result<T>| matches!(result, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
    retry_while(is_in_use, ADDRESS_IN_USE_TIMEOUT, ADDRESS_IN_USE_INTERVAL, listen)
}

/// Retries `lock` for [`LOCK_IN_USE_TIMEOUT`] while another process holds the lock, which may be a
/// killed server that is still exiting. Returns the last result.
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
    fn listening_waits_for_a_port_that_is_being_closed() {
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
    fn a_port_in_use_by_another_server_is_an_error() {
        let alive = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let address = Address::Tcp(alive.local_addr().expect("it is bound"));
        assert_eq!(listen_on(&address).err().map(|error| error.kind()), Some(io::ErrorKind::AddrInUse));
    }

    #[test]
    fn other_errors_are_returned_at_once() {
        let mut attempts = 0;
        let result: io::Result<()> = retry_address_in_use(|| {
            attempts += 1;
            Err(io::ErrorKind::PermissionDenied.into())
        });
        assert_eq!((result.map_err(|error| error.kind()), attempts), (Err(io::ErrorKind::PermissionDenied), 1));
    }
}
