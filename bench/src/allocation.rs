//! Time of a zone allocation of the model.
//!
//! Ten thousand zones are allocated, written and reset before, some zones far more often than
//! others ([`AllocationTrial`]); then single allocations in different states are timed, and the
//! median is reported, next to the published times of SilentZNS with a solver (Table 4), for the
//! same geometries of the same drive. Each figure includes the time of reading the clock twice,
//! which is reported, too.

use std::time::Instant;

use serde::Serialize;
use zonda_profiles::builtin_text;
use zonda_ssd::allocation::AllocationTrial;
use zonda_ssd::profile::Profile;
use zonda_zoned::Prng;

use crate::host::median;

/// Zones allocated and reset before the first is timed.
const CYCLES: u32 = 10_000;
/// Allocations timed.
const SAMPLES: usize = 4_001;

const KINDS: [&str; 6] = ["fixed", "superblock", "block", "hchunk-2", "vchunk-2", "vchunk-4"];

/// A drive with zones of one shape.
struct Shape {
    name: &'static str,
    profile: &'static str,
    /// Lines of the profile, and by what they are replaced.
    changes: Vec<(&'static str, String)>,
    /// LUNs that an allocation chooses from, and the minimum number that it uses, if not the
    /// default.
    luns: Option<(u32, u32)>,
    /// Microseconds of SilentZNS, Table 4, by [`KINDS`].
    published_us: [Option<f64>; 6],
}

/// One figure.
#[derive(Serialize)]
struct Figure {
    geometry: &'static str,
    allocation: &'static str,
    /// Absent if zones of this geometry cannot be built of such elements.
    median_ns: Option<f64>,
    elements: Option<u64>,
    elements_per_zone: Option<u32>,
    /// Memory of the tables of the model per element.
    table_bytes_per_element: Option<f64>,
    published_us: Option<f64>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report {
    clock_ns: f64,
    figures: Vec<Figure>,
}

/// Runs all cases and prints the results.
pub(crate) fn run_all(as_json: bool) {
    let clock_ns = median((0..SAMPLES).map(|_| timed_ns(|| {})).collect());
    let shapes = shapes();
    let cases = shapes.iter().flat_map(|shape| KINDS.iter().enumerate().map(move |(place, kind)| (shape, place, kind)));
    let figures = cases.map(|(shape, place, kind)| measure(shape, kind, shape.published_us[place])).collect();
    let report = Report { clock_ns, figures };
    if as_json {
        println!("{}", serde_json::to_string_pretty(&report).expect("figures are plain numbers"));
        return;
    }
    println!(
        "{:<32} {:<12} {:>12} {:>14} {:>10} {:>8} {:>11}",
        "one zone allocation", "elements of", "median (us)", "published (us)", "elements", "a zone", "B an element"
    );
    for figure in &report.figures {
        let number =
            |value: Option<f64>, digits: usize| value.map_or("N/A".to_owned(), |value| format!("{value:.digits$}"));
        println!(
            "{:<32} {:<12} {:>12} {:>14} {:>10} {:>8} {:>11}",
            figure.geometry,
            figure.allocation,
            number(figure.median_ns.map(|ns| ns / 1e3), 3),
            number(figure.published_us, 1),
            figure.elements.map_or("N/A".to_owned(), |elements| elements.to_string()),
            figure.elements_per_zone.map_or("N/A".to_owned(), |elements| elements.to_string()),
            number(figure.table_bytes_per_element, 2),
        );
    }
    println!("included in each figure, for reading the clock twice: {:.3} us", report.clock_ns / 1e3);
}

fn shapes() -> Vec<Shape> {
    let custom = |name, parallelism: u32, size_mib: u32, published_us| Shape {
        name,
        profile: "silent-custom",
        changes: vec![
            ("zone_size = \"256 MiB\"", format!("zone_size = \"{size_mib} MiB\"")),
            ("zone_capacity = \"256 MiB\"", format!("zone_capacity = \"{size_mib} MiB\"")),
            ("zones = 64", format!("zones = {}", (16 << 10) / size_mib)),
            ("parallelism = 16", format!("parallelism = {parallelism}")),
        ],
        luns: None,
        published_us,
    };
    let small = |name, parallelism: u32| Shape {
        name,
        profile: "ezns-small",
        changes: vec![("parallelism = 1\n", format!("parallelism = {parallelism}\n"))],
        luns: None,
        published_us: [None; 6],
    };
    let n = |us: f64| Some(us);
    vec![
        custom("P4 S32", 4, 32, [n(0.5), None, n(7991.0), None, n(6627.0), n(6283.0)]),
        custom("P4 S64", 4, 64, [n(0.6), None, n(8247.0), n(6649.0), n(6424.0), n(6026.0)]),
        custom("P8 S64", 8, 64, [n(0.7), None, n(7995.0), None, n(6658.0), n(6014.0)]),
        custom("P8 S128", 8, 128, [n(0.5), None, n(8475.0), n(7348.0), n(7183.0), n(6108.0)]),
        custom("P16 S128", 16, 128, [n(0.7), n(1660.0), n(9030.0), None, n(6975.0), n(6358.0)]),
        custom("P16 S256", 16, 256, [n(0.5), n(1710.0), n(9068.0), n(7403.0), n(7096.0), n(6936.0)]),
        Shape { luns: Some((16, 4)), ..custom("P8 S128, of 16 LUNs, 4 at least", 8, 128, [None; 6]) },
        small("40,704 zones, 128 LUNs, P1", 1),
        small("40,704 zones, 128 LUNs, P16", 16),
        Shape { luns: Some((128, 8)), ..small("40,704 zones, P16, of all LUNs", 16) },
    ]
}

fn measure(shape: &Shape, kind: &'static str, published_us: Option<f64>) -> Figure {
    let mut figure = Figure {
        geometry: shape.name,
        allocation: kind,
        median_ns: None,
        elements: None,
        elements_per_zone: None,
        table_bytes_per_element: None,
        published_us,
    };
    let mut text = builtin_text(shape.profile).expect("a built-in profile").to_owned();
    let allocation = [("allocation = \"fixed\"", format!("allocation = \"{kind}\""))];
    for (line, by) in shape.changes.iter().chain(&allocation) {
        assert!(text.contains(line), "{} has the line {line}", shape.profile);
        text = text.replace(line, by);
    }
    let Ok(mut profile) = Profile::parse(&text) else { return figure };
    if let Some((eligible, least)) = shape.luns {
        if kind == "fixed" {
            return figure;
        }
        (profile.zones.luns_eligible, profile.zones.luns_min) = (Some(eligible), Some(least));
    }
    let mut trial = AllocationTrial::new(&profile, CYCLES, Prng::new(1));
    let samples = (0..SAMPLES).map(|_| {
        let took_ns = timed_ns(|| trial.allocate_one());
        trial.release();
        took_ns
    });
    figure.median_ns = Some(median(samples.collect()));
    let facts = trial.facts();
    assert!(facts.relaxed_allocations == 0 || shape.luns.is_some(), "an even spread never sets its limits aside");
    figure.elements = Some(facts.elements);
    figure.elements_per_zone = Some(facts.elements_per_zone);
    figure.table_bytes_per_element = Some(trial.table_bytes() as f64 / facts.elements as f64);
    figure
}

fn timed_ns(work: impl FnOnce()) -> f64 {
    let before = Instant::now();
    work();
    before.elapsed().as_nanos() as f64
}
