//! Validates `zonda.toml`, and builds the plan of a server.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use zonda_chap::{Group, Policy, Secret};
use zonda_config::{ByteSize, ConfigError, Spanned, TimeSpan, parse_with};
use zonda_nvme::Nqn;
use zonda_ring::{Address, limits};
use zonda_ssd::description::{Profiles, SpecError};
use zonda_zoned::{Duration, NamespaceId};

use crate::memory::MEMORY_MIN;

use super::nbd::{NBD_PORT_DEFAULT, NbdPlan, NbdSpec};
use super::pools::{self, PoolSettings};
use super::{
    HostPlan, HostSpec, ListenSpec, MODEL_DEFAULT, NAMESPACES_MAX, NBD_TABLES_MAX, NamespacePlan, NamespaceSpec,
    PORT_DEFAULT, SUBSYSTEMS_MAX, SchedulerSpec, ServerPlan, ServerSpec, Source, SubsystemPlan, SubsystemSpec,
    TimingSpec, nbd,
};

const MUST_CONTAIN: &str = "a server needs at least one [[subsystem]] with an nqn and a [[subsystem.namespace]]; \
                            docs/guide/serve.md has examples";
const SERIAL_CHARACTERS_MAX: usize = 20;
const MODEL_CHARACTERS_MAX: usize = 40;

/// What a file refers to: its directory, profiles, other files.
pub struct ParseContext<'a> {
    /// The base of relative paths: the directory of the file.
    pub base: &'a Path,
    /// Name and text of each built-in profile.
    pub builtin_profiles: &'a [(&'a str, &'a str)],
    /// Reads a text file that the configuration names, or returns a short error.
    pub read_file: &'a dyn Fn(&str) -> Result<String, String>,
    /// The same for secrets and private keys: a file that others may read is refused.
    pub read_key: &'a dyn Fn(&str) -> Result<String, String>,
}

impl ServerPlan {
    /// Parses and checks a file.
    ///
    /// # Errors
    /// The first error, with its position; or one in a profile that the file names.
    pub fn parse(text: &str, context: &ParseContext<'_>) -> Result<ServerPlan, SpecError> {
        parse_with::<ServerSpec>(text, MUST_CONTAIN)?.check(context)
    }
}

impl ServerSpec {
    /// Checks everything that can be checked before a drive is opened.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn check(&self, context: &ParseContext<'_>) -> Result<ServerPlan, SpecError> {
        let listen = match &self.server.listen {
            None => vec![SocketAddr::from(([127, 0, 0, 1], PORT_DEFAULT))],
            Some(listen) => listen_addresses(listen)?,
        };
        let http = self.server.http.as_ref().map(http_address).transpose()?;
        if let (Some(place), Some(http)) = (&self.server.http, http) {
            http_differs(place, http, &listen)?;
        }
        if self.subsystem.is_empty() {
            return Err(ConfigError::new("no subsystem is configured").help(MUST_CONTAIN).into());
        }
        if let Some(excess) = self.subsystem.get(SUBSYSTEMS_MAX) {
            let error = ConfigError::at(excess, format!("too many subsystems: {}", self.subsystem.len()));
            return Err(error.help(format!("the maximum is {SUBSYSTEMS_MAX}")).into());
        }
        let mut subsystems: Vec<SubsystemPlan> = Vec::with_capacity(self.subsystem.len());
        let mut images = Vec::new();
        let defaults = Defaults { timing: self.server.timing, pools: pools::settings(self, context.base)? };
        for spec in &self.subsystem {
            let plan = subsystem(spec, &defaults, context, &mut images)?;
            if subsystems.iter().any(|earlier| earlier.nqn == plan.nqn) {
                let error = ConfigError::at(&spec.get_ref().nqn, "duplicate NQN: an earlier subsystem has the same");
                return Err(error
                    .help("give each subsystem a unique NQN, or merge them into one with two namespaces")
                    .into());
            }
            subsystems.push(plan);
        }
        pools::must_be_served(&defaults.pools, &subsystems)?;
        let auth_policy = self.server.dh_groups.as_ref().map_or_else(|| Ok(Policy::modest()), policy)?;
        let spin = self.server.spin.as_ref().map_or(Ok(limits::SPIN_DEFAULT), spin)?;
        let memory_bytes = self.server.memory.as_ref().map(memory).transpose()?;
        if let Some(excess) = self.nbd.get(NBD_TABLES_MAX) {
            let error = ConfigError::at(excess, format!("too many [[nbd]] tables: {}", self.nbd.len()));
            return Err(error.help(format!("the maximum is {NBD_TABLES_MAX}")).into());
        }
        let nbd: Vec<NbdPlan> =
            self.nbd.iter().map(|spec| nbd::check(spec, &subsystems, context)).collect::<Result<_, _>>()?;
        self.nbd.iter().zip(&nbd).try_for_each(|(spec, plan)| must_differ(spec, plan, &listen))?;
        let accepted = zonda_devices::VolumeOpenOptions::default();
        Ok(ServerPlan {
            listen,
            http,
            http_names: self.server.http_names.clone(),
            digests: self.server.digests,
            auth_policy,
            spin,
            memory_bytes,
            subsystems,
            nbd,
            may_serve_members: false,
            accepted,
        })
    }
}

