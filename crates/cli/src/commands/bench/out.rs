//! The files that `--out` writes.

use std::path::Path;

use zonda_stack::{ExperimentResult, LayerResult};
use zonda_workload::RunResult;
use zonda_workload::lsm::StoreResult;

use crate::errors::Failure;
use crate::results::{Subject, Zones};
use crate::{files, report};

/// Writes the report, and the results as JSON and CSV.
pub(super) fn write(directory: &Path, job_toml: &str, subject: Subject<'_>) -> Result<(), Failure> {
    let json = match subject {
        Subject::Simulated(result) => serde_json::to_string_pretty(result),
        Subject::Live(result) => serde_json::to_string_pretty(result),
    };
    let json = json.expect("results hold only text keys and finite numbers");
    files::write(directory, "job.toml", job_toml)?;
    files::write(directory, "result.json", &(json + "\n"))?;
    files::write(directory, "series.csv", &series_csv(subject.run()))?;
    files::write(directory, "zones.csv", &zones_csv(subject.zones()))?;
    if let Subject::Simulated(result) = subject {
        files::write(directory, "drive.csv", &drive_csv(result))?;
        if let Some(store) = &result.store {
            files::write(directory, "store.csv", &store_csv(store))?;
        }
    }
    let layers = match subject {
        Subject::Simulated(result) => result.layers.as_slice(),
        Subject::Live(_) => &[],
    };
    let traces = layers.iter().filter_map(|layer| match layer {
        LayerResult::Trace { events, .. } => Some(events),
        _ => None,
    });
    for (index, events) in traces.enumerate() {
        let name = if index == 0 { "trace.txt".to_owned() } else { format!("trace-{}.txt", index + 1) };
        files::write(directory, &name, &(events.join("\n") + "\n"))?;
    }
    files::write(directory, "report.html", &report::html(job_toml, subject))
}

/// A line for each job in each interval.
fn series_csv(run: &RunResult) -> String {
    let mut text = "start_ns,length_ns,job,operations,bytes,errors,mean_latency_ns,p99_latency_ns\n".to_owned();
    for sample in &run.series {
        for (job, figures) in run.jobs.iter().zip(&sample.jobs) {
            text += &format!(
                "{},{},{},{},{},{},{},{}\n",
                sample.start_ns,
                sample.length_ns,
                quoted(&job.name),
                figures.operations,
                figures.bytes,
                figures.errors,
                figures.mean_latency_ns,
                figures.p99_latency_ns
            );
        }
    }
    text
}

/// The counters of the drive over time.
fn drive_csv(result: &ExperimentResult) -> String {
    let mut text = "at_ns,host_write_bytes,device_write_bytes,padding_bytes,erases,dlwa\n".to_owned();
    for sample in &result.drive_series {
        text += &format!(
            "{},{},{},{},{},{}\n",
            sample.at_ns,
            sample.host_write_bytes,
            sample.device_write_bytes,
            sample.padding_bytes,
            sample.erases,
            sample.dlwa
        );
    }
    text
}

/// The figures of the store over time.
fn store_csv(store: &StoreResult) -> String {
    let mut text = "at_ns,operations,live_bytes,dead_bytes,space_amplification,zones_empty,zones_active,zone_finishes,\
                    zone_resets,migrated_bytes,host_write_bytes,host_read_bytes,level0_tables\n"
        .to_owned();
    for sample in &store.samples {
        text += &format!(
            "{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
            sample.at_ns,
            sample.operations,
            sample.live_bytes,
            sample.dead_bytes,
            sample.space_amplification,
            sample.zones_empty,
            sample.zones_active,
            sample.zone_finishes,
            sample.zone_resets,
            sample.migrated_bytes,
            sample.host_write_bytes,
            sample.host_read_bytes,
            sample.level0_tables
        );
    }
    text
}

/// A line for each zone.
fn zones_csv(zones: Zones<'_>) -> String {
    let mut text = "zone,state,written_blocks,written_bytes\n".to_owned();
    let block = u64::from(zones.block_size_bytes);
    for range in zones.ranges {
        for zone in range.first..range.first + range.count {
            let written = range.written_blocks;
            text += &format!("{zone},{},{written},{}\n", range.state, written * block);
        }
    }
    text
}

/// A field of a CSV file (RFC 4180), quoted if necessary.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_comma_or_a_quote_stays_one_field() {
        assert_eq!(["log", "a,b", "say \"x\""].map(quoted), ["log", "\"a,b\"", "\"say \"\"x\"\"\""]);
    }
}
