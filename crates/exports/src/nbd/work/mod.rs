//! Requests of clients as commands to drives: requests in, commands out; completions in, replies out.
//!
//! A machine without a socket and without a clock. Each request is a [`Job`](job::Job); those that write to one drive pass its
//! [`Gate`].

mod gate;
mod job;
mod map;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use zonda_devices::Extent;
use zonda_nbd::{NbdError, Operation as Request, Reply, RequestId};
use zonda_target::{ConnectionId, DeviceKey, Flow};
use zonda_zoned::{Blocks, Command, CommandId, Completion, Lba, NamespaceId};

use gate::Gate;
use job::Job;
pub(crate) use job::Shape;

/// Tells flows of NBD clients from those of NVMe/TCP, whose connections are numbered by themselves.
const FLOWS: u64 = 1 << 63;

/// Who waits for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    pub(crate) connection: ConnectionId,
    /// Of its address: see [`Flow::group_of`].
    pub(crate) group: u64,
    pub(crate) request: RequestId,
}

/// Something to do.
#[derive(Debug)]
pub(crate) enum WorkEffect {
    /// Give a drive a command.
    Submit { device: DeviceKey, flow: Flow, command: Command },
    /// A connection is gone: end its commands that no drive has been given.
    Abandon { flow: Flow },
    /// Ask a drive what it holds there, and tell [`Work::answered`] at once.
    Ask { device: DeviceKey, job: u32, start: Lba, most: Blocks },
    /// A request has ended.
    Reply { asker: Asker, kind: RequestKind, bytes: u64, result: Result<Reply, NbdError> },
}

/// What clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Read,
    Write,
    Flush,
    Trim,
    WriteZeroes,
    BlockStatus,
}

/// All requests under way.
#[derive(Default)]
pub(crate) struct Work {
    devices: BTreeMap<u32, Device>,
    /// By number; a number is used again once all commands of its job have ended.
    jobs: Vec<Option<Entry>>,
    free: Vec<u32>,
    effects: VecDeque<WorkEffect>,
    /// Data of requests whose clients are gone, and that drives have.
    orphaned_bytes: usize,
}

struct Device {
    shape: Shape,
    gate: Gate,
}

struct Entry {
    /// `None`: nobody waits any more.
    asker: Option<Asker>,
    flow: Flow,
    device: DeviceKey,
    kind: RequestKind,
    bytes: u64,
    passes_gate: bool,
    job: Job,
}

impl Entry {
    /// Bytes of data that are read or written.
    fn data_bytes(&self) -> usize {
        match self.kind {
            RequestKind::Read | RequestKind::Write => self.bytes as usize,
            _ => 0,
        }
    }
}

impl RequestKind {
    pub(crate) const ALL: [RequestKind; 6] = [
        RequestKind::Read,
        RequestKind::Write,
        RequestKind::Flush,
        RequestKind::Trim,
        RequestKind::WriteZeroes,
        RequestKind::BlockStatus,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Flush => "flush",
            RequestKind::Trim => "trim",
            RequestKind::WriteZeroes => "write zeroes",
            RequestKind::BlockStatus => "block status",
        }
    }

    /// Of a request, with the bytes that it is about.
    fn of(request: &Request) -> (RequestKind, u64) {
        match request {
            Request::Read { length, .. } => (RequestKind::Read, u64::from(*length)),
            Request::Write { data, .. } => (RequestKind::Write, data.len() as u64),
            Request::Flush => (RequestKind::Flush, 0),
            Request::Trim { length, .. } => (RequestKind::Trim, u64::from(*length)),
            Request::WriteZeroes { length, .. } => (RequestKind::WriteZeroes, u64::from(*length)),
            Request::BlockStatus { length, .. } => (RequestKind::BlockStatus, u64::from(*length)),
        }
    }
}

impl Work {
    /// Requests to this drive may come. Several exports may be of one drive.
    pub(crate) fn add_device(&mut self, key: DeviceKey, shape: Shape) {
        self.devices.entry(key.0).or_insert_with(|| Device { shape, gate: Gate::default() });
    }

    /// A request of a client to a drive.
    pub(crate) fn begin(&mut self, key: DeviceKey, asker: Asker, request: Request) {
        let (kind, bytes) = RequestKind::of(&request);
        let device = self.devices.get_mut(&key.0).expect("requests go to drives that were added");
        let job = Job::new(&device.shape, request);
        let claim = job.claim();
        let flow = Flow { group: asker.group, queue: FLOWS | asker.connection.0 };
        let passes_gate = claim.is_some();
        let entry = Entry { asker: Some(asker), flow, device: key, kind, bytes, passes_gate, job };
        let number = self.free.pop().unwrap_or(self.jobs.len() as u32);
        let is_admitted = claim.is_none_or(|claim| device.gate.enter(number, claim));
        match self.jobs.get_mut(number as usize) {
            Some(place) => *place = Some(entry),
            None => self.jobs.push(Some(entry)),
        }
        if is_admitted {
            self.advance(number);
        }
    }

