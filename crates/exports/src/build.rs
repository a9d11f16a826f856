//! Opens the drives of a plan, and builds the target.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use zonda_devices::{
    DeviceMode, Drive, DriveError, FileBacked, FirstZones, Location, MemoryDrive, Model, PacedDrive, PoolDrive,
    PoolOpenOptions, ReadOnlyImage, ScheduledDrive, SequentialZones, VolumeDrive, VolumeReport, device_location,
    is_pool, is_volume, open_device, random, user_of_drive, user_of_image, uuid_of_identity, uuid_of_name,
};
use zonda_image::{Image, ImageFile, RecoveryReport};
use zonda_nvme::identify::NamespaceIdentity;
use zonda_nvme::tcp::Digests;
use zonda_ring::{Bytes, Ring};
use zonda_sched::{EznsConfig, InterferenceConfig, MqDeadlineConfig, Policy, ZoneGroups};
use zonda_ssd::allocation::ElementTracker;
use zonda_target::{
    HostAccess, HostEntry, NamespaceConfig, NamespaceOptions, Portal, SubsystemConfig, Target, TargetConfig,
};
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{NamespaceId, Prng};

use crate::backing::Backing;
use crate::config::{
    DigestsSpec, HostPlan, NamespacePlan, SchedulerSpec, ServerPlan, Source, SubsystemPlan, TimingSpec,
};
use crate::drives::Drives;
use crate::events;
use crate::groups::{self, DriveNames};
use crate::hidden_zones;
use crate::memory::Memory;
use crate::nbd::Candidate;
use crate::reload::pool_source;
use crate::report::{NamespaceLayout, SubsystemLayout};
use crate::served::Served;
use crate::snapshot::PoolPartSnapshot;
use crate::start::{HostInfo, NamespaceInfo, ServeError, SubsystemInfo, retry_lock_in_use};

/// Firmware revision in Identify Controller: at most 8 characters.
const FIRMWARE: &str = env!("CARGO_PKG_VERSION");

/// The target of a plan, and what it serves.
pub(crate) struct Built {
    pub(crate) target: Target,
    pub(crate) subsystems: Vec<SubsystemInfo>,
    pub(crate) layout: Vec<SubsystemLayout>,
    /// Namespaces that could be exported over NBD.
    pub(crate) candidates: Vec<Candidate>,
}

/// An open drive.
struct Opened {
    backing: Backing,
    /// A short description.
    source: String,
    state: String,
    uuid: [u8; 16],
    /// The name of the profile that the drive was created with; `None` for a drive of the machine, a
    /// volume, and a namespace of a pool.
    profile: Option<String>,
    volatile_write_cache: bool,
    /// Saved reservations; `None` if the drive cannot save them.
    reservations: Option<Bytes>,
}

/// A namespace whose drive is open.
pub(crate) struct OpenedNamespace {
    pub(crate) config: NamespaceConfig,
    pub(crate) options: NamespaceOptions,
    pub(crate) info: NamespaceInfo,
    pub(crate) layout: NamespaceLayout,
    pub(crate) candidate: Candidate,
}

fn hosts_of(subsystem: &SubsystemPlan) -> Option<Vec<HostInfo>> {
    let info = |host: &HostPlan| HostInfo {
        nqn: host.nqn.to_string(),
        has_secret: host.secret.is_some(),
        has_controller_secret: host.controller_secret.is_some(),
    };
    subsystem.hosts.as_ref().map(|hosts| hosts.iter().map(info).collect())
}

