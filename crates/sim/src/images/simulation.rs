//! An image scenario: everything that is generated from a seed before the first event.

use serde::{Deserialize, Serialize};
use zonda_image::ImageSpec;
use zonda_image::testing::PAGE;
use zonda_zoned::reference::random_geometry;
use zonda_zoned::{Blocks, Geometry, Prng};

use crate::drive::one_of;
use crate::options::{Options, Part};

/// Label of the fork of the seed for image scenarios and their runs.
pub(crate) const FORK: &str = "images";
/// Maximum number of sequential zones: every block is read after each life.
const SEQUENTIAL_ZONES_MAX: u32 = 6;
/// Approximate maximum capacity of a drive.
const CAPACITY_BYTES_MAX: u64 = 1 << 19;

/// Everything that is generated from a seed before the first event.
#[derive(Debug)]
pub(crate) struct ImagesSimulation {
    pub(crate) root: Prng,
    pub(crate) geometry: Geometry,
    pub(crate) load: ImageLoad,
    pub(crate) events: ImageEvents,
}

/// The load of the drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImageLoad {
    /// The length of the journal in pages, beyond the minimum.
    pub(crate) journal_pages: u64,
    /// Maximum number of openings.
    pub(crate) lives: u64,
    /// Maximum number of commands of a life.
    pub(crate) commands_of_life: u64,
    /// Maximum number of commands of all lives.
    #[serde(default = "crate::scenario::unlimited", skip_serializing_if = "crate::scenario::is_unlimited")]
    pub(crate) commands: u64,
    /// Maximum queue depth.
    pub(crate) queue_depth: u64,
    /// Whether hosts change the saved reservations.
    pub(crate) has_reservations: bool,
}

/// Faults of the drive and its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImageEvents {
    /// Relative weights of the kinds of ends of a life. If all are zero, the drive is shut down
    /// cleanly.
    pub(crate) kills: u64,
    pub(crate) power_losses: u64,
    pub(crate) closes: u64,
    /// Percentages of creations and openings that are interrupted by a crash.
    pub(crate) cut_creations_percent: u64,
    pub(crate) cut_openings_percent: u64,
    /// Percentage of lives in which a zone becomes read only or offline.
    pub(crate) degradations_percent: u64,
    /// Percentage of lives in which reads, writes or syncs fail.
    pub(crate) faults_percent: u64,
    /// Percentage of lives in which the file system is full for a time.
    pub(crate) full_disk_percent: u64,
    /// Percentages of stops after which a copy of the files is damaged in this way.
    pub(crate) rot_percent: u64,
    pub(crate) truncation_percent: u64,
    pub(crate) old_copies_percent: u64,
}

impl ImagesSimulation {
    pub(crate) fn new(seed: u64, options: &Options) -> ImagesSimulation {
        let root = Prng::new(seed).fork(FORK);
        ImagesSimulation {
            geometry: generate_geometry(&root, options),
            load: generate_load(&root, options),
            events: generate_events(&root, options),
            root,
        }
    }

    /// The specification of the image.
    pub(super) fn spec(&self) -> ImageSpec {
        let spec = ImageSpec::new(self.geometry.clone(), "name = \"simulated\"\n".to_owned(), *b"0123456789abcdef");
        let shortest = (1..).map(|pages| pages * PAGE as u64).find(|bytes| {
            let spec = ImageSpec { journal_bytes: *bytes, ..spec.clone() };
            spec.validate().is_ok()
        });
        let shortest = shortest.expect("some journal length is valid");
        ImageSpec { journal_bytes: shortest + self.load.journal_pages * PAGE as u64, ..spec }
    }
}

fn generate_geometry(root: &Prng, options: &Options) -> Geometry {
    let mut geometry = random_geometry(&mut root.fork("geometry"));
    if root.fork("long blocks").chance(1, 5) {
        geometry.block_size_bytes = 8192;
    }
    let sequential = geometry.zone_count - geometry.conventional_zone_count;
    geometry.zone_count = geometry.conventional_zone_count + sequential.min(SEQUENTIAL_ZONES_MAX);
    // A drive with long blocks has fewer of them, so that a life takes no longer.
    let bytes = u64::from(geometry.zone_count) * u64::from(geometry.block_size_bytes);
    let most = (CAPACITY_BYTES_MAX / bytes).max(8);
    if geometry.zone_capacity_blocks.0 > most && geometry.zrwa.is_none() {
        geometry.zone_capacity_blocks = Blocks(most);
        if geometry.conventional_zone_count > 0 {
            geometry.zone_size_blocks = Blocks(most);
        }
    }
    if !options.has(Part::Zrwa) {
        geometry.zrwa = None;
    }
    if !options.has(Part::Conventional) {
        geometry.zone_count -= geometry.conventional_zone_count;
        geometry.conventional_zone_count = 0;
    }
    assert_eq!(geometry.validate(), Ok(()), "the generated geometry is valid");
    geometry
}

fn generate_load(root: &Prng, options: &Options) -> ImageLoad {
    let mut prng = root.fork("load");
    let lives = 2 + prng.below(7);
    let queue_depth = one_of(&mut prng, &[1, 2, 4, 8, 16, 32]);
    ImageLoad {
        journal_pages: one_of(&mut prng, &[0, 0, 1, 2, 4, 12]),
        lives,
        commands_of_life: one_of(&mut prng, &[10, 40, 80, 160]).saturating_mul(options.scale.max(1)),
        commands: options.commands_max.unwrap_or(u64::MAX),
        queue_depth: options.queue_depth_max.map_or(queue_depth, |most| queue_depth.min(u64::from(most.max(1)))),
        has_reservations: prng.chance(1, 3) && options.has(Part::Reservations),
    }
}

fn generate_events(root: &Prng, options: &Options) -> ImageEvents {
    let percent = |label: &str, part: Part, choices: &[u64]| {
        let choice = one_of(&mut root.fork(label), choices);
        if options.has(part) { choice } else { 0 }
    };
    ImageEvents {
        kills: percent("kills", Part::Deaths, &[0, 1, 3]),
        power_losses: percent("power", Part::PowerLoss, &[0, 1, 3]),
        closes: one_of(&mut root.fork("closes"), &[0, 1, 1]),
        cut_creations_percent: percent("cut creations", Part::CutOpenings, &[0, 0, 60]),
        cut_openings_percent: percent("cut openings", Part::CutOpenings, &[0, 30, 60]),
        degradations_percent: percent("degradations", Part::Degradation, &[0, 0, 10]),
        faults_percent: percent("faults", Part::Faults, &[0, 0, 50]),
        full_disk_percent: percent("full disk", Part::FullDisk, &[0, 0, 40]),
        rot_percent: percent("rot", Part::Rot, &[0, 0, 50]),
        truncation_percent: percent("truncation", Part::Truncation, &[0, 0, 30]),
        old_copies_percent: percent("old copies", Part::OldCopies, &[0, 0, 50]),
    }
}
