//! What a volume sends to its members in the background.

use std::collections::BTreeSet;

use super::basics::config;
use super::bench::Bench;
use crate::{Event, MemberIndex, Scheme};

/// Names of the operations that the members have got in the background since the last call.
fn in_background(bench: &mut Bench) -> Vec<&'static str> {
    let seen = (0..3).map(|member| std::mem::take(&mut bench.device(member).in_background));
    seen.collect::<Vec<_>>().into_iter().flatten().collect::<BTreeSet<_>>().into_iter().collect()
}

#[test]
fn garbage_collection_scrub_and_rebuild_are_in_the_background_and_hosts_are_not() {
    let mut config = config(Scheme::raid5(2));
    config.tuning.scrub_blocks_per_second = None;
    let mut bench = Bench::new(config, 64, 1);
    bench.fill();
    bench.read_all();
    assert_eq!(in_background(&mut bench), [""; 0], "nothing has been overwritten");
    bench.churn(600);
    bench.run_out();
    assert!(bench.volume.volume().counters().relocated_blocks > 0);
    assert_eq!(in_background(&mut bench), ["read", "write"], "blocks are relocated");

    let now = bench.now;
    bench.volume.volume_mut().start_scrub(now);
    while !bench.events.iter().any(|event| matches!(event, Event::Scrubbed { .. })) {
        assert!(bench.step(), "a scrub ends");
    }
    bench.run_out();
    let seen = in_background(&mut bench);
    assert!(seen.contains(&"read") && !seen.contains(&"write"), "{seen:?}");

    bench.fail(1);
    bench.replace(1);
    bench.run_until(&Event::Rebuilt { member: MemberIndex(1) });
    let seen = in_background(&mut bench);
    assert!(seen.contains(&"read") && seen.contains(&"write"), "{seen:?}");
}
