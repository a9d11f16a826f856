//! The initiator's state machine: its state, and the events that it processes.

use std::collections::VecDeque;

use bytes::Bytes;
use zonda_chap::Random;
use zonda_nvme::HostId;
use zonda_nvme::identify::NamespaceIdentity;
use zonda_nvme::tcp::ADMIN_CAPSULE_DATA_BYTES;
use zonda_zoned::{Completion, CompletionQueue, Geometry, Instant, Status};

use crate::InitiatorConfig;
use crate::claim::{Claimed, Conflict};
use crate::connecting::Refresh;
use crate::error::{InitiatorError, Reason};
use crate::events::{Effect, Event};
use crate::flights::Flights;
use crate::io::Namespace;
use crate::keep_alive::{KeepAlive, KeepAliveAction};
use crate::limits::ADMIN_QUEUE_DEPTH;
use crate::order::Lanes;
use crate::procedure::Stage;
use crate::queue::{CommandData, Failure, Owner, Queue, QueueEvent, QueueId, QueueOptions};
use crate::state::{State, Step};

/// One host, one controller with its queues, one namespace: commands in, completions out.
///
/// The owner carries out effects and reports their results; see [`Effect`]. Commands address the
/// namespace as [`NamespaceId::FIRST`](zonda_zoned::NamespaceId::FIRST), whatever its identifier at
/// the target.
#[derive(Debug)]
pub struct Initiator {
    pub(crate) config: InitiatorConfig,
    pub(crate) host_id: HostId,
    pub(crate) random: Random,
    pub(crate) state: State,
    pub(crate) stage: Stage,
    /// The deadline of the step in progress.
    pub(crate) deadline: Option<Instant>,
    /// The admin queue, and I/O queues as far as they are known.
    pub(crate) queues: Vec<Queue>,
    /// Which queues have a connection, or are being connected.
    pub(crate) links: Vec<bool>,
    pub(crate) controller_id: u16,
    /// Authentications so far: each has its own transaction identifier.
    pub(crate) transactions: u16,
    pub(crate) keep_alive: KeepAlive,
    /// The identity of the namespace when it was first connected. It must not change.
    pub(crate) identity: Option<NamespaceIdentity>,
    pub(crate) namespace: Option<Namespace>,
    /// The claim on the present connection.
    pub(crate) claimed: Option<Claimed>,
    pub(crate) conflict: Option<Conflict>,
    /// The namespace is identified again, because it may have changed.
    pub(crate) refresh: Option<Refresh>,
    pub(crate) lanes: Option<Lanes>,
    pub(crate) flights: Flights,
    /// When to check for timed-out commands.
    pub(crate) scan_at: Option<Instant>,
    pub(crate) completions: CompletionQueue,
    pub(crate) effects: VecDeque<Effect>,
    scratch: Vec<QueueEvent>,
    pub(crate) statistics: Statistics,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Completed commands of the user.
    pub commands: u64,
    /// Of these, commands that failed.
    pub errors: u64,
    /// Commands of the user that had to wait for earlier ones.
    pub held: u64,
    /// Data received with a wrong digest.
    pub damaged: u64,
    /// Established connections that were lost.
    pub losses: u64,
}

impl Initiator {
    /// An initiator that is idle until [`Initiator::start`].
    #[must_use]
    pub fn new(config: InitiatorConfig) -> Initiator {
        let mut random = Random::new(config.random_seed);
        let host_id = host_id_of(&config, &mut random);
        let admin = Queue::new(QueueOptions {
            depth: ADMIN_QUEUE_DEPTH,
            digests: config.digests,
            data_bytes_max: data_bytes_max(&config),
            in_order: false,
        });
        Initiator {
            host_id,
            random,
            state: State::Idle,
            stage: Stage::Idle,
            deadline: None,
            queues: vec![admin],
            links: vec![false],
            controller_id: 0,
            transactions: 0,
            keep_alive: KeepAlive::new(config.keep_alive),
            identity: None,
            namespace: None,
            claimed: None,
            conflict: None,
            refresh: None,
            lanes: None,
            flights: Flights::default(),
            scan_at: None,
            completions: CompletionQueue::new(),
            effects: VecDeque::new(),
            scratch: Vec::new(),
            statistics: Statistics::default(),
            config,
        }
    }

