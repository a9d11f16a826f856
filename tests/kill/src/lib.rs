//! Rounds of `kill -9` under verified load: `zonda serve` must lose nothing that it acknowledged (docs/guide/serve.md).
//!
//! A round starts `zonda serve` as a process of its own. Hosts in threads, with a connection and zones each, write, append,
//! read, reset, finish, open, close and flush; every third round another one overwrites a conventional namespace of the same
//! server. At a random moment the server is killed. After its next start everything is read and held against what was
//! asked and what was acknowledged; the next round goes on from what was found.
//!
//! Every block carries a stamp ([`stamp`]); what may be found is said by an oracle without a drive or a clock ([`oracle`]).
//! Some servers are killed again while they start, some are stopped with SIGTERM, after which nothing may have to be
//! recovered, and `zonda drive check` looks at what some kills have left.
//!
//! [`VolumesRun`] attacks a volume: beside kills it pauses the server, moves members away and back, has members fail and be
//! replaced, flips bytes in their files and fills a file system. It counts what members lack: within what the level tolerates
//! everything must be readable, beyond it a read may return an error, but nothing older.
//!
//! [`OwnersRun`] has two servers with copies of one volume's directory take it over from each other: an old owner may acknowledge
//! nothing, and the new one must have everything.
//!
//! What is absent: losses of power. The system keeps what a killed process has written; what it forgets itself is tested with
//! the image's own simulated disk (`crates/image`).
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
//! assert_eq!(zone.settle(&lost).unwrap_err().expected, "a write pointer of 1 to 1");
//! ```
#![forbid(unsafe_code)]

mod host;
mod images;
pub mod load;
mod loss;
mod nbd;
pub mod oracle;
mod owners;
mod rounds;
mod server;
pub mod stamp;
mod verify;
mod volumes;

pub use host::Tally;
pub use loss::{Loss, Trouble};
pub use owners::{OwnersRun, OwnersSummary};
pub use rounds::{Run, Summary};
pub use server::{Launcher, program};
pub use volumes::{Level, VolumesRun, VolumesSummary};
