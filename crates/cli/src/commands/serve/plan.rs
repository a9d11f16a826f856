//! The server plan from the command line.

use std::io::ErrorKind;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use zonda_config::unplaced;
use zonda_devices::{DriveError, Location, PoolReport, VolumeOpenOptions, is_pool, is_vacant, is_volume, sized};
use zonda_exports::{
    HTTP_DEFAULT, ListenSpec, NamespaceSpec, NbdPlan, ParseContext, ServeError, ServerPlan, ServerSpec, ServerTable,
    SubsystemSpec, TimingSpec, check_memory,
};
use zonda_profiles::BUILTIN;
use zonda_ssd::description::DrivePlan;

use super::{ServeArgs, TimingArg};
use crate::commands::drive::create;
use crate::errors::Failure;
use crate::{files, remedies};

/// The image that is served by default.
const DEFAULT_IMAGE: &str = "zonda-drive";

/// The plan from the arguments, or from the configuration file that they name.
pub(super) fn of(args: &ServeArgs) -> Result<ServerPlan, Failure> {
    let mut plan = match &args.config {
        Some(path) => of_file(path)?,
        None => of_arguments(args)?,
    };
    plan.may_serve_members = args.force;
    plan.accepted = VolumeOpenOptions {
        accepts_losses: args.accept_losses,
        accepts_older: args.accept_older,
        accepts_side: args.keep_side.clone(),
        keeps_members: false,
    };
    let volumes = plan.volumes().count();
    if plan.accepted.accepts_any() && volumes != 1 {
        let message = format!(
            "--accept-losses, --accept-older and --keep-side apply to one volume, and {volumes} volumes are to be served"
        );
        let help = match volumes {
            0 => "omit the option: only volumes need it",
            _ => "serve the volume alone, with the same option: zonda serve DIR",
        };
        return Err(Failure::input(message, help));
    }
    match args.http.as_deref() {
        Some("off") => plan.http = None,
        Some(address) => plan.http = Some(http_address(address)?),
        None if args.config.is_none() => plan.http = Some(HTTP_DEFAULT),
        None => {}
    }
    if let Some(limit) = args.memory_limit {
        check_memory(limit.0).map_err(|(message, help)| Failure::input(message, format!("--memory-limit: {help}")))?;
        plan.memory_bytes = Some(limit.0);
    }
    if !args.nbd.is_empty() {
        plan.nbd.push(nbd_plan(&args.nbd)?);
        if creates_default(args) {
            let message = format!(
                "nothing can be exported over NBD: the drive that is served without DIR, ./{DEFAULT_IMAGE}, is zoned"
            );
            let help = "give the directory of a conventional drive (zonda drive create DIR --profile conventional) or of a \
                        volume (zonda volume create): zonda serve DIR --nbd ADDRESS";
            return Err(Failure::input(message, help));
        }
    }
    Ok(plan)
}

/// The exports over NBD on these addresses.
fn nbd_plan(addresses: &[String]) -> Result<NbdPlan, Failure> {
    if let Some(directory) = addresses.iter().find(|address| Path::new(address).is_dir()) {
        let message = format!("--nbd needs an address, and {directory} is a directory");
        return Err(Failure::input(message, format!("give the address, too: zonda serve {directory} --nbd 127.0.0.1")));
    }
    NbdPlan::on(addresses).map_err(|(message, help)| Failure::input(message, format!("--nbd: {help}")))
}

fn of_file(path: &str) -> Result<ServerPlan, Failure> {
    let text = files::read_text(path, files::EXAMPLES)?;
    let base = Path::new(path).parent().unwrap_or(Path::new(""));
    let (read_file, read_key) = (files::reader_beside(path), files::key_reader_beside(path));
    let context = ParseContext { base, builtin_profiles: BUILTIN, read_file: &read_file, read_key: &read_key };
    ServerPlan::parse(&text, &context)
        .map_err(|error| Failure::in_file_of_keys(error, files::shown(path), &text, "docs/guide/serve.md"))
}

fn of_arguments(args: &ServeArgs) -> Result<ServerPlan, Failure> {
    let mut images = args.images.clone();
    if serves_default(args) {
        images.push(PathBuf::from(DEFAULT_IMAGE));
    }
    check_names(&images)?;
    let mut subsystem = Vec::with_capacity(images.len());
    for image in &images {
        if is_pool(image) {
            subsystem.extend(subsystems_of_pool(image, args)?);
        } else {
            subsystem.push(subsystem_of(image, args)?);
        }
    }
    if let Some(profile) = &args.memory {
        let memory = sized(profile, args.zones, args.zone_capacity, &files::PROFILES)
            .map_err(|error| create::in_words(&error))?;
        let table =
            SubsystemSpec::new("memory", NamespaceSpec { memory: Some(unplaced(memory)), ..Default::default() });
        subsystem.push(table);
    }
    let timing = match args.timing {
        Some(TimingArg::Profile) => TimingSpec::Profile,
        Some(TimingArg::None) | None => TimingSpec::None,
    };
    let listen = args.listen.clone().map(|listen| unplaced(ListenSpec(vec![listen])));
    let spec = ServerSpec {
        server: ServerTable { listen, timing, ..ServerTable::default() },
        subsystem: subsystem.into_iter().map(unplaced).collect(),
        ..ServerSpec::default()
    };
    let (read_file, read_key) = (files::reader_beside("-"), files::key_reader_beside("-"));
    let base = Path::new("");
    let context = ParseContext { base, builtin_profiles: BUILTIN, read_file: &read_file, read_key: &read_key };
    spec.check(&context).map_err(|error| create::in_words(&error))
}

