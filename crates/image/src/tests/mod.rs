//! The promises of the format, each held against simulated disks.

mod checkpoints;
mod crashes;
mod damage;
mod faults;
mod opening;
mod overwrites;
mod promises;
mod reservations;
mod stopping;
mod writes;
