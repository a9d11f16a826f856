//! `zonda.toml`: the namespaces that a server exports, and the hosts that may use them.
//!
//! ```toml
//! [server]
//! listen = ["127.0.0.1:4420"]
//! http = "127.0.0.1:9420"
//!
//! [[subsystem]]
//! nqn = "nqn.2026-01.io.zonda:fast"
//! host = [{ nqn = "nqn.2014-08.org.nvmexpress:uuid:2c5f8b1e-7f0a-4c58-9d53-0b6f3f1d6a01", secret_file = "db1.key" }]
//!
//!   [[subsystem.namespace]]
//!   image = "drives/fast"
//!
//!   [[subsystem.namespace]]
//!   memory = { profile = "zn540", set = { "geometry.zones" = 64 } }
//!   timing = "profile"
//!
//!   [[subsystem.namespace]]
//!   pool = "pool"
//!   name = "db"
//!
//! [[pool]]
//! path = "pool"
//! scheduler = "ezns"
//!
//! [[nbd]]
//! listen = "unix:/run/zonda/nbd.sock"
//! ```
//!
//! Two steps: [`ServerSpec`] is the parsed file; [`ServerPlan`] has been checked, and can be
//! served. docs/guide/serve.md explains every key.

mod check;
mod nbd;
mod pools;
mod spec;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use zonda_chap::{Policy, Secret};
use zonda_devices::VolumeOpenOptions;
use zonda_nvme::Nqn;
use zonda_ring::limits;
use zonda_ssd::description::DrivePlan;
use zonda_zoned::{Duration, NamespaceId};

pub use zonda_devices::PORT_DEFAULT;

pub use check::{ParseContext, check_memory, resolve};
pub use nbd::{NBD_PORT_DEFAULT, NbdExportPlan, NbdExportSpec, NbdPlan, NbdSpec, NbdTlsSpec, nbd_address};
pub use spec::{
    DigestsSpec, HostSpec, ListenSpec, NamespaceSpec, PoolSpec, SchedulerSpec, ServerSpec, ServerTable, SubsystemSpec,
    TimingSpec,
};

/// The prefix of generated NQNs.
pub const NQN_PREFIX: &str = "nqn.2026-01.io.zonda:";
/// The default model number of controllers.
pub const MODEL_DEFAULT: &str = "zonda";
/// Subsystems of one server.
pub const SUBSYSTEMS_MAX: usize = 256;
/// Namespaces of one subsystem.
pub const NAMESPACES_MAX: usize = 256;
/// `[[nbd]]` tables of one server.
pub const NBD_TABLES_MAX: usize = 64;

/// A server that can be started.
#[derive(Debug)]
pub struct ServerPlan {
    /// The addresses for hosts.
    pub listen: Vec<SocketAddr>,
    /// The address for metrics, if enabled.
    pub http: Option<SocketAddr>,
    /// Host names accepted in HTTP requests, in addition to those of the machine.
    pub http_names: Vec<String>,
    /// Whether hosts may enable header and data digests.
    pub digests: DigestsSpec,
    /// Hashes and Diffie-Hellman groups for authentication.
    pub auth_policy: Policy,
    /// How long the loop polls at most before it sleeps (see `zonda_ring::RingOptions`).
    pub spin: Duration,
    /// Bytes for the data of all connections together, at least [`crate::MEMORY_MIN`]. `None`: a
    /// quarter of the machine's memory, at most [`crate::MEMORY_DEFAULT_MAX`].
    pub memory_bytes: Option<u64>,
    /// The subsystems.
    pub subsystems: Vec<SubsystemPlan>,
    /// The NBD servers.
    pub nbd: Vec<NbdPlan>,
    /// Whether images that are members of a volume may be served by themselves: hosts may overwrite
    /// data of the volume.
    pub may_serve_members: bool,
    /// Overrides for opening the volumes, for this start only.
    pub accepted: VolumeOpenOptions,
}

impl ServerPlan {
    /// Directories of the volumes.
    pub fn volumes(&self) -> impl Iterator<Item = &Path> {
        let namespaces = self.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
        namespaces.filter_map(|namespace| match &namespace.source {
            Source::Volume(path) => Some(path.as_path()),
            _ => None,
        })
    }