/// Subsystems are named after the last components of the paths, which must be unique.
fn check_names(images: &[PathBuf]) -> Result<(), Failure> {
    for (index, image) in images.iter().enumerate() {
        let name = image.file_name();
        let Some(other) = images[..index].iter().find(|other| other.file_name() == name) else { continue };
        let message = format!("{} and {} would have the same subsystem name", other.display(), image.display());
        let (kind, kinds) = match () {
            () if is_pool(image) => ("a pool", "pools"),
            () if is_volume(image) => ("a volume", "volumes"),
            () => ("an image", "images"),
        };
        let help = format!(
            "{kind} can be served only once; to serve {kinds} with the same name, name their subsystems in a configuration file"
        );
        return Err(Failure::input(message, help));
    }
    Ok(())
}

/// An image as a subsystem that is named after its directory.
fn subsystem_of(image: &Path, args: &ServeArgs) -> Result<SubsystemSpec, Failure> {
    let named = match image.canonicalize() {
        // It is created when the server starts.
        Err(error) if error.kind() == ErrorKind::NotFound && serves_default(args) => Ok(image.to_owned()),
        found => found,
    };
    let whole = named.map_err(|error| {
        let shown = image.display();
        let what = match error.kind() {
            ErrorKind::NotFound => format!("there is no directory {shown}"),
            _ => format!("cannot access directory {shown}: {error}"),
        };
        Failure::input(what, format!("check the path, or create an image with zonda drive create {shown}"))
    })?;
    remedies::refuse_incomplete_image(image)?;
    let name = whole.file_name().map_or_else(|| "drive".into(), |name| name.to_string_lossy().into_owned());
    let path = path_text(image)?;
    let place = Some(unplaced(path.to_owned()));
    let read_only = args.read_only.then(|| unplaced(true));
    let namespace = if is_volume(image) {
        NamespaceSpec { volume: place, read_only, ..Default::default() }
    } else if matches!(path.parse(), Ok(Location::Device(_))) {
        NamespaceSpec { device: place, read_only, ..Default::default() }
    } else {
        NamespaceSpec { image: place, read_only, ..Default::default() }
    };
    Ok(SubsystemSpec::new(&name, namespace))
}

/// The namespaces of a pool, each as a subsystem that is named after the pool and the namespace.
fn subsystems_of_pool(directory: &Path, args: &ServeArgs) -> Result<Vec<SubsystemSpec>, Failure> {
    let report = PoolReport::inspect(directory)
        .map_err(|error| Failure::input(error.message, remedies::in_directory(&error.help, directory)))?;
    let shown = directory.display();
    if report.namespaces.is_empty() {
        let help = format!("create one: zonda namespace create {shown} NAME --size SIZE --active N");
        return Err(Failure::input(format!("the pool in {shown} has no namespace to serve"), help));
    }
    let whole = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let pool = whole.file_name().map_or_else(|| "pool".into(), |name| name.to_string_lossy().into_owned());
    let path = path_text(directory)?;
    let read_only = args.read_only.then(|| unplaced(true));
    let subsystems = report.namespaces.into_iter().map(|own| {
        let nqn = format!("{pool}:{}", own.name);
        let (pool, name) = (Some(unplaced(path.to_owned())), Some(unplaced(own.name)));
        SubsystemSpec::new(&nqn, NamespaceSpec { pool, name, read_only: read_only.clone(), ..Default::default() })
    });
    Ok(subsystems.collect())
}

fn path_text(path: &Path) -> Result<&str, Failure> {
    path.to_str()
        .ok_or_else(|| Failure::input(format!("path {} is not valid UTF-8", path.display()), "rename the directory"))
}

/// Whether the default image is served.
fn serves_default(args: &ServeArgs) -> bool {
    args.config.is_none() && args.images.is_empty() && args.memory.is_none()
}

/// Whether the default image is served and does not exist yet.
fn creates_default(args: &ServeArgs) -> bool {
    serves_default(args) && is_vacant(Path::new(DEFAULT_IMAGE))
}

/// The drive to create as the default image; `None` if that exists or is not served.
pub(super) fn new_default_drive(args: &ServeArgs) -> Result<Option<DrivePlan>, Failure> {
    if creates_default(args) { create::default_drive().map(Some) } else { Ok(None) }
}

/// Creates the default image.
pub(super) fn create_default(drive: &DrivePlan) -> Result<(), ServeError> {
    let created = create::create_unless_present(Path::new(DEFAULT_IMAGE), drive);
    if created.map_err(|DriveError { message, help, .. }| ServeError { message, help })? {
        // The standard output is reserved for the greeting.
        let _ = writeln!(
            io::stderr(),
            "created {DEFAULT_IMAGE}, a drive of 4 GiB that takes disk space only for written data"
        );
    }
    Ok(())
}

fn http_address(text: &str) -> Result<std::net::SocketAddr, Failure> {
    zonda_exports::resolve(text).map_err(|reason| Failure::input(reason, "use --http HOST:PORT, or --http off"))
}
