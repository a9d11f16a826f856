//! [`Subject`]: the drive that is characterised, and what may be done with it.

use zonda_zoned::{Blocks, Duration, Geometry, LiveClock, PayloadKind, Status, ZoneIndex, ZonedDevice};

/// A drive whose zones can be brought into the state that a load needs.
pub trait Subject {
    /// The geometry of its namespace.
    fn geometry(&self) -> &Geometry;

    /// Payloads of writes.
    fn payload(&self) -> PayloadKind;

    /// Zones with data, and the blocks from their starts that have some.
    fn readable(&self) -> Vec<(ZoneIndex, Blocks)>;

    /// Zones that may be reset and written; empty if only reads are allowed.
    fn scratch(&self) -> &[ZoneIndex];

    /// Partly written zones that the drive allows in [`scratch`](Subject::scratch) at a time.
    fn active_max(&self) -> u32;

    /// An estimate of the time that [`prepare`](Subject::prepare) takes.
    fn preparation(&self, fills: &[(ZoneIndex, Blocks)]) -> Duration;

    /// Brings zones into this state: as many blocks from their starts are written, and the rest is
    /// not. Other zones of [`scratch`](Subject::scratch) may lose their data.
    ///
    /// # Errors
    /// The first command that fails.
    fn prepare(&mut self, fills: &[(ZoneIndex, Blocks)]) -> Result<(), PrepareFailed>;

    /// The state of these zones is not known any more: a load has written or reset them.
    fn forget(&mut self, zones: &[ZoneIndex]);

    /// The device and its clock, for a load on zones that are prepared.
    fn parts(&mut self) -> (&mut dyn ZonedDevice, &mut dyn LiveClock);
}

/// A zone that could not be prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareFailed {
    /// The zone.
    pub zone: ZoneIndex,
    /// The command that failed.
    pub operation: &'static str,
    /// Its status.
    pub status: Status,
}

impl std::fmt::Display for PrepareFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the {} of zone {} fails: {}", self.operation, self.zone.0, self.status)
    }
}
