//! What an initiator is told.

use std::fmt;

use zonda_chap::{Policy, Secret};
use zonda_nvme::tcp::Digests;
use zonda_nvme::{HostId, Nqn};
use zonda_zoned::{Duration, NamespaceId};

use crate::claim::Claim;
use crate::limits::{IO_QUEUES_MAX, QUEUE_DEPTH_MAX, TRANSFER_BYTES_MAX, TRANSFER_BYTES_MIN};

/// Whom to connect to, as whom, and how. Where the target is, only the owner of the sockets knows.
#[derive(Clone)]
pub struct InitiatorConfig {
    /// The name of this host.
    pub host_nqn: Nqn,
    /// Its identifier; `None` draws one from `random_seed`.
    pub host_id: Option<HostId>,
    /// The subsystem.
    pub subsystem_nqn: Nqn,
    /// The namespace at the target. Above, it is [`NamespaceId::FIRST`], as in every device of one namespace.
    pub namespace: NamespaceId,
    /// I/O queues asked for, each a connection of its own, 1 to [`IO_QUEUES_MAX`]. The target may give fewer.
    pub io_queues: u16,
    /// Outstanding commands of each, 1 to [`QUEUE_DEPTH_MAX`]. The target may allow fewer.
    pub queue_depth: u16,
    /// Digests asked for.
    pub digests: Digests,
    /// The longest transfer of one command without metadata, where the target allows more: a multiple of 4 KiB from
    /// [`TRANSFER_BYTES_MIN`] to [`TRANSFER_BYTES_MAX`].
    pub transfer_bytes_max: u32,
    /// Keep alive timeout; `None` turns the timer off. The target gives this host up after so long without a word.
    pub keep_alive: Option<Duration>,
    /// The longest that any step of connecting may take (becoming ready may take what CAP.TO says).
    pub step_timeout: Duration,
    /// The longest that a command may take before the connection counts as lost.
    pub command_timeout: Duration,
    /// After the loss of a connection that had been made: how long to wait before each try to make it again; `None` gives
    /// up at once. A first connection that fails is never tried again.
    ///
    /// Commands that were sent over the lost connection can still take effect until the target has given it up: whoever
    /// cannot bear that waits for the keep alive timeout and the longest command, or looks at its zones after that time.
    pub reconnect: Option<Duration>,
    /// The namespace is to be this host's alone.
    pub claim: Option<Claim>,
    /// What the order of commands rests on; `None` decides by the model number of the controller.
    pub order: Option<Order>,
    /// What this host proves to know where the target asks for authentication.
    pub host_secret: Option<Secret>,
    /// What the target must prove to know. With it, authentication happens even where the target does not ask.
    pub controller_secret: Option<Secret>,
    /// Hashes and groups for authentication.
    pub policy: Policy,
    /// Fresh from the operating system: challenges and, if not given, the host identifier are drawn from it.
    pub random_seed: [u8; 32],
}

/// What makes commands take effect in the order of their submission.
///
/// NVMe itself promises no order among outstanding commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The target takes the commands of a queue, with their data, in the order in which they arrive. zonda's does, and any
    /// number of commands of one zone are on their way. With one I/O queue all effects are in order; with several those of
    /// each zone are, but whether a zone finds room among the open and active ones can depend on commands of other queues
    /// that were submitted a little later.
    Arrival,
    /// The target promises nothing: a command waits for the end of those before it whose zones it shares, unless all of
    /// them only read, or all of them append. What commands of different zones do to the limits of open and active
    /// zones comes in any order.
    Completion,
}

/// A configuration that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// What it must be.
    pub remedy: String,
}

impl InitiatorConfig {
    /// One I/O queue of 128 commands, no digests, transfers up to 1 MiB, keep alive of 5 s (what nvme-cli asks for), no
    /// secrets, no reconnecting.
    #[must_use]
    pub fn new(host_nqn: Nqn, subsystem_nqn: Nqn, random_seed: [u8; 32]) -> InitiatorConfig {
        InitiatorConfig {
            host_nqn,
            host_id: None,
            subsystem_nqn,
            namespace: NamespaceId::FIRST,
            io_queues: 1,
            queue_depth: 128,
            digests: Digests::NONE,
            transfer_bytes_max: 1 << 20,
            keep_alive: Some(Duration::from_secs(5)),
            step_timeout: Duration::from_secs(10),
            command_timeout: Duration::from_secs(30),
            reconnect: None,
            claim: None,
            order: None,
            host_secret: None,
            controller_secret: None,
            policy: Policy::default(),
            random_seed,
        }
    }

