//! Seeded bugs, each a mistake that a real drive has made or could make.
//!
//! The simulation tester must find every one of them: this shows that it tests the property. Only
//! drives that are built with the feature `testing` can have one.

use zonda_zoned::Geometry;

/// A mistake, switched on for one drive.
#[cfg_attr(not(feature = "testing"), allow(unreachable_pub, reason = "only testers name it"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// Writes are acknowledged before they are safe: some are lost at power loss.
    EarlyAcknowledgement,
    /// A write pointer is one block short after power loss.
    LostWritePointer,
    /// One zone more than allowed can be active.
    ActiveLimitOffByOne,
    /// One zone more than allowed can be open.
    OpenLimitOffByOne,
    /// A reset leaves the zone's contents readable.
    ResetKeepsContents,
    /// An append that fills its zone returns an LBA one block too low.
    AppendReturnsWrongPlace,
    /// FINISH loses the last block the host wrote.
    FinishForgetsTail,
    /// Power loss leaves a block that is neither old nor new.
    TornBlock,
    /// A completed program does not wake writes that wait for space in the write buffer.
    LostWakeup,
}

/// The bug of a drive, if it has one.
pub(crate) type Seeded = zonda_zoned::Seeded<SeededBug, { cfg!(feature = "testing") }>;

/// The geometry that the zone table enforces, if it is not the profile's.
pub(crate) fn wrong_geometry(seeded: Seeded, geometry: &Geometry) -> Option<Geometry> {
    let more = |limit: Option<u32>| limit.map(|limit| limit + 1);
    let mut geometry = geometry.clone();
    if seeded.has(SeededBug::ActiveLimitOffByOne) {
        geometry.max_active_zones = more(geometry.max_active_zones);
    } else if seeded.has(SeededBug::OpenLimitOffByOne) {
        geometry.max_open_zones =
            more(geometry.max_open_zones).filter(|open| geometry.max_active_zones.is_none_or(|active| *open <= active));
        geometry.max_open_zones?;
    } else {
        return None;
    }
    Some(geometry)
}
/// What testers use.
#[cfg(feature = "testing")]
mod testing {
    use zonda_zoned::zones::ZoneTable;

    use super::{SeededBug, wrong_geometry};
    use crate::ssd::Ssd;

    impl SeededBug {
        /// Every bug, with the name that the command line uses.
        pub const ALL: [(&'static str, SeededBug); 9] = [
            ("early-acknowledgement", SeededBug::EarlyAcknowledgement),
            ("lost-write-pointer", SeededBug::LostWritePointer),
            ("active-limit-off-by-one", SeededBug::ActiveLimitOffByOne),
            ("open-limit-off-by-one", SeededBug::OpenLimitOffByOne),
            ("reset-keeps-contents", SeededBug::ResetKeepsContents),
            ("append-returns-wrong-place", SeededBug::AppendReturnsWrongPlace),
            ("finish-forgets-tail", SeededBug::FinishForgetsTail),
            ("torn-block", SeededBug::TornBlock),
            ("lost-wakeup", SeededBug::LostWakeup),
        ];
    }

    impl Ssd {
        /// Seeds a bug in a new drive, so that a tester can show that it is found. It persists over
        /// power losses.
        pub fn seed_bug(&mut self, bug: SeededBug) {
            self.bug = Some(bug).into();
            if let Some(geometry) = wrong_geometry(self.bug, &self.geometry) {
                self.zones = ZoneTable::new(geometry);
            }
        }
    }
}
