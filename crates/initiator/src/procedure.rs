//! The sequence of steps from the first connection to a namespace that accepts commands.

use zonda_nvme::fabrics::{CONTROLLER_ID_DYNAMIC, Configuration, Property, PropertyCommand};
use zonda_zoned::{Duration, Instant, ZoneDescriptor};

use crate::Initiator;
use crate::config::Order;
use crate::connecting::{
    Claiming, Enabling, Handshake, HandshakeOptions, Identification, Progress, Remote, Survey, geometry_of,
};
use crate::error::{InitiatorError, Reason};
use crate::events::{Effect, Event};
use crate::initiator::data_bytes_max;
use crate::io::Namespace;
use crate::limits::{ADMIN_QUEUE_DEPTH, QUEUE_DEPTH_MAX};
use crate::order::Lanes;
use crate::queue::{CommandData, Ended, Owner, Queue, QueueId, QueueOptions};
use crate::state::{State, Step};

/// The stage of the initiator, with its procedure.
#[derive(Debug)]
pub(crate) enum Stage {
    Idle,
    Waiting { until: Instant },
    Admin(Handshake),
    Enabling(Enabling),
    Identifying(Box<Identification>),
    Io { handshake: Handshake, remote: Box<Remote>, depth: u16 },
    Claiming { claiming: Claiming, remote: Box<Remote> },
    Surveying { survey: Survey, remote: Box<Remote> },
    Ready,
    Releasing,
}

impl Stage {
    pub(crate) fn step(&self) -> Step {
        match self {
            Stage::Idle => Step::Configure,
            Stage::Waiting { .. } => Step::Wait,
            Stage::Admin(handshake) | Stage::Io { handshake, .. } => handshake.step(),
            Stage::Enabling(enabling) => enabling.step(),
            Stage::Identifying(identification) => identification.step(),
            Stage::Claiming { claiming, .. } => claiming.step(),
            Stage::Surveying { .. } => Step::SurveyZones,
            Stage::Ready => Step::Serve,
            Stage::Releasing => Step::Release,
        }
    }

    /// The handshake in progress.
    pub(crate) fn handshake(&mut self) -> Option<&mut Handshake> {
        match self {
            Stage::Admin(handshake) | Stage::Io { handshake, .. } => Some(handshake),
            _ => None,
        }
    }
}

impl Initiator {
    /// The first step.
    pub(crate) fn begin_connecting(&mut self, now: Instant) {
        self.queues.truncate(1);
        self.links.truncate(1);
        let keep_alive_timeout_ms = self.config.keep_alive.map_or(0, |timeout| (timeout.as_nanos() / 1_000_000) as u32);
        let handshake =
            self.handshake(QueueId::ADMIN, ADMIN_QUEUE_DEPTH + 1, CONTROLLER_ID_DYNAMIC, keep_alive_timeout_ms);
        self.stage = Stage::Admin(handshake);
        self.links[0] = true;
        self.effects.push_back(Effect::Connect { queue: QueueId::ADMIN });
        self.step_changed(now);
    }

    /// A command of the step in progress has completed.
    pub(crate) fn step_ended(&mut self, now: Instant, queue: QueueId, ended: &Ended) {
        if let Err(error) = self.advance(now, queue, ended) {
            self.fail_with(now, error);
            return;
        }
        self.step_changed(now);
    }

    /// Publishes a new step, and starts its timeout.
    pub(crate) fn step_changed(&mut self, now: Instant) {
        let step = self.stage.step();
        if matches!(self.state, State::Closed | State::Failed(_)) && matches!(self.stage, Stage::Idle) {
            return;
        }
        if step == Step::Serve {
            self.state = State::Ready;
            self.deadline = None;
            return;
        }
        if self.state != State::Connecting(step) || self.deadline.is_none() {
            let ready_timeout =
                if let Stage::Enabling(enabling) = &self.stage { enabling.ready_timeout() } else { Duration::ZERO };
            self.state = State::Connecting(step);
            self.deadline = Some(now + self.config.step_timeout.max(ready_timeout));
        }
    }

