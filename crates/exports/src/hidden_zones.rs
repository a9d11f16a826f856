//! Zones of an image that hosts do not see: those behind the first ones, if a number is configured.

use std::path::Path;

use zonda_devices::conventional_zones_before;
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{ZoneIndex, ZoneState};

use crate::start::ServeError;

/// Refuses to serve so many zones of an image if it has fewer, or data in others. Conventional zones
/// before sequential ones are not served, and do not count.
pub(crate) fn check(path: &Path, all: &ZoneTable, zones: u32) -> Result<(), ServeError> {
    let geometry = all.geometry();
    let shown = path.display();
    let unused = conventional_zones_before(geometry);
    let most = geometry.zone_count - unused;
    if !(1..=most).contains(&zones) {
        return Err(ServeError::new(
            format!("zones: {zones} of the {most} zones of {shown} cannot be served"),
            "use a number up to that of the image; conventional zones before sequential ones do not count",
        ));
    }
    let is_conventional = geometry.conventional_zone_count == geometry.zone_count;
    let mut hidden = (unused + zones..geometry.zone_count).map(ZoneIndex).filter(|_| !is_conventional);
    match hidden.find(|zone| all.zone(*zone).state != ZoneState::Empty) {
        None => Ok(()),
        Some(zone) => Err(ServeError::new(
            format!("zones: zone {} of {shown} is not empty, and would not be served", zone.0),
            "serve more zones, or reset that zone first",
        )),
    }
}
