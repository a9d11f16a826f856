//! Measurements that are kept, so that they need not be made again: `measurements.json` beside the page of an experiment.
//!
//! They are taken again only for the same program, drives and loads: a hash over all of them stands in the file.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zonda_lab::{LabExperiment, Outcome};

use crate::errors::Failure;
use crate::files;

/// Where they are.
const FILE: &str = "measurements.json";

/// What tells this program from every other.
pub(super) struct Maker(Vec<u8>);

#[derive(Deserialize, Serialize)]
struct Kept {
    made_from: String,
    outcome: Outcome,
}

impl Maker {
    /// This program. One that cannot read itself keeps nothing.
    pub(super) fn this() -> Option<Maker> {
        let program = std::fs::read(std::env::current_exe().ok()?).ok()?;
        Some(Maker(Sha256::digest(program).to_vec()))
    }

    /// A hash over the program and everything that decides what an experiment comes to.
    fn key(&self, experiment: &LabExperiment) -> String {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        add(&self.0);
        add(experiment.text.as_bytes());
        for point in &experiment.points {
            add(point.text().as_bytes());
            add(point.experiment().drive().profile_text().as_bytes());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What was kept of this experiment, if it is still true.
    pub(super) fn load(&self, directory: &Path, experiment: &LabExperiment) -> Option<Outcome> {
        let text = files::read(&directory.join(FILE)).ok()?;
        let kept: Kept = serde_json::from_str(&text).ok()?;
        let fits = kept.made_from == self.key(experiment) && kept.outcome.measurements.len() == experiment.points.len();
        fits.then_some(kept.outcome)
    }

    /// Keeps it.
    pub(super) fn save(&self, directory: &Path, experiment: &LabExperiment, outcome: &Outcome) -> Result<(), Failure> {
        let kept = Kept { made_from: self.key(experiment), outcome: outcome.clone() };
        let text = serde_json::to_string(&kept).expect("measurements hold only finite numbers");
        files::write(directory, FILE, &text)
    }
}
