//! Write amplification, bytes written and erases over time.

use zonda_plot::text::{counted, number};
use zonda_plot::{Axis, Chart, Form, LOOKS, Point, Series};
use zonda_stack::{DriveSample, ExperimentResult};

use super::plots::{self, highest};

/// The charts; empty if the host wrote nothing.
pub(super) fn section(result: &ExperimentResult) -> String {
    let samples = &result.drive_series;
    if samples.last().is_none_or(|last| last.host_write_bytes == 0) {
        return String::new();
    }
    let charts = [amplification(result), written(samples), erases(samples)];
    let figures: String = charts.iter().filter(|chart| !chart.is_empty()).map(Chart::figure).collect();
    format!("<h3>Write amplification and wear over time</h3>\n<div class=\"plots\">\n{figures}</div>\n")
}

fn amplification(result: &ExperimentResult) -> Chart {
    let samples = result.drive_series.iter().filter(|sample| sample.host_write_bytes > 0);
    let dlwa = curve("DLWA", 0, samples.map(|sample| (sample.at_ns, sample.dlwa)));
    let last = result.drive.dlwa;
    let description = format!("Device-level write amplification is {} at the end.", number(last));
    let mut curves = vec![dlwa];
    if let Some(store) = &result.store {
        let samples = store.samples.iter().map(|sample| (sample.at_ns, sample.space_amplification));
        curves.push(curve("space amplification", 1, samples));
    }
    over_time("amplification", "Amplification", "ratio", curves, description)
}

fn written(samples: &[DriveSample]) -> Chart {
    const GIB: f64 = (1u64 << 30) as f64;
    let host = samples.iter().map(|sample| (sample.at_ns, sample.host_write_bytes as f64 / GIB));
    let device = samples.iter().map(|sample| (sample.at_ns, sample.device_write_bytes as f64 / GIB));
    let curves = vec![curve("by the host", 0, host), curve("additionally by the drive", 1, device)];
    let end = samples.last().copied().unwrap_or_default();
    let description = format!(
        "At the end the host has written {} GiB, and the drive an additional {} GiB.",
        number(end.host_write_bytes as f64 / GIB),
        number(end.device_write_bytes as f64 / GIB),
    );
    over_time("written", "Bytes written so far", "written (GiB)", curves, description)
}

fn erases(samples: &[DriveSample]) -> Chart {
    let most = samples.last().map_or(0, |last| last.erases);
    let erases = samples.iter().map(|sample| (sample.at_ns, sample.erases as f64));
    let curves = if most == 0 { Vec::new() } else { vec![curve("erases", 2, erases)] };
    over_time("erases", "Wear so far", "erases of erase blocks", curves, format!("{}.", counted(most, "erase")))
}

/// A line through points whose times are in nanoseconds.
pub(super) fn curve(name: &str, look: usize, points: impl IntoIterator<Item = (u64, f64)>) -> Series {
    let points = points.into_iter().map(|(at_ns, value)| Point::new(at_ns as f64, value));
    Series::new(name, LOOKS[look], Form::LongLine, points)
}

/// A chart up to the last of the points.
pub(super) fn over_time(id: &str, title: &str, unit: &str, series: Vec<Series>, description: String) -> Chart {
    let end_ns = series.iter().flat_map(Series::points).map(|point| point.x).fold(0.0, f64::max);
    let y = Axis::linear(unit, highest(&series), 5);
    Chart { description, ..plots::over_time(id, title, series, y, end_ns) }
}
