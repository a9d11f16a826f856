//! The input of the advice: a drive and a workload.

use zonda_advise::Base;
use zonda_devices::TextError;
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
    files::read_up_to(path, TRACE_BYTES_MAX).map_err(|error| {
        let message = format!("cannot read trace {}: {error}", files::shown(path));
        let help = match error {
            TextError::TooLong(_) => "use a part of the trace",
            _ => "check the path; docs/guide/file-traces.md describes the format of a trace",
        };
        Failure::input(message, help)
    })
}

/// Parses a trace.
pub(super) fn trace<'a>(path: &str, text: &'a str) -> Result<Trace<'a>, Failure> {
    Trace::parse(text).map_err(|error| Failure::in_file(&error, files::shown(path), text))
}
