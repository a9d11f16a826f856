//! What an initiator wants done and has to tell, and the asynchronous events of its controller.

use std::fmt;

use bytes::Bytes;
use zonda_nvme::features::AsyncEvent;
use zonda_nvme::log::LogPage;
use zonda_nvme::{AdminOpcode, SubmissionEntry};
use zonda_zoned::Instant;

use crate::queue::{CommandData, Ended, Owner};
use crate::{Initiator, InitiatorError, QueueId};

/// Something the owner has to do, in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Make a TCP connection to the target, and tell [`Initiator::connected`] or [`Initiator::disconnected`].
    Connect {
        /// For which queue.
        queue: QueueId,
    },
    /// Send these bytes behind those sent before.
    Send {
        /// Over whose connection.
        queue: QueueId,
        /// What, in order.
        pieces: Vec<Bytes>,
    },
    /// Send what is still to be sent, then close the connection, or stop making it. From now on nothing is told of it; a
    /// later [`Effect::Connect`] is for a new one.
    Close {
        /// Whose.
        queue: QueueId,
    },
    /// For the log, or for the user of the namespace.
    Event(Event),
}

/// What an owner may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Commands are taken.
    Connected {
        /// I/O queues.
        io_queues: u16,
        /// Outstanding commands of each.
        queue_depth: u16,
    },
    /// A connection that had been made is lost, or a try to make it again failed; the next try comes.
    Lost(InitiatorError),
    /// Zones have become read only or offline by themselves: [`zonda_zoned::Operation::ReadChangedZones`] says which.
    ZonesChanged,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Connected { io_queues, queue_depth } => {
                write!(f, "connected with {io_queues} I/O queues of {queue_depth} commands")
            }
            Event::Lost(error) => write!(f, "{error}; trying again"),
            Event::ZonesChanged => f.write_str("zones have become read only or offline"),
        }
    }
}

impl Initiator {
    /// Keeps one Asynchronous Event Request with the controller.
    pub(crate) fn request_event(&mut self, now: Instant) {
        let entry = SubmissionEntry::new(AdminOpcode::AsyncEventRequest.code(), 0);
        self.queues[0].submit(now, Owner::AsyncEvent, entry, CommandData::None);
    }

    /// The controller has something to tell. A request that it refuses is not repeated.
    pub(crate) fn event_came(&mut self, now: Instant, ended: &Ended) {
        if !ended.status.is_success() {
            return;
        }
        let event = AsyncEvent::decode(ended.result);
        let is_ours = event.parameter == self.config.namespace.0 || event.parameter == 0;
        if event.event_type == AsyncEvent::NOTICE && event.log_page == LogPage::ChangedZones as u8 && is_ours {
            self.effects.push_back(Effect::Event(Event::ZonesChanged));
        }
        self.request_event(now);
    }
}
