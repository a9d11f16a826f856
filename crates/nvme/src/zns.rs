//! Zone reports (Zoned Namespace Command Set 1.1, section 3.4.2.2, Figures 36 to 38).
//!
//! ```text
//! Report Zones            64 header | 64 descriptor | 64 descriptor | ...
//! Extended Report Zones   64 header | 64 descriptor, n extension | 64 descriptor, n extension | ...
//! ```
//!
//! A report holds whole descriptors only. With the Partial Report bit the header counts those;
//! without it, all zones from the start that match.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zonda_zoned::{Blocks, Lba, ZoneAttributes, ZoneDescriptor, ZoneReport, ZoneState, ZoneType};

use crate::page::{Page, PageError};

/// The header before the descriptors (Figure 36).
///
/// ```text
/// 0 number of zones | 8 reserved
/// ```
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReportHeader {
    /// Number of Zones.
    pub zones: U64,
    _reserved_8: [u8; 56],
}

/// One zone (Figure 37).
///
/// ```text
/// 0 type (ZT), 3:0 | 1 state (ZS), 7:4 | 2 attributes (ZA) | 3 attributes information (ZAI) | 8 capacity (ZCAP)
/// 16 start (ZSLBA) | 24 write pointer (WP) | 32 reserved
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct WireDescriptor {
    /// Zone Type (ZT), in bits 3:0.
    pub zone_type: u8,
    /// Zone State (ZS), in bits 7:4.
    pub state: u8,
    /// Zone Attributes (ZA): bit 0 finished by the controller, 1 finish recommended, 2 reset
    /// recommended, 3 has a random write area (ZRWAV), 7 has a descriptor extension (ZDEV).
    pub attributes: u8,
    /// Zone Attributes Information (ZAI).
    pub attributes_information: u8,
    _reserved_4: [u8; 4],
    /// Zone Capacity (ZCAP), blocks.
    pub capacity_blocks: U64,
    /// Zone Start Logical Block Address (ZSLBA).
    pub start: U64,
    /// Write Pointer (WP); all ones if the zone has no valid one.
    pub write_pointer: U64,
    _reserved_32: [u8; 32],
}

const _: () = assert!(size_of::<ReportHeader>() == 64);
const _: () = assert!(size_of::<WireDescriptor>() == 64);

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportFormat {
    /// Bytes of the extension after each descriptor; `None` for a report that is not extended.
    pub extension_bytes: Option<u32>,
    /// Partial Report: the header counts the descriptors in the buffer.
    pub partial: bool,
}

impl Page for ReportHeader {
    const NAME: &'static str = "Report Zones Header";
}

impl Page for WireDescriptor {
    const NAME: &'static str = "Zone Descriptor";
}

impl ReportFormat {
    /// How many descriptors a buffer holds; `None` where it does not even hold the header, which is
    /// Invalid Field.
    #[must_use]
    pub fn descriptors_in(&self, buffer_bytes: usize) -> Option<usize> {
        let left = buffer_bytes.checked_sub(size_of::<ReportHeader>())?;
        Some(left / self.descriptor_bytes())
    }

    /// Bytes of a report of so many zones.
    ///
    /// # Panics
    /// When no memory could hold it.
    #[must_use]
    pub fn report_bytes(&self, zones: usize) -> usize {
        let descriptors = zones.checked_mul(self.descriptor_bytes());
        descriptors.and_then(|bytes| bytes.checked_add(size_of::<ReportHeader>())).expect("a report fits in memory")
    }

    /// The report in a new buffer of `buffer_bytes`, which the caller has checked against MDTS:
    /// whole descriptors as far as they fit, then zeros; `None` for a buffer that is too small for
    /// the header.
    ///
    /// # Panics
    /// For an extension whose length differs from the format's: it would be read as another zone.
    #[must_use]
    pub fn write(&self, report: &ZoneReport, buffer_bytes: usize) -> Option<Vec<u8>> {
        let zones = &report.zones[..report.zones.len().min(self.descriptors_in(buffer_bytes)?)];
        let mut header = ReportHeader::empty();
        header.zones = if self.partial { zones.len() as u64 } else { report.matching_zones }.into();
        let mut buffer = Vec::with_capacity(buffer_bytes);
        buffer.extend_from_slice(header.bytes());
        for zone in zones {
            buffer.extend_from_slice(WireDescriptor::of(zone).bytes());
            let Some(extension_bytes) = self.extension_bytes.map(|bytes| bytes as usize) else { continue };
            match &zone.extension {
                Some(extension) => {
                    assert_eq!(
                        extension.len(),
                        extension_bytes,
                        "bytes of the extension of the zone at {}",
                        zone.start
                    );
                    buffer.extend_from_slice(extension);
                }
                None => buffer.resize(buffer.len() + extension_bytes, 0),
            }
        }
        buffer.resize(buffer_bytes, 0);
        Some(buffer)
    }

