//! The oracle: the rules of zones, implemented as plainly as possible.
//!
//! [`ReferenceDevice`] follows `docs/internals/zone-semantics.md` line by line; the comments name
//! the rule and its number. It keeps one plain struct for each zone, counts active and open zones
//! by iterating over all zones, and shares no code with [`crate::zones`]. [`CommandSource`]
//! generates the commands with which any [`ZonedDevice`] is compared with it.
//!
//! What is absent: time, performance, and optimizations.
//!
//! ```
//! use zonda_zoned::reference::{CommandSource, ReferenceDevice};
//! use zonda_zoned::{Geometry, PayloadKind, Prng};
//!
//! let mut oracle = ReferenceDevice::new(Geometry::tiny(), PayloadKind::Fingerprints);
//! let mut source = CommandSource::new(&Geometry::tiny(), PayloadKind::Fingerprints, Prng::new(1));
//! for _ in 0..100 {
//!     let command = source.next(&oracle);
//!     let expected = oracle.execute(&command);
//!     assert_eq!(expected.id, command.id);
//! }
//! ```

use std::collections::{BTreeSet, VecDeque};

use crate::limits::CHANGED_ZONES_MAX;
use crate::{
    ChangedZoneList, Command, Completion, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Namespaces, Operation,
    Outcome, PayloadKind, QueueFull, Status, ZoneIndex, ZoneState, ZoneType, ZonedDevice,
};

mod contents;
mod data;
mod geometries;
mod image;
mod manage;
mod random;
mod report;
mod resources;
#[cfg(test)]
mod testing;

use contents::Contents;
pub use geometries::random_geometry;
pub use image::ZoneImage;
pub use random::CommandSource;

/// Completions that may wait to be polled before [`ReferenceDevice`] answers [`QueueFull`].
pub const OUTSTANDING_MAX: usize = 1024;

/// A zoned device of one namespace that follows the rules of zones and completes every command
/// immediately.
#[derive(Clone, Debug)]
pub struct ReferenceDevice {
    geometry: Geometry,
    namespaces: Namespaces,
    zones: Vec<Zone>,
    contents: Contents,
    /// Zones that became read only or offline by themselves since the list was last read.
    changed: BTreeSet<ZoneIndex>,
    /// How many times a zone has become implicitly opened.
    implicit_openings: u64,
    waiting: VecDeque<(Instant, Completion)>,
}

/// The state of a zone, without its contents.
#[derive(Clone, Debug)]
struct Zone {
    state: ZoneState,
    /// The write pointer; for a full or read only zone, its value when the zone became so. Stays at
    /// the start of a conventional zone.
    write_pointer: Lba,
    /// The number of the opening by which the zone became implicitly opened, if it is: the lowest
    /// is the oldest.
    implicit_opening: u64,
    zrwa: bool,
    extension: Option<Box<[u8]>>,
}

