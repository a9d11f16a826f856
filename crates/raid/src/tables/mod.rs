//! Places on members, and the in-memory tables of segments.

mod place;
mod segment;
mod slots;

pub(crate) use place::{Physical, SegmentIndex};
pub(crate) use segment::{Segment, SegmentState, SegmentTable};
pub(crate) use slots::Slots;
