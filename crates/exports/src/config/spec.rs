//! The tables of `zonda.toml`, as parsed.

use serde::{Deserialize, Deserializer};
use zonda_config::{ByteSize, Spanned, TimeSpan, one_or_several, one_word, unplaced};
use zonda_ssd::description::DriveSpec;

use super::{NQN_PREFIX, NbdSpec};

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// Addresses, and settings for all subsystems.
    #[serde(default)]
    pub server: ServerTable,
    /// The subsystems.
    #[serde(default)]
    pub subsystem: Vec<Spanned<SubsystemSpec>>,
    /// How pools whose namespaces are served use their drives; absent: as fast as possible, without a
    /// scheduler.
    #[serde(default)]
    pub pool: Vec<Spanned<PoolSpec>>,
    /// NBD servers; absent: none.
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
    /// Host names accepted at that address, in addition to those of the machine.
    #[serde(default)]
    pub http_names: Vec<String>,
    /// The default timing of namespaces.
    #[serde(default)]
    pub timing: TimingSpec,
    /// Whether hosts may enable digests.
    #[serde(default)]
    pub digests: DigestsSpec,
    /// Diffie-Hellman groups for authentication, in order of preference.
    pub dh_groups: Option<Spanned<Vec<String>>>,
    /// Memory budget for the data of all connections; absent: a part of the machine's memory.
    pub memory: Option<Spanned<ByteSize>>,
    /// How long the loop polls before it sleeps; `0 s`: it does not poll.
    pub spin: Option<Spanned<TimeSpan>>,
}

/// One address or several.
#[derive(Clone, Debug)]
pub struct ListenSpec(pub Vec<String>);

impl ListenSpec {
    /// All addresses.
    #[must_use]
    pub fn texts(&self) -> &[String] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for ListenSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ListenSpec, D::Error> {
        one_or_several(deserializer, "an address like \"127.0.0.1:4420\"").map(ListenSpec)
    }
}

/// The timing of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimingSpec {
    /// As fast as the machine.
    #[default]
    None,
    /// The service times of the profile's drive, in real time.
    Profile,
}

/// An I/O scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulerSpec {
    /// Commands are submitted in the order of their arrival.
    #[default]
    None,
    /// As the Linux scheduler of that name: reads first, deadlines, one write at a time to each
    /// sequential zone.
    MqDeadline,
    /// As the scheduler of eZNS: congestion windows for reads, tokens for writes.
    Ezns,
    /// By conflict groups of zones: the group with the fewest outstanding commands first.
    Interference,
}

impl<'de> Deserialize<'de> for SchedulerSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SchedulerSpec, D::Error> {
        let words = [
            ("none", SchedulerSpec::None),
            ("mq-deadline", SchedulerSpec::MqDeadline),
            ("ezns", SchedulerSpec::Ezns),
            ("interference", SchedulerSpec::Interference),
        ];
        one_word(deserializer, &words)
    }
}

/// Digests over PDU headers and data (NVMe/TCP Transport 1.0, section 3.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DigestsSpec {
    /// Enabled if the host requests them.
    #[default]
    Offered,
    /// Disabled.
    Off,
}

/// `[[pool]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// The directory of the pool, as its namespaces name it.
    pub path: Spanned<String>,
    /// The order in which waiting commands of all namespaces are submitted to its drive.
    #[serde(default)]
    pub scheduler: SchedulerSpec,
    /// The file with the conflict groups of its drive, for the scheduler `interference`.
    pub groups: Option<Spanned<String>>,
    /// The timing of its drive. Default: the server's.
    pub timing: Option<TimingSpec>,
}

/// `[[subsystem]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubsystemSpec {
    /// NVMe Qualified Name.
    pub nqn: Spanned<String>,
    /// Default: derived from the NQN.
    pub serial: Option<Spanned<String>>,
    /// Default `zonda`.
    pub model: Option<Spanned<String>>,
    /// Hosts that may connect; absent: any host.
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
    /// `DHHC-1:...`, of the host. Prefer `secret_file`.
    pub secret: Option<Spanned<String>>,
    /// A file with it.
    pub secret_file: Option<Spanned<String>>,
    /// `DHHC-1:...`, of the controller, for bidirectional authentication.
    pub controller_secret: Option<Spanned<String>>,
    /// A file with it.
    pub controller_secret_file: Option<Spanned<String>>,
}

/// `[[subsystem.namespace]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSpec {
    /// Default: the next free one, from 1.
    pub id: Option<Spanned<u32>>,
    /// The directory of an image (`zonda drive create`).
    pub image: Option<Spanned<String>>,
    /// The device file of a zoned drive of this machine: `/dev/nvme0n1`, `/dev/sdb`, `/dev/ng0n1`.
    pub device: Option<Spanned<String>>,
    /// The directory of a volume (`zonda volume create`).
    pub volume: Option<Spanned<String>>,
    /// The directory of a pool (`zonda pool create`), of which `name` is served.
    pub pool: Option<Spanned<String>>,
    /// The name of a namespace of the pool (`zonda namespace create`).
    pub name: Option<Spanned<String>>,
    /// A drive in memory: `profile` and `set` as in a job file.
    pub memory: Option<Spanned<DriveSpec>>,
    /// Default: the server's; of a namespace of a pool that of the pool.
    pub timing: Option<Spanned<TimingSpec>>,
    /// The order in which waiting commands are submitted; not of a volume. Of a namespace of a pool
    /// that of the pool.
    pub scheduler: Option<Spanned<SchedulerSpec>>,
    /// The file with the conflict groups of the drive, for the scheduler `interference`.
    pub groups: Option<Spanned<String>>,
    /// Of an image or a namespace of a pool: hosts see a write protected namespace. The directory of an
    /// image is not written to.
    pub read_only: Option<Spanned<bool>>,
    /// Of an image: only so many of its zones are served, so that the namespace can grow later.
    pub zones: Option<Spanned<u32>>,
}

impl SubsystemSpec {
    /// A subsystem with one namespace for any host, its NQN ending in `name`, in which spaces become
    /// hyphens.
    #[must_use]
    pub fn new(name: &str, namespace: NamespaceSpec) -> SubsystemSpec {
        SubsystemSpec {
            nqn: unplaced(format!("{NQN_PREFIX}{}", in_nqn(name))),
            serial: None,
            model: None,
            host: None,
            namespace: vec![unplaced(namespace)],
        }
    }
}

/// A name as a part of an NQN, in which hosts expect no spaces.
fn in_nqn(name: &str) -> String {
    name.chars().map(|one| if one.is_whitespace() || one.is_control() { '-' } else { one }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nqn_of_a_directory_has_no_spaces() {
        let nqn = |name| SubsystemSpec::new(name, NamespaceSpec::default()).nqn.as_ref().clone();
        assert_eq!(nqn("a b\tc:db"), "nqn.2026-01.io.zonda:a-b-c:db");
        assert_eq!(nqn("größe.1_2"), "nqn.2026-01.io.zonda:größe.1_2");
    }
}
