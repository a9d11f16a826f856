//! Progress of a rebuild or a scrub, until it has ended.

use std::time::{Duration, Instant};

use zonda_devices::{VolumeReport, VolumeState};

use super::reach::Reached;
use crate::errors::Failure;
use crate::progress::Progress;
use crate::units;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(200);

/// Watches until nothing goes on any more, and says how the volume is then.
pub(super) fn until_at_rest(reached: &mut Reached, quiet: bool) -> Result<VolumeReport, Failure> {
    let mut progress = Progress::new(quiet);
    let began = Instant::now();
    // A part of the way that was behind it when this began says nothing about its speed.
    let mut first = None;
    loop {
        let report = reached.wait(INTERVAL)?;
        let Some((what, part)) = under_way(&report) else {
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
            format!("{what}: {} of {} segments{}", part.done, part.all, left.unwrap_or_default())
        });
    }
}

fn under_way(report: &VolumeReport) -> Option<(&'static str, zonda_devices::Progress)> {
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
    let waits = matches!(report.state, VolumeState::Lost | VolumeState::TakenOver | VolumeState::Suspended);
    report.state == VolumeState::Rebuilding
        || !waits && report.members.iter().any(|member| member.state == "rebuilding")
}
