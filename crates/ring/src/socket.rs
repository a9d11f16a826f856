//! Sockets with owned descriptors.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::epoll::Interest;
use crate::send_queue::SendQueue;
use crate::{Address, limits};

/// A TCP or Unix stream socket: a listener or a connection. Dropping it closes it, once no
/// operation uses it any more.
///
/// The first operation ties a socket to its ring; before that it may move to another thread.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    /// The ring that has used it, or zero.
    owner: Cell<u64>,
    pub(crate) send_queue: RefCell<SendQueue>,
    /// Its state in the epoll backend.
    pub(crate) interest: RefCell<Interest>,
}

impl Socket {
    /// Listens on `address`. Port 0 lets the kernel choose: see [`Socket::local_address`]. A Unix
    /// path must not exist yet.
    ///
    /// # Errors
    /// The error of the system call, such as `AddrInUse` or `PermissionDenied`.
    pub fn listen(address: &Address) -> io::Result<Socket> {
        let fd = net::socket_with(address.family(), SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        if let Address::Tcp(_) = address {
            sockopt::set_socket_reuseaddr(&fd, true)?;
        }
        net::bind(&fd, &address.to_kernel()?)?;
        net::listen(&fd, limits::BACKLOG)?;
        Ok(Socket::from_fd(fd))
    }

    /// Two connected Unix sockets.
    ///
    /// # Errors
    /// The error of the system call, such as too many open files.
    pub fn pair() -> io::Result<(Socket, Socket)> {
        let (left, right) = net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok((Socket::from_fd(left), Socket::from_fd(right)))
    }

    /// Starts a connection; `true` when it is established at once. The socket is non-blocking until
    /// [`Socket::end_connect`].
    pub(crate) fn begin_connect(address: &Address) -> io::Result<(Socket, bool)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = net::socket_with(address.family(), SocketType::STREAM, flags, None)?;
        let is_established = match net::connect(&fd, &address.to_kernel()?) {
            Ok(()) => true,
            Err(rustix::io::Errno::INPROGRESS) => false,
            Err(error) => return Err(error.into()),
        };
        Ok((Socket::from_fd(fd), is_established))
    }

    /// The result of a connect whose socket has become writable or failed.
    pub(crate) fn end_connect(&self) -> io::Result<()> {
        sockopt::socket_error(&self.fd)??;
        self.set_blocking(true)
    }

    /// io_uring waits by itself only if the socket is a blocking one; the direct calls here pass
    /// `MSG_DONTWAIT`.
    pub(crate) fn set_blocking(&self, blocking: bool) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.fd, !blocking)?)
    }

    pub(crate) fn from_fd(fd: OwnedFd) -> Socket {
        Socket { fd, owner: Cell::new(0), send_queue: RefCell::default(), interest: RefCell::default() }
    }

    pub(crate) fn tie_to(&self, ring: u64) {
        let owner = self.owner.replace(ring);
        assert!(owner == 0 || owner == ring, "a socket belongs to the ring that used it first");
    }

    /// Ends the stream in one or both directions. Operations outstanding end: receives with the end
    /// of the stream, sends with `BrokenPipe`; accepts, when a listener is shut down, with
    /// `InvalidInput`.
    ///
    /// # Errors
    /// `NotConnected` when the stream has ended.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => net::Shutdown::Read,
            Shutdown::Write => net::Shutdown::Write,
            Shutdown::Both => net::Shutdown::Both,
        };
        Ok(net::shutdown(&self.fd, how)?)
    }

    /// Whether small sends leave at once (`TCP_NODELAY`). No effect on Unix sockets, which always
    /// send at once.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn set_no_delay(&self, no_delay: bool) -> io::Result<()> {
        if sockopt::socket_domain(&self.fd)? == AddressFamily::UNIX {
            return Ok(());
        }
        Ok(sockopt::set_tcp_nodelay(&self.fd, no_delay)?)
    }

    /// Requests kernel buffers of this many bytes (`SO_SNDBUF`, `SO_RCVBUF`), which also turns off
    /// their autotuning.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn set_kernel_buffers(&self, send_bytes: usize, receive_bytes: usize) -> io::Result<()> {
        sockopt::set_socket_send_buffer_size(&self.fd, send_bytes)?;
        Ok(sockopt::set_socket_recv_buffer_size(&self.fd, receive_bytes)?)
    }

    /// The address it listens on, or that of this side of the connection.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn local_address(&self) -> io::Result<Address> {
        Address::from_kernel(net::getsockname(&self.fd)?)
    }

    /// The address of the peer.
    ///
    /// # Errors
    /// `NotConnected` for a listener, or when the peer has disconnected.
    pub fn peer_address(&self) -> io::Result<Address> {
        match net::getpeername(&self.fd)? {
            Some(address) => Address::from_kernel(address),
            None => Ok(Address::Unix(std::path::PathBuf::new())),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
