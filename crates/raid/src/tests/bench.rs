//! A volume on slow members that can be damaged and that append in an order of their own, and the
//! expected contents.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use zonda_layers::Memory;
use zonda_zoned::{
    BlockBuffer, Blocks, Class, Command, CommandId, Completion, CompletionQueue, Duration, Geometry, Instant, Lba,
    LbaRange, NamespaceId, Namespaces, Operation, Outcome, Payload, Prng, QueueFull, Status, ZoneAction, ZoneIndex,
    ZoneState, ZoneTarget, ZonedDevice,
};

use super::basics::{contents, geometry};
use crate::{Event, MemberIndex, MemberState, MountOptions, Volume, VolumeConfig, VolumeDevice};

/// Memory with latency, whose medium can be damaged.
#[derive(Debug)]
pub(super) struct Slow {
    inner: Memory,
    prng: Prng,
    /// Completed commands, by the time of their completion.
    ended: BTreeMap<(Instant, u64), Completion>,
    order: u64,
    /// An append that others overtake, and since when.
    held: Option<(Instant, Command)>,
    /// Blocks that read differently than they were written, until their zone is reset.
    pub(super) rotten: BTreeSet<u64>,
    /// Blocks that cannot be read.
    pub(super) latent: BTreeSet<u64>,
    /// The number of next writes that fail.
    pub(super) failing_writes: u64,
    /// Whether commands are never completed.
    pub(super) is_unresponsive: bool,
    /// It completes nothing before this time.
    pub(super) pauses_until: Option<Instant>,
    /// Names of the operations in the background.
    pub(super) in_background: BTreeSet<&'static str>,
    /// Zones that were reset.
    pub(super) reset: BTreeSet<u32>,
    /// Blocks read and blocks written, and the number of commands.
    pub(super) read: (u64, u64),
    pub(super) written: (u64, u64),
}

impl Slow {
    pub(super) fn new(geometry: Geometry, seed: u64) -> Slow {
        Slow {
            inner: Memory::new(geometry, u64::MAX),
            prng: Prng::new(seed),
            ended: BTreeMap::new(),
            order: 0,
            held: None,
            rotten: BTreeSet::new(),
            latent: BTreeSet::new(),
            failing_writes: 0,
            is_unresponsive: false,
            pauses_until: None,
            in_background: BTreeSet::new(),
            reset: BTreeSet::new(),
            read: (0, 0),
            written: (0, 0),
        }
    }

    /// Its host was stopped: no command is completed.
    pub(super) fn ended_all(&mut self) {
        self.ended.clear();
        self.held = None;
    }

    /// Zones of segments that are full.
    pub(super) fn full_zones(&self) -> BTreeSet<u32> {
        let zones = self.inner.zones();
        (2..zones.geometry().zone_count).filter(|&zone| zones.zone(ZoneIndex(zone)).state == ZoneState::Full).collect()
    }

    /// Blocks of zones that are full.
    pub(super) fn full_blocks(&self) -> Vec<u64> {
        let zones = self.inner.zones();
        let blocks = |zone: u32| {
            let start = zones.geometry().zone_start(ZoneIndex(zone)).0;
            let is_full = zones.zone(ZoneIndex(zone)).state == ZoneState::Full;
            start..start + if is_full { zones.readable_blocks(ZoneIndex(zone)).0 } else { 0 }
        };
        (2..zones.geometry().zone_count).flat_map(blocks).collect()
    }

    fn corrupt(&self, start: Lba, payload: Payload) -> Payload {
        let Payload::Bytes(buffer) = payload else { return payload };
        let mut data = BytesMut::from(&buffer.data[..]);
        for (lba, block) in (start.0..).zip(data.chunks_mut(512)) {
            if self.rotten.contains(&lba) {
                block[(lba % 512) as usize] ^= 1;
            }
        }
        Payload::Bytes(Box::new(BlockBuffer { data: data.freeze(), metadata: buffer.metadata }))
    }
}

impl ZonedDevice for Slow {
    fn namespaces(&self) -> &Namespaces {
        self.inner.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.is_unresponsive {
            return Ok(());
        }
        if command.origin.class == Class::Background {
            self.in_background.insert(command.operation.name());
        }
        let is_append = matches!(command.operation, Operation::Append { .. });
        if is_append && self.held.is_none() && self.prng.chance(1, 2) {
            self.held = Some((now, command));
            return Ok(());
        }
        self.take(now, command)?;
        if self.prng.chance(1, 3) || !is_append { self.release(now) } else { Ok(()) }
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.release(now).expect("memory accepts it");
        while let Some(entry) = self.ended.first_entry().filter(|entry| entry.key().0 <= now) {
            completions.push(entry.remove());
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let held = self.held.as_ref().map(|(since, _)| *since);
        self.ended.keys().next().map(|key| key.0).into_iter().chain(held).min()
    }
}

impl Slow {
    fn release(&mut self, now: Instant) -> Result<(), QueueFull> {
        self.held.take().map_or(Ok(()), |(_, command)| self.take(now, command))
    }

