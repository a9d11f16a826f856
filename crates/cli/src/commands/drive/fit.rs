//! `zonda drive fit`: fits a profile to measurements of a real drive.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use zonda_characterise::{FIT_PARAMETERS, Report, fit_measurements};
use zonda_lab::fit::{FitPlan, FitReport, FittedMeasurement, FittedParameter, Progress as Tried, Task};

use crate::errors::{Failure, described};
use crate::output::{Screen, print, print_json};
use crate::parallel::in_parallel;
use crate::progress::Progress;
use crate::table::Table;
use crate::{files, units};

pub(super) const LONG_ABOUT: &str = "Fit parameters of a profile to measurements of a real drive.

The file names the parameters to fit, and lists each measurement with its workload. The workloads are run on the drive model \
with varying parameters until the model meets the measurements as closely as possible; --out stores the fitted profile. \
Start from the built-in profile that is most similar to the drive. docs/guide/fit-a-drive.md describes the file, and which \
measurement determines which parameter.

The same program and files give the same fit. The exit code is 0 even if some measurements are not met: the table marks them.";

pub(super) const EXAMPLES: &str = "Examples:
  zonda drive fit tiny --to examples/fit/measurements.toml
  zonda drive fit zn540 --to mine.toml --out my-drive.toml
  zonda drive fit zn540 --to report/report.json --out my-drive.toml
  zonda drive fit zn540 --to mine.toml --json | jq '.parameters[] | {key, after, uncertainty}'";

/// Relative uncertainty at or above which a parameter is undetermined.
const UNDETERMINED: f64 = 1.0;

#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    /// Initial profile: a built-in name, or the path of a .toml file
    #[arg(value_name = "PROFILE")]
    profile: String,
    /// File with the measurements, or a report.json of zonda probe; - for the standard input
    #[arg(long, value_name = "MEASUREMENTS")]
    to: String,
    /// Write the fitted profile to this file [default: do not write it]
    #[arg(long, value_name = "FILE.toml")]
    out: Option<PathBuf>,
    /// Number of runs in parallel [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = units::at_least_one::<NonZero<usize>>)]
    threads: Option<NonZero<usize>>,
    /// Stop after N tries [default: 20 for each parameter, plus one]
    #[arg(long, value_name = "N", value_parser = units::at_least_one::<NonZero<u32>>)]
    tries: Option<NonZero<u32>>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
    /// Do not show progress
    #[arg(long, short)]
    quiet: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Sheet<'a> {
    profile: &'a str,
    to: &'a str,
    #[serde(flatten)]
    report: &'a FitReport,
    /// The text of the fitted profile.
    fitted_profile: &'a str,
}

pub(super) fn run(args: &FitArgs) -> Result<(), Failure> {
    let found = files::PROFILES
        .find(&args.profile)
        .map_err(|error| Failure::input(error.message, error.help.unwrap_or_default()))?;
    found.parse().map_err(|error| Failure::in_experiment(&error, &args.profile, &found.text))?;
    let text = files::read_text(&args.to, files::EXAMPLES)?;
    let text = of_report(&text, &found.text, args)?.unwrap_or(text);
    let in_file =
        |error| Failure::in_file(&described(&error, "docs/guide/fit-a-drive.md"), files::shown(&args.to), &text);
    let plan = FitPlan::parse(&found.text, &text).map_err(in_file)?;
    let tries_max = tries(args, &plan)?;
    if let Some(out) = &args.out {
        is_free(out)?;
    }
    let mut bar = Progress::new(args.quiet);
    let mut run = |tasks: &[Task], tried: Tried| {
        bar.show(Some(f64::from(tried.tries) / f64::from(tried.tries_max)), || in_words(tried));
        in_parallel(tasks, args.threads, Task::measure, |_, _| {})
    };
    let report = plan.fit(tries_max, &mut run).map_err(in_file)?;
    bar.finish();
    let fitted = plan.fitted_text(&report, &file_name(&args.to));
    if let Some(out) = &args.out {
        write(out, &fitted)?;
    }
    if args.json {
        let (profile, to) = (args.profile.as_str(), args.to.as_str());
        return print_json(&Sheet { profile, to, report: &report, fitted_profile: &fitted });
    }
    let mut shown = text_of(&report, Screen::of_stdout());
    shown += &match &args.out {
        Some(out) => format!("\nWrote profile {} to {}.\n", plan.fitted_name(), out.display()),
        None => format!("\nThe fitted profile was not written; use --out {}.toml to write it.\n", plan.fitted_name()),
    };
    print(&shown)
}