    /// Directories of the pools, each once.
    #[must_use]
    pub fn pools(&self) -> Vec<&Path> {
        let namespaces = self.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
        let paths = namespaces.filter_map(|namespace| match &namespace.source {
            Source::Pool { path, .. } => Some(path.as_path()),
            _ => None,
        });
        let mut pools: Vec<&Path> = Vec::new();
        for path in paths {
            if !pools.contains(&path) {
                pools.push(path);
            }
        }
        pools
    }

    /// One namespace for any host on this machine, at a port that the kernel chooses; otherwise
    /// defaults.
    #[must_use]
    pub fn on_loopback(nqn: Nqn, source: Source) -> ServerPlan {
        let namespace = NamespacePlan {
            id: NamespaceId::FIRST,
            source,
            timing: TimingSpec::default(),
            scheduler: SchedulerSpec::None,
            groups: None,
            read_only: false,
            zones: None,
        };
        let serial = check::serial_of(&nqn);
        let subsystem =
            SubsystemPlan { nqn, serial, model: MODEL_DEFAULT.to_owned(), hosts: None, namespaces: vec![namespace] };
        ServerPlan {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            http: None,
            http_names: Vec::new(),
            digests: DigestsSpec::default(),
            auth_policy: Policy::modest(),
            spin: limits::SPIN_DEFAULT,
            memory_bytes: None,
            subsystems: vec![subsystem],
            nbd: Vec::new(),
            may_serve_members: false,
            accepted: VolumeOpenOptions::default(),
        }
    }
}

/// One NVM subsystem.
#[derive(Debug)]
pub struct SubsystemPlan {
    /// Its name.
    pub nqn: Nqn,
    /// Serial number, at most 20 ASCII characters.
    pub serial: String,
    /// Model number, at most 40 ASCII characters.
    pub model: String,
    /// Hosts that may connect; `None`: any host.
    pub hosts: Option<Vec<HostPlan>>,
    /// Its namespaces, in the order of their ids.
    pub namespaces: Vec<NamespacePlan>,
}

/// A host that may connect.
#[derive(Debug)]
pub struct HostPlan {
    /// Its name.
    pub nqn: Nqn,
    /// The secret of the host, if it must authenticate.
    pub secret: Option<Secret>,
    /// The secret of the controller, for bidirectional authentication.
    pub controller_secret: Option<Secret>,
}

/// One namespace.
#[derive(Debug)]
pub struct NamespacePlan {
    /// Its ID.
    pub id: NamespaceId,
    /// Its backing store.
    pub source: Source,
    /// The timing of its commands; of a namespace of a pool that of the drive of the pool.
    pub timing: TimingSpec,
    /// The order in which its commands are submitted; of a namespace of a pool that of all commands to
    /// the drive of the pool.
    pub scheduler: SchedulerSpec,
    /// The file with the conflict groups of the drive; for [`SchedulerSpec::Interference`] alone.
    pub groups: Option<PathBuf>,
    /// Whether it is read-only; only for an image or a namespace of a pool.
    pub read_only: bool,
    /// The number of zones that are served; `None`: all. Only for an image.
    pub zones: Option<u32>,
}

/// The backing store of a namespace.
#[derive(Debug)]
pub enum Source {
    /// The directory of an image.
    Image(PathBuf),
    /// The device file of a zoned drive of this machine.
    Device(PathBuf),
    /// The directory of a redundant volume.
    Volume(PathBuf),
    /// A namespace of a pool.
    Pool {
        /// The directory of the pool.
        path: PathBuf,
        /// The name of the namespace.
        name: String,
    },
    /// Memory; lost when the server stops.
    Memory(Box<DrivePlan>),
}

impl Source {
    /// Whether both are the same image, device, volume or namespace of a pool. Memory is of one namespace only.
    pub(crate) fn is_same_place(&self, other: &Source) -> bool {
        match (self, other) {
            (Source::Image(one), Source::Image(other))
            | (Source::Device(one), Source::Device(other))
            | (Source::Volume(one), Source::Volume(other)) => one == other,
            (Source::Pool { path: one, name }, Source::Pool { path: other, name: other_name }) => {
                (one, name) == (other, other_name)
            }
            _ => false,
        }
    }
}
