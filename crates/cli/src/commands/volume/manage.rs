//! Management of existing volumes: status, scrub, rates, spares and members.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use zonda_devices::{LostRange, Notice, RateLimit, VolumeReport, VolumeRequest, VolumeState};

use super::reach::{self, Reached};
use super::{failed, show, watch};
use crate::commands::connect::CredentialArgs;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::remedies;

pub(super) const STATUS_LONG_ABOUT: &str = "Show the state of a volume: its members and spares, its space, and the progress of a rebuild or scrub.

If a server on this machine serves the volume, it reports the state. If the volume is not in use, the superblocks of its members \
are read, and nothing is assembled or written, also with --wait: a rebuild continues only while the volume is served. --wait \
--assemble assembles the volume in this process, as zonda serve does: a rebuild continues, and a spare replaces a missing member.

The epoch of a volume that is not in use increases each time it is assembled or its members change, as the event count of mdadm \
does; a member with an older epoch is out of date.

Members are active, failed, missing, rebuilding, joining (a drive that is wiped before it is rebuilt), returning (a member that is \
verified before it is re-added), or suspended (I/O waits for it).

The owner epoch in messages counts how often servers have acquired the remote members of a volume: of two owners, the one with the \
higher owner epoch is the newer.

A segment is one zone of each member, written and reclaimed together. Free segments hold no data.

In state \"data lost\", reads of lost blocks fail until the blocks are written or trimmed; all other blocks are intact. --lost lists \
the lost blocks, with their byte offset in the export as dd uses it with iflag=skip_bytes.

Only the superblocks of a volume that is not in use are read: damage to its data that makes zonda serve refuse it is not shown. \
zonda volume check finds it.

The exit code is 1 if the volume has failed, blocks are lost, I/O is suspended, or the superblocks show that the volume \
cannot be assembled.";

pub(super) const SCRUB_LONG_ABOUT: &str =
    "Read every block of every stripe, header and footer, check its checksum, and the parity of every stripe. Damaged blocks are \
reconstructed from their stripes and rewritten. The superblocks are rewritten; zonda volume check reads and verifies them.

The exit code is 1 if a block is lost or the volume has failed.";

pub(super) const RATES_LONG_ABOUT: &str = "Set the maximum rates of rebuild and scrub. Rates that are not given do not change; without any, show \
the rates.";

pub(super) const READD_LONG_ABOUT: &str = "Add a failed member to the volume again, and keep its data. Zones that were full and \
had their footer (a table of the zone's blocks) before it failed are kept; only the rest is copied. The member is in state rebuilding until that is complete.

A member that was lost is added again automatically when it responds, or when the volume is assembled with it. A member that was \
failed by command or for flapping needs this command. Drives that were wiped, belong to another volume, or were written to after \
they failed are refused without changes: use zonda member replace, which wipes them.";

/// The volume, and the format of the output.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Directory of the volume
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// List lost blocks: LBA, number of blocks, byte offset in the export
    #[arg(long)]
    lost: bool,
    /// Wait until a rebuild or scrub completes, and show a progress bar
    #[arg(long)]
    wait: bool,
    /// Assemble the volume if it is not in use: a rebuild continues, and a spare replaces a missing
    /// member
    #[arg(long, alias = "mount", requires = "wait")]
    assemble: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScrubArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Start the scrub and do not wait; the volume must be in use by a server
    #[arg(long)]
    detach: bool,
    /// Stop a scrub in progress
    #[arg(long, conflicts_with = "detach")]
    stop: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RatesArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Maximum write rate of a rebuild, such as 200MiB/s; default: unlimited
    #[arg(long, value_name = "RATE|default", value_parser = rate_limit)]
    rebuild: Option<RateLimit>,
    /// Maximum read rate of a scrub; default: 64MiB/s
    #[arg(long, value_name = "RATE|default", value_parser = rate_limit)]
    scrub: Option<RateLimit>,
}

fn rate_limit(text: &str) -> Result<RateLimit, zonda_config::ConfigError> {
    if text == "default" { Ok(RateLimit::Default) } else { text.parse().map(RateLimit::AtMost) }
}

