//! What an operator asks of a volume that is there.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use zonda_devices::{LostRange, Notice, RateLimit, VolumeReport, VolumeRequest, VolumeState};

use super::reach::{self, Reached};
use super::{show, watch};
use crate::commands::connect::CredentialArgs;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};

pub(super) const STATUS_LONG_ABOUT: &str = "Shows a volume: how it is, its members and spares, its space, a rebuild or a scrub under way.

A volume that a server on this machine has is asked there. Of one that no program uses the superblocks of its members are read: it is not \
mounted, and nothing is written, also with --wait: a rebuild continues only while a server has the volume. With --wait --mount it is \
mounted here, as zonda serve does it: a rebuild continues, and a spare takes the place of a member that is missing.

State \"data lost\" says that blocks are lost: reads of them fail until they are written or trimmed, all others are as they should be. \
--lost lists them; the byte offset is that in the export, as dd takes it with iflag=skip_bytes.

The exit code is 1 if the volume is lost, blocks of it are lost, its I/O is suspended, or a mount would be refused.";

pub(super) const SCRUB_LONG_ABOUT: &str =
    "Reads every block of every member, compares it with its checksum, and parity with the data. What is wrong is \
written anew out of the rest of its stripe.

The exit code is 1 if a block is lost, or the volume is.";

pub(super) const RATES_LONG_ABOUT: &str = "Limits how fast a volume rebuilds and scrubs, from now on. Rates that are not named stay as they are; \
without any the rates are shown.";

pub(super) const READD_LONG_ABOUT: &str = "Takes a member back that has failed, with what it holds. Zones that were complete before it failed \
are taken over; only what it missed is written to it. Until that has ended the member is rebuilding.

A member that was lost comes back by itself when it answers again, or when the volume is started with it; one that was failed by command, \
or for flapping, does so only by this command. A drive that was wiped, belongs to another volume, or was written to without the others \
after it had failed is refused, and nothing is written to it: zonda member replace takes it, wiped.";

/// Which volume, and how it is answered.
#[derive(Debug, Args)]
pub(crate) struct PlaceArgs {
    /// The directory of the volume
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Prints one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Lists the blocks that are lost: logical block, number of blocks, byte offset in the export
    #[arg(long)]
    lost: bool,
    /// Waits until a rebuild or a scrub has ended, with a progress bar
    #[arg(long)]
    wait: bool,
    /// Mounts a volume that no server has: a rebuild continues, and a spare takes the place of a member that is missing
    #[arg(long, requires = "wait")]
    mount: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScrubArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Begins it and does not wait; a server must have the volume
    #[arg(long)]
    detach: bool,
    /// Ends a scrub where it is
    #[arg(long, conflicts_with = "detach")]
    stop: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RatesArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// What a rebuild writes at most, like 200MiB/s; default: as fast as members are
    #[arg(long, value_name = "RATE|default", value_parser = rate_limit)]
    rebuild: Option<RateLimit>,
    /// What a scrub reads at most; default: 64MiB/s
    #[arg(long, value_name = "RATE|default", value_parser = rate_limit)]
    scrub: Option<RateLimit>,
}

fn rate_limit(text: &str) -> Result<RateLimit, zonda_config::ConfigError> {
    if text == "default" { Ok(RateLimit::Default) } else { text.parse().map(RateLimit::AtMost) }
}

