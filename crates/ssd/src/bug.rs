//! Seeded bugs, each a mistake that a real drive has made or could make.
//!
//! The simulation tester must find every one of them: this shows that it tests the property.

use zonda_zoned::Geometry;

/// A mistake, switched on for one drive.
#[doc(hidden)]
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

    pub(crate) fn wrong_geometry(self, geometry: &Geometry) -> Option<Geometry> {
        let more = |limit: Option<u32>| limit.map(|limit| limit + 1);
        let mut geometry = geometry.clone();
        match self {
            SeededBug::ActiveLimitOffByOne => geometry.max_active_zones = more(geometry.max_active_zones),
            SeededBug::OpenLimitOffByOne => {
                geometry.max_open_zones = more(geometry.max_open_zones)
                    .filter(|open| geometry.max_active_zones.is_none_or(|active| *open <= active));
                geometry.max_open_zones?;
            }
            _ => return None,
        }
        Some(geometry)
    }
}
