//! One body of tests for everything that takes commands to zones: models, memory, files, networks.
//!
//! [`conformance`] makes a device for each check, with a geometry that the check needs, and holds it against
//! `docs/internals/zone-semantics.md`: named checks of every state, limit and status, then random commands against the
//! oracle at queue depths 1 and 16. A [`TestBackend`] is a device with a way to let time pass; [`Virtual`] makes one of any
//! device that runs in virtual time. What a backend cannot do or carry is skipped, counted and told.
//!
//! What is absent: timing, and everything that only one kind of device has; reservations, for they are of hosts, of which a device knows none: hostile
//! sequences of two hosts and more are in `crates/target/src/tests/hostile_reservations.rs`, random ones in the simulation.
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
//! assert!(summary.passed > 80 && summary.skipped > 0, "it was given no way to degrade a zone");
//! ```
#![forbid(unsafe_code)]

mod backend;
mod checks;
mod random;
mod rig;
mod run;
mod shapes;

pub use backend::{TestBackend, Virtual};
pub use run::{Summary, conformance};
