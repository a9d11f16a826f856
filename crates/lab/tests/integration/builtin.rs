//! The built-in experiments as a whole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use zonda_lab::{Basis, KindSpec, LabExperiment, PAPERS, builtin, builtin_ids};
use zonda_profiles::{builtin_names, builtin_text};
use zonda_ssd::profile::Profile;

use crate::PROFILES;

/// Published results about drives, paper by paper.
const DEVICE_RESULTS: [(&str, usize); 6] =
    [("ezns", 37), ("study", 4), ("confzns", 55), ("zapraid", 8), ("silent", 3), ("bae", 6)];

/// All of them, in their order. Read once: checking them takes longer than most tests.
pub(crate) fn all() -> Vec<LabExperiment> {
    static ALL: OnceLock<Vec<LabExperiment>> = OnceLock::new();
    ALL.get_or_init(|| builtin_ids().map(|id| builtin(id, &PROFILES).expect("it is in the list")).collect()).clone()
}

#[test]
fn every_experiment_is_valid_and_belongs_to_a_paper_or_a_set() {
    for experiment in all() {
        let paper = experiment.paper.as_deref().expect("it belongs somewhere");
        assert!(experiment.id.starts_with(&format!("{paper}-")), "{}", experiment.id);
        assert!(PAPERS.iter().any(|known| known.key == paper) && experiment.place.is_some(), "{}", experiment.id);
        assert!(!experiment.about.trim().is_empty() && !experiment.plots.is_empty(), "{}", experiment.id);
        assert!(experiment.seeds >= 2 || is_without_chance(&experiment), "{}: one seed has no spread", experiment.id);
    }
}

/// Drives of constant times and loads in order: every seed would give the same.
fn is_without_chance(experiment: &LabExperiment) -> bool {
    experiment.profiles().iter().all(|name| ["silent-custom", "zn540-emulated"].contains(name))
}

#[test]
fn every_published_result_about_a_drive_is_reproduced_once() {
    let mut seen = BTreeSet::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for experiment in all() {
        for result in &experiment.results {
            assert!(seen.insert(result.id.clone()), "duplicate result {}", result.id);
            if result.kind == KindSpec::Device {
                *counts.entry(experiment.paper.clone().expect("it repeats a paper")).or_default() += 1;
            }
        }
    }
    assert_eq!(counts, DEVICE_RESULTS.map(|(paper, count)| (paper.to_owned(), count)).into());
}

#[test]
fn profiles_depend_only_on_results_about_drives() {
    let kinds: BTreeMap<String, KindSpec> =
        all().into_iter().flat_map(|experiment| experiment.results).map(|result| (result.id, result.kind)).collect();
    for name in builtin_names() {
        let profile = Profile::parse(builtin_text(name).expect("it is built in")).expect("built-in profiles are right");
        for id in profile.results_used() {
            assert_eq!(kinds.get(id), Some(&KindSpec::Device), "{name} rests on {id}");
        }
    }
}

#[test]
fn only_results_about_which_nothing_was_set_are_predictions() {
    let all = all();
    let basis = |id: &str| {
        let of = |experiment: &LabExperiment| {
            let plan = experiment.results.iter().find(|result| result.id == id)?;
            Some(experiment.basis(plan))
        };
        all.iter().find_map(of).unwrap_or_else(|| panic!("there is no result {id}"))
    };
    assert_eq!(basis("ezns-t2-read-4k"), Basis::Derived);
    assert_eq!(basis("ezns-t2-bw-64k"), Basis::SameFigure, "the flash was derived from the latencies of Table 2");
    assert_eq!(basis("ezns-f11-4k-2ol-over-8ol"), Basis::SameFigure);
    assert_eq!(basis("ezns-f13-conventional-write-p999"), Basis::SameFigure);
    assert_eq!(basis("ezns-t3-reset-5"), Basis::Fitted);
    assert_eq!(basis("bae-f4-pair"), Basis::Chosen, "a command of the channel is in the profiles of this paper only");
    assert_eq!(basis("silent-t3-p16-s256-block"), Basis::Chosen, "the size of its requests is not published");
    assert_eq!(basis("ezns-f8-32k-qd1-8k-over-16k"), Basis::Predicted);
}

#[test]
fn every_open_load_of_an_experiment_can_be_varied() {
    for experiment in all() {
        for open in &experiment.open {
            let varied = open.variations().map(|variation| {
                let varied = experiment.varied(&variation, &PROFILES);
                varied.unwrap_or_else(|error| panic!("{}, {variation:?}: {error:?}", experiment.id))
            });
            let varied: Vec<LabExperiment> = varied.flatten().collect();
            assert!(!varied.is_empty(), "{}: {}", experiment.id, open.key);
            assert!(varied.iter().all(|varied| varied.points.len() == experiment.points.len()), "{}", experiment.id);
        }
    }
}

#[test]
fn no_experiment_sets_a_warm_up() {
    for experiment in all() {
        for point in &experiment.points {
            assert!(!point.text().contains("ramp"), "{} sets a ramp by hand", experiment.id);
        }
    }
}
