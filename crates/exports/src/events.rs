//! The log.

use std::path::Path;

use zonda_devices::{Notice, VolumeRequest};
use zonda_nbd::CloseReason;
use zonda_target::{CloseReason as TargetCloseReason, Event};

use crate::nbd::End;

/// What the target has to tell.
pub(crate) fn tell(event: &Event) {
    match event {
        Event::HostConnected { .. } | Event::Authenticated { .. } | Event::ControllerGone { .. } => {
            tracing::info!("{event}");
        }
        Event::HostRefused { .. } | Event::AuthenticationFailed { .. } | Event::ProtocolError { .. } => {
            tracing::warn!("{event}");
        }
    }
}

/// A connection was turned away before it had a name.
pub(crate) fn no_room(peer: &str) {
    tracing::warn!("{peer}: turned away: there are too many connections");
}

/// Connections come and go with every host; why, is of interest only to those who look closely.
pub(crate) fn closed(reason: &TargetCloseReason) {
    tracing::debug!("connection closed: {reason}");
}

/// The media of a drive give trouble.
pub(crate) fn trouble(source: &str, what: &str) {
    tracing::warn!("{source}: {what}");
}

/// An NBD client has chosen its export.
pub(crate) fn nbd_opened(peer: &str, export: &str, is_encrypted: bool) {
    let how = if is_encrypted { "NBD, encrypted" } else { "NBD" };
    tracing::info!("{peer}: connected to export {export:?} ({how})");
}

/// An NBD client is gone. Those that only looked around are of interest to those who look closely.
pub(crate) fn nbd_closed(peer: &str, had_export: bool, end: &End) {
    match end {
        End::Closed(CloseReason::Fault(_) | CloseReason::UnknownExport { .. } | CloseReason::TlsRequired)
        | End::Handshake
        | End::Tls(_)
        | End::Cut
        | End::Crowded
        | End::Stalled => tracing::warn!("{peer}: NBD connection closed: {end}"),
        _ if had_export => tracing::info!("{peer}: NBD connection closed: {end}"),
        _ => tracing::debug!("{peer}: NBD connection closed: {end}"),
    }
}

/// An NVMe host keeps NBD clients away from a drive.
pub(crate) fn nbd_reserved(source: &str) {
    tracing::warn!("{source}: a request of an NBD client is refused: an NVMe host has reserved the namespace");
}

/// Something was asked of a volume.
pub(crate) fn asked(volume: &Path, request: &VolumeRequest) {
    if !matches!(request, VolumeRequest::Report | VolumeRequest::Lost { .. }) {
        tracing::info!("{}: asked to {request}", volume.display());
    }
}

/// Something has happened to a volume.
pub(crate) fn notice(volume: &Path, notice: &Notice) {
    if notice.is_trouble {
        tracing::warn!("{}: {}", volume.display(), notice.text);
    } else {
        tracing::info!("{}: {}", volume.display(), notice.text);
    }
}