    /// Starts to connect, also after a failure or a shutdown.
    ///
    /// # Panics
    /// While it is connecting or connected.
    pub fn start(&mut self, now: Instant) {
        assert!(
            matches!(self.state, State::Idle | State::Failed(_) | State::Closed),
            "an initiator is started once, and again after its end"
        );
        match self.config.check() {
            Ok(()) => self.begin_connecting(now),
            Err(error) => {
                self.state = State::Failed(InitiatorError { step: Step::Configure, reason: Reason::Config(error) });
            }
        }
    }

    /// The connection of a queue is established.
    pub fn on_connect(&mut self, now: Instant, queue: QueueId) {
        let index = usize::from(queue.0);
        if let Some(handshake) = self.stage.handshake()
            && handshake.step() == Step::OpenConnection(queue)
        {
            // Connect and authentication may use in-capsule data on every queue.
            handshake.on_connect(&mut self.queues[index], ADMIN_CAPSULE_DATA_BYTES);
            self.step_changed(now);
        }
    }

    /// Bytes were received over a queue's connection.
    pub fn on_bytes(&mut self, now: Instant, queue: QueueId, chunk: Bytes) {
        let index = usize::from(queue.0);
        if !self.links.get(index).is_some_and(|&is_linked| is_linked) {
            return;
        }
        let mut events = std::mem::take(&mut self.scratch);
        let result = self.queues[index].receive(chunk, &mut events);
        for event in events.drain(..) {
            // Events after a failure belong to a connection that is being closed.
            if self.links.get(index).is_some_and(|&is_linked| is_linked) {
                self.handle(now, queue, event);
            }
        }
        self.scratch = events;
        let is_linked = self.links.get(index).is_some_and(|&is_linked| is_linked);
        match result {
            Err(failure) if is_linked => {
                let reason = match failure {
                    Failure::Pdu(error) => {
                        self.queues[index].terminate(&error);
                        Reason::Protocol(error)
                    }
                    Failure::Terminated(found) => {
                        Reason::Terminated { status: found.status, information: found.information }
                    }
                };
                self.fail(now, reason);
            }
            _ => self.send_held(now),
        }
    }

    /// The connection of a queue was closed, or could not be established.
    pub fn on_disconnect(&mut self, now: Instant, queue: QueueId, reason: &str) {
        let index = usize::from(queue.0);
        if self.links.get(index).is_some_and(|&is_linked| is_linked) {
            self.links[index] = false;
            self.queues[index].close();
            self.fail(now, Reason::Connection { queue, why: reason.to_owned() });
        }
    }

    /// The time of [`Initiator::next_timeout`] has been reached.
    pub fn on_timeout(&mut self, now: Instant) {
        if let Stage::Waiting { until } = self.stage
            && until <= now
        {
            self.begin_connecting(now);
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.fail(now, Reason::Timeout);
        }
        if let Stage::Enabling(enabling) = &mut self.stage {
            enabling.on_timeout(now, &mut self.queues[0]);
        }
        match self.keep_alive.on_timeout(now) {
            KeepAliveAction::None => {}
            KeepAliveAction::Send => {
                let entry = zonda_nvme::SubmissionEntry::new(zonda_nvme::AdminOpcode::KeepAlive.code(), 0);
                self.queues[0].submit(now, Owner::KeepAlive, entry, CommandData::None);
            }
            KeepAliveAction::TimedOut => self.fail(now, Reason::Timeout),
        }
        if self.scan_at.is_some_and(|at| at <= now) {
            self.scan(now);
        }
    }

