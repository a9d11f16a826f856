//! A run of full size, for inspection: `cargo test --release -p zonda-workload kvbench -- --ignored
//! --nocapture`.

use zonda_config::unplaced;
use zonda_profiles::builtin_text;
use zonda_ssd::Ssd;
use zonda_ssd::profile::Profile;
use zonda_zoned::{Duration, Instant, NamespaceId, PayloadKind, Prng, ZonedDevice};

use crate::Fraction;
use crate::lsm::{StoreEnd, StorePlan, StoreRunner, StoreSpec, StoreWorkload};

/// KVBench-II as SilentZNS runs it: 4 million operations on entries of 512 B, on the emulated
/// ZN540, with its lowest occupancy threshold.
#[test]
#[ignore = "4 million operations take seconds of CPU time"]
fn kvbench_ii_of_4_million_operations_on_the_emulated_zn540() {
    let profile = Profile::parse(builtin_text("zn540-emulated").expect("a built-in profile")).expect("which is valid");
    let drive = Ssd::new(&profile, PayloadKind::None, &Prng::new(1));
    let spec = StoreSpec {
        operations: Some(unplaced(4_000_000)),
        finish_threshold: Some(unplaced(Fraction(0.1))),
        ..StoreSpec::new(StoreWorkload::KvbenchIi)
    };
    let plan = StorePlan::new(&unplaced(spec), drive.geometry(NamespaceId::FIRST)).expect("the drive is large enough");
    let runner = StoreRunner::new(&plan, 1);
    let (mut result, drive) = runner.run(drive, Instant::ZERO, Some(Duration::from_secs(1)), &mut |_, _| {});
    assert_eq!((&result.ended_by, result.operations), (&StoreEnd::Operations, 4_000_000));
    let samples = std::mem::take(&mut result.samples);
    println!("{result:#?}\n{} samples, the last: {:#?}", samples.len(), samples.last());
    println!("{:#?}\n{:#?}", drive.counters(), drive.wear());
    assert_eq!(result.file_bytes, result.files.live_bytes);
}