/// Opens every drive of the plan. After an error, `drives` has the drives that are open.
pub(crate) fn build(
    plan: &ServerPlan,
    memory: &Memory,
    ring: &Ring,
    listen: &[SocketAddr],
    drives: &mut Drives,
) -> Result<Built, ServeError> {
    if plan.may_serve_members {
        refuse_members_of_served_volumes(plan)?;
    }
    let sources = plan.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
    sources.map(|namespace| &namespace.source).try_for_each(must_be_of_its_kind)?;
    let mut opened = open_all(plan, ring, drives)?.into_iter();
    let (mut subsystems, mut layout, mut configs) = (Vec::new(), Vec::new(), Vec::new());
    let mut candidates = Vec::new();
    let (mut saved_reservations, mut write_protected) = (BTreeMap::new(), BTreeSet::new());
    for subsystem in &plan.subsystems {
        let (mut infos, mut layouts, mut namespaces) = (Vec::new(), Vec::new(), Vec::new());
        for opened in opened.by_ref().take(subsystem.namespaces.len()) {
            let device = opened.config.device;
            saved_reservations.extend(opened.options.saved_reservations.map(|saved| (device, saved)));
            write_protected.extend(opened.options.is_write_protected.then_some(device));
            infos.push(opened.info);
            layouts.push(opened.layout);
            candidates.push(opened.candidate);
            namespaces.push(opened.config);
        }
        let nqn = subsystem.nqn.to_string();
        subsystems.push(SubsystemInfo { nqn: nqn.clone(), hosts: hosts_of(subsystem), namespaces: infos });
        layout.push(SubsystemLayout { nqn, namespaces: layouts });
        configs.push(subsystem_config(subsystem, namespaces));
    }
    let mut config = config(plan, memory, configs, listen)?;
    config.saved_reservations = saved_reservations;
    config.write_protected = write_protected;
    let target =
        Target::new(config).map_err(|error| ServeError::new(format!("{}: {}", error.subject, error.remedy), ""))?;
    Ok(Built { target, subsystems, layout, candidates })
}

/// Opens the drives of all namespaces; the result is in the order of the plan. Volumes and pools are
/// opened last, because assembling a volume writes to its members, and so does a mount of a pool: a
/// start that an image prevents must not do that.
fn open_all(plan: &ServerPlan, ring: &Ring, drives: &mut Drives) -> Result<Vec<OpenedNamespace>, ServeError> {
    let namespaces = plan.subsystems.iter();
    let namespaces = namespaces.flat_map(|subsystem| subsystem.namespaces.iter().map(move |each| (subsystem, each)));
    let mut order: Vec<_> = namespaces.enumerate().collect();
    order.sort_by_key(|(_, (_, namespace))| matches!(namespace.source, Source::Volume(_) | Source::Pool { .. }));
    let mut opened = Vec::with_capacity(order.len());
    for (place, (subsystem, namespace)) in order {
        opened.push((place, open_namespace(plan, subsystem, namespace, ring, drives)?));
    }
    opened.sort_by_key(|(place, _)| *place);
    Ok(opened.into_iter().map(|(_, opened)| opened).collect())
}

/// Opens the drive of a namespace and adds it to the drives of the server.
pub(crate) fn open_namespace(
    plan: &ServerPlan,
    subsystem: &SubsystemPlan,
    namespace: &NamespacePlan,
    ring: &Ring,
    drives: &mut Drives,
) -> Result<OpenedNamespace, ServeError> {
    let opened = open(plan, subsystem, namespace, ring, drives)?;
    let geometry = opened.backing.drive().geometry(NamespaceId::FIRST).clone();
    let timing = if namespace.timing == TimingSpec::None { "none" } else { "profile" };
    let source = opened.source.clone();
    let backing = match namespace.source {
        // It is before the drive of the pool.
        Source::Pool { .. } => opened.backing,
        _ => scheduled(opened.backing, namespace, &opened.uuid, opened.profile)?,
    };
    let device = drives.add(Served::new(backing, opened.source, timing));
    Ok(OpenedNamespace {
        info: NamespaceInfo {
            id: namespace.id.0,
            source: source.clone(),
            zones: geometry.zone_count,
            zone_capacity_bytes: geometry.zone_capacity_bytes(),
            size_bytes: geometry.zone_capacity_bytes() * u64::from(geometry.zone_count),
            is_volume: matches!(namespace.source, Source::Volume(_)),
            state: opened.state,
            read_only: namespace.read_only,
        },
        layout: NamespaceLayout {
            id: namespace.id,
            device,
            read_only: namespace.read_only,
            pool: pool_part(&namespace.source),
        },
        candidate: Candidate {
            nqn: subsystem.nqn.clone(),
            namespace: namespace.id,
            device,
            geometry: geometry.clone(),
            source,
            volatile_write_cache: opened.volatile_write_cache,
            read_only: namespace.read_only,
        },
        options: NamespaceOptions { is_write_protected: namespace.read_only, saved_reservations: opened.reservations },
        config: NamespaceConfig {
            id: namespace.id,
            device,
            device_namespace: NamespaceId::FIRST,
            geometry,
            identity: NamespaceIdentity { uuid: Some(opened.uuid), ..NamespaceIdentity::default() },
            volatile_write_cache: opened.volatile_write_cache,
        },
    })
}

