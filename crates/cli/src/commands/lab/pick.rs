//! Selects experiments and measures them.

use std::collections::BTreeSet;
use std::path::Path;

use zonda_config::unknown_name_help;
use zonda_lab::{LabError, LabExperiment, Outcome, PAPERS, builtin, builtin_ids, builtin_text, site};
use zonda_profiles::BUILTIN;
use zonda_stack::{Experiment, Profiles};

use super::store::MeasurementCache;
use super::{HowArgs, work};
use crate::errors::{Failure, described};
use crate::files::{self, BUILTIN_PROFILES};

/// Experiments and their results.
pub(super) struct Measured {
    pub(super) experiments: Vec<LabExperiment>,
    pub(super) outcomes: Vec<Outcome>,
    /// Number of experiments whose stored measurements were used.
    pub(super) cached: usize,
    /// Absent if measurements cannot be stored.
    cache: Option<MeasurementCache>,
}

/// All built-in experiments.
pub(super) fn all() -> Vec<LabExperiment> {
    builtin_ids().map(|id| builtin(id, &BUILTIN_PROFILES).expect("built-in IDs name experiments")).collect()
}

/// The experiments that the arguments name, without duplicates, in the order of the arguments.
pub(super) fn picked(words: &[String]) -> Result<Vec<LabExperiment>, Failure> {
    Ok(picked_with_files(words)?.into_iter().map(|(experiment, _)| experiment).collect())
}

/// The same, with the path of each that is not built in.
pub(super) fn picked_with_files(words: &[String]) -> Result<Vec<(LabExperiment, Option<&str>)>, Failure> {
    let mut picked: Vec<(LabExperiment, Option<&str>)> = Vec::new();
    for word in words {
        let file = is_file(word).then_some(word.as_str());
        for experiment in named(word)? {
            match picked.iter().map(|(earlier, _)| earlier).find(|earlier| earlier.id == experiment.id) {
                None => picked.push((experiment, file)),
                Some(earlier) if earlier.text == experiment.text => {}
                Some(_) => {
                    let message = format!("two different files are named {}.toml", experiment.id);
                    let help = "rename one of them: measurements are stored by file name";
                    return Err(Failure::input(message, help));
                }
            }
        }
    }
    Ok(picked)
}

/// Whether a word is the path of a file.
fn is_file(word: &str) -> bool {
    word.ends_with(".toml") || word.contains('/')
}

fn named(word: &str) -> Result<Vec<LabExperiment>, Failure> {
    if is_file(word) {
        return Ok(vec![from_file(word)?]);
    }
    if let Some(experiment) = builtin(word, &BUILTIN_PROFILES) {
        return Ok(vec![experiment]);
    }
    let all = all();
    let names: Vec<String> = PAPERS
        .iter()
        .map(|paper| paper.key.to_owned())
        .chain(all.iter().map(|experiment| experiment.id.clone()))
        .chain(all.iter().flat_map(|experiment| experiment.results.iter().map(|result| result.id.clone())))
        .collect();
    let is_meant = |experiment: &LabExperiment| {
        experiment.paper.as_deref() == Some(word) || experiment.results.iter().any(|result| result.id == word)
    };
    let meant: Vec<LabExperiment> = all.into_iter().filter(is_meant).collect();
    if meant.is_empty() {
        let nearest: Vec<&str> = names.iter().map(String::as_str).collect();
        let help = zonda_config::did_you_mean(word, &nearest).map_or_else(
            || "zonda lab list shows all experiments; the name of a file must end in .toml".to_owned(),
            |nearest| format!("did you mean \"{nearest}\"? zonda lab list shows all"),
        );
        return Err(Failure::input(format!("no experiment, paper or result is named \"{word}\""), help));
    }
    Ok(meant)
}

