//! Small charts, byte for byte. View a golden file in a browser before you rewrite it.
#![allow(clippy::disallowed_methods, reason = "golden files are read and written by this test alone")]

use std::fs;
use std::path::PathBuf;

use zonda_plot::{Axis, Chart, Form, LOOKS, Point, Reference, Series, text};

fn lines() -> Chart {
    let x = Axis::log2("request size", 4096.0, 16_384.0, |bytes| text::round_bytes(bytes as u64));
    let mut chart = Chart::new("lines", "Bandwidth of appends", x, Axis::linear("bandwidth (MiB/s)", 1000.0, 2));
    chart.description = "Appends reach 860 MiB/s at 16 KiB; 900 MiB/s were published.".to_owned();
    let points =
        [Point::new(4096.0, 276.0), Point::new(8192.0, 515.0).with_spread(470.0, 530.0), (16_384.0, 860.0).into()];
    chart.series.push(Series::new("append", LOOKS[1], Form::Line, points));
    chart.series.push(Series::new("append", LOOKS[1], Form::Published, [(8192.0, 500.0), (16_384.0, 900.0)]));
    chart.references.push(Reference::line(950.0, "limit of the link"));
    chart
}

fn bars() -> Chart {
    let x = Axis::names("", ["host", "padding of zones"]);
    let mut chart = Chart::new("bars", "Bytes programmed", x, Axis::linear("share (%)", 100.0, 2));
    chart.series.push(Series::new("large zones", LOOKS[0], Form::Bars, [(0.0, 80.0), (1.0, 20.0)]));
    chart.series.push(Series::new("small zones", LOOKS[1], Form::Bars, [(0.0, 95.0), (1.0, 5.0)]));
    chart.series.push(Series::new("small zones", LOOKS[1], Form::PublishedBars, [(0.0, 90.0)]));
    chart
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Holds a text against `tests/golden/NAME`, or writes it there if `ZONDA_UPDATE_GOLDEN` is set.
fn assert_golden(name: &str, text: &str) {
    if std::env::var_os("ZONDA_UPDATE_GOLDEN").is_some() {
        fs::write(file(name), text).expect("the golden file can be written");
    }
    let golden = fs::read_to_string(file(name)).unwrap_or_default();
    assert_eq!(text, golden, "{name} differs; ZONDA_UPDATE_GOLDEN=1 rewrites it");
}

#[test]
fn a_chart_of_lines_is_unchanged() {
    assert_golden("lines.svg", &lines().svg());
}

#[test]
fn a_chart_of_bars_is_unchanged() {
    assert_golden("bars.svg", &bars().svg());
}

/// Every tag of a document is closed in its order, which XML insists on.
#[test]
fn a_file_is_well_formed() {
    for chart in [lines(), bars()] {
        let svg = chart.svg();
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1).filter_map(|part| part.split('>').next()) {
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if tag.ends_with('/') => {}
                None => open.push(tag.split([' ', '\n']).next().unwrap()),
            }
        }
        assert!(open.is_empty(), "{open:?} are open");
    }
}
