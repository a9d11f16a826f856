//! The NVMe/TCP initiator as a state machine without I/O: a remote namespace, zoned or
//! conventional; bytes in, bytes out.
//!
//! [`Initiator`] is one host with one controller (an admin queue and I/O queues, each a TCP
//! connection) and one namespace of it. Its owner opens connections and transfers bytes as
//! [`Effect`]s request; its user submits `zonda_zoned` commands and polls completions.
//! [`Discovery`] reads the discovery log of a server. Sources: NVMe Base Specification 2.0, NVM
//! Command Set 1.0, Zoned Namespace Command Set 1.1, NVMe/TCP Transport 1.0, and the behaviour of
//! Linux 6.12.
//!
//! - Connecting is a list of named [`Step`]s; a failure is an [`InitiatorError`]: step, reason,
//!   remedy.
//! - A host may claim exclusive access to the namespace: [`Claim`].
//! - Commands take effect in the order of submission, as [`Order`] specifies.
//! - When a connection is lost, commands that were sent complete with
//!   [`AbortedPowerLoss`](zonda_zoned::Status::AbortedPowerLoss), since they may or may not have
//!   taken effect, and the others with
//!   [`NamespaceNotReady`](zonda_zoned::Status::NamespaceNotReady). Then the initiator reconnects,
//!   if it is configured to.
//!
//! Not included: sockets and clocks, multipath, TLS, protection information, retries of failed
//! commands, and Abort: a command that times out ends its connection.
//!
//! ```
//! use zonda_initiator::{Effect, Initiator, InitiatorConfig, QueueId, State, Step};
//! use zonda_nvme::Nqn;
//! use zonda_zoned::Instant;
//!
//! let host = Nqn::new("nqn.2014-08.org.example:host").expect("valid NQN");
//! let drive = Nqn::new("nqn.2014-08.org.example:drive").expect("valid NQN");
//! let mut initiator = Initiator::new(InitiatorConfig::new(host, drive, [0; 32])); // use random bytes instead
//! let now = Instant(1);
//! initiator.start(now);
//! let queue = QueueId::ADMIN;
//! assert_eq!(initiator.poll_effect(), Some(Effect::Connect { queue }));
//! initiator.on_connect(now, queue);
//! assert!(matches!(initiator.poll_effect(), Some(Effect::Send { .. })), "ICReq");
//! assert_eq!(*initiator.state(), State::Connecting(Step::Negotiate(queue)));
//! initiator.on_disconnect(now, queue, "connection reset by peer");
//! let State::Failed(error) = initiator.state() else { panic!("the connection is lost") };
//! assert!(error.to_string().starts_with("ICReq on the admin queue: admin queue: connection reset by peer"));
//! ```
#![forbid(unsafe_code)]

mod claim;
mod config;
mod connecting;
mod discover;
mod error;
mod events;
mod flights;
mod initiator;
mod io;
mod keep_alive;
pub mod limits;
mod order;
mod procedure;
mod queue;
mod reports;
mod state;

pub use claim::{Claim, Claimed, Conflict, Holder, Preempts};
pub use config::{ConfigError, InitiatorConfig, Order};
pub use discover::{Discovered, Discovery};
pub use error::{InitiatorError, Reason};
pub use events::{Effect, Event};
pub use initiator::{Initiator, Statistics};
pub use queue::QueueId;
pub use state::{State, Step};
