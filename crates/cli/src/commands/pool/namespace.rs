//! `zonda namespace`: creates, lists, resizes and deletes namespaces of a pool.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use zonda_config::ByteSize;
use zonda_devices::{
    NAME_BYTES_MAX, NAMESPACES_MAX, NamespaceSize, NewNamespace, PoolNamespaceReport, PoolReport, PoolRequest,
    WEIGHT_MAX,
};

use super::{reach, show};
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::units;

pub(crate) const LONG_ABOUT: &str = "Create, list, resize and delete the namespaces of a pool, one for each tenant.

All commands work on pools that are not in use, and on pools that a server on this machine uses. Hosts of a namespace that is \
resized while it is served see its new size at once. A namespace that is created while its pool is served is exported once it is in \
the configuration file of the server and zonda reload has run; one that is served has to be removed there before it is deleted.";

const EXAMPLES: &str = "Examples:
  zonda namespace create pool db --size 64GiB --weight 2 --active 16
  zonda namespace list pool
  zonda namespace resize pool db --size 128GiB
  zonda namespace delete pool db";

#[derive(Debug, Subcommand)]
#[command(after_long_help = EXAMPLES)]
pub(crate) enum NamespaceCommand {
    /// Create a namespace
    #[command(long_about = CREATE_LONG_ABOUT)]
    Create(CreateArgs),
    /// List the namespaces of a pool
    #[command(
        after_long_help = "Examples:\n  zonda namespace list pool\n  zonda namespace list pool --json | jq '.[].name'"
    )]
    List(ListArgs),
    /// Change the size of a namespace
    #[command(long_about = RESIZE_LONG_ABOUT)]
    Resize(ResizeArgs),
    /// Delete a namespace and its data
    ///
    /// The zones of the drive that held its data are reset. A namespace that is served is refused.
    #[command(after_long_help = "Example:\n  zonda namespace delete pool db --yes")]
    Delete(DeleteArgs),
}

const CREATE_LONG_ABOUT: &str = "Create a namespace. Its space is promised: a namespace for which the drive has no space left is refused.

The size is rounded up to whole zones. --active limits the zones that its host may have active, and open, at a time. Each of them \
needs an essential active zone of the drive, of which the namespace has a part by its weight. The others of that part make its \
stripe groups wider. A namespace after which another one would have too small a part is refused: neither weights nor active zones \
of existing namespaces can be changed. zonda pool show DIR shows the essential zones. A pool has at most 256 namespaces.";

// As in the texts above.
const _: () = assert!(NAMESPACES_MAX == 256 && NAME_BYTES_MAX == 64 && WEIGHT_MAX == 1000);

const RESIZE_LONG_ABOUT: &str = "Change the size of a namespace. The size is rounded up to whole zones.

A namespace grows by empty zones at its end, and shrinks only by empty ones: reset them first.";

/// The size of a namespace.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct SizeArgs {
    /// Size, rounded up to whole zones
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// Number of zones, instead of a size: at least 1
    #[arg(long, value_name = "N")]
    zones: Option<u32>,
}

impl SizeArgs {
    fn size(&self) -> NamespaceSize {
        match (self.size, self.zones) {
            (Some(ByteSize(bytes)), _) => NamespaceSize::Bytes(bytes),
            (None, zones) => NamespaceSize::Zones(zones.unwrap_or(0)),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  zonda namespace create pool db --size 64GiB --weight 2 --active 16\n  \
                             zonda namespace create pool log --zones 20 --active 4")]
pub(crate) struct CreateArgs {
    /// Directory of the pool
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Name of the namespace: 1 to 64 letters, digits, '-', '_' and '.'; the first is not '-'
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    size: SizeArgs,
    /// Zones that may be active and open at a time: at most the part of the essential zones of the
    /// pool that the namespace has by its weight
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    active: u32,
    /// Its part of the active zones of the drive, relative to that of other namespaces: 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=WEIGHT_MAX.into()))]
    weight: u32,
    /// Print the namespace as one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Directory of the pool
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print one JSON array and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  zonda namespace resize pool db --size 128GiB\n  zonda namespace resize pool db --zones 40"
)]
pub(crate) struct ResizeArgs {
    /// Directory of the pool
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Name of the namespace
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    size: SizeArgs,
    /// Print the namespace as one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// Directory of the pool
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Name of the namespace
    #[arg(value_name = "NAME")]
    name: String,
    /// Delete a namespace that holds data
    #[arg(long)]
    yes: bool,
}

pub(super) fn run(command: &NamespaceCommand) -> Result<(), Failure> {
    match command {
        NamespaceCommand::Create(args) => create(args),
        NamespaceCommand::List(args) => list(args),
        NamespaceCommand::Resize(args) => resize(args),
        NamespaceCommand::Delete(args) => delete(args),
    }
}

fn create(args: &CreateArgs) -> Result<(), Failure> {
    let new = NewNamespace {
        name: args.name.clone(),
        size: args.size.size(),
        max_active_zones: args.active,
        weight: args.weight,
    };
    let (report, is_served) = reach::change(&args.directory, &PoolRequest::Create(new))?;
    let own = named(&report, &args.name)?;
    if args.json {
        return print_json(own);
    }
    let directory = args.directory.display();
    let next = if is_served {
        format!(
            "to export it: add pool = \"{directory}\", name = \"{}\" to zonda.toml, and run zonda reload; a server \
             that was started with the directory of the pool has to be restarted",
            own.name
        )
    } else {
        format!("to serve the pool: zonda serve {directory}")
    };
    print(&format!("created {}: {}\n{next}\n", own.name, sized(own)))
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let report = reach::inspect(&args.directory)?;
    if args.json { print_json(&report.namespaces) } else { print(&show::namespaces(&report, Screen::of_stdout())) }
}

fn resize(args: &ResizeArgs) -> Result<(), Failure> {
    let request = PoolRequest::Resize { name: args.name.clone(), size: args.size.size() };
    let (report, _) = reach::change(&args.directory, &request)?;
    let own = named(&report, &args.name)?;
    if args.json { print_json(own) } else { print(&format!("{} now has {}\n", own.name, sized(own))) }
}

fn delete(args: &DeleteArgs) -> Result<(), Failure> {
    if !args.yes {
        refuse_data(&args.directory, &args.name)?;
    }
    reach::change(&args.directory, &PoolRequest::Delete { name: args.name.clone() })?;
    print(&format!("deleted {}\n", args.name))
}

/// Refuses to delete a namespace that holds data.
fn refuse_data(directory: &Path, name: &str) -> Result<(), Failure> {
    let report = reach::inspect(directory)?;
    // One that does not exist is refused by the pool, which names those that do.
    let written = report.namespace(name).map_or(0, |own| own.written_bytes);
    if written == 0 {
        return Ok(());
    }
    let message = format!("namespace \"{name}\" holds {} of data, which would be lost", units::bytes(written));
    Err(Failure::input(message, "delete it with --yes if its data is not needed"))
}

fn named<'r>(report: &'r PoolReport, name: &str) -> Result<&'r PoolNamespaceReport, Failure> {
    report.namespace(name).ok_or_else(|| {
        let message = format!("the namespace \"{name}\" was deleted by another command");
        Failure::broken(message, "list the namespaces: zonda namespace list DIR")
    })
}

fn sized(own: &PoolNamespaceReport) -> String {
    let zones = units::counted(u64::from(own.zones), "zone");
    format!("{}, {zones} of {}", units::bytes(own.size_bytes), units::bytes(own.zone_capacity_bytes))
}
