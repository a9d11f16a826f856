//! From a plan to drives that are open and a target that knows them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use zonda_devices::{
    Drive, DriveError, FileBacked, MemoryDrive, Model, PacedDrive, ReadOnlyImage, VolumeDrive, random, volume_of_image,
};
use zonda_image::{Image, RecoveryReport};
use zonda_nvme::identify::NamespaceIdentity;
use zonda_nvme::tcp::Digests;
use zonda_ring::{Bytes, Ring};
use zonda_ssd::allocation::ElementBook;
use zonda_ssd::profile::Profile;
use zonda_target::{HostAccess, HostEntry, NamespaceConfig, Portal, SubsystemConfig, Target, TargetConfig};
use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{NamespaceId, Prng};

use crate::config::{DigestsSpec, HostPlan, NamespacePlan, ServerPlan, Source, SubsystemPlan, TimingSpec};
use crate::drives::Drives;
use crate::events;
use crate::memory::Memory;
use crate::nbd::Candidate;
use crate::report::{NamespaceLayout, SubsystemLayout};
use crate::served::Served;
use crate::start::{NamespaceInfo, ServeError, SubsystemInfo, retry_lock_in_use};

/// Firmware revision that hosts are shown: at most 8 characters.
const FIRMWARE: &str = env!("CARGO_PKG_VERSION");

/// What a plan has become.
pub(crate) struct Built {
    pub(crate) target: Target,
    pub(crate) drives: Drives,
    pub(crate) subsystems: Vec<SubsystemInfo>,
    pub(crate) layout: Vec<SubsystemLayout>,
    /// What could be exported over NBD.
    pub(crate) candidates: Vec<Candidate>,
}

/// A drive that is open.
struct Opened {
    drive: Box<dyn Drive>,
    /// In a few words.
    source: String,
    state: String,
    uuid: [u8; 16],
    volatile_write_cache: bool,
    /// What was kept of reservations; `None` where they can neither be kept nor were.
    reservations: Option<Bytes>,
}

