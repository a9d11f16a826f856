//! `zonda sim`.

use super::{json_of, output_of, scratch, zonda};

#[test]
fn the_summary_of_a_batch_does_not_depend_on_the_number_of_threads() {
    let batch = |threads: &str| {
        json_of(&["sim", "--lite", "--seeds", "12", "--first", "5", "--threads", threads, "--json", "--quiet"])
    };
    let summary = batch("1");
    assert_eq!((&summary["seeds"], &summary["good"], &summary["first"]), (&12.into(), &12.into(), &5.into()));
    assert!(summary["commands"].as_u64().unwrap() > 100);
    assert_eq!(summary, batch("3"));
}

#[test]
fn replaying_a_seed_prints_its_event_trace() {
    let trace = output_of(&["sim", "3", "--lite"]);
    assert!(trace.starts_with("Seed 3"), "{trace}");
    assert_eq!(trace, output_of(&["sim", "3", "--lite"]));
}

#[test]
fn a_seeded_bug_is_found_and_reported_with_its_replay_command() {
    let arguments = ["sim", "--lite", "--seeds", "20", "--bug", "reset-keeps-contents", "--quiet"];
    let ran = zonda(&arguments);
    assert_eq!(ran.code, Some(1), "{}", ran.stdout);
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    let replay = ran.stdout.lines().find_map(|line| line.trim().strip_prefix("replay with: zonda "));
    let replay: Vec<&str> = replay.expect("there is a command to replay").split(' ').collect();
    let again = zonda(&replay);
    assert_eq!(again.code, Some(1), "{}", again.stdout);
}

#[test]
fn a_failure_is_shrunk_and_stored() {
    let out = scratch("bugbase");
    let ran = zonda(&["sim", "0", "--bug", "reset-keeps-contents", "--shrink", "--out", out.to_str().unwrap()]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("The same failure with "), "{}", ran.stdout);
    let entry = std::fs::read_to_string(out.join("reset-keeps-contents-0.toml")).unwrap();
    let entry = zonda_sim::BugbaseEntry::parse(&entry).unwrap();
    assert_eq!(entry.check(), Ok(()));
}

#[test]
fn an_entry_replays_from_its_file_and_refuses_generator_options() {
    let out = scratch("replayed-entry");
    zonda(&["sim", "0", "--bug", "reset-keeps-contents", "--shrink", "--out", out.to_str().unwrap()]);
    let file = out.join("reset-keeps-contents-0.toml");
    let path = file.to_str().unwrap();
    // The scenario is that of the file, whatever the seed generates.
    let text = std::fs::read_to_string(&file).unwrap().replacen("seed = \"0\"", "seed = \"1\"", 1);
    std::fs::write(&file, &text).unwrap();
    let entry = zonda_sim::BugbaseEntry::parse(&text).unwrap();
    let ran = zonda(&["sim", path]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains(&entry.failure), "{}", ran.stdout);
    assert!(ran.stdout.contains(&format!("Replay with: zonda sim {path}\n")), "{}", ran.stdout);
    let json = zonda(&["sim", path, "--json"]);
    assert!(json.stdout.contains(&format!("{:016x}", entry.run().hash)), "{}", json.stdout);

    let refused = zonda(&["sim", path, "--bug", "torn-block"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("--bug cannot be used with a stored failure"), "{}", refused.stderr);
    std::fs::write(&file, text.replace("[drive]\n", "[drive]\nsurprise = 1\n")).unwrap();
    let refused = zonda(&["sim", path]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("surprise") && refused.stderr.contains(path), "{}", refused.stderr);
}

#[test]
fn a_passed_seed_has_nothing_to_shrink() {
    assert!(output_of(&["sim", "3", "--lite", "--shrink"]).contains("Nothing to shrink"));
}

#[test]
fn of_many_seeds_the_first_failure_of_each_kind_is_shrunk_and_stored() {
    let directory = scratch("shrink-many");
    let out = directory.to_str().expect("a path of this test is text");
    let ran = zonda(&["sim", "--bug", "lost-wakeup", "--seeds", "5", "--quiet", "--shrink", "--out", out]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(ran.stdout.matches("The same failure with").count(), 1, "{}", ran.stdout);
    let kept = std::fs::read_dir(&directory).expect("the directory exists").count();
    assert_eq!(kept, 1, "one kind of failure, one entry");
}

#[test]
fn file_store_scenarios_run_and_former_option_names_are_accepted() {
    let trace = output_of(&["sim", "6", "--world", "files"]);
    assert!(trace.contains("for metadata") && trace.contains("\nPassed: "), "{trace}");
    let batch = |kind: &str| json_of(&["sim", "--scenario", kind, "--seeds", "8", "--json", "--quiet"]);
    let all = batch("all");
    assert_eq!((&all["seeds"], &all["good"]), (&8.into(), &8.into()));
    assert_eq!(all, batch("both"));
}

#[test]
fn volume_scenarios_run() {
    let trace = output_of(&["sim", "6", "--scenario", "volumes"]);
    assert!(trace.contains("\n  members ") && trace.contains("the volume is mounted"), "{trace}");
    assert!(trace.contains("\nPassed: "), "{trace}");
    let batch = json_of(&["sim", "--scenario", "volumes", "--seeds", "8", "--json", "--quiet"]);
    assert_eq!((&batch["seeds"], &batch["good"]), (&8.into(), &8.into()));
}

#[test]
fn pool_scenarios_run() {
    let trace = output_of(&["sim", "6", "--scenario", "elastic"]);
    assert!(
        trace.contains("\n  pool ") && trace.contains("mounted, epoch ") && trace.contains("\nPassed: "),
        "{trace}"
    );
    let batch = json_of(&["sim", "--scenario", "elastic", "--seeds", "8", "--json", "--quiet"]);
    assert_eq!((&batch["seeds"], &batch["good"]), (&8.into(), &8.into()));
}

#[test]
fn image_scenarios_run() {
    let trace = output_of(&["sim", "6", "--scenario", "images"]);
    assert!(trace.contains("\n  journal ") && trace.contains("opened: ") && trace.contains("\nPassed: "), "{trace}");
    let batch = json_of(&["sim", "--scenario", "images", "--seeds", "8", "--json", "--quiet"]);
    assert_eq!((&batch["seeds"], &batch["good"]), (&8.into(), &8.into()));
}
