//! What every drive can tell about itself, whatever is behind it.

use zonda_initiator::{Claimed, Conflict};
use zonda_nvme::identify::NamespaceIdentity;
use zonda_raid::Extent;
use zonda_ring::Bytes;
use zonda_ssd::allocation::{AllocationFacts, ElementBook};
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{Blocks, Instant, Lba, ZoneIndex, ZoneState, ZonedDevice};

use crate::{SpaceFacts, VolumeDrive};

/// A drive that can be looked at and shut down.
pub trait Drive: ZonedDevice {
    /// The drive as it stands.
    fn facts(&self) -> DriveFacts;

    /// So many blocks were read by no host, but to find out whose the drive is: they do not count among what hosts have read.
    fn forget_reads(&mut self, blocks: u64) {
        let _ = blocks;
    }

    /// Failures inside the drive since it was opened: blocks that cannot be read, writes that the disk refused. Writes for which there
    /// was no room are no failures of the media: [`space`](Drive::space) counts them.
    fn media_errors(&self) -> u64;

    /// Whether there is room for what is written; `None` for a drive that is not on a file system of this machine.
    fn space(&self) -> Option<SpaceFacts> {
        None
    }

    /// What is to be had from `start` on, over at most `most` blocks, none of which are behind the drive's end. A hole reads as
    /// zeros. Drives that do not know what they hold say that everything holds something.
    fn extent(&self, start: Lba, most: Blocks) -> Extent {
        let _ = start;
        Extent { blocks: most, is_hole: false }
    }

    /// What the drive has kept of reservations: the bytes given last, none where nothing is; `None` for a drive that cannot keep
    /// them through a loss of power.
    fn kept_reservations(&self) -> Option<Bytes> {
        None
    }

    /// Keeps these bytes in place of those kept before; none: keeps nothing. [`take_reservations_kept`](Drive::take_reservations_kept)
    /// tells when they are durable.
    ///
    /// # Panics
    /// For a drive that cannot, for more than [`zonda_image::limits::RESERVATIONS_BYTES_MAX`] bytes, while others are being kept,
    /// and after [`close`](Drive::close).
    fn keep_reservations(&mut self, now: Instant, bytes: Bytes) {
        let _ = (now, bytes);
        panic!("this drive cannot keep reservations");
    }

    /// How keeping the last bytes ended, told once after a poll: whether they are durable. If not, the drive keeps those before.
    fn take_reservations_kept(&mut self) -> Option<bool> {
        None
    }

    /// No more commands come: what was taken is brought to an end, what must last is made to last.
    fn close(&mut self, now: Instant);

    /// The same; a namespace of a server stays reserved for this host.
    fn close_reserved(&mut self, now: Instant) {
        self.close(now);
    }

    /// What went wrong on the media since this was last asked, in words for a log; one thing at a time.
    fn take_trouble(&mut self) -> Option<String> {
        None
    }

    /// Whether the drive is reached over a connection, which may be lost while the drive itself stays as it is.
    fn is_remote(&self) -> bool {
        false
    }

    /// What the drive is known by everywhere, whatever name its server is reached under; `None` where the place says it all.
    fn identity(&self) -> Option<&NamespaceIdentity> {
        None
    }

    /// What was granted of what was claimed over that connection; `None` where nothing was, or the server knows no reservations.
    fn claimed(&self) -> Option<Claimed> {
        None
    }

    /// Set once another host has taken the drive over: it refuses what this one sends.
    fn conflict(&self) -> Option<Conflict> {
        None
    }

    /// Whether that connection is lost: every command fails from now on, and another connection has to be made.
    fn is_disconnected(&self) -> bool {
        false
    }

    /// Whether [`close`](Drive::close) has come to its end.
    fn is_closed(&self) -> bool;

    /// After [`is_closed`](Drive::is_closed): what could not be made durable, and why, in words; `None` where all is.
    fn close_error(&self) -> Option<String> {
        None
    }

    /// The volume that the drive is, for those who look after it.
    fn as_volume(&self) -> Option<&VolumeDrive> {
        None
    }

    /// The same, to change it.
    fn as_volume_mut(&mut self) -> Option<&mut VolumeDrive> {
        None
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
    /// What the drive has counted over its life; `None` where it keeps no count.
    pub life: Option<LifeCounters>,
    /// Where the storage elements stand; `None` where zones are fixed, or nobody keeps count of them.
    pub elements: Option<AllocationFacts>,
}

/// What a drive counts from its making on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifeCounters {
    /// Bytes that hosts wrote.
    pub host_write_bytes: u64,
    /// Bytes that the drive wrote of its own accord: padding at FINISH.
    pub device_write_bytes: u64,
    /// Bytes that hosts read.
    pub host_read_bytes: u64,
    /// Resets of zones that held something.
    pub zone_resets: u64,
    /// How many zones wear is counted of; where zones are built of storage elements, how many of these.
    pub worn_units: u64,
    /// Erases of the least worn zone or element.
    pub erases_min: u64,
    /// Erases of the most worn zone or element.
    pub erases_max: u64,
    /// Erases of all zones or elements.
    pub erases_total: u64,
}

impl LifeCounters {
    /// Device-level write amplification: bytes written to the media over bytes that hosts wrote; 1 for a new drive.
    #[must_use]
    pub fn dlwa(&self) -> f64 {
        if self.host_write_bytes == 0 {
            return 1.0;
        }
        (self.host_write_bytes + self.device_write_bytes) as f64 / self.host_write_bytes as f64
    }
}

impl LifeCounters {
    /// The life of a drive whose zones are built of storage elements: they are what wears, and by them FINISH pads.
    #[must_use]
    pub fn with_elements(self, book: &ElementBook) -> LifeCounters {
        let (wear, elements) = (book.wear(), book.facts().elements);
        let units_per_element = (wear.units / elements.max(1)).max(1);
        LifeCounters {
            device_write_bytes: book.padding_bytes(),
            worn_units: elements,
            erases_min: u64::from(wear.erases_min),
            erases_max: u64::from(wear.erases_max),
            erases_total: wear.erases / units_per_element,
            ..self
        }
    }
}

impl DriveFacts {
    /// What a table of zones tells; the rest is zero.
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
        zones.write(Lba(24), Blocks(4), true).expect("the zone has room");
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
