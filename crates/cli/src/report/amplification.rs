//! What writes cost the drive as time went on: write amplification, bytes, erases.

use zonda_plot::text::{counted, number};
use zonda_plot::{Axis, Chart, Form, LOOKS, Point, Series, Size};
use zonda_stack::{DriveSample, ExperimentResult};

/// The charts; nothing where the host wrote nothing.
pub(super) fn section(result: &ExperimentResult) -> String {
    let samples = &result.drive_series;
    if samples.last().is_none_or(|last| last.host_write_bytes == 0) {
        return String::new();
    }
    let charts = [amplification(result), written(samples), erases(samples)];
    let figures: String = charts.iter().filter(|chart| !chart.is_empty()).map(Chart::figure).collect();
    format!("<h3>What writes cost over time</h3>\n<div class=\"plots\">\n{figures}</div>\n")
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
    let curves = vec![curve("by the host", 0, host), curve("by the drive of its own accord", 1, device)];
    let end = samples.last().copied().unwrap_or_default();
    let description = format!(
        "At the end the host has written {} GiB, and the drive {} GiB of its own accord.",
        number(end.host_write_bytes as f64 / GIB),
        number(end.device_write_bytes as f64 / GIB),
    );
    over_time("written", "Bytes written so far", "written (GiB)", curves, description)
}

fn erases(samples: &[DriveSample]) -> Chart {
    let most = samples.last().map_or(0, |last| last.erases);
    let erases = samples.iter().map(|sample| (sample.at_ns, sample.erases as f64));
    let curves = if most == 0 { Vec::new() } else { vec![curve("erases", 2, erases)] };
    over_time("erases", "Wear so far", "erases of erase units", curves, format!("{}.", counted(most, "erase")))
}

fn curve(name: &str, look: usize, points: impl Iterator<Item = (u64, f64)>) -> Series {
    Series::new(name, LOOKS[look], Form::LongLine, points.map(|(at_ns, value)| Point::new(at_ns as f64, value)))
}

/// A chart of what goes on over time, with the times of the points in nanoseconds.
pub(super) fn over_time(id: &str, title: &str, unit: &str, mut series: Vec<Series>, description: String) -> Chart {
    let end_ns = series.iter().flat_map(Series::points).map(|point| point.x).fold(0.0, f64::max);
    let (name, size) = super::plots::unit_of_time(end_ns);
    for point in series.iter_mut().flat_map(|curve| curve.pieces.iter_mut().flatten()) {
        point.x /= size;
    }
    let highest = series.iter().flat_map(Series::points).map(|point| point.y).fold(0.0, f64::max);
    let x = Axis::exact(format!("time since the start of the run ({name})"), end_ns / size, 6);
    Chart { series, description, size: Size::WIDE, ..Chart::new(id, title, x, Axis::linear(unit, highest, 5)) }
}