fn policy(names: &Spanned<Vec<String>>) -> Result<Policy, ConfigError> {
    let known: Vec<String> = Group::ALL.iter().map(Group::to_string).collect();
    let help = format!("supported groups: {}", known.join(", "));
    let group = |name: &String| {
        let unknown = || ConfigError::at(names, format!("unknown Diffie-Hellman group {name:?}")).help(help.clone());
        Group::from_name(name).ok_or_else(unknown)
    };
    let groups: Vec<Group> = names.get_ref().iter().map(group).collect::<Result<_, _>>()?;
    Policy::new(Policy::default().hashes(), &groups)
        .map_err(|error| ConfigError::at(names, error.to_string()).help(help))
}

fn spin(spin: &Spanned<TimeSpan>) -> Result<Duration, ConfigError> {
    let time = Duration(spin.get_ref().nanoseconds());
    if time > limits::SPIN_MAX {
        return Err(ConfigError::at(spin, "the polling time is too long")
            .help(format!("use at most {} us, or \"0 s\" to disable polling", limits::SPIN_MAX.0 / 1000)));
    }
    Ok(time)
}

fn memory(size: &Spanned<ByteSize>) -> Result<u64, ConfigError> {
    let bytes = size.get_ref().0;
    match check_memory(bytes) {
        Ok(()) => Ok(bytes),
        Err((message, help)) => Err(ConfigError::at(size, message).help(help)),
    }
}

/// Checks the memory budget of a server; the error is a message and its remedy.
///
/// # Errors
/// Below [`MEMORY_MIN`].
pub fn check_memory(bytes: u64) -> Result<(), (String, String)> {
    if bytes < MEMORY_MIN {
        let message = format!("a memory budget of {} is too small for the data of all connections", ByteSize(bytes));
        return Err((message, format!("use at least {}", ByteSize(MEMORY_MIN))));
    }
    Ok(())
}

fn listen_addresses(listen: &Spanned<ListenSpec>) -> Result<Vec<SocketAddr>, ConfigError> {
    let texts = listen.get_ref().texts();
    if texts.is_empty() {
        return Err(ConfigError::at(listen, "no address to listen on").help("add one, such as \"0.0.0.0:4420\""));
    }
    texts.iter().map(|text| address(listen, text)).collect()
}

