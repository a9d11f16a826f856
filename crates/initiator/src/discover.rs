//! Discovery: reads the addresses of a server's subsystems from the log page of its discovery
//! controller.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use zonda_chap::Random;
use zonda_nvme::discovery::{DiscoveryEntry, DiscoveryHeader, SubsystemKind, log_bytes, parse_log};
use zonda_nvme::fabrics::CONTROLLER_ID_DYNAMIC;
use zonda_nvme::log::{GetLogPage, LogPage};
use zonda_nvme::page::Page;
use zonda_nvme::tcp::ADMIN_CAPSULE_DATA_BYTES;
use zonda_nvme::{HostId, Nqn};
use zonda_zoned::{Duration, Instant};

use crate::connecting::{Enabling, Handshake, HandshakeOptions, Progress, succeeded};
use crate::error::{InitiatorError, Reason};
use crate::initiator::{data_bytes_max, host_id_of};
use crate::io::get_log_page;
use crate::limits::{ADMIN_QUEUE_DEPTH, DISCOVERY_ATTEMPTS_MAX, DISCOVERY_LOG_BYTES_MAX};
use crate::queue::{CommandData, Ended, Failure, Owner, Queue, QueueEvent, QueueId, QueueOptions};
use crate::state::Step;
use crate::{Effect, InitiatorConfig};

/// Bytes of one read of the log: a transfer that every controller supports.
const ROUND_BYTES: u64 = 4096;

/// Reads the log of a discovery controller once. Driven like an [`crate::Initiator`]; its only
/// connection is that of [`QueueId::ADMIN`].
///
/// If the log changes between two reads, it is read again from the start.
#[derive(Debug)]
pub struct Discovery {
    config: InitiatorConfig,
    host_id: HostId,
    random: Random,
    queue: Queue,
    is_linked: bool,
    stage: Stage,
    deadline: Option<Instant>,
    step: Step,
    effects: VecDeque<Effect>,
    attempts: u32,
    result: Option<Result<Vec<Discovered>, InitiatorError>>,
}

#[derive(Debug)]
enum Stage {
    Idle,
    Handshake(Handshake),
    Enabling(Enabling),
    /// The log as far as it was read, and its length once that is known.
    Reading {
        log: BytesMut,
        total: u64,
    },
    /// The header once more, to check that the log has not changed.
    Checking {
        log: BytesMut,
    },
    Done,
}

/// One address of one subsystem, over TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// NQN of the subsystem.
    pub subsystem_nqn: Nqn,
    /// Its type; `None` for an unknown one.
    pub kind: Option<SubsystemKind>,
    /// IPv4 or IPv6 address, or a host name.
    pub address: String,
    /// TCP port.
    pub service: String,
}

impl Discovery {
    /// A discovery as the host of `config`, with its digests, timeouts and secrets. `subsystem_nqn`
    /// is usually [`Nqn::discovery`]; other fields of `config` are ignored.
    #[must_use]
    pub fn new(config: InitiatorConfig) -> Discovery {
        let mut random = Random::new(config.random_seed);
        Discovery {
            host_id: host_id_of(&config, &mut random),
            random,
            queue: Queue::new(QueueOptions {
                depth: ADMIN_QUEUE_DEPTH,
                digests: config.digests,
                data_bytes_max: data_bytes_max(&config),
                in_order: false,
            }),
            is_linked: false,
            stage: Stage::Idle,
            deadline: None,
            step: Step::Configure,
            effects: VecDeque::new(),
            attempts: 0,
            result: None,
            config,
        }
    }

    /// Begins.
    ///
    /// # Panics
    /// If called twice.
    pub fn start(&mut self, now: Instant) {
        assert!(matches!(self.stage, Stage::Idle) && self.result.is_none(), "a discovery is started once");
        if let Err(error) = self.config.check() {
            self.fail(Reason::Config(error));
            return;
        }
        self.stage = Stage::Handshake(Handshake::new(HandshakeOptions {
            queue: QueueId::ADMIN,
            entries: ADMIN_QUEUE_DEPTH + 1,
            controller_id: CONTROLLER_ID_DYNAMIC,
            keep_alive_timeout_ms: 0,
            transaction: 1,
        }));
        self.is_linked = true;
        self.effects.push_back(Effect::Connect { queue: QueueId::ADMIN });
        self.step_changed(now);
    }

