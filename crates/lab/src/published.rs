//! The results that the papers publish, whether or not an experiment reproduces them.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::{builtin_ids, builtin_text};

/// The list: the results of the papers that a model of a drive, or of a system on it, could
/// reproduce.
const LIST: &str = include_str!("../published.toml");

/// A published result.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedResult {
    /// Stable over time; begins with the key of its paper.
    pub id: String,
    /// Its table, figure or section.
    pub place: String,
    /// What it is about, in a line.
    pub subject: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    result: Vec<PublishedResult>,
}

/// All published results, paper by paper.
///
/// # Panics
/// If the list is invalid, which a test excludes.
#[must_use]
pub fn published_results() -> &'static [PublishedResult] {
    static ALL: OnceLock<Vec<PublishedResult>> = OnceLock::new();
    ALL.get_or_init(|| toml::from_str::<File>(LIST).expect("the list of published results is valid").result)
}

/// The published results that no built-in experiment reproduces.
#[must_use]
pub fn uncovered_results() -> Vec<&'static PublishedResult> {
    let line = |id: &str| format!("\nid = \"{id}\"\n");
    let texts: Vec<&str> = builtin_ids().filter_map(builtin_text).collect();
    let is_covered = |result: &PublishedResult| texts.iter().any(|text| text.contains(&line(&result.id)));
    published_results().iter().filter(|result| !is_covered(result)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_result_has_an_id_of_its_paper_a_place_and_a_subject() {
        let mut ids: Vec<&str> = published_results().iter().map(|result| result.id.as_str()).collect();
        for result in published_results() {
            let paper = crate::PAPERS.iter().find(|paper| result.id.starts_with(&format!("{}-", paper.key)));
            assert!(paper.is_some_and(|paper| paper.is_published), "{}", result.id);
            assert!(!result.place.is_empty() && !result.subject.is_empty(), "{}", result.id);
        }
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count, "an id is listed twice");
    }

    #[test]
    fn every_result_of_a_listed_paper_is_in_the_list() {
        let ids: Vec<&str> = published_results().iter().map(|result| result.id.as_str()).collect();
        let is_listed = |paper: &crate::Paper| ids.iter().any(|id| id.starts_with(&format!("{}-", paper.key)));
        for id in builtin_ids() {
            let table: toml::Table = builtin_text(id).expect("it is built in").parse().expect("it is TOML");
            let paper = crate::PAPERS.iter().find(|paper| table["paper"].as_str() == Some(paper.key));
            if !paper.is_some_and(is_listed) {
                continue;
            }
            for result in table.get("result").and_then(toml::Value::as_array).into_iter().flatten() {
                assert!(ids.contains(&result["id"].as_str().expect("it has an id")), "{id}: {result}");
            }
        }
    }
}
