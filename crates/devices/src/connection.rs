//! [`Connection`]: one local or remote namespace with a ring of its own, for programs that wait for
//! each completion.

mod write_protected;

use zonda_chap::Secret;
use zonda_initiator::Claim;
use zonda_nvme::identify::NamespaceIdentity;
use zonda_nvme::{HostId, Nqn};
use zonda_ring::{Ring, RingOptions};
use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Duration, Geometry, Instant, NamespaceId, Operation, QueueFull,
    ZonedDevice,
};

use crate::opening::open_drive;
use crate::probe::{DriveUser, Probe};
use crate::{DeviceMode, Drive, DriveError, Location, VolumeDrive, is_volume};
use write_protected::WriteProtected;

/// Timeout of closing.
const CLOSE_MAX: Duration = Duration(60_000_000_000);

/// How to open a namespace; the defaults suit interactive use.
#[derive(Clone, Debug)]
pub struct NamespaceOptions {
    /// The host NQN; `None`: one generated for this connection.
    pub host_nqn: Option<Nqn>,
    /// The host identifier, to which reservations belong; `None`: one generated for this
    /// connection.
    pub host_id: Option<HostId>,
    /// The reservation to acquire; without effect on images, which are locked exclusively.
    pub claim: Option<Claim>,
    /// Authenticates the host to the server.
    pub secret: Option<Secret>,
    /// Authenticates the server to the host.
    pub controller_secret: Option<Secret>,
    /// Whether to request header and data digests.
    pub digests: bool,
    /// I/O queues, each with a TCP connection of its own.
    pub io_queues: u16,
    /// Outstanding commands in each.
    pub queue_depth: u16,
    /// How long to wait for the server while connecting.
    pub connect_timeout: Duration,
    /// How long to busy-poll before sleeping, for low latency, while completions arrive within that
    /// time; zero: never.
    pub spin: Duration,
    /// Whether the user of a [`Connection`] reads only: commands that would change something fail with
    /// Namespace is Write Protected, and a device file is opened read-only. Without effect on images and volumes, which
    /// are opened for writing ([`ReadOnlyImage`](crate::ReadOnlyImage) is not).
    pub read_only: bool,
}

/// An open namespace.
pub struct Connection {
    drive: Box<dyn Drive>,
    geometry: Geometry,
    /// Dropped after the drive that uses it.
    ring: Ring,
    completions: CompletionQueue,
    next_id: u64,
}

impl Default for NamespaceOptions {
    fn default() -> NamespaceOptions {
        NamespaceOptions {
            host_nqn: None,
            host_id: None,
            claim: None,
            secret: None,
            controller_secret: None,
            digests: false,
            io_queues: 1,
            queue_depth: 128,
            connect_timeout: Duration(10_000_000_000),
            spin: zonda_ring::limits::SPIN_DEFAULT,
            read_only: false,
        }
    }
}

impl NamespaceOptions {
    pub(crate) fn device_mode(&self) -> DeviceMode {
        if self.read_only { DeviceMode::ReadOnly } else { DeviceMode::ReadWrite }
    }
}

impl Connection {
    /// Opens an image, or connects to a server.
    ///
    /// # Errors
    /// When the namespace does not exist, is in use, or the server refuses; with the remedy.
    pub fn open(location: &Location, options: &NamespaceOptions) -> Result<Connection, DriveError> {
        let ring = Ring::new(RingOptions { spin: options.spin, ..RingOptions::default() }).map_err(|error| {
            DriveError::new(
                format!("cannot create the event loop: {error}"),
                "check the limit on open files (ulimit -n)",
            )
        })?;
        let drive: Box<dyn Drive> = match location {
            Location::Image(path) if is_volume(path) => Box::new(VolumeDrive::open(path, &ring)?),
            _ => open_drive(location, options, &ring)?,
        };
        let drive = if options.read_only { Box::new(WriteProtected::new(drive)) } else { drive };
        let geometry = drive.geometry(NamespaceId::FIRST).clone();
        Ok(Connection { drive, geometry, ring, completions: CompletionQueue::new(), next_id: 0 })
    }

