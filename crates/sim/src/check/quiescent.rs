//! While no command is in flight, every zone and every block of the drive equals the oracle's.

use zonda_ssd::Ssd;
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{Blocks, NamespaceId, PayloadKind, ZoneIndex, ZoneState, ZonedDevice};

use crate::observe::{CheckError, ObservedZone};
use crate::outcome::FailureKind;

/// Compares observed zones with the oracle's.
pub(crate) fn check(oracle: &ReferenceDevice, zones: &[ObservedZone], keeps: PayloadKind) -> Result<(), CheckError> {
    let geometry = oracle.geometry(NamespaceId::FIRST);
    for (zone, seen) in (0..).map(ZoneIndex).zip(zones) {
        let start = geometry.zone_start(zone);
        let expected = oracle.descriptor(zone);
        let image = oracle.image(zone);
        let pointer = expected.write_pointer.map(|pointer| (pointer - start).0);
        let wrong = |message: String| Err(CheckError::new(FailureKind::ImpossibleZone, zone, message));
        if (seen.state, seen.pointer) != (expected.state, pointer) {
            return wrong(format!(
                "zone {zone} is {}, expected {}",
                place(seen.state, seen.pointer),
                place(expected.state, pointer)
            ));
        }
        if seen.zrwa != image.zrwa || seen.extension != image.extension {
            return wrong(format!("zone {zone} has a wrong ZRWA attribute or descriptor extension"));
        }
        if keeps == PayloadKind::None || seen.state == ZoneState::Offline {
            continue;
        }
        for (block, print) in (0..).zip(&seen.prints) {
            let expected = oracle.block(start + Blocks(block));
            if *print != expected {
                let message = format!("block {block} of zone {zone} is {print:016x}, expected {expected:016x}");
                return Err(CheckError::new(FailureKind::WrongContents, zone, message));
            }
        }
    }
    Ok(())
}

/// Compares state, write pointer and attributes of every zone with the oracle's, without submitting
/// commands.
pub(crate) fn check_views(oracle: &ReferenceDevice, drive: &Ssd) -> Result<(), CheckError> {
    let zones = oracle.geometry(NamespaceId::FIRST).zone_count;
    for zone in (0..zones).map(ZoneIndex) {
        let (view, image) = (drive.zone(zone), oracle.image(zone));
        let pointer = (view.state != ZoneState::Offline).then_some(view.write_pointer_blocks.0);
        let expected = (image.state != ZoneState::Offline).then_some(image.write_pointer_blocks.0);
        let attributes = (view.attributes.zrwa_valid, view.attributes.extension_valid);
        if (view.state, pointer) != (image.state, expected) || attributes != (image.zrwa, image.extension.is_some()) {
            let message =
                format!("zone {zone} is {}, expected {}", place(view.state, pointer), place(image.state, expected));
            return Err(CheckError::new(FailureKind::ImpossibleZone, zone, message));
        }
    }
    Ok(())
}

/// A zone state with the offset of its write pointer: "closed at 12".
pub(crate) fn place(state: ZoneState, pointer: Option<u64>) -> String {
    match pointer {
        Some(pointer) if state != ZoneState::Empty && state != ZoneState::NotWritePointer => {
            format!("{state} at {pointer}")
        }
        _ => state.to_string(),
    }
}