    fn take(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        let id = command.id;
        let mut read = None;
        let mut status = None;
        match &command.operation {
            Operation::Read { start, blocks } => {
                read = Some(*start);
                self.read = (self.read.0 + blocks.0, self.read.1 + 1);
                if self.latent.range(start.0..start.0 + blocks.0).next().is_some() {
                    status = Some(Status::UnrecoveredReadError);
                }
            }
            Operation::Write { blocks, .. } | Operation::Append { blocks, .. } => {
                self.written = (self.written.0 + blocks.0, self.written.1 + 1);
                if self.failing_writes > 0 {
                    self.failing_writes -= 1;
                    status = Some(Status::WriteFault);
                }
            }
            Operation::ManageZones { action: ZoneAction::Reset, target } => {
                let blocks = match target {
                    ZoneTarget::Zone(start) => start.0..start.0 + self.geometry(NamespaceId::FIRST).zone_size_blocks.0,
                    _ => 0..u64::MAX,
                };
                if let ZoneTarget::Zone(start) = target {
                    self.reset.extend(self.geometry(NamespaceId::FIRST).zone_of(*start).map(|zone| zone.0));
                }
                self.rotten.retain(|lba| !blocks.contains(lba));
                self.latent.retain(|lba| !blocks.contains(lba));
            }
            _ => {}
        }
        let mut ended = CompletionQueue::new();
        match status {
            Some(status) => ended.push(Completion::of(id, status)),
            None => {
                self.inner.submit(now, command)?;
                self.inner.poll(now, &mut ended);
            }
        }
        while let Some(mut completion) = ended.pop() {
            if let (Some(start), Outcome::Data(payload)) = (read, completion.outcome.clone()) {
                completion.outcome = Outcome::Data(self.corrupt(start, payload));
            }
            self.order += 1;
            let at = now.max(self.pauses_until.unwrap_or(now)) + Duration::from_micros(5 + self.prng.below(50));
            self.ended.insert((at, self.order), completion);
        }
        Ok(())
    }
}

/// A volume, and its expected contents.
pub(super) struct Bench {
    pub(super) volume: VolumeDevice<Slow>,
    pub(super) model: Vec<u64>,
    pub(super) now: Instant,
    pub(super) events: Vec<Event>,
    /// Reads may fail: more members have lost blocks than the volume tolerates.
    pub(super) may_lose: bool,
    /// Blocks of which reads have failed.
    pub(super) failed: BTreeSet<u64>,
    geometry: Geometry,
    prng: Prng,
    version: u64,
    next_id: u64,
    /// Reads, and the versions that they should return.
    expected: BTreeMap<CommandId, (u64, Vec<u64>)>,
    in_flight: u64,
}

impl Bench {
    pub(super) fn new(config: VolumeConfig, metadata_bytes: u16, seed: u64) -> Bench {
        Bench::on(config, geometry(metadata_bytes), seed)
    }

    pub(super) fn on(config: VolumeConfig, geometry: Geometry, seed: u64) -> Bench {
        let members = config.scheme.members();
        let ids: Vec<[u8; 16]> = (0..members as u8).map(|at| [at + 1; 16]).collect();
        let geometries = vec![geometry.clone(); members];
        let volume = Volume::create(config, geometries, [9; 16], &ids, false).expect("a valid configuration");
        let devices = (0..members as u64).map(|at| Some(Slow::new(geometry.clone(), seed * 16 + at))).collect();
        let volume = VolumeDevice::new(volume, devices);
        let mut bench = Bench {
            volume,
            model: Vec::new(),
            now: Instant::ZERO,
            events: Vec::new(),
            may_lose: false,
            failed: BTreeSet::new(),
            geometry,
            prng: Prng::new(seed),
            version: 0,
            next_id: 0,
            expected: BTreeMap::new(),
            in_flight: 0,
        };
        bench.run_out();
        assert_eq!(bench.events, [Event::Ready]);
        bench.model = vec![0; bench.volume.volume().geometry().namespace_blocks().0 as usize];
        bench
    }

