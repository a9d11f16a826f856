//! The tables of `zonda.toml`, as they stand in the file.

use serde::Deserialize;
use zonda_config::{ByteSize, Spanned, TimeSpan, unplaced};
use zonda_ssd::description::DriveSpec;

use super::{NQN_PREFIX, NbdSpec};

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// Where to listen, and what holds for all.
    #[serde(default)]
    pub server: ServerTable,
    /// What is served.
    #[serde(default)]
    pub subsystem: Vec<Spanned<SubsystemSpec>>,
    /// What is exported over NBD; absent: nothing.
    #[serde(default)]
    pub nbd: Vec<Spanned<NbdSpec>>,
}

/// `[server]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerTable {
    /// Addresses for hosts, `HOST:PORT`; default `127.0.0.1:4420`.
    pub listen: Option<Spanned<ListenSpec>>,
    /// Address for metrics and `zonda status`; absent: none.
    pub http: Option<Spanned<String>>,
    /// Names under which that address is asked, beside the machine's own.
    #[serde(default)]
    pub http_names: Vec<String>,
    /// How long commands take, where a namespace does not say otherwise.
    #[serde(default)]
    pub timing: TimingSpec,
    /// Which digests hosts get.
    #[serde(default)]
    pub digests: DigestsSpec,
    /// Diffie-Hellman groups with which hosts may prove who they are, those preferred first.
    pub dh_groups: Option<Spanned<Vec<String>>>,
    /// Memory for the data of all connections; absent: a part of the machine's.
    pub memory: Option<Spanned<ByteSize>>,
    /// How long the loop looks for work before it sleeps; `0 s`: not at all.
    pub spin: Option<Spanned<TimeSpan>>,
}

/// One address or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum ListenSpec {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

impl ListenSpec {
    /// All of them.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        match self {
            ListenSpec::One(text) => std::slice::from_ref(text),
            ListenSpec::Several(texts) => texts,
        }
    }
}

/// How long commands take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimingSpec {
    /// As fast as the machine is.
    #[default]
    None,
    /// As long as on the drive of the profile, in real time.
    Profile,
}

/// Digests over PDU headers and data (NVMe/TCP Transport 1.0, section 3.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DigestsSpec {
    /// Granted to hosts that ask.
    #[default]
    Offered,
    /// Not granted.
    Off,
}

/// `[[subsystem]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubsystemSpec {
    /// NVMe Qualified Name.
    pub nqn: Spanned<String>,
    /// Default: made from the name.
    pub serial: Option<Spanned<String>>,
    /// Default `zonda`.
    pub model: Option<Spanned<String>>,
    /// Who may connect; absent: anybody.
    pub host: Option<Vec<Spanned<HostSpec>>>,
    /// At least one.
    #[serde(default)]
    pub namespace: Vec<Spanned<NamespaceSpec>>,
}

/// `[[subsystem.host]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostSpec {
    /// NVMe Qualified Name.
    pub nqn: Spanned<String>,
    /// `DHHC-1:...`: the host must know it. Better kept in a file of its own.
    pub secret: Option<Spanned<String>>,
    /// A file that holds it.
    pub secret_file: Option<Spanned<String>>,
    /// `DHHC-1:...`: the controller proves that it knows it, to a host that asks.
    pub controller_secret: Option<Spanned<String>>,
    /// A file that holds it.
    pub controller_secret_file: Option<Spanned<String>>,
}

/// `[[subsystem.namespace]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSpec {
    /// Default: the next free one, from 1.
    pub id: Option<Spanned<u32>>,
    /// The directory of an image that `zonda drive create` made.
    pub image: Option<Spanned<String>>,
    /// The directory of a volume that `zonda volume create` made.
    pub volume: Option<Spanned<String>>,
    /// A drive in memory: `profile` and `set` as in a job file.
    pub memory: Option<Spanned<DriveSpec>>,
    /// Default: the server's.
    pub timing: Option<TimingSpec>,
    /// Of an image: nothing is written to its directory, and hosts see a write protected namespace.
    pub read_only: Option<Spanned<bool>>,
}

impl SubsystemSpec {
    /// A subsystem of one namespace for any host, its name ending in `name`.
    #[must_use]
    pub fn new(name: &str, namespace: NamespaceSpec) -> SubsystemSpec {
        SubsystemSpec {
            nqn: unplaced(format!("{NQN_PREFIX}{name}")),
            serial: None,
            model: None,
            host: None,
            namespace: vec![unplaced(namespace)],
        }
    }
}