/// Refuses an address for both HTTP and NVMe/TCP.
fn http_differs(place: &Spanned<String>, http: SocketAddr, listen: &[SocketAddr]) -> Result<(), ConfigError> {
    if http.port() == 0 || !listen.contains(&http) {
        return Ok(());
    }
    let error = ConfigError::at(place, format!("listen and http of [server] use the same address, {http}"));
    Err(error.help(format!("choose another port for one of them, such as http = \"{}:9420\"", http.ip())))
}

/// Refuses an address for both NVMe/TCP and NBD.
fn must_differ(spec: &Spanned<NbdSpec>, plan: &NbdPlan, listen: &[SocketAddr]) -> Result<(), ConfigError> {
    let is_used = |address: &Address| matches!(address, Address::Tcp(tcp) if tcp.port() != 0 && listen.contains(tcp));
    let Some(both) = plan.listen.iter().find(|address| is_used(address)) else { return Ok(()) };
    let message = format!("{both} is already the NVMe/TCP address of this server: listen of [server]");
    let error = match &spec.get_ref().listen {
        Some(listen) => ConfigError::at(listen, message),
        None => ConfigError::at(spec, message),
    };
    Err(error.help(format!("choose another port for NBD clients, such as {NBD_PORT_DEFAULT}, or for [server]")))
}

fn http_address(http: &Spanned<String>) -> Result<SocketAddr, ConfigError> {
    if http.get_ref() == "off" {
        let error = ConfigError::at(http, "\"off\" is not an address");
        return Err(error.help("remove the key http: without it, the server has no HTTP port"));
    }
    address(http, http.get_ref())
}

fn address<T>(place: &Spanned<T>, text: &str) -> Result<SocketAddr, ConfigError> {
    resolve(text).map_err(|reason| {
        ConfigError::at(place, reason)
            .help("use HOST:PORT, such as \"127.0.0.1:4420\", \"[::1]:4420\" or \"0.0.0.0:4420\"")
    })
}

/// Parses an address, `HOST:PORT`; a host name is resolved.
///
/// # Errors
/// Why it is not a valid address.
pub fn resolve(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| {
        let reason = match error.kind() {
            ErrorKind::InvalidInput if !text.contains(':') => "the port is missing".to_owned(),
            _ => error.to_string(),
        };
        format!("cannot resolve the address \"{text}\": {reason}")
    })?;
    found.next().ok_or_else(|| format!("the name \"{text}\" has no address"))
}

/// What applies to namespaces that do not name it.
struct Defaults {
    timing: TimingSpec,
    pools: Vec<PoolSettings>,
}

fn subsystem(
    spec: &Spanned<SubsystemSpec>,
    defaults: &Defaults,
    context: &ParseContext<'_>,
    images: &mut Vec<PathBuf>,
) -> Result<SubsystemPlan, SpecError> {
    let table = spec.get_ref();
    let nqn = name(&table.nqn, "use an NQN such as \"nqn.2026-01.io.zonda:mine\"")?;
    let serial = match &table.serial {
        Some(serial) => identify_string(serial, SERIAL_CHARACTERS_MAX)?,
        None => serial_of(&nqn),
    };
    let model = match &table.model {
        Some(model) => identify_string(model, MODEL_CHARACTERS_MAX)?,
        None => MODEL_DEFAULT.to_owned(),
    };
    let hosts = match &table.host {
        None => None,
        Some(hosts) => Some(hosts.iter().map(|spec| host(spec, context)).collect::<Result<Vec<_>, _>>()?),
    };
    if table.namespace.is_empty() {
        let error = ConfigError::at(spec, "this subsystem has no namespace");
        return Err(error
            .help("add [[subsystem.namespace]] with an image, a device, a volume, a namespace of a pool or memory")
            .into());
    }
    if let Some(excess) = table.namespace.get(NAMESPACES_MAX) {
        let error = ConfigError::at(excess, format!("too many namespaces: {}", table.namespace.len()));
        return Err(error.help(format!("the maximum per subsystem is {NAMESPACES_MAX}")).into());
    }
    let mut namespaces: Vec<NamespacePlan> = Vec::with_capacity(table.namespace.len());
    for spec in &table.namespace {
        let id = namespace_id(spec, &namespaces)?;
        let source = source(spec, context, images)?;
        let read_only = read_only(spec, &source)?;
        let (timing, scheduler, groups) = match &source {
            Source::Pool { path, .. } => pools::of_namespace(spec, path, defaults.timing, &defaults.pools)?,
            _ => {
                let timing = spec.get_ref().timing.as_ref().map_or(defaults.timing, |timing| *timing.get_ref());
                let scheduler = scheduler(spec, &source)?;
                let place = spec.get_ref().scheduler.as_ref().map_or_else(|| spec.span(), Spanned::span);
                let groups = pools::groups_of(scheduler, place, &spec.get_ref().groups, context.base)?;
                (timing, scheduler, groups)
            }
        };
        let zones = zones(spec, &source)?;
        namespaces.push(NamespacePlan { id, source, timing, scheduler, groups, read_only, zones });
    }
    namespaces.sort_by_key(|namespace| namespace.id);
    Ok(SubsystemPlan { nqn, serial, model, hosts, namespaces })
}

