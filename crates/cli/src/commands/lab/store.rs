//! Stored measurements: `measurements.json` next to the page of an experiment.
//!
//! They are valid only for the same program, drives and workloads: the file holds a hash of all of
//! them.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zonda_lab::{LabExperiment, Outcome};

use crate::errors::Failure;
use crate::files;

/// Name of the file.
const FILE: &str = "measurements.json";

/// Loads and stores measurements; holds the hash of this program.
pub(super) struct MeasurementCache(Vec<u8>);

#[derive(Deserialize, Serialize)]
struct StoredMeasurements {
    made_from: String,
    outcome: Outcome,
}

impl MeasurementCache {
    /// The measurements of this program; `None` if its executable cannot be read.
    pub(super) fn of_this_program() -> Option<MeasurementCache> {
        let program = std::fs::read(std::env::current_exe().ok()?).ok()?;
        Some(MeasurementCache(Sha256::digest(program).to_vec()))
    }

    /// A hash of the program and all inputs that determine the result of an experiment.
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

    /// The stored measurements of this experiment, if they are still valid.
    pub(super) fn load(&self, directory: &Path, experiment: &LabExperiment) -> Option<Outcome> {
        let text = files::read(&directory.join(FILE)).ok()?;
        let stored: StoredMeasurements = serde_json::from_str(&text).ok()?;
        let is_valid =
            stored.made_from == self.key(experiment) && stored.outcome.measurements.len() == experiment.points.len();
        is_valid.then_some(stored.outcome)
    }

    /// Stores the measurements of this experiment.
    pub(super) fn save(&self, directory: &Path, experiment: &LabExperiment, outcome: &Outcome) -> Result<(), Failure> {
        let stored = StoredMeasurements { made_from: self.key(experiment), outcome: outcome.clone() };
        let text = serde_json::to_string(&stored).expect("measurements hold only finite numbers");
        files::write(directory, FILE, &text)
    }
}
