//! The numbers of active zones, open zones and ZRWAs are within the limits of the namespace.

use zonda_zoned::Geometry;

use crate::observe::{CheckError, ObservedZone};
use crate::outcome::FailureKind;

/// Checks all zones of a drive.
pub(crate) fn check(geometry: &Geometry, zones: &[ObservedZone]) -> Result<(), CheckError> {
    let count = |holds: fn(&ObservedZone) -> bool| zones.iter().filter(|seen| holds(seen)).count() as u64;
    for (what, held, limit) in [
        ("active", count(|seen| seen.state.is_active()), geometry.max_active_zones),
        ("open", count(|seen| seen.state.is_open()), geometry.max_open_zones),
        ("with a ZRWA", count(|seen| seen.zrwa), Some(geometry.zrwa.map_or(0, |zrwa| zrwa.resources))),
    ] {
        if limit.is_some_and(|limit| held > u64::from(limit)) {
            let message = format!("{held} zones are {what}, the limit is {}", limit.unwrap_or(0));
            return Err(CheckError::new(FailureKind::LimitExceeded, None, message));
        }
    }
    Ok(())
}
