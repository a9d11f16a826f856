//! `zonda volume check`: verifies a volume without writing.

use std::path::{Path, PathBuf};

use clap::Args;
use zonda_devices::{CheckReport, shown_place};

use super::{reach, show};
use crate::commands::connect;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::progress::Progress;
use crate::table::Table;
use crate::units;

pub(super) const LONG_ABOUT: &str = "Verify a volume that is not in use: read every block of every member and check its checksum, and the \
parity of every stripe, as zonda volume scrub does, and every superblock. Nothing is written: writes of assembling and of repairs stay in memory, up to \
1 GiB for each member. Members must be images or drives of this machine, which are opened read-only; a member that is being rebuilt is not read.

The number of blocks read includes superblocks, headers and footers of all members read; zonda volume scrub counts the blocks of \
stripes only.

The exit code is 0 if all blocks read are correct, 1 if blocks are damaged, unreadable or lost, or the volume cannot be assembled.";

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Directory of the volume
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CheckArgs) -> Result<(), Failure> {
    reach::must_not_be_served(&args.directory)?;
    let mut progress = Progress::new(args.json);
    let checked = CheckReport::of(&args.directory, &mut |part| {
        let share = f64::from(part.done) / f64::from(part.all.max(1));
        progress.show(Some(share), || format!("check: {} of {} segments", part.done, part.all));
    });
    progress.finish();
    let mut report = checked.map_err(connect::failure)?;
    if let Some((_, help)) = &mut report.refusal {
        *help = reach::fitting(&args.directory, help);
    }
    if args.json {
        print_json(&report)?;
    } else {
        print(&text(&report, &args.directory, Screen::of_stdout()))?;
    }
    if report.is_healthy() { Ok(()) } else { Err(Failure::Run) }
}

fn text(report: &CheckReport, directory: &Path, screen: Screen) -> String {
    let is_whole = report.members.iter().all(|member| member.state == "active");
    let state = if report.refusal.is_some() {
        screen.styled("1;31", "cannot be assembled")
    } else if report.lost_blocks > 0 {
        screen.styled("1;31", "data lost")
    } else if report.wrong_blocks + report.unreadable_blocks + report.damaged_superblocks > 0 {
        screen.styled("1;33", "damaged")
    } else if !is_whole {
        screen.styled("1;33", "degraded")
    } else {
        screen.styled("32", "healthy")
    };
    let scheme = if report.scheme.is_empty() { String::new() } else { format!("{}, ", report.scheme) };
    let mut text = format!("{}  {scheme}{state}; nothing was written\n", screen.bold(&report.name));
    match &report.refusal {
        Some((message, help)) => {
            text += &screen.paragraph(message, 2);
            text += &screen.paragraph(&format!("help: {help}"), 2);
        }
        None => {
            text += &format!(
                "  blocks     {} read, {} damaged, {} unreadable, {} lost\n",
                units::count(report.blocks),
                units::count(report.wrong_blocks),
                units::count(report.unreadable_blocks),
                units::count(report.lost_blocks)
            );
        }
    }
    if report.damaged_superblocks > 0 {
        text += &format!("  superblocks {} damaged\n", units::count(report.damaged_superblocks));
    }
    if report.wrong_blocks + report.damaged_superblocks > 0 {
        text += "  zonda volume scrub repairs damaged blocks, and writes new superblocks\n";
    }
    if report.superseded_superblocks > 0 {
        let blocks = units::counted(report.superseded_superblocks, "damaged block");
        let note =
            format!("{blocks} of older superblocks, which are not read any more (zonda drive check reports them)");
        text += &screen.paragraph(&note, 2);
    }
    let mut table = Table::new(&[">member", "location", "state"]);
    for member in &report.members {
        table.row(&[member.member.to_string(), shown_place(directory, &member.at), member.state.clone()]);
    }
    text += &format!("\n{}", table.render(screen, 2));
    if !report.lost.is_empty() {
        text += &format!("\n{}", show::lost(&report.lost, screen));
    }
    text
}
