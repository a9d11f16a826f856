//! The HTML report of a benchmark run: one page that stands alone. It has no scripts and asks for nothing from
//! elsewhere; the same result gives the same page.

use zonda_stack::ExperimentResult;
use zonda_workload::{JobResult, RequestKind};

mod axis;
mod chart;
mod drive;
mod jobs;
mod look;
mod plots;
mod series;
#[cfg(test)]
mod tests;
mod text;
mod zone_map;

use text::{bytes, count, counted, duration, escape, list, mebibytes, number, rate};

/// Jobs that the first sentence names.
const JOBS_NAMED_MAX: usize = 8;

/// The report of `result`, which the job file `job_toml` made, as one self-contained HTML page.
#[must_use]
pub(crate) fn html(job_toml: &str, result: &ExperimentResult) -> String {
    let title = escape(&result.drive.title);
    let names: Vec<String> = named(&result.run.jobs, |job| escape(&job.name));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"zonda {version}\">\n\
         <title>{names} on {title}</title>\n<style>\n{css}</style>\n</head>\n<body>\n<main>\n{header}\
         <section aria-labelledby=\"figures\">\n<h2 id=\"figures\">Key figures</h2>\n{cards}</section>\n\
         <section aria-labelledby=\"jobs\">\n<h2 id=\"jobs\">Jobs</h2>\n{jobs}</section>\n\
         <section aria-labelledby=\"time\">\n<h2 id=\"time\">Throughput and latency</h2>\n{plots}</section>\n\
         <section aria-labelledby=\"zones\">\n<h2 id=\"zones\">Zones at the end</h2>\n{zones}</section>\n\
         <section aria-labelledby=\"drive\">\n<h2 id=\"drive\">Drive</h2>\n{drive}</section>\n\
         <section aria-labelledby=\"file\">\n<h2 id=\"file\">Job file</h2>\n<pre tabindex=\"0\" \
         aria-label=\"Job file\"><code>{file}</code></pre>\n</section>\n\
         </main>\n<footer>Made by zonda {version}, result format {format}. \
         The same program, profile, job file and seed give the same figures.</footer>\n</body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
        names = list(&names),
        css = include_str!("page.css"),
        header = header(result),
        cards = cards(result),
        jobs = jobs::table(&result.run.jobs),
        plots = plots::section(&result.run),
        zones = zone_map::section(&result.drive),
        drive = drive::section(result),
        file = escape(job_toml),
        format = result.format,
    )
}

fn header(result: &ExperimentResult) -> String {
    let run = &result.run;
    let jobs = named(&run.jobs, |job| format!("<strong>{}</strong> ({})", escape(&job.name), escape(job.operation)));
    let ramp = match run.ramp_ns {
        0 => String::new(),
        ramp_ns => format!(" The first {} are a ramp that is in no figure.", duration(ramp_ns)),
    };
    let elapsed = duration(run.elapsed_ns);
    format!(
        "<header>\n<p class=\"kind\">zonda benchmark report</p>\n<h1>{}</h1>\n\
         <p class=\"lead\">{} ran for {elapsed} of virtual time on the profile {}: {}.{ramp}</p>\n\
         <dl class=\"facts\"><div><dt>Profile</dt><dd>{}</dd></div><div><dt>Seed</dt><dd>{}</dd></div>\
         <div><dt>Virtual time</dt><dd>{elapsed}</dd></div><div><dt>Last completion</dt><dd>{}</dd></div>\
         </dl>\n</header>\n",
        escape(&result.drive.title),
        counted(run.jobs.len() as u64, "job"),
        escape(&result.drive.profile),
        list(&jobs),
        escape(&result.drive.profile),
        run.seed,
        duration(run.drained_ns),
    )
}

/// The first jobs in words, and how many more there are.
fn named(jobs: &[JobResult], name: impl Fn(&JobResult) -> String) -> Vec<String> {
    let mut names: Vec<String> = jobs.iter().take(JOBS_NAMED_MAX).map(name).collect();
    match jobs.len().saturating_sub(JOBS_NAMED_MAX) {
        0 => {}
        more => names.push(format!("{} more", count(more as u64))),
    }
    names
}

/// The key figures. Rates are of all jobs together over the time from the end of the ramp to the end of the last job.
fn cards(result: &ExperimentResult) -> String {
    let (run, drive) = (&result.run, &result.drive);
    let measured_ns = run.elapsed_ns.saturating_sub(run.ramp_ns);
    let per_second = |total: u64| if measured_ns == 0 { 0.0 } else { total as f64 * 1e9 / measured_ns as f64 };
    let moved = |kinds: &[RequestKind]| -> u64 {
        run.jobs.iter().flat_map(|job| &job.kinds).filter(|of| kinds.contains(&of.kind)).map(|of| of.bytes).sum()
    };
    let (read, written) = (moved(&[RequestKind::Read]), moved(&[RequestKind::Write, RequestKind::Append]));
    let operations: u64 = run.jobs.iter().flat_map(|job| &job.kinds).map(|of| of.operations).sum();
    let errors: u64 = run.jobs.iter().map(JobResult::error_count).sum();
    let zones: u64 = drive.zones_by_state.iter().map(|of| u64::from(of.zones)).sum();
    let within = duration(measured_ns);
    let card = |name: &str, value: &str, unit: &str, note: &str| {
        format!("<div class=\"card\"><dt>{name}</dt><dd><b>{value}</b> {unit}<small>{note}</small></dd></div>\n")
    };
    let bandwidth = |name: &str, total: u64| {
        card(name, &mebibytes(per_second(total)), "MiB/s", &format!("{} in {within}", bytes(total)))
    };
    let of_errors = if errors == 0 { "no errors".to_owned() } else { format!("<em>{}</em>", counted(errors, "error")) };
    let iops = format!("{} in {within}, {of_errors}", counted(operations, "operation"));
    let device = format!("{} by the drive itself", bytes(drive.counters.device_write_bytes()));
    let worn = match drive.wear.erases_max {
        0 => counted(drive.wear.units, "erase unit"),
        most => format!("{}, at most {} of one", counted(drive.wear.units, "erase unit"), count(most.into())),
    };
    let states: String = drive
        .zones_by_state
        .iter()
        .map(|of| format!("<li><b>{}</b> {}</li>", count(of.zones.into()), escape(&of.state)))
        .collect();
    [
        "<dl class=\"cards\">\n".to_owned(),
        bandwidth("Read", read),
        bandwidth("Write", written),
        card("IOPS", &rate(per_second(operations)), "", &iops),
        card("DLWA", &number(drive.dlwa), "", &device),
        card("Erases", &count(drive.counters.erases), "", &worn),
        format!("<div class=\"card\"><dt>Zones</dt><dd><b>{}</b><ul>{states}</ul></dd></div>\n</dl>\n", count(zones)),
    ]
    .concat()
}