/// The measurements in a report of `zonda probe`, with the parameters that the profile has; `None`
/// if the text is no report.
fn of_report(text: &str, profile: &str, args: &FitArgs) -> Result<Option<String>, Failure> {
    if !text.trim_start().starts_with('{') {
        return Ok(None);
    }
    let report = Report::parse(text).map_err(|error| {
        Failure::input(
            format!("{}: {error}", files::shown(&args.to)),
            "give a report.json of zonda probe DRIVE --out DIR, or a file of measurements",
        )
    })?;
    let (measurements, count) = fit_measurements(&report);
    let file = |keys: &[&str]| {
        let parameters: Vec<String> = keys.iter().map(|key| format!("{{ key = \"{key}\" }}")).collect();
        format!("[fit]\nseeds = 1\nparameters = [{}]\n{measurements}", parameters.join(", "))
    };
    let has = |key: &&str| FitPlan::parse(profile, &file(&[*key])).is_ok();
    let keys: Vec<&str> = FIT_PARAMETERS.into_iter().filter(has).take(count).collect();
    if keys.is_empty() {
        return Err(Failure::input(
            format!("{} has too few figures for a fit", files::shown(&args.to)),
            "measure with zonda probe DRIVE --destructive and a longer --budget; docs/guide/fit-a-drive.md names the parameters",
        ));
    }
    Ok(Some(file(&keys)))
}

/// Existing files are not overwritten; this is checked before the fit.
fn is_free(out: &Path) -> Result<(), Failure> {
    let shown = out.display();
    if out.extension().is_none_or(|extension| extension != "toml") {
        return Err(Failure::input(format!("{shown} is not a .toml file name"), "choose a name that ends in .toml"));
    }
    if out.exists() {
        return Err(Failure::input(
            format!("{shown} already exists"),
            "choose another name with --out, or remove the file",
        ));
    }
    match out.parent() {
        Some(directory) if !directory.as_os_str().is_empty() && !directory.is_dir() => {
            let message = format!("directory {} does not exist", directory.display());
            Err(Failure::input(message, "create it, or choose another name with --out"))
        }
        _ => Ok(()),
    }
}

fn tries(args: &FitArgs, plan: &FitPlan) -> Result<u32, Failure> {
    let Some(tries) = args.tries else { return Ok(plan.tries_default()) };
    let least = plan.tries_min();
    if tries.get() >= least {
        return Ok(tries.get());
    }
    let parameters = units::counted(plan.parameter_count() as u64, "parameter");
    Err(Failure::input(
        format!("--tries {tries} is too small for {parameters}"),
        format!("use {least} or more, or omit it for the default, {}", plan.tries_default()),
    ))
}

fn in_words(tried: Tried) -> String {
    let misfit = match (tried.misfit, tried.misfit_before) {
        (Some(misfit), Some(before)) => format!(": misfit {misfit:.2}, {before:.2} at the start"),
        _ => String::new(),
    };
    format!("try {} of at most {}{misfit}", tried.tries, tried.tries_max)
}

/// The name of a file in the sources of a profile.
fn file_name(path: &str) -> String {
    let path = files::shown(path);
    Path::new(path).file_name().map_or_else(|| path.to_owned(), |name| name.to_string_lossy().into_owned())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let directory = path.parent().unwrap_or(Path::new(""));
    let name = path.file_name().expect("a path with an extension has a name");
    files::write(directory, &name.to_string_lossy(), text)
}