    /// Notifies the controller of a normal shutdown: CC.SHN 01b. Does not wait for the response.
    pub(crate) fn notify_shutdown(&mut self, now: Instant) {
        const SHUTDOWN_NORMAL: u32 = 0b01 << 14;
        let value = Configuration::enabled(Configuration::CSS_ALL).0 | SHUTDOWN_NORMAL;
        let entry = PropertyCommand::set(Property::Configuration, value.into()).into();
        if self.queues[0].has_free_slot() {
            self.queues[0].submit(now, Owner::Procedure, entry, CommandData::None);
        }
    }

    fn advance(&mut self, now: Instant, queue: QueueId, ended: &Ended) -> Result<(), InitiatorError> {
        let link = &mut self.queues[usize::from(queue.0)];
        let progress = match &mut self.stage {
            Stage::Admin(handshake) | Stage::Io { handshake, .. } => {
                handshake.ended(now, link, &self.config, &mut self.random, ended)
            }
            Stage::Enabling(enabling) => enabling.ended(now, link, ended),
            Stage::Identifying(identification) => identification.ended(now, link, &self.config, ended),
            Stage::Claiming { claiming, .. } => claiming.ended(now, link, ended),
            Stage::Surveying { survey, .. } => survey.ended(now, link, ended),
            Stage::Releasing if queue != QueueId::ADMIN => Ok(Progress::Done),
            Stage::Ready if queue == QueueId::ADMIN => {
                return self.refresh_ended(now, ended).map_err(|reason| InitiatorError { step: Step::Serve, reason });
            }
            Stage::Ready => {
                self.holder_reported(queue, ended);
                return Ok(());
            }
            // Commands of a step complete during the step; a refresh may still be in progress.
            Stage::Idle | Stage::Waiting { .. } | Stage::Releasing => Ok(Progress::More),
        };
        if progress.map_err(|reason| InitiatorError { step: self.stage.step(), reason })? == Progress::More {
            return Ok(());
        }
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Admin(handshake) => {
                self.controller_id = handshake.controller_id;
                self.keep_alive.start(now);
                self.stage = Stage::Enabling(Enabling::start(now, &mut self.queues[0]));
                Ok(())
            }
            Stage::Enabling(enabling) => {
                let capabilities = enabling.capabilities;
                let link = &mut self.queues[0];
                let identification = Identification::start(now, link, capabilities, self.controller_id);
                self.stage = Stage::Identifying(Box::new(identification));
                Ok(())
            }
            Stage::Identifying(identification) => {
                self.begin_io(Box::new(identification.into_remote()));
                Ok(())
            }
            Stage::Io { remote, depth, .. } => self.next_io(now, remote, depth),
            Stage::Claiming { claiming, remote } => {
                self.claimed = Some(claiming.claimed());
                self.survey(now, remote)
            }
            Stage::Releasing => {
                self.shutdown(now);
                Ok(())
            }
            Stage::Surveying { survey, remote } => self.ready(now, &remote, survey.zones()),
            Stage::Idle | Stage::Waiting { .. } | Stage::Ready => unreachable!("no command was in flight"),
        }
    }

    /// The first I/O queue, now that their number and size are known.
    fn begin_io(&mut self, remote: Box<Remote>) {
        if remote.traffic_keeps_alive() {
            self.keep_alive.count_traffic();
        }
        // A queue of n entries holds n - 1 commands (NVMe Base 2.0, section 3.3.1.2); MQES is
        // zero-based.
        let entries_max = remote.capabilities.queue_entries_max;
        let allowed = match remote.controller.max_outstanding_commands.get() {
            0 => u16::MAX,
            commands => commands,
        };
        let depth = self.config.queue_depth.min(entries_max).min(allowed).clamp(1, QUEUE_DEPTH_MAX);
        self.open_io(remote, depth);
    }

    /// Requests the connection of the next I/O queue.
    fn open_io(&mut self, remote: Box<Remote>, depth: u16) {
        let id = QueueId(self.queues.len() as u16);
        self.queues.push(Queue::new(QueueOptions {
            depth,
            digests: self.config.digests,
            data_bytes_max: data_bytes_max(&self.config),
            in_order: self.order(&remote) == Order::Arrival,
        }));
        self.links.push(true);
        let handshake = self.handshake(id, depth + 1, self.controller_id, 0);
        self.stage = Stage::Io { handshake, remote, depth };
        self.effects.push_back(Effect::Connect { queue: id });
    }

    /// An I/O queue is connected: continues with the next one, the claim, or the zones.
    fn next_io(&mut self, now: Instant, remote: Box<Remote>, depth: u16) -> Result<(), InitiatorError> {
        let last = self.queues.len() - 1;
        self.queues[last].set_capsule_data_bytes(remote.capsule_data_bytes());
        if last < usize::from(remote.queues) {
            self.open_io(remote, depth);
            return Ok(());
        }
        if let Some(claim) = self.config.claim {
            let namespace = self.config.namespace.0;
            let queue = &mut self.queues[1];
            if let Some(claiming) = Claiming::start(now, queue, &remote, claim, self.host_id, namespace) {
                self.stage = Stage::Claiming { claiming, remote };
                return Ok(());
            }
        }
        self.survey(now, remote)
    }

    /// Reports the zones, unless the namespace is conventional.
    fn survey(&mut self, now: Instant, remote: Box<Remote>) -> Result<(), InitiatorError> {
        let survey = Survey::start(now, &mut self.queues[1], &remote, &self.config)
            .map_err(|reason| InitiatorError { step: Step::SurveyZones, reason })?;
        match survey {
            Some(survey) => {
                self.stage = Stage::Surveying { survey, remote };
                Ok(())
            }
            None => self.ready(now, &remote, &[]),
        }
    }

    /// Connecting is complete: commands are accepted.
    fn ready(&mut self, now: Instant, remote: &Remote, zones: &[ZoneDescriptor]) -> Result<(), InitiatorError> {
        let at_step = |reason| InitiatorError { step: Step::SurveyZones, reason };
        let geometry = geometry_of(remote, zones, &self.config).map_err(at_step)?;
        let was = self.namespace.as_ref();
        if was.is_some_and(|was| !was.may_become(&geometry)) || self.identity.is_some_and(|was| was != remote.identity)
        {
            return Err(at_step(Reason::NamespaceChanged));
        }
        let is_resized = was.is_some_and(|was| was.geometry != geometry);
        let io_queues = self.queues.len() as u16 - 1;
        let queue_depth = self.queues[1].depth();
        self.lanes = Some(Lanes::new(self.order(remote), io_queues, &geometry));
        self.flights.set_capacity(usize::from(io_queues) * usize::from(queue_depth));
        self.namespace = Some(Namespace::new(geometry, remote, &self.config));
        self.identity = Some(remote.identity);
        self.stage = Stage::Ready;
        self.effects.push_back(Effect::Event(Event::Connected { io_queues, queue_depth }));
        if is_resized {
            self.effects.push_back(Effect::Event(Event::Resized));
        }
        self.request_event(now);
        Ok(())
    }

    fn order(&self, remote: &Remote) -> Order {
        self.config.order.unwrap_or_else(|| remote.order())
    }

    fn handshake(&mut self, queue: QueueId, entries: u16, controller_id: u16, keep_alive_timeout_ms: u32) -> Handshake {
        self.transactions = self.transactions.wrapping_add(1);
        let transaction = self.transactions;
        Handshake::new(HandshakeOptions { queue, entries, controller_id, keep_alive_timeout_ms, transaction })
    }
}
