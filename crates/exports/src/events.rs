//! The log.

use zonda_target::{CloseReason, Event};

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
pub(crate) fn closed(reason: &CloseReason) {
    tracing::debug!("connection closed: {reason}");
}

/// The media of a drive give trouble.
pub(crate) fn trouble(source: &str, what: &str) {
    tracing::warn!("{source}: {what}");
}
