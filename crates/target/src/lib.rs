//! The NVMe/TCP target as a state machine without I/O: bytes in, bytes out.
//!
//! A [`Target`] is everything that one server loop exports: subsystems with zoned and conventional
//! namespaces, and the discovery service. The caller reports events of sockets
//! ([`Target::on_connect`], [`Target::on_bytes`], [`Target::on_sent`], [`Target::on_disconnect`]), of
//! authentication threads ([`Target::on_authenticated`]), of devices ([`Target::on_completion`],
//! [`Target::on_zones_changed`], [`Target::on_reservations_saved`]) and of timers ([`Target::on_timeout`]);
//! the target returns [`Effect`]s. It implements NVMe Base 2.0, the NVM and Zoned Namespace Command
//! Sets and NVMe/TCP 1.0, with digests, in-band authentication and reservations. Namespaces,
//! subsystems and the hosts that may connect change while hosts are connected
//! ([`Target::add_namespace`], [`Target::remove_namespace`], [`Target::set_hosts`]).
//!
//! Not included: sockets, threads, clocks, the devices themselves; TLS, namespace management,
//! Asymmetric Namespace Access, protection information, fused commands, Copy and Verify.
//!
//! ```
//! use bytes::Bytes;
//! use zonda_nvme::tcp::{Digests, InitializeRequest};
//! use zonda_target::{Effect, Portal, Target, TargetConfig};
//! use zonda_zoned::Instant;
//!
//! let portal = Portal { address: "192.0.2.1".to_owned(), service: "4420".to_owned() };
//! let mut target = Target::new(TargetConfig::new(vec![], vec![portal], [0; 32]))?;
//! let connection = target.on_connect(Instant::ZERO, 0, "192.0.2.9:50000").expect("a slot is free");
//! let request = InitializeRequest::new(0, Digests::NONE, 1);
//! target.on_bytes(Instant::ZERO, connection, Bytes::copy_from_slice(request.bytes()));
//! let Some(Effect::Send { pieces, .. }) = target.poll_effect() else { panic!("an answer") };
//! assert_eq!(pieces.concat().len(), 128);
//! # Ok::<(), zonda_target::TargetConfigError>(())
//! ```
#![forbid(unsafe_code)]

mod auth;
mod budget;
mod compare;
mod config;
mod connection;
mod controller;
mod effects;
mod fair;
mod half_open;
mod health;
mod invariants;
mod io;
pub mod limits;
mod pause;
mod read_data;
mod reconfigure;
mod removal;
mod reservations;
mod sessions;
mod shares;
mod slots;
mod statistics;
mod subsystems;
mod target;
#[cfg(test)]
mod tests;

pub use auth::{AuthStep, CompletedAuthStep};
pub use budget::{Account, Budget, Progress, SHARE_BYTES};
pub use config::{
    DeviceKey, HostAccess, HostEntry, NamespaceConfig, Portal, SubsystemConfig, TargetConfig, TargetConfigError,
};
pub use effects::{CloseReason, ConnectionId, Effect, Event};
pub use fair::{FairQueue, Flow};
pub use health::DeviceHealth;
pub use limits::Limits;
pub use reconfigure::NamespaceOptions;
pub use reservations::UnregisteredAccess;
pub use sessions::Session;
pub use statistics::{NamespaceStatistics, Statistics};
pub use target::Target;