pub(crate) fn subsystem_config(subsystem: &SubsystemPlan, namespaces: Vec<NamespaceConfig>) -> SubsystemConfig {
    SubsystemConfig {
        nqn: subsystem.nqn.clone(),
        serial: subsystem.serial.clone(),
        model: subsystem.model.clone(),
        firmware: FIRMWARE.chars().take(8).collect(),
        namespaces,
        allow: access(subsystem.hosts.as_deref()),
    }
}

fn config(
    plan: &ServerPlan,
    memory: &Memory,
    subsystems: Vec<SubsystemConfig>,
    listen: &[SocketAddr],
) -> Result<TargetConfig, ServeError> {
    let portals =
        listen.iter().map(|address| Portal { address: address.ip().to_string(), service: address.port().to_string() });
    let seed = random::bytes().map_err(|error| ServeError::new(error.message, error.help))?;
    let mut config = TargetConfig::new(subsystems, portals.collect(), seed);
    config.auth_policy = plan.auth_policy.clone();
    config.limits = memory.limits.clone();
    config.budget = memory.budget.clone();
    if plan.digests == DigestsSpec::Off {
        config.digests = Digests::NONE;
    }
    Ok(config)
}

/// Which hosts may connect.
pub(crate) fn access(hosts: Option<&[HostPlan]>) -> HostAccess {
    let Some(hosts) = hosts else { return HostAccess::Any };
    let entries = hosts.iter().map(|host| HostEntry {
        nqn: host.nqn.clone(),
        secret: host.secret.clone(),
        controller_secret: host.controller_secret.clone(),
    });
    HostAccess::Hosts(entries.collect())
}

/// Refuses the directory of a volume as an image, and vice versa.
fn must_be_of_its_kind(source: &Source) -> Result<(), ServeError> {
    match source {
        Source::Image(path) if is_volume(path) => Err(ServeError::new(
            format!("{} is a volume, not an image", path.display()),
            "use the key volume instead of image for its directory",
        )),
        Source::Image(path) if is_pool(path) => Err(ServeError::new(
            format!("{} is a pool, not an image", path.display()),
            "use the key pool instead of image for its directory, with the name of a namespace",
        )),
        Source::Volume(path) if !is_volume(path) && path.join(ImageFile::Superblock.name()).is_file() => {
            Err(ServeError::new(
                format!("{} is an image, not a volume", path.display()),
                "use the key image instead of volume for its directory",
            ))
        }
        _ => Ok(()),
    }
}

/// Refuses a member of a volume, or the drive of a pool, which only these may write.
fn refuse_member(path: &Path) -> Result<(), ServeError> {
    let Some(user) = user_of_image(path) else { return Ok(()) };
    let kind = user.kind();
    if user.is_damaged() {
        return Err(ServeError::new(
            format!("the image in {} is {user}: hosts could overwrite what is left of its data", path.display()),
            format!("restore the drive from a backup; use --force if the {kind} is not needed any more"),
        ));
    }
    Err(ServeError::new(
        format!("the image in {} is {user}: hosts could overwrite data of the {kind}", path.display()),
        format!(
            "serve the {kind} instead: zonda serve with its directory; use --force if a {kind} on another machine uses this \
             {} through this server, or if the {kind} is not needed any more",
            if kind == "volume" { "member" } else { "drive" }
        ),
    ))
}

