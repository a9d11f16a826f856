//! Candidates: parallelism, size and storage element of zones, and the FINISH policy of the host.

use std::fmt;

use serde::{Serialize, Serializer};
use zonda_config::ByteSize;
use zonda_ssd::allocation::AllocationKind;

/// The zones of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Dies that a zone is striped over.
    pub parallelism: u32,
    /// Segments of a zone: erase units on each of those dies.
    pub segments: u64,
    /// Zone capacity.
    pub zone_bytes: u64,
    /// Storage element.
    #[serde(serialize_with = "in_words")]
    pub element: AllocationKind,
}

/// A shape, and the policy of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// The zones.
    #[serde(flatten)]
    pub shape: Shape,
    /// Minimum occupancy at which the host may finish a zone to activate another one.
    pub finish_threshold_percent: u8,
}

impl Shape {
    /// Short notation of the shape, as in the SilentZNS paper: `superblock P16 S256`, with sizes in
    /// MiB.
    #[must_use]
    pub fn short(&self) -> String {
        let mebibytes = self.zone_bytes as f64 / f64::from(1 << 20);
        format!("{} P{} S{}", self.element, self.parallelism, zonda_plot::text::significant(mebibytes))
    }

    /// Whether erase units are bound to zones permanently.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.element == AllocationKind::Fixed
    }

    /// Segments that an element spans: they are erased together.
    #[must_use]
    pub fn element_rows(&self) -> u64 {
        match self.element {
            AllocationKind::Hchunk(units) => units.into(),
            _ => 1,
        }
    }
}

impl fmt::Display for Shape {
    /// The shape in words: `superblock, zones of 256 MiB over 16 dies`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dies = zonda_plot::text::counted(u64::from(self.parallelism), "die");
        write!(f, "{}, zones of {} over {dies}", self.element, ByteSize(self.zone_bytes))
    }
}

impl fmt::Display for Candidate {
    /// The candidate in words: `superblock, zones of 256 MiB over 16 dies, finished from 10% on`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, finished from {}% on", self.shape, self.finish_threshold_percent)
    }
}

impl Candidate {
    /// Short notation of the candidate: `superblock P16 S256 F10`.
    #[must_use]
    pub fn short(&self) -> String {
        format!("{} F{}", self.shape.short(), self.finish_threshold_percent)
    }
}

/// Elements that zones with these segments and dies can be built of, the coarsest first.
#[must_use]
pub fn elements_of(parallelism: u32, segments: u64, dies: u32) -> Vec<AllocationKind> {
    let mut elements = vec![AllocationKind::Fixed];
    if parallelism == dies && dies > 1 {
        elements.push(AllocationKind::Superblock);
    }
    for luns in [4, 2] {
        if parallelism.is_multiple_of(luns) && luns < dies {
            elements.push(AllocationKind::Vchunk(luns));
        }
    }
    if segments.is_multiple_of(2) {
        elements.push(AllocationKind::Hchunk(2));
    }
    elements.push(AllocationKind::Block);
    elements
}

fn in_words<S: Serializer>(element: &AllocationKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(element)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(parallelism: u32, segments: u64, dies: u32) -> String {
        elements_of(parallelism, segments, dies).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn elements_are_those_that_fit_the_zone() {
        assert_eq!(names(16, 2, 16), "fixed superblock vchunk-4 vchunk-2 hchunk-2 block");
        assert_eq!(names(8, 1, 16), "fixed vchunk-4 vchunk-2 block");
        assert_eq!(names(4, 3, 4), "fixed superblock vchunk-2 block");
        assert_eq!(names(1, 2, 128), "fixed hchunk-2 block");
        assert_eq!(names(1, 1, 1), "fixed block");
    }

    #[test]
    fn a_shape_has_a_name_of_a_few_signs() {
        let shape = Shape { parallelism: 8, segments: 1, zone_bytes: 96 << 19, element: AllocationKind::Vchunk(4) };
        assert_eq!(shape.short(), "vchunk-4 P8 S48");
        assert_eq!(shape.to_string(), "vchunk-4, zones of 48 MiB over 8 dies");
    }
}
