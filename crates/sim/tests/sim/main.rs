//! The simulator over many seeds, in one executable.
//!
//! Tests for the soak are named `soak_...` and ignored:
//! `cargo test --release -p zonda-sim -- --ignored soak_` runs all of them.

mod bugbase;
mod common;
mod elastic;
mod event_trace;
mod files;
mod groups;
mod images;
mod network;
mod seeds;
mod volumes;