fn text_of(report: &FitReport, screen: Screen) -> String {
    let mut text = format!("{}\n{}", screen.bold("Measurements"), measurements(&report.measurements, screen));
    text += &format!("\n{}\n{}", screen.bold("Parameters"), parameters(&report.parameters, screen));
    text.push('\n');
    let met = report.measurements.iter().filter(|measurement| measurement.met).count();
    text += &format!(
        "{met} of {} met. Misfit (root mean square of the errors in tolerances): {:.2}, {:.2} before. {} tries, {}.\n",
        units::counted(report.measurements.len() as u64, "measurement"),
        report.misfit_after,
        report.misfit_before,
        report.tries,
        units::counted(report.runs, "run"),
    );
    for warning in warnings(report) {
        text += &screen.paragraph(&format!("warning: {warning}"), 0);
    }
    text
}

fn measurements(all: &[FittedMeasurement], screen: Screen) -> String {
    let mut table =
        Table::new(&["measurement", "unit", ">measured", ">before", ">after", ">error", ">in tolerances", "met"]);
    for measurement in all {
        table.row(&[
            measurement.name.clone(),
            measurement.unit.clone(),
            units::significant(measurement.measured),
            units::significant(measurement.before),
            units::significant(measurement.after),
            format!("{:+.1}%", measurement.residual * 100.0),
            format!("{:+.1}", measurement.residual_in_tolerances),
            if measurement.met { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    table.render(screen, 2)
}

fn parameters(all: &[FittedParameter], screen: Screen) -> String {
    let mut table = Table::new(&["parameter", ">before", ">after", ">+-", "range", "effect of +1%"]);
    for parameter in all {
        let effects = parameter.moves.iter().map(|effect| format!("{} {:+.2}%", effect.measurement, effect.elasticity));
        table.row(&[
            parameter.key.clone(),
            parameter.before.clone(),
            parameter.after.clone(),
            match parameter.uncertainty {
                Some(uncertainty) if uncertainty < UNDETERMINED => units::percent(uncertainty),
                _ => "?".to_owned(),
            },
            format!(
                "{} to {}{}",
                parameter.low,
                parameter.high,
                parameter.at_edge.map_or_else(String::new, |edge| format!(" (at its {edge} end)"))
            ),
            if parameter.is_idle { "nothing".to_owned() } else { effects.collect::<Vec<_>>().join("\n") },
        ]);
    }
    table.render(screen, 2)
}

/// Reasons not to trust the fit.
fn warnings(report: &FitReport) -> Vec<String> {
    let mut warnings = Vec::new();
    if report.is_cut_short {
        warnings.push("the search was stopped before it converged: allow more tries with --tries".to_owned());
    }
    for parameter in &report.parameters {
        let key = &parameter.key;
        if parameter.is_idle {
            warnings.push(format!(
                "no measurement depends on {key}; it was not changed. Add a measurement that it limits, or remove it"
            ));
        } else if let Some(edge) = parameter.at_edge {
            warnings.push(format!(
                "{key} is at the {edge} end of its range: widen the range, or look for another explanation of the measurements"
            ));
        } else if parameter.uncertainty.is_none_or(|uncertainty| uncertainty >= UNDETERMINED)
            && !report.alike.iter().any(|pair| pair.keys.contains(key))
        {
            warnings.push(format!(
                "the measurements do not determine {key}: other parameters compensate for any change of it"
            ));
        }
    }
    for pair in &report.alike {
        let [one, other] = &pair.keys;
        let how = if pair.is_opposite { "lowering" } else { "raising" };
        warnings.push(format!(
            "{one} and {other} cannot be distinguished: for these measurements, raising one has the same effect as {how} the \
             other. Fit only one of them, or add a measurement in which they differ"
        ));
    }
    for measurement in &report.measurements {
        if !measurement.is_steady {
            warnings
                .push(format!("\"{}\" did not reach a steady state: increase the time of its run", measurement.name));
        }
        if measurement.errors > 0 {
            let errors = units::counted(measurement.errors, "command");
            warnings.push(format!("{errors} failed in the runs of \"{}\" on the model", measurement.name));
        }
    }
    warnings
}
