//! The log.

use std::io;
use std::path::Path;

use zonda_devices::{DriveError, Notice, PoolRequest, VolumeRequest};
use zonda_image::RecoveryReport;
use zonda_nbd::CloseReason;
use zonda_nvme::Nqn;
use zonda_profiler::Verdict;
use zonda_sched::TableReport;
use zonda_target::{CloseReason as TargetCloseReason, Event};
use zonda_zoned::{Geometry, Instant, NamespaceId};

use crate::log_limit::LogLimit;
use crate::nbd::End;

/// Logs an event of the target.
pub(crate) fn log(event: &Event, limit: &mut LogLimit, now: Instant) {
    match event {
        Event::HostConnected { .. } | Event::Authenticated { .. } | Event::ControllerRemoved { .. } => {
            tracing::info!("{event}");
        }
        Event::HostRefused { .. } | Event::AuthenticationFailed { .. } | Event::ProtocolError { .. } => {
            if limit.admits(now) {
                tracing::warn!("{event}");
            }
        }
    }
}

/// Logs how many lines were suppressed in the last interval.
pub(crate) fn suppressed(limit: &mut LogLimit, now: Instant) {
    if let Some(lines) = limit.take_suppressed(now) {
        let plural = if lines == 1 { "" } else { "s" };
        tracing::warn!("{lines} more warning{plural} about clients within 1 s: not logged");
    }
}

/// Connections cannot be accepted, and wait until they can.
pub(crate) fn accept_failed(error: &io::Error) {
    tracing::warn!(
        "cannot accept connections, which wait: {error}; see ulimit -n, or LimitNOFILE= of a systemd service"
    );
}

/// A connection was refused because of the limit.
pub(crate) fn connection_refused(peer: &str, limit: &mut LogLimit, now: Instant) {
    if limit.admits(now) {
        tracing::warn!("{peer}: connection refused: too many connections");
    }
}

/// A connection was closed, which is frequent and only logged for debugging.
pub(crate) fn closed(reason: &TargetCloseReason) {
    tracing::debug!("connection closed: {reason}");
}

/// A warning of a drive.
pub(crate) fn warning(source: &str, text: &str) {
    tracing::warn!("{source}: {text}");
}

/// A namespace has another size.
pub(crate) fn resized(source: &str, nqn: &Nqn, namespace: NamespaceId, geometry: &Geometry) {
    tracing::info!("{source}: namespace {namespace} of {nqn} has {} zones now", geometry.zone_count);
}

/// An NBD client has chosen its export.
pub(crate) fn nbd_opened(peer: &str, export: &str, is_encrypted: bool) {
    let how = if is_encrypted { "NBD, encrypted" } else { "NBD" };
    tracing::info!("{peer}: connected to export {export:?} ({how})");
}

/// An NBD connection was closed. Without an export it is only logged for debugging.
pub(crate) fn nbd_closed(peer: &str, had_export: bool, end: &End, limit: &mut LogLimit, now: Instant) {
    match end {
        End::Closed(CloseReason::Fault(_) | CloseReason::UnknownExport { .. } | CloseReason::TlsRequired)
        | End::Handshake
        | End::Tls(_)
        | End::Cut
        | End::Evicted
        | End::Stalled => {
            if limit.admits(now) {
                tracing::warn!("{peer}: NBD connection closed: {end}");
            }
        }
        _ if had_export => tracing::info!("{peer}: NBD connection closed: {end}"),
        _ => tracing::debug!("{peer}: NBD connection closed: {end}"),
    }
}

/// A request of an NBD client was refused because of a reservation.
pub(crate) fn nbd_reservation_conflict(source: &str) {
    tracing::warn!("{source}: NBD request refused: an NVMe host holds a reservation on the namespace");
}

/// A request to a volume.
pub(crate) fn asked(volume: &Path, request: &VolumeRequest) {
    if !matches!(request, VolumeRequest::Report | VolumeRequest::Lost { .. }) {
        tracing::info!("{}: request: {request}", volume.display());
    }
}

/// A request to a pool.
pub(crate) fn asked_pool(pool: &Path, request: &PoolRequest) {
    tracing::info!("{}: request: {request}", pool.display());
}

/// A request to a volume or pool failed, or was refused.
pub(crate) fn request_failed(volume: &Path, error: &DriveError) {
    tracing::warn!("{}: request failed: {}", volume.display(), error.message);
}

/// Damaged copies of metadata that opening an image has rewritten.
pub(crate) fn copies_repaired(image: &Path, report: &RecoveryReport) {
    if report.superblock_repaired {
        tracing::warn!("{}: one of two copies of the superblock was damaged and is repaired", image.display());
    }
    // After an unclean shutdown, one copy may be incomplete without damage.
    if report.checkpoint_repaired && report.clean {
        tracing::warn!("{}: one of two copies of the checkpoint was damaged and is repaired", image.display());
    }
}

/// A scheduler has stopped to use its table of conflict groups, or uses it again.
pub(crate) fn table_changed(source: &str, table: &TableReport) {
    let groups = table.groups;
    if table.is_used {
        tracing::info!("{source}: latencies of reads confirm the {groups} conflict groups: they are used again");
    } else {
        tracing::warn!(
            "{source}: latencies of reads contradict the {groups} conflict groups: commands are submitted in the order of \
             arrival; measure the drive again with zonda probe --groups-only"
        );
    }
}

/// A table of conflict groups, which a scheduler is to use, has no group.
pub(crate) fn no_groups(path: &Path, verdict: Verdict) {
    let (reason, remedy) = match verdict {
        Verdict::OneGroup => ("all zones share the same hardware", OTHER_SCHEDULER),
        Verdict::NoInterference => ("its measurement found no interference", OTHER_SCHEDULER),
        Verdict::NotMeasured | Verdict::Groups { .. } => (
            "the groups of all zones are unknown",
            "write data to the zones, and measure the drive with zonda probe --groups-only DRIVE --out FILE",
        ),
    };
    tracing::warn!(
        "{}: no zone has a conflict group: {reason}; scheduler = \"interference\" is no more than a fair round robin of \
         hosts: {remedy}",
        path.display()
    );
}

/// What helps a drive without conflict groups.
const OTHER_SCHEDULER: &str = "choose another scheduler";

/// An event of a volume.
pub(crate) fn notice(volume: &Path, notice: &Notice) {
    if notice.is_warning {
        tracing::warn!("{}: {}", volume.display(), notice.text);
    } else {
        tracing::info!("{}: {}", volume.display(), notice.text);
    }
}
