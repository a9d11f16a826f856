//! `zonda volume import`: recreates the directory of an existing volume.

use std::path::PathBuf;

use clap::Args;
use zonda_devices::{DriveError, ImportOptions, ImportReport, ImportedMember, is_import_interrupted};

use super::create::NEW_DIRECTORY;
use crate::commands::connect::{self, CredentialArgs};
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;
use crate::{remedies, units};

pub(super) const LONG_ABOUT: &str = "Recreate the directory of a volume from the superblocks of its drives: after the directory was lost, or \
when drives come from another machine. The order and the names of the drives do not matter.

Writes volume.toml only: the volume is not assembled and no drive is changed. Members that are not named are marked as missing. \
Superblocks do not store spares, rates or the reserve; set them again.

Refuses drives of different volumes, two drives with the same member number, drives in use, too few drives, and drives after a \
split brain. --force excludes drives that are out of date, and falls back to an older epoch if no newer one has enough members: \
later writes are then missing, and zonda serve requires --accept-older. --force also accepts drives whose epochs \
differ only because the volume was assembled: that was interrupted before all drives were updated, or some of them are older \
copies. The epoch increases each time the volume is assembled or its members change, as the event count of mdadm does.

Remote members are reserved by the server that uses the volume, even after it was killed. --take-over preempts these reservations, \
as zonda volume takeover does, and reports their holders: outstanding commands of that server are aborted, and it stops serving \
the volume. It requires that all drives are reserved for the same volume.";

const EXAMPLES: &str = "Examples:
  zonda volume import vol --members drives/c,drives/a,drives/b
  zonda volume import vol --scan drives --dry-run
  zonda volume import vol --scan drives --uuid 0190b1a2-...
  zonda volume import vol --members URL,URL,URL --take-over   its server failed";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// Directory of the volume, which must be empty or not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Drives of the volume in any order: directories of images, or nvme-tcp:// URLs
    #[arg(long, value_name = "DIR|DEVICE|URL,...", value_delimiter = ',')]
    members: Vec<String>,
    /// Search these directories for images
    #[arg(long, value_name = "DIR,...", value_delimiter = ',')]
    scan: Vec<PathBuf>,
    /// UUID of the volume, if drives of several volumes are named or found
    #[arg(long, value_name = "UUID")]
    uuid: Option<String>,
    /// Exclude drives that are out of date, and fall back to an older epoch if necessary
    #[arg(long)]
    force: bool,
    /// Show what would be imported without writing
    #[arg(long)]
    dry_run: bool,
    /// Preempt reservations of a server of the volume, as zonda volume takeover does; make sure that
    /// it has failed permanently
    #[arg(long, alias = "takeover", conflicts_with = "dry_run", requires = "members")]
    take_over: bool,
    #[command(flatten)]
    credentials: CredentialArgs,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

impl ImportArgs {
    /// Why the volume is not imported, or not taken over.
    fn failure(&self, error: DriveError) -> Failure {
        let directory = self.directory.display();
        if self.take_over && is_import_interrupted(&self.directory) {
            let message = format!(
                "{directory}/volume.toml was written, but the drives are not reserved for it: {}",
                error.message
            );
            let help = if error.is_missing {
                format!(
                    "repeat the command with the missing members: it continues; if they are lost, and no other server \
                     uses the volume: zonda volume takeover --accept-missing {directory}"
                )
            } else {
                let remedy = error.help.trim_end_matches(", and try again");
                format!("{remedy}; then repeat the command: it continues")
            };
            return Failure::input(message, help);
        }
        let given = [("--force", self.force), ("--take-over", self.take_over)];
        let given: Vec<&str> = given.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option).collect();
        connect::failure_without(error, &given, "name other drives")
    }
}

pub(super) fn run(args: &ImportArgs) -> Result<(), Failure> {
    if args.members.is_empty() && args.scan.is_empty() {
        return Err(Failure::input(
            "no drives of the volume are given",
            "name them with --members, or directories that contain them with --scan",
        ));
    }
    remedies::refuse_image(&args.directory, NEW_DIRECTORY)?;
    let members = args.members.iter().map(|text| connect::location(text)).collect::<Result<Vec<_>, _>>()?;
    let options = ImportOptions {
        members,
        scan: args.scan.clone(),
        uuid: args.uuid.clone(),
        force: args.force,
        dry_run: args.dry_run,
        take_over: args.take_over,
        credentials: args.credentials.credentials()?,
    };
    let report = ImportReport::of(&args.directory, &options).map_err(|error| args.failure(error))?;
    if args.json {
        return print_json(&report);
    }
    let directory = args.directory.display();
    let next = if report.written && report.is_split {
        format!(
            "\nwrote {directory}/volume.toml\nto serve the volume with the data of one side, where MEMBER is a member of that \
             side: zonda serve {directory} --keep-side MEMBER\n"
        )
    } else if report.written {
        format!("\nwrote {directory}/volume.toml\nto serve the volume: zonda serve {directory}\n")
    } else {
        format!("\ndry run: {directory}/volume.toml was not written\n")
    };
    print(&(text(&report, Screen::of_stdout()) + &next))
}

fn text(report: &ImportReport, screen: Screen) -> String {
    let head = format!("{}  {}, epoch {}", screen.bold(&report.name), report.scheme, units::count(report.epoch));
    let mut text = format!("{head}\n  {}\n", report.array);
    for warning in &report.warnings {
        text += &(screen.styled("1;33", screen.paragraph(warning, 2).trim_end()) + "\n");
    }
    let mut table = Table::new(&[">member", "location", "state", ">epoch", "id"]);
    for ImportedMember { member, at, state, epoch, id } in &report.members {
        table.row(&[
            member.to_string(),
            at.clone().unwrap_or_else(|| "-".to_owned()),
            if at.is_some() { state.clone() } else { format!("missing (was {state})") },
            epoch.map_or_else(|| "-".to_owned(), units::count),
            id.clone(),
        ]);
    }
    text += &format!("\n{}", table.render(screen, 2));
    if !report.taken.is_empty() {
        text += "\ntaken over:\n";
        for drive in &report.taken {
            let how = match (&drive.taken_from, &drive.error) {
                (_, Some(error)) => format!("not reserved: {error}"),
                (Some(from), None) => format!("from {from}"),
                (None, None) => "not reserved before".to_owned(),
            };
            text += &screen.paragraph(&format!("{}: {how}", drive.at), 2);
        }
    }
    if !report.ignored.is_empty() {
        text += "\nexcluded:\n";
        for drive in &report.ignored {
            text += &screen.paragraph(&format!("{}: {}", drive.at, drive.reason), 2);
        }
    }
    text
}
