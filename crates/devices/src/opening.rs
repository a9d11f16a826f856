//! Opens the drive at a location; [`Opening`] does so asynchronously, for event loops that must not
//! block.

use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;

use zonda_ring::{Client, Ring, Waker};
use zonda_zoned::Instant;

use crate::file_backed::PreparedImage;
use crate::real::{PreparedDevice, open_device};
use crate::remote::resolve;
use crate::{Access, Drive, DriveError, FileBacked, Location, NamespaceOptions, NvmeTcpUrl, Remote, mock};

/// Opens an image or a drive of this machine, or connects to a server. Blocks until that is done.
///
/// # Errors
/// When the drive does not exist, is in use, or the server refuses; with the remedy.
pub(crate) fn open_drive(
    location: &Location,
    options: &NamespaceOptions,
    ring: &Ring,
) -> Result<Box<dyn Drive>, DriveError> {
    Ok(match location {
        Location::Image(path) => Box::new(FileBacked::open(path, ring)?.0),
        Location::Device(path) => open_device(path, options.device_mode(), ring)?,
        Location::NvmeTcp(url) => Box::new(Remote::connect(url, options, ring)?),
    })
}

/// A device that is being opened. Dropping it cancels that.
pub(crate) enum Opening {
    /// A thread recovers the image.
    Image {
        prepared: Receiver<Result<PreparedImage, DriveError>>,
        /// Clients of the ring for the image, and for its storage elements.
        clients: Option<[Client; 2]>,
    },
    /// A thread opens the device, and reads the state of its zones.
    Device { prepared: Receiver<Result<PreparedDevice, DriveError>>, on_ring: Option<OnRing> },
    /// A thread resolves the address of the server.
    Resolving {
        address: Receiver<Result<std::net::SocketAddr, DriveError>>,
        url: NvmeTcpUrl,
        options: Box<NamespaceOptions>,
        client: Option<Client>,
    },
    /// The connection is being set up on the ring.
    Connecting(Box<Remote>),
    /// A mock drive, which needs no time to open.
    Opened(Option<Result<Box<dyn Drive>, DriveError>>),
}

/// The handles of a ring that an asynchronously opened device needs.
pub(crate) struct OnRing {
    clients: [Client; 2],
    waker: Waker,
}

impl OnRing {
    pub(crate) fn of(ring: &Ring) -> OnRing {
        OnRing { clients: [ring.client(), ring.client()], waker: ring.waker() }
    }

    /// Handles for another device.
    pub(crate) fn another(&self) -> OnRing {
        let [first, second] = &self.clients;
        OnRing { clients: [first.another(), second.another()], waker: self.waker.clone() }
    }
}

impl Opening {
    /// Begins to open a device. Blocking work is done in a thread, which wakes the ring when it is
    /// done.
    pub(crate) fn begin(access: Access, OnRing { clients, waker }: OnRing) -> Result<Opening, DriveError> {
        if let Some(opened) = mock::open(&access) {
            return Ok(Opening::Opened(Some(opened)));
        }
        let Access { location, options } = access;
        match location {
            Location::Image(path) => {
                let prepared = in_thread(waker, move || PreparedImage::open(&path))?;
                Ok(Opening::Image { prepared, clients: Some(clients) })
            }
            Location::Device(path) => {
                let prepared = in_thread(waker.clone(), move || PreparedDevice::open(&path, options.device_mode()))?;
                Ok(Opening::Device { prepared, on_ring: Some(OnRing { clients, waker }) })
            }
            Location::NvmeTcp(url) => {
                let named = url.clone();
                let address = in_thread(waker, move || resolve(&named))?;
                let [client, _] = clients;
                Ok(Opening::Resolving { address, url, options: Box::new(options), client: Some(client) })
            }
        }
    }

    /// Makes progress without blocking. Returns the device once it is open.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Result<Box<dyn Drive>, DriveError>> {
        match self {
            Opening::Image { prepared, clients } => {
                let prepared = match received(prepared)? {
                    Ok(prepared) => prepared,
                    Err(error) => return Some(Err(error)),
                };
                let clients = clients.take().expect("an image is opened once");
                Some(Ok(Box::new(FileBacked::of(prepared, clients).0)))
            }
            Opening::Device { prepared, on_ring } => Some(received(prepared)?.and_then(|prepared| {
                let OnRing { clients: [client, _], waker } = on_ring.take().expect("a device is opened once");
                prepared.attach(client, waker)
            })),
            Opening::Resolving { address, url, options, client } => {
                let address = match received(address)? {
                    Ok(address) => address,
                    Err(error) => return Some(Err(error)),
                };
                let client = client.take().expect("an address is looked up once");
                match Remote::begin(url, address, options, client, now) {
                    Ok(remote) => *self = Opening::Connecting(Box::new(remote)),
                    Err(error) => return Some(Err(error)),
                }
                self.poll(now)
            }
            Opening::Connecting(remote) => {
                let result = remote.poll_ready(now)?;
                let Opening::Connecting(remote) = std::mem::replace(self, Opening::ended()) else { unreachable!() };
                Some(result.map(|()| remote as Box<dyn Drive>))
            }
            Opening::Opened(opened) => opened.take(),
        }
    }

    /// When to poll next, unless the ring wakes the caller before.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match self {
            Opening::Connecting(remote) => remote.next_timeout(),
            Opening::Image { .. } | Opening::Device { .. } | Opening::Resolving { .. } | Opening::Opened(_) => None,
        }
    }

    /// The state after the device was returned.
    fn ended() -> Opening {
        Opening::Image { prepared: mpsc::channel().1, clients: None }
    }
}

/// Does blocking work in a thread, and wakes the ring when it is done.
fn in_thread<T: Send + 'static>(
    waker: Waker,
    work: impl FnOnce() -> Result<T, DriveError> + Send + 'static,
) -> Result<Receiver<Result<T, DriveError>>, DriveError> {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::Builder::new().name("zonda-open".to_owned()).spawn(move || {
        // The receiver may have been dropped; the device is then closed again.
        let _ = sender.send(work());
        waker.wake();
    });
    thread.map_err(|error| {
        DriveError::new(
            format!("cannot start a thread: {error}"),
            "raise the limits on threads and memory (ulimit -u, -v)",
        )
    })?;
    Ok(receiver)
}

fn received<T>(receiver: &Receiver<Result<T, DriveError>>) -> Option<Result<T, DriveError>> {
    match receiver.try_recv() {
        Ok(result) => Some(result),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Disconnected) => {
            Some(Err(DriveError::new("the thread that opens the drive has panicked", "see the log")))
        }
    }
}
