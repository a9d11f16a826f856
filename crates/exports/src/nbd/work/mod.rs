//! Requests of clients as commands to drives: requests in, commands out; completions in, replies
//! out.
//!
//! A state machine without sockets and clocks. Each request is a [`Job`](job::Job); those that
//! write to a drive take its [`RangeLock`].

mod job;
mod map;
mod range_lock;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use zonda_devices::Extent;
use zonda_nbd::{NbdError, Operation as Request, Reply, RequestId};
use zonda_target::{ConnectionId, DeviceKey, Flow};
use zonda_zoned::{Blocks, Command, CommandId, Completion, Lba, NamespaceId};

use job::Job;
pub(crate) use job::Shape;
use range_lock::RangeLock;

/// Distinguishes flows of NBD clients from those of NVMe/TCP, whose connections have their own ids.
const FLOWS: u64 = 1 << 63;

/// The connection and request that wait for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requester {
    pub(crate) connection: ConnectionId,
    /// Of its address: see [`Flow::group_of`].
    pub(crate) group: u64,
    pub(crate) request: RequestId,
}

/// An action for the caller.
#[derive(Debug)]
pub(crate) enum WorkEffect {
    /// Submit a command to a drive.
    Submit { device: DeviceKey, flow: Flow, command: Command },
    /// A connection was closed: fail its queued commands.
    Abandon { flow: Flow },
    /// Query the allocation status of a drive, and pass it to [`Work::answered`] at once.
    Ask { device: DeviceKey, job: u32, start: Lba, most: Blocks },
    /// A request has ended.
    Reply { requester: Requester, kind: RequestKind, bytes: u64, result: Result<Reply, NbdError> },
}

/// Kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Read,
    Write,
    Flush,
    Trim,
    WriteZeroes,
    BlockStatus,
}

/// All requests in flight.
#[derive(Default)]
pub(crate) struct Work {
    devices: BTreeMap<u32, Device>,
    /// By number; a number is reused once all commands of its job have completed.
    jobs: Vec<Option<Entry>>,
    free: Vec<u32>,
    effects: VecDeque<WorkEffect>,
    /// Data of abandoned requests that are still in flight.
    orphaned_bytes: usize,
}

struct Device {
    shape: Shape,
    range_lock: RangeLock,
}

struct Entry {
    /// `None`: the connection was closed.
    requester: Option<Requester>,
    flow: Flow,
    device: DeviceKey,
    kind: RequestKind,
    bytes: u64,
    takes_lock: bool,
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

    /// The kind of a request, with the bytes it covers.
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
    /// Adds a drive. Several exports may have the same drive.
    pub(crate) fn add_device(&mut self, key: DeviceKey, shape: Shape) {
        self.devices.entry(key.0).or_insert_with(|| Device { shape, range_lock: RangeLock::default() });
    }

    /// A drive has another size, in bytes. Requests in flight end as the drive completes them.
    pub(crate) fn resize_device(&mut self, key: DeviceKey, size_bytes: u64) {
        if let Some(device) = self.devices.get_mut(&key.0) {
            device.shape.resize(size_bytes);
        }
    }

    /// Whether a request of a drive is in flight.
    pub(crate) fn uses(&self, key: DeviceKey) -> bool {
        self.jobs.iter().flatten().any(|entry| entry.device == key)
    }

    /// Removes a drive without requests in flight.
    pub(crate) fn remove_device(&mut self, key: DeviceKey) {
        assert!(!self.uses(key), "a drive is removed after its requests");
        self.devices.remove(&key.0);
    }

    /// Starts a request of a client to a drive.
    pub(crate) fn begin(&mut self, key: DeviceKey, requester: Requester, request: Request) {
        let (kind, bytes) = RequestKind::of(&request);
        let device = self.devices.get_mut(&key.0).expect("the drive was added");
        let refusal = device.shape.refusal(&request);
        let mut job = Job::new(&device.shape, request);
        let claim = job.claim().filter(|_| refusal.is_none());
        refusal.into_iter().for_each(|error| job.refuse(error));
        let flow = Flow { group: requester.group, queue: FLOWS | requester.connection.0 };
        let takes_lock = claim.is_some();
        let entry = Entry { requester: Some(requester), flow, device: key, kind, bytes, takes_lock, job };
        let number = self.free.pop().unwrap_or(self.jobs.len() as u32);
        let is_admitted = claim.is_none_or(|claim| device.range_lock.acquire(number, claim));
        match self.jobs.get_mut(number as usize) {
            Some(place) => *place = Some(entry),
            None => self.jobs.push(Some(entry)),
        }
        if is_admitted {
            self.advance(number);
        }
    }