/// Opens every drive of the plan.
pub(crate) fn build(
    plan: &ServerPlan,
    memory: &Memory,
    ring: &Ring,
    listen: &[SocketAddr],
) -> Result<Built, ServeError> {
    let mut drives = Drives::default();
    let (mut subsystems, mut layout, mut configs) = (Vec::new(), Vec::new(), Vec::new());
    let mut candidates = Vec::new();
    let (mut kept_reservations, mut write_protected) = (BTreeMap::new(), BTreeSet::new());
    for subsystem in &plan.subsystems {
        let (mut infos, mut layouts, mut namespaces) = (Vec::new(), Vec::new(), Vec::new());
        for namespace in &subsystem.namespaces {
            let opened = open(plan, subsystem, namespace, ring)?;
            let geometry = opened.drive.geometry(NamespaceId::FIRST).clone();
            infos.push(NamespaceInfo {
                id: namespace.id.0,
                source: opened.source.clone(),
                zones: geometry.zone_count,
                zone_capacity_bytes: geometry.zone_capacity_bytes(),
                state: opened.state,
                read_only: namespace.read_only,
            });
            let timing = if namespace.timing == TimingSpec::None { "none" } else { "profile" };
            let source = opened.source.clone();
            let device = drives.add(Served::new(opened.drive, opened.source, timing));
            kept_reservations.extend(opened.reservations.map(|kept| (device, kept)));
            write_protected.extend(namespace.read_only.then_some(device));
            candidates.push(Candidate {
                nqn: subsystem.nqn.clone(),
                namespace: namespace.id,
                device,
                geometry: geometry.clone(),
                source,
                volatile_write_cache: opened.volatile_write_cache,
                read_only: namespace.read_only,
            });
            layouts.push(NamespaceLayout { id: namespace.id, device, read_only: namespace.read_only });
            namespaces.push(NamespaceConfig {
                id: namespace.id,
                device,
                device_namespace: NamespaceId::FIRST,
                geometry,
                identity: NamespaceIdentity { uuid: Some(opened.uuid), ..NamespaceIdentity::default() },
                volatile_write_cache: opened.volatile_write_cache,
            });
        }
        let nqn = subsystem.nqn.to_string();
        subsystems.push(SubsystemInfo { nqn: nqn.clone(), namespaces: infos });
        layout.push(SubsystemLayout { nqn, namespaces: layouts });
        configs.push(SubsystemConfig {
            nqn: subsystem.nqn.clone(),
            serial: subsystem.serial.clone(),
            model: subsystem.model.clone(),
            firmware: FIRMWARE.chars().take(8).collect(),
            namespaces,
            allow: access(subsystem.hosts.as_deref()),
        });
    }
    let mut config = config(plan, memory, configs, listen)?;
    config.kept_reservations = kept_reservations;
    config.write_protected = write_protected;
    let target =
        Target::new(config).map_err(|error| ServeError::new(format!("{}: {}", error.subject, error.remedy), ""))?;
    Ok(Built { target, drives, subsystems, layout, candidates })
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

fn access(hosts: Option<&[HostPlan]>) -> HostAccess {
    let Some(hosts) = hosts else { return HostAccess::Any };
    let entries = hosts.iter().map(|host| HostEntry {
        nqn: host.nqn.clone(),
        secret: host.secret.clone(),
        controller_secret: host.controller_secret.clone(),
    });
    HostAccess::Hosts(entries.collect())
}

/// A member of a volume is for that volume alone.
fn refuse_member(path: &Path) -> Result<(), ServeError> {
    let Some(volume) = volume_of_image(path) else { return Ok(()) };
    Err(ServeError::new(
        format!("the image in {} is {volume}, and hosts could overwrite what that needs", path.display()),
        "serve the volume instead: zonda serve with its directory; say --force if a volume on another machine reaches this member \
         through this server, or if nobody needs the volume any more",
    ))
}

fn open(
    plan: &ServerPlan,
    subsystem: &SubsystemPlan,
    namespace: &NamespacePlan,
    ring: &Ring,
) -> Result<Opened, ServeError> {
    let is_paced = namespace.timing == TimingSpec::Profile;
    match &namespace.source {
        Source::Image(path) if namespace.read_only => {
            let (drive, report) = unused(|| ReadOnlyImage::open(path, ring))?;
            let uuid = drive.image().spec().uuid;
            let state = format!("read-only, {}", in_words(&report, drive.elements_began_anew(), "recovered in memory"));
            let reservations = Some(drive.reservations());
            let model = if is_paced { Some(model_of_image(drive.image(), drive.elements())?) } else { None };
            Ok(Opened {
                drive: paced(Box::new(drive), model),
                source: path.display().to_string(),
                state,
                uuid,
                volatile_write_cache: false,
                reservations,
            })
        }
        Source::Image(path) => {
            if !plan.may_serve_members {
                refuse_member(path)?;
            }
            let (drive, report) = unused(|| FileBacked::open(path, ring))?;
            let uuid = drive.image().spec().uuid;
            let state = in_words(&report, drive.elements_began_anew(), "recovered");
            let reservations = drive.kept_reservations();
            let model = if is_paced { Some(model_of_image(drive.image(), drive.elements())?) } else { None };
            Ok(Opened {
                drive: paced(Box::new(drive), model),
                source: path.display().to_string(),
                state,
                uuid,
                volatile_write_cache: true,
                reservations,
            })
        }
        Source::Volume(path) => {
            let volume = unused(|| {
                VolumeDrive::open_watched(path, &plan.accepted, ring, &mut |notice| events::notice(path, &notice))
            })?;
            let report = volume.report();
            let state = format!("a volume of {} drives, {}, {}", report.members.len(), report.scheme, report.state);
            let uuid = volume.array();
            let reservations = volume.kept_reservations();
            Ok(Opened {
                drive: Box::new(volume),
                source: path.display().to_string(),
                state,
                uuid,
                volatile_write_cache: true,
                reservations,
            })
        }
        Source::Memory(plan) => {
            let geometry = plan.profile().geometry();
            let model =
                is_paced.then(|| Model::standing_as(plan.profile(), &ZoneTable::new(geometry.clone()), None, &prng()));
            let drive = Box::new(MemoryDrive::new(geometry, u64::MAX));
            let state = format!("empty, as {}", plan.profile().name);
            let uuid = uuid_of(&format!("{}/{}", subsystem.nqn, namespace.id));
            Ok(Opened {
                drive: paced(drive, model),
                source: "memory".to_owned(),
                state,
                uuid,
                volatile_write_cache: false,
                reservations: None,
            })
        }
    }
}

/// Opens a drive, which a server that was killed a moment ago may still have locked. A reservation of another host is not waited for: it
/// stays when its host is killed.
fn unused<T>(open: impl FnMut() -> Result<T, DriveError>) -> Result<T, ServeError> {
    let is_in_use =
        |result: &Result<T, DriveError>| result.as_ref().is_err_and(|error| error.is_in_use && error.holder.is_none());
    retry_lock_in_use(is_in_use, open).map_err(|error| ServeError::new(error.message, error.help))
}

fn model_of_image(image: &Image, elements: Option<&ElementBook>) -> Result<Model, ServeError> {
    let profile = Profile::parse(&image.spec().profile).map_err(|error| {
        ServeError::new(
            format!("the image's profile cannot be read by this zonda: {error}"),
            "serve it with --timing none, or with the zonda that made it",
        )
    })?;
    let elements = elements.map(ElementBook::table);
    Ok(Model::standing_as(&profile, image.zones(), elements.as_ref(), &prng()))
}

fn paced(drive: Box<dyn Drive>, model: Option<Model>) -> Box<dyn Drive> {
    match model {
        Some(model) => Box::new(PacedDrive::new(drive, model)),
        None => drive,
    }
}

/// Times are drawn from laws; which draws they are is all the same to a server.
fn prng() -> Prng {
    Prng::new(1)
}

/// A UUID that is the same after every start, for a drive that is not (RFC 9562, version 8: bits of our own).
fn uuid_of(name: &str) -> [u8; 16] {
    let mut prng = name.bytes().fold(Prng::new(0), |prng, byte| prng.fork(&char::from(byte).to_string()));
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&prng.next_u64().to_le_bytes());
    uuid[8..].copy_from_slice(&prng.next_u64().to_le_bytes());
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// What opening an image has found, and how it was recovered where it had to be.
fn in_words(report: &RecoveryReport, elements_began_anew: Option<&str>, recovered: &str) -> String {
    let stop = if report.clean {
        "shut down in order".to_owned()
    } else {
        format!(
            "{recovered} after a stop that was not in order ({} blocks found, {} never acknowledged)",
            report.found_blocks, report.dropped_blocks
        )
    };
    let elements = if elements_began_anew.is_some() { ", storage elements begin anew" } else { "" };
    let version = if report.converted { ", converted to a format that older programs refuse" } else { "" };
    stop + elements + version
}
