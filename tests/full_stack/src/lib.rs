//! Tests with real processes: `zonda serve` on this machine, and Linux in a virtual machine as its
//! host.
//!
//! Linux's NVMe/TCP initiator, its zoned block layer, btrfs, zonefs, fio and nvme-cli are
//! independent implementations of the same specifications: these tests check interoperability. The
//! guest needs neither root nor KVM; it is built from Debian's packages by `scripts/guest/build`,
//! boots in three seconds, and is slow: nothing here measures time.
//!
//! A test describes the subsystems ([`Scene`]), serves them, and runs scripts of `guest/` in a
//! guest ([`Guest`]), which is booted once and runs the scripts of all tests, one after the other.
//! A script that finds an error exits with a failure; the test parses its output between markers
//! ([`Console`]).
//!
//! Each scene runs in two extents ([`Extent`]): a smoke test runs every kind of check once; its
//! soak test, `soak_...`, which is marked `#[ignore = "soak"]`, runs everything.
//!
//! ```no_run
//! use zonda_full_stack::{Extent, Namespace, Scene, Subsystem};
//!
//! let scene = Scene::new("example", Extent::Smoke).subsystem(Subsystem::named("a").namespace(Namespace::zoned(64, 64)));
//! let Some(mut stage) = scene.open_or_skip() else { return };
//! let console = stage.run("commands.sh");
//! assert_eq!(console.json("smart-log")["critical_warning"], 0);
//! ```
//!
//! The environment:
//! - `ZONDA_GUEST=skip` skips these tests; with `require` they fail if the guest is not available.
//!   By default such a test passes, and prints that it was skipped, and why.
//! - `ZONDA_GUEST_TARGET=kernel` uses Linux's own target (nvmet-tcp over a zoned null_blk, inside
//!   the guest) instead of zonda. Scripts that fail there are wrong themselves.
//! - `ZONDA_PROGRAM` is the path of another `zonda` than the one built with the tests.
//!
//! Absent: tests of one crate, which are in that crate; and anything that can be tested without a
//! second operating system.

#![forbid(unsafe_code)]

mod console;
mod drives;
mod guest;
mod job;
mod pool;
mod scene;
mod server;
mod shared;
mod stage;

use std::path::{Path, PathBuf};

pub use console::{Console, Zone};
pub use drives::DrivesGuest;
pub use guest::{Guest, guest_or_skip};
pub use job::{Extent, Job};
pub use scene::{Namespace, Scene, Subsystem};
pub use server::{Server, create_drive, zonda};
pub use stage::Stage;

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