#[derive(Debug, Subcommand)]
pub(crate) enum SpareCommand {
    /// Adds a drive that takes the place of a member that fails
    Add(AddSpareArgs),
    /// Takes a spare away
    Remove(SpareArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SpareArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// The drive: the directory of an image, or an nvme-tcp:// URL
    #[arg(value_name = "DIR|URL")]
    spare: String,
    /// Takes it though it holds something, which is then lost
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AddSpareArgs {
    #[command(flatten)]
    spare: SpareArgs,
    #[command(flatten)]
    credentials: CredentialArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FailArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Its number, where it is, or the last part of that: b of drives/b, and of nvme-tcp://HOST/NQN:b
    member: String,
}

#[derive(Debug, Args)]
pub(crate) struct ReaddArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Its number, where it is, or the last part of that: b of drives/b, and of nvme-tcp://HOST/NQN:b
    member: String,
    /// Does not wait until it is caught up; a server must have the volume
    #[arg(long)]
    detach: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReplaceArgs {
    #[command(flatten)]
    place: PlaceArgs,
    /// Its number, where it was, or the last part of that: b of drives/b, and of nvme-tcp://HOST/NQN:b
    member: String,
    /// The drive that takes its place: the directory of an image, or an nvme-tcp:// URL
    #[arg(long, value_name = "DIR|URL")]
    with: String,
    /// Takes it though it holds something, which is then lost
    #[arg(long)]
    force: bool,
    /// Does not wait for the rebuild; a server must have the volume
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    credentials: CredentialArgs,
}

pub(super) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let mut looked = if args.mount { None } else { Some(reach::look(&args.place.directory)?) };
    if args.wait {
        looked = looked.filter(|report| !report.mounted);
        if looked.as_ref().is_some_and(|report| report.state == VolumeState::Rebuilding) {
            let message = "no server has the volume, and so its rebuild does not continue";
            return Err(Failure::input(message, "serve the volume: zonda serve DIR; or mount it here: --wait --mount"));
        }
    }
    if let Some(mut report) = looked {
        if args.lost {
            report.lost = Some(reach::lost(&args.place.directory)?);
        }
        if args.place.json && report.mounted {
            print_json(&report)?;
        } else if args.place.json {
            print_json(&show::known(&report))?;
        } else {
            print(&with_lost(&report, Screen::of_stdout()))?;
        }
        return must_not_be_lost(&report);
    }
    let mut reached = Reached::open(&args.place.directory)?;
    watch::until_at_rest(&mut reached, args.place.json)?;
    let lost = if args.lost { Some(reached.lost()?) } else { None };
    let report = finish_with(reached, &args.place, true, lost)?;
    must_not_be_lost(&report)
}

pub(super) fn scrub(args: &ScrubArgs) -> Result<(), Failure> {
    let mut reached = Reached::open_as_it_is(&args.place.directory)?;
    if args.stop {
        reached.ask(&VolumeRequest::StopScrub)?;
        return finish(reached, &args.place).map(drop);
    }
    must_be_served(&reached, args.detach, "a scrub")?;
    reached.ask(&VolumeRequest::Scrub)?;
    if !args.detach {
        watch::until_at_rest(&mut reached, args.place.json)?;
    }
    let report = finish(reached, &args.place)?;
    match report.last_scrub {
        Some(scrub) if scrub.lost > 0 => Err(Failure::Run),
        _ => must_not_be_lost(&report),
    }
}

pub(super) fn rates(args: &RatesArgs) -> Result<(), Failure> {
    let report = if args.rebuild.is_none() && args.scrub.is_none() {
        reach::look(&args.place.directory)?
    } else {
        let mut reached = Reached::open_as_it_is(&args.place.directory)?;
        let asked = reached.ask(&VolumeRequest::Rates { rebuild: args.rebuild, scrub: args.scrub });
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
        SpareCommand::Add(AddSpareArgs { spare: args, credentials }) => {
            let credentials = credentials.credentials()?;
            let spare = seen_from_anywhere(&args.spare);
            simply(&args.place, &VolumeRequest::AddSpare { spare, may_wipe: args.force, credentials })
        }
        SpareCommand::Remove(args) => simply(&args.place, &VolumeRequest::RemoveSpare { spare: args.spare.clone() }),
    }
}

pub(super) fn fail(args: &FailArgs) -> Result<(), Failure> {
    simply(&args.place, &VolumeRequest::Fail { member: args.member.clone() })
}

pub(super) fn readd(args: &ReaddArgs) -> Result<(), Failure> {
    let mut reached = Reached::open_as_it_is(&args.place.directory)?;
    must_be_served(&reached, args.detach, "catching it up")?;
    reached.ask(&VolumeRequest::Readd { member: args.member.clone() })?;
    if !args.detach {
        watch::until_at_rest(&mut reached, args.place.json)?;
    }
    let report = finish(reached, &args.place)?;
    must_not_be_lost(&report)
}

pub(super) fn replace(args: &ReplaceArgs) -> Result<(), Failure> {
    let credentials = args.credentials.credentials()?;
    let mut reached = Reached::open_as_it_is(&args.place.directory)?;
    must_be_served(&reached, args.detach, "a rebuild")?;
    let with = seen_from_anywhere(&args.with);
    reached.ask(&VolumeRequest::Replace { member: args.member.clone(), with, may_wipe: args.force, credentials })?;
    if !args.detach {
        watch::until_at_rest(&mut reached, args.place.json)?;
    }
    let report = finish(reached, &args.place)?;
    must_not_be_lost(&report)
}

/// The volume, and its lost blocks where they were asked for.
fn with_lost(report: &VolumeReport, screen: Screen) -> String {
    let lost = report.lost.as_ref().map(|lost| format!("\n{}", show::lost(lost, screen)));
    show::text(report, screen) + &lost.unwrap_or_default()
}

/// A command that ends with a lost volume has failed.
fn must_not_be_lost(report: &VolumeReport) -> Result<(), Failure> {
    match report.state {
        VolumeState::Lost
        | VolumeState::TakenOver
        | VolumeState::DataLost
        | VolumeState::Suspended
        | VolumeState::Incomplete => Err(Failure::Run),
        _ => Ok(()),
    }
}

fn must_be_served(reached: &Reached, detach: bool, what: &str) -> Result<(), Failure> {
    if detach && !reached.is_served() {
        let help = "leave --detach out, or serve the volume: zonda serve DIR";
        return Err(Failure::input(format!("nobody would go on with {what}: no server has the volume"), help));
    }
    Ok(())
}

fn simply(place: &PlaceArgs, request: &VolumeRequest) -> Result<(), Failure> {
    let mut reached = Reached::open_as_it_is(&place.directory)?;
    let asked = reached.ask(request);
    let finished = finish_with(reached, place, asked.is_ok(), None);
    asked?;
    finished.map(drop)
}

fn finish(reached: Reached, place: &PlaceArgs) -> Result<VolumeReport, Failure> {
    finish_with(reached, place, true, None)
}

/// Lets go of the volume, and shows how it is.
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
        print(&(notices + &with_lost(&report, Screen::of_stdout())))?;
    }
    Ok(report)
}

/// A server may run in another directory.
fn seen_from_anywhere(text: &str) -> String {
    if text.contains("://") {
        return text.to_owned();
    }
    std::path::absolute(Path::new(text)).map_or_else(|_| text.to_owned(), |path| path.display().to_string())
}
