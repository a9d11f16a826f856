//! A real drive beside its model: the report that a data set of the drive gives.
//!
//! The figures are those of the data set of Doekemeijer et al., "Exploring I/O Management Performance
//! in ZNS with ConfZNS++" (SYSTOR 2024): a WD ZN540 of 904 zones, fio with io_uring passthrough, 8 KiB,
//! ten minutes for each point. `measured/zn540.json` is written by the test below.

use zonda_profiler::DriveIdentity;
use zonda_ssd::profile::Profile;
use zonda_zoned::Duration;

use crate::limits::{MATRIX_APPEND_DEPTHS, MATRIX_READ_DEPTHS, MATRIX_SIZE_BYTES, MATRIX_WRITERS, READ_ZONES_MAX};
use crate::{Characterisation, Conditions, DriveLimits, Figures, Finding, Kind, Load, Part, Report};

/// kIOPS, mean and p99 in microseconds (0 if the data set has none), and what ran beside, in a
/// second.
type Point = (f64, f64, f64, f64);

const READ_ALONE: [f64; 4] = [11.3, 42.6, 138.7, 280.3];
const WRITE_ALONE: [f64; 4] = [68.1, 149.8, 150.2, 149.9];
const APPEND_ALONE: [f64; 3] = [56.5, 150.0, 150.0];
const RESETS_ALONE: f64 = 61.0;
const FINISHES_ALONE: f64 = 1.09;
const READ_BESIDE_FINISH: [Point; 4] = [
    (4.50, 221.2, 444.4, 1.07),
    (18.52, 215.2, 481.3, 1.01),
    (68.08, 234.2, 684.0, 0.78),
    (145.94, 437.9, 1826.8, 0.49),
];
const READ_BESIDE_RESET: [Point; 4] =
    [(10.62, 0.0, 0.0, 62.74), (38.76, 0.0, 0.0, 62.17), (120.79, 0.0, 0.0, 59.50), (234.24, 0.0, 0.0, 62.72)];
const WRITE_BESIDE_FINISH: [Point; 4] =
    [(59.50, 16.1, 20.6, 0.63), (113.11, 25.7, 140.3, 0.27), (126.40, 38.6, 207.9, 0.17), (131.45, 52.4, 261.1, 0.14)];
const WRITE_BESIDE_RESET: [Point; 4] =
    [(52.38, 18.4, 18.0, 48.51), (73.91, 39.8, 59.6, 43.91), (73.62, 67.1, 156.7, 44.08), (73.97, 93.8, 354.3, 44.41)];
const APPEND_BESIDE_FINISH: [Point; 3] =
    [(53.41, 18.1, 23.4, 0.68), (77.66, 51.0, 708.6, 0.53), (77.43, 89.5, 1089.5, 0.53)];
const APPEND_BESIDE_RESET: [Point; 3] =
    [(53.86, 18.0, 20.6, 52.83), (57.45, 69.0, 140.3, 53.21), (57.43, 122.4, 864.3, 53.16)];

fn figures(per_second: f64, size_bytes: u64, mean_us: f64, p99_us: f64) -> Figures {
    let mean_ns = if mean_us > 0.0 { mean_us * 1000.0 } else { 0.0 };
    Figures {
        operations: (per_second * 600.0) as u64,
        per_second,
        bytes_per_second: per_second * size_bytes as f64,
        mean_ns: mean_ns as u64,
        p50_ns: 0,
        p99_ns: (p99_us * 1000.0) as u64,
        max_ns: 0,
        uncertainty: 0.02,
    }
}

