//! No more zones hold a resource than the namespace has.

use zonda_zoned::Geometry;

use crate::outcome::FailureKind;
use crate::survey::{SeenZone, Trouble};

/// Counts the zones of a whole drive.
pub(crate) fn check(geometry: &Geometry, zones: &[SeenZone]) -> Result<(), Trouble> {
    let count = |holds: fn(&SeenZone) -> bool| zones.iter().filter(|seen| holds(seen)).count() as u64;
    for (what, held, limit) in [
        ("active", count(|seen| seen.state.is_active()), geometry.max_active_zones),
        ("open", count(|seen| seen.state.is_open()), geometry.max_open_zones),
        ("with a ZRWA", count(|seen| seen.zrwa), Some(geometry.zrwa.map_or(0, |zrwa| zrwa.resources))),
    ] {
        if limit.is_some_and(|limit| held > u64::from(limit)) {
            let message = format!("{held} zones are {what}, and {} is the limit", limit.unwrap_or(0));
            return Err(Trouble::new(FailureKind::LimitExceeded, None, message));
        }
    }
    Ok(())
}
