//! `zonda volume`: several zoned drives as one redundant volume; `zonda member`: the drives of one.

mod check;
mod create;
mod import;
mod manage;
mod reach;
pub(crate) mod show;
mod takeover;
mod watch;

use clap::Subcommand;

use crate::errors::Failure;

pub(crate) const LONG_ABOUT: &str = "Makes one volume of several zoned drives, and looks after it. It is a conventional drive: written \
anywhere, with checksums over every block, and parity or copies as its level says.

A volume is a directory that says where its members are: images, as zonda drive create makes them, and namespaces of servers. zonda \
serve has it for hosts, over NVMe/TCP and NBD; zonda bench --target measures it. All commands here work on a volume that a server on \
this machine has, and on one that nobody uses.";

pub(crate) const MEMBER_LONG_ABOUT: &str = "Gives a member of a volume up, takes one back, or puts another drive in its place. A member is named by \
its number, by where it is (as zonda volume status shows it), or by a short name: the last part of a path, and of a URL what comes after the last \
colon of its NQN, such as b of nvme-tcp://10.0.0.7/nqn.2026-01.io.zonda:b.";

const EXAMPLES: &str = "Examples:
  for d in a b c d e; do zonda drive create drives/$d --profile zn540-zapraid --zones 64 --zone-capacity 64MiB; done
  zonda volume create vol --members drives/a,drives/b,drives/c,drives/d --level 5 --spare drives/e
  zonda serve vol --nbd 127.0.0.1:10809
  zonda volume status vol
  zonda member fail vol b                     the spare takes its place
  zonda volume status vol --wait              a bar until it is rebuilt
  zonda volume scrub vol
  zonda volume check vol                      read-only, while no server has the volume
  zonda volume import vol --scan drives       the directory of the volume is lost
  zonda volume create disk --members drives/f one zoned drive as a conventional one";

#[derive(Debug, Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub(crate) enum VolumeCommand {
    /// Makes a volume of drives
    #[command(long_about = create::LONG_ABOUT)]
    Create(create::CreateArgs),
    /// Write the directory of a volume again, by what its drives say
    #[command(long_about = import::LONG_ABOUT)]
    Import(import::ImportArgs),
    /// Shows how a volume is: its members, its space, what goes on
    #[command(long_about = manage::STATUS_LONG_ABOUT)]
    Status(manage::StatusArgs),
    /// Reads everything, compares it with its checksums and parity, and mends what is wrong
    #[command(long_about = manage::SCRUB_LONG_ABOUT)]
    Scrub(manage::ScrubArgs),
    /// Verify a volume that is not in use, without writing anything
    #[command(long_about = check::LONG_ABOUT)]
    Check(check::CheckArgs),
    /// Show or limit how fast a volume rebuilds and scrubs
    #[command(long_about = manage::RATES_LONG_ABOUT)]
    Rates(manage::RatesArgs),
    /// Preempt the server of a volume that cannot be reached
    #[command(long_about = takeover::LONG_ABOUT)]
    Takeover(takeover::TakeoverArgs),
    /// Adds a spare, or takes one away
    #[command(subcommand)]
    Spare(manage::SpareCommand),
}

const MEMBER_EXAMPLES: &str = "Examples:
  zonda member fail vol b
  zonda member re-add vol b                   catches up what it missed
  zonda member replace vol b --with drives/new
  zonda member replace vol b --with drives/b --force   the same drive again, empty";

#[derive(Debug, Subcommand)]
#[command(after_long_help = MEMBER_EXAMPLES)]
pub(crate) enum MemberCommand {
    /// Gives a member up: nothing is read from it or written to it any more
    Fail(manage::FailArgs),
    /// Take a member back that has failed, and catch it up with what it missed
    #[command(name = "re-add", long_about = manage::READD_LONG_ABOUT)]
    Readd(manage::ReaddArgs),
    /// Puts a drive in the place of a member that has failed, and gives it what it needs to hold
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