fn namespace_id(spec: &Spanned<NamespaceSpec>, earlier: &[NamespacePlan]) -> Result<NamespaceId, ConfigError> {
    let is_taken = |id| earlier.iter().any(|namespace| namespace.id == NamespaceId(id));
    let Some(wanted) = &spec.get_ref().id else {
        let free = (1..).find(|id| !is_taken(*id)).expect("there are more IDs than namespaces");
        return Ok(NamespaceId(free));
    };
    let id = *wanted.get_ref();
    if id == 0 || id as usize > NAMESPACES_MAX {
        return Err(ConfigError::at(wanted, format!("invalid namespace ID {id}"))
            .help(format!("use an ID from 1 to {NAMESPACES_MAX}")));
    }
    if is_taken(id) {
        return Err(ConfigError::at(wanted, format!("duplicate namespace ID {id}"))
            .help("give each namespace a unique ID, or none: IDs are then assigned from 1"));
    }
    Ok(NamespaceId(id))
}

fn source(
    spec: &Spanned<NamespaceSpec>,
    context: &ParseContext<'_>,
    images: &mut Vec<PathBuf>,
) -> Result<Source, SpecError> {
    let table = spec.get_ref();
    let mut own = |place: &Spanned<String>, what: &str| {
        let path = context.base.join(place.get_ref());
        if images.contains(&path) {
            let error = ConfigError::at(place, format!("this {what} is already used by another namespace"));
            return Err(error.help(format!("use each {what} for one namespace only")));
        }
        images.push(path.clone());
        Ok(path)
    };
    if let (None, Some(name)) = (&table.pool, &table.name) {
        let error = ConfigError::at(name, "name is that of a namespace of a pool, and no pool is given");
        return Err(error.help("add pool = \"DIR\", the directory of the pool; or remove name").into());
    }
    match (&table.image, &table.volume, &table.memory) {
        (None, None, None) if table.pool.is_some() && table.device.is_none() => Ok(pool(spec, context, images)?),
        _ if table.pool.is_some() => Err(one_source(spec).into()),
        (None, None, None) if table.device.is_some() => {
            let place = table.device.as_ref().expect("it was just found");
            if table.timing.as_ref().is_some_and(|timing| *timing.get_ref() == TimingSpec::Profile) {
                let error = ConfigError::at(place, "timing = \"profile\" is not supported for a drive of this machine");
                return Err(error.help("remove timing: the drive has its own").into());
            }
            Ok(Source::Device(own(place, "device")?))
        }
        _ if table.device.is_some() => Err(one_source(spec).into()),
        (Some(image), None, None) => Ok(Source::Image(own(image, "image")?)),
        (None, Some(volume), None)
            if table.timing.as_ref().is_some_and(|timing| *timing.get_ref() == TimingSpec::Profile) =>
        {
            let error = ConfigError::at(volume, "timing = \"profile\" is not supported for a volume");
            Err(error.help("remove timing, or serve the members with it from another server").into())
        }
        (None, Some(volume), None) => Ok(Source::Volume(own(volume, "volume")?)),
        (None, None, Some(memory)) => {
            let profiles = Profiles::new(context.builtin_profiles, context.read_file);
            let drive = memory.get_ref().plan(&profiles)?;
            if !memory.get_ref().layer.is_empty() {
                let error = ConfigError::at(memory, "layers are not supported for a drive in memory");
                return Err(error.help("use layers in job files").into());
            }
            Ok(Source::Memory(Box::new(drive)))
        }
        _ => Err(one_source(spec).into()),
    }
}

