//! What a volume keeps in memory: where each logical block is, and what each segment holds.

mod address;
mod segment;
mod slots;

pub(crate) use address::{Address, Location, Physical, SegmentIndex};
pub(crate) use segment::{Segment, SegmentState, SegmentTable};
pub(crate) use slots::Slots;
