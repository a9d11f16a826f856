//! Rounds of `kill -9` under verified load: `zonda serve` must lose nothing that it acknowledged
//! (docs/guide/serve.md).
//!
//! A round starts `zonda serve` as a process. Hosts in threads, with a connection and zones each,
//! write, append, read, reset, finish, open, close and flush; every third round another one
//! overwrites a conventional namespace of the same server. At a random time the server is killed.
//! After its next start everything is read and checked against the submitted and acknowledged
//! commands; the next round continues from the state that was found.
//!
//! Every block carries a stamp ([`stamp`]); an oracle without a drive or a clock ([`oracle`])
//! determines the permitted states. Some servers are killed again while they start, some are
//! stopped with SIGTERM, after which no recovery may be needed, and `zonda drive check` verifies
//! the images after some kills.
//!
//! [`VolumesRun`] injects faults into a volume: besides kills it pauses the server, moves members
//! away and back, fails and replaces members, flips bytes in their files and fills a file system.
//! It tracks degraded members: within the tolerance of the level everything must be readable,
//! beyond it a read may return an error, but never older data.
//!
//! [`OwnersRun`] has two servers with copies of one volume's directory take it over from each
//! other: an old owner must not acknowledge anything, and the new one must return all acknowledged
//! data.
//!
//! [`PoolsRun`] kills a server of a pool with several tenants, in the middle of an overdrive, a
//! recall, a reclaim, and of the creation, the resize and the deletion of a namespace, and while the
//! file system below its drive is full.
//!
//! What is absent: power loss. The kernel keeps the writes of a killed process; losses of its cache
//! are tested with the simulated disk of `crates/image`.
//!
//! ```
//! use zonda_kill::oracle::{FoundZone, ZoneHistory};
//! use zonda_kill::stamp::{Contents, Sequence};
//! use zonda_zoned::ZoneState;
//!
//! let mut zone = ZoneHistory::new(2);
//! let contents = Contents::Write(Sequence::new(0, 0, 0));
//! let write = zone.write(1, contents);
//! zone.acknowledge(write);
//! let lost = FoundZone { state: ZoneState::Empty, pointer: Some(0), contents: vec![Contents::Zeros; 2] };
//! assert_eq!(zone.resume_from(&lost).unwrap_err().expected, "a write pointer of 1 to 1");
//! ```
#![forbid(unsafe_code)]

mod host;
mod images;
pub mod load;
mod loss;
mod nbd;
pub mod oracle;
mod owners;
mod pace;
mod pools;
mod rounds;
mod server;
mod space;
pub mod stamp;
mod verify;
mod volumes;

pub use host::Tally;
pub use loss::{Loss, RunError};
pub use owners::{OwnersRun, OwnersSummary};
pub use pools::{PoolsRun, PoolsSummary};
pub use rounds::{Run, Summary};
pub use server::{Launcher, program};
pub use volumes::{Level, VolumesRun, VolumesSummary};
