//! Configuration of an initiator.

use std::fmt;

use zonda_chap::{Policy, Secret};
use zonda_nvme::tcp::Digests;
use zonda_nvme::{HostId, Nqn};
use zonda_zoned::{Duration, NamespaceId};

use crate::claim::Claim;
use crate::limits::{IO_QUEUES_MAX, QUEUE_DEPTH_MAX, TRANSFER_BYTES_MAX, TRANSFER_BYTES_MIN};

/// Target, host and parameters of a connection. The address of the target is known only to the
/// owner of the sockets.
#[derive(Clone)]
pub struct InitiatorConfig {
    /// The NQN of this host.
    pub host_nqn: Nqn,
    /// The host identifier; `None` generates one from `random_seed`.
    pub host_id: Option<HostId>,
    /// NQN of the subsystem.
    pub subsystem_nqn: Nqn,
    /// The namespace identifier at the target. The user of the initiator addresses it as
    /// [`NamespaceId::FIRST`], as in every device with one namespace.
    pub namespace: NamespaceId,
    /// I/O queues to request, each with its own connection, 1 to [`IO_QUEUES_MAX`]. The target may
    /// grant fewer.
    pub io_queues: u16,
    /// Outstanding commands per queue, 1 to [`QUEUE_DEPTH_MAX`]. The target may allow fewer.
    pub queue_depth: u16,
    /// Digests to request.
    pub digests: Digests,
    /// The longest transfer of one command without metadata, where the target allows more: a
    /// multiple of 4 KiB from [`TRANSFER_BYTES_MIN`] to [`TRANSFER_BYTES_MAX`].
    pub transfer_bytes_max: u32,
    /// Keep alive timeout; `None` disables the timer. The target disconnects this host after this
    /// time without a command.
    pub keep_alive: Option<Duration>,
    /// Timeout of each step of connecting (waiting until the controller is ready may take as long
    /// as CAP.TO).
    pub step_timeout: Duration,
    /// Timeout of a command, after which the connection counts as lost.
    pub command_timeout: Duration,
    /// The delay before each attempt to reconnect after an established connection was lost; `None`
    /// does not reconnect. A first connection that fails is never retried.
    ///
    /// Commands that were sent over the lost connection can still take effect until the target has
    /// closed it. To exclude that, wait for the keep alive timeout plus the longest command before
    /// using the zones.
    pub reconnect: Option<Duration>,
    /// Claims exclusive access to the namespace.
    pub claim: Option<Claim>,
    /// How the order of commands is ensured; `None` decides by the model number of the controller.
    pub order: Option<Order>,
    /// The secret of this host, if the target requires authentication.
    pub host_secret: Option<Secret>,
    /// The secret of the controller. If set, this host authenticates the controller, even if the
    /// target does not require authentication.
    pub controller_secret: Option<Secret>,
    /// Hashes and groups for authentication.
    pub policy: Policy,
    /// Random bytes from the operating system, from which challenges and, if not set, the host
    /// identifier are generated.
    pub random_seed: [u8; 32],
}

/// How commands take effect in the order of their submission.
///
/// NVMe itself guarantees no order among outstanding commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The target executes the commands of a queue, with their data, in the order in which they
    /// arrive, as zonda's target does. Any number of commands of one zone may be in flight. With
    /// one I/O queue all effects are in order. With several, those of each zone are, but whether a
    /// zone can be opened within the limits of open and active zones can depend on commands of
    /// other queues that were submitted a little later.
    Arrival,
    /// The target guarantees no order: a command waits for the completion of earlier commands to
    /// the same zones, unless all of them read, or all of them append. Commands to different zones
    /// count towards the limits of open and active zones in any order.
    Completion,
}

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The field.
    pub field: &'static str,
    /// What it must be.
    pub remedy: String,
}

impl InitiatorConfig {
    /// One I/O queue of 128 commands, no digests, transfers up to 1 MiB, keep alive of 5 s (the
    /// default of nvme-cli), no secrets, no reconnecting.
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

    /// Checks the configuration.
    ///
    /// # Errors
    /// The first invalid field.
    pub fn check(&self) -> Result<(), ConfigError> {
        let require = |holds: bool, field: &'static str, remedy: String| {
            if holds { Ok(()) } else { Err(ConfigError { field, remedy }) }
        };
        let id = self.namespace.0;
        require(
            id != 0 && id != u32::MAX,
            "namespace",
            "must be a valid namespace identifier, 1 to 4294967294".to_owned(),
        )?;
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
        let some = "must be more than zero".to_owned();
        require(self.step_timeout > Duration::ZERO, "step_timeout", some.clone())?;
        require(self.command_timeout > Duration::ZERO, "command_timeout", some)?;
        require(
            self.keep_alive.is_none_or(|span| (1_000_000..=3_600_000_000_000).contains(&span.as_nanos())),
            "keep_alive",
            "must be 1 ms to 1 hour, or not set".to_owned(),
        )?;
        require(
            self.controller_secret.is_none() || self.host_secret.is_some(),
            "controller_secret",
            "requires host_secret: authentication begins with the host".to_owned(),
        )?;
        require(
            self.controller_secret.is_none() || self.controller_secret != self.host_secret,
            "controller_secret",
            "must differ from host_secret, or responses can be reflected".to_owned(),
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
    fn each_invalid_field_is_named() {
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
    fn secrets_are_not_printed() {
        let mut config = config();
        config.host_secret = Some(Secret::generate(None, [1; 64]));
        assert!(!format!("{config:?}").to_lowercase().contains("secret"));
    }
}
