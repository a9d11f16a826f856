//! A store on a drive with latency: commands to different zones complete in any order, and of those
//! in flight a crash keeps any part that a drive may keep.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    Blocks, Command, Completion, Geometry, Instant, Lba, Operation, Payload, PayloadKind, Prng, Status, ZoneTarget,
};

use super::Host;
use crate::{Event, FileError, FileStore, FilesConfig};

/// The testbed of one store.
pub(crate) struct Testbed {
    pub(crate) geometry: Geometry,
    pub(crate) config: FilesConfig,
    pub(crate) store: FileStore,
    drive: ReferenceDevice,
    /// With a volatile write cache: the drive without unflushed writes, and these writes.
    cached: Option<(ReferenceDevice, Vec<Command>)>,
    pub(crate) prng: Prng,
    /// Commands in flight by zone, in the order of submission.
    queues: BTreeMap<u64, VecDeque<Command>>,
    /// Of 1000 writes, how many fail.
    pub(crate) faults_per_mille: u64,
    pub(crate) events: VecDeque<Event>,
    pub(crate) checks: bool,
    /// The drive's queue is sometimes full.
    pub(crate) refuses: bool,
}

impl Host for Testbed {
    fn store(&mut self) -> &mut FileStore {
        &mut self.store
    }

    fn prng(&mut self) -> &mut Prng {
        &mut self.prng
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.store.poll_event())
    }

    fn drain(&mut self) {
        self.run_to_idle();
    }
}

