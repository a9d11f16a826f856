//! Expands the file of an experiment to the job files of its points: every curve at every value of
//! x.

use std::collections::BTreeMap;

use toml::{Table, Value};
use zonda_config::{ConfigError, Spanned, did_you_mean_help};

use crate::spec::FileSpec;

/// Keys below these are dotted keys of a profile: one key of the table, not tables in tables.
const PROFILE_CHANGES: &str = "drive.set.";
/// The key that selects jobs.
const JOBS: &str = "jobs";
/// The key that removes the pool of a curve, if it is false.
const ELASTIC: &str = "elastic";

/// A point before validation: the index of its curve and value, and its tables `drive`, `run`,
/// `job`, `store`, `volume` and `elastic`.
pub(crate) struct RawPoint {
    pub(crate) series: usize,
    pub(crate) x: usize,
    pub(crate) table: Table,
}

/// All points, curve by curve.
///
/// # Errors
/// If a key does not lead to an existing table.
pub(crate) fn expand(spec: &FileSpec) -> Result<Vec<RawPoint>, ConfigError> {
    let base = base_of(spec)?;
    let x = spec.x.as_ref().map(Spanned::get_ref);
    let values = x.map_or(1, |x| x.values.len());
    let of_series = spec.series.iter().flat_map(|series| &series.get_ref().each);
    for (key, list) in x.into_iter().flat_map(|x| &x.each).chain(of_series) {
        let items = list.get_ref().len();
        if items != values {
            let message = format!("{} has {items} items for {values} values of x", key.get_ref());
            return Err(ConfigError::at(list, message).help("write one item for each of the values"));
        }
    }
    check_exceptions(spec)?;
    let mut points = Vec::new();
    for series in 0..spec.series.len().max(1) {
        for place in 0..values {
            if let (Some(series), Some(x)) = (spec.series.get(series), x) {
                let except = &series.get_ref().except;
                if except.iter().any(|value| value.get_ref() == x.values[place].get_ref()) {
                    continue;
                }
            }
            let mut table = base.clone();
            if let Some(series) = spec.series.get(series) {
                for (key, value) in &series.get_ref().set {
                    put(&mut table, key, value.clone())?;
                }
            }
            if let Some(x) = x {
                let at = x.values[place].get_ref();
                for (key, template) in &x.set {
                    put(&mut table, key, filled(template, at))?;
                }
                for (key, list) in &x.each {
                    put(&mut table, key, list.get_ref()[place].clone())?;
                }
            }
            for (key, list) in spec.series.get(series).into_iter().flat_map(|series| &series.get_ref().each) {
                put(&mut table, key, list.get_ref()[place].clone())?;
            }
            pick_jobs(&mut table)?;
            points.push(RawPoint { series, x: place, table });
        }
    }
    Ok(points)
}

/// A curve leaves out values that x has.
fn check_exceptions(spec: &FileSpec) -> Result<(), ConfigError> {
    let x: &[Spanned<Value>] = spec.x.as_ref().map_or(&[], |x| &x.get_ref().values);
    let known: Vec<&Value> = x.iter().map(Spanned::get_ref).collect();
    for value in spec.series.iter().flat_map(|series| &series.get_ref().except) {
        if !known.contains(&value.get_ref()) {
            let error = ConfigError::at(value, "not a value of x");
            let names: Vec<String> = known.iter().map(|value| notation(value)).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            return Err(error.help(did_you_mean_help(&notation(value.get_ref()), &names)));
        }
    }
    Ok(())
}

fn base_of(spec: &FileSpec) -> Result<Table, ConfigError> {
    let mut base = Table::new();
    let Some(drive) = &spec.drive else {
        let error = ConfigError::new("missing table [drive]");
        return Err(error.help("add [drive] with a line like profile = \"zn540\""));
    };
    base.insert("drive".to_owned(), Value::Table(drive.clone()));
    base.insert("run".to_owned(), Value::Table(spec.run.clone()));
    let mut jobs = Vec::with_capacity(spec.job.len());
    for job in &spec.job {
        if !job.get("name").is_some_and(Value::is_str) {
            let error = ConfigError::new("a [[job]] of this experiment has no name");
            return Err(error.help("add a line like name = \"readers\": metrics and settings refer to jobs by name"));
        }
        jobs.push(Value::Table(job.clone()));
    }
    base.insert("job".to_owned(), Value::Array(jobs));
    for (name, table) in [("store", &spec.store), ("volume", &spec.volume), ("elastic", &spec.elastic)] {
        if let Some(table) = table {
            base.insert(name.to_owned(), Value::Table(table.clone()));
        }
    }
    Ok(base)
}

