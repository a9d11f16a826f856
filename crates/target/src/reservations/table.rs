//! The registrants and the reservation of one namespace, and the reservation commands that change
//! them.
//!
//! Rules: NVMe Base 2.0, section 8.19. A command either succeeds completely, or fails and changes
//! nothing.

use zonda_nvme::log::ReservationNotice;
use zonda_nvme::reservation::{
    AcquireAction, RegisterAction, ReleaseAction, ReservationKey, ReservationKeys, ReservationType, SavedReservations,
};
use zonda_nvme::{HostId, StatusCode};

use crate::limits::REGISTRANTS_MAX;

/// Registrants and reservation of a namespace. Hosts are distinguished by their host identifiers:
/// all controllers of a host share one registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservations {
    generation: u32,
    /// In the order in which they registered.
    registrants: Vec<Registrant>,
    held: Option<Reservation>,
    /// PTPL: registrants and reservation persist through power loss.
    persists: bool,
}

/// A host that has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registrant {
    pub(crate) host: HostId,
    pub(crate) key: ReservationKey,
}

/// The reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reservation {
    kind: ReservationType,
    /// `None`: every registrant.
    holder: Option<HostId>,
}

/// The access of a command to blocks, as reservations distinguish commands (NVMe Base 2.0, Figure
/// 486; NVM Command Set 1.0, Figure 15; Zoned Namespace Command Set 1.1, Figure 14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The notifications that a command causes for other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) notices: Vec<(HostId, ReservationNotice)>,
}

impl Reservations {
    /// Reads bytes of [`to_saved`](Reservations::to_saved); an error says why they are invalid.
    pub(crate) fn restore(bytes: &[u8]) -> Result<Reservations, String> {
        if bytes.is_empty() {
            return Ok(Reservations::default());
        }
        let saved = SavedReservations::read(bytes).map_err(|error| error.to_string())?;
        let count = saved.registrants.len();
        if count > REGISTRANTS_MAX {
            return Err(format!("there are {count} registrants, but at most {REGISTRANTS_MAX} are supported"));
        }
        let registrants = saved.registrants.into_iter().map(|(host, key)| Registrant { host, key }).collect();
        let held = saved.held.map(|(kind, holder)| Reservation { kind, holder });
        Ok(Reservations { generation: saved.generation, registrants, held, persists: true })
    }

    /// The bytes to save; empty if reservations do not persist.
    pub(crate) fn to_saved(&self) -> Vec<u8> {
        if !self.persists {
            return Vec::new();
        }
        let registrants = self.registrants.iter().map(|registrant| (registrant.host, registrant.key)).collect();
        let held = self.held.map(|held| (held.kind, held.holder));
        SavedReservations { generation: self.generation, registrants, held }.to_bytes()
    }

    /// The Persist Through Power Loss state.
    pub(crate) fn persists(&self) -> bool {
        self.persists
    }

    /// Sets the Persist Through Power Loss state of the namespace, for present and future
    /// registrants.
    pub(crate) fn set_persists(&mut self, persists: bool) {
        self.persists = persists;
    }

