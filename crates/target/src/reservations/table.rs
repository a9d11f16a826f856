//! The registrants and the reservation of one namespace, and what the commands of hosts make of them.
//!
//! Rules: NVMe Base 2.0, section 8.19. A command either changes everything that it has to, or is refused and changes nothing.

use zonda_nvme::log::ReservationNotice;
use zonda_nvme::reservation::{
    AcquireAction, RegisterAction, ReleaseAction, ReservationKey, ReservationKeys, ReservationType, SavedReservations,
};
use zonda_nvme::{HostId, StatusCode};

use crate::limits::REGISTRANTS_MAX;

/// Who may use a namespace. Hosts are told apart by their identifiers: all controllers of one are one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reservations {
    generation: u32,
    /// In the order in which they registered.
    registrants: Vec<Registrant>,
    held: Option<Held>,
    /// PTPL: all of this survives a loss of power.
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
struct Held {
    kind: ReservationType,
    /// `None`: every registrant.
    by: Option<HostId>,
}

/// What a command does to blocks, as far as reservations tell commands apart (NVMe Base 2.0, Figure 486; NVM Command Set 1.0,
/// Figure 15; Zoned Namespace Command Set 1.1, Figure 14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// What other hosts have to hear of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) notices: Vec<(HostId, ReservationNotice)>,
}

impl Reservations {
    /// What was kept, by [`to_kept`](Reservations::to_kept); or why that cannot be.
    pub(crate) fn restore(kept: &[u8]) -> Result<Reservations, String> {
        if kept.is_empty() {
            return Ok(Reservations::default());
        }
        let saved = SavedReservations::read(kept).map_err(|error| error.to_string())?;
        let count = saved.registrants.len();
        if count > REGISTRANTS_MAX {
            return Err(format!("they have {count} registrants, of at most {REGISTRANTS_MAX}"));
        }
        let registrants = saved.registrants.into_iter().map(|(host, key)| Registrant { host, key }).collect();
        let held = saved.held.map(|(kind, by)| Held { kind, by });
        Ok(Reservations { generation: saved.generation, registrants, held, persists: true })
    }

    /// The bytes that are to survive a loss of power; none where nothing is.
    pub(crate) fn to_kept(&self) -> Vec<u8> {
        if !self.persists {
            return Vec::new();
        }
        let registrants = self.registrants.iter().map(|registrant| (registrant.host, registrant.key)).collect();
        let held = self.held.map(|held| (held.kind, held.by));
        SavedReservations { generation: self.generation, registrants, held }.to_bytes()
    }

    /// The Persist Through Power Loss state.
    pub(crate) fn persists(&self) -> bool {
        self.persists
    }

    /// Sets it. It is the namespace's: of all registrants, and of those to come.
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

    /// Whether a host may do what others have not excluded it from.
    #[inline]
    pub(crate) fn permits(&self, host: HostId, access: Access) -> bool {
        match &self.held {
            None => true,
            Some(held) => self.permits_beside(held, host, access),
        }
    }

    #[cold]
    fn permits_beside(&self, held: &Held, host: HostId, access: Access) -> bool {
        held.by == Some(host)
            || (held.kind.admits_registrants() && self.key_of(host).is_some())
            || (access == Access::Read && !held.kind.excludes_reads())
    }