/// The value itself for `"{}"`; any other text with `{}` replaced by its notation.
fn filled(template: &Value, at: &Value) -> Value {
    match template {
        Value::String(text) if text == "{}" => at.clone(),
        Value::String(text) => Value::String(text.replace("{}", &notation(at))),
        Value::Array(items) => Value::Array(items.iter().map(|item| filled(item, at)).collect()),
        Value::Table(table) => {
            Value::Table(table.iter().map(|(key, value)| (key.clone(), filled(value, at))).collect())
        }
        other => other.clone(),
    }
}

/// The notation of a value: texts without quotes.
pub(crate) fn notation(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Sets `drive.profile`, `drive.set.flash.erase`, `run.time`, `store.operations`, `volume.fill`,
/// `elastic.width_max`, `job.readers.zones`, `job.*.block_size`, `jobs` or `elastic`.
pub(crate) fn put(table: &mut Table, key: &Spanned<String>, value: Value) -> Result<(), ConfigError> {
    let path = key.get_ref().as_str();
    if path == JOBS {
        table.insert(JOBS.to_owned(), value);
        return Ok(());
    }
    if path == ELASTIC {
        if value != Value::Boolean(false) {
            let error = ConfigError::at(key, "\"elastic\" can only be false, which leaves the pool out");
            return Err(error.help("describe the pool in a table [elastic], and change it with elastic.KEY"));
        }
        table.remove(ELASTIC);
        return Ok(());
    }
    if let Some(profile_key) = path.strip_prefix(PROFILE_CHANGES) {
        let drive = table.get_mut("drive").and_then(Value::as_table_mut).expect("every point has a drive");
        let changes = drive.entry("set").or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(changes) = changes else {
            return Err(ConfigError::at(key, "\"set\" of [drive] is not a table"));
        };
        changes.insert(profile_key.to_owned(), value);
        return Ok(());
    }
    match path.split('.').collect::<Vec<_>>()[..] {
        [table_name @ ("drive" | "run"), name] => {
            let inner = table.get_mut(table_name).and_then(Value::as_table_mut).expect("every point has these");
            inner.insert(name.to_owned(), value);
            Ok(())
        }
        [table_name @ ("store" | "volume" | ELASTIC), name] => {
            let Some(inner) = table.get_mut(table_name).and_then(Value::as_table_mut) else {
                let error = ConfigError::at(key, format!("missing table [{table_name}]"));
                let line = match table_name {
                    "store" => "workload = \"kvbench-ii\"",
                    "volume" => "level = \"raid5\"",
                    _ => "width_max = 8",
                };
                return Err(error.help(format!("add [{table_name}] with a line like {line}")));
            };
            inner.insert(name.to_owned(), value);
            Ok(())
        }
        ["job", job, name] => put_in_jobs(table, key, job, name, &value),
        _ => {
            let error = ConfigError::at(key, format!("invalid key \"{path}\""));
            Err(error.help(
                "write drive.KEY, drive.set.KEY-OF-THE-PROFILE, run.KEY, store.KEY, volume.KEY, elastic.KEY, job.NAME.KEY or \
                 job.*.KEY, jobs for a list of the jobs that run, or elastic = false for a curve without the pool",
            ))
        }
    }
}

fn put_in_jobs(
    table: &mut Table,
    key: &Spanned<String>,
    job: &str,
    name: &str,
    value: &Value,
) -> Result<(), ConfigError> {
    let jobs = table.get_mut("job").and_then(Value::as_array_mut).expect("every point has a list of jobs");
    let mut names = Vec::new();
    let mut is_found = false;
    for candidate in jobs.iter_mut().filter_map(Value::as_table_mut) {
        let candidate_name = name_of(candidate);
        if job == "*" || candidate_name == job {
            candidate.insert(name.to_owned(), value.clone());
            is_found = true;
        }
        names.push(candidate_name);
    }
    if is_found {
        return Ok(());
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Err(ConfigError::at(key, format!("unknown job \"{job}\"")).help(did_you_mean_help(job, &names)))
}

fn name_of(job: &Table) -> String {
    job.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Keeps only the jobs that `jobs` names.
fn pick_jobs(table: &mut Table) -> Result<(), ConfigError> {
    let Some(picked) = table.remove(JOBS) else { return Ok(()) };
    let jobs = table.get_mut("job").and_then(Value::as_array_mut).expect("every point has a list of jobs");
    let by_name: BTreeMap<String, Value> =
        jobs.iter().filter_map(|job| Some((name_of(job.as_table()?), job.clone()))).collect();
    let names: Vec<&str> = by_name.keys().map(String::as_str).collect();
    let wanted = match picked {
        Value::Array(wanted) => wanted,
        one => vec![one],
    };
    let mut left = Vec::with_capacity(wanted.len());
    for name in &wanted {
        let name = notation(name);
        let Some(job) = by_name.get(&name) else {
            let error = ConfigError::new(format!("\"jobs\" names an unknown job \"{name}\""));
            return Err(error.help(did_you_mean_help(&name, &names)));
        };
        left.push(job.clone());
    }
    *jobs = left;
    Ok(())
}
