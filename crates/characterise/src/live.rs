//! An existing namespace as a subject, in the time of its clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, CompletionQueue, Duration, Geometry, Instant, LiveClock, NamespaceId,
    Operation, Outcome, Payload, PayloadKind, Prng, ReportFilter, Status, ZoneAction, ZoneDescriptor, ZoneIndex,
    ZoneState, ZoneTarget, ZonedDevice,
};

use crate::limits::{
    COMMAND_TIMEOUT, FILL_BYTES_PER_SECOND, FILL_WRITE_BYTES, FILL_ZONES, REPORT_ZONES_MAX, SCRATCH_BYTES,
    SCRATCH_ZONES_MAX, SCRATCH_ZONES_MIN,
};
use crate::{PrepareFailed, Subject};

/// A namespace that is read, and of which some zones may be written and reset.
pub struct LiveSubject<'a> {
    device: &'a mut dyn ZonedDevice,
    clock: &'a mut dyn LiveClock,
    geometry: Geometry,
    zones: Vec<ZoneDescriptor>,
    scratch: Vec<ZoneIndex>,
    /// Blocks of the zones of `scratch` whose state is known.
    written: BTreeMap<ZoneIndex, Blocks>,
    touched: BTreeSet<ZoneIndex>,
    contents: Bytes,
    /// Bytes and nanoseconds of the preparation so far, from which its time is estimated.
    filled: (u64, u64),
    next_id: u64,
}

