//! `zonda drive repair`: copies the readable blocks of a damaged image to a new image.

use std::path::{Component, Path, PathBuf};

use clap::Args;
use serde::Serialize;
use zonda_devices::{DriveError, repair_image};
use zonda_image::RepairReport;

use super::image::NO_IMAGE;
use crate::commands::connect;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::progress::Progress;
use crate::table::Table;
use crate::{remedies, units};

pub(crate) const LONG_ABOUT: &str = "Copy the readable blocks of a damaged image to a new image.

For an image that zonda refuses to open, because a file was truncated, or checkpoint or journal are damaged in both copies. \
Copies every block with a valid checksum, and its metadata; the damaged image is not changed. Blocks with an invalid checksum \
that were or may have been written are unreadable in the new image: reads of them fail until they are written again or their \
zone is reset. They never read as zeros.

Keeps zone states, zone descriptor extensions, counters and reservations as far as they are known. If resets are unknown, a zone \
holds the newest valid blocks, and the report says so. The new image has a new UUID, and the wear counters of its flash start at 0.

The exit code is 0 if every block was copied, 1 if some are unreadable or newer data may be missing because of damaged files, \
2 if the image cannot be repaired: at least one valid copy of the superblock in image.zonda is needed. The image must not be \
in use by a server.";

const EXAMPLES: &str = "Examples:
  zonda drive check drives/a                  report the damage
  zonda drive repair drives/a --to drives/b
  zonda drive repair drives/a --to drives/b --json | jq '.unreadable'
  zonda drive check drives/b                  list the unreadable blocks";

