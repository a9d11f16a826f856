//! Runs the checks one after the other, and summarizes the results.

use zonda_zoned::Geometry;

use crate::TestBackend;
use crate::checks::{self, Check};
use crate::rig::{Rig, Stop};
use crate::{random, shapes};

/// Random geometries, besides those of the checks.
const RANDOM_GEOMETRIES: usize = 24;

/// The results of all checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Checks that a device passed.
    pub passed: usize,
    /// Checks that the backend does not support.
    pub skipped: usize,
    /// The failures, by check.
    pub failures: Vec<String>,
}

/// Makes a device of a geometry; `None` if the backend does not support it.
type Make<'a> = &'a mut dyn FnMut(&Geometry) -> Option<Box<dyn TestBackend>>;

/// Runs all checks on new devices from `make`, which returns `None` if the backend does not support
/// the geometry. Prints a line for each check to standard output.
///
/// # Panics
/// If a check has failed, after all have been run, with all failures.
pub fn conformance(name: &str, make: Make<'_>) -> Summary {
    let geometries = random::geometries().take(RANDOM_GEOMETRIES);
    run_all(name, checks::all(), geometries, make)
}

/// Runs the checks of namespaces without sequential zones on new devices from `make`: for devices
/// that have conventional zones only, such as redundant volumes. Rules of write pointers, states,
/// resources, appends and ZRWAs do not apply to them. Otherwise as [`conformance`], which includes
/// these checks.
///
/// # Panics
/// As [`conformance`].
pub fn conformance_of_conventional(name: &str, make: Make<'_>) -> Summary {
    let mut checks = checks::all();
    checks.retain(|check| check.shape.has_only_conventional_zones());
    let geometries = random::conventional_geometries().take(RANDOM_GEOMETRIES / 2);
    run_all(name, checks, geometries, make)
}

/// Runs the checks that suit a drive with this geometry, which the backend cannot choose: limits of 3
/// active and 2 open zones and a gap behind the capacity; or no limits; or 3 conventional zones with
/// these limits or none. `make` opens the drive, all of whose zones must be empty, and conventional ones zeros.
///
/// # Panics
/// As [`conformance`].
pub fn conformance_of_drive(
    name: &str,
    geometry: &Geometry,
    make: &mut dyn FnMut() -> Box<dyn TestBackend>,
) -> Summary {
    let mut summary = Summary::default();
    for check in checks::all().iter().filter(|check| check.shape.is_of(geometry)) {
        let result = (check.body)(&mut Rig::new(make(), geometry.clone()));
        summary.add(name, check, result);
    }
    summary.report(name);
    summary
}

fn run_all(name: &str, checks: Vec<Check>, geometries: impl Iterator<Item = Geometry>, make: Make<'_>) -> Summary {
    let mut summary = Summary::default();
    for check in checks {
        let result = run(&check, make);
        summary.add(name, &check, result);
    }
    random_geometries(name, geometries, make, &mut summary);
    summary.report(name);
    summary
}

impl Summary {
    /// Counts and prints the result of a check.
    fn add(&mut self, name: &str, check: &Check, result: Result<(), Stop>) {
        let sentence = check.sentence.replace('_', " ");
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("{name}: {sentence} ... ok");
            }
            Err(Stop::Skipped(why)) => {
                self.skipped += 1;
                println!("{name}: {sentence} ... skipped: {why}");
            }
            Err(Stop::Failed(why)) => {
                println!("{name}: {sentence} ... FAILED: {why}");
                self.failures.push(format!("{sentence}: {why}"));
            }
        }
    }

    /// Prints the numbers, and panics with the failures if there are any.
    fn report(&self, name: &str) {
        let Summary { passed, skipped, failures } = self;
        println!("{name}: {passed} passed, {skipped} skipped, {} failed", failures.len());
        assert!(failures.is_empty(), "{name} does not conform:\n{}", failures.join("\n"));
    }
}

/// Random commands on random geometries, at both depths.
fn random_geometries(name: &str, geometries: impl Iterator<Item = Geometry>, make: Make<'_>, summary: &mut Summary) {
    let (mut passed, mut skipped) = (0, 0);
    for (number, geometry) in geometries.enumerate() {
        let depth = if number % 2 == 0 { 1 } else { 16 };
        let Some(backend) = make(&geometry) else {
            skipped += 1;
            continue;
        };
        match random::run(&mut Rig::new(backend, geometry.clone()), depth) {
            Ok(()) => passed += 1,
            Err(Stop::Skipped(_)) => skipped += 1,
            Err(Stop::Failed(why)) => summary.failures.push(format!("random commands, {geometry:?}: {why}")),
        }
    }
    println!("{name}: random commands on random geometries ... {passed} ok, {skipped} not supported by the backend");
    summary.passed += passed;
    summary.skipped += skipped;
}

/// One check on the first geometry that the backend supports.
fn run(check: &Check, make: Make<'_>) -> Result<(), Stop> {
    for geometry in shapes::of(check.shape) {
        if let Some(backend) = make(&geometry) {
            return (check.body)(&mut Rig::new(backend, geometry));
        }
    }
    Err(Stop::Skipped("the backend does not support such a geometry".to_owned()))
}
