//! Random commands, valid and invalid, for comparing any device with the oracle.

use crate::limits::DEALLOCATE_RANGES_MAX;
use crate::{
    Blocks, Command, CommandId, Geometry, Lba, LbaRange, NamespaceId, Operation, PayloadKind, Prng, ReportFilter,
    ZoneAction, ZoneIndex, ZoneState, ZoneTarget,
};

use super::ReferenceDevice;

mod parts;

/// Generates an endless sequence of commands. It uses the oracle's zones, so that most commands are
/// valid, and makes some of them slightly or grossly invalid: in address, length, payload, state,
/// target or namespace.
///
/// For stretches of commands it stays with a few zones, which therefore become full and are reset
/// repeatedly. It never makes a zone read only: testers do so, on both devices, with
/// [`ReferenceDevice::degrade`].
#[derive(Clone, Debug)]
pub struct CommandSource {
    geometry: Geometry,
    keeps: PayloadKind,
    prng: Prng,
    next_id: u64,
    /// The zones of this stretch.
    focus: Vec<ZoneIndex>,
    stretch_left: u64,
}

impl CommandSource {
    /// A source for a device of this geometry that keeps payloads of this kind.
    #[must_use]
    pub fn new(geometry: &Geometry, keeps: PayloadKind, prng: Prng) -> CommandSource {
        CommandSource { geometry: geometry.clone(), keeps, prng, next_id: 0, focus: Vec::new(), stretch_left: 0 }
    }

    /// The next command. Ids count up from 0.
    pub fn next(&mut self, oracle: &ReferenceDevice) -> Command {
        if self.stretch_left == 0 {
            self.begin_stretch(oracle);
        }
        self.stretch_left -= 1;
        let namespace = if self.prng.chance(1, 200) {
            self.one_of(&[0, 2, u64::from(u32::MAX)]) as u32
        } else {
            NamespaceId::FIRST.0
        };
        let id = CommandId(self.next_id);
        self.next_id += 1;
        let zone = self.choose_zone(oracle);
        let operation = match self.prng.below(100) {
            0..42 => self.write_of_any_kind(oracle, zone),
            42..62 => self.read(oracle, zone),
            62..67 => self.deallocate(),
            67..91 => self.manage(oracle, zone),
            91..97 => self.report(),
            97 => Operation::Flush,
            _ => Operation::ReadChangedZones,
        };
        Command::new(id, NamespaceId(namespace), operation)
    }

    /// Chooses the zones of the next stretch: some at random, and most of those that hold
    /// resources, since they would block the others.
    fn begin_stretch(&mut self, oracle: &ReferenceDevice) {
        self.stretch_left = 50 + self.prng.below(250);
        self.focus.clear();
        let most = u64::from(self.geometry.max_active_zones.unwrap_or(4)) + 2;
        for _ in 0..=self.prng.below(most) {
            let zone = self.any_zone();
            self.focus.push(zone);
        }
        for zone in active_zones(oracle) {
            if self.prng.chance(3, 4) {
                self.focus.push(zone);
            }
        }
    }

    /// A zone of the stretch, rarely another; a read only or offline one only rarely.
    fn choose_zone(&mut self, oracle: &ReferenceDevice) -> ZoneIndex {
        for _ in 0..8 {
            let zone = if self.prng.chance(1, 12) { self.any_zone() } else { self.pick_zone() };
            let lost = matches!(oracle.zone(zone).state, ZoneState::ReadOnly | ZoneState::Offline);
            if !lost || self.prng.chance(1, 4) {
                return zone;
            }
        }
        self.any_zone()
    }

    /// Write, Append or WriteZeroes to a writable zone, or often a reset of a full one.
    fn write_of_any_kind(&mut self, oracle: &ReferenceDevice, zone: ZoneIndex) -> Operation {
        let zone = self.prefer_writable(oracle, zone);
        if oracle.zone(zone).state == ZoneState::Full && self.prng.chance(3, 4) {
            let target = ZoneTarget::Zone(self.geometry.zone_start(zone));
            return Operation::ManageZones { action: ZoneAction::Reset, target };
        }
        let appends = oracle.zone(zone).state != ZoneState::NotWritePointer && !oracle.zone(zone).zrwa;
        match self.prng.below(20) {
            0..2 => self.write_zeroes(oracle, zone),
            2..9 if appends => self.append(oracle, zone),
            2 => self.append(oracle, zone),
            _ => self.write(oracle, zone),
        }
    }

