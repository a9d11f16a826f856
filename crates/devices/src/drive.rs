//! [`Drive`]: the management interface that all drives implement.

use zonda_initiator::{Claimed, Conflict};
use zonda_nvme::identify::NamespaceIdentity;
use zonda_raid::Extent;
use zonda_ring::Bytes;
use zonda_ssd::allocation::{AllocationFacts, ElementTracker};
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{Blocks, Geometry, Instant, Lba, ZoneIndex, ZoneState, ZonedDevice};

use crate::{SchedulerFacts, SpaceFacts};

/// A drive that reports its state and can be shut down.
pub trait Drive: ZonedDevice {
    /// The present state of the drive.
    fn facts(&self) -> DriveFacts;

    /// Passes the state of each zone, and its blocks below the write pointer, in the order of the zones;
    /// nothing for a drive that does not have them, as a namespace of a server. For reports.
    fn visit_zones(&self, visit: &mut dyn FnMut(ZoneState, Blocks)) {
        let _ = visit;
    }

    /// The scheduler for which commands to the drive wait; `None` for a drive without.
    fn scheduler(&self) -> Option<SchedulerFacts> {
        None
    }

    /// Excludes this many blocks from the host read counter: they were read to identify the drive.
    fn forget_reads(&mut self, blocks: u64) {
        let _ = blocks;
    }

    /// Media errors since the drive was opened: unrecovered reads, failed writes. Writes that fail
    /// for lack of space are not media errors: [`space`](Drive::space) counts them.
    fn media_errors(&self) -> u64;

    /// Whether the file system has space for writes; `None` for a drive that is not on a local file
    /// system.
    fn space(&self) -> Option<SpaceFacts> {
        None
    }

    /// The extent at `start`, of at most `most` blocks, none of which are beyond the end of the
    /// drive. A hole reads as zeros. Drives that do not track allocation report everything as data.
    fn extent(&self, start: Lba, most: Blocks) -> Extent {
        let _ = start;
        Extent { blocks: most, is_hole: false }
    }

    /// The saved reservations: the bytes saved last, empty where there are none; `None` for a drive
    /// that does not support Persist Through Power Loss.
    fn saved_reservations(&self) -> Option<Bytes> {
        None
    }

    /// Saves these bytes in place of those saved before; empty: removes them.
    /// [`take_reservations_saved`](Drive::take_reservations_saved) reports when they are durable.
    ///
    /// # Panics
    /// For a drive without support, for more than [`zonda_image::limits::RESERVATIONS_BYTES_MAX`]
    /// bytes, while another save is in progress, and after [`close`](Drive::close).
    fn save_reservations(&mut self, now: Instant, bytes: Bytes) {
        let _ = (now, bytes);
        panic!("this drive cannot save reservations");
    }

    /// The result of the last save, reported once after a poll: whether the bytes are durable. If
    /// not, the drive has those saved before.
    fn take_reservations_saved(&mut self) -> Option<bool> {
        None
    }

    /// The geometry of all zones, of a drive that may show more of them later; `None` for others.
    fn whole_geometry(&self) -> Option<&Geometry> {
        None
    }

    /// Shows so many zones from now on, at least as many as before and at most those of
    /// [`whole_geometry`](Drive::whole_geometry).
    ///
    /// # Panics
    /// For another number, and for a drive that always shows all of its zones.
    fn show_zones(&mut self, zone_count: u32) {
        let _ = zone_count;
        panic!("this drive always shows all of its zones");
    }

    /// The profile that an image was created with, as text; `None` for other drives.
    fn image_profile(&self) -> Option<&str> {
        None
    }

    /// The conventional zones at the start of the drive that [`SequentialZones`] does not show: zone 0 of
    /// this drive is the zone of the real or stored drive with this number.
    ///
    /// [`SequentialZones`]: crate::SequentialZones
    fn unused_zones(&self) -> u32 {
        0
    }

    /// Whether [`close`](Drive::close) ends outstanding commands, which may wait for something that
    /// never comes, such as a missing member of a volume. Other drives are closed when their
    /// commands have completed.
    fn ends_commands_at_close(&self) -> bool {
        false
    }

    /// Begins to close the drive: completes outstanding commands and flushes. No commands may be
    /// submitted any more.
    fn close(&mut self, now: Instant);

