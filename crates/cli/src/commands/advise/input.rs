//! The input of the advice: a drive and a workload.

use std::fs::File;
use std::io::{self, Read};

use zonda_advise::Base;
use zonda_workload::filetrace::Trace;

use crate::errors::Failure;
use crate::files;

/// Maximum size of a trace: about ten million operations.
const TRACE_BYTES_MAX: u64 = 256 << 20;

/// The profile with this name, or at this path.
pub(super) fn base(name: &str) -> Result<Base, Failure> {
    let found =
        files::PROFILES.find(name).map_err(|error| Failure::input(error.message, error.help.unwrap_or_default()))?;
    Base::new(&found).map_err(|error| Failure::in_experiment(&error, name, &found.text))
}

/// The text of a trace.
pub(super) fn trace_text(path: &str) -> Result<String, Failure> {
    let text = if path == "-" { text_of(io::stdin().lock()) } else { File::open(path).and_then(text_of) };
    let text = text.map_err(|error| {
        let message = format!("cannot read trace {}: {error}", files::shown(path));
        Failure::input(message, "check the path; docs/guide/file-traces.md describes the format of a trace")
    })?;
    if text.len() as u64 > TRACE_BYTES_MAX {
        let message = format!("trace {} is larger than {} MiB", files::shown(path), TRACE_BYTES_MAX >> 20);
        return Err(Failure::input(message, "use a part of the trace"));
    }
    Ok(text)
}

/// Reads at most one byte more than the limit, to detect a trace that is too large.
fn text_of(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(TRACE_BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Parses a trace.
pub(super) fn trace<'a>(path: &str, text: &'a str) -> Result<Trace<'a>, Failure> {
    Trace::parse(text).map_err(|error| Failure::in_file(&error, files::shown(path), text))
}