    fn write(&mut self, oracle: &ReferenceDevice, zone: ZoneIndex) -> Operation {
        let (start, free) = self.place(oracle, zone);
        let start = self.perhaps_elsewhere(start, zone);
        let blocks = self.length(free, self.geometry.max_transfer_blocks.0);
        Operation::Write { start, blocks: Blocks(blocks), payload: self.payload(blocks) }
    }

    fn write_zeroes(&mut self, oracle: &ReferenceDevice, zone: ZoneIndex) -> Operation {
        let (start, free) = self.place(oracle, zone);
        let start = self.perhaps_elsewhere(start, zone);
        Operation::WriteZeroes { start, blocks: Blocks(self.length(free, self.geometry.zone_size_blocks.0)) }
    }

    fn append(&mut self, oracle: &ReferenceDevice, zone: ZoneIndex) -> Operation {
        let free = oracle.capacity_end(zone) - oracle.zone(zone).write_pointer;
        let zone_start = self.perhaps_elsewhere(self.geometry.zone_start(zone), zone);
        let blocks = self.length(free.0, self.geometry.max_append_blocks.0);
        Operation::Append { zone_start, blocks: Blocks(blocks), payload: self.payload(blocks) }
    }

    /// Reads mostly written blocks, sometimes beyond them, and over the zone's end.
    fn read(&mut self, oracle: &ReferenceDevice, zone: ZoneIndex) -> Operation {
        let zone_start = self.geometry.zone_start(zone);
        let zone_size = self.geometry.zone_size_blocks.0;
        let written = oracle.zone(zone).write_pointer - zone_start;
        let offset = match self.prng.below(8) {
            0 => self.prng.below(zone_size),
            1 => zone_size - 1 - self.prng.below(zone_size.min(6)),
            _ => self.prng.below((written.0 + 3).min(zone_size)),
        };
        let free = if self.prng.chance(1, if self.geometry.read_across_zones { 2 } else { 12 }) {
            self.geometry.namespace_blocks().0 - (zone_start.0 + offset)
        } else {
            zone_size - offset
        };
        let start = self.perhaps_elsewhere(zone_start + Blocks(offset), zone);
        Operation::Read { start, blocks: Blocks(self.length(free, self.geometry.max_transfer_blocks.0)) }
    }

    fn deallocate(&mut self) -> Operation {
        let count = match self.prng.below(24) {
            0 => 0,
            1 => DEALLOCATE_RANGES_MAX as u64,
            2 => DEALLOCATE_RANGES_MAX as u64 + 1,
            _ => 1 + self.prng.below(3),
        };
        let ranges = (0..count)
            .map(|_| {
                let zone = self.pick_zone();
                let offset = self.prng.below(self.geometry.zone_size_blocks.0);
                let start = self.geometry.zone_start(zone) + Blocks(offset);
                // A command of many ranges succeeds only if all of them are valid.
                if count > 3 {
                    return LbaRange { start, blocks: Blocks(1) };
                }
                let free = self.geometry.namespace_blocks().0 - start.0;
                let start = self.perhaps_elsewhere(start, zone);
                LbaRange { start, blocks: Blocks(self.length(free, 6)) }
            })
            .collect();
        Operation::Deallocate { ranges }
    }

    fn manage(&mut self, oracle: &ReferenceDevice, zone: ZoneIndex) -> Operation {
        let action = if self.prng.chance(2, 3) { self.fitting_action(oracle, zone) } else { self.any_action() };
        let all = self.prng.chance(1, 24);
        // An offline zone stays so: read only ones are kept for a while.
        let kills = action == ZoneAction::Offline && (all || oracle.zone(zone).state == ZoneState::ReadOnly);
        let action = if kills && !self.prng.chance(1, 8) { ZoneAction::Close } else { action };
        if all {
            return Operation::ManageZones { action, target: ZoneTarget::All };
        }
        let block = if action == ZoneAction::FlushZrwa {
            self.block_to_flush(oracle, zone)
        } else {
            self.geometry.zone_start(zone)
        };
        let target = ZoneTarget::Zone(self.perhaps_elsewhere(block, zone));
        Operation::ManageZones { action, target }
    }