impl<'a> LiveSubject<'a> {
    /// A namespace from which is only read.
    ///
    /// # Errors
    /// The status with which the device refuses a report of its zones.
    pub fn new(device: &'a mut dyn ZonedDevice, clock: &'a mut dyn LiveClock) -> Result<LiveSubject<'a>, Status> {
        let geometry = device.geometry(NamespaceId::FIRST).clone();
        let mut subject = LiveSubject {
            device,
            clock,
            geometry,
            zones: Vec::new(),
            scratch: Vec::new(),
            written: BTreeMap::new(),
            touched: BTreeSet::new(),
            contents: Bytes::new(),
            filled: (0, 0),
            // Loads number their commands from zero on.
            next_id: 1 << 48,
        };
        subject.report()?;
        Ok(subject)
    }

    /// Descriptors of all zones, as they were at the start.
    #[must_use]
    pub fn zones(&self) -> &[ZoneDescriptor] {
        &self.zones
    }

    /// Zones that [`allow_writes`](LiveSubject::allow_writes) chooses: empty ones if there are
    /// enough, then others from the last one on, because hosts use the first ones first. The second
    /// list has those among them that have data or are open.
    #[must_use]
    pub fn choose_scratch(&self) -> (Vec<ZoneIndex>, Vec<ZoneIndex>) {
        let is_usable = |zone: &ZoneDescriptor| {
            !matches!(zone.state, ZoneState::ReadOnly | ZoneState::Offline | ZoneState::NotWritePointer)
        };
        let capacity = self.geometry.zone_capacity_bytes().max(1);
        let wanted = ((SCRATCH_BYTES / capacity) as usize).clamp(SCRATCH_ZONES_MIN, SCRATCH_ZONES_MAX);
        let index = |(zone, _): (usize, &ZoneDescriptor)| ZoneIndex(zone as u32);
        let of = |is_empty: bool| {
            let zones = self.zones.iter().enumerate();
            let chosen = move |(_, zone): &(usize, &ZoneDescriptor)| {
                is_usable(zone) && (zone.state == ZoneState::Empty) == is_empty
            };
            zones.filter(chosen).map(index)
        };
        let mut scratch: Vec<ZoneIndex> = of(true).take(wanted).collect();
        let missing = SCRATCH_ZONES_MIN.saturating_sub(scratch.len());
        let used: Vec<ZoneIndex> = of(false).collect();
        let mut lost: Vec<ZoneIndex> = used.into_iter().rev().take(missing).collect();
        lost.sort_unstable();
        scratch.extend(&lost);
        scratch.sort_unstable();
        (scratch, lost)
    }

    /// Allows that these zones are written and reset. **Their data are lost.**
    pub fn allow_writes(&mut self, scratch: Vec<ZoneIndex>, seed: u64) {
        let mut contents = vec![0; (FILL_WRITE_BYTES.max(u64::from(self.geometry.block_size_bytes))) as usize];
        // What can be compressed would be faster than other data.
        let mut prng = Prng::new(seed).fork("contents");
        contents.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&prng.next_u64().to_le_bytes()[..chunk.len()]));
        self.contents = contents.into();
        for zone in &scratch {
            if self.zones[zone.as_usize()].state == ZoneState::Empty {
                self.written.insert(*zone, Blocks::ZERO);
            }
        }
        self.scratch = scratch;
    }

    /// Resets all zones that were written, so that none stays open.
    ///
    /// # Errors
    /// The first reset that fails, after all others.
    pub fn clean_up(&mut self) -> Result<(), PrepareFailed> {
        let mut result = Ok(());
        for zone in std::mem::take(&mut self.touched) {
            if let Err(error) = self.manage(zone, ZoneAction::Reset, "reset") {
                result = result.and(Err(error));
            }
        }
        result
    }

    fn report(&mut self) -> Result<(), Status> {
        while (self.zones.len() as u32) < self.geometry.zone_count {
            let operation = Operation::ReportZones {
                start: self.geometry.zone_start(ZoneIndex(self.zones.len() as u32)),
                filter: ReportFilter::All,
                extended: false,
                partial: true,
                descriptors_max: REPORT_ZONES_MAX,
            };
            let completed = self.carry_out(vec![(ZoneIndex(0), operation)], &mut |_| None);
            match completed {
                Ok(Some(Outcome::Report(report))) if !report.zones.is_empty() => self.zones.extend(report.zones),
                Ok(_) => return Err(Status::InternalError),
                Err(error) => return Err(error.1),
            }
        }
        self.zones.truncate(self.geometry.zone_count as usize);
        Ok(())
    }

    fn manage(&mut self, zone: ZoneIndex, action: ZoneAction, operation: &'static str) -> Result<(), PrepareFailed> {
        let target = ZoneTarget::Zone(self.geometry.zone_start(zone));
        let command = Operation::ManageZones { action, target };
        let done = self.carry_out(vec![(zone, command)], &mut |_| None);
        done.map(drop).map_err(|(zone, status)| PrepareFailed { zone, operation, status })
    }

    /// Carries out operations, one at a time for each zone: `next` returns the one that follows.
    /// Returns the outcome of the last one.
    fn carry_out(
        &mut self,
        first: Vec<(ZoneIndex, Operation)>,
        next: &mut dyn FnMut(ZoneIndex) -> Option<Operation>,
    ) -> Result<Option<Outcome>, (ZoneIndex, Status)> {
        let mut queue: VecDeque<(ZoneIndex, Operation)> = first.into();
        let mut in_flight = BTreeMap::<CommandId, ZoneIndex>::new();
        let mut completions = CompletionQueue::new();
        let mut last = None;
        let mut result = Ok(());
        let mut progress_at: Instant = self.clock.now();
        loop {
            let now = self.clock.now();
            while let Some((zone, operation)) = queue.pop_front() {
                self.next_id += 1;
                let command = Command::new(CommandId(self.next_id), NamespaceId::FIRST, operation);
                if let Err(refused) = self.device.submit(now, command) {
                    queue.push_front((zone, refused.0.operation));
                    break;
                }
                in_flight.insert(CommandId(self.next_id), zone);
            }
            if in_flight.is_empty() && queue.is_empty() {
                return result.map(|()| last);
            }
            let deadline = progress_at + COMMAND_TIMEOUT;
            self.clock.wait(self.device.next_timeout().into_iter().chain([deadline]).min());
            let now = self.clock.now();
            self.device.poll(now, &mut completions);
            while let Some(completion) = completions.pop() {
                // What an earlier load has left in flight is not ours.
                let Some(zone) = in_flight.remove(&completion.id) else { continue };
                progress_at = now;
                if !completion.status.is_success() {
                    result = result.and(Err((zone, completion.status)));
                    queue.clear();
                } else if result.is_ok() {
                    queue.extend(next(zone).map(|operation| (zone, operation)));
                    last = Some(completion.outcome);
                }
            }
            if now >= deadline {
                let zone = in_flight.values().next().or(queue.front().map(|(zone, _)| zone)).copied();
                return Err((zone.unwrap_or(ZoneIndex(0)), Status::NamespaceNotReady));
            }
        }
    }

    fn write(&self, zone: ZoneIndex, from: Blocks, until: Blocks) -> Option<Operation> {
        let block = u64::from(self.geometry.block_size_bytes);
        let largest = (FILL_WRITE_BYTES / block).clamp(1, self.geometry.max_transfer_blocks.0);
        let blocks = Blocks(largest.min(until.0.saturating_sub(from.0)));
        if blocks == Blocks::ZERO {
            return None;
        }
        let data = self.contents.slice(..(blocks.0 * block) as usize);
        let metadata = Bytes::from(vec![0; (blocks.0 * u64::from(self.geometry.metadata_bytes)) as usize]);
        let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata }));
        Some(Operation::Write { start: self.geometry.zone_start(zone) + from, blocks, payload })
    }

    /// Writes zones that are empty.
    fn fill(&mut self, fills: &[(ZoneIndex, Blocks)]) -> Result<(), PrepareFailed> {
        let started_at = self.clock.now();
        let block = u64::from(self.geometry.block_size_bytes);
        let largest = Blocks((FILL_WRITE_BYTES / block).clamp(1, self.geometry.max_transfer_blocks.0));
        for fills in fills.chunks(FILL_ZONES.min(self.active_max().max(1) as usize)) {
            // The operations are made before: they borrow the contents, and the device is borrowed.
            let mut operations: BTreeMap<ZoneIndex, VecDeque<Operation>> = BTreeMap::new();
            for (zone, until) in fills {
                let mut from = Blocks::ZERO;
                let of_zone = operations.entry(*zone).or_default();
                while let Some(write) = self.write(*zone, from, *until) {
                    of_zone.push_back(write);
                    from = Blocks(from.0 + largest.0);
                }
            }
            let mut next = |zone: ZoneIndex| operations.get_mut(&zone)?.pop_front();
            let first = fills.iter().filter_map(|(zone, _)| Some((*zone, next(*zone)?))).collect();
            let done = self.carry_out(first, &mut next);
            done.map_err(|(zone, status)| PrepareFailed { zone, operation: "write", status })?;
        }
        let blocks: u64 = fills.iter().map(|(_, blocks)| blocks.0).sum();
        self.filled.0 += blocks * block;
        self.filled.1 += self.clock.now().since(started_at).0;
        Ok(())
    }
}

