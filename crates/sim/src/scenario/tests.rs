use super::*;
use crate::options::Mode;
use crate::simulate::{run, run_twice};

const KINDS: [ScenarioKind; 7] = [
    ScenarioKind::Drive,
    ScenarioKind::Network,
    ScenarioKind::Files,
    ScenarioKind::Volumes,
    ScenarioKind::Images,
    ScenarioKind::Elastic,
    ScenarioKind::Groups,
];

/// The tables of an entry's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    run: Option<RunText>,
    drive: Option<DriveScenario>,
    network: Option<NetworkScenario>,
    files: Option<FilesScenario>,
    volumes: Option<VolumesScenario>,
    images: Option<ImagesScenario>,
    elastic: Option<ElasticScenario>,
    groups: Option<GroupsScenario>,
}

fn written(scenario: &Scenario) -> String {
    toml::to_string_pretty(&scenario.to_text()).unwrap()
}

fn read(text: &str) -> Result<Scenario, ConfigError> {
    let File { run, drive, network, files, volumes, images, elastic, groups } = zonda_config::parse(text)?;
    Scenario::of_text(ScenarioText { run, drive, network, files, volumes, images, elastic, groups })
}

fn message(text: &str) -> String {
    read(text).expect_err("the text is invalid").message
}

#[test]
fn a_stored_scenario_equals_the_generated_one() {
    for kind in KINDS {
        let options = Options::of_scenario(kind);
        for seed in (0..60).chain([u64::MAX]) {
            let scenario = Scenario::generate(seed, &options);
            assert_eq!(scenario.kind(), kind);
            let again = read(&written(&scenario)).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            assert_eq!(again, scenario, "seed {seed}");
            let (generated, stored) = (AnySimulation::new(seed, &options), again.simulation().unwrap());
            assert_eq!(format!("{stored:?}"), format!("{generated:?}"), "seed {seed}");
        }
    }
}

fn runs_as_from_its_seed(seed: u64, options: &Options) {
    let scenario = read(&written(&Scenario::generate(seed, options))).unwrap();
    let stored = run_twice(seed, &scenario.simulation().unwrap(), options);
    assert_eq!(stored, run(seed, options), "seed {seed}");
}

#[test]
fn a_stored_scenario_runs_byte_for_byte_as_from_its_seed() {
    for kind in KINDS {
        (0..6).for_each(|seed| runs_as_from_its_seed(seed, &Options::of_scenario(kind)));
    }
    let short = Options { commands_max: Some(300), ..Options::of(Mode::Performance) };
    [short, Options::of(Mode::Lite)].iter().for_each(|options| runs_as_from_its_seed(3, options));
}

#[test]
#[ignore = "soak"]
fn soak_stored_scenarios_run_byte_for_byte_as_from_their_seeds() {
    for kind in KINDS {
        (6..200).for_each(|seed| runs_as_from_its_seed(seed, &Options::of_scenario(kind)));
    }
}

#[test]
fn trimming_unreachable_mounts_does_not_change_a_run() {
    let options = Options::of_scenario(ScenarioKind::Files);
    let varying = (0..40).filter(|&seed| match AnySimulation::new(seed, &options) {
        AnySimulation::Files(simulation) => !simulation.mounts.is_empty() && simulation.death_every.is_some(),
        _ => false,
    });
    for seed in varying.take(3) {
        let whole = run(seed, &options);
        let mut scenario = Scenario::generate(seed, &options);
        scenario.trim(whole.power_losses);
        assert!(written(&scenario).len() < written(&Scenario::generate(seed, &options)).len());
        assert_eq!(run_twice(seed, &scenario.simulation().unwrap(), &options), whole, "seed {seed}");
    }
}

#[test]
fn an_unknown_key_is_refused_by_name_in_every_table() {
    for (kind, place) in [
        (ScenarioKind::Drive, "[drive.load]\n"),
        (ScenarioKind::Network, "[network.target.limits]\n"),
        (ScenarioKind::Files, "[files.load.mix]\n"),
        (ScenarioKind::Volumes, "[volumes.config.tuning]\n"),
        (ScenarioKind::Images, "[images.events]\n"),
        (ScenarioKind::Groups, "[groups.scheduler]\n"),
        (ScenarioKind::Volumes, "[run]\n"),
    ] {
        let text = written(&Scenario::generate(1, &Options::of_scenario(kind)));
        assert!(text.contains(place), "{text}");
        let text = text.replacen(place, &format!("{place}surprise = 1\n"), 1);
        assert!(message(&text).contains("surprise"), "{}", message(&text));
    }
}

#[test]
fn a_missing_key_is_named() {
    for (kind, key) in [
        (ScenarioKind::Drive, "check_every"),
        (ScenarioKind::Network, "chaos_every"),
        (ScenarioKind::Files, "queue_depth"),
        (ScenarioKind::Volumes, "member_timeout_ns"),
        (ScenarioKind::Elastic, "queue_depth"),
        (ScenarioKind::Elastic, "width_max"),
        (ScenarioKind::Images, "rot_percent"),
        (ScenarioKind::Groups, "noise_ns"),
    ] {
        let text = written(&Scenario::generate(1, &Options::of_scenario(kind)));
        let less: String = text.lines().filter(|line| !line.starts_with(key)).map(|line| format!("{line}\n")).collect();
        assert!(message(&less).contains(key), "{}", message(&less));
    }
}

#[test]
fn a_scenario_without_run_or_with_two_kinds_is_refused() {
    let drive = written(&Scenario::generate(1, &Options::default()));
    assert!(message(&drive.replace("[run]\nseed = \"1\"\n", "")).contains("[run]"));
    assert!(message("[run]\nseed = \"1\"\n").contains("exactly one of the tables"));
    let volumes = written(&Scenario::generate(1, &Options::of_scenario(ScenarioKind::Volumes)));
    let both =
        drive + volumes.split_once("[volumes]").map(|(_, body)| format!("\n[volumes]{body}")).as_deref().unwrap();
    assert!(message(&both).contains("exactly one of the tables"), "{}", message(&both));
}

#[test]
fn inconsistent_parts_are_refused_without_a_panic() {
    for (kind, from, to) in [
        (ScenarioKind::Drive, "\nzones = ", "\nzones = 0 # "),
        (ScenarioKind::Drive, "check_every = ", "check_every = 0 # "),
        (ScenarioKind::Network, "io_queues = ", "io_queues = 0 # "),
        (ScenarioKind::Network, "first_zone = ", "first_zone = 1000 # "),
        (ScenarioKind::Files, "finish_threshold_percent = ", "finish_threshold_percent = 200 # "),
        (ScenarioKind::Volumes, "large_percent = ", "large_percent = 101 # "),
        (ScenarioKind::Volumes, "slow_members = [", "slow_members = [99,"),
        (ScenarioKind::Volumes, "unit_blocks = ", "unit_blocks = 0 # "),
        (ScenarioKind::Images, "zone_count = ", "zone_count = 0 # "),
        (ScenarioKind::Images, "rot_percent = ", "rot_percent = 101 # "),
        (ScenarioKind::Groups, "in_flight_max = ", "in_flight_max = 0 # "),
        (ScenarioKind::Groups, "reads_percent = ", "reads_percent = 101 # "),
        (ScenarioKind::Groups, "zone_count = ", "zone_count = 9999 # "),
    ] {
        let text = written(&Scenario::generate(1, &Options::of_scenario(kind)));
        assert!(text.contains(from), "{from}: {text}");
        assert!(read(&text.replacen(from, to, 1)).is_err(), "{to}");
    }
}
