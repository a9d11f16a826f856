//! Loads that a paper leaves open: keys of the workload whose values it does not state, and runs
//! with other values.

use serde::Deserialize;
use toml::{Table, Value};
use zonda_config::{ConfigError, Spanned, did_you_mean_help};

use crate::expand::{notation, put};
use crate::spec::FileSpec;

/// A varied load is this share smaller or larger.
const SHARE: f64 = 0.25;
/// Sizes stay multiples of this, because most drives have blocks of 4 KiB.
const SIZE_STEP_BYTES: f64 = 4096.0;
/// Units of sizes, in bytes.
const SIZES: [(&str, f64); 5] =
    [("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0), ("TiB", 1_099_511_627_776.0)];

/// `[[open]]`: a key of the workload that the paper leaves open.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OpenSpec {
    /// As in `[x]`: `run.KEY`, `store.KEY`, `volume.KEY`, `job.NAME.KEY`, `job.*.KEY`.
    pub(crate) key: Spanned<String>,
    /// What the paper states about it, and why this value was taken.
    pub(crate) why: String,
    /// The results that depend on it; default all of the file.
    #[serde(default)]
    pub(crate) results: Vec<Spanned<String>>,
    /// Other values; default a quarter less and a quarter more.
    #[serde(default)]
    pub(crate) values: Vec<Value>,
}

/// A key of the workload that the paper leaves open.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenLoad {
    /// The key, as in `[x]`.
    pub key: String,
    /// What the paper states about it, and why this value was taken.
    pub why: String,
    /// Indices of the results that depend on it.
    pub results: Vec<usize>,
    changes: Vec<Change>,
}

/// Another value of an open load.
#[derive(Clone, Debug, PartialEq)]
pub struct Variation {
    key: String,
    change: Change,
}

#[derive(Clone, Debug, PartialEq)]
enum Change {
    Factor(f64),
    Value(Value),
}

impl OpenLoad {
    /// # Errors
    /// An unknown result, a missing reason, or a key without a value that can be varied.
    pub(crate) fn new(spec: &OpenSpec, file: &FileSpec, tables: &[&Table]) -> Result<OpenLoad, ConfigError> {
        if spec.why.trim().is_empty() {
            return Err(ConfigError::at(&spec.key, "an open load needs a reason").help("add a line like why = \"...\""));
        }
        let known: Vec<&str> = file.result.iter().map(|result| result.get_ref().id.as_str()).collect();
        let place = |id: &Spanned<String>| {
            let found = known.iter().position(|known| known == id.get_ref());
            found.ok_or_else(|| {
                let error = ConfigError::at(id, format!("unknown result \"{}\"", id.get_ref()));
                error.help(did_you_mean_help(id.get_ref(), &known))
            })
        };
        let results = match spec.results[..] {
            [] => (0..known.len()).collect(),
            _ => spec.results.iter().map(place).collect::<Result<_, _>>()?,
        };
        let changes = match spec.values[..] {
            [] => vec![Change::Factor(1.0 - SHARE), Change::Factor(1.0 + SHARE)],
            _ => spec.values.iter().cloned().map(Change::Value).collect(),
        };
        let open = OpenLoad { key: spec.key.get_ref().clone(), why: spec.why.clone(), results, changes };
        let has_effect = |variation: Variation| {
            tables.iter().any(|table| variation.apply(&mut (*table).clone()).is_ok_and(|is_changed| is_changed))
        };
        if open.variations().any(has_effect) {
            return Ok(open);
        }
        let error = ConfigError::at(&spec.key, "no configuration has a value of this key that can be varied");
        Err(error.help("set the key in [run], [[job]], [store] or [volume], or add values = [...] here"))
    }

    /// The other values to run.
    pub fn variations(&self) -> impl Iterator<Item = Variation> {
        self.changes.iter().map(|change| Variation { key: self.key.clone(), change: change.clone() })
    }
}

impl Variation {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The change: `-25%`, `+25%`, or the value.
    #[must_use]
    pub fn change(&self) -> String {
        match &self.change {
            Change::Factor(factor) => format!("{:+.0}%", (factor - 1.0) * 100.0),
            Change::Value(value) => notation(value),
        }
    }

    /// Sets the value in the tables of a point; returns whether that changed anything. A job that
    /// does not run at this point stays absent.
    ///
    /// # Errors
    /// An invalid key.
    pub(crate) fn apply(&self, table: &mut Table) -> Result<bool, ConfigError> {
        let before = table.clone();
        let key = zonda_config::unplaced(self.key.clone());
        match &self.change {
            Change::Value(value) => {
                let is_absent_job = self.key.starts_with("job.") && values_at(table, &self.key).is_none();
                if !is_absent_job {
                    put(table, &key, value.clone())?;
                }
            }
            Change::Factor(factor) => {
                for value in values_at(table, &self.key).into_iter().flatten() {
                    if let Some(other) = scaled(value, *factor) {
                        *value = other;
                    }
                }
            }
        }
        Ok(*table != before)
    }
}

