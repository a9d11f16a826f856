//! `zonda volume import`: the directory of a volume that exists, written again.

use std::path::PathBuf;

use clap::Args;
use zonda_devices::{ImportOptions, ImportReport, ImportedMember};

use crate::commands::connect::{self, CredentialArgs};
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;
use crate::units;

pub(super) const LONG_ABOUT: &str = "Writes the directory of a volume again, by what the superblocks of its drives say: after the directory \
was lost, or when drives come from another machine. The drives can be named in any order, and their names do not matter.

Only volume.toml is written. Nothing is mounted, and no drive is changed: zonda serve DIR does that. Members that are not named are \
missing; superblocks have no spares, rates or reserve, so add these again.

Drives of several volumes, two drives that claim the same place, drives in use, and too few drives are refused. So are drives that were \
written to without each other (split brain). --force leaves out drives that are out of date, and goes back to an older epoch if no newer \
one has enough members: what was written since is then not in the volume, and zonda serve refuses it without --accept-older. Drives that \
differ by a start alone it takes as they are: one of them may be an older copy.

Members behind servers are reserved by the server that uses the volume, also after it was killed. --take-over takes them from it, as zonda \
volume takeover does, and says who had them: what that server had in flight is aborted, and it answers nothing any more. It takes only drives \
that are reserved for one volume.";

const EXAMPLES: &str = "Examples:
  zonda volume import vol --members drives/c,drives/a,drives/b
  zonda volume import vol --scan drives --dry-run
  zonda volume import vol --scan drives --uuid 0190b1a2-...
  zonda volume import vol --members URL,URL,URL --take-over    its server died, and its directory is lost";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// The directory of the volume, which must be empty or not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Drives of the volume, in any order: directories of images, or nvme-tcp:// URLs
    #[arg(long, value_name = "DIR|URL,...", value_delimiter = ',', required_unless_present = "scan")]
    members: Vec<String>,
    /// Directories below which to look at all images
    #[arg(long, value_name = "DIR,...", value_delimiter = ',')]
    scan: Vec<PathBuf>,
    /// The volume, where drives of several ones are named or found
    #[arg(long, value_name = "UUID")]
    uuid: Option<String>,
    /// Leaves out drives that are out of date, and goes back to an older epoch if it must
    #[arg(long)]
    force: bool,
    /// Shows what would be imported, and writes nothing
    #[arg(long)]
    dry_run: bool,
    /// Takes over members that a server of the volume has left reserved: be sure that it has failed for good
    #[arg(long, conflicts_with = "dry_run", requires = "members")]
    take_over: bool,
    #[command(flatten)]
    credentials: CredentialArgs,
    /// Prints one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ImportArgs) -> Result<(), Failure> {
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
    let report = ImportReport::of(&args.directory, &options).map_err(connect::failure)?;
    if args.json {
        return print_json(&report);
    }
    let directory = args.directory.display();
    let next = if report.written {
        format!("\n{directory}/volume.toml is written; zonda serve {directory} serves the volume\n")
    } else {
        format!("\n{directory}/volume.toml would be written: leave --dry-run out\n")
    };
    print(&(text(&report, Screen::of_stdout()) + &next))
}

fn text(report: &ImportReport, screen: Screen) -> String {
    let head = format!("{}  {}, epoch {}", screen.bold(&report.name), report.scheme, units::count(report.epoch));
    let mut text = format!("{head}\n  {}\n", report.array);
    for warning in &report.warnings {
        text += &(screen.styled("1;33", screen.paragraph(warning, 2).trim_end()) + "\n");
    }
    let mut table = Table::new(&[">member", "at", "state", ">epoch", "id"]);
    for ImportedMember { member, at, state, epoch, id } in &report.members {
        table.row(&[
            member.to_string(),
            at.clone().unwrap_or_else(|| "missing".to_owned()),
            state.clone(),
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
                (None, None) => "was free".to_owned(),
            };
            text += &screen.paragraph(&format!("{}: {how}", drive.at), 2);
        }
    }
    if !report.ignored.is_empty() {
        text += "\nleft out:\n";
        for drive in &report.ignored {
            text += &screen.paragraph(&format!("{}: {}", drive.at, drive.reason), 2);
        }
    }
    text
}