    /// Lets this much time pass, with all activity in it.
    pub(super) fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while self.volume.next_timeout().is_some_and(|next| next <= until) && self.step() {}
        self.now = until;
    }

    /// Advances to the next event. Returns whether there is any.
    pub(super) fn step(&mut self) -> bool {
        // New management calls take effect now.
        self.volume.process(self.now);
        let Some(next) = self.volume.next_timeout() else { return self.drain_events() };
        self.now = self.now.max(next);
        let mut completions = CompletionQueue::new();
        self.volume.poll(self.now, &mut completions);
        self.drain_events();
        while let Some(completion) = completions.pop() {
            self.in_flight -= 1;
            if self.may_lose
                && completion.status == Status::UnrecoveredReadError
                && let Some((start, versions)) = self.expected.remove(&completion.id)
            {
                self.failed.extend(start..start + versions.len() as u64);
                continue;
            }
            assert_eq!(completion.status, Status::Success, "at {}", self.now);
            let Some((start, versions)) = self.expected.remove(&completion.id) else { continue };
            let Outcome::Data(Payload::Bytes(found)) = completion.outcome else { panic!("a read brings data") };
            for ((lba, block), &version) in (start..).zip(found.data.chunks(512)).zip(&versions) {
                let right = if version == 0 { vec![0; 512] } else { contents(lba, version) };
                assert!(block == right, "block {lba} should have version {version}");
            }
        }
        true
    }

    /// Several steps, as far as there are any.
    pub(super) fn steps(&mut self, count: u32) {
        let _ = (0..count).all(|_| self.step());
    }

    /// Returns whether there was any event.
    fn drain_events(&mut self) -> bool {
        let before = self.events.len();
        self.events.extend(std::iter::from_fn(|| self.volume.volume_mut().poll_event()));
        self.events.len() > before
    }

    pub(super) fn run_out(&mut self) {
        while self.step() {}
        assert_eq!(self.in_flight, 0, "every command ends");
        self.volume.volume().check_invariants();
    }

    /// Runs until an event is reported.
    pub(super) fn run_until(&mut self, event: &Event) {
        while !self.events.contains(event) {
            assert!(self.step(), "{event:?} is expected: {:?}", self.events);
        }
        self.events.clear();
        self.volume.volume().check_invariants();
    }

    fn submit(&mut self, operation: Operation) {
        self.next_id += 1;
        let mut command = Command::new(CommandId(self.next_id), NamespaceId::FIRST, operation);
        while let Err(full) = self.volume.submit(self.now, command) {
            command = full.0;
            assert!(self.step(), "a full volume has commands in flight");
        }
        self.in_flight += 1;
    }

    pub(super) fn write(&mut self, start: u64, count: u64) {
        self.version += 1;
        let version = self.version;
        self.model[start as usize..(start + count) as usize].fill(version);
        let data: Vec<u8> = (start..start + count).flat_map(|lba| contents(lba, version)).collect();
        let buffer = BlockBuffer { data: data.into(), metadata: Bytes::new() };
        self.submit(Operation::Write {
            start: Lba(start),
            blocks: Blocks(count),
            payload: Payload::Bytes(Box::new(buffer)),
        });
    }

    pub(super) fn trim(&mut self, start: u64, count: u64) {
        self.model[start as usize..(start + count) as usize].fill(0);
        let ranges = [LbaRange { start: Lba(start), blocks: Blocks(count) }].into();
        self.submit(Operation::Deallocate { ranges });
    }

    fn read(&mut self, start: u64, count: u64) {
        let versions = self.model[start as usize..(start + count) as usize].to_vec();
        self.expected.insert(CommandId(self.next_id + 1), (start, versions));
        self.submit(Operation::Read { start: Lba(start), blocks: Blocks(count) });
    }

    /// A mix of all requests.
    pub(super) fn churn(&mut self, count: u64) {
        for _ in 0..count {
            let blocks = self.model.len() as u64;
            let count =
                if self.prng.chance(1, 8) { 1 + self.prng.below(16) } else { 1 + self.prng.below(3) }.min(blocks);
            let start = self.prng.below(blocks - count + 1);
            match self.prng.below(10) {
                0..=5 => self.write(start, count),
                6 => {
                    self.model[start as usize..(start + count) as usize].fill(0);
                    self.submit(Operation::Deallocate {
                        ranges: [LbaRange { start: Lba(start), blocks: Blocks(count) }].into(),
                    });
                }
                _ => self.read(start, count),
            }
            while self.in_flight > 8 {
                assert!(self.step(), "commands in flight complete");
            }
            if self.next_id.is_multiple_of(64) {
                self.volume.volume().check_invariants();
            }
        }
    }

