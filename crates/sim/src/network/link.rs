//! A connection between a host, or a stranger, and the target.

use zonda_initiator::QueueId;
use zonda_target::ConnectionId;
use zonda_zoned::{Duration, Instant, Prng};

use super::pipe::{Pipe, PipeShape};

/// Whose a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A queue of a host; the epoch counts its connections lost so far.
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
    Stranger,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) owner: Owner,
    /// When the target hears of it; `None` once it has.
    pub(crate) opens_at: Option<Instant>,
    /// Absent while the target has not taken it, and after it has let go of it.
    pub(crate) connection: Option<ConnectionId>,
    /// The host still has its end.
    pub(crate) host_end: bool,
    /// The host's machine is dead, or what it says is lost: nobody answers for it.
    pub(crate) is_mute: bool,
    pub(crate) up: Pipe,
    pub(crate) down: Pipe,
    /// Bytes to the host that the target has not counted as this connection's.
    pub(crate) foreign_bytes: usize,
    /// The target does not read.
    pub(crate) is_paused: bool,
    /// When each side hears that the connection is broken.
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

    /// Whether nobody has an end of it any more.
    pub(crate) fn is_gone(&self) -> bool {
        !self.host_end && self.connection.is_none() && self.opens_at.is_none()
    }

    /// The host lets go of it: what it has sent still arrives.
    pub(crate) fn host_closes(&mut self) {
        self.host_end = false;
        self.host_reset_at = None;
        self.up.close();
        if self.opens_at.is_some() {
            self.opens_at = None;
            self.up.clear();
        }
    }

    /// The host's machine dies without a word.
    pub(crate) fn host_dies(&mut self) {
        self.host_closes();
        self.up.forget_waiting();
        self.is_mute = true;
    }

    /// Breaks it: each side hears of it in its own time.
    pub(crate) fn reset(&mut self, host_at: Instant, target_at: Instant) {
        self.reset_host(host_at);
        self.reset_target(target_at);
    }

    /// The host has sent to an end that is gone.
    pub(crate) fn answer_to_host(&mut self, now: Instant) {
        self.reset_host(now + self.latency);
    }

    /// The target has sent to an end that is gone. A dead machine does not answer.
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