/// Refuses a drive of this machine that is a member of a volume, or the drive of a pool.
fn refuse_member_device(path: &Path, drive: &mut dyn Drive, ring: &Ring) -> Result<(), ServeError> {
    let user = user_of_drive(drive, ring).map_err(|error| ServeError::new(error.message, error.help))?;
    let Some(user) = user else { return Ok(()) };
    let kind = user.kind();
    Err(ServeError::new(
        format!("{} is {user}: hosts could overwrite data of the {kind}", path.display()),
        format!(
            "serve the {kind} instead: zonda serve with its directory; use --force if the {kind} is not needed any more"
        ),
    ))
}

/// Refuses images that are members of a volume of the same plan, which locks them itself.
fn refuse_members_of_served_volumes(plan: &ServerPlan) -> Result<(), ServeError> {
    let arrays: Vec<(&Path, String)> =
        plan.volumes().filter_map(|path| Some((path, VolumeReport::inspect(path).ok()?.array))).collect();
    let sources = plan.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
    for namespace in sources {
        let Source::Image(path) = &namespace.source else { continue };
        // The volumes are inspected first: if there is none, no image has to be read.
        let user = (!arrays.is_empty()).then(|| user_of_image(path)).flatten();
        let Some(member) = user.map(|user| user.to_string()) else { continue };
        if let Some((volume, _)) = arrays.iter().find(|(_, array)| member.contains(array.as_str())) {
            let (path, volume) = (path.display(), volume.display());
            return Err(ServeError::new(
                format!("the image in {path} is {member}, which this command serves, too ({volume})"),
                format!("serve either {volume} or {path}: only one of them can use the image"),
            ));
        }
    }
    Ok(())
}