    pub(super) fn fill(&mut self) {
        for start in (0..self.model.len() as u64).step_by(8) {
            self.write(start, (self.model.len() as u64 - start).min(8));
            while self.in_flight > 8 {
                assert!(self.step(), "commands in flight complete");
            }
        }
        self.run_out();
    }

    /// Rewrites every block, and runs for a little while; a slow scrub makes no progress meanwhile.
    pub(super) fn overwrite(&mut self) {
        for start in (0..self.model.len() as u64).step_by(8) {
            self.write(start, (self.model.len() as u64 - start).min(8));
            while self.in_flight > 0 {
                assert!(self.step(), "commands in flight complete");
            }
        }
        let until = self.now + Duration::from_millis(50);
        while self.volume.next_timeout().is_some_and(|next| next < until) {
            self.step();
        }
    }

    pub(super) fn read_all(&mut self) {
        for lba in 0..self.model.len() as u64 {
            self.read(lba, 1);
            while self.in_flight > 8 {
                assert!(self.step(), "commands in flight complete");
            }
        }
        self.run_out();
    }

    /// Without another member everything can be read, and nothing was lost.
    pub(super) fn survives(&mut self, member: u8) {
        self.fail(member);
        self.read_all();
        assert_eq!(self.volume.volume().counters().lost_blocks, 0);
    }

    pub(super) fn fail(&mut self, member: u8) {
        self.volume.volume_mut().fail_member(self.now, MemberIndex(member));
        self.volume.replace(MemberIndex(member), None);
    }

    /// An empty device replaces a member.
    pub(super) fn replace(&mut self, member: u8) {
        let seed = self.prng.next_u64();
        let geometry = self.geometry.clone();
        self.volume.replace(MemberIndex(member), Some(Slow::new(geometry.clone(), seed)));
        let id = [100 + member; 16];
        self.volume
            .volume_mut()
            .replace_member(self.now, MemberIndex(member), geometry, id)
            .expect("a suitable device");
    }

    /// Fails a member, and removes its device: its outstanding commands are dropped.
    pub(super) fn pull(&mut self, member: u8) -> Slow {
        self.volume.volume_mut().fail_member(self.now, MemberIndex(member));
        let mut device = self.volume.replace(MemberIndex(member), None).expect("it is present");
        device.ended_all();
        device
    }

    /// The device is attached again, and re-added.
    pub(super) fn reattach(&mut self, member: u8, device: Slow) {
        let geometry = self.geometry.clone();
        self.volume.replace(MemberIndex(member), Some(device));
        self.volume.volume_mut().readd_member(self.now, MemberIndex(member), geometry).expect("a suitable device");
    }

    pub(super) fn device(&mut self, member: u8) -> &mut Slow {
        self.volume.member_mut(MemberIndex(member)).expect("it is present")
    }

    pub(super) fn state(&self, member: u8) -> MemberState {
        self.volume.volume().status().members[usize::from(member)].state
    }

    /// A power loss and a mount.
    pub(super) fn remount(&mut self) {
        self.begin_remount();
        self.run_until_ready();
    }

    /// The same, without waiting for the mount.
    pub(super) fn begin_remount(&mut self) {
        // In the meantime there is another volume without activity.
        let geometries = vec![Some(self.geometry.clone())];
        let idle =
            Volume::mount(geometries, crate::Tuning::default(), MountOptions::default()).expect("a mount begins");
        let (volume, mut members) =
            std::mem::replace(&mut self.volume, VolumeDevice::new(idle, vec![None])).into_parts();
        let tuning = volume.tuning().clone();
        drop(volume);
        for member in members.iter_mut().flatten() {
            member.inner.power_cycle();
            member.ended.clear();
            member.held = None;
        }
        let geometries =
            members.iter().map(|member| Some(member.as_ref()?.geometry(NamespaceId::FIRST).clone())).collect();
        let volume = Volume::mount(geometries, tuning, MountOptions::of([9; 16])).expect("it is a volume");
        self.volume = VolumeDevice::new(volume, members);
        self.expected.clear();
        self.in_flight = 0;
    }

    fn run_until_ready(&mut self) {
        self.volume.process(self.now);
        while !self.volume.volume().is_ready() {
            assert!(self.step(), "a mount ends: {:?}", self.events);
        }
    }
}