    /// A connection is gone: nothing more is done for it than what is under way.
    pub(crate) fn abandon(&mut self, connection: ConnectionId) {
        let mut abandoned = None;
        for number in 0..self.jobs.len() as u32 {
            let Some(entry) = &mut self.jobs[number as usize] else { continue };
            if entry.asker.is_some_and(|asker| asker.connection == connection) {
                entry.asker = None;
                abandoned = Some(entry.flow);
                self.orphaned_bytes += entry.data_bytes();
                entry.job.stop();
            }
        }
        self.effects.retain(|effect| match effect {
            WorkEffect::Reply { asker, .. } => asker.connection != connection,
            WorkEffect::Submit { .. } | WorkEffect::Abandon { .. } | WorkEffect::Ask { .. } => true,
        });
        if let Some(flow) = abandoned {
            self.effects.push_back(WorkEffect::Abandon { flow });
        }
    }

    /// A command has ended.
    pub(crate) fn completed(&mut self, completion: Completion) {
        let (number, part) = ((completion.id.0 >> 32) as u32, completion.id.0 as u32);
        let entry = self.jobs[number as usize].as_mut().expect("a job stays until its commands have ended");
        let shape = self.devices[&entry.device.0].shape;
        entry.job.ended(&shape, part, completion.status, completion.outcome);
        self.advance(number);
    }

    /// What a drive holds.
    pub(crate) fn answered(&mut self, number: u32, extent: Extent) {
        let entry = self.jobs[number as usize].as_mut().expect("a job stays until its question is answered");
        entry.job.answered(extent);
        self.advance(number);
    }

    /// A drive is not asked what it holds: clients may not read it.
    pub(crate) fn refused(&mut self, number: u32) {
        let entry = self.jobs[number as usize].as_mut().expect("a job stays until its question is answered");
        entry.job.refuse(NbdError::NotPermitted);
        self.advance(number);
    }

    /// The next thing to do. Asked until there is nothing, after each event.
    pub(crate) fn poll_effect(&mut self) -> Option<WorkEffect> {
        self.effects.pop_front()
    }

    /// Bytes of data that are held for clients that are gone.
    pub(crate) fn orphaned_bytes(&self) -> usize {
        self.orphaned_bytes
    }

    /// Whether no request is under way, and nothing is to be done.
    pub(crate) fn is_idle(&self) -> bool {
        self.effects.is_empty() && self.free.len() == self.jobs.len()
    }

    /// Begins what can be begun of a job, and ends it when there is nothing left; those that waited for it go on.
    fn advance(&mut self, number: u32) {
        // A job that ends can let others in, which may end at once in their turn.
        let mut ready = vec![number];
        while let Some(number) = ready.pop() {
            let entry = self.jobs[number as usize].as_mut().expect("a job that is ready is here");
            let device = self.devices.get_mut(&entry.device.0).expect("a job is of a drive that was added");
            while let Some((part, operation)) = entry.job.next(&device.shape) {
                let id = CommandId(u64::from(number) << 32 | u64::from(part));
                let command = Command { id, namespace: NamespaceId::FIRST, operation };
                self.effects.push_back(WorkEffect::Submit { device: entry.device, flow: entry.flow, command });
            }
            if let Some((start, most)) = entry.job.question() {
                let device = entry.device;
                self.effects.push_back(WorkEffect::Ask { device, job: number, start, most });
                continue;
            }
            if entry.job.under_way() > 0 {
                continue;
            }
            let Some(entry) = self.jobs[number as usize].take() else { continue };
            self.free.push(number);
            if entry.asker.is_none() {
                self.orphaned_bytes -= entry.data_bytes();
            }
            if entry.passes_gate {
                ready.extend(device.gate.leave(number).into_iter().rev());
            }
            if let Some(asker) = entry.asker {
                let result = entry.job.into_result(&device.shape);
                let Entry { kind, bytes, .. } = entry;
                self.effects.push_back(WorkEffect::Reply { asker, kind, bytes, result });
            }
        }
    }

    /// What must hold between events.
    #[cfg(test)]
    fn check_invariants(&self) {
        if self.jobs.iter().all(Option::is_none) {
            assert!(self.devices.values().all(|device| device.gate.is_empty()), "nobody is left at a gate");
        }
    }
}
