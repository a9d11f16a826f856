//! `zonda sim`.

use super::{json_of, output_of, scratch, zonda};

#[test]
fn a_batch_is_summed_up_and_does_not_depend_on_the_number_of_threads() {
    let batch = |threads: &str| {
        json_of(&["sim", "--lite", "--seeds", "12", "--first", "5", "--threads", threads, "--json", "--quiet"])
    };
    let summary = batch("1");
    assert_eq!((&summary["seeds"], &summary["good"], &summary["first"]), (&12.into(), &12.into(), &5.into()));
    assert!(summary["commands"].as_u64().unwrap() > 100);
    assert_eq!(summary, batch("3"));
}

#[test]
fn a_seed_is_replayed_with_its_story() {
    let story = output_of(&["sim", "3", "--lite"]);
    assert!(story.starts_with("Seed 3"), "{story}");
    assert_eq!(story, output_of(&["sim", "3", "--lite"]));
}

#[test]
fn a_planted_bug_is_found_and_told_with_the_command_that_replays_it() {
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
fn a_failure_is_made_small_and_written_down() {
    let out = scratch("bugbase");
    let ran = zonda(&["sim", "0", "--bug", "reset-keeps-contents", "--shrink", "--out", out.to_str().unwrap()]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("The same failure with "), "{}", ran.stdout);
    let entry = std::fs::read_to_string(out.join("reset-keeps-contents-0.toml")).unwrap();
    let entry = zonda_sim::BugbaseEntry::parse(&entry).unwrap();
    assert_eq!(entry.check(), Ok(()));
}

#[test]
fn an_entry_replays_from_its_file_and_takes_no_option_that_makes_a_scenario() {
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
    assert!(ran.stdout.contains(&format!("Again: zonda sim {path}\n")), "{}", ran.stdout);
    let told = zonda(&["sim", path, "--json"]);
    assert!(told.stdout.contains(&format!("{:016x}", entry.run().hash)), "{}", told.stdout);

    let refused = zonda(&["sim", path, "--bug", "torn-block"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("--bug cannot be used with an entry"), "{}", refused.stderr);
    std::fs::write(&file, text.replace("[drive]\n", "[drive]\nsurprise = 1\n")).unwrap();
    let refused = zonda(&["sim", path]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("surprise") && refused.stderr.contains(path), "{}", refused.stderr);
}

#[test]
fn a_good_seed_has_nothing_to_shrink() {
    assert!(output_of(&["sim", "3", "--lite", "--shrink"]).contains("nothing to shrink"));
}

#[test]
fn of_many_seeds_the_first_failure_of_each_kind_is_made_small_and_kept() {
    let directory = scratch("shrink-many");
    let out = directory.to_str().expect("a path of this test is text");
    let ran = zonda(&["sim", "--bug", "lost-wakeup", "--seeds", "5", "--quiet", "--shrink", "--out", out]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(ran.stdout.matches("The same failure with").count(), 1, "{}", ran.stdout);
    let kept = std::fs::read_dir(&directory).expect("the directory is there").count();
    assert_eq!(kept, 1, "one kind of failure, one entry");
}

#[test]
fn worlds_of_files_are_run_and_told_and_the_former_name_of_all_worlds_is_understood() {
    let story = output_of(&["sim", "6", "--world", "files"]);
    assert!(story.contains("for metadata") && story.contains("\nGood: "), "{story}");
    let batch = |kind: &str| json_of(&["sim", "--world", kind, "--seeds", "8", "--json", "--quiet"]);
    let all = batch("all");
    assert_eq!((&all["seeds"], &all["good"]), (&8.into(), &8.into()));
    assert_eq!(all, batch("both"));
}

#[test]
fn worlds_of_volumes_are_run_and_told() {
    let story = output_of(&["sim", "6", "--world", "volumes"]);
    assert!(story.contains("\n  members ") && story.contains("the volume is mounted"), "{story}");
    assert!(story.contains("\nGood: "), "{story}");
    let batch = json_of(&["sim", "--world", "volumes", "--seeds", "8", "--json", "--quiet"]);
    assert_eq!((&batch["seeds"], &batch["good"]), (&8.into(), &8.into()));
}

#[test]
fn worlds_of_images_are_run_and_told() {
    let story = output_of(&["sim", "6", "--world", "images"]);
    assert!(story.contains("\n  journal ") && story.contains("opened: ") && story.contains("\nGood: "), "{story}");
    let batch = json_of(&["sim", "--world", "images", "--seeds", "8", "--json", "--quiet"]);
    assert_eq!((&batch["seeds"], &batch["good"]), (&8.into(), &8.into()));
}