/// Maximum number of rows of a table; --json prints more.
const LINES_MAX: usize = 40;

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct RepairArgs {
    /// Directory of the damaged image
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Directory of the new image, which must be empty or not exist, and be outside of DIR
    #[arg(long, value_name = "OTHER")]
    to: PathBuf,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Repaired {
    directory: String,
    to: String,
    /// Whether every block was copied.
    is_complete: bool,
    /// The damage and its consequences; empty if the image can be opened.
    damage: Vec<String>,
    journal_records: u64,
    blocks_copied: u64,
    /// Of these, blocks with a write in flight at the last stop, copied without verification.
    blocks_accepted: u64,
    blocks_unreadable: u64,
    unreadable: Vec<Run>,
    /// Unreadable blocks that `unreadable` does not list.
    more_unreadable_blocks: u64,
    /// Zones that hold data.
    zones: Vec<Zone>,
    /// Zones that were finished, because the limit on active zones was reached.
    zones_finished: Vec<u32>,
}

/// Blocks that cannot be read.
#[derive(Serialize)]
struct Run {
    first_lba: u64,
    blocks: u64,
}

#[derive(Serialize)]
struct Zone {
    zone: u32,
    blocks_copied: u64,
    blocks_unreadable: u64,
    /// Uncertainty about the state of the zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt: Option<String>,
}

pub(super) fn run(args: &RepairArgs) -> Result<(), Failure> {
    let instead = "zonda volume scrub DIR repairs its blocks from their redundancy; to repair the image of a member, name that image";
    remedies::refuse_volume(&args.directory, instead)?;
    refuse_nested(&args.directory, &args.to)?;
    let mut bar = Progress::new(args.quiet);
    let report = repair_image(&args.directory, &args.to, &mut |progress| {
        bar.show(Some(f64::from(progress.zones) / f64::from(progress.zones_total.max(1))), || {
            format!("zone {} of {}, {}", progress.zones, progress.zones_total, units::counted(progress.blocks, "block"))
        });
    });
    bar.finish();
    let report = report.map_err(|error| {
        if error.is_missing {
            return remedies::no_image(&args.directory, DriveError { help: NO_IMAGE.to_owned(), ..error });
        }
        connect::failure_without(error, &["zonda drive repair", "zonda zone"], "restore the image from a backup")
    })?;
    let repaired = Repaired::of(args, &report);
    if args.json {
        print_json(&repaired)?;
    } else {
        print(&repaired.in_words(Screen::of_stdout()))?;
    }
    if repaired.is_complete { Ok(()) } else { Err(Failure::Run) }
}

/// Refuses a new image inside the directory of the damaged one, and vice versa.
fn refuse_nested(damaged: &Path, new: &Path) -> Result<(), Failure> {
    // A path that cannot be resolved cannot be opened either, which is reported later.
    let (Some(resolved_damaged), Some(resolved_new)) = (resolved(damaged), resolved(new)) else { return Ok(()) };
    let (shown, to) = (damaged.display(), new.display());
    let why = if resolved_new == resolved_damaged {
        "it is the directory of the damaged image".to_owned()
    } else if resolved_new.starts_with(&resolved_damaged) {
        format!("it is inside the directory of the damaged image, {shown}")
    } else if resolved_damaged.starts_with(&resolved_new) {
        format!("the damaged image, {shown}, is inside it")
    } else {
        return Ok(());
    };
    Err(Failure::input(format!("cannot write the new image to {to}: {why}"), "choose another directory for --to"))
}

/// The canonical path, also if its last components do not exist yet.
fn resolved(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let existing = |above: &Path| above.canonicalize().ok().zip(path.strip_prefix(above).ok().map(Path::to_owned));
    let (mut whole, missing) = path.ancestors().find_map(existing)?;
    for component in missing.components() {
        match component {
            Component::ParentDir => {
                whole.pop();
            }
            _ => whole.push(component),
        }
    }
    // Components after `..` may be existing directories or links.
    let has_steps_up = missing.components().any(|component| component == Component::ParentDir);
    if has_steps_up { resolved(&whole) } else { Some(whole) }
}

impl Repaired {
    fn of(args: &RepairArgs, report: &RepairReport) -> Repaired {
        let runs = report.unreadable.iter().map(|run| Run { first_lba: run.start.0, blocks: run.end.0 - run.start.0 });
        let zones = report.zones.iter().map(|zone| Zone {
            zone: zone.zone.0,
            blocks_copied: zone.copied_blocks,
            blocks_unreadable: zone.unreadable_blocks,
            doubt: zone.doubt.map(|doubt| doubt.to_string()),
        });
        Repaired {
            directory: args.directory.display().to_string(),
            to: args.to.display().to_string(),
            is_complete: report.unreadable_blocks == 0 && report.damage.is_empty(),
            damage: report.damage.clone(),
            journal_records: report.journal_records,
            blocks_copied: report.copied_blocks,
            blocks_accepted: report.accepted_blocks,
            blocks_unreadable: report.unreadable_blocks,
            unreadable: runs.collect(),
            more_unreadable_blocks: report.more_unreadable_blocks,
            zones: zones.collect(),
            zones_finished: report.finished_zones.iter().map(|zone| zone.0).collect(),
        }
    }

    fn in_words(&self, screen: Screen) -> String {
        let unreadable = match self.blocks_unreadable {
            0 => "none unreadable".to_owned(),
            lost => format!("{} unreadable", units::counted(lost, "block")),
        };
        let copied = units::counted(self.blocks_copied, "block");
        let mut text =
            screen.paragraph(&format!("{}: {copied} copied to {}, {unreadable}", self.directory, self.to), 0);
        if self.blocks_accepted > 0 {
            let accepted = units::counted(self.blocks_accepted, "block");
            let words = format!(
                "{accepted} of these had a write in flight when the drive stopped and were copied without verification"
            );
            text += &screen.paragraph(&words, 0);
        }
        if !self.zones_finished.is_empty() {
            let zones = units::counted(self.zones_finished.len() as u64, "zone");
            text +=
                &screen.paragraph(&format!("{zones} were finished, because the limit on active zones was reached"), 0);
        }
        if !self.damage.is_empty() {
            text += "\nDamage\n";
            self.damage.iter().for_each(|damage| text += &screen.paragraph(damage, 2));
        }
        let zones: Vec<&Zone> =
            self.zones.iter().filter(|zone| zone.blocks_unreadable > 0 || zone.doubt.is_some()).collect();
        let mut table = Table::new(&[">zone", ">copied", ">unreadable blocks", "uncertainty"]);
        for zone in zones.iter().take(LINES_MAX) {
            let (copied, lost) = (units::count(zone.blocks_copied), units::count(zone.blocks_unreadable));
            table.row(&[zone.zone.to_string(), copied, lost, zone.doubt.clone().unwrap_or_default()]);
        }
        if !table.is_empty() {
            text += &format!("\n{}", table.render(screen, 2));
            text += &more((zones.len().saturating_sub(LINES_MAX)) as u64, "zone");
        }
        let mut table = Table::new(&[">first block", ">last block", ">unreadable blocks"]);
        for Run { first_lba, blocks } in self.unreadable.iter().take(LINES_MAX) {
            table.row(&[first_lba.to_string(), (first_lba + blocks - 1).to_string(), units::count(*blocks)]);
        }
        if !table.is_empty() {
            let behind: u64 = self.unreadable.iter().skip(LINES_MAX).map(|run| run.blocks).sum();
            text += &format!("\n{}", table.render(screen, 2));
            text += &more(behind + self.more_unreadable_blocks, "block");
        }
        text
    }
}

/// A line about rows that a table leaves out.
fn more(left_out: u64, what: &str) -> String {
    if left_out == 0 { String::new() } else { format!("  and {} more\n", units::counted(left_out, what)) }
}
