//! Effects that an initiator requests of its owner, events for the user, and asynchronous events of
//! the controller.

use std::fmt;

use bytes::Bytes;
use zonda_nvme::features::AsyncEvent;
use zonda_nvme::log::LogPage;
use zonda_nvme::{AdminOpcode, SubmissionEntry};
use zonda_zoned::{Geometry, Instant};

use crate::connecting::{Progress, Refresh};
use crate::error::Reason;
use crate::procedure::Stage;
use crate::queue::{CommandData, Ended, Owner};
use crate::{Initiator, InitiatorError, QueueId};

/// An action that the owner must carry out, in the given order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Open a TCP connection to the target, and report [`Initiator::on_connect`] or
    /// [`Initiator::on_disconnect`].
    Connect {
        /// The queue.
        queue: QueueId,
    },
    /// Send these bytes after those sent before.
    Send {
        /// The queue of the connection.
        queue: QueueId,
        /// The bytes, in order.
        pieces: Vec<Bytes>,
    },
    /// Send the remaining bytes, then close the connection, or stop opening it. Report no further
    /// events of it; a later [`Effect::Connect`] is for a new one.
    Close {
        /// The queue.
        queue: QueueId,
    },
    /// For the log, or for the user of the namespace.
    Event(Event),
}

/// An event for the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Commands are accepted.
    Connected {
        /// I/O queues.
        io_queues: u16,
        /// Outstanding commands per queue.
        queue_depth: u16,
    },
    /// An established connection was lost, or an attempt to reconnect failed; another attempt
    /// follows.
    Lost(InitiatorError),
    /// Zones have transitioned to read only or offline:
    /// [`zonda_zoned::Operation::ReadChangedZones`] returns them.
    ZonesChanged,
    /// The namespace has another size: [`Initiator::geometry`] returns it.
    Resized,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Connected { io_queues, queue_depth } => {
                let plural = if *io_queues == 1 { "" } else { "s" };
                write!(f, "connected with {io_queues} I/O queue{plural}, queue depth {queue_depth}")
            }
            Event::Lost(error) => write!(f, "{error}; reconnecting"),
            Event::ZonesChanged => f.write_str("zones have become read only or offline"),
            Event::Resized => f.write_str("the namespace has another size"),
        }
    }
}

impl Initiator {
    /// Sends an Asynchronous Event Request; one is always outstanding.
    pub(crate) fn request_event(&mut self, now: Instant) {
        let entry = SubmissionEntry::new(AdminOpcode::AsyncEventRequest.code(), 0);
        self.queues[0].submit(now, Owner::AsyncEvent, entry, CommandData::None);
    }

    /// The controller has reported an event. A refused request is not repeated.
    pub(crate) fn event_received(&mut self, now: Instant, ended: &Ended) {
        if !ended.status.is_success() {
            return;
        }
        let event = AsyncEvent::decode(ended.result);
        let is_ours = event.parameter == self.config.namespace.0 || event.parameter == 0;
        let is_notice = event.event_type == AsyncEvent::NOTICE;
        if is_notice && event.log_page == LogPage::ChangedZones as u8 && is_ours {
            self.effects.push_back(Effect::Event(Event::ZonesChanged));
        }
        if is_notice && event.log_page == LogPage::ChangedNamespaces as u8 {
            self.refresh(now);
        }
        self.request_event(now);
    }

    /// Namespaces of the controller have changed: identifies the namespace again.
    fn refresh(&mut self, now: Instant) {
        let (Stage::Ready, Some(namespace), Some(identity)) = (&self.stage, &self.namespace, self.identity) else {
            return;
        };
        if let Some(refresh) = &mut self.refresh {
            return refresh.repeat();
        }
        let (id, is_zoned, geometry) = (self.config.namespace, namespace.is_zoned(), namespace.geometry.clone());
        self.refresh = Some(Refresh::start(now, &mut self.queues[0], id, identity, is_zoned, geometry));
        self.scan_at.get_or_insert(now + self.config.command_timeout);
    }

    /// A command of the refresh has completed.
    pub(crate) fn refresh_ended(&mut self, now: Instant, ended: &Ended) -> Result<(), Reason> {
        let Some(refresh) = &mut self.refresh else { return Ok(()) };
        if refresh.ended(now, &mut self.queues[0], ended)? == Progress::Done
            && let Some(refresh) = self.refresh.take()
        {
            self.resize(refresh.into_geometry());
        }
        Ok(())
    }

    /// The namespace has this geometry from now on, which differs at most in its size.
    pub(crate) fn resize(&mut self, geometry: Geometry) {
        let namespace = self.namespace.as_mut().expect("the namespace was connected before");
        if namespace.geometry != geometry {
            namespace.resize(geometry);
            self.effects.push_back(Effect::Event(Event::Resized));
        }
    }
}
