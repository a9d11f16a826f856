//! `zonda.toml`: what a server serves, and to whom.
//!
//! ```toml
//! [server]
//! listen = ["127.0.0.1:4420"]
//! http = "127.0.0.1:9420"
//!
//! [[subsystem]]
//! nqn = "nqn.2026-01.io.zonda:fast"
//! host = [{ nqn = "nqn.2014-08.org.nvmexpress:uuid:...", secret_file = "db1.key" }]
//!
//!   [[subsystem.namespace]]
//!   image = "drives/fast"
//!
//!   [[subsystem.namespace]]
//!   memory = { profile = "zn540", set = { "geometry.zones" = 64 } }
//!   timing = "profile"
//!
//! [[nbd]]
//! listen = "unix:/run/zonda/nbd.sock"
//! ```
//!
//! Two steps: [`ServerSpec`] is what stands in the file; [`ServerPlan`] has been checked, and can be served.
//! docs/guide/serve.md explains every key.

mod check;
mod nbd;
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

pub use check::{Surroundings, check_memory, resolve};
pub use nbd::{NBD_PORT_DEFAULT, NbdExportPlan, NbdExportSpec, NbdPlan, NbdSpec, NbdTlsSpec, nbd_address};
pub use spec::{DigestsSpec, HostSpec, ListenSpec, NamespaceSpec, ServerSpec, ServerTable, SubsystemSpec, TimingSpec};

/// What the names of subsystems begin with when nobody names them.
pub const NQN_PREFIX: &str = "nqn.2026-01.io.zonda:";
/// The model number of controllers, when nobody names it.
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
    /// Where hosts connect.
    pub listen: Vec<SocketAddr>,
    /// Where metrics are read, if anywhere.
    pub http: Option<SocketAddr>,
    /// Names under which it is asked, beside the machine's own.
    pub http_names: Vec<String>,
    /// Whether header and data digests are granted to hosts that ask for them.
    pub digests: DigestsSpec,
    /// Hashes and groups with which hosts may prove who they are.
    pub auth_policy: Policy,
    /// How long the loop polls at most before it sleeps (see `zonda_ring::RingOptions`).
    pub spin: Duration,
    /// Bytes for the data of all connections together, at least [`crate::MEMORY_MIN`]. `None`: a quarter of the machine's memory, at
    /// most [`crate::MEMORY_DEFAULT_MAX`].
    pub memory_bytes: Option<u64>,
    /// What is served.
    pub subsystems: Vec<SubsystemPlan>,
    /// What of it is exported over NBD.
    pub nbd: Vec<NbdPlan>,
    /// Whether images that are members of a volume are served by themselves: hosts may overwrite what the volume needs.
    pub may_serve_members: bool,
    /// What the operator accepts of the volumes, this once.
    pub accepted: VolumeOpenOptions,
}

impl ServerPlan {
    /// Directories of the volumes that are served.
    pub fn volumes(&self) -> impl Iterator<Item = &Path> {
        let namespaces = self.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
        namespaces.filter_map(|namespace| match &namespace.source {
            Source::Volume(path) => Some(path.as_path()),
            _ => None,
        })
    }

    /// One namespace for anybody on this machine, at a port that the system chooses; all else as by default.
    #[must_use]
    pub fn on_loopback(nqn: Nqn, source: Source) -> ServerPlan {
        let namespace =
            NamespacePlan { id: NamespaceId::FIRST, source, timing: TimingSpec::default(), read_only: false };
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
    /// Who may connect: `None` is anybody.
    pub hosts: Option<Vec<HostPlan>>,
    /// Its namespaces, in the order of their ids.
    pub namespaces: Vec<NamespacePlan>,
}

/// A host that may connect.
#[derive(Debug)]
pub struct HostPlan {
    /// Its name.
    pub nqn: Nqn,
    /// The secret with which it proves who it is, if it must.
    pub secret: Option<Secret>,
    /// The secret with which the controller proves itself to it, if the host asks.
    pub controller_secret: Option<Secret>,
}

/// One namespace, and what is behind it.
#[derive(Debug)]
pub struct NamespacePlan {
    /// Its number.
    pub id: NamespaceId,
    /// Where its blocks are.
    pub source: Source,
    /// How long its commands take.
    pub timing: TimingSpec,
    /// Whether nothing of it may change; for an image alone.
    pub read_only: bool,
}

/// Where the blocks of a namespace are.
#[derive(Debug)]
pub enum Source {
    /// The directory of an image.
    Image(PathBuf),
    /// The directory of a redundant volume.
    Volume(PathBuf),
    /// In memory, gone when the server stops.
    Memory(Box<DrivePlan>),
}
