use zonda_profiles::builtin_text;
use zonda_ssd::Ssd;
use zonda_ssd::profile::Profile;
use zonda_zoned::{PayloadKind, Prng};

use super::*;
use crate::filetrace::{OperationKind, Preset, PresetSize, Trace};

/// The drive `tiny` with twice as many zones, of which as many may be active as of larger drives.
fn drive() -> Ssd {
    let text = builtin_text("tiny").expect("a built-in profile");
    let larger = [
        ("zones = 16", "zones = 32"),
        ("active_zones = 4", "active_zones = 14"),
        ("open_zones = 3", "open_zones = 14"),
    ];
    let text = larger.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    let profile = Profile::parse(&text).expect("more zones are possible");
    Ssd::new(&profile, PayloadKind::None, &Prng::new(1))
}

fn config() -> FilesConfig {
    FilesConfig { keeps: PayloadKind::None, ..FilesConfig::default() }
}

fn ready() -> Replay<Ssd> {
    Replay::format(drive(), config(), Instant::ZERO).expect("tiny is large enough for a file store")
}

fn replay(lines: &str) -> ReplayResult {
    let text = format!("zonda-file-trace 1\n{lines}");
    ready().run(Trace::parse(&text).expect(lines).entries()).0
}

fn operations(result: &ReplayResult, kind: OperationKind) -> u64 {
    result.kind(kind).map_or(0, |figures| figures.operations)
}

#[test]
fn each_preset_is_replayed_completely_and_repeatably() {
    for preset in Preset::ALL {
        let entries = preset.entries(PresetSize::new(9 << 20), 1);
        let count = entries.len() as u64;
        let (result, drive) = ready().run(entries.clone());
        assert!(result.end.is_complete(), "{preset}: {}", result.end);
        assert_eq!((result.entries, drive.outstanding()), (count, 0), "{preset}");
        assert!(result.elapsed_ns <= result.drained_ns && result.space_amplification() >= 1.0, "{preset}");
        assert_eq!(ready().run(entries).0, result, "{preset}");
    }
}

#[test]
fn results_match_the_trace() {
    let result = replay(
        "0 create a short\n0 append a 10000\n0 sync a\n0 read a 0 4096\n0 read a 8192 4096\n0 close a\n0 rename a b\n0 delete b\n",
    );
    assert!(result.end.is_complete(), "{}", result.end);
    let kinds: Vec<_> =
        result.kinds.iter().map(|figures| (figures.kind.name(), figures.operations, figures.bytes)).collect();
    assert_eq!(
        kinds,
        [
            ("create", 1, 0),
            ("append", 1, 10_000),
            ("sync", 1, 0),
            ("close", 1, 0),
            // The second read reaches beyond the end.
            ("read", 2, 4096 + 1808),
            ("rename", 1, 0),
            ("delete", 1, 0)
        ]
    );
    let sync = result.kind(OperationKind::Sync).expect("there was one");
    assert!(sync.latency.max_ns > 0 && sync.latency.max_ns == sync.end_ns - sync.start_ns);
    assert_eq!(result.usage.live_bytes, 0);
}

#[test]
fn a_thread_runs_one_operation_at_a_time_and_think_times_are_those_of_the_trace() {
    let result = replay("0 think 3ms\n0 create a\n0 append a 4KiB\n0 think 2ms\n0 sync a\n5 think 1ms\n");
    let sync = result.kind(OperationKind::Sync).expect("there was one");
    assert!(sync.start_ns >= 5_000_000, "{}", sync.start_ns);
    assert_eq!(operations(&result, OperationKind::Think), 3);
    assert_eq!(result.elapsed_ns, sync.end_ns);
}

#[test]
fn threads_work_side_by_side() {
    let lines = |thread: u32| {
        let file = format!("f{thread}");
        let commits = format!("{thread} append {file} 4KiB\n{thread} sync {file}\n").repeat(50);
        format!("{thread} create {file}\n{commits}")
    };
    let (one, both) = (replay(&lines(0)), replay(&(lines(0) + &lines(1))));
    assert!(both.elapsed_ns < one.elapsed_ns * 3 / 2, "{} and {}", one.elapsed_ns, both.elapsed_ns);
}

#[test]
fn operations_on_one_file_keep_the_order_of_the_trace_across_threads() {
    // Threads 1 and 2 have no other operations, and would read before the file exists.
    let result = replay(
        "0 think 1ms\n0 create a\n0 append a 64KiB\n1 read a 0 64KiB\n2 read a 0 64KiB\n0 append a 64KiB\n2 read a 64KiB 64KiB\n1 delete a\n2 create a\n2 append a 4KiB\n2 sync a\n0 read a 0 8KiB\n",
    );
    assert!(result.end.is_complete(), "{}", result.end);
    assert_eq!(result.kind(OperationKind::Read).expect("there were some").bytes, (3 * 64 + 4) << 10);
    assert_eq!(result.usage.live_bytes, 4 << 10);
}

#[test]
fn a_full_store_ends_the_replay() {
    let append = "0 append a 1MiB\n".repeat(100);
    let result = replay(&format!("0 create a\n{append}"));
    let TraceEnd::OutOfSpace { entry } = result.end else { panic!("{}", result.end) };
    assert!((20..=50).contains(&entry) && result.entries == entry - 1, "{entry}");
    assert!(result.end.to_string().starts_with("the store ran out of space at entry "), "{}", result.end);
}

#[test]
fn dead_data_count_until_their_zone_is_reset() {
    // The two files share a zone only if they must: so the first is written, then dead for as long
    // as the second thinks.
    let result = replay("0 create a\n0 append a 256KiB\n0 close a\n0 delete a\n0 think 100ms\n");
    assert!(result.end.is_complete() && result.space_amplification() >= 1.0, "{}", result.end);
    let result = replay("0 create a\n0 append a 256KiB\n0 sync a\n0 think 100ms\n");
    assert!((result.live_bytes_mean / f64::from(256 << 10) - 1.0).abs() < 0.05, "{}", result.live_bytes_mean);
    assert_eq!(result.space_amplification(), 1.0);
}
