//! One test suite for everything that executes zone commands: models, memory, files, networks.
//!
//! [`conformance`] makes a device for each check, with a geometry that the check needs, and tests
//! it against `docs/internals/zone-semantics.md`: named checks of every state, limit and status,
//! then random commands against the oracle at queue depths 1 and 16. A [`TestBackend`] is a device
//! whose time can be advanced; [`Virtual`] makes one of any device that runs in virtual time.
//! Checks that a backend does not support are skipped, counted and reported.
//! [`conformance_of_conventional`] tests devices that have conventional zones only, such as
//! redundant volumes, with the checks that apply to these.
//!
//! Not included: timing, and features of a single kind of device; reservations, since devices do
//! not distinguish hosts: hostile sequences of several hosts are in
//! `crates/target/src/tests/hostile_reservations.rs`, random ones in the simulation.
//!
//! ```
//! use zonda_conformance::{Virtual, conformance};
//! use zonda_zoned::PayloadKind;
//! use zonda_zoned::reference::ReferenceDevice;
//!
//! let summary = conformance("the oracle itself", &mut |geometry| {
//!     let device = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
//!     Some(Box::new(Virtual::new(device).with_power_cycle(|mut device| {
//!         device.power_cycle();
//!         device
//!     })))
//! });
//! assert!(summary.passed > 80 && summary.skipped > 0, "the backend cannot degrade zones");
//! ```
#![forbid(unsafe_code)]

mod backend;
mod checks;
mod random;
mod rig;
mod run;
mod shapes;

pub use backend::{TestBackend, Virtual};
pub use run::{Summary, conformance, conformance_of_conventional, conformance_of_drive};
