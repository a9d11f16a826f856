//! The recommendations of the SilentZNS paper: Table 5 and Section 8, in our words.

use serde::Serialize;
use zonda_ssd::allocation::AllocationKind;
use zonda_workload::filetrace::Preset;

use crate::candidate::Shape;

/// Class of zones, by size among all candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneClass {
    /// In the lowest third, by the logarithm of the size.
    Small,
    /// In the middle third.
    Medium,
    /// In the highest third.
    Large,
}

/// A row of Table 5.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Guidance {
    /// The workload.
    pub preset: Preset,
    /// Storage elements, in the notation of profiles.
    #[serde(skip)]
    pub elements: [AllocationKind; 2],
    /// Class of zones.
    pub zones: ZoneClass,
    /// Setting, host policy and reason, in our words.
    pub words: &'static str,
}

/// Table 5 of the paper, rows A to E.
pub const TABLE_5: [Guidance; 5] = [
    Guidance {
        preset: Preset::Wal,
        elements: [AllocationKind::Block, AllocationKind::Vchunk(2)],
        zones: ZoneClass::Small,
        words: "block or vchunk-2 in small zones, finished early and separate from other data: log zones are finished nearly empty, and \
                small zones of fine elements leave little to pad",
    },
    Guidance {
        preset: Preset::Flush,
        elements: [AllocationKind::Superblock, AllocationKind::Vchunk(4)],
        zones: ZoneClass::Medium,
        words: "superblock or vchunk-4 in medium zones, finished where files end, with moderate concurrency: a balance of \
                DLWA against the cost of allocation",
    },
    Guidance {
        preset: Preset::Compaction,
        elements: [AllocationKind::Superblock, AllocationKind::Vchunk(4)],
        zones: ZoneClass::Large,
        words: "superblock or vchunk-4 in large zones over many dies: throughput is what counts, and zones that are nearly \
                full need little padding regardless of the element",
    },
    Guidance {
        preset: Preset::Mixed,
        elements: [AllocationKind::Block, AllocationKind::Vchunk(2)],
        zones: ZoneClass::Small,
        words: "block or vchunk-2 in small zones, finished early: that keeps space amplification low, and fine elements keep \
                the padding low that it would cost",
    },
    Guidance {
        preset: Preset::Read,
        elements: [AllocationKind::Superblock, AllocationKind::Vchunk(4)],
        zones: ZoneClass::Large,
        words: "superblock or vchunk-4 in large zones: reads want many dies, and coarse elements are allocated with little \
                effort",
    },
];

impl Guidance {
    /// The row for a workload.
    #[must_use]
    pub fn of(preset: Preset) -> &'static Guidance {
        TABLE_5.iter().find(|row| row.preset == preset).expect("each preset has its row")
    }

    /// Whether a shape matches the row.
    #[must_use]
    pub fn is_met_by(&self, shape: &Shape, classes: &ZoneClasses) -> bool {
        self.has_element(shape.element) && classes.of(shape.zone_bytes) == self.zones
    }

    /// Whether the row names this element.
    #[must_use]
    pub fn has_element(&self, element: AllocationKind) -> bool {
        self.elements.contains(&element)
    }
}

impl ZoneClass {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ZoneClass::Small => "small",
            ZoneClass::Medium => "medium",
            ZoneClass::Large => "large",
        }
    }
}

/// Limits of small, medium and large zones among the candidates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZoneClasses {
    least_bytes: u64,
    most_bytes: u64,
}

impl ZoneClasses {
    /// The classes of these shapes.
    #[must_use]
    pub fn of_shapes<'a>(shapes: impl Iterator<Item = &'a Shape> + Clone) -> ZoneClasses {
        let sizes = shapes.map(|shape| shape.zone_bytes);
        ZoneClasses { least_bytes: sizes.clone().min().unwrap_or(1), most_bytes: sizes.max().unwrap_or(1) }
    }

    /// The class of a zone.
    #[must_use]
    pub fn of(&self, zone_bytes: u64) -> ZoneClass {
        let log = |bytes: u64| (bytes.max(1) as f64).ln();
        let span = log(self.most_bytes) - log(self.least_bytes);
        if span <= 0.0 {
            return ZoneClass::Medium;
        }
        match (log(zone_bytes) - log(self.least_bytes)) / span {
            share if share < 1.0 / 3.0 => ZoneClass::Small,
            share if share <= 2.0 / 3.0 => ZoneClass::Medium,
            _ => ZoneClass::Large,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_small_or_large_among_the_candidates() {
        let shape = |mebibytes: u64| Shape {
            parallelism: 16,
            segments: 1,
            zone_bytes: mebibytes << 20,
            element: AllocationKind::Block,
        };
        let shapes: Vec<Shape> = [32, 64, 128, 256, 512].into_iter().map(shape).collect();
        let classes = ZoneClasses::of_shapes(shapes.iter());
        let of: Vec<&str> = shapes.iter().map(|shape| classes.of(shape.zone_bytes).name()).collect();
        assert_eq!(of, ["small", "small", "medium", "large", "large"]);
        assert_eq!(ZoneClasses::of_shapes([shape(64)].iter()).of(64 << 20), ZoneClass::Medium);
    }

    #[test]
    fn every_load_has_its_row() {
        for preset in Preset::ALL {
            assert_eq!(Guidance::of(preset).preset, preset);
        }
    }
}