    /// An action with a valid transition from the zone's state, if there is any.
    fn fitting_action(&mut self, oracle: &ReferenceDevice, zone: ZoneIndex) -> ZoneAction {
        let held = oracle.zone(zone);
        if held.zrwa && self.geometry.zrwa.is_some_and(|zrwa| zrwa.explicit_flush) && self.prng.chance(1, 2) {
            return ZoneAction::FlushZrwa;
        }
        let choice = self.prng.below(6);
        match (held.state, choice) {
            (ZoneState::Empty, 0) => ZoneAction::Finish,
            (ZoneState::Empty, 1 | 2) if self.geometry.descriptor_extension_bytes > 0 => self.set_extension(),
            (ZoneState::Empty, _) => {
                let zrwa = self.geometry.zrwa.is_some() && self.prng.chance(2, 3);
                ZoneAction::Open { zrwa }
            }
            (ZoneState::ImplicitlyOpened | ZoneState::Closed, 0 | 1) => ZoneAction::Open { zrwa: false },
            (ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened, 2 | 3) => ZoneAction::Close,
            (ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened | ZoneState::Closed, 4) => ZoneAction::Finish,
            (ZoneState::ReadOnly, 1..) => ZoneAction::Close,
            (ZoneState::ReadOnly | ZoneState::Offline, _) => ZoneAction::Offline,
            _ => ZoneAction::Reset,
        }
    }

    fn any_action(&mut self) -> ZoneAction {
        match self.prng.below(16) {
            0..3 => ZoneAction::Close,
            3..5 => ZoneAction::Finish,
            5..8 => ZoneAction::Open { zrwa: false },
            8 => ZoneAction::Open { zrwa: true },
            9..12 => ZoneAction::Reset,
            12 => ZoneAction::Offline,
            13 => self.set_extension(),
            _ => ZoneAction::FlushZrwa,
        }
    }

    fn set_extension(&mut self) -> ZoneAction {
        let right = u64::from(self.geometry.descriptor_extension_bytes);
        let bytes = if self.prng.chance(1, 16) { self.one_of(&[0, right + 1, right + 64, 64]) } else { right };
        let zrwa = self.prng.chance(1, if self.geometry.zrwa.is_some() { 2 } else { 16 });
        let extension = if self.prng.chance(1, 16) { vec![0; bytes as usize] } else { self.random_bytes(bytes) };
        ZoneAction::SetDescriptorExtension { extension: extension.into(), zrwa }
    }

    /// The last block of a granule in the ZRWA; sometimes one that is not.
    fn block_to_flush(&mut self, oracle: &ReferenceDevice, zone: ZoneIndex) -> Lba {
        let write_pointer = oracle.zone(zone).write_pointer;
        let Some(zrwa) = self.geometry.zrwa else { return write_pointer };
        let (size, granularity) = (zrwa.size_blocks.0, zrwa.flush_granularity_blocks.0);
        let capacity_left = (oracle.capacity_end(zone) - write_pointer).0;
        let granules = size.min(capacity_left) / granularity;
        if granules == 0 || self.prng.chance(1, 6) {
            let offset = self.prng.below(size + 3);
            return Lba((write_pointer.0 + offset).saturating_sub(1));
        }
        let flushed = granularity * (1 + self.prng.below(granules));
        Lba(write_pointer.0 + flushed - 1)
    }

    fn report(&mut self) -> Operation {
        let zone = self.any_zone();
        let offset = if self.prng.chance(1, 2) { 0 } else { self.prng.below(self.geometry.zone_size_blocks.0) };
        let first_half = ZoneIndex(zone.0 / 2);
        let start = self.perhaps_elsewhere(self.geometry.zone_start(first_half) + Blocks(offset), zone);
        let filter = match self.prng.below(12) {
            0..4 => ReportFilter::All,
            4 => ReportFilter::State(ZoneState::NotWritePointer),
            i => ReportFilter::State(ZoneState::SEQUENTIAL[i as usize - 5]),
        };
        let extended = self.prng.chance(1, if self.geometry.descriptor_extension_bytes > 0 { 2 } else { 12 });
        let zones = u64::from(self.geometry.zone_count);
        let descriptors_max = self.one_of(&[0, 1, 2, 3, zones - 1, zones, zones + 1, u64::from(u32::MAX)]) as u32;
        Operation::ReportZones { start, filter, extended, partial: self.prng.chance(1, 2), descriptors_max }
    }

    /// The zone itself if it is writable, else mostly one of the active zones.
    fn prefer_writable(&mut self, oracle: &ReferenceDevice, zone: ZoneIndex) -> ZoneIndex {
        let active = active_zones(oracle);
        let none_left = self.geometry.max_active_zones.is_some_and(|max| active.len() as u64 >= u64::from(max));
        let refuses = match oracle.zone(zone).state {
            ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline => true,
            ZoneState::Empty => none_left,
            _ => false,
        };
        if !refuses || self.prng.chance(1, 8) {
            return zone;
        }
        self.prng.pick(&active).copied().unwrap_or(zone)
    }

    fn pick_zone(&mut self) -> ZoneIndex {
        *self.prng.pick(&self.focus).expect("a stretch has at least one zone")
    }

