//! A store and a drive that takes its time: commands to different zones end in any order, and a crash keeps of those under way
//! whatever a drive may keep.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    Blocks, Command, Completion, Geometry, Instant, Lba, Operation, Payload, PayloadKind, Prng, Status, ZoneTarget,
};

use super::Host;
use crate::{Event, FileError, FileStore, FilesConfig};

/// The world of one store.
pub(crate) struct World {
    pub(crate) geometry: Geometry,
    pub(crate) config: FilesConfig,
    pub(crate) store: FileStore,
    drive: ReferenceDevice,
    /// With a volatile write cache: the drive without what was not flushed, and that.
    cached: Option<(ReferenceDevice, Vec<Command>)>,
    pub(crate) prng: Prng,
    /// Commands under way by zone, in the order in which they were handed out.
    queues: BTreeMap<u64, VecDeque<Command>>,
    /// Of 1000 writes, how many fail.
    pub(crate) faults_per_mille: u64,
    pub(crate) events: VecDeque<Event>,
    pub(crate) checks: bool,
    /// The drive sometimes has no room.
    pub(crate) refuses: bool,
}

impl Host for World {
    fn store(&mut self) -> &mut FileStore {
        &mut self.store
    }

    fn prng(&mut self) -> &mut Prng {
        &mut self.prng
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.store.poll_event())
    }

    fn rest(&mut self) {
        self.run_to_rest();
    }
}

impl World {
    /// A freshly formatted store on an empty drive.
    pub(crate) fn format(geometry: Geometry, config: FilesConfig, prng: Prng) -> World {
        let store = FileStore::format(&geometry, config, [1; 16]).expect("configuration and geometry suit");
        let mut world = World {
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
        world.start().expect("an empty drive can be formatted");
        world
    }

    /// Runs until the store is ready.
    fn start(&mut self) -> Result<(), FileError> {
        self.run_to_rest();
        match self.events.pop_front() {
            Some(Event::Ready) => Ok(()),
            Some(Event::Failed(error)) => Err(error),
            other => panic!("a store that starts becomes ready or fails: {other:?}"),
        }
    }

    /// Takes a command from the store, unless the drive has no room.
    pub(crate) fn hand_out(&mut self) -> bool {
        let Some(command) = self.store.poll_command(Instant::ZERO) else { return false };
        if self.refuses && self.prng.chance(1, 20) {
            self.store.on_queue_full(command);
            return !self.queues.is_empty();
        }
        self.queues.entry(self.zone_of(&command)).or_default().push_back(command);
        true
    }

    /// Ends one of the commands under way; says whether there was one.
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

    /// Lets everything end that can.
    pub(crate) fn run_to_rest(&mut self) {
        for _ in 0..1_000_000 {
            while self.hand_out() {}
            if !self.complete()
                && self.store.poll_command(Instant::ZERO).map(|command| self.store.on_queue_full(command)).is_none()
            {
                self.check();
                return;
            }
        }
        panic!("the store does not come to rest");
    }

    /// The store is gone, and so is the power. Of the commands under way each zone has the first few.
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
            // Of what was in the cache each zone has the first few.
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
            self.give_a_cache();
        }
        self.drive.power_cycle();
        self.events.clear();
    }

    /// From now on the drive has a volatile write cache.
    pub(crate) fn give_a_cache(&mut self) {
        self.cached = Some((self.drive.clone(), Vec::new()));
    }

    /// Mounts what is on the drive.
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

    /// As [`mount`](World::mount), with the power going again before it has ended. Says whether it had ended.
    pub(crate) fn mount_and_crash(&mut self) {
        self.store = self.new_store().expect("as it was formatted");
        self.queues.clear();
        for _ in 0..self.prng.below(40) {
            if self.prng.chance(1, 2) {
                self.hand_out();
            } else {
                self.complete();
            }
        }
        self.crash();
    }

    /// Commands that the drive has.
    pub(crate) fn under_way(&self) -> usize {
        self.queues.values().map(VecDeque::len).sum()
    }

    /// Asserts that nothing is written to a zone that is being finished or reset.
    pub(crate) fn expect_no_write_behind_a_finish(&self) {
        for (zone, queue) in &self.queues {
            let is_management = |command: &Command| matches!(command.operation, Operation::ManageZones { .. });
            let behind = queue.iter().skip_while(|command| !is_management(command)).skip(1);
            assert_eq!(behind.count(), 0, "zone {zone} is left alone meanwhile");
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

    /// A part of a write that was under way.
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

    /// What reaches the media behind the write cache.
    fn execute_durably(&mut self, command: Command) {
        let zone = self.zone_of(&command);
        let Some((mut durable, mut writes)) = self.cached.take() else { return };
        match &command.operation {
            Operation::Write { .. } => writes.push(command),
            Operation::Flush => writes.drain(..).for_each(|write| drop(durable.execute(&write))),
            Operation::ManageZones { .. } => {
                // Management is durable at once, and takes along what was written to its zone.
                let is_here = |write: &mut Command| self.zone_of(write) == zone;
                writes.extract_if(.., is_here).for_each(|write| drop(durable.execute(&write)));
                durable.execute(&command);
            }
            _ => {}
        }
        self.cached = Some((durable, writes));
    }

    /// What a command is about, as far as order matters.
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