fn findings() -> Vec<Finding> {
    let of = |load: Load, beside, figures| Finding::new(Part::Interference, load, beside, Ok(figures));
    let (finish, reset) = (Load::of_management(Kind::Finish, 0), Load::of_management(Kind::Reset, 100));
    let mut findings = vec![
        of(finish, None, figures(FINISHES_ALONE, 0, 0.0, 0.0)),
        of(reset, None, figures(RESETS_ALONE, 0, 0.0, 0.0)),
    ];
    let size = MATRIX_SIZE_BYTES;
    let reads = MATRIX_READ_DEPTHS.map(|depth| Load::of_data(Kind::Read, size, depth, READ_ZONES_MAX as u32));
    let writes = MATRIX_WRITERS.map(|writers| Load::of_data(Kind::Write, size, writers, writers));
    let appends = MATRIX_APPEND_DEPTHS.map(|depth| Load::of_data(Kind::Append, size, depth, 1));
    let mut add = |loads: &[Load], alone: &[f64], beside_finish: &[Point], beside_reset: &[Point]| {
        for (place, load) in loads.iter().enumerate() {
            findings.push(of(*load, None, figures(alone[place] * 1000.0, size, 0.0, 0.0)));
            for (other, point) in [(finish, beside_finish[place]), (reset, beside_reset[place])] {
                let (kiops, mean_us, p99_us, others) = point;
                findings.push(of(*load, Some(other), figures(kiops * 1000.0, size, mean_us, p99_us)));
                findings.push(of(other, Some(*load), figures(others, 0, 0.0, 0.0)));
            }
        }
    };
    add(&reads, &READ_ALONE, &READ_BESIDE_FINISH, &READ_BESIDE_RESET);
    add(&writes, &WRITE_ALONE, &WRITE_BESIDE_FINISH, &WRITE_BESIDE_RESET);
    add(&appends, &APPEND_ALONE, &APPEND_BESIDE_FINISH, &APPEND_BESIDE_RESET);
    findings
}

fn real_drive() -> Report {
    let profile = Profile::parse(zonda_profiles::builtin_text("zn540").expect("built in")).expect("valid");
    // The model has the zones of a larger drive of the series.
    let geometry = zonda_zoned::Geometry { zone_count: 904, ..profile.geometry() };
    let conditions = Conditions {
        target: "WD ZN540 (ConfZNS++ data set)".to_owned(),
        is_virtual: false,
        is_destructive: true,
        budget_ns: Duration::from_secs(600).0,
        seed: 0,
        made_at_unix_s: None,
        is_page_cached: false,
    };
    let measured = Characterisation {
        findings: findings(),
        groups: None,
        parts: Vec::new(),
        elapsed: Duration::from_secs(600),
        is_interrupted: false,
    };
    Report::new(DriveIdentity::new("WD ZN540", &geometry), DriveLimits::of(&geometry), conditions, measured)
}

#[test]
fn the_stored_report_of_the_real_drive_has_the_figures_of_the_data_set() {
    let expected = real_drive();
    let text = include_str!("../measured/zn540.json");
    if std::env::var_os("ZONDA_UPDATE_GOLDEN").is_some() {
        println!("{}", expected.to_json());
    }
    // The debug output of a report is very long.
    assert!(Report::parse(text) == Ok(expected), "ZONDA_UPDATE_GOLDEN=1 prints the report");
}

/// What an operation keeps beside another, of the model and of the drive.
#[test]
fn the_model_keeps_what_the_real_drive_keeps() {
    let real = real_drive();
    let profile = Profile::parse(zonda_profiles::builtin_text("zn540").expect("built in")).expect("valid");
    let geometry = profile.geometry();
    let mut subject = crate::ModelSubject::new(profile, true, 1);
    // The time that other parts leave of a minute.
    let options = crate::Options { budget: Duration::from_secs(45), seed: 1 };
    let parts = [Part::Interference];
    let measured =
        crate::characterise::characterise_parts(&mut subject, &options, &parts, &mut |_| crate::Control::Continue);
    let conditions = Conditions { target: "model:zn540".to_owned(), is_virtual: true, ..real.conditions.clone() };
    let measured = measured.expect("the model reports its zones");
    let model = Report::new(real.drive.clone(), DriveLimits::of(&geometry), conditions, measured);
    let (mut pairs, mut close) = (0, 0);
    for finding in real.findings.iter().filter(|finding| !finding.load.kind.is_management()) {
        let Some(beside) = finding.beside else { continue };
        let pair = model.pair(&finding.load, &beside).unwrap_or_else(|| panic!("{:?} is not measured", finding.load));
        let (Some((drive, _)), Some((ours, _))) = (real.relative(finding), model.relative(pair)) else {
            panic!("{} beside {} has no figures: {pair:?}", finding.load.words(), beside.words());
        };
        println!("{} beside {}: {drive:.2}, model {ours:.2}", finding.load.words(), beside.kind.plural());
        pairs += 1;
        close += u32::from((ours / drive - 1.0).abs() <= 0.25);
    }
    assert_eq!(pairs, 22);
    assert!(close >= 21, "{close} of {pairs} pairs are within 25%");
}