impl Subject for LiveSubject<'_> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn payload(&self) -> PayloadKind {
        PayloadKind::Bytes
    }

    fn readable(&self) -> Vec<(ZoneIndex, Blocks)> {
        let written = |(zone, descriptor): (usize, &ZoneDescriptor)| {
            let zone = ZoneIndex(zone as u32);
            let blocks = match descriptor.state {
                _ if self.touched.contains(&zone) => self.written.get(&zone).copied().unwrap_or(Blocks::ZERO),
                ZoneState::Empty | ZoneState::Offline => Blocks::ZERO,
                _ => descriptor.write_pointer.map_or(descriptor.capacity_blocks, |lba| lba - descriptor.start),
            };
            (blocks > Blocks::ZERO).then_some((zone, blocks))
        };
        self.zones.iter().enumerate().filter_map(written).collect()
    }

    fn scratch(&self) -> &[ZoneIndex] {
        &self.scratch
    }

    fn active_max(&self) -> u32 {
        let is_other =
            |(zone, _): &(usize, &ZoneDescriptor)| self.scratch.binary_search(&ZoneIndex(*zone as u32)).is_err();
        let others = self.zones.iter().enumerate().filter(is_other);
        let active = others.filter(|(_, zone)| zone.state.is_active()).count() as u32;
        self.geometry.max_active_zones.map_or(u32::MAX, |most| most.saturating_sub(active))
    }

    fn preparation(&self, fills: &[(ZoneIndex, Blocks)]) -> Duration {
        let open = fills.iter().filter(|(zone, blocks)| self.written.get(zone) != Some(blocks));
        let bytes: u64 = open.map(|(_, blocks)| blocks.bytes(self.geometry.block_size_bytes)).sum();
        let (filled, elapsed_ns) = self.filled;
        let bytes_per_second = match filled {
            0 => FILL_BYTES_PER_SECOND,
            _ => (u128::from(filled) * 1_000_000_000 / u128::from(elapsed_ns.max(1))).max(1) as u64,
        };
        Duration::of_transfer(bytes, bytes_per_second)
    }

    fn prepare(&mut self, fills: &[(ZoneIndex, Blocks)]) -> Result<(), PrepareFailed> {
        // Partly written zones of an earlier load would exceed the limit on active zones.
        let capacity = self.geometry.zone_capacity_blocks;
        let wanted: BTreeMap<ZoneIndex, Blocks> = fills.iter().copied().collect();
        let is_full = |zone: &ZoneIndex| self.written.get(zone) == Some(&capacity);
        let is_empty = |zone: &ZoneIndex| self.written.get(zone) == Some(&Blocks::ZERO);
        let to_reset: Vec<ZoneIndex> = self
            .touched
            .iter()
            .chain(wanted.keys())
            .copied()
            .filter(|zone| match wanted.get(zone) {
                Some(blocks) => self.written.get(zone) != Some(blocks) && !is_empty(zone),
                None => !is_full(zone) && !is_empty(zone),
            })
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        for zone in to_reset {
            assert!(self.scratch.binary_search(&zone).is_ok(), "only zones are reset whose data may be lost");
            self.touched.insert(zone);
            self.written.remove(&zone);
            self.manage(zone, ZoneAction::Reset, "reset")?;
            self.written.insert(zone, Blocks::ZERO);
        }
        let to_fill: Vec<(ZoneIndex, Blocks)> =
            fills.iter().copied().filter(|(zone, blocks)| self.written.get(zone) != Some(blocks)).collect();
        for (zone, _) in &to_fill {
            assert!(self.scratch.binary_search(zone).is_ok(), "only zones are written whose data may be lost");
            self.touched.insert(*zone);
            self.written.remove(zone);
        }
        self.fill(&to_fill)?;
        self.written.extend(to_fill);
        Ok(())
    }

    fn forget(&mut self, zones: &[ZoneIndex]) {
        for zone in zones {
            self.written.remove(zone);
            self.touched.insert(*zone);
        }
    }

    fn parts(&mut self) -> (&mut dyn ZonedDevice, &mut dyn LiveClock) {
        (self.device, self.clock)
    }
}
