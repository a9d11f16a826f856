//! The guarantees of the format, each checked on simulated disks.

mod checkpoints;
mod contradictions;
mod crashes;
mod damage;
mod faults;
mod full;
mod intents;
mod opening;
mod overwrites;
mod promises;
mod recovery;
mod repair;
mod reservations;
mod stopping;
mod syncs;
mod writes;
