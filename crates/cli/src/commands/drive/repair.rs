//! `zonda drive repair`: what can be read of a damaged image, in a new one.

use std::path::{Component, Path, PathBuf};

use clap::Args;
use serde::Serialize;
use zonda_devices::repair_image;
use zonda_image::RepairReport;

use crate::commands::connect;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::progress::Progress;
use crate::table::Table;
use crate::units;

pub(crate) const LONG_ABOUT: &str = "Copies what can be read of a damaged image into a new one

For an image that zonda refuses to open: a file was cut short, or checkpoint or journal are damaged, and there is no copy. \
Every block whose checksum fits is copied with its metadata; the damaged image is read and not changed. A block that does not fit, \
where one was or may have been written, cannot be read in the new image either: reads of it fail until it is written again or \
its zone is reset. It never reads as zeros.

Zone states, extensions, counters and reservations are kept as far as they are known. Where resets are not known, a zone has \
the newest blocks that verify, and the report says so. The new image has a UUID of its own, and the wear of its storage elements \
begins anew.

Exit code 0 if every block was copied, 1 if some cannot be read, or files were damaged so that something newer may be missing, 2 if nothing could be done: one good copy of the \
superblock in image.zonda is needed. No server may have the image.";

const EXAMPLES: &str = "Examples:
  zonda drive check drives/a                  says what is wrong
  zonda drive repair drives/a --to drives/b
  zonda drive repair drives/a --to drives/b --json | jq '.unreadable'
  zonda drive check drives/b                  lists each block that cannot be read";

/// Lines of a table in the text; --json has more.
const LINES_MAX: usize = 40;

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct RepairArgs {
    /// The directory of the damaged image
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The directory of the new image, which must be empty or not there, and outside of DIR
    #[arg(long, value_name = "OTHER")]
    to: PathBuf,
    /// Prints one JSON object, and nothing else
    #[arg(long)]
    json: bool,
    /// Shows no progress
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
    /// What is damaged, and what follows from it; empty if the image can be opened.
    damage: Vec<String>,
    journal_records: u64,
    blocks_copied: u64,
    /// Of these, blocks that were being overwritten, and are taken as they are.
    blocks_accepted: u64,
    blocks_unreadable: u64,
    unreadable: Vec<Run>,
    /// Unreadable blocks that `unreadable` does not list.
    more_unreadable_blocks: u64,
    /// Zones that hold something.
    zones: Vec<Zone>,
    /// Zones that became full, because no active resource was left for them.
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
    /// What is not known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt: Option<String>,
}

pub(super) fn run(args: &RepairArgs) -> Result<(), Failure> {
    refuse_nested(&args.directory, &args.to)?;
    let mut bar = Progress::new(args.quiet);
    let report = repair_image(&args.directory, &args.to, &mut |progress| {
        bar.show(Some(f64::from(progress.zones) / f64::from(progress.zones_total.max(1))), || {
            format!("zone {} of {}, {}", progress.zones, progress.zones_total, units::counted(progress.blocks, "block"))
        });
    });
    bar.finish();
    let report = report.map_err(connect::failure)?;
    let repaired = Repaired::of(args, &report);
    if args.json {
        print_json(&repaired)?;
    } else {
        print(&repaired.in_words(Screen::of_stdout()))?;
    }
    if repaired.is_complete { Ok(()) } else { Err(Failure::Run) }
}

/// Nothing is written into the directory of the damaged image, and it is no part of the new one.
fn refuse_nested(damaged: &Path, new: &Path) -> Result<(), Failure> {
    // What cannot be resolved cannot be opened either, and that is said in its place.
    let (Some(resolved_damaged), Some(resolved_new)) = (resolved(damaged), resolved(new)) else { return Ok(()) };
    let (shown, to) = (damaged.display(), new.display());
    let why = if resolved_new == resolved_damaged {
        "that is the directory of the damaged image".to_owned()
    } else if resolved_new.starts_with(&resolved_damaged) {
        format!("it lies within the directory of the damaged image, {shown}")
    } else if resolved_damaged.starts_with(&resolved_new) {
        format!("the damaged image, {shown}, lies within it")
    } else {
        return Ok(());
    };
    Err(Failure::input(format!("cannot write the new image to {to}: {why}"), "choose a directory beside it for --to"))
}

/// The path without links and dots, also where its last directories do not exist yet.
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
    // Behind a step up there may be directories that exist, and links.
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
            0 => "and none is lost".to_owned(),
            lost => format!("{} cannot be read", units::counted(lost, "block")),
        };
        let copied = units::counted(self.blocks_copied, "block");
        let mut text =
            screen.paragraph(&format!("{}: {copied} copied to {}, {unreadable}", self.directory, self.to), 0);
        if self.blocks_accepted > 0 {
            let accepted = units::counted(self.blocks_accepted, "block");
            let words =
                format!("{accepted} may have been overwritten when the drive stopped, and are taken as they are");
            text += &screen.paragraph(&words, 0);
        }
        if !self.zones_finished.is_empty() {
            let zones = units::counted(self.zones_finished.len() as u64, "zone");
            text += &screen.paragraph(&format!("{zones} became full: no active resource was left for them"), 0);
        }
        if !self.damage.is_empty() {
            text += "\nWhat was damaged\n";
            self.damage.iter().for_each(|damage| text += &screen.paragraph(damage, 2));
        }
        let zones: Vec<&Zone> =
            self.zones.iter().filter(|zone| zone.blocks_unreadable > 0 || zone.doubt.is_some()).collect();
        let mut table = Table::new(&[">zone", ">copied", ">unreadable", "what is not known"]);
        for zone in zones.iter().take(LINES_MAX) {
            let (copied, lost) = (units::count(zone.blocks_copied), units::count(zone.blocks_unreadable));
            table.row(&[zone.zone.to_string(), copied, lost, zone.doubt.clone().unwrap_or_default()]);
        }
        if !table.is_empty() {
            text += &format!("\n{}", table.render(screen, 2));
            text += &more((zones.len().saturating_sub(LINES_MAX)) as u64, "zone");
        }
        let mut table = Table::new(&[">first block", ">last", ">unreadable"]);
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

/// What a table leaves out.
fn more(left_out: u64, what: &str) -> String {
    if left_out == 0 { String::new() } else { format!("  and {} more\n", units::counted(left_out, what)) }
}
