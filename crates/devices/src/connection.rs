//! [`Connection`]: one namespace, wherever it is, with a ring of its own. For programs that wait for their answers.

use zonda_chap::Secret;
use zonda_initiator::Claim;
use zonda_nvme::{HostId, Nqn};
use zonda_ring::{Ring, RingOptions};
use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Duration, Geometry, Instant, NamespaceId, Operation, QueueFull,
    ZonedDevice,
};

use crate::probe::{Probe, in_words};
use crate::{Drive, DriveError, FileBacked, Location, Remote, VolumeDrive, is_volume};

/// How long closing may take.
const CLOSE_MAX: Duration = Duration(60_000_000_000);

/// How to reach a namespace; the default suits a person at a command line.
#[derive(Clone, Debug)]
pub struct NamespaceOptions {
    /// The name under which to connect to a server; `None`: one made for this connection.
    pub host_nqn: Option<Nqn>,
    /// The host identifier, by which servers tell reservations apart; `None`: one made for this connection.
    pub host_id: Option<HostId>,
    /// The namespace is to be this host's alone; without effect on images, which always are.
    pub claim: Option<Claim>,
    /// Proves to the server who connects.
    pub secret: Option<Secret>,
    /// The server must prove to know it.
    pub controller_secret: Option<Secret>,
    /// Whether to ask for digests over headers and data.
    pub digests: bool,
    /// I/O queues, a connection each.
    pub io_queues: u16,
    /// Commands under way in each.
    pub queue_depth: u16,
    /// How long to wait for the server at first.
    pub patience: Duration,
    /// How long to poll before sleeping, for low latency, while answers come within that time; zero: never.
    pub spin: Duration,
}

/// A namespace that is open.
pub struct Connection {
    drive: Box<dyn Drive>,
    geometry: Geometry,
    /// Goes after the drive that uses it.
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
            patience: Duration(10_000_000_000),
            spin: zonda_ring::limits::SPIN_DEFAULT,
        }
    }
}

impl Connection {
    /// Opens an image, or connects to a server.
    ///
    /// # Errors
    /// When there is no such namespace, it is in use, or the server refuses; with what to do.
    pub fn open(location: &Location, options: &NamespaceOptions) -> Result<Connection, DriveError> {
        let ring = Ring::new(RingOptions { spin: options.spin, ..RingOptions::default() }).map_err(|error| {
            DriveError::new(format!("there is no event loop to be had: {error}"), "see how many files may be open")
        })?;
        let drive: Box<dyn Drive> = match location {
            Location::Image(path) if is_volume(path) => Box::new(VolumeDrive::open(path, &ring)?),
            Location::Image(path) => Box::new(FileBacked::open(path, &ring)?.0),
            Location::NvmeTcp(url) => Box::new(Remote::connect(url, options, &ring)?),
        };
        let geometry = drive.geometry(NamespaceId::FIRST).clone();
        Ok(Connection { drive, geometry, ring, completions: CompletionQueue::new(), next_id: 0 })
    }

    /// The namespace's shape and limits.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The volume of which the namespace is a member, in words. Nothing else may be in flight.
    ///
    /// # Errors
    /// When its zones cannot be reported, or the event loop fails.
    pub fn volume(&mut self) -> Result<Option<String>, DriveError> {
        let probed = Probe::of_superblock(&self.geometry).run(&mut self.drive, &self.ring)?;
        self.drive.forget_reads(probed.read_blocks);
        Ok(probed.identity.as_ref().map(in_words))
    }

    /// The time since the connection was made.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.ring.now()
    }

    /// The device and the ring that carries it, for a load that turns the ring itself.
    pub fn parts(&mut self) -> (&mut dyn ZonedDevice, &Ring) {
        (&mut self.drive, &self.ring)
    }

    /// Takes a command, which goes on its way at the next [`poll`](Connection::poll) at the latest.
    ///
    /// # Errors
    /// [`QueueFull`] hands the command back: poll first.
    pub fn submit(&mut self, command: Command) -> Result<(), QueueFull> {
        self.drive.submit(self.ring.now(), command)
    }

    /// Adds what has ended to `completions`, without waiting.
    pub fn poll(&mut self, completions: &mut CompletionQueue) {
        self.drive.poll(self.ring.now(), completions);
    }

    /// Lets operations go on, and sleeps until something has happened or `until` has come; `until` in the past, or commands
    /// that have not left yet: does not sleep.
    ///
    /// # Errors
    /// When the system's event loop fails: nothing works any more.
    pub fn turn(&mut self, until: Option<Instant>) -> Result<(), DriveError> {
        let until = until.into_iter().chain(self.drive.next_wakeup()).min();
        self.ring.turn(until).map_err(|error| DriveError::new(format!("the event loop failed: {error}"), ""))
    }

    /// Carries one operation out, and waits for its end. Nothing else may be under way.
    ///
    /// # Errors
    /// When the event loop fails. A command that is refused or fails comes back as a completion.
    pub fn execute(&mut self, operation: Operation) -> Result<Completion, DriveError> {
        self.next_id += 1;
        let mut command = Command { id: CommandId(self.next_id), namespace: NamespaceId::FIRST, operation };
        while let Err(QueueFull(back)) = self.submit(command) {
            command = back;
            self.step(None)?;
        }
        loop {
            if let Some(completion) = self.completions.pop() {
                assert_eq!(completion.id, CommandId(self.next_id), "nothing else is under way");
                return Ok(completion);
            }
            self.step(None)?;
        }
    }

    /// Ends the connection; an image is brought to rest, so that opening it again needs no recovery.
    ///
    /// # Errors
    /// When that does not succeed in time. What was acknowledged is not lost: the image recovers when it is next opened.
    pub fn close(mut self) -> Result<(), DriveError> {
        let until = self.ring.now() + CLOSE_MAX;
        self.drive.close(self.ring.now());
        while !self.drive.is_closed() {
            self.step(Some(until))?;
            if self.ring.now() >= until {
                return Err(DriveError::new("the drive did not close in time", "it recovers when it is next opened"));
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
        self.turn(until)?;
        self.drive.poll(self.ring.now(), &mut self.completions);
        Ok(())
    }
}
