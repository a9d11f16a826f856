//! Bugs to plant, each a mistake that a real drive has made or could make.
//!
//! The simulation tester must find every one of them; what it cannot find, it does not test.

use zonda_zoned::Geometry;

/// A mistake, switched on for one drive.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeededBug {
    /// Writes are acknowledged before they are safe: power loss takes some of them back.
    EarlyAcknowledgement,
    /// A write pointer comes back one block short after power loss.
    LostWritePointer,
    /// One zone more than allowed can be active.
    ActiveLimitOffByOne,
    /// One zone more than allowed can be open.
    OpenLimitOffByOne,
    /// A reset leaves the zone's contents readable.
    ResetKeepsContents,
    /// An append that fills its zone is told a place one block before its own.
    AppendReturnsWrongPlace,
    /// FINISH loses the last block the host wrote.
    FinishForgetsTail,
    /// Power loss leaves a block that is neither old nor new.
    TornBlock,
    /// A program that ends wakes nobody who waits for room in the write buffer.
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