    /// Begins to close the drive; a namespace of a server stays reserved for this host.
    fn close_reserved(&mut self, now: Instant) {
        self.close(now);
    }

    /// The next warning for the log, about media errors for instance; one at a time.
    fn take_warning(&mut self) -> Option<String> {
        None
    }

    /// Whether the drive is accessed over a connection, which can be lost without the drive
    /// failing.
    fn is_remote(&self) -> bool {
        false
    }

    /// Whether the drive can disappear without failing, and be opened again: a namespace of a server
    /// whose connection is lost, or a drive of this machine that is unplugged.
    fn can_vanish(&self) -> bool {
        self.is_remote()
    }

    /// The globally unique identifiers of the namespace, independent of the address of its server;
    /// `None` where it has none.
    fn identity(&self) -> Option<&NamespaceIdentity> {
        None
    }

    /// The reservation that was acquired over that connection; `None` where none was, or the server
    /// does not support reservations.
    fn claimed(&self) -> Option<Claimed> {
        None
    }

    /// Set once a command has failed with Reservation Conflict: another host has reserved the
    /// drive.
    fn conflict(&self) -> Option<Conflict> {
        None
    }

    /// Whether that connection is lost, or the drive of this machine is missing: every further
    /// command fails, and the drive has to be opened again.
    fn is_disconnected(&self) -> bool {
        false
    }

    /// Whether [`close`](Drive::close) is complete.
    fn is_closed(&self) -> bool;

    /// After [`is_closed`](Drive::is_closed): what could not be made durable, and why; `None` if
    /// all is.
    fn close_error(&self) -> Option<String> {
        None
    }
}

/// Methods of [`Drive`] for a drive around another one, which it returns as `$below()` and
/// `$below_mut()`: everything that is the same for both. What differs is written beside it.
macro_rules! as_the_drive_below {
    ($below:ident, $below_mut:ident) => {
        $crate::drive::as_the_drive_below!($below, $below_mut, with zones of its own);

        fn extent(&self, start: zonda_zoned::Lba, most: zonda_zoned::Blocks) -> $crate::Extent {
            self.$below().extent(start, most)
        }

        fn take_warning(&mut self) -> Option<String> {
            self.$below_mut().take_warning()
        }

        fn unused_zones(&self) -> u32 {
            self.$below().unused_zones()
        }
    };
    // Zones have other numbers than below.
    ($below:ident, $below_mut:ident, with zones of its own) => {
        fn forget_reads(&mut self, blocks: u64) {
            self.$below_mut().forget_reads(blocks);
        }

        fn media_errors(&self) -> u64 {
            self.$below().media_errors()
        }

        fn space(&self) -> Option<$crate::SpaceFacts> {
            self.$below().space()
        }

        fn saved_reservations(&self) -> Option<zonda_ring::Bytes> {
            self.$below().saved_reservations()
        }

        fn save_reservations(&mut self, now: zonda_zoned::Instant, bytes: zonda_ring::Bytes) {
            self.$below_mut().save_reservations(now, bytes);
        }

        fn take_reservations_saved(&mut self) -> Option<bool> {
            self.$below_mut().take_reservations_saved()
        }

        fn is_remote(&self) -> bool {
            self.$below().is_remote()
        }

        fn can_vanish(&self) -> bool {
            self.$below().can_vanish()
        }

        fn identity(&self) -> Option<&zonda_nvme::identify::NamespaceIdentity> {
            self.$below().identity()
        }

        fn image_profile(&self) -> Option<&str> {
            self.$below().image_profile()
        }

        fn is_disconnected(&self) -> bool {
            self.$below().is_disconnected()
        }

        fn ends_commands_at_close(&self) -> bool {
            self.$below().ends_commands_at_close()
        }

        fn is_closed(&self) -> bool {
            self.$below().is_closed()
        }

        fn close_error(&self) -> Option<String> {
            self.$below().close_error()
        }
    };
}
pub(crate) use as_the_drive_below;

/// [`Drive::visit_zones`] of a drive with this table.
pub(crate) fn visit_table(zones: &ZoneTable, visit: &mut dyn FnMut(ZoneState, Blocks)) {
    for zone in (0..zones.geometry().zone_count).map(ZoneIndex) {
        let view = zones.zone(zone);
        visit(view.state, view.written_blocks);
    }
}