/// An experiment of the user, named after its file.
fn from_file(path: &str) -> Result<LabExperiment, Failure> {
    let text = files::read_text(path, "zonda lab show ID prints the file of an experiment")?;
    let stem =
        Path::new(path).file_stem().map_or_else(|| "mine".to_owned(), |stem| stem.to_string_lossy().into_owned());
    // A modified copy of a built-in experiment does not replace it.
    let id = if builtin_text(&stem).is_some() { format!("my-{stem}") } else { stem };
    let read_file = files::reader_beside(path);
    LabExperiment::parse(&id, &text, &Profiles::new(BUILTIN, &read_file)).map_err(|error| match error {
        LabError::File(_) if Experiment::parse(&text, &Profiles::new(BUILTIN, &read_file)).is_ok() => Failure::input(
            format!("{path} is a job file, not an experiment"),
            format!("run it with zonda bench {path}; zonda lab show ID prints the file of an experiment as an example"),
        ),
        LabError::File(error) => Failure::in_file(&described(&error, "docs/guide/experiments.md"), path, &text),
        LabError::Point { point, error } => {
            let shown = format!("{path} as a job file at {point}");
            Failure::in_experiment(&error.error, &shown, &error.text)
        }
    })
}

/// Measures these experiments, or loads stored measurements that are still valid.
pub(super) fn measured(experiments: Vec<LabExperiment>, how: &HowArgs) -> Result<Measured, Failure> {
    files::make_directory(&how.out)?;
    let cache = MeasurementCache::of_this_program();
    let known: Vec<Option<Outcome>> = experiments
        .iter()
        .map(|experiment| {
            let cache = cache.as_ref().filter(|_| !how.rerun)?;
            cache.load(&how.out.join(&experiment.id), experiment)
        })
        .collect();
    let missing: Vec<LabExperiment> =
        experiments.iter().zip(&known).filter(|(_, known)| known.is_none()).map(|(of, _)| of.clone()).collect();
    let mut new = work::measure(&missing, how.threads, how.quiet).into_iter();
    let cached = known.iter().flatten().count();
    let mut outcomes = Vec::with_capacity(experiments.len());
    for (experiment, known) in experiments.iter().zip(known) {
        outcomes.push(match known {
            Some(outcome) => outcome,
            None => {
                let outcome = new.next().expect("all missing experiments were measured");
                if let Some(cache) = &cache {
                    let directory = how.out.join(&experiment.id);
                    files::make_directory(&directory)?;
                    cache.save(&directory, experiment, &outcome)?;
                }
                outcome
            }
        });
    }
    Ok(Measured { experiments, outcomes, cached, cache })
}

impl Measured {
    /// Writes the pages of these experiments, and of all stored measurements in the same directory
    /// that are still valid.
    pub(super) fn write_pages(&self, out: &Path) -> Result<(), Failure> {
        let stored = |experiment: LabExperiment| {
            let outcome = self.cache.as_ref()?.load(&out.join(&experiment.id), &experiment)?;
            Some((experiment, outcome))
        };
        let now = |id: &str| {
            let place = self.experiments.iter().position(|experiment| experiment.id == id)?;
            Some((self.experiments[place].clone(), self.outcomes[place].clone()))
        };
        let mut entries: Vec<(LabExperiment, Outcome)> = Vec::new();
        // Avoids parsing built-in experiments without measurements in this directory.
        let before = |id: &str| if out.join(id).is_dir() { stored(builtin(id, &BUILTIN_PROFILES)?) } else { None };
        for id in builtin_ids() {
            entries.extend(now(id).or_else(|| before(id)));
        }
        let mut own: BTreeSet<String> = own_ids(out);
        own.extend(self.experiments.iter().map(|experiment| experiment.id.clone()));
        own.retain(|id| builtin_text(id).is_none());
        for id in own {
            let path = out.join(&id).join(format!("{id}.toml"));
            entries.extend(now(&id).or_else(|| stored(from_file(&path.to_string_lossy()).ok()?)));
        }
        for file in site(&entries) {
            if let Some((folder, _)) = file.path.rsplit_once('/') {
                files::make_directory(&out.join(folder))?;
            }
            files::write(out, &file.path, &file.text)?;
        }
        Ok(())
    }
}

/// The names of the subdirectories: experiments that may have measurements.
fn own_ids(out: &Path) -> BTreeSet<String> {
    let folders = std::fs::read_dir(out).into_iter().flatten().flatten();
    folders.filter_map(|folder| folder.file_name().into_string().ok()).collect()
}

/// The remedy for an unknown experiment.
pub(super) fn nearest_id(word: &str) -> String {
    let ids: Vec<&str> = builtin_ids().collect();
    unknown_name_help(word, &ids)
}
