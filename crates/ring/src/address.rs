//! Where a socket listens or connects to.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix};

/// A TCP address, or the path of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A Unix stream socket. The path is empty for an unnamed socket, such as the connecting side.
    Unix(PathBuf),
}

impl Address {
    pub(crate) fn family(&self) -> AddressFamily {
        match self {
            Address::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Address::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            Address::Unix(_) => AddressFamily::UNIX,
        }
    }

    pub(crate) fn to_kernel(&self) -> io::Result<SocketAddrAny> {
        Ok(match self {
            Address::Tcp(address) => SocketAddrAny::from(*address),
            Address::Unix(path) => SocketAddrUnix::new(path.as_path())?.into(),
        })
    }

    pub(crate) fn from_kernel(address: SocketAddrAny) -> io::Result<Address> {
        if address.address_family() == AddressFamily::UNIX {
            let unix = SocketAddrUnix::try_from(address)?;
            let path = unix.path_bytes().map(|bytes| std::ffi::OsStr::from_bytes(bytes).into());
            return Ok(Address::Unix(path.unwrap_or_default()));
        }
        Ok(Address::Tcp(SocketAddr::try_from(address)?))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address::Tcp(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