    fn any_zone(&mut self) -> ZoneIndex {
        ZoneIndex(self.prng.below(u64::from(self.geometry.zone_count)) as u32)
    }

    fn one_of(&mut self, items: &[u64]) -> u64 {
        *self.prng.pick(items).expect("the slice is not empty")
    }
}

fn active_zones(oracle: &ReferenceDevice) -> Vec<ZoneIndex> {
    (0..oracle.geometry.zone_count).map(ZoneIndex).filter(|zone| oracle.zone(*zone).state.is_active()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::Status;
    use crate::reference::random_geometry;
    use crate::reference::testing::with_zrwa;

    /// The statuses that the rules name.
    const NAMED: [Status; 14] = [
        Status::Success,
        Status::InvalidField,
        Status::InvalidNamespace,
        Status::LbaOutOfRange,
        Status::InvalidZoneOperation,
        Status::ZrwaResourcesUnavailable,
        Status::ZoneBoundaryError,
        Status::ZoneIsFull,
        Status::ZoneIsReadOnly,
        Status::ZoneIsOffline,
        Status::ZoneInvalidWrite,
        Status::TooManyActiveZones,
        Status::TooManyOpenZones,
        Status::InvalidZoneStateTransition,
    ];

    #[test]
    fn invalid_addresses_are_on_both_sides_of_each_boundary() {
        let geometry = Geometry { zone_count: 5_000, ..Geometry::tiny() };
        let mut source = CommandSource::new(&geometry, PayloadKind::None, Prng::new(1));
        let zone = ZoneIndex(1);
        let wanted = geometry.zone_start(zone) + Blocks(4);
        let found: BTreeSet<u64> = (0..20_000).map(|_| source.perhaps_elsewhere(wanted, zone).0).collect();
        let zone_start = geometry.zone_start(zone).0;
        let ends = [
            zone_start + geometry.zone_capacity_blocks.0,
            zone_start + geometry.zone_size_blocks.0,
            geometry.namespace_blocks().0,
        ];
        let expected = ends.into_iter().flat_map(|end| [end - 1, end]).chain([wanted.0, zone_start, u64::MAX]);
        for place in expected {
            assert!(found.contains(&place), "block {place}");
        }
    }

    /// How often each status ended each operation.
    type Counts = BTreeMap<(&'static str, Status), u64>;

    /// Runs commands against an oracle, and degrades a zone early and another halfway.
    fn run(geometry: &Geometry, keeps: PayloadKind, seed: u64, commands: u64, counts: &mut Counts) -> ReferenceDevice {
        let mut oracle = ReferenceDevice::new(geometry.clone(), keeps);
        let mut source = CommandSource::new(geometry, keeps, Prng::new(seed));
        let last = ZoneIndex(geometry.zone_count - 1);
        for i in 0..commands {
            if i == commands / 8 {
                oracle.degrade(last, ZoneState::ReadOnly);
            } else if i == commands / 2 {
                oracle.degrade(last, ZoneState::Offline);
            }
            let command = source.next(&oracle);
            assert_eq!(command.id, CommandId(i));
            let status = oracle.execute(&command).status;
            *counts.entry((command.operation.name(), status)).or_default() += 1;
        }
        oracle
    }

    fn successes(counts: &Counts) -> u64 {
        counts.iter().filter(|((_, status), _)| status.is_success()).map(|(_, count)| count).sum()
    }

    #[test]
    fn every_status_that_the_rules_name_occurs_and_at_least_half_of_the_commands_succeed() {
        let mut prng = Prng::new(3);
        let mut geometries = vec![Geometry::tiny(), with_zrwa()];
        geometries.extend((0..10).map(|_| random_geometry(&mut prng)));
        let mut all = Counts::new();
        for (i, geometry) in geometries.iter().enumerate() {
            let mut counts = Counts::new();
            let keeps = [PayloadKind::Fingerprints, PayloadKind::None, PayloadKind::Bytes][i % 3];
            run(geometry, keeps, i as u64, 2_000, &mut counts);
            assert!(successes(&counts) >= 1_000, "{} of 2000 succeed on {geometry:?}", successes(&counts));
            for (key, count) in counts {
                *all.entry(key).or_default() += count;
            }
        }
        let met: BTreeSet<Status> = all.keys().map(|(_, status)| *status).collect();
        assert_eq!(met, BTreeSet::from(NAMED), "{all:?}");
    }

    #[test]
    fn on_the_tiny_geometry_every_operation_succeeds_and_fails_often_and_zones_cycle() {
        let geometry = with_zrwa();
        let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Fingerprints);
        let mut source = CommandSource::new(&geometry, PayloadKind::Fingerprints, Prng::new(5));
        let mut ended: BTreeMap<(&str, bool), u64> = BTreeMap::new();
        let mut became: BTreeMap<ZoneState, u64> = BTreeMap::new();
        let mut at_limit = 0;
        for _ in 0..20_000 {
            let command = source.next(&oracle);
            let before: Vec<ZoneState> = oracle.zones.iter().map(|zone| zone.state).collect();
            let status = oracle.execute(&command).status;
            *ended.entry((command.operation.name(), status.is_success())).or_default() += 1;
            for (zone, before) in oracle.zones.iter().zip(before) {
                if zone.state != before {
                    *became.entry(zone.state).or_default() += 1;
                }
            }
            at_limit += u64::from(active_zones(&oracle).len() == 3);
        }
        for state in [
            ZoneState::Empty,
            ZoneState::ImplicitlyOpened,
            ZoneState::ExplicitlyOpened,
            ZoneState::Closed,
            ZoneState::Full,
        ] {
            assert!(became.get(&state).is_some_and(|&times| times >= 500), "{state}: {became:?}");
        }
        assert!((2_000..18_000).contains(&at_limit), "{at_limit} of 20000 commands leave all active resources in use");
        let rare = ["flush", "read changed zones", "offline"];
        let often =
            ["read", "write", "append", "write zeroes", "deallocate", "report zones", "close", "finish", "open"]
                .into_iter()
                .chain(["reset", "set descriptor extension", "flush zrwa"]);
        for name in often {
            for success in [true, false] {
                let count = ended.get(&(name, success)).copied().unwrap_or_default();
                assert!(count >= 20, "{name}, success {success}: {count}");
            }
        }
        assert!(rare.iter().all(|name| ended.keys().any(|(ended, _)| ended == name)), "{ended:?}");
    }

    #[test]
    fn writes_to_a_random_write_area_begin_anywhere_in_it_behind_it_and_before_the_write_pointer() {
        let geometry = with_zrwa();
        let area = geometry.zrwa.expect("zones may have one").size_blocks.0;
        let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::None);
        let mut source = CommandSource::new(&geometry, PayloadKind::None, Prng::new(1));
        let zone = std::iter::from_fn(|| {
            drop(oracle.execute(&source.next(&oracle)));
            let zones = (0..geometry.zone_count).map(ZoneIndex);
            Some(zones.into_iter().find(|&zone| {
                let (held, end) = (oracle.zone(zone), oracle.capacity_end(zone));
                held.zrwa && (end - held.write_pointer).0 >= 2 * area && held.write_pointer > geometry.zone_start(zone)
            }))
        });
        let zone = zone.take(20_000).flatten().next().expect("a zone has an area far from its end");
        let pointer = oracle.zone(zone).write_pointer.0;
        let found: BTreeSet<u64> = (0..2_000).map(|_| source.place(&oracle, zone).0.0).collect();
        assert_eq!(found, (pointer - 1..pointer + 2 * area).collect());
    }

    #[test]
    fn a_source_of_the_same_seed_makes_the_same_commands() {
        let commands = |seed| {
            let oracle = ReferenceDevice::new(Geometry::tiny(), PayloadKind::Bytes);
            let mut source = CommandSource::new(&Geometry::tiny(), PayloadKind::Bytes, Prng::new(seed));
            (0..100).map(|_| source.next(&oracle)).collect::<Vec<_>>()
        };
        assert_eq!(commands(1), commands(1));
        assert_ne!(commands(1), commands(2));
    }

    #[test]
    fn no_command_breaks_an_invariant_of_the_oracle_on_any_geometry() {
        let mut prng = Prng::new(11);
        for seed in 0..60 {
            let geometry = random_geometry(&mut prng);
            let oracle = run(&geometry, PayloadKind::Fingerprints, seed, 1_000, &mut Counts::new());
            assert!(geometry.max_active_zones.is_none_or(|max| active_zones(&oracle).len() <= max as usize));
            assert!(geometry.max_open_zones.is_none_or(|max| oracle.count(|zone| zone.state.is_open()) <= max));
            assert!(geometry.zrwa.is_none_or(|zrwa| oracle.count(|zone| zone.zrwa) <= zrwa.resources));
            let mut copy = ReferenceDevice::new(geometry.clone(), PayloadKind::Fingerprints);
            for zone in (geometry.conventional_zone_count..geometry.zone_count).map(ZoneIndex) {
                copy.set_zone(zone, oracle.image(zone));
                assert_eq!(copy.descriptor(zone), oracle.descriptor(zone), "every zone has a possible image");
            }
        }
    }
}