    /// The connection is established.
    pub fn on_connect(&mut self, now: Instant, queue: QueueId) {
        if let Stage::Handshake(handshake) = &mut self.stage
            && handshake.step() == Step::OpenConnection(queue)
        {
            handshake.on_connect(&mut self.queue, ADMIN_CAPSULE_DATA_BYTES);
            self.step_changed(now);
        }
    }

    /// Bytes were received.
    pub fn on_bytes(&mut self, now: Instant, queue: QueueId, chunk: Bytes) {
        if !self.is_linked || queue != QueueId::ADMIN {
            return;
        }
        let mut events = Vec::new();
        let result = self.queue.receive(chunk, &mut events);
        for event in events {
            if !self.is_linked {
                return;
            }
            let result = self.handle(now, event);
            match result {
                Ok(()) => self.step_changed(now),
                Err(reason) => self.fail(reason),
            }
        }
        match result {
            Err(Failure::Pdu(error)) if self.is_linked => {
                self.queue.terminate(&error);
                self.fail(Reason::Protocol(error));
            }
            Err(Failure::Terminated(found)) if self.is_linked => {
                self.fail(Reason::Terminated { status: found.status, information: found.information });
            }
            _ => {}
        }
    }

    /// The connection was closed, or could not be established.
    pub fn on_disconnect(&mut self, _now: Instant, queue: QueueId, reason: &str) {
        if self.is_linked && queue == QueueId::ADMIN {
            self.is_linked = false;
            self.fail(Reason::Connection { queue, why: reason.to_owned() });
        }
    }