/// States, wear and counters of one drive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DriveFacts {
    /// Zones in each state, in the order of the states' codes; states without a zone are left out.
    pub zones_by_state: Vec<(ZoneState, u32)>,
    /// Zones that hold an active resource.
    pub active_zones: u32,
    /// Zones that hold an open resource.
    pub open_zones: u32,
    /// Blocks below the zones' write pointers.
    pub written_blocks: u64,
    /// Lifetime counters; `None` for a drive that has none.
    pub life: Option<LifeCounters>,
    /// The state of the storage elements; `None` where zones are fixed, or elements are not
    /// tracked.
    pub elements: Option<AllocationFacts>,
}

/// Counters since the drive was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifeCounters {
    /// Bytes that hosts wrote.
    pub host_write_bytes: u64,
    /// Bytes that the drive wrote of its own accord: padding at FINISH.
    pub device_write_bytes: u64,
    /// Bytes that hosts read.
    pub host_read_bytes: u64,
    /// Resets of zones that were not empty.
    pub zone_resets: u64,
    /// Number of units whose wear is counted: zones, or storage elements where zones are built of
    /// them.
    pub wear_units: u64,
    /// Erases of the zone or element with the least wear.
    pub erases_min: u64,
    /// Erases of the zone or element with the most wear.
    pub erases_max: u64,
    /// Erases of all zones or elements.
    pub erases_total: u64,
}

impl LifeCounters {
    /// Device-level write amplification: bytes written to the media over bytes that hosts wrote; 1
    /// for a new drive.
    #[must_use]
    pub fn dlwa(&self) -> f64 {
        if self.host_write_bytes == 0 {
            return 1.0;
        }
        (self.host_write_bytes + self.device_write_bytes) as f64 / self.host_write_bytes as f64
    }
}

impl LifeCounters {
    /// The counters of a drive whose zones are built of storage elements: wear is counted by
    /// element, and FINISH pads elements.
    #[must_use]
    pub fn with_elements(self, tracker: &ElementTracker) -> LifeCounters {
        let (wear, elements) = (tracker.wear(), tracker.facts().elements);
        let units_per_element = (wear.units / elements.max(1)).max(1);
        LifeCounters {
            device_write_bytes: tracker.padding_bytes(),
            wear_units: elements,
            erases_min: u64::from(wear.erases_min),
            erases_max: u64::from(wear.erases_max),
            erases_total: wear.erases / units_per_element,
            ..self
        }
    }
}

impl DriveFacts {
    /// The facts that follow from a zone table; the others are zero.
    #[must_use]
    pub fn of_zones(zones: &ZoneTable) -> DriveFacts {
        let mut facts =
            DriveFacts { active_zones: zones.active_zones(), open_zones: zones.open_zones(), ..DriveFacts::default() };
        for zone in (0..zones.geometry().zone_count).map(ZoneIndex) {
            let view = zones.zone(zone);
            facts.written_blocks += view.written_blocks.0;
            match facts.zones_by_state.binary_search_by_key(&view.state, |(state, _)| *state) {
                Ok(place) => facts.zones_by_state[place].1 += 1,
                Err(place) => facts.zones_by_state.insert(place, (view.state, 1)),
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_zoned::{Blocks, Geometry, Lba};

    #[test]
    fn zones_are_counted_by_their_states() {
        let mut zones = ZoneTable::new(Geometry::tiny());
        zones.write(Lba(0), Blocks(4), true).expect("the zone is empty");
        zones.write(Lba(16), Blocks(8), true).expect("the zone is empty");
        zones.write(Lba(24), Blocks(4), true).expect("the zone has capacity left");
        let facts = DriveFacts::of_zones(&zones);
        let expected = [(ZoneState::Empty, 6), (ZoneState::ImplicitlyOpened, 1), (ZoneState::Full, 1)];
        assert_eq!(facts.zones_by_state, expected);
        assert_eq!((facts.active_zones, facts.open_zones, facts.written_blocks), (1, 1, 16));
    }

    #[test]
    fn a_drive_that_pads_writes_more_than_its_hosts() {
        let life = LifeCounters { host_write_bytes: 100, device_write_bytes: 50, ..LifeCounters::default() };
        assert_eq!((life.dlwa(), LifeCounters::default().dlwa()), (1.5, 1.0));
    }
}
