//! The NVMe/TCP initiator as a machine: a remote namespace, zoned or conventional; bytes in, bytes out.
//!
//! [`Initiator`] is one host with one controller (an admin queue and I/O queues, each a TCP connection) and one namespace
//! of it. Its owner makes connections and moves bytes, as [`Effect`]s say; above, `zonda_zoned` commands go in and
//! completions come out. [`Discovery`] asks a server where its subsystems are. Sources: NVMe Base Specification 2.0, NVM
//! Command Set 1.0, Zoned Namespace Command Set 1.1, NVMe/TCP Transport 1.0, and how Linux 6.12 goes about it.
//!
//! - Connecting is a list of named [`Step`]s; a failure is an [`InitiatorError`]: step, reason, remedy.
//! - A host may claim the namespace for itself alone: [`Claim`].
//! - Commands take effect in the order of submission, as [`Order`] says.
//! - A connection that breaks ends what was sent with [`AbortedPowerLoss`](zonda_zoned::Status::AbortedPowerLoss), since it
//!   may or may not have taken effect, and what was not with
//!   [`NamespaceNotReady`](zonda_zoned::Status::NamespaceNotReady). Then the initiator connects again, if it is to.
//!
//! What is absent: sockets and clocks, several paths to one namespace, TLS, protection information,
//! repetition of failed commands, and Abort: a command that takes too long is the end of its connection.
//!
//! ```
//! use zonda_initiator::{Effect, Initiator, InitiatorConfig, QueueId, State, Step};
//! use zonda_nvme::Nqn;
//! use zonda_zoned::Instant;
//!
//! let host = Nqn::new("nqn.2014-08.org.example:host").expect("a name");
//! let drive = Nqn::new("nqn.2014-08.org.example:drive").expect("a name");
//! let mut initiator = Initiator::new(InitiatorConfig::new(host, drive, [0; 32])); // take random bytes instead
//! let now = Instant(1);
//! initiator.start(now);
//! let queue = QueueId::ADMIN;
//! assert_eq!(initiator.poll_effect(), Some(Effect::Connect { queue }));
//! initiator.connected(now, queue);
//! assert!(matches!(initiator.poll_effect(), Some(Effect::Send { .. })), "the opening of NVMe/TCP");
//! assert_eq!(*initiator.state(), State::Connecting(Step::Negotiate(queue)));
//! initiator.disconnected(now, queue, "connection reset by peer");
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