    /// Says whether the configuration can be used.
    ///
    /// # Errors
    /// The first field that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        let require = |holds: bool, field: &'static str, remedy: String| {
            if holds { Ok(()) } else { Err(ConfigError { field, remedy }) }
        };
        let id = self.namespace.0;
        require(id != 0 && id != u32::MAX, "namespace", "must be the identifier of one namespace".to_owned())?;
        let queues = format!("must be 1 to {IO_QUEUES_MAX}");
        require((1..=IO_QUEUES_MAX).contains(&self.io_queues), "io_queues", queues)?;
        let depth = format!("must be 1 to {QUEUE_DEPTH_MAX}");
        require((1..=QUEUE_DEPTH_MAX).contains(&self.queue_depth), "queue_depth", depth)?;
        let bytes = self.transfer_bytes_max;
        require(
            (TRANSFER_BYTES_MIN..=TRANSFER_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(4096),
            "transfer_bytes_max",
            format!("must be a multiple of 4096 from {TRANSFER_BYTES_MIN} to {TRANSFER_BYTES_MAX}"),
        )?;
        let some = "must be more than nothing".to_owned();
        require(self.step_timeout > Duration::ZERO, "step_timeout", some.clone())?;
        require(self.command_timeout > Duration::ZERO, "command_timeout", some)?;
        require(
            self.keep_alive.is_none_or(|span| (1_000_000..=3_600_000_000_000).contains(&span.as_nanos())),
            "keep_alive",
            "must be 1 ms to 1 hour, or absent".to_owned(),
        )?;
        require(
            self.controller_secret.is_none() || self.host_secret.is_some(),
            "controller_secret",
            "needs a host_secret: authentication begins with the host's".to_owned(),
        )?;
        require(
            self.controller_secret.is_none() || self.controller_secret != self.host_secret,
            "controller_secret",
            "must differ from host_secret, or the answers of one side are those of the other".to_owned(),
        )
    }
}

impl fmt::Debug for InitiatorConfig {
    /// Secrets and the seed are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InitiatorConfig")
            .field("host_nqn", &self.host_nqn)
            .field("subsystem_nqn", &self.subsystem_nqn)
            .field("namespace", &self.namespace)
            .field("io_queues", &self.io_queues)
            .field("queue_depth", &self.queue_depth)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.remedy)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> InitiatorConfig {
        let name = |end: &str| Nqn::new(&format!("nqn.2014-08.org.example:{end}")).unwrap();
        InitiatorConfig::new(name("host"), name("drive"), [0; 32])
    }

    #[test]
    fn each_field_that_cannot_be_used_is_named() {
        type Spoil = fn(&mut InitiatorConfig);
        assert_eq!(config().check(), Ok(()));
        let spoil: [(&str, Spoil); 8] = [
            ("namespace", |c| c.namespace = NamespaceId(0)),
            ("io_queues", |c| c.io_queues = 0),
            ("queue_depth", |c| c.queue_depth = 4096),
            ("transfer_bytes_max", |c| c.transfer_bytes_max = 12_345),
            ("step_timeout", |c| c.step_timeout = Duration::ZERO),
            ("command_timeout", |c| c.command_timeout = Duration::ZERO),
            ("keep_alive", |c| c.keep_alive = Some(Duration(1))),
            ("controller_secret", |c| c.controller_secret = Some(Secret::generate(None, [1; 64]))),
        ];
        for (field, spoil) in spoil {
            let mut config = config();
            spoil(&mut config);
            assert_eq!(config.check().expect_err(field).field, field);
        }
    }

    #[test]
    fn secrets_do_not_show() {
        let mut config = config();
        config.host_secret = Some(Secret::generate(None, [1; 64]));
        assert!(!format!("{config:?}").to_lowercase().contains("secret"));
    }
}
