//! The fitted profile: the text of the original with other values, another name, and the sources of
//! the values.

use std::ops::Range;

use toml::Value;

use super::{FitPlan, FitReport, place};

/// Suffix of the name of a fitted profile.
const SUFFIX: &str = "-fitted";

impl FitPlan {
    /// The name of the fitted profile.
    #[must_use]
    pub fn fitted_name(&self) -> String {
        let name = zonda_ssd::profile::Profile::parse(&self.profile_text).expect("the profile was parsed before").name;
        if name.ends_with(SUFFIX) { name } else { name + SUFFIX }
    }

    /// The text of the fitted profile: values are replaced in place, so that comments and order
    /// stay. The sources of changed values name `file` and the measurements that depend on them
    /// most.
    #[must_use]
    pub fn fitted_text(&self, report: &FitReport, file: &str) -> String {
        let text = &self.profile_text;
        let find = |path: &[&str]| place::find(text, path).map(|place| place.value);
        let mut changes: Vec<(Range<usize>, String)> = Vec::new();
        if let Some(name) = find(&["name"]) {
            changes.push((name, Value::String(self.fitted_name()).to_string()));
        }
        let mut added = String::new();
        for ((parameter, number), fitted) in self.parameters.iter().zip(&report.numbers).zip(&report.parameters) {
            if *number == parameter.start {
                continue;
            }
            let names: Vec<&str> = fitted.moves.iter().map(|effect| effect.measurement.as_str()).collect();
            let how = Value::String(format!("{file}: {}", names.join("; ")));
            let source = format!("{{ fitted = [], how = {how} }}");
            changes.push((parameter.place.clone(), parameter.written(*number)));
            match find(&["sources", &parameter.key]) {
                Some(place) => changes.push((place, source)),
                None => added += &format!("\n\"{}\" = {source}", parameter.key),
            }
        }
        let last = place::below(text, "sources").into_iter().map(|place| place.end).max();
        if let Some(last) = last.filter(|_| !added.is_empty()) {
            let is_in_braces = find(&["sources"]).is_some_and(|place| text[place].starts_with('{'));
            // A comment at the end of the line is kept.
            let line_end = text[last..].find('\n').map_or(text.len(), |length| last + length);
            let end = if is_in_braces { last } else { line_end };
            changes.push((end..end, if is_in_braces { added.replace('\n', ", ") } else { added }));
        }
        replaced(text, changes)
    }
}

/// The text with replacements at ranges that do not overlap.
pub(super) fn replaced(text: &str, mut changes: Vec<(Range<usize>, String)>) -> String {
    changes.sort_by_key(|(place, _)| (place.start, place.end));
    let mut written = String::with_capacity(text.len());
    let mut from = 0;
    for (place, words) in changes {
        written.push_str(&text[from..place.start]);
        written.push_str(&words);
        from = place.end;
    }
    written.push_str(&text[from..]);
    written
}
