//! What testers of a pool need: seeded bugs, and what a tenant may find after a crash.

mod tenant;

pub use crate::bug::SeededBug;
pub use tenant::{BlockTag, Content, Crash, Life, TenantZone, ZoneFound};

pub use crate::format::fit_checksum;

use zonda_zoned::{PayloadKind, ZonedDevice};

use crate::{ElasticDevice, Goal};

/// As [`ElasticDevice::new`], with a bug seeded in the mount and in the pool, so that a tester can
/// show that it would be detected.
pub fn with_bug<D: ZonedDevice>(drive: D, goal: Goal, kind: PayloadKind, bug: Option<SeededBug>) -> ElasticDevice<D> {
    ElasticDevice::seeded(drive, goal, kind, bug.into())
}