fn open(
    plan: &ServerPlan,
    subsystem: &SubsystemPlan,
    namespace: &NamespacePlan,
    ring: &Ring,
    drives: &mut Drives,
) -> Result<Opened, ServeError> {
    let is_paced = namespace.timing == TimingSpec::Profile;
    must_be_of_its_kind(&namespace.source)?;
    match &namespace.source {
        Source::Image(path) if namespace.read_only => {
            let (drive, report) = unused(|| ReadOnlyImage::open(path, ring))?;
            let (uuid, profile) = (drive.image().spec().uuid, profile_of(drive.image()));
            let state = format!(
                "read-only, {}",
                describe_recovery(&report, drive.elements_reset_reason(), "recovered in memory")
            );
            let reservations = Some(drive.reservations());
            let model = if is_paced { Some(model_of_image(drive.image(), drive.elements())?) } else { None };
            Ok(Opened {
                backing: Backing::Drive(SequentialZones::of(paced(Box::new(drive), model))),
                source: path.display().to_string(),
                state,
                uuid,
                profile,
                volatile_write_cache: false,
                reservations,
            })
        }
        Source::Image(path) => {
            if !plan.may_serve_members {
                refuse_member(path)?;
            }
            let (drive, report) = unused(|| FileBacked::open(path, ring))?;
            events::copies_repaired(path, &report);
            let (uuid, profile) = (drive.image().spec().uuid, profile_of(drive.image()));
            let state = describe_recovery(&report, drive.elements_reset_reason(), "recovered");
            let reservations = drive.saved_reservations();
            let model = if is_paced { Some(model_of_image(drive.image(), drive.elements())?) } else { None };
            if let Some(zones) = namespace.zones {
                hidden_zones::check(path, drive.image().zones(), zones)?;
            }
            let drive = SequentialZones::of(paced(Box::new(drive), model));
            Ok(Opened {
                backing: Backing::Drive(match namespace.zones {
                    Some(zones) => Box::new(FirstZones::new(drive, zones)),
                    None => drive,
                }),
                source: path.display().to_string(),
                state,
                uuid,
                profile,
                volatile_write_cache: true,
                reservations,
            })
        }
        Source::Device(path) => {
            let mut drive = SequentialZones::of(unused(|| open_device(path, DeviceMode::ReadWrite, ring))?);
            let shown = path.display();
            if !plan.may_serve_members {
                refuse_member_device(path, &mut *drive, ring)?;
            }
            let facts = drive.facts();
            let zones = drive.geometry(NamespaceId::FIRST).zone_count;
            let uuid = drive.identity().and_then(uuid_of_identity);
            Ok(Opened {
                source: shown.to_string(),
                state: format!("{zones} zones, {} of them active", facts.active_zones),
                uuid: uuid.unwrap_or_else(|| uuid_of_name(&format!("{}/{}", subsystem.nqn, namespace.id))),
                backing: Backing::Drive(drive),
                profile: None,
                volatile_write_cache: true,
                reservations: None,
            })
        }
        Source::Volume(path) => {
            let volume = unused(|| {
                VolumeDrive::open_watched(path, &plan.accepted, ring, &mut |notice| events::notice(path, &notice))
            })?;
            let report = volume.report();
            let state =
                format!("a volume of {}, {}, {}", counted_drives(report.members.len()), report.scheme, report.state);
            let uuid = volume.array();
            let reservations = volume.saved_reservations();
            Ok(Opened {
                backing: Backing::Volume(Box::new(volume)),
                source: path.display().to_string(),
                state,
                uuid,
                profile: None,
                volatile_write_cache: true,
                reservations,
            })
        }
        Source::Pool { path, name } => {
            let options = PoolOpenOptions { scheduler: policy(namespace, None)?, is_paced };
            let pool = open_pool(path, &options, namespace, ring, drives)?;
            let read_only = if namespace.read_only { "read-only, " } else { "" };
            let namespace = match pool.namespace(name) {
                Ok(namespace) => namespace,
                Err(error) => {
                    if !pool.has_users() {
                        // The error of the namespace is reported.
                        let _ = pool.close(ring);
                    }
                    return Err(ServeError::new(error.message, error.help));
                }
            };
            let report = pool.report();
            let own = report.namespace(name).expect("the pool has the namespace");
            let uuid = namespace.identity().and_then(|identity| identity.uuid);
            Ok(Opened {
                source: pool_source(path, name),
                state: format!("{read_only}weight {}, at most {} active zones", own.weight, own.max_active_zones),
                uuid: uuid.expect("a namespace of a pool has a UUID"),
                reservations: namespace.saved_reservations(),
                backing: Backing::Drive(Box::new(namespace)),
                profile: None,
                volatile_write_cache: true,
            })
        }
        Source::Memory(plan) => {
            let geometry = plan.profile().geometry();
            let model =
                is_paced.then(|| Model::from_zones(plan.profile(), &ZoneTable::new(geometry.clone()), None, &prng()));
            let drive = Box::new(MemoryDrive::new(geometry, u64::MAX));
            let state = format!("new, profile {}; its data is lost when the server stops", plan.profile().name);
            let uuid = uuid_of_name(&format!("{}/{}", subsystem.nqn, namespace.id));
            Ok(Opened {
                backing: Backing::Drive(SequentialZones::of(paced(drive, model))),
                source: "memory".to_owned(),
                state,
                uuid,
                profile: Some(plan.profile().name.clone()),
                volatile_write_cache: false,
                reservations: None,
            })
        }
    }
}

