//! The simulator over many seeds, in one executable.
//!
//! A test that belongs to the soak is called `soak_...` and ignored: `cargo test --release -p zonda-sim -- --ignored soak_` runs
//! all of them.

mod bugbase;
mod common;
mod files;
mod images;
mod network;
mod seeds;
mod story;
mod volumes;
