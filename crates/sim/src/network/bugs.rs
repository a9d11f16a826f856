//! Seeded bugs that the simulation itself implements, in place of a faulty server or host.

/// A seeded bug between hosts and drives, to test that the simulator finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkBug {
    /// A write is acknowledged before the device has it.
    PrematureResponse,
    /// PDUs of one connection are sent on another.
    MisdeliveredResponse,
    /// A block of a write is lost on its way to the device.
    DroppedChunk,
    /// The first completion after a connection loss is dropped.
    LostCompletion,
    /// The server repeats the last append or reset after a connection loss.
    ReplayedCommand,
    /// The server does not report to the target that bytes were sent.
    ForgottenSent,
    /// A reconnected host continues at once, though commands of its old connections may still be
    /// executed.
    ImpatientHost,
    /// A command that conflicts with a reservation succeeds.
    IgnoredConflict,
    /// A reservation report has a wrong holder status.
    MisreportedHolder,
    /// A reservation change completes without being saved.
    UnkeptReservation,
    /// A restarted server loads the reservations from before the last change.
    StaleReservations,
    /// The server compares only a part of host identifiers.
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