impl ReferenceDevice {
    /// A new device: sequential zones are empty, and every block reads as zeros.
    ///
    /// # Panics
    /// When the geometry is not valid.
    #[must_use]
    pub fn new(geometry: Geometry, keeps: PayloadKind) -> ReferenceDevice {
        if let Err(error) = geometry.validate() {
            panic!("invalid geometry: {error}");
        }
        let zones = (0..geometry.zone_count)
            .map(|index| Zone {
                state: match geometry.zone_type(ZoneIndex(index)) {
                    ZoneType::Conventional => ZoneState::NotWritePointer,
                    ZoneType::SequentialWriteRequired => ZoneState::Empty,
                },
                write_pointer: geometry.zone_start(ZoneIndex(index)),
                implicit_opening: 0,
                zrwa: false,
                extension: None,
            })
            .collect();
        ReferenceDevice {
            contents: Contents::new(&geometry, keeps),
            namespaces: Namespaces::single(geometry.clone()),
            geometry,
            zones,
            changed: BTreeSet::new(),
            implicit_openings: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Executes a command. A command to a namespace other than the first ends with
    /// [`Status::InvalidNamespace`] before any other check.
    pub fn execute(&mut self, command: &Command) -> Completion {
        if command.namespace != NamespaceId::FIRST {
            return Completion::of(command.id, Status::InvalidNamespace);
        }
        let result = match &command.operation {
            Operation::Read { start, blocks } => self.read(*start, *blocks),
            Operation::Write { start, blocks, payload } => self.write(*start, *blocks, Some(payload)),
            Operation::Append { zone_start, blocks, payload } => self.append(*zone_start, *blocks, payload),
            Operation::WriteZeroes { start, blocks } => self.write(*start, *blocks, None),
            Operation::Deallocate { ranges } => self.deallocate(ranges),
            Operation::Flush => Ok(Outcome::None),
            Operation::ManageZones { action, target } => self.manage(action, *target).map(|()| Outcome::None),
            Operation::ReportZones { start, filter, extended, partial, descriptors_max } => {
                self.report(*start, *filter, *extended, *partial, *descriptors_max)
            }
            Operation::ReadChangedZones => Ok(self.read_changed_zones()),
        };
        match result {
            Ok(outcome) => Completion { id: command.id, status: Status::Success, outcome },
            Err(status) => Completion::of(command.id, status),
        }
    }

    /// Simulates a failure of the medium of a zone, which becomes read only or offline. Without
    /// effect for an offline zone, which does not enter the Changed Zone List.
    ///
    /// # Panics
    /// When `to` is another state than these two, or the zone is conventional or beyond the
    /// namespace.
    pub fn degrade(&mut self, zone: ZoneIndex, to: ZoneState) {
        assert!(matches!(to, ZoneState::ReadOnly | ZoneState::Offline), "a zone does not become {to} by itself");
        let from = self.zone(zone).state;
        assert!(from != ZoneState::NotWritePointer, "a conventional zone has no state to degrade to");
        if from == ZoneState::Offline {
            return;
        }
        if to == ZoneState::ReadOnly {
            self.zone_mut(zone).state = ZoneState::ReadOnly;
            self.zone_mut(zone).zrwa = false;
        } else {
            self.become_offline(zone);
        }
        self.changed.insert(zone);
    }

    /// Simulates a power cycle. Completions that were not polled are lost, although their commands
    /// have taken effect.
    pub fn power_cycle(&mut self) {
        for index in 0..self.geometry.zone_count {
            let start = self.geometry.zone_start(ZoneIndex(index));
            let zone = self.zone_mut(ZoneIndex(index));
            let untouched = zone.write_pointer == start && zone.extension.is_none() && !zone.zrwa;
            match zone.state {
                ZoneState::ImplicitlyOpened => zone.state = ZoneState::Closed,
                ZoneState::ExplicitlyOpened if untouched => zone.state = ZoneState::Empty,
                ZoneState::ExplicitlyOpened => zone.state = ZoneState::Closed,
                _ => {}
            }
        }
        self.changed.clear();
        self.waiting.clear();
    }

    /// The [`fingerprint`](crate::fingerprint) of what a block reads as. Always zero with
    /// [`PayloadKind::None`].
    ///
    /// # Panics
    /// When the block is beyond the namespace.
    #[must_use]
    pub fn block(&self, lba: Lba) -> u64 {
        assert!(self.geometry.zone_of(lba).is_some(), "block {lba} is beyond the namespace");
        self.contents.print(lba)
    }

    /// ReadChangedZones.
    fn read_changed_zones(&mut self) -> Outcome {
        let zones: Vec<ZoneIndex> = std::mem::take(&mut self.changed).into_iter().collect();
        let list = if zones.len() > CHANGED_ZONES_MAX {
            ChangedZoneList { overflowed: true, zones: Vec::new() }
        } else {
            ChangedZoneList { overflowed: false, zones }
        };
        Outcome::ChangedZones(Box::new(list))
    }

    /// Full: its resources are released. Its contents and descriptor extension stay.
    fn become_full(&mut self, zone: ZoneIndex) {
        self.zone_mut(zone).state = ZoneState::Full;
        self.zone_mut(zone).zrwa = false;
    }

    /// Empty: contents, descriptor extension and ZRWA are removed, the write pointer is at the
    /// start.
    fn become_empty(&mut self, zone: ZoneIndex) {
        self.erase_zone(zone);
        let start = self.geometry.zone_start(zone);
        let zone = self.zone_mut(zone);
        zone.state = ZoneState::Empty;
        zone.write_pointer = start;
        zone.zrwa = false;
        zone.extension = None;
    }

    /// Offline: contents, descriptor extension and ZRWA are removed.
    fn become_offline(&mut self, zone: ZoneIndex) {
        self.erase_zone(zone);
        let zone = self.zone_mut(zone);
        zone.state = ZoneState::Offline;
        zone.zrwa = false;
        zone.extension = None;
    }

    fn erase_zone(&mut self, zone: ZoneIndex) {
        let start = self.geometry.zone_start(zone);
        self.contents.erase(start, start + self.geometry.zone_size_blocks);
    }

    /// The zone's first block that can never be written.
    fn capacity_end(&self, zone: ZoneIndex) -> Lba {
        self.geometry.zone_start(zone) + self.geometry.zone_capacity_blocks
    }

    fn zone(&self, zone: ZoneIndex) -> &Zone {
        &self.zones[zone.as_usize()]
    }

    fn zone_mut(&mut self, zone: ZoneIndex) -> &mut Zone {
        &mut self.zones[zone.as_usize()]
    }
}

impl ZonedDevice for ReferenceDevice {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.waiting.len() == OUTSTANDING_MAX {
            return Err(QueueFull(command));
        }
        let completion = self.execute(&command);
        self.waiting.push_back((now, completion));
        Ok(())
    }

    fn poll(&mut self, _now: Instant, completions: &mut CompletionQueue) {
        for (_, completion) in self.waiting.drain(..) {
            completions.push(completion);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.waiting.front().map(|(submitted, _)| *submitted)
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{append, device, manage, open, read, run, state, with_zrwa, write};
    use super::*;
    use crate::{Blocks, CommandId, ZERO_FINGERPRINT, ZoneAction};

    fn changed(device: &mut ReferenceDevice) -> ChangedZoneList {
        match run(device, Operation::ReadChangedZones).outcome {
            Outcome::ChangedZones(list) => *list,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_command_to_another_namespace_is_refused_before_anything_else() {
        let mut device = device(Geometry::tiny());
        let operation = Operation::Read { start: Lba(u64::MAX), blocks: Blocks(0) };
        let command = Command::new(CommandId(9), NamespaceId(2), operation);
        assert_eq!(device.execute(&command), Completion::of(CommandId(9), Status::InvalidNamespace));
    }

    #[test]
    fn a_zone_that_goes_read_only_keeps_its_contents_and_releases_its_resources() {
        let mut device = device(Geometry::tiny());
        write(&mut device, 0, 4);
        device.degrade(ZoneIndex(0), ZoneState::ReadOnly);
        assert_ne!(device.block(Lba(3)), ZERO_FINGERPRINT);
        assert_eq!(read(&mut device, 0, 4), Status::Success);
        assert_eq!(write(&mut device, 4, 1), Status::ZoneIsReadOnly);
        for zone in 1..=3 {
            assert_eq!(write(&mut device, zone * 16, 1), Status::Success);
        }
    }

    #[test]
    fn a_zone_that_goes_offline_loses_its_contents() {
        let mut device = device(Geometry::tiny());
        write(&mut device, 0, 4);
        device.degrade(ZoneIndex(0), ZoneState::ReadOnly);
        device.degrade(ZoneIndex(0), ZoneState::Offline);
        assert_eq!(device.block(Lba(0)), ZERO_FINGERPRINT);
        assert_eq!(read(&mut device, 0, 1), Status::ZoneIsOffline);
        device.degrade(ZoneIndex(0), ZoneState::ReadOnly);
        assert_eq!(state(&device, 0), ZoneState::Offline, "offline is final");
    }

    #[test]
    fn changed_zones_are_listed_once_in_order_and_reading_empties_the_list() {
        let mut device = device(Geometry::tiny());
        device.degrade(ZoneIndex(5), ZoneState::ReadOnly);
        device.degrade(ZoneIndex(2), ZoneState::ReadOnly);
        device.degrade(ZoneIndex(5), ZoneState::Offline);
        assert_eq!(manage(&mut device, ZoneAction::Offline, 2 * 16), Status::Success);
        assert_eq!(changed(&mut device).zones, [ZoneIndex(2), ZoneIndex(5)]);
        assert_eq!(changed(&mut device), ChangedZoneList::default());
    }

    #[test]
    fn more_changed_zones_than_the_page_holds_overflow_it() {
        for (zones, overflowed) in [(511, false), (512, true)] {
            let mut device = device(Geometry { zone_count: 600, ..Geometry::tiny() });
            for zone in 0..zones {
                device.degrade(ZoneIndex(zone), ZoneState::Offline);
            }
            let list = changed(&mut device);
            assert_eq!((list.overflowed, list.zones.is_empty()), (overflowed, overflowed), "{zones}");
            assert_eq!(changed(&mut device), ChangedZoneList::default());
        }
    }

    #[test]
    fn a_power_cycle_closes_open_zones_and_empties_the_changed_zone_list() {
        let mut device = device(Geometry::tiny());
        write(&mut device, 0, 1);
        open(&mut device, 16);
        write(&mut device, 16, 1);
        device.degrade(ZoneIndex(7), ZoneState::ReadOnly);
        device.power_cycle();
        assert_eq!([state(&device, 0), state(&device, 1)], [ZoneState::Closed; 2]);
        assert_eq!(state(&device, 7), ZoneState::ReadOnly);
        assert_eq!(changed(&mut device), ChangedZoneList::default());
        assert_ne!(device.block(Lba(0)), ZERO_FINGERPRINT);
    }

    #[test]
    fn a_power_cycle_empties_a_zone_that_was_opened_and_never_touched_unless_it_was_closed() {
        let mut device = device(Geometry::tiny());
        open(&mut device, 0);
        open(&mut device, 16);
        manage(&mut device, ZoneAction::Close, 16);
        device.power_cycle();
        assert_eq!(state(&device, 0), ZoneState::Empty);
        assert_eq!(state(&device, 1), ZoneState::Closed);
    }

    #[test]
    fn a_power_cycle_keeps_a_zone_with_a_descriptor_extension_active() {
        let mut device = device(Geometry::tiny());
        let set = ZoneAction::SetDescriptorExtension { extension: vec![1; 64].into(), zrwa: false };
        manage(&mut device, set, 0);
        open(&mut device, 0);
        device.power_cycle();
        assert_eq!(state(&device, 0), ZoneState::Closed);
        assert!(device.descriptor(ZoneIndex(0)).attributes.extension_valid);
    }

    #[test]
    fn acknowledged_writes_to_a_zrwa_survive_a_power_cycle() {
        let mut device = device(with_zrwa());
        manage(&mut device, ZoneAction::Open { zrwa: true }, 0);
        assert_eq!(write(&mut device, 1, 1), Status::Success);
        let print = device.block(Lba(1));
        device.power_cycle();
        assert_eq!(state(&device, 0), ZoneState::Closed);
        assert!(device.image(ZoneIndex(0)).zrwa);
        assert_eq!(device.block(Lba(1)), print);
        assert_ne!(print, ZERO_FINGERPRINT);
    }

    #[test]
    fn as_a_device_it_completes_at_once_in_order_until_its_queue_is_full() {
        let mut device = device(Geometry::tiny());
        let command = |id| Command::new(CommandId(id), NamespaceId::FIRST, Operation::Flush);
        assert_eq!(device.next_timeout(), None);
        for id in 0..OUTSTANDING_MAX as u64 {
            device.submit(Instant(10 + id), command(id)).unwrap();
        }
        assert_eq!(device.submit(Instant(2000), command(7)), Err(QueueFull(command(7))));
        assert_eq!(device.next_timeout(), Some(Instant(10)));
        let mut completions = CompletionQueue::new();
        device.poll(Instant(2000), &mut completions);
        assert_eq!(completions.len(), OUTSTANDING_MAX);
        assert_eq!(completions.pop().map(|completion| completion.id), Some(CommandId(0)));
        assert_eq!(device.next_timeout(), None);
    }

    #[test]
    fn an_append_returns_its_lba() {
        let mut device = device(Geometry::tiny());
        assert_eq!(append(&mut device, 16, 2).outcome, Outcome::Appended(Lba(16)));
        assert_eq!(append(&mut device, 16, 2).outcome, Outcome::Appended(Lba(18)));
    }
}