    /// The namespace's shape and limits.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The globally unique identifiers of the namespace; `None` where it has none.
    #[must_use]
    pub fn identity(&self) -> Option<&NamespaceIdentity> {
        self.drive.identity()
    }

    /// The volume or pool that uses the namespace. No command may be in flight.
    ///
    /// # Errors
    /// When its zones cannot be reported, or the event loop fails.
    pub fn user(&mut self) -> Result<Option<DriveUser>, DriveError> {
        let probed = Probe::of_user(&self.geometry).run(&mut self.drive, &self.ring)?;
        self.drive.forget_reads(probed.read_blocks);
        Ok(probed.user())
    }

    /// Why every further command fails, as in "the connection to it is lost"; `None` while that is not so.
    pub(crate) fn unusable(&self) -> Option<&'static str> {
        match () {
            () if self.drive.conflict().is_some() => Some("another host has reserved it"),
            () if self.drive.is_disconnected() && self.drive.is_remote() => Some("the connection to it is lost"),
            () if self.drive.is_disconnected() => Some("the drive is missing"),
            () => None,
        }
    }

    /// The time since the connection was made.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.ring.now()
    }

    /// The device and its ring, for a workload that runs the ring itself.
    pub fn parts(&mut self) -> (&mut dyn ZonedDevice, &Ring) {
        (&mut self.drive, &self.ring)
    }

    /// Submits a command, which is sent at the next [`poll`](Connection::poll) at the latest.
    ///
    /// # Errors
    /// [`QueueFull`] returns the command: poll first.
    pub fn submit(&mut self, command: Command) -> Result<(), QueueFull> {
        self.drive.submit(self.ring.now(), command)
    }

    /// Adds the completions that have arrived to `completions`, without waiting.
    pub fn poll(&mut self, completions: &mut CompletionQueue) {
        self.drive.poll(self.ring.now(), completions);
    }

    /// Runs one iteration of the event loop: sleeps until an event or the time `until`. Does not
    /// sleep if `until` is in the past, or commands are still to be sent.
    ///
    /// # Errors
    /// When the system's event loop fails: the connection cannot be used any more.
    pub fn run_once(&mut self, until: Option<Instant>) -> Result<(), DriveError> {
        let until = until.into_iter().chain(self.drive.next_timeout()).min();
        self.ring.run_once(until).map_err(|error| DriveError::new(format!("the event loop failed: {error}"), ""))
    }

    /// Executes one operation, and waits for its completion. No other command may be outstanding.
    ///
    /// # Errors
    /// When the event loop fails. A command that fails returns a completion with its status.
    pub fn execute(&mut self, operation: Operation) -> Result<Completion, DriveError> {
        self.next_id += 1;
        let mut command = Command::new(CommandId(self.next_id), NamespaceId::FIRST, operation);
        while let Err(QueueFull(back)) = self.submit(command) {
            command = back;
            self.step(None)?;
        }
        loop {
            if let Some(completion) = self.completions.pop() {
                assert_eq!(completion.id, CommandId(self.next_id), "no other command is outstanding");
                return Ok(completion);
            }
            self.step(None)?;
        }
    }

    /// Closes the connection; an image is quiesced and marked clean, so that it needs no recovery
    /// when it is opened again.
    ///
    /// # Errors
    /// When that times out. Acknowledged writes are not lost: the image recovers when it is next
    /// opened.
    pub fn close(mut self) -> Result<(), DriveError> {
        let until = self.ring.now() + CLOSE_MAX;
        self.drive.close(self.ring.now());
        while !self.drive.is_closed() {
            self.step(Some(until))?;
            if self.ring.now() >= until {
                return Err(DriveError::new("closing the drive timed out", "it recovers when it is next opened"));
            }
        }
        Ok(())
    }

    fn step(&mut self, until: Option<Instant>) -> Result<(), DriveError> {
        let now = self.ring.now();
        self.drive.poll(now, &mut self.completions);
        if !self.completions.is_empty() {
            return Ok(());
        }
        self.run_once(until)?;
        self.drive.poll(self.ring.now(), &mut self.completions);
        Ok(())
    }
}