/// The values at a key; `None` if the job or the table does not exist.
fn values_at<'a>(table: &'a mut Table, key: &str) -> Option<Vec<&'a mut Value>> {
    match key.splitn(3, '.').collect::<Vec<_>>()[..] {
        ["job", job, name] => {
            let jobs = table.get_mut("job")?.as_array_mut()?.iter_mut().filter_map(Value::as_table_mut);
            let is_meant = |table: &&mut Table| job == "*" || table.get("name").and_then(Value::as_str) == Some(job);
            let mut jobs = jobs.filter(is_meant).peekable();
            jobs.peek()?;
            Some(jobs.filter_map(|job| job.get_mut(name)).collect())
        }
        [outer, name] => Some(table.get_mut(outer)?.as_table_mut()?.get_mut(name).into_iter().collect()),
        _ => None,
    }
}

/// A number or a quantity times a factor, rounded away from the value; `None` for other values, and
/// if nothing between the value and zero is left.
fn scaled(value: &Value, factor: f64) -> Option<Value> {
    let rounded = |number: f64| if factor < 1.0 { number.floor() } else { number.ceil() };
    match value {
        Value::Integer(number) => {
            let other = rounded(*number as f64 * factor);
            (other >= 1.0).then_some(Value::Integer(other as i64))
        }
        Value::Float(number) => Some(Value::Float(number * factor)),
        Value::String(text) => {
            let (number, unit) = text.split_once(' ')?;
            let number: f64 = number.parse().ok()?;
            let Some((_, size)) = SIZES.iter().find(|(name, _)| *name == unit) else {
                return Some(Value::String(format!("{} {unit}", number * factor)));
            };
            let steps = rounded(number * size * factor / SIZE_STEP_BYTES);
            (steps >= 1.0).then(|| Value::String(format!("{} KiB", steps * SIZE_STEP_BYTES / 1024.0)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str, factor: f64) -> Option<String> {
        scaled(&Value::String(value.to_owned()), factor).and_then(|value| value.as_str().map(str::to_owned))
    }

    #[test]
    fn a_quantity_is_scaled_in_its_unit_and_a_size_to_whole_blocks() {
        assert_eq!(text("2 us", 0.75).as_deref(), Some("1.5 us"));
        assert_eq!(text("20 MiB/s", 1.25).as_deref(), Some("25 MiB/s"));
        assert_eq!(text("128 KiB", 0.75).as_deref(), Some("96 KiB"));
        assert_eq!(text("4 KiB", 1.25).as_deref(), Some("8 KiB"));
        assert_eq!(text("4 KiB", 0.75), None, "there is no smaller block");
        assert_eq!(text("0..16", 1.25), None);
    }

    #[test]
    fn an_integer_is_rounded_away_from_its_value_and_stays_positive() {
        let of = |number, factor| scaled(&Value::Integer(number), factor);
        assert_eq!([of(8, 0.75), of(8, 1.25)], [Some(Value::Integer(6)), Some(Value::Integer(10))]);
        assert_eq!([of(2, 0.75), of(2, 1.25)], [Some(Value::Integer(1)), Some(Value::Integer(3))]);
        assert_eq!([of(1, 0.75), of(1, 1.25)], [None, Some(Value::Integer(2))]);
    }

    #[test]
    fn a_variation_changes_the_jobs_that_run() {
        let table = "[run]\ntime = \"1 s\"\n[[job]]\nname = \"a\"\nqueue_depth = 4\n[[job]]\nname = \"b\"\n";
        let applied = |key: &str, change| {
            let mut table: Table = table.parse().expect("it is TOML");
            let variation = Variation { key: key.to_owned(), change };
            let is_changed = variation.apply(&mut table).expect("the key is valid");
            (is_changed, table.to_string())
        };
        assert!(applied("job.*.queue_depth", Change::Factor(1.25)).1.contains("queue_depth = 5"));
        assert!(!applied("job.b.queue_depth", Change::Factor(1.25)).0, "the default is not a value of the file");
        assert!(applied("job.b.queue_depth", Change::Value(Value::Integer(7))).1.contains("queue_depth = 7"));
        assert!(!applied("job.c.queue_depth", Change::Value(Value::Integer(7))).0, "this job does not run here");
        assert!(applied("run.time", Change::Factor(0.75)).1.contains("0.75 s"));
    }
}