    /// Reads a report: as many zones as the header announces, or the buffer holds. `matching_zones`
    /// is from the header.
    ///
    /// # Errors
    /// [`PageError::Short`] without a whole header; [`PageError::Value`] for a zone type, state or
    /// write pointer that cannot be.
    pub fn parse(&self, buffer: &[u8]) -> Result<ZoneReport, PageError> {
        let matching_zones = ReportHeader::parse(buffer)?.zones.get();
        let descriptors = buffer[size_of::<ReportHeader>()..].chunks_exact(self.descriptor_bytes());
        let count = matching_zones.min(descriptors.len() as u64) as usize;
        let zones = descriptors.take(count).map(|bytes| {
            let (descriptor, extension) = bytes.split_at(size_of::<WireDescriptor>());
            let mut zone = WireDescriptor::parse(descriptor)?.zone()?;
            zone.extension = self.extension_bytes.is_some().then(|| extension.into());
            Ok(zone)
        });
        Ok(ZoneReport { matching_zones, zones: zones.collect::<Result<_, PageError>>()? })
    }

    /// Bytes of a descriptor and its extension.
    fn descriptor_bytes(&self) -> usize {
        size_of::<WireDescriptor>() + self.extension_bytes.unwrap_or(0) as usize
    }
}

impl WireDescriptor {
    /// The descriptor of a zone, without its extension.
    #[must_use]
    pub fn of(zone: &ZoneDescriptor) -> WireDescriptor {
        let mut descriptor = WireDescriptor::empty();
        descriptor.zone_type = zone.zone_type as u8;
        descriptor.state = zone.state.code() << 4;
        descriptor.attributes = zone.attributes.code();
        descriptor.capacity_blocks = zone.capacity_blocks.0.into();
        descriptor.start = zone.start.0.into();
        descriptor.write_pointer = zone.write_pointer.map_or(NO_WRITE_POINTER, |pointer| pointer.0).into();
        descriptor
    }

    /// The zone that it describes, without extension. The write pointer field of a zone without a
    /// valid write pointer is ignored, and so are unknown attributes.
    ///
    /// # Errors
    /// [`PageError::Value`] for an unknown type or state, a state that does not match the type, or
    /// a write pointer outside its zone.
    pub fn zone(&self) -> Result<ZoneDescriptor, PageError> {
        let zone_type = match self.zone_type & 0xf {
            0x1 => ZoneType::Conventional,
            0x2 => ZoneType::SequentialWriteRequired,
            code => return Err(error("ZT", code.into(), "must be 2, or 1 for a conventional zone")),
        };
        let state_code = self.state >> 4;
        let state = zone_state(state_code).ok_or(error("ZS", state_code.into(), "must be a valid zone state"))?;
        if (zone_type == ZoneType::Conventional) != (state == ZoneState::NotWritePointer) {
            return Err(error("ZS", state_code.into(), "must be 0 for a conventional zone, and for no other"));
        }
        let (start, capacity, pointer) = (self.start.get(), self.capacity_blocks.get(), self.write_pointer.get());
        let has_write_pointer = state == ZoneState::Empty || state.is_active();
        if has_write_pointer && pointer.checked_sub(start).is_none_or(|written| written > capacity) {
            return Err(error("WP", pointer, "must lie within the capacity of its zone"));
        }
        Ok(ZoneDescriptor {
            zone_type,
            state,
            attributes: ZoneAttributes {
                finished_by_controller: self.attributes & 1 != 0,
                zrwa_valid: self.attributes & 1 << 3 != 0,
                extension_valid: self.attributes & 1 << 7 != 0,
            },
            capacity_blocks: Blocks(capacity),
            start: Lba(start),
            write_pointer: has_write_pointer.then_some(Lba(pointer)),
            extension: None,
        })
    }
}

/// The state with this code in a descriptor (ZS).
#[must_use]
pub fn zone_state(code: u8) -> Option<ZoneState> {
    if code == ZoneState::NotWritePointer.code() {
        return Some(ZoneState::NotWritePointer);
    }
    ZoneState::SEQUENTIAL.into_iter().find(|state| state.code() == code)
}

/// The write pointer field of a zone without a valid write pointer.
const NO_WRITE_POINTER: u64 = u64::MAX;

