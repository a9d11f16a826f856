//! `zonda volume`: redundant volumes of several zoned drives; `zonda member`: the members of a
//! volume.

mod check;
mod create;
mod failed;
mod import;
mod manage;
pub(crate) mod reach;
pub(crate) mod show;
pub(crate) mod takeover;
mod watch;

use clap::Subcommand;

use crate::errors::Failure;

pub(crate) const LONG_ABOUT: &str = "Create and manage volumes of several zoned drives. A volume is a conventional drive that supports random \
writes, with a checksum for every block, and parity or copies according to its RAID level.

A volume is a directory with the locations of its members: images (zonda drive create) and namespaces of servers. zonda serve \
exports it over NVMe/TCP and NBD; zonda bench --target measures it. All commands work on volumes that a server on this machine \
uses, and on volumes that are not in use, unless stated otherwise.";

pub(crate) const MEMBER_LONG_ABOUT: &str = "Fail, re-add or replace members of a volume. A member is given by its number, its location (as shown by \
zonda volume status), or a short name: the last component of a path, or the part of an NQN after the last colon, such as b for \
nvme-tcp://10.0.0.7/nqn.2026-01.io.zonda:b.";

const EXAMPLES: &str = "Examples:
  for d in a b c d e; do
      zonda drive create $d --profile zn540-zapraid --zones 64 --zone-capacity 64MiB
  done
  zonda volume create vol --members a,b,c,d --level 5 --spare e
  zonda serve vol --nbd 127.0.0.1:10809
  zonda volume status vol
  zonda member fail vol b               a spare replaces it while vol is served
  zonda volume status vol --wait        show progress until the rebuild completes
  zonda volume scrub vol
  zonda volume check vol                verify a volume that is not in use
  zonda volume import vol --scan .      recreate the directory of the volume
  zonda volume create disk --members f  use a zoned drive as a conventional drive";

#[derive(Debug, Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub(crate) enum VolumeCommand {
    /// Create a volume of zoned drives
    #[command(long_about = create::LONG_ABOUT)]
    Create(create::CreateArgs),
    /// Recreate the directory of a volume from its drives
    #[command(long_about = import::LONG_ABOUT)]
    Import(import::ImportArgs),
    /// Show the state of a volume, its members and its space
    #[command(long_about = manage::STATUS_LONG_ABOUT)]
    Status(manage::StatusArgs),
    /// Verify all blocks of a volume, and repair wrong ones
    #[command(long_about = manage::SCRUB_LONG_ABOUT)]
    Scrub(manage::ScrubArgs),
    /// Verify a volume that is not in use without writing
    #[command(long_about = check::LONG_ABOUT)]
    Check(check::CheckArgs),
    /// Show or set the maximum rates of rebuild and scrub
    #[command(long_about = manage::RATES_LONG_ABOUT)]
    Rates(manage::RatesArgs),
    /// Preempt the server of a volume that cannot be reached
    #[command(long_about = takeover::LONG_ABOUT)]
    Takeover(takeover::TakeoverArgs),
    /// Add or remove spare drives
    #[command(subcommand)]
    Spare(manage::SpareCommand),
}

const MEMBER_EXAMPLES: &str = "Examples:
  zonda member fail vol b
  zonda member re-add vol b                    copy only missed writes
  zonda member replace vol b --with drives/new
  zonda member replace vol b --with drives/b --force
                                               wipe and reuse the same drive";

#[derive(Debug, Subcommand)]
#[command(after_long_help = MEMBER_EXAMPLES)]
pub(crate) enum MemberCommand {
    /// Fail a member: stop all reads from and writes to it
    Fail(manage::FailArgs),
    /// Add a failed member again, and copy the writes that it missed
    #[command(name = "re-add", long_about = manage::READD_LONG_ABOUT)]
    Readd(manage::ReaddArgs),
    /// Replace a failed member with another drive, and rebuild it
    Replace(manage::ReplaceArgs),
}

pub(crate) fn run(command: &VolumeCommand) -> Result<(), Failure> {
    match command {
        VolumeCommand::Create(args) => create::run(args),
        VolumeCommand::Import(args) => import::run(args),
        VolumeCommand::Status(args) => manage::status(args),
        VolumeCommand::Scrub(args) => manage::scrub(args),
        VolumeCommand::Check(args) => check::run(args),
        VolumeCommand::Rates(args) => manage::rates(args),
        VolumeCommand::Takeover(args) => takeover::run(args),
        VolumeCommand::Spare(command) => manage::spare(command),
    }
}

pub(crate) fn run_member(command: &MemberCommand) -> Result<(), Failure> {
    match command {
        MemberCommand::Fail(args) => manage::fail(args),
        MemberCommand::Readd(args) => manage::readd(args),
        MemberCommand::Replace(args) => manage::replace(args),
    }
}
