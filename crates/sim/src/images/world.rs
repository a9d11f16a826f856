//! What a seed decides of a scenario with an image before the first event.

use serde::{Deserialize, Serialize};
use zonda_image::ImageSpec;
use zonda_image::testing::PAGE;
use zonda_zoned::reference::random_geometry;
use zonda_zoned::{Blocks, Geometry, Prng};

use crate::drive::one_of;
use crate::options::{Options, Part};

/// The fork of a seed from which images are generated, and run.
pub(crate) const FORK: &str = "images";
/// Sequential zones of a drive, at most: every block is read after each life.
const SEQUENTIAL_ZONES_MAX: u32 = 6;
/// Bytes of a drive with the longest blocks, about.
const CAPACITY_BYTES_MAX: u64 = 1 << 19;

/// Everything that a seed decides before the first event.
#[derive(Debug)]
pub(crate) struct ImagesWorld {
    pub(crate) root: Prng,
    pub(crate) geometry: Geometry,
    pub(crate) load: ImageLoad,
    pub(crate) events: ImageEvents,
}

/// What is asked of the drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImageLoad {
    /// The journal's length in pages beyond the shortest that there can be.
    pub(crate) journal_pages: u64,
    /// How often the drive is opened, at most.
    pub(crate) lives: u64,
    /// Commands of a life, at most.
    pub(crate) commands_of_life: u64,
    /// Commands of all lives, at most.
    #[serde(default = "crate::scenario::unlimited", skip_serializing_if = "crate::scenario::is_unlimited")]
    pub(crate) commands: u64,
    /// Commands at a time, at most.
    pub(crate) queue_depth: u64,
    /// Whether hosts change what is kept of reservations.
    pub(crate) has_reservations: bool,
}

/// What happens to the drive and to its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImageEvents {
    /// Of the ends of lives, how many of each kind: relative weights. Without any, the drive is shut down.
    pub(crate) kills: u64,
    pub(crate) power_losses: u64,
    pub(crate) closes: u64,
    /// Of 100 creations, openings: how many are cut short by a crash.
    pub(crate) cut_creations_percent: u64,
    pub(crate) cut_openings_percent: u64,
    /// Of 100 lives, in how many a zone becomes read only or offline at some moment.
    pub(crate) degradations_percent: u64,
    /// Of 100 lives, in how many reads, writes or syncs fail.
    pub(crate) faults_percent: u64,
    /// Of 100 lives, in how many the file system has no free space for a time.
    pub(crate) full_disk_percent: u64,
    /// Of 100 stops, after how many the files are damaged in this way, to see what becomes of them.
    pub(crate) rot_percent: u64,
    pub(crate) truncation_percent: u64,
    pub(crate) old_copies_percent: u64,
}

impl ImagesWorld {
    pub(crate) fn new(seed: u64, options: &Options) -> ImagesWorld {
        let root = Prng::new(seed).fork(FORK);
        ImagesWorld {
            geometry: draw_geometry(&root, options),
            load: draw_load(&root, options),
            events: draw_events(&root, options),
            root,
        }
    }

    /// What the image is made from.
    pub(super) fn spec(&self) -> ImageSpec {
        let spec = ImageSpec::new(self.geometry.clone(), "name = \"simulated\"\n".to_owned(), *b"0123456789abcdef");
        let shortest = (1..).map(|pages| pages * PAGE as u64).find(|bytes| {
            let spec = ImageSpec { journal_bytes: *bytes, ..spec.clone() };
            spec.validate().is_ok()
        });
        let shortest = shortest.expect("a longer journal is possible");
        ImageSpec { journal_bytes: shortest + self.load.journal_pages * PAGE as u64, ..spec }
    }
}

fn draw_geometry(root: &Prng, options: &Options) -> Geometry {
    let mut geometry = random_geometry(&mut root.fork("geometry"));
    if root.fork("long blocks").chance(1, 5) {
        geometry.block_size_bytes = 8192;
    }
    let sequential = geometry.zone_count - geometry.conventional_zone_count;
    geometry.zone_count = geometry.conventional_zone_count + sequential.min(SEQUENTIAL_ZONES_MAX);
    // Long blocks make a short drive, so that a life takes no longer.
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
    assert_eq!(geometry.validate(), Ok(()), "such a drive is possible");
    geometry
}

fn draw_load(root: &Prng, options: &Options) -> ImageLoad {
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

fn draw_events(root: &Prng, options: &Options) -> ImageEvents {
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