    /// GEN.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    pub(crate) fn registrants(&self) -> &[Registrant] {
        &self.registrants
    }

    /// RTYPE of the reservation, if there is one.
    #[inline]
    pub(crate) fn kind(&self) -> Option<ReservationType> {
        self.held.map(|held| held.kind)
    }

    /// Whether the reservation permits this access to a host.
    #[inline]
    pub(crate) fn permits(&self, host: HostId, access: Access) -> bool {
        match &self.held {
            None => true,
            Some(held) => self.permits_under(held, host, access),
        }
    }

    #[cold]
    fn permits_under(&self, held: &Reservation, host: HostId, access: Access) -> bool {
        held.holder == Some(host)
            || (held.kind.admits_registrants() && self.key_of(host).is_some())
            || (access == Access::Read && !held.kind.excludes_reads())
    }

    pub(crate) fn is_holder(&self, host: HostId) -> bool {
        self.held.is_some_and(|held| match held.holder {
            Some(holder) => holder == host,
            None => self.key_of(host).is_some(),
        })
    }

    /// Reservation Register.
    pub(crate) fn register(
        &mut self,
        host: HostId,
        action: RegisterAction,
        keys: ReservationKeys,
        ignores_key: bool,
    ) -> Result<Changes, StatusCode> {
        let own = self.key_of(host);
        let is_new_key_needed = action != RegisterAction::Unregister;
        if is_new_key_needed && keys.other == ReservationKey(0) {
            return Err(StatusCode::INVALID_FIELD);
        }
        match (action, own) {
            // GEN counts each Register that succeeds, also one that repeats itself (NVMe Base 2.0,
            // section 7.4).
            (RegisterAction::Register, Some(key)) if key == keys.other => {}
            (RegisterAction::Register, Some(_)) => return Err(StatusCode::RESERVATION_CONFLICT),
            (RegisterAction::Register, None) => {
                if self.registrants.len() >= REGISTRANTS_MAX {
                    return Err(StatusCode::INTERNAL_ERROR);
                }
                self.registrants.push(Registrant { host, key: keys.other });
            }
            (_, None) => return Err(StatusCode::RESERVATION_CONFLICT),
            (_, Some(key)) if !ignores_key && key != keys.current => return Err(StatusCode::RESERVATION_CONFLICT),
            (RegisterAction::Replace, Some(_)) => {
                let own = self.registrants.iter_mut().find(|registrant| registrant.host == host);
                own.expect("the host has a key").key = keys.other;
            }
            (RegisterAction::Unregister, Some(_)) => {
                self.count();
                return Ok(self.unregister(host));
            }
        }
        self.count();
        Ok(Changes::default())
    }

    /// Removes a registrant, and the reservation, if it was the only holder.
    fn unregister(&mut self, host: HostId) -> Changes {
        self.registrants.retain(|registrant| registrant.host != host);
        let mut changes = Changes::default();
        let Some(held) = self.held else { return changes };
        let is_last = match held.holder {
            Some(holder) => holder == host,
            None => self.registrants.is_empty(),
        };
        if is_last {
            self.held = None;
            // Only Registrants Only and All Registrants types require a Reservation Released
            // notification.
            if held.kind.admits_registrants() {
                self.notify_others(&mut changes, host, ReservationNotice::ReservationReleased);
            }
        }
        changes
    }

    /// Reservation Acquire.
    pub(crate) fn acquire(
        &mut self,
        host: HostId,
        action: AcquireAction,
        kind: ReservationType,
        keys: ReservationKeys,
    ) -> Result<Changes, StatusCode> {
        self.check_key(host, keys.current)?;
        match (action, self.held) {
            (AcquireAction::Acquire, None) => {
                self.hold(host, kind);
                Ok(Changes::default())
            }
            (AcquireAction::Acquire, Some(held)) if held.kind == kind && self.is_holder(host) => Ok(Changes::default()),
            (AcquireAction::Acquire, Some(_)) => Err(StatusCode::RESERVATION_CONFLICT),
            (AcquireAction::Preempt | AcquireAction::PreemptAndAbort, _) => self.preempt(host, kind, keys.other),
        }
    }

    /// Preempts the reservation of the host with a key, or only removes the registrations with that
    /// key.
    fn preempt(&mut self, host: HostId, kind: ReservationType, victim: ReservationKey) -> Result<Changes, StatusCode> {
        let takes_reservation = match self.held {
            None => false,
            // Zero stands for all the other registrants.
            Some(Reservation { holder: None, .. }) => victim == ReservationKey(0),
            Some(Reservation { holder: Some(holder), .. }) => self.key_of(holder) == Some(victim),
        };
        if !takes_reservation && victim == ReservationKey(0) {
            return Err(StatusCode::INVALID_FIELD);
        }
        let all = victim == ReservationKey(0);
        let is_removed = |registrant: &Registrant| {
            (all || registrant.key == victim) && !(takes_reservation && registrant.host == host)
        };
        if !takes_reservation && !self.registrants.iter().any(is_removed) {
            return Err(StatusCode::RESERVATION_CONFLICT);
        }
        let mut changes = Changes::default();
        for removed in self.registrants.iter().filter(|registrant| is_removed(registrant) && registrant.host != host) {
            changes.notices.push((removed.host, ReservationNotice::RegistrationPreempted));
        }
        self.registrants.retain(|registrant| !is_removed(registrant));
        if takes_reservation {
            self.notify_others(&mut changes, host, ReservationNotice::ReservationReleased);
            self.hold(host, kind);
        } else if self.registrants.is_empty() {
            self.held = None;
        }
        self.count();
        Ok(changes)
    }

    /// Reservation Release.
    pub(crate) fn release(
        &mut self,
        host: HostId,
        action: ReleaseAction,
        kind_code: u8,
        key: ReservationKey,
    ) -> Result<Changes, StatusCode> {
        self.check_key(host, key)?;
        let mut changes = Changes::default();
        match (action, self.held) {
            (ReleaseAction::Clear, _) => {
                self.notify_others(&mut changes, host, ReservationNotice::ReservationPreempted);
                self.registrants.clear();
                self.held = None;
                self.count();
            }
            // A host that does not hold the reservation releases nothing, which is no error.
            (ReleaseAction::Release, Some(held)) if self.is_holder(host) => {
                if held.kind.code() != kind_code {
                    return Err(StatusCode::INVALID_FIELD);
                }
                self.held = None;
                if held.kind.admits_registrants() {
                    self.notify_others(&mut changes, host, ReservationNotice::ReservationReleased);
                }
            }
            (ReleaseAction::Release, _) => {}
        }
        Ok(changes)
    }

    /// # Panics
    /// If an invariant is violated.
    pub(crate) fn check_invariants(&self) {
        assert!(self.registrants.len() <= REGISTRANTS_MAX, "registrants are within their limit");
        for (i, registrant) in self.registrants.iter().enumerate() {
            assert!(registrant.key != ReservationKey(0), "zero is not a valid key");
            assert!(self.registrants[..i].iter().all(|other| other.host != registrant.host), "a host registers once");
        }
        if let Some(held) = self.held {
            assert_eq!(
                held.holder.is_none(),
                held.kind.is_held_by_all(),
                "the type determines whether one host or all registrants hold a reservation"
            );
            match held.holder {
                Some(holder) => assert!(self.key_of(holder).is_some(), "a holder is a registrant"),
                None => {
                    assert!(
                        !self.registrants.is_empty(),
                        "a reservation of all registrants ends with the last of them"
                    );
                }
            }
        }
    }

    fn key_of(&self, host: HostId) -> Option<ReservationKey> {
        self.registrants.iter().find(|registrant| registrant.host == host).map(|registrant| registrant.key)
    }

    /// Checks the key: only a registrant with the right key may acquire and release.
    fn check_key(&self, host: HostId, key: ReservationKey) -> Result<(), StatusCode> {
        if self.key_of(host) == Some(key) { Ok(()) } else { Err(StatusCode::RESERVATION_CONFLICT) }
    }

    fn hold(&mut self, host: HostId, kind: ReservationType) {
        self.held = Some(Reservation { kind, holder: (!kind.is_held_by_all()).then_some(host) });
    }

    fn notify_others(&self, changes: &mut Changes, host: HostId, notice: ReservationNotice) {
        let others = self.registrants.iter().filter(|registrant| registrant.host != host);
        changes.notices.extend(others.map(|registrant| (registrant.host, notice)));
    }

    /// GEN counts changes of registrations and wraps around.
    fn count(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }
}
