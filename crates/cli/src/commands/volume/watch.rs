//! Progress of a rebuild or scrub until it completes.

use std::path::Path;
use std::time::{Duration, Instant};

use zonda_devices::{VolumeReport, VolumeState};

use super::reach::Reached;
use super::show;
use crate::errors::Failure;
use crate::progress::Progress;
use crate::units;

/// Polling interval.
const INTERVAL: Duration = Duration::from_millis(200);

/// Waits until no rebuild or scrub is in progress, and returns the state of the volume.
pub(super) fn until_idle(reached: &mut Reached, directory: &Path, quiet: bool) -> Result<VolumeReport, Failure> {
    let mut progress = Progress::new(quiet);
    let began = Instant::now();
    // Progress from before this call does not count for the speed.
    let mut first = None;
    loop {
        let report = reached.wait(INTERVAL)?;
        let Some((what, part)) = in_progress(&report) else {
            progress.finish();
            return Ok(report);
        };
        let share = f64::from(part.done) / f64::from(part.all.max(1));
        let (from, at) = *first.get_or_insert((share, began.elapsed()));
        let left = (share > from).then(|| {
            let speed = (share - from) / (began.elapsed() - at).as_secs_f64();
            let left_ns = ((1.0 - share) / speed * 1e9) as u64;
            format!(", {} left", units::time(left_ns))
        });
        progress.show(Some(share), || {
            let rest = match show::lacking_space(&report, directory) {
                Some(members) => format!("; no space left for {members}: free space there"),
                None => left.unwrap_or_default(),
            };
            format!("{what}: {} of {} segments{rest}", part.done, part.all)
        });
    }
}

fn in_progress(report: &VolumeReport) -> Option<(&'static str, zonda_devices::Progress)> {
    let is_joining = report.members.iter().any(|member| matches!(member.state.as_str(), "joining" | "returning"));
    match (report.rebuild, report.scrub) {
        (Some(rebuild), _) => Some(("rebuild", rebuild)),
        (None, _) if is_joining || is_rebuilding(report) => Some(("rebuild", zonda_devices::Progress::default())),
        (None, Some(scrub)) => Some(("scrub", scrub)),
        (None, None) => None,
    }
}

/// A volume that has lost data may be rebuilding at the same time.
fn is_rebuilding(report: &VolumeReport) -> bool {
    let is_stopped = matches!(report.state, VolumeState::Lost | VolumeState::TakenOver | VolumeState::Suspended);
    report.state == VolumeState::Rebuilding
        || !is_stopped && report.members.iter().any(|member| member.state == "rebuilding")
}
