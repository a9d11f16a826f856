//! Claims a namespace: Reservation Report, Register, Acquire. A claim that fails changes nothing.

use bytes::Bytes;
use zonda_nvme::identify::capabilities::optional_commands;
use zonda_nvme::reservation::{
    AcquireAction, PersistChange, RegisterAction, ReservationCommand, ReservationKey, ReservationKeys,
    ReservationStatus, ReservationType,
};
use zonda_nvme::{HostId, StatusCode, SubmissionEntry};
use zonda_zoned::Instant;

use super::{Progress, Remote, send, succeeded};
use crate::claim::{Claim, Claimed, Holder};
use crate::error::Reason;
use crate::limits::{CLAIM_ATTEMPTS_MAX, RESERVATION_REPORT_BYTES};
use crate::queue::{CommandData, Ended, HostData, Queue};
use crate::state::Step;

/// RESCAP of Identify Namespace: Persist Through Power Loss is supported.
const CAN_PERSIST: u8 = 1;
/// RESCAP: Exclusive Access.
const CAN_EXCLUDE: u8 = 1 << 2;

/// The procedure, over the first I/O queue.
#[derive(Debug)]
pub(crate) struct Claiming {
    claim: Claim,
    host: HostId,
    namespace: u32,
    persist: PersistChange,
    stage: Stage,
    /// Reports so far.
    reports: u32,
    preempted: Option<Holder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Report,
    Register {
        from: Option<ReservationKey>,
    },
    Acquire,
    /// Another host holds the reservation: this host unregisters.
    Withdraw(Holder),
}

impl Claiming {
    /// Begins. `None` if the namespace does not support reservations: then no host can be excluded.
    pub(crate) fn start(
        now: Instant,
        queue: &mut Queue,
        remote: &Remote,
        claim: Claim,
        host: HostId,
        namespace: u32,
    ) -> Option<Claiming> {
        let capabilities = remote.namespace.reservations;
        let has_commands = remote.controller.optional_commands.get() & optional_commands::RESERVATIONS != 0;
        if !has_commands || capabilities & CAN_EXCLUDE == 0 {
            return None;
        }
        let persist = if capabilities & CAN_PERSIST == 0 { PersistChange::Keep } else { PersistChange::Set };
        let claiming = Claiming { claim, host, namespace, persist, stage: Stage::Report, reports: 1, preempted: None };
        request_report(now, queue, namespace);
        Some(claiming)
    }

    /// The claim, once it is done.
    pub(crate) fn claimed(&self) -> Claimed {
        Claimed { key: self.claim.key, preempted: self.preempted }
    }

    pub(crate) fn step(&self) -> Step {
        match self.stage {
            Stage::Report => Step::ReportReservations,
            Stage::Register { .. } | Stage::Withdraw(_) => Step::Register,
            Stage::Acquire => Step::Reserve,
        }
    }

    pub(crate) fn ended(&mut self, now: Instant, queue: &mut Queue, ended: &Ended) -> Result<Progress, Reason> {
        match self.stage {
            Stage::Report => {
                let status = status_of(ended)?;
                return self.reported(now, queue, &status);
            }
            Stage::Register { from } => {
                succeeded(ended)?;
                self.stage = Stage::Acquire;
                let action = if from.is_some() { AcquireAction::PreemptAndAbort } else { AcquireAction::Acquire };
                let command = ReservationCommand::Acquire { action, kind: ReservationType::ExclusiveAccess };
                let keys = ReservationKeys { current: self.claim.key, other: from.unwrap_or_default() };
                submit(now, queue, self.namespace, &command, keys);
            }
            // Another host was faster: its identity decides.
            Stage::Acquire if ended.status == StatusCode::RESERVATION_CONFLICT => {
                self.preempted = None;
                if self.reports >= CLAIM_ATTEMPTS_MAX {
                    return Err(succeeded(ended).expect_err("the command failed"));
                }
                self.reports += 1;
                self.stage = Stage::Report;
                request_report(now, queue, self.namespace);
            }
            Stage::Acquire => {
                succeeded(ended)?;
                return Ok(Progress::Done);
            }
            Stage::Withdraw(holder) => return Err(Reason::Reserved(holder)),
        }
        Ok(Progress::More)
    }

    fn reported(&mut self, now: Instant, queue: &mut Queue, status: &ReservationStatus) -> Result<Progress, Reason> {
        let own = status.controllers.iter().find(|controller| controller.host == self.host).map(|own| own.key);
        let holder = holder_of(status);
        match holder {
            Some(holder) if holder.host == self.host && status.kind == Some(ReservationType::ExclusiveAccess) => {
                self.claim.key = holder.key;
                return Ok(Progress::Done);
            }
            Some(holder) if !self.claim.preempts.includes(&holder) => {
                if own.is_none() {
                    return Err(Reason::Reserved(holder));
                }
                self.stage = Stage::Withdraw(holder);
                unregister(now, queue, self.namespace);
                return Ok(Progress::More);
            }
            _ => {}
        }
        self.preempted = holder;
        self.claim.outgrow(status.controllers.iter().filter(|it| it.host != self.host).map(|it| it.key));
        self.stage = Stage::Register { from: holder.map(|holder| holder.key) };
        let action = if own.is_some() { RegisterAction::Replace } else { RegisterAction::Register };
        let command = ReservationCommand::Register { action, ignores_key: true, persist: self.persist };
        submit(now, queue, self.namespace, &command, ReservationKeys { other: self.claim.key, ..Default::default() });
        Ok(Progress::More)
    }
}

/// The holder of the reservation. If all registrants hold it, one of them.
pub(crate) fn holder_of(status: &ReservationStatus) -> Option<Holder> {
    let holder = status.controllers.iter().find(|controller| controller.is_holder && status.kind.is_some())?;
    Some(Holder { host: holder.host, key: holder.key })
}

/// Parses a report.
pub(crate) fn status_of(ended: &Ended) -> Result<ReservationStatus, Reason> {
    succeeded(ended)?;
    Ok(ReservationStatus::read(&ended.data, true)?)
}

/// Requests a report of the reservation.
pub(crate) fn request_report(now: Instant, queue: &mut Queue, namespace: u32) {
    let bytes = u64::from(RESERVATION_REPORT_BYTES);
    let command = ReservationCommand::Report { bytes, extended: true };
    send(queue, now, entry_of(namespace, &command), CommandData::ToHost(RESERVATION_REPORT_BYTES));
}

/// Unregisters this host, and with it releases its reservation.
pub(crate) fn unregister(now: Instant, queue: &mut Queue, namespace: u32) {
    let command = ReservationCommand::Register {
        action: RegisterAction::Unregister,
        ignores_key: true,
        persist: PersistChange::Keep,
    };
    submit(now, queue, namespace, &command, ReservationKeys::default());
}

fn submit(now: Instant, queue: &mut Queue, namespace: u32, command: &ReservationCommand, keys: ReservationKeys) {
    let data = HostData::Bytes(Bytes::copy_from_slice(&keys.to_bytes()));
    send(queue, now, entry_of(namespace, command), CommandData::FromHost(data));
}

fn entry_of(namespace: u32, command: &ReservationCommand) -> SubmissionEntry {
    let (opcode, [dword10, dword11]) = command.encode();
    let mut entry = SubmissionEntry::new(opcode.code(), namespace);
    entry.cdw10 = dword10.into();
    entry.cdw11 = dword11.into();
    entry
}
