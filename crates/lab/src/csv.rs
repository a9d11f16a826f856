//! Measurements as a table: a line for each point, metric and seed.

use crate::{LabExperiment, Outcome};

/// The head of the table.
const HEAD: &str = "series,x,metric,unit,seed,value,warm_up_ns,time_ns,steady\n";

/// All measurements as comma-separated values (RFC 4180).
#[must_use]
pub fn csv(experiment: &LabExperiment, outcome: &Outcome) -> String {
    let mut table = HEAD.to_owned();
    for (point, measured) in experiment.points.iter().zip(&outcome.measurements) {
        let series = field(&experiment.series[point.series]);
        let x = experiment.x.as_ref().map_or_else(String::new, |x| field(&x.labels[point.x]));
        for (metric, values) in experiment.metrics.iter().zip(&measured.values) {
            for (seed, value) in values.iter().flatten().enumerate() {
                table += &format!(
                    "{series},{x},{},{},{},{value},{},{},{}\n",
                    field(&metric.name),
                    field(&metric.unit),
                    point.first_seed().wrapping_add(seed as u64),
                    measured.warm_up_ns,
                    measured.time_ns,
                    measured.is_steady,
                );
            }
        }
    }
    table
}

fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
