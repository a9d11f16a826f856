//! In-memory tables of a volume: the location of each logical block, and the contents of each
//! segment.

mod address;
mod segment;
mod slots;

pub(crate) use address::{Address, Location, Physical, SegmentIndex};
pub(crate) use segment::{Segment, SegmentState, SegmentTable};
pub(crate) use slots::Slots;
