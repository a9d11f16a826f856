//! A connection between a host, or a rogue client, and the target.

use zonda_initiator::QueueId;
use zonda_target::ConnectionId;
use zonda_zoned::{Duration, Instant, Prng};

use super::pipe::{Pipe, PipeShape};

/// The client of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A queue of a host; the epoch counts the host's connection losses.
    Host {
        host: usize,
        queue: QueueId,
        epoch: u64,
    },
    /// A queue of a host that shares a namespace.
    Sharing {
        host: usize,
        queue: usize,
    },
    Rogue,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) owner: Owner,
    /// When the connection request arrives at the target; `None` afterwards.
    pub(crate) opens_at: Option<Instant>,
    /// `None` before the target has accepted it, and after the target has closed it.
    pub(crate) connection: Option<ConnectionId>,
    /// The host has not closed its end.
    pub(crate) host_end: bool,
    /// The host's machine is down, or its packets are lost: the target gets no reset.
    pub(crate) is_mute: bool,
    pub(crate) up: Pipe,
    pub(crate) down: Pipe,
    /// Bytes to the host that belong to another connection, by a seeded bug.
    pub(crate) foreign_bytes: usize,
    /// The target has paused reading.
    pub(crate) is_paused: bool,
    /// When each side is notified of a connection reset.
    pub(crate) host_reset_at: Option<Instant>,
    pub(crate) target_reset_at: Option<Instant>,
    latency: Duration,
}

impl Link {
    pub(crate) fn new(owner: Owner, now: Instant, shapes: (PipeShape, PipeShape), prng: &Prng) -> Link {
        let (up, down) = shapes;
        Link {
            owner,
            opens_at: Some(now + up.latency),
            connection: None,
            host_end: true,
            is_mute: false,
            latency: up.latency,
            up: Pipe::new(up, prng.fork("up")),
            down: Pipe::new(down, prng.fork("down")),
            foreign_bytes: 0,
            is_paused: false,
            host_reset_at: None,
            target_reset_at: None,
        }
    }

    /// Whether both ends are closed.
    pub(crate) fn is_closed(&self) -> bool {
        !self.host_end && self.connection.is_none() && self.opens_at.is_none()
    }

    /// The host closes its end: bytes already sent still arrive.
    pub(crate) fn host_closes(&mut self) {
        self.host_end = false;
        self.host_reset_at = None;
        self.up.close();
        if self.opens_at.is_some() {
            self.opens_at = None;
            self.up.clear();
        }
    }

    /// The host's machine crashes, and sends nothing more.
    pub(crate) fn host_dies(&mut self) {
        self.host_closes();
        self.up.forget_waiting();
        self.is_mute = true;
    }

    /// Resets the connection: each side is notified at its own time.
    pub(crate) fn reset(&mut self, host_at: Instant, target_at: Instant) {
        self.reset_host(host_at);
        self.reset_target(target_at);
    }

    /// The target's end is closed: it answers bytes from the host with a reset.
    pub(crate) fn answer_to_host(&mut self, now: Instant) {
        self.reset_host(now + self.latency);
    }

    /// The host's end is closed: it answers bytes from the target with a reset, unless its machine
    /// is down.
    pub(crate) fn answer_to_target(&mut self, now: Instant) {
        if !self.is_mute {
            self.reset_target(now + self.latency);
        }
    }

    fn reset_host(&mut self, at: Instant) {
        if self.host_end {
            self.host_reset_at = Some(self.host_reset_at.map_or(at, |earlier| earlier.min(at)));
        }
    }

    fn reset_target(&mut self, at: Instant) {
        if self.connection.is_some() {
            self.target_reset_at = Some(self.target_reset_at.map_or(at, |earlier| earlier.min(at)));
        }
    }
}