    pub(crate) fn is_holder(&self, host: HostId) -> bool {
        self.held.is_some_and(|held| match held.by {
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
            // GEN counts each Register that succeeds, also one that repeats itself (NVMe Base 2.0, section 7.4).
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

    /// A registrant goes, and the reservation with it, if it was the only one to hold it.
    fn unregister(&mut self, host: HostId) -> Changes {
        self.registrants.retain(|registrant| registrant.host != host);
        let mut changes = Changes::default();
        let Some(held) = self.held else { return changes };
        let is_last = match held.by {
            Some(holder) => holder == host,
            None => self.registrants.is_empty(),
        };
        if is_last {
            self.held = None;
            // Others that may not write any less than before have nothing to learn.
            if held.kind.admits_registrants() {
                self.tell_others(&mut changes, host, ReservationNotice::ReservationReleased);
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
        self.prove(host, keys.current)?;
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

    /// Takes the reservation from the host with a key, or only ends the registrations with that key.
    fn preempt(&mut self, host: HostId, kind: ReservationType, victim: ReservationKey) -> Result<Changes, StatusCode> {
        let takes_over = match self.held {
            None => false,
            // Zero stands for all the other registrants.
            Some(Held { by: None, .. }) => victim == ReservationKey(0),
            Some(Held { by: Some(holder), .. }) => self.key_of(holder) == Some(victim),
        };
        if !takes_over && victim == ReservationKey(0) {
            return Err(StatusCode::INVALID_FIELD);
        }
        let everybody = victim == ReservationKey(0);
        let goes = |registrant: &Registrant| {
            (everybody || registrant.key == victim) && !(takes_over && registrant.host == host)
        };
        if !takes_over && !self.registrants.iter().any(goes) {
            return Err(StatusCode::RESERVATION_CONFLICT);
        }
        let mut changes = Changes::default();
        for gone in self.registrants.iter().filter(|registrant| goes(registrant) && registrant.host != host) {
            changes.notices.push((gone.host, ReservationNotice::RegistrationPreempted));
        }
        self.registrants.retain(|registrant| !goes(registrant));
        if takes_over {
            self.tell_others(&mut changes, host, ReservationNotice::ReservationReleased);
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
        self.prove(host, key)?;
        let mut changes = Changes::default();
        match (action, self.held) {
            (ReleaseAction::Clear, _) => {
                self.tell_others(&mut changes, host, ReservationNotice::ReservationPreempted);
                self.registrants.clear();
                self.held = None;
                self.count();
            }
            // What is not one's own is not given back, and that is no error.
            (ReleaseAction::Release, Some(held)) if self.is_holder(host) => {
                if held.kind.code() != kind_code {
                    return Err(StatusCode::INVALID_FIELD);
                }
                self.held = None;
                if held.kind.admits_registrants() {
                    self.tell_others(&mut changes, host, ReservationNotice::ReservationReleased);
                }
            }
            (ReleaseAction::Release, _) => {}
        }
        Ok(changes)
    }

    /// # Panics
    /// When something does not hold.
    pub(crate) fn check_invariants(&self) {
        assert!(self.registrants.len() <= REGISTRANTS_MAX, "registrants are within their limit");
        for (i, registrant) in self.registrants.iter().enumerate() {
            assert!(registrant.key != ReservationKey(0), "zero is no key");
            assert!(self.registrants[..i].iter().all(|other| other.host != registrant.host), "a host registers once");
        }
        if let Some(held) = self.held {
            assert_eq!(held.by.is_none(), held.kind.is_held_by_all(), "the type says who holds a reservation");
            match held.by {
                Some(holder) => assert!(self.key_of(holder).is_some(), "a holder is a registrant"),
                None => assert!(!self.registrants.is_empty(), "a reservation of all goes with the last of them"),
            }
        }
    }

    fn key_of(&self, host: HostId) -> Option<ReservationKey> {
        self.registrants.iter().find(|registrant| registrant.host == host).map(|registrant| registrant.key)
    }

    /// Only a registrant that says its key may acquire and release.
    fn prove(&self, host: HostId, key: ReservationKey) -> Result<(), StatusCode> {
        if self.key_of(host) == Some(key) { Ok(()) } else { Err(StatusCode::RESERVATION_CONFLICT) }
    }

    fn hold(&mut self, host: HostId, kind: ReservationType) {
        self.held = Some(Held { kind, by: (!kind.is_held_by_all()).then_some(host) });
    }

    fn tell_others(&self, changes: &mut Changes, host: HostId, notice: ReservationNotice) {
        let others = self.registrants.iter().filter(|registrant| registrant.host != host);
        changes.notices.extend(others.map(|registrant| (registrant.host, notice)));
    }

    /// GEN counts changes of registrations and wraps around.
    fn count(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }
}
