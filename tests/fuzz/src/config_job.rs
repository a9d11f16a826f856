//! Job files, experiments and profiles: any text is parsed or refused with an error whose position
//! lies in the text.
//!
//! ```text
//! 0 kind: 0 jobs, 1 an experiment, 2 a profile, 3 an experiment whose profile is in a file   1.. text
//! ```

use zonda_config::ConfigError;
use zonda_profiles::{BUILTIN, builtin_names, builtin_text};
use zonda_ssd::profile::Profile;
use zonda_stack::{ErrorSource, Experiment, Profiles};
use zonda_workload::{Plan, parse_jobs};

use crate::feed::Feed;
use crate::{Seed, shapes};

const EXPERIMENT_OF_A_FILE: &str = "[drive]\nprofile = \"./p.toml\"\n[[job]]\noperation = \"append\"\n";

pub(crate) fn run(input: &[u8]) {
    let mut feed = Feed::new(input);
    let kind = feed.below(4);
    let Ok(text) = std::str::from_utf8(feed.rest()) else { return };
    match kind {
        0 => jobs(text),
        1 => experiment(text, &Profiles::without_files(BUILTIN)),
        2 => {
            if let Err(error) = Profile::parse(text) {
                check_error(&error, text);
            }
        }
        _ => experiment(EXPERIMENT_OF_A_FILE, &Profiles::new(BUILTIN, &|_| Ok(text.to_owned()))),
    }
}

fn jobs(text: &str) {
    match parse_jobs(text) {
        Err(error) => check_error(&error, text),
        Ok((run, jobs)) => {
            for geometry in shapes::all() {
                match Plan::new(&run, &jobs, &geometry) {
                    Err(error) => check_error(&error, text),
                    Ok(plan) => {
                        let zones = plan.zones_used();
                        assert!(zones.iter().all(|zone| zone.0 < geometry.zone_count), "zones of the drive");
                        let _ = (plan.prefill(), plan.verifies(), plan.time(), plan.job_names().count());
                    }
                }
            }
        }
    }
}

fn experiment(text: &str, profiles: &Profiles<'_>) {
    if let Err(error) = Experiment::parse(text, profiles) {
        match &error.source {
            ErrorSource::JobFile => check_error(&error.error, text),
            ErrorSource::Profile { text, .. } => check_error(&error.error, text),
        }
    }
}

/// Checks that an error has a message and a valid position.
pub(crate) fn check_error(error: &ConfigError, text: &str) {
    assert!(!error.message.is_empty() && error.message.len() < 8 * text.len() + 4096, "{} bytes", error.message.len());
    if let Some(span) = &error.span {
        assert!(text.get(span.clone()).is_some(), "{span:?} of a text of {} bytes: {}", text.len(), error.message);
    }
}

pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let mut add = |name: &str, kind: u8, text: &str| seeds.push((name.to_owned(), [&[kind], text.as_bytes()].concat()));
    add("job", 0, "[[job]]\noperation = \"append\"\nzones = \"0..4\"\nblock_size = \"16 KiB\"\n");
    add(
        "jobs",
        0,
        "[run]\nseed = 3\nramp = \"1 ms\"\ntime = \"1 s\"\nsample = \"10 ms\"\nverify = true\n\n[[job]]\nname = \"a\"\n\
         operation = \"randread\"\nzones = [1, 3]\nqueue_depth = 4\nprefill = true\n\n[[job]]\noperation = \"mix\"\n\
         mix = { read = 3, write = 1 }\nrate = \"100 MiB/s\"\non_full = \"reset\"\n",
    );
    add("bad-key", 0, "[[job]]\noperaton = \"read\"\n");
    add(
        "experiment",
        1,
        "[drive]\nprofile = \"tiny\"\nset = { \"write_buffer.capacity\" = \"2 MiB\" }\n\n[[drive.layer]]\nkind = \"delay\"\n\
         fixed = \"10 us\"\n\n[[drive.layer]]\nkind = \"slice\"\nzones = \"0..8\"\n\n[[job]]\noperation = \"append\"\n\
         zones = \"0..2\"\nblock_size = \"16 KiB\"\n",
    );
    for name in builtin_names() {
        let text = builtin_text(name).expect("a built-in profile");
        // Comments and sources are most of a profile, and irrelevant to a parser.
        let short: Vec<&str> = text.lines().map(|line| line.split(" #").next().unwrap_or(line)).collect();
        let short: Vec<&str> = short.into_iter().filter(|line| !line.starts_with('#')).collect();
        let short = short.join("\n");
        add(&format!("profile-{name}"), 2, &short);
        if name == "tiny" {
            add("profile-in-a-file", 3, &short);
        }
    }
    seeds
}