    /// When to call [`Initiator::on_timeout`] next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let of_stage = match &self.stage {
            Stage::Waiting { until } => Some(*until),
            Stage::Enabling(enabling) => enabling.next_timeout(),
            _ => None,
        };
        [of_stage, self.deadline, self.keep_alive.next_timeout(), self.scan_at].into_iter().flatten().min()
    }

    /// The next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        let (index, queue) = self.queues.iter_mut().enumerate().find(|(_, queue)| queue.has_output())?;
        Some(Effect::Send { queue: QueueId(index as u16), pieces: queue.take_output() })
    }

    /// The state of the initiator.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The geometry of the namespace, once it has been connected; it is kept when the connection is
    /// lost. [`Event::Resized`] reports that the size of the namespace has changed.
    #[must_use]
    pub fn geometry(&self) -> Option<&Geometry> {
        self.namespace.as_ref().map(|namespace| &namespace.geometry)
    }

    /// The identifiers of the namespace, once it has been connected.
    #[must_use]
    pub fn identity(&self) -> Option<&NamespaceIdentity> {
        self.identity.as_ref()
    }

    /// The identifier of this host.
    #[must_use]
    pub fn host_id(&self) -> HostId {
        self.host_id
    }

    /// The counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Adds the completed commands to `completions`.
    pub fn poll(&mut self, _now: Instant, completions: &mut CompletionQueue) {
        while let Some(completion) = self.completions.pop() {
            completions.push(completion);
        }
    }

    /// Commands that were submitted and not yet returned by [`Initiator::poll`].
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.flights.len() + self.completions.len()
    }

    /// Shuts down the controller and closes all connections. Outstanding commands end as when a
    /// connection is lost.
    pub fn shutdown(&mut self, now: Instant) {
        if self.queues[0].is_open() {
            self.notify_shutdown(now);
        }
        self.close_all();
        self.stage = Stage::Idle;
        self.state = State::Closed;
    }

    /// Checks all invariants.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub fn check_invariants(&self) {
        assert_eq!(self.state == State::Ready, self.lanes.is_some(), "lanes exist while commands are accepted");
        assert_eq!(self.queues.len(), self.links.len(), "every queue has a link");
        assert!(
            self.state != State::Ready || self.links.iter().all(|&is_linked| is_linked),
            "a ready initiator has connected all queues"
        );
        if let (Some(lanes), 0) = (&self.lanes, self.flights.len()) {
            lanes.check_idle();
        }
        self.flights.check_invariants();
    }

    fn handle(&mut self, now: Instant, queue: QueueId, event: QueueEvent) {
        let index = usize::from(queue.0);
        match event {
            QueueEvent::Negotiated => {
                if let Some(handshake) = self.stage.handshake()
                    && handshake.step() == Step::Negotiate(queue)
                {
                    handshake.negotiated(now, &mut self.queues[index], &self.config, self.host_id);
                    self.step_changed(now);
                }
            }
            QueueEvent::DataSent(Owner::Flight(flight)) => self.data_sent(flight),
            QueueEvent::DataSent(_) => {}
            QueueEvent::Ended(ended) => {
                self.keep_alive.note_traffic();
                self.statistics.damaged += u64::from(ended.is_damaged);
                match ended.owner {
                    Owner::Flight(flight) => self.flight_ended(now, flight, ended),
                    Owner::Procedure => self.step_ended(now, queue, &ended),
                    Owner::KeepAlive if ended.status.is_success() => self.keep_alive.answered(),
                    Owner::KeepAlive => {
                        let (status, result) = (ended.status, ended.result);
                        let do_not_retry = ended.do_not_retry;
                        self.fail(now, Reason::Status { status, result, do_not_retry });
                    }
                    Owner::AsyncEvent => self.event_received(now, &ended),
                }
            }
        }
    }

    /// Checks for timed-out commands.
    fn scan(&mut self, now: Instant) {
        let oldest = self.queues.iter().filter_map(Queue::oldest).min();
        self.scan_at = oldest.map(|oldest| oldest + self.config.command_timeout);
        if self.scan_at.is_some_and(|at| at <= now) {
            self.fail(now, Reason::Timeout);
        }
    }

    /// Handles a failure: reconnects later, or ends.
    pub(crate) fn fail(&mut self, now: Instant, reason: Reason) {
        let step = self.stage.step();
        self.fail_with(now, InitiatorError { step, reason });
    }

    pub(crate) fn fail_with(&mut self, now: Instant, error: InitiatorError) {
        self.statistics.losses += u64::from(error.step == Step::Serve);
        self.close_all();
        if error.step == Step::Release {
            // The reservation was not released; the next host that claims the namespace preempts
            // it.
            self.stage = Stage::Idle;
            self.state = State::Closed;
            return;
        }
        match self.config.reconnect {
            // The geometry is known: the namespace has been connected before.
            Some(delay) if self.namespace.is_some() && !error.is_permanent() => {
                self.stage = Stage::Waiting { until: now + delay };
                self.state = State::Connecting(Step::Wait);
                self.effects.push_back(Effect::Event(Event::Lost(error)));
            }
            _ => {
                self.stage = Stage::Idle;
                self.state = State::Failed(error);
            }
        }
    }

    /// Closes every connection, and completes every command: sent commands with an unknown outcome,
    /// as at a power loss; unsent ones as if they had never been accepted.
    fn close_all(&mut self) {
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let id = QueueId(index as u16);
            if std::mem::take(&mut self.links[index]) {
                // The last output is the reason for closing the connection.
                if queue.has_output() {
                    self.effects.push_back(Effect::Send { queue: id, pieces: queue.take_output() });
                }
                self.effects.push_back(Effect::Close { queue: id });
            }
            queue.close();
        }
        self.queues.truncate(1);
        self.links.truncate(1);
        self.lanes = None;
        self.refresh = None;
        self.claimed = None;
        self.deadline = None;
        self.scan_at = None;
        self.keep_alive.stop();
        for (id, was_sent) in self.flights.take_all() {
            self.statistics.commands += 1;
            self.statistics.errors += 1;
            let status = if was_sent { Status::AbortedPowerLoss } else { Status::NamespaceNotReady };
            self.completions.push(Completion::of(id, status));
        }
    }
}