fn one_source(spec: &Spanned<NamespaceSpec>) -> ConfigError {
    let error = ConfigError::at(spec, "a namespace needs exactly one of image, device, volume, pool and memory");
    error.help(
        "write image = \"DIR\", device = \"/dev/nvme0n1\", volume = \"DIR\", pool = \"DIR\" with name = \"NAME\", or \
         memory = { profile = \"zn540\" }",
    )
}

/// A namespace of a pool, which several tables may name.
fn pool(
    spec: &Spanned<NamespaceSpec>,
    context: &ParseContext<'_>,
    used: &mut Vec<PathBuf>,
) -> Result<Source, ConfigError> {
    let table = spec.get_ref();
    let place = table.pool.as_ref().expect("the table names a pool");
    let Some(name) = &table.name else {
        let error = ConfigError::at(place, "a namespace of a pool needs its name");
        return Err(error.help("add name = \"NAME\"; zonda namespace list DIR lists the namespaces of a pool"));
    };
    let path = context.base.join(place.get_ref());
    // A pool can be used several times, each of its namespaces once; `used` has both.
    let own = path.join(":").join(name.get_ref());
    if used.contains(&own) {
        let error = ConfigError::at(name, "this namespace of the pool is already used by another namespace");
        return Err(error.help("use each namespace of a pool once"));
    }
    used.push(own);
    Ok(Source::Pool { path, name: name.get_ref().clone() })
}

/// The scheduler of a namespace, which volumes cannot have.
fn scheduler(spec: &Spanned<NamespaceSpec>, source: &Source) -> Result<SchedulerSpec, ConfigError> {
    let Some(place) = &spec.get_ref().scheduler else { return Ok(SchedulerSpec::None) };
    if *place.get_ref() == SchedulerSpec::None {
        return Ok(SchedulerSpec::None);
    }
    match source {
        Source::Volume(_) => Err(ConfigError::at(place, "a scheduler is not supported for a volume")
            .help("remove scheduler, or set it for the members on the server that serves them")),
        _ => Ok(*place.get_ref()),
    }
}

/// Whether a namespace is served read-only, which only images and namespaces of pools can be.
fn read_only(spec: &Spanned<NamespaceSpec>, source: &Source) -> Result<bool, ConfigError> {
    let Some(place) = spec.get_ref().read_only.as_ref().filter(|read_only| *read_only.get_ref()) else {
        return Ok(false);
    };
    let (message, help) = match source {
        Source::Image(_) | Source::Pool { .. } => return Ok(true),
        Source::Volume(path) => (
            format!("the volume {} cannot be served read-only: opening it writes to its members", path.display()),
            "remove read_only (--read-only); read_only = true in [[nbd]] refuses writes over NBD",
        ),
        Source::Device(path) => {
            (format!("the drive {} cannot be served read-only", path.display()), "remove read_only (--read-only)")
        }
        Source::Memory(_) => (
            "a drive in memory cannot be served read-only: it would always be empty".to_owned(),
            "remove read_only, or serve an image",
        ),
    };
    Err(ConfigError::at(place, message).help(help))
}

