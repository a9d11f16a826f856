//! The fuzz targets of `fuzz/` as plain functions of one input, so that stored inputs run as tests,
//! too.
//!
//! A [`Body`] accepts any bytes and panics if an invariant is violated. It reads no clock, no file
//! and no other source of nondeterminism: an input gives one run. [`BODIES`] lists them all;
//! `seeds` makes the initial inputs from valid structures. `docs/internals/fuzzing.md` explains how
//! to run the fuzzers and how to store their findings.
//!
//! Not included: libFuzzer, which only `fuzz/` uses, and the inputs, which are files in
//! `fuzz/corpus`.
//!
//! ```
//! zonda_fuzz_bodies::run("names", b"\x00nqn.2014-08.org.nvmexpress.discovery");
//! ```
#![forbid(unsafe_code)]

mod chap;
mod commands;
mod config_job;
mod config_server;
mod feed;
mod history;
mod image;
mod initiator;
mod names;
mod nbd;
mod operations;
mod pages;
mod pdu;
mod pool;
mod shapes;
mod target;
mod volume;

/// An initial input, with its name.
pub type Seed = (String, Vec<u8>);

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    /// Its name: for `ZONDA_FUZZ_TARGET`, and of its directory in `fuzz/corpus`.
    pub name: &'static str,
    /// Runs one input.
    ///
    /// # Panics
    /// If an invariant is violated.
    pub run: fn(&[u8]),
    /// Makes the initial inputs from valid structures.
    pub seeds: fn() -> Vec<Seed>,
    /// Bytes of the longest useful input.
    pub input_bytes_max: usize,
}

/// All fuzz targets.
pub const BODIES: &[Body] = &[
    Body { name: "chap", run: chap::run, seeds: chap::seeds, input_bytes_max: 4096 },
    Body { name: "commands", run: commands::run, seeds: commands::seeds, input_bytes_max: 1024 },
    Body { name: "config_job", run: config_job::run, seeds: config_job::seeds, input_bytes_max: 12288 },
    Body { name: "config_server", run: config_server::run, seeds: config_server::seeds, input_bytes_max: 8192 },
    Body { name: "image", run: image::run, seeds: image::seeds, input_bytes_max: 4096 },
    Body { name: "initiator", run: initiator::run, seeds: initiator::seeds, input_bytes_max: 4096 },
    Body { name: "names", run: names::run, seeds: names::seeds, input_bytes_max: 512 },
    Body { name: "nbd", run: nbd::run, seeds: nbd::seeds, input_bytes_max: 4096 },
    Body { name: "pages", run: pages::run, seeds: pages::seeds, input_bytes_max: 16384 },
    Body { name: "pdu_controller", run: pdu::run_controller, seeds: pdu::seeds_controller, input_bytes_max: 8192 },
    Body { name: "pdu_host", run: pdu::run_host, seeds: pdu::seeds_host, input_bytes_max: 8192 },
    Body { name: "pool", run: pool::run, seeds: pool::seeds, input_bytes_max: 1024 },
    Body { name: "target", run: target::run, seeds: target::seeds, input_bytes_max: 4096 },
    Body { name: "volume", run: volume::run, seeds: volume::seeds, input_bytes_max: 1024 },
];

/// Runs one input of the target of this name.
///
/// # Panics
/// As the body does; and if there is no such target.
pub fn run(name: &str, input: &[u8]) {
    let body = BODIES.iter().find(|body| body.name == name).expect("a known fuzz target");
    (body.run)(input);
}