#[derive(Debug, Subcommand)]
pub(crate) enum SpareCommand {
    /// Add a spare drive, which replaces a failed member
    Add(AddSpareArgs),
    /// Remove a spare drive
    Remove(SpareArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SpareArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Spare drive: the directory of an image, or an nvme-tcp:// URL
    #[arg(value_name = "DIR|DEVICE|URL")]
    spare: String,
}

#[derive(Debug, Args)]
pub(crate) struct AddSpareArgs {
    #[command(flatten)]
    spare: SpareArgs,
    /// Wipe the drive if it holds data
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    credentials: CredentialArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FailArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Member: number, location, or short name (b for drives/b and for nvme-tcp://HOST/NQN:b)
    member: String,
}

#[derive(Debug, Args)]
pub(crate) struct ReaddArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Member: number, location, or short name (b for drives/b and for nvme-tcp://HOST/NQN:b)
    member: String,
    /// Do not wait until the member is in sync; the volume must be in use by a server
    #[arg(long)]
    detach: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplaceArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Member: number, location, or short name (b for drives/b and for nvme-tcp://HOST/NQN:b)
    member: String,
    /// Replacement drive: the directory of an image, or an nvme-tcp:// URL
    #[arg(long, value_name = "DIR|DEVICE|URL")]
    with: String,
    /// Wipe the drive if it holds data
    #[arg(long)]
    force: bool,
    /// Do not wait for the rebuild; the volume must be in use by a server
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    credentials: CredentialArgs,
}

pub(super) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let mut inspected = if args.assemble { None } else { Some(reach::inspect(&args.place.directory)?) };
    if args.wait {
        inspected = inspected.filter(|report| !report.mounted);
        if inspected.as_ref().is_some_and(|report| report.state == VolumeState::Rebuilding) {
            let message = "the volume is not served, so its rebuild makes no progress";
            return Err(Failure::input(
                message,
                remedies::in_directory(
                    "serve the volume with zonda serve DIR, or assemble it: zonda volume status DIR --wait --assemble",
                    &args.place.directory,
                ),
            ));
        }
    }
    if let Some(mut report) = inspected {
        if args.lost {
            report.lost = Some(reach::lost(&args.place.directory)?);
        }
        if args.place.json && report.mounted {
            print_json(&report)?;
        } else if args.place.json {
            print_json(&show::known(&report))?;
        } else {
            print(&with_lost(&report, &args.place.directory, Screen::of_stdout()))?;
        }
        return check_health(&report);
    }
    let mut reached = Reached::open(&args.place.directory)?;
    watch::until_idle(&mut reached, &args.place.directory, args.place.json)?;
    let lost = if args.lost { Some(reached.lost()?) } else { None };
    let report = finish_with(reached, &args.place, true, lost)?;
    check_health(&report)
}

pub(super) fn scrub(args: &ScrubArgs) -> Result<(), Failure> {
    let directory = &args.place.directory;
    if args.stop {
        return stop_scrub(&args.place);
    }
    require_server(directory, args.detach, "a scrub")?;
    let mut reached = Reached::open_for(directory, &VolumeRequest::Scrub, &[])?;
    reached.ask(&VolumeRequest::Scrub)?;
    if !args.detach {
        watch::until_idle(&mut reached, &args.place.directory, args.place.json)?;
    }
    let report = finish(reached, &args.place)?;
    match report.last_scrub {
        Some(scrub) if scrub.lost > 0 => Err(Failure::Run),
        _ => check_health(&report),
    }
}

/// Stops the scrub in progress. Only a volume that is served can have one.
fn stop_scrub(place: &PlaceArgs) -> Result<(), Failure> {
    if !reach::is_served(&place.directory)? {
        let report = reach::inspect(&place.directory)?;
        if place.json {
            return print_json(&show::known(&report));
        }
        return print(&(show::text(&report, &place.directory, Screen::of_stdout()) + "\nno scrub was in progress\n"));
    }
    let mut reached = Reached::open_for(&place.directory, &VolumeRequest::StopScrub, &[])?;
    let was_running = reached.ask(&VolumeRequest::Report)?.scrub.is_some();
    reached.ask(&VolumeRequest::StopScrub)?;
    finish(reached, place)?;
    if !place.json {
        print(if was_running { "\nscrub stopped\n" } else { "\nno scrub was in progress\n" })?;
    }
    Ok(())
}

pub(super) fn rates(args: &RatesArgs) -> Result<(), Failure> {
    let report = if args.rebuild.is_none() && args.scrub.is_none() {
        reach::inspect(&args.place.directory)?
    } else {
        let request = VolumeRequest::Rates { rebuild: args.rebuild, scrub: args.scrub };
        let mut reached = Reached::open_for(&args.place.directory, &request, &[])?;
        let asked = reached.ask(&request);
        let finished = reached.finish();
        asked?;
        finished?
    };
    if args.place.json {
        return print_json(&report.rates);
    }
    print(&show::rates(&report, Screen::of_stdout()))
}

pub(super) fn spare(command: &SpareCommand) -> Result<(), Failure> {
    match command {
        SpareCommand::Add(AddSpareArgs { spare: args, force, credentials }) => {
            let credentials = credentials.credentials()?;
            let spare = absolute_location(&args.spare);
            request_with(&args.place, &VolumeRequest::AddSpare { spare, may_wipe: *force, credentials }, given(*force))
        }
        SpareCommand::Remove(args) => request(&args.place, &VolumeRequest::RemoveSpare { spare: args.spare.clone() }),
    }
}

pub(super) fn fail(args: &FailArgs) -> Result<(), Failure> {
    let (place, request) = (&args.place, VolumeRequest::Fail { member: args.member.clone() });
    let mut reached = Reached::open_for(&place.directory, &request, &[])?;
    let before = reached.ask(&VolumeRequest::Report)?;
    let asked = reached.ask(&request);
    let is_served = matches!(reached, Reached::Served(_));
    let finished = finish_with(reached, place, asked.is_ok(), None);
    asked?;
    let next = failed::next(&before, &finished?, &place.directory, is_served);
    if place.json || next.is_empty() { Ok(()) } else { print(&format!("\n{next}")) }
}

pub(super) fn readd(args: &ReaddArgs) -> Result<(), Failure> {
    require_server(&args.place.directory, args.detach, "catching it up")?;
    let request = VolumeRequest::Readd { member: args.member.clone() };
    let mut reached = Reached::open_for(&args.place.directory, &request, &[])?;
    reached.ask(&request)?;
    if !args.detach {
        watch::until_idle(&mut reached, &args.place.directory, args.place.json)?;
    }
    let report = finish(reached, &args.place)?;
    check_health(&report)
}

pub(super) fn replace(args: &ReplaceArgs) -> Result<(), Failure> {
    let credentials = args.credentials.credentials()?;
    require_server(&args.place.directory, args.detach, "a rebuild")?;
    let with = absolute_location(&args.with);
    let request = VolumeRequest::Replace { member: args.member.clone(), with, may_wipe: args.force, credentials };
    let mut reached = Reached::open_for(&args.place.directory, &request, given(args.force))?;
    reached.ask_with(&request, given(args.force))?;
    if !args.detach {
        watch::until_idle(&mut reached, &args.place.directory, args.place.json)?;
    }
    let report = finish(reached, &args.place)?;
    check_health(&report)
}

/// The state of the volume, with its lost blocks if requested.
fn with_lost(report: &VolumeReport, directory: &Path, screen: Screen) -> String {
    let lost = report.lost.as_ref().map(|lost| format!("\n{}", show::lost(lost, screen)));
    show::text(report, directory, screen) + &lost.unwrap_or_default()
}

/// Fails if the volume has failed, has lost data, is suspended, or cannot be assembled.
fn check_health(report: &VolumeReport) -> Result<(), Failure> {
    match report.state {
        VolumeState::Lost
        | VolumeState::TakenOver
        | VolumeState::DataLost
        | VolumeState::Suspended
        | VolumeState::Incomplete => Err(Failure::Run),
        _ => Ok(()),
    }
}

fn require_server(directory: &Path, detach: bool, what: &str) -> Result<(), Failure> {
    if !detach || reach::is_served(directory)? {
        return Ok(());
    }
    let help = remedies::in_directory("omit --detach, or serve the volume with zonda serve DIR", directory);
    Err(Failure::input(format!("{what} cannot run in the background: the volume is not served"), help))
}

/// The options that a remedy must not repeat.
fn given(force: bool) -> &'static [&'static str] {
    if force { &["--force"] } else { &[] }
}

fn request(place: &PlaceArgs, request: &VolumeRequest) -> Result<(), Failure> {
    request_with(place, request, &[])
}

fn request_with(place: &PlaceArgs, request: &VolumeRequest, given: &[&str]) -> Result<(), Failure> {
    let mut reached = Reached::open_for(&place.directory, request, given)?;
    let asked = reached.ask_with(request, given);
    let finished = finish_with(reached, place, asked.is_ok(), None);
    asked?;
    finished.map(drop)
}

fn finish(reached: Reached, place: &PlaceArgs) -> Result<VolumeReport, Failure> {
    finish_with(reached, place, true, None)
}

/// Closes the volume, and shows its state.
fn finish_with(
    mut reached: Reached,
    place: &PlaceArgs,
    shows: bool,
    lost: Option<Vec<LostRange>>,
) -> Result<VolumeReport, Failure> {
    let notices = reached.notices();
    let report = VolumeReport { lost, ..reached.finish()? };
    if place.json && shows {
        print_json(&report)?;
    } else if shows {
        let notices: String = notices.iter().map(|Notice { text, .. }| format!("{text}\n")).collect();
        print(&(notices + &with_lost(&report, &place.directory, Screen::of_stdout())))?;
    }
    Ok(report)
}

/// An absolute path, for a server that runs in another directory.
fn absolute_location(text: &str) -> String {
    if text.contains("://") {
        return text.to_owned();
    }
    std::path::absolute(Path::new(text)).map_or_else(|_| text.to_owned(), |path| path.display().to_string())
}