/// The number of zones that are served, of an image that is written to.
fn zones(spec: &Spanned<NamespaceSpec>, source: &Source) -> Result<Option<u32>, ConfigError> {
    let Some(place) = &spec.get_ref().zones else { return Ok(None) };
    let is_read_only = spec.get_ref().read_only.as_ref().is_some_and(|read_only| *read_only.get_ref());
    if !matches!(source, Source::Image(_)) || is_read_only {
        let error = ConfigError::at(place, "zones applies to an image that is not read-only");
        return Err(error.help("remove zones; the size of a drive in memory is set = { \"geometry.zones\" = N }"));
    }
    if *place.get_ref() == 0 {
        return Err(
            ConfigError::at(place, "a namespace has at least one zone").help("use the number of zones to serve")
        );
    }
    Ok(Some(*place.get_ref()))
}

fn host(spec: &Spanned<HostSpec>, context: &ParseContext<'_>) -> Result<HostPlan, ConfigError> {
    let table = spec.get_ref();
    let secret = secret(table.secret.as_ref(), table.secret_file.as_ref(), context)?;
    let controller_secret =
        self::secret(table.controller_secret.as_ref(), table.controller_secret_file.as_ref(), context)?;
    if controller_secret.is_some() && secret.is_none() {
        return Err(ConfigError::at(spec, "controller_secret requires a secret of the host")
            .help("add secret or secret_file: NVMe authenticates the controller only after the host"));
    }
    Ok(HostPlan { nqn: name(&table.nqn, HOST_NQN_HELP)?, secret, controller_secret })
}

fn secret(
    text: Option<&Spanned<String>>,
    file: Option<&Spanned<String>>,
    context: &ParseContext<'_>,
) -> Result<Option<Secret>, ConfigError> {
    let (place, text) = match (text, file) {
        (None, None) => return Ok(None),
        (Some(text), None) => (text, text.get_ref().clone()),
        (None, Some(file)) => {
            let text = (context.read_key)(file.get_ref()).map_err(|reason| {
                ConfigError::at(file, format!("cannot read the secret: {reason}"))
                    .help("use a file with one line, DHHC-1:..., that only its owner may read (chmod 600)")
            })?;
            (file, text)
        }
        (Some(_), Some(file)) => {
            return Err(ConfigError::at(file, "both a secret and a file with it are set").help("remove one of them"));
        }
    };
    // The text itself is not repeated: errors end up in logs.
    Secret::parse(text.trim())
        .map(Some)
        .map_err(|reason| ConfigError::at(place, format!("invalid DH-HMAC-CHAP secret: {reason}")).help(SECRET_HELP))
}

const SECRET_HELP: &str = "generate one with zonda secret or nvme gen-dhchap-key";

const HOST_NQN_HELP: &str =
    "use the NQN of the host, as in its /etc/nvme/hostnqn: \"nqn.2014-08.org.nvmexpress:uuid:UUID\"";

fn name(text: &Spanned<String>, example: &str) -> Result<Nqn, ConfigError> {
    Nqn::well_formed(text.get_ref())
        .map_err(|reason| ConfigError::at(text, format!("not a valid NQN: {reason}")).help(example))
}

/// Checks a string of Identify Controller: ASCII, and not too long.
fn identify_string(text: &Spanned<String>, characters_max: usize) -> Result<String, ConfigError> {
    let value = text.get_ref();
    let is_fine = !value.is_empty()
        && value.len() <= characters_max
        && value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if is_fine {
        return Ok(value.clone());
    }
    Err(ConfigError::at(text, "not a valid string for Identify Controller")
        .help(format!("use 1 to {characters_max} ASCII characters: letters, digits, punctuation and spaces")))
}

/// A serial number that is stable across restarts: the FNV-1a hash of the NQN.
pub(super) fn serial_of(nqn: &Nqn) -> String {
    let hash = nqn
        .as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("ZONDA{:012X}", hash >> 16)
}
