//! Prints one hash over simulation runs of volumes: over all commands to members with their
//! contents, all completions, and the counters of each run. A change that preserves the behaviour
//! of volumes preserves the hash:
//!
//! ```text
//! cargo run -p zonda-raid --example swarm_hash -- 150
//! ```

use zonda_raid::testing::Swarm;

/// FNV-1a, 64 bits.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;
/// The default number of runs.
const SEEDS: u64 = 150;

fn main() {
    let seeds = std::env::args().nth(1).and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let mut hash = OFFSET;
    for seed in 0..seeds {
        let mut run = Swarm::generate(seed).begin();
        if let Err(violation) = run.run() {
            panic!("seed {seed}, step {}: {violation}", run.steps());
        }
        let counters = run.simulation().volume.counters();
        let line = format!("{seed} {:?} {counters:?} {:?}", run.outcome(), run.simulation().volume.status());
        hash = line.bytes().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    }
    println!("{hash:016x} over {seeds} seeds");
}