    /// A connection was closed: no more commands are started for it.
    pub(crate) fn abandon(&mut self, connection: ConnectionId) {
        let mut abandoned = None;
        for number in 0..self.jobs.len() as u32 {
            let Some(entry) = &mut self.jobs[number as usize] else { continue };
            if entry.requester.is_some_and(|requester| requester.connection == connection) {
                entry.requester = None;
                abandoned = Some(entry.flow);
                self.orphaned_bytes += entry.data_bytes();
                entry.job.stop();
            }
        }
        self.effects.retain(|effect| match effect {
            WorkEffect::Reply { requester, .. } => requester.connection != connection,
            WorkEffect::Submit { .. } | WorkEffect::Abandon { .. } | WorkEffect::Ask { .. } => true,
        });
        if let Some(flow) = abandoned {
            self.effects.push_back(WorkEffect::Abandon { flow });
        }
    }

    /// A command has ended.
    pub(crate) fn on_completion(&mut self, completion: Completion) {
        let (number, part) = ((completion.id.0 >> 32) as u32, completion.id.0 as u32);
        let entry = self.jobs[number as usize].as_mut().expect("a job stays until its commands have completed");
        let shape = self.devices[&entry.device.0].shape;
        entry.job.ended(&shape, part, completion.status, completion.outcome);
        self.advance(number);
    }

    /// Processes the allocation status of a drive.
    pub(crate) fn answered(&mut self, number: u32, extent: Extent) {
        let entry = self.jobs[number as usize].as_mut().expect("a job stays until its query is answered");
        entry.job.answered(extent);
        self.advance(number);
    }

    /// The query was refused: clients may not read the drive.
    pub(crate) fn refused(&mut self, number: u32) {
        let entry = self.jobs[number as usize].as_mut().expect("a job stays until its query is answered");
        entry.job.refuse(NbdError::NotPermitted);
        self.advance(number);
    }

    /// The next effect. Call it after each event, until it returns `None`.
    pub(crate) fn poll_effect(&mut self) -> Option<WorkEffect> {
        self.effects.pop_front()
    }

    /// Bytes of data held for closed connections.
    pub(crate) fn orphaned_bytes(&self) -> usize {
        self.orphaned_bytes
    }

    /// Whether no request is in flight, and no effect is pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.effects.is_empty() && self.free.len() == self.jobs.len()
    }

    /// Starts commands of a job, and completes it when none is left; then continues jobs that
    /// waited for its lock.
    fn advance(&mut self, number: u32) {
        // A job that completes can unblock others, which may complete at once, too.
        let mut ready = vec![number];
        while let Some(number) = ready.pop() {
            let entry = self.jobs[number as usize].as_mut().expect("a ready job exists");
            let device = self.devices.get_mut(&entry.device.0).expect("the drive was added");
            while let Some((part, operation)) = entry.job.next(&device.shape) {
                let id = CommandId(u64::from(number) << 32 | u64::from(part));
                let command = Command::new(id, NamespaceId::FIRST, operation);
                self.effects.push_back(WorkEffect::Submit { device: entry.device, flow: entry.flow, command });
            }
            if let Some((start, most)) = entry.job.question() {
                let device = entry.device;
                self.effects.push_back(WorkEffect::Ask { device, job: number, start, most });
                continue;
            }
            if entry.job.in_flight() > 0 {
                continue;
            }
            let Some(entry) = self.jobs[number as usize].take() else { continue };
            self.free.push(number);
            if entry.requester.is_none() {
                self.orphaned_bytes -= entry.data_bytes();
            }
            if entry.takes_lock {
                ready.extend(device.range_lock.release(number).into_iter().rev());
            }
            if let Some(requester) = entry.requester {
                let result = entry.job.into_result(&device.shape);
                let Entry { kind, bytes, .. } = entry;
                self.effects.push_back(WorkEffect::Reply { requester, kind, bytes, result });
            }
        }
    }

    /// Checks the invariants between events.
    #[cfg(test)]
    fn check_invariants(&self) {
        if self.jobs.iter().all(Option::is_none) {
            assert!(self.devices.values().all(|device| device.range_lock.is_empty()), "all locks are released");
        }
    }
}
