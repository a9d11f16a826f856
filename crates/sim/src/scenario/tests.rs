use super::*;
use crate::options::Mode;
use crate::simulate::{run, run_twice};

const KINDS: [WorldKind; 5] =
    [WorldKind::Drive, WorldKind::Network, WorldKind::Files, WorldKind::Volumes, WorldKind::Images];

/// As in the file of an entry.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    run: Option<RunText>,
    drive: Option<DriveScenario>,
    network: Option<NetworkScenario>,
    files: Option<FilesScenario>,
    volumes: Option<VolumesScenario>,
    images: Option<ImagesScenario>,
}

fn written(scenario: &Scenario) -> String {
    toml::to_string_pretty(&scenario.to_text()).unwrap()
}

fn read(text: &str) -> Result<Scenario, ConfigError> {
    let File { run, drive, network, files, volumes, images } = zonda_config::parse(text)?;
    Scenario::of_text(ScenarioText { run, drive, network, files, volumes, images })
}

fn message(text: &str) -> String {
    read(text).expect_err("the text has a mistake").message
}

#[test]
fn a_scenario_reads_back_as_it_was_generated_and_says_everything_that_was() {
    for kind in KINDS {
        let options = Options::of_world(kind);
        for seed in (0..60).chain([u64::MAX]) {
            let scenario = Scenario::generate(seed, &options);
            assert_eq!(scenario.kind(), kind);
            let again = read(&written(&scenario)).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            assert_eq!(again, scenario, "seed {seed}");
            let (generated, stored) = (AnyWorld::new(seed, &options), again.world().unwrap());
            assert_eq!(format!("{stored:?}"), format!("{generated:?}"), "seed {seed}");
        }
    }
}

fn runs_as_from_its_seed(seed: u64, options: &Options) {
    let scenario = read(&written(&Scenario::generate(seed, options))).unwrap();
    let stored = run_twice(seed, &scenario.world().unwrap(), options);
    assert_eq!(stored, run(seed, options), "seed {seed}");
}

#[test]
fn a_stored_scenario_runs_byte_for_byte_as_from_its_seed() {
    for kind in KINDS {
        (0..6).for_each(|seed| runs_as_from_its_seed(seed, &Options::of_world(kind)));
    }
    let short = Options { commands_max: Some(300), ..Options::of(Mode::Performance) };
    [short, Options::of(Mode::Lite)].iter().for_each(|options| runs_as_from_its_seed(3, options));
}

#[test]
#[ignore = "soak"]
fn soak_stored_scenarios_run_byte_for_byte_as_from_their_seeds() {
    for kind in KINDS {
        (6..200).for_each(|seed| runs_as_from_its_seed(seed, &Options::of_world(kind)));
    }
}

#[test]
fn a_store_whose_mounts_vary_keeps_those_that_a_run_can_reach_and_runs_the_same() {
    let options = Options::of_world(WorldKind::Files);
    let varying = (0..40).filter(|&seed| match AnyWorld::new(seed, &options) {
        AnyWorld::Files(world) => !world.mounts.is_empty() && world.death_every.is_some(),
        _ => false,
    });
    for seed in varying.take(3) {
        let whole = run(seed, &options);
        let mut scenario = Scenario::generate(seed, &options);
        scenario.trim(whole.power_losses);
        assert!(written(&scenario).len() < written(&Scenario::generate(seed, &options)).len());
        assert_eq!(run_twice(seed, &scenario.world().unwrap(), &options), whole, "seed {seed}");
    }
}

#[test]
fn an_unknown_key_is_refused_by_name_wherever_it_is() {
    for (kind, place) in [
        (WorldKind::Drive, "[drive.load]\n"),
        (WorldKind::Network, "[network.target.limits]\n"),
        (WorldKind::Files, "[files.load.mix]\n"),
        (WorldKind::Volumes, "[volumes.config.tuning]\n"),
        (WorldKind::Images, "[images.events]\n"),
        (WorldKind::Volumes, "[run]\n"),
    ] {
        let text = written(&Scenario::generate(1, &Options::of_world(kind)));
        assert!(text.contains(place), "{text}");
        let text = text.replacen(place, &format!("{place}surprise = 1\n"), 1);
        assert!(message(&text).contains("surprise"), "{}", message(&text));
    }
}

#[test]
fn a_missing_key_is_named() {
    for (kind, key) in [
        (WorldKind::Drive, "check_every"),
        (WorldKind::Network, "chaos_every"),
        (WorldKind::Files, "queue_depth"),
        (WorldKind::Volumes, "member_timeout_ns"),
        (WorldKind::Images, "rot_percent"),
    ] {
        let text = written(&Scenario::generate(1, &Options::of_world(kind)));
        let less: String = text.lines().filter(|line| !line.starts_with(key)).map(|line| format!("{line}\n")).collect();
        assert!(message(&less).contains(key), "{}", message(&less));
    }
}

#[test]
fn a_scenario_without_its_run_or_with_two_bodies_is_refused() {
    let drive = written(&Scenario::generate(1, &Options::default()));
    assert!(message(&drive.replace("[run]\nseed = \"1\"\n", "")).contains("[run]"));
    assert!(message("[run]\nseed = \"1\"\n").contains("exactly one of the tables"));
    let volumes = written(&Scenario::generate(1, &Options::of_world(WorldKind::Volumes)));
    let both =
        drive + volumes.split_once("[volumes]").map(|(_, body)| format!("\n[volumes]{body}")).as_deref().unwrap();
    assert!(message(&both).contains("exactly one of the tables"), "{}", message(&both));
}

#[test]
fn parts_that_do_not_suit_each_other_are_refused_and_nothing_panics() {
    for (kind, from, to) in [
        (WorldKind::Drive, "\nzones = ", "\nzones = 0 # "),
        (WorldKind::Drive, "check_every = ", "check_every = 0 # "),
        (WorldKind::Network, "io_queues = ", "io_queues = 0 # "),
        (WorldKind::Network, "first_zone = ", "first_zone = 1000 # "),
        (WorldKind::Files, "finish_threshold_percent = ", "finish_threshold_percent = 200 # "),
        (WorldKind::Volumes, "large_percent = ", "large_percent = 101 # "),
        (WorldKind::Volumes, "slow_members = [", "slow_members = [99,"),
        (WorldKind::Volumes, "unit_blocks = ", "unit_blocks = 0 # "),
        (WorldKind::Images, "zone_count = ", "zone_count = 0 # "),
        (WorldKind::Images, "rot_percent = ", "rot_percent = 101 # "),
    ] {
        let text = written(&Scenario::generate(1, &Options::of_world(kind)));
        assert!(text.contains(from), "{from}: {text}");
        assert!(read(&text.replacen(from, to, 1)).is_err(), "{to}");
    }
}
