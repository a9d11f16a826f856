//! Mistakes that the world makes on purpose, in the place of a server or a host that makes them.

/// A mistake between hosts and drives, to see whether it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkBug {
    /// A write is acknowledged before the device has it.
    PrematureResponse,
    /// What is for one connection is sent over another.
    MisdeliveredResponse,
    /// A block of a write that comes in several PDUs is lost on its way to the device.
    DroppedChunk,
    /// The first completion after a connection is lost gets lost too.
    LostCompletion,
    /// A server repeats the last append or reset of a connection that it has lost.
    ReplayedCommand,
    /// The server forgets to say that bytes have left.
    ForgottenSent,
    /// A host that has connected again goes on at once, though commands of its old connections may still come.
    ImpatientHost,
}

impl NetworkBug {
    /// Every bug, with its name.
    pub const ALL: [(&'static str, NetworkBug); 7] = [
        ("premature-response", NetworkBug::PrematureResponse),
        ("misdelivered-response", NetworkBug::MisdeliveredResponse),
        ("dropped-chunk", NetworkBug::DroppedChunk),
        ("lost-completion", NetworkBug::LostCompletion),
        ("replayed-command", NetworkBug::ReplayedCommand),
        ("forgotten-sent", NetworkBug::ForgottenSent),
        ("impatient-host", NetworkBug::ImpatientHost),
    ];
}