fn error(field: &'static str, value: u64, remedy: &'static str) -> PageError {
    PageError::Value { page: WireDescriptor::NAME, field, value, remedy }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zonda_zoned::zones::ZoneTable;
    use zonda_zoned::{Geometry, ReportFilter};

    use super::*;
    use crate::page::assert_layout;

    const PLAIN: ReportFormat = ReportFormat { extension_bytes: None, partial: false };

    fn report_of_tiny(extended: bool) -> ZoneReport {
        let mut zones = ZoneTable::new(Geometry::tiny());
        zones.write(Lba(16), Blocks(4), true).unwrap();
        zones.report(Lba(0), ReportFilter::All, extended, false, u32::MAX).unwrap()
    }

    #[test]
    fn every_field_has_the_offset_of_the_specification() {
        assert_layout!(ReportHeader { zones: 0..=7 });
        assert_layout!(WireDescriptor {
            zone_type: 0..=0,
            state: 1..=1,
            attributes: 2..=2,
            attributes_information: 3..=3,
            capacity_blocks: 8..=15,
            start: 16..=23,
            write_pointer: 24..=31,
        });
    }

    #[test]
    fn an_open_zone_is_described_with_type_state_and_write_pointer() {
        let bytes = PLAIN.write(&report_of_tiny(false), 64 * 9).unwrap();
        assert_eq!(bytes[0], 8);
        let zone = &bytes[128..192];
        assert_eq!(zone[0..4], [0x02, 0x20, 0, 0]);
        assert_eq!((zone[8], zone[16], zone[24]), (12, 16, 20));
    }

    #[test]
    fn a_buffer_smaller_than_the_header_holds_no_report() {
        assert_eq!(PLAIN.descriptors_in(63), None);
        assert_eq!(PLAIN.write(&report_of_tiny(false), 63), None);
        assert_eq!(PLAIN.descriptors_in(64), Some(0));
        assert_eq!(PLAIN.descriptors_in(191), Some(1));
        assert_eq!(ReportFormat { extension_bytes: Some(64), partial: false }.descriptors_in(191), Some(0));
    }

    #[test]
    fn a_partial_report_counts_the_zones_that_fit_and_a_full_one_those_that_match() {
        let report = report_of_tiny(false);
        let cut = PLAIN.write(&report, 64 * 4).unwrap();
        assert_eq!(PLAIN.parse(&cut), Ok(ZoneReport { matching_zones: 8, zones: report.zones[..3].to_vec() }));
        let partial = ReportFormat { partial: true, ..PLAIN };
        let cut = partial.write(&report, 64 * 4).unwrap();
        assert_eq!(partial.parse(&cut), Ok(ZoneReport { matching_zones: 3, zones: report.zones[..3].to_vec() }));
    }

    #[test]
    fn half_a_descriptor_is_not_sent() {
        let bytes = PLAIN.write(&report_of_tiny(false), 64 * 2 + 63).unwrap();
        assert_eq!(bytes.len(), 191);
        assert!(bytes[128..].iter().all(|&byte| byte == 0));
    }

    #[test]
    fn an_extended_report_has_the_extension_after_each_zone() {
        let format = ReportFormat { extension_bytes: Some(64), partial: false };
        let mut report = report_of_tiny(true);
        report.zones[1].extension = Some(vec![7; 64].into());
        report.zones[1].attributes.extension_valid = true;
        let bytes = format.write(&report, format.report_bytes(8)).unwrap();
        assert_eq!(bytes.len(), 64 + 8 * 128);
        assert_eq!(bytes[64 + 128 + 2], 0x80, "ZDEV");
        assert_eq!(bytes[64 + 128 + 64..64 + 256], [7; 64]);
        assert_eq!(format.parse(&bytes), Ok(report));
    }

    #[test]
    #[should_panic(expected = "bytes of the extension")]
    fn an_extension_of_another_length_is_a_bug() {
        let mut report = report_of_tiny(true);
        report.zones[0].extension = Some(vec![0; 63].into());
        let _ = ReportFormat { extension_bytes: Some(64), partial: false }.write(&report, 4096);
    }

    #[test]
    fn invalid_descriptors_are_errors() {
        let good = WireDescriptor::of(&report_of_tiny(false).zones[1]);
        let refused = |change: fn(&mut WireDescriptor)| {
            let mut bad = good;
            change(&mut bad);
            match bad.zone() {
                Err(PageError::Value { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(|zone| zone.zone_type = 3), "ZT");
        assert_eq!(refused(|zone| zone.state = 0x50), "ZS");
        assert_eq!(refused(|zone| zone.state = 0x00), "ZS");
        assert_eq!(refused(|zone| zone.zone_type = 1), "ZS");
        assert_eq!(refused(|zone| zone.write_pointer = 15.into()), "WP");
        assert_eq!(refused(|zone| zone.write_pointer = 29.into()), "WP");
        assert_eq!(refused(|zone| zone.write_pointer = u64::MAX.into()), "WP");
    }

    #[test]
    fn the_write_pointer_field_of_a_full_zone_is_ignored() {
        let mut full = WireDescriptor::of(&report_of_tiny(false).zones[1]);
        full.state = 0xe0;
        assert_eq!(full.zone().unwrap().write_pointer, None);
        assert_eq!(WireDescriptor::of(&full.zone().unwrap()).write_pointer.get(), u64::MAX);
    }

    fn any_zone(extension_bytes: Option<u32>) -> impl Strategy<Value = ZoneDescriptor> {
        let extension = proptest::collection::vec(any::<u8>(), extension_bytes.unwrap_or(0) as usize);
        (0usize..8, any::<(bool, bool, bool)>(), 0..u64::MAX / 2, 0..u64::MAX / 2, any::<u64>(), extension).prop_map(
            move |(
                state,
                (finished_by_controller, zrwa_valid, extension_valid),
                start,
                capacity,
                written,
                extension,
            )| {
                let state = *ZoneState::SEQUENTIAL.get(state).unwrap_or(&ZoneState::NotWritePointer);
                let has_write_pointer = state == ZoneState::Empty || state.is_active();
                ZoneDescriptor {
                    zone_type: if state == ZoneState::NotWritePointer {
                        ZoneType::Conventional
                    } else {
                        ZoneType::SequentialWriteRequired
                    },
                    state,
                    attributes: ZoneAttributes { finished_by_controller, zrwa_valid, extension_valid },
                    capacity_blocks: Blocks(capacity),
                    start: Lba(start),
                    write_pointer: has_write_pointer.then(|| Lba(start + written % (capacity + 1))),
                    extension: extension_bytes.is_some().then(|| extension.into()),
                }
            },
        )
    }

    fn any_report() -> impl Strategy<Value = (ReportFormat, ZoneReport, usize)> {
        let extension_bytes = proptest::option::of((0u32..4).prop_map(|units| units * 64));
        (extension_bytes, any::<bool>(), 0u64..1000, 0usize..3000).prop_flat_map(
            |(extension_bytes, partial, unlisted, buffer_bytes)| {
                proptest::collection::vec(any_zone(extension_bytes), 0..12).prop_map(move |zones| {
                    let matching_zones = zones.len() as u64 + if partial { 0 } else { unlisted };
                    (ReportFormat { extension_bytes, partial }, ZoneReport { matching_zones, zones }, buffer_bytes)
                })
            },
        )
    }

    proptest! {
        #[test]
        fn a_report_survives_any_buffer_as_far_as_it_fits((format, report, buffer_bytes) in any_report()) {
            let Some(bytes) = format.write(&report, buffer_bytes) else {
                prop_assert!(buffer_bytes < 64);
                return Ok(());
            };
            prop_assert_eq!(bytes.len(), buffer_bytes);
            let fitting = report.zones.len().min(format.descriptors_in(buffer_bytes).unwrap());
            let matching_zones = if format.partial { fitting as u64 } else { report.matching_zones };
            // The bytes after the zones are zeros, which are no valid descriptors: only the zones
            // that were sent may be read.
            let sent = &bytes[..format.report_bytes(fitting)];
            prop_assert_eq!(
                format.parse(sent),
                Ok(ZoneReport { matching_zones, zones: report.zones[..fitting].to_vec() })
            );
            if format.partial || fitting as u64 == report.matching_zones {
                prop_assert_eq!(format.parse(&bytes), format.parse(sent));
            }
            prop_assert!(bytes[sent.len()..].iter().all(|&byte| byte == 0));
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..1000), extension_bytes in proptest::option::of(0u32..200)) {
            let _ = ReportFormat { extension_bytes, partial: true }.parse(&bytes);
        }

        #[test]
        fn accepted_descriptors_are_encoded_to_equivalent_ones(bytes in any::<[u8; 32]>(), nibbles in 0u8..=255) {
            let mut padded = [0; 64];
            padded[..32].copy_from_slice(&bytes);
            padded[0] = 1 + nibbles % 2;
            padded[1] = nibbles & 0xf0;
            padded[15] = 0;
            padded[23] = 0;
            padded.copy_within(16..24, 24);
            if let Ok(zone) = WireDescriptor::parse(&padded).unwrap().zone() {
                prop_assert_eq!(WireDescriptor::of(&zone).zone(), Ok(zone));
            }
        }
    }
}
