//! Tests of whole pools.

mod cache;
mod crash;
mod doubt;
mod drive;
mod enumerate;
mod failures;
mod faults;
mod metadata;
mod oracle;
mod overdrive;
mod reclaim;
mod repeats;
mod rig;
mod space;
mod tears;
mod tenants;

use rig::Rig;
use zonda_zoned::{NamespaceId, Prng};

#[test]
fn a_namespace_answers_as_the_oracle_one_command_at_a_time_and_sixteen() {
    for depth in [1, 16] {
        for seed in 0..6 {
            let mut rig = Rig::tiny();
            rig.create("tenant", 8, 3);
            oracle::compare(&mut rig, NamespaceId::FIRST, Prng::new(seed), depth, 2_000);
        }
    }
}