/// The directory of a pool, which the configuration may name in several ways.
fn whole_path(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The pool of a namespace, for reports.
fn pool_part(source: &Source) -> Option<PoolPartSnapshot> {
    let Source::Pool { path, name } = source else { return None };
    Some(PoolPartSnapshot { path: whole_path(path).display().to_string(), name: name.clone() })
}

/// The pool in a directory, which is opened once for all of its namespaces.
fn open_pool(
    path: &Path,
    options: &PoolOpenOptions,
    namespace: &NamespacePlan,
    ring: &Ring,
    drives: &mut Drives,
) -> Result<PoolDrive, ServeError> {
    let whole = whole_path(path);
    if let Some(pool) = drives.pool(&whole) {
        if pool.options() != *options {
            return Err(ServeError::new(
                format!("the pool in {} is open with another scheduler or timing", path.display()),
                "write its path in the same way in [[pool]] and for each of its namespaces; a running server keeps both until it \
                 serves no namespace of the pool",
            ));
        }
        return Ok(pool);
    }
    let mut scheduler = |drive: &dyn Drive, location: &Location| {
        let names = DriveNames::of_pool(drive, location);
        policy(namespace, Some(&names)).map_err(|error| DriveError::new(error.message, error.help))
    };
    let pool = unused(|| PoolDrive::open_scheduled(path, options, &mut scheduler, ring))?;
    drives.add_pool(whole, pool.clone());
    Ok(pool)
}

/// The name of the profile of an image; `None` if this version cannot read it.
fn profile_of(image: &Image) -> Option<String> {
    groups::profile_name(&image.spec().profile)
}

/// The scheduler of a namespace; `drive` is what its conflict groups must be of, where it is known.
fn policy(namespace: &NamespacePlan, drive: Option<&DriveNames<'_>>) -> Result<Policy, ServeError> {
    Ok(match (namespace.scheduler, &namespace.groups) {
        (SchedulerSpec::None, _) => Policy::None,
        (SchedulerSpec::MqDeadline, _) => Policy::MqDeadline(MqDeadlineConfig::default()),
        (SchedulerSpec::Ezns, _) => Policy::Ezns(EznsConfig::default()),
        (SchedulerSpec::Interference, Some(path)) => {
            Policy::Interference(InterferenceConfig::new(groups::read(path, drive)?))
        }
        (SchedulerSpec::Interference, None) => Policy::Interference(InterferenceConfig::new(ZoneGroups::default())),
    })
}

fn scheduled(
    backing: Backing,
    namespace: &NamespacePlan,
    uuid: &[u8; 16],
    profile: Option<String>,
) -> Result<Backing, ServeError> {
    let drive = backing.drive();
    let shown = drive.whole_geometry().unwrap_or_else(|| drive.geometry(NamespaceId::FIRST));
    let location = match &namespace.source {
        Source::Device(path) if drive.identity().and_then(uuid_of_identity).is_none() => Some(device_location(path)),
        _ => None,
    };
    let names = DriveNames {
        shown,
        unused_zones: drive.unused_zones(),
        identifier: random::uuid_text(uuid),
        profile,
        location,
    };
    let policy = policy(namespace, Some(&names))?;
    Ok(match backing {
        _ if policy == Policy::None => backing,
        Backing::Drive(drive) => Backing::Drive(Box::new(ScheduledDrive::new(drive, &policy))),
        Backing::Volume(_) => unreachable!("the configuration refuses it"),
    })
}

/// Opens a drive, waiting for the lock of a server that was just killed. It does not wait for a
/// reservation of another host, which persists when that host is killed.
fn unused<T>(open: impl FnMut() -> Result<T, DriveError>) -> Result<T, ServeError> {
    let is_in_use =
        |result: &Result<T, DriveError>| result.as_ref().is_err_and(|error| error.is_in_use && error.holder.is_none());
    retry_lock_in_use(is_in_use, open).map_err(|error| ServeError::new(error.message, error.help))
}

fn model_of_image(image: &Image, elements: Option<&ElementTracker>) -> Result<Model, ServeError> {
    Model::of_image(image, elements).map_err(|error| ServeError::new(error.message, error.help))
}

fn paced(drive: Box<dyn Drive>, model: Option<Model>) -> Box<dyn Drive> {
    match model {
        Some(model) => Box::new(PacedDrive::new(drive, model)),
        None => drive,
    }
}

/// Service times are random samples; a server does not need a particular seed.
fn prng() -> Prng {
    Prng::new(1)
}

fn counted_drives(count: usize) -> String {
    if count == 1 { "1 drive".to_owned() } else { format!("{count} drives") }
}

/// Describes how an image was opened: clean, or recovered.
fn describe_recovery(report: &RecoveryReport, elements_reset_reason: Option<&str>, recovered: &str) -> String {
    let stop = if report.clean {
        "last shutdown: clean".to_owned()
    } else if report.found_blocks + report.dropped_blocks == 0 {
        format!("{recovered} after an unclean shutdown")
    } else {
        format!(
            "{recovered} after an unclean shutdown (blocks recovered: {}; unacknowledged and dropped: {})",
            report.found_blocks, report.dropped_blocks
        )
    };
    let elements = if elements_reset_reason.is_some() { ", storage elements reset" } else { "" };
    let version =
        if report.converted { ", converted to a newer format (older versions of zonda refuse it)" } else { "" };
    stop + elements + version
}