/// The most data that a PDU of the controller may have: a whole transfer with its metadata.
pub(crate) fn data_bytes_max(config: &InitiatorConfig) -> u32 {
    let metadata = config.transfer_bytes_max / 512 * u32::from(zonda_zoned::limits::METADATA_BYTES_MAX);
    config.transfer_bytes_max.saturating_add(metadata)
}

/// The identifier of this host; a random one if none is configured.
pub(crate) fn host_id_of(config: &InitiatorConfig, random: &mut Random) -> HostId {
    config.host_id.unwrap_or_else(|| {
        let mut id = [0; 16];
        random.fork().fill(&mut id);
        // A random UUID (RFC 9562, version 4), as hosts usually have.
        id[6] = id[6] & 0x0f | 0x40;
        id[8] = id[8] & 0x3f | 0x80;
        HostId(id)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use zonda_nvme::{Nqn, StatusCode};
    use zonda_zoned::Duration;

    use super::*;
    use crate::connecting::{Enabling, Progress};
    use crate::queue::Ended;

    #[test]
    fn the_status_of_a_controller_that_is_not_ready_is_read_again_after_20_ms() {
        let name = |end: &str| Nqn::new(&format!("nqn.2014-08.org.example:{end}")).unwrap();
        let mut initiator = Initiator::new(InitiatorConfig::new(name("host"), name("drive"), [1; 32]));
        let mut enabling = Enabling::waiting_until_ready();
        let not_ready = Ended {
            owner: Owner::Procedure,
            status: StatusCode::SUCCESS,
            do_not_retry: false,
            result: 0,
            data: Bytes::new(),
            is_damaged: false,
        };
        let now = Instant(1_000);
        let progress = enabling.ended(now, &mut initiator.queues[0], &not_ready);
        assert!(matches!(progress, Ok(Progress::More)));
        initiator.stage = Stage::Enabling(enabling);
        assert_eq!(initiator.next_timeout(), Some(now + Duration::from_millis(20)));
    }

    #[test]
    fn a_host_without_an_identifier_gets_a_random_uuid_of_version_4() {
        let name = |end: &str| Nqn::new(&format!("nqn.2014-08.org.example:{end}")).unwrap();
        let id_of = |seed: u8| {
            let config = InitiatorConfig::new(name("host"), name("drive"), [seed; 32]);
            let id = host_id_of(&config, &mut Random::new(config.random_seed));
            let given = InitiatorConfig { host_id: Some(id), ..config };
            assert_eq!(host_id_of(&given, &mut Random::new([0; 32])), id, "a configured one is used");
            id.0
        };
        let ids: Vec<[u8; 16]> = (0..200).map(id_of).collect();
        for id in &ids {
            assert_eq!((id[6] >> 4, id[8] >> 6), (4, 0b10), "version and variant of {id:02x?}");
        }
        // The other bits of the two bytes with fixed bits are random.
        let values = |byte: usize| ids.iter().map(|id| id[byte]).collect::<BTreeSet<u8>>().len();
        assert!(values(6) == 16 && values(8) > 50, "{} and {} values", values(6), values(8));
    }
}
