//! Changed Zone List, BFh (Zoned Namespace Command Set 1.1, section 4.1.4).

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::limits::CHANGED_ZONES_MAX;
use zonda_zoned::{ChangedZoneList, Geometry, Lba};

use crate::page::{Page, PageError};

/// The zones that changed on their own since the page was last read.
///
/// ```text
/// 0 count, FFFFh: too many | 2 reserved | 8 zone identifier 0 (its first block) | ... | 4088 zone identifier 510
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChangedZonePage {
    /// Number of Zone Identifiers; FFFFh where more zones changed than the page can hold.
    pub count: U16,
    _reserved_2: [u8; 6],
    /// Zone Identifiers: the first block of each zone.
    pub zones: [U64; CHANGED_ZONES_MAX],
}

const _: () = assert!(size_of::<ChangedZonePage>() == 4096);

impl Page for ChangedZonePage {
    const NAME: &'static str = "Changed Zone List";
}

impl ChangedZonePage {
    /// The page for a list of zones of a namespace.
    ///
    /// # Panics
    /// For a list longer than [`CHANGED_ZONES_MAX`], which must be marked as overflowed instead.
    #[must_use]
    pub fn of(list: &ChangedZoneList, geometry: &Geometry) -> ChangedZonePage {
        let mut page = ChangedZonePage::empty();
        if list.overflowed {
            page.count = TOO_MANY.into();
            return page;
        }
        assert!(list.zones.len() <= CHANGED_ZONES_MAX, "{} changed zones in one list", list.zones.len());
        page.count = (list.zones.len() as u16).into();
        for (slot, &zone) in page.zones.iter_mut().zip(&list.zones) {
            *slot = geometry.zone_start(zone).0.into();
        }
        page
    }

    /// The list in the page.
    ///
    /// # Errors
    /// [`PageError::Value`] for a count that does not fit, and for a block that is not the start of
    /// a zone.
    pub fn list(&self, geometry: &Geometry) -> Result<ChangedZoneList, PageError> {
        let count = self.count.get();
        if count == TOO_MANY {
            return Ok(ChangedZoneList { overflowed: true, zones: Vec::new() });
        }
        let Some(starts) = self.zones.get(..usize::from(count)) else {
            return Err(error("number of zone identifiers", count.into(), "must be at most 511, or 65535"));
        };
        let zone = |start: &U64| {
            let start = Lba(start.get());
            match geometry.zone_of(start) {
                Some(zone) if geometry.zone_start(zone) == start => Ok(zone),
                _ => Err(error("zone identifier", start.0, "must be the first block of a zone")),
            }
        };
        Ok(ChangedZoneList { overflowed: false, zones: starts.iter().map(zone).collect::<Result<_, _>>()? })
    }
}

/// More zones changed than the page can hold.
const TOO_MANY: u16 = 0xffff;

fn error(field: &'static str, value: u64, remedy: &'static str) -> PageError {
    PageError::Value { page: ChangedZonePage::NAME, field, value, remedy }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zonda_zoned::ZoneIndex;

    use super::*;
    use crate::page::assert_layout;

    #[test]
    fn every_field_has_the_offset_of_the_specification() {
        assert_layout!(ChangedZonePage { count: 0..=1, zones: 8..=4095 });
    }

    #[test]
    fn zones_are_named_by_their_first_block() {
        let list = ChangedZoneList { overflowed: false, zones: vec![ZoneIndex(1), ZoneIndex(7)] };
        let page = ChangedZonePage::of(&list, &Geometry::tiny());
        assert_eq!((page.bytes()[0], page.bytes()[8], page.bytes()[16]), (2, 16, 112));
        assert_eq!(page.list(&Geometry::tiny()), Ok(list));
    }

    #[test]
    fn too_many_changes_leave_no_list() {
        let list = ChangedZoneList { overflowed: true, zones: Vec::new() };
        let page = ChangedZonePage::of(&list, &Geometry::tiny());
        assert_eq!(page.bytes()[0..3], [0xff, 0xff, 0]);
        assert_eq!(page.list(&Geometry::tiny()), Ok(list));
    }

    #[test]
    fn an_invalid_count_or_zone_is_an_error() {
        let mut page = ChangedZonePage::empty();
        page.count = 512.into();
        assert!(page.list(&Geometry::tiny()).is_err());
        page.count = 1.into();
        for start in [1, 128, u64::MAX] {
            page.zones[0] = start.into();
            assert!(page.list(&Geometry::tiny()).is_err(), "{start}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 4096)) {
            let page = ChangedZonePage::parse(&bytes).unwrap();
            let _ = page.list(&Geometry::tiny());
        }
    }
}