    /// The time of [`Discovery::next_timeout`] has been reached.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.fail(Reason::Timeout);
        }
        if let Stage::Enabling(enabling) = &mut self.stage {
            enabling.on_timeout(now, &mut self.queue);
        }
    }

    /// When to call [`Discovery::on_timeout`] next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let poll = if let Stage::Enabling(enabling) = &self.stage { enabling.next_timeout() } else { None };
        self.deadline.into_iter().chain(poll).min()
    }

    /// The next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        self.queue.has_output().then(|| Effect::Send { queue: QueueId::ADMIN, pieces: self.queue.take_output() })
    }

    /// The step in progress.
    #[must_use]
    pub fn step(&self) -> Step {
        self.step
    }

    /// The result, once the discovery has ended.
    #[must_use]
    pub fn result(&self) -> Option<&Result<Vec<Discovered>, InitiatorError>> {
        self.result.as_ref()
    }

    fn handle(&mut self, now: Instant, event: QueueEvent) -> Result<(), Reason> {
        match event {
            QueueEvent::Negotiated => {
                if let Stage::Handshake(handshake) = &mut self.stage {
                    handshake.negotiated(now, &mut self.queue, &self.config, self.host_id);
                }
                Ok(())
            }
            QueueEvent::DataSent(_) => Ok(()),
            QueueEvent::Ended(ended) => self.ended(now, &ended),
        }
    }

    fn ended(&mut self, now: Instant, ended: &Ended) -> Result<(), Reason> {
        match &mut self.stage {
            Stage::Handshake(handshake) => {
                let progress = handshake.ended(now, &mut self.queue, &self.config, &mut self.random, ended)?;
                if progress == Progress::Done {
                    self.stage = Stage::Enabling(Enabling::start(now, &mut self.queue));
                }
                Ok(())
            }
            Stage::Enabling(enabling) => {
                if enabling.ended(now, &mut self.queue, ended)? == Progress::Done {
                    self.restart_read(now);
                }
                Ok(())
            }
            Stage::Reading { log, total } => {
                succeeded(ended)?;
                let wanted = (*total - log.len() as u64).min(ROUND_BYTES);
                if ended.data.len() as u64 != wanted {
                    return Err(Reason::Damaged);
                }
                log.extend_from_slice(&ended.data);
                if log.len() == size_of::<DiscoveryHeader>() {
                    *total = log_bytes(DiscoveryHeader::parse(log)?.records.get());
                    if *total > DISCOVERY_LOG_BYTES_MAX {
                        return Err(Reason::DiscoveryLog);
                    }
                }
                let (offset, left) = (log.len() as u64, *total - log.len() as u64);
                if left > 0 {
                    self.read(now, offset, left.min(ROUND_BYTES));
                } else {
                    let log = std::mem::take(log);
                    self.read(now, 0, size_of::<DiscoveryHeader>() as u64);
                    self.stage = Stage::Checking { log };
                }
                Ok(())
            }
            Stage::Checking { log } => {
                succeeded(ended)?;
                let (generation, entries) = parse_log(log)?;
                if DiscoveryHeader::parse(&ended.data)?.generation.get() != generation {
                    if self.attempts == DISCOVERY_ATTEMPTS_MAX {
                        return Err(Reason::DiscoveryLog);
                    }
                    self.restart_read(now);
                    return Ok(());
                }
                self.finish(Ok(entries.iter().filter_map(discovered).collect()));
                Ok(())
            }
            Stage::Idle | Stage::Done => Ok(()),
        }
    }

    /// Reads the log from the start.
    fn restart_read(&mut self, now: Instant) {
        self.attempts += 1;
        let header_bytes = size_of::<DiscoveryHeader>() as u64;
        self.stage = Stage::Reading { log: BytesMut::new(), total: header_bytes };
        self.read(now, 0, header_bytes);
    }

    fn read(&mut self, now: Instant, offset: u64, length_bytes: u64) {
        let request = GetLogPage { offset, ..GetLogPage::of(LogPage::Discovery, length_bytes) };
        let data = CommandData::ToHost(length_bytes as u32);
        self.queue.submit(now, Owner::Procedure, get_log_page(0, &request), data);
    }

    /// Starts the timeout of a new step.
    fn step_changed(&mut self, now: Instant) {
        let (step, ready_timeout) = match &self.stage {
            Stage::Idle | Stage::Done => {
                self.deadline = None;
                return;
            }
            Stage::Handshake(handshake) => (handshake.step(), Duration::ZERO),
            Stage::Enabling(enabling) => (enabling.step(), enabling.ready_timeout()),
            Stage::Reading { .. } | Stage::Checking { .. } => (Step::ReadDiscoveryLog, Duration::ZERO),
        };
        if step != self.step || self.deadline.is_none() {
            self.step = step;
            self.deadline = Some(now + self.config.step_timeout.max(ready_timeout));
        }
    }

    fn fail(&mut self, reason: Reason) {
        self.finish(Err(InitiatorError { step: self.step, reason }));
    }

    fn finish(&mut self, result: Result<Vec<Discovered>, InitiatorError>) {
        self.result = Some(result);
        self.stage = Stage::Done;
        self.deadline = None;
        let id = QueueId::ADMIN;
        if std::mem::take(&mut self.is_linked) {
            if self.queue.has_output() {
                self.effects.push_back(Effect::Send { queue: id, pieces: self.queue.take_output() });
            }
            self.effects.push_back(Effect::Close { queue: id });
        }
        self.queue.close();
    }
}

/// Converts an entry, unless it has another transport or an invalid NQN.
fn discovered(entry: &DiscoveryEntry) -> Option<Discovered> {
    let kinds = [SubsystemKind::Referral, SubsystemKind::Nvm, SubsystemKind::CurrentDiscovery];
    entry.is_tcp().then(|| {
        Some(Discovered {
            subsystem_nqn: Nqn::new(&entry.subsystem_nqn()).ok()?,
            kind: kinds.into_iter().find(|&kind| kind as u8 == entry.kind),
            address: entry.address(),
            service: entry.service(),
        })
    })?
}
