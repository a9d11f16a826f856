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
    /// A command that conflicts with a reservation is carried out.
    IgnoredConflict,
    /// A report says the wrong thing of who holds a reservation.
    MisreportedHolder,
    /// A change of reservations is answered, and was never made durable.
    UnkeptReservation,
    /// A server that starts takes the reservations as they were before the last change.
    StaleReservations,
    /// The server tells hosts apart by a part of their identifiers.
    HalvedHostId,
}

impl NetworkBug {
    /// Every bug, with its name.
    pub const ALL: [(&'static str, NetworkBug); 12] = [
        ("premature-response", NetworkBug::PrematureResponse),
        ("misdelivered-response", NetworkBug::MisdeliveredResponse),
        ("dropped-chunk", NetworkBug::DroppedChunk),
        ("lost-completion", NetworkBug::LostCompletion),
        ("replayed-command", NetworkBug::ReplayedCommand),
        ("forgotten-sent", NetworkBug::ForgottenSent),
        ("impatient-host", NetworkBug::ImpatientHost),
        ("ignored-conflict", NetworkBug::IgnoredConflict),
        ("misreported-holder", NetworkBug::MisreportedHolder),
        ("unkept-reservation", NetworkBug::UnkeptReservation),
        ("stale-reservations", NetworkBug::StaleReservations),
        ("halved-host-id", NetworkBug::HalvedHostId),
    ];
}