impl Testbed {
    /// A freshly formatted store on an empty drive.
    pub(crate) fn format(geometry: Geometry, config: FilesConfig, prng: Prng) -> Testbed {
        let store = FileStore::format(&geometry, config, [1; 16]).expect("configuration and geometry match");
        let mut testbed = Testbed {
            drive: ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes),
            cached: None,
            geometry,
            config,
            store,
            prng,
            queues: BTreeMap::new(),
            faults_per_mille: 0,
            events: VecDeque::new(),
            checks: true,
            refuses: true,
        };
        testbed.start().expect("an empty drive can be formatted");
        testbed
    }

    /// Runs until the store is ready.
    fn start(&mut self) -> Result<(), FileError> {
        self.run_to_idle();
        match self.events.pop_front() {
            Some(Event::Ready) => Ok(()),
            Some(Event::Failed(error)) => Err(error),
            other => panic!("a store that starts becomes ready or fails: {other:?}"),
        }
    }

    /// Takes a command from the store, unless the drive's queue is full.
    pub(crate) fn take_command(&mut self) -> bool {
        let Some(command) = self.store.poll_command(Instant::ZERO) else { return false };
        if self.refuses && self.prng.chance(1, 20) {
            self.store.on_queue_full(command);
            return !self.queues.is_empty();
        }
        self.queues.entry(self.zone_of(&command)).or_default().push_back(command);
        true
    }

    /// Completes one of the commands in flight; returns whether there was one.
    pub(crate) fn complete(&mut self) -> bool {
        let zones: Vec<u64> = self.queues.keys().copied().collect();
        let Some(zone) = self.prng.pick(&zones).copied() else { return false };
        let queue = self.queues.get_mut(&zone).expect("a zone with a queue");
        let command = queue.pop_front().expect("a queue holds commands");
        if queue.is_empty() {
            self.queues.remove(&zone);
        }
        let completion = self.execute(command);
        self.store.on_completion(Instant::ZERO, completion);
        self.check();
        true
    }

    /// Runs until no progress is possible.
    pub(crate) fn run_to_idle(&mut self) {
        for _ in 0..1_000_000 {
            while self.take_command() {}
            if !self.complete()
                && self.store.poll_command(Instant::ZERO).map(|command| self.store.on_queue_full(command)).is_none()
            {
                self.check();
                return;
            }
        }
        panic!("the store does not become idle");
    }

    /// The power fails, and the store is lost. Of the commands in flight each zone has executed the
    /// first few.
    pub(crate) fn crash(&mut self) {
        for (_, queue) in std::mem::take(&mut self.queues) {
            let kept = self.prng.below(queue.len() as u64 + 1) as usize;
            for (number, command) in queue.into_iter().enumerate() {
                if number < kept {
                    self.execute(command);
                } else if number == kept
                    && let Some(torn) = self.tear(command)
                {
                    self.execute(torn);
                }
            }
        }
        if let Some((mut durable, writes)) = self.cached.take() {
            // Of the cached commands each zone has the first few.
            let mut lost = BTreeSet::new();
            for command in writes {
                let zone = self.zone_of(&command);
                if !lost.contains(&zone) && self.prng.chance(3, 4) {
                    durable.execute(&command);
                } else {
                    lost.insert(zone);
                }
            }
            self.drive = durable;
            self.enable_write_cache();
        }
        self.drive.power_cycle();
        self.events.clear();
    }

    /// Gives the drive a volatile write cache from now on.
    pub(crate) fn enable_write_cache(&mut self) {
        self.cached = Some((self.drive.clone(), Vec::new()));
    }

    /// Mounts the store on the drive.
    pub(crate) fn mount(&mut self) -> Result<(), FileError> {
        self.store = self.new_store()?;
        self.queues.clear();
        let faults = std::mem::take(&mut self.faults_per_mille);
        let result = self.start();
        self.faults_per_mille = faults;
        result
    }

    fn new_store(&self) -> Result<FileStore, FileError> {
        let store = FileStore::mount(&self.geometry, self.config)?;
        Ok(if self.cached.is_some() { store.with_flushes() } else { store })
    }

    /// As [`mount`](Testbed::mount), with another power failure before it has ended.
    pub(crate) fn mount_and_crash(&mut self) {
        self.store = self.new_store().expect("as it was formatted");
        self.queues.clear();
        for _ in 0..self.prng.below(40) {
            if self.prng.chance(1, 2) {
                self.take_command();
            } else {
                self.complete();
            }
        }
        self.crash();
    }

    /// Commands in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    /// Asserts that nothing is written to a zone that is being finished or reset.
    pub(crate) fn expect_no_write_behind_a_finish(&self) {
        for (zone, queue) in &self.queues {
            let is_management = |command: &Command| matches!(command.operation, Operation::ManageZones { .. });
            let behind = queue.iter().skip_while(|command| !is_management(command)).skip(1);
            assert_eq!(behind.count(), 0, "zone {zone} is not written meanwhile");
        }
    }

    fn check(&mut self) {
        if self.checks {
            self.store.check_invariants();
        }
        while let Some(event) = self.store.poll_event() {
            self.events.push_back(event);
        }
    }

    /// A part of a write that was in flight.
    fn tear(&mut self, mut command: Command) -> Option<Command> {
        let Operation::Write { blocks, payload, .. } = &mut command.operation else { return None };
        let left = self.prng.below(blocks.0);
        if left == 0 {
            return None;
        }
        *blocks = Blocks(left);
        if let Payload::Bytes(buffer) = payload {
            buffer.data.truncate(left as usize * self.geometry.block_size_bytes as usize);
            buffer.metadata.truncate(left as usize * usize::from(self.geometry.metadata_bytes));
        }
        Some(command)
    }

    fn execute(&mut self, command: Command) -> Completion {
        let id = command.id;
        let is_write = matches!(command.operation, Operation::Write { .. });
        let fails = is_write && self.prng.chance(self.faults_per_mille, 1000);
        if fails && self.prng.chance(1, 2) {
            return Completion::of(id, Status::WriteFault);
        }
        let completion = self.drive.execute(&command);
        self.execute_durably(command);
        if fails { Completion::of(id, Status::WriteFault) } else { completion }
    }

    /// Executes a command on the media, behind the write cache.
    fn execute_durably(&mut self, command: Command) {
        let zone = self.zone_of(&command);
        let Some((mut durable, mut writes)) = self.cached.take() else { return };
        match &command.operation {
            Operation::Write { .. } => writes.push(command),
            Operation::Flush => writes.drain(..).for_each(|write| drop(durable.execute(&write))),
            Operation::ManageZones { .. } => {
                // Management is durable immediately, and so are earlier writes to its zone.
                let is_here = |write: &mut Command| self.zone_of(write) == zone;
                writes.extract_if(.., is_here).for_each(|write| drop(durable.execute(&write)));
                durable.execute(&command);
            }
            _ => {}
        }
        self.cached = Some((durable, writes));
    }

    /// The zone of a command, which determines its order.
    fn zone_of(&self, command: &Command) -> u64 {
        let zone = |lba: Lba| lba.0 / self.geometry.zone_size_blocks.0;
        match &command.operation {
            Operation::Read { start, .. } | Operation::Write { start, .. } => zone(*start),
            Operation::ManageZones { target: ZoneTarget::Zone(start), .. } => zone(*start),
            Operation::ReportZones { start, .. } => zone(*start),
            Operation::Flush => u64::MAX,
            other => panic!("the store does not use {}", other.name()),
        }
    }
}
