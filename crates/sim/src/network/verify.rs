//! A host reads all its zones over the network, and compares them with its model.

use std::collections::BTreeMap;

use zonda_initiator::Initiator;
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, Geometry, Instant, Lba, NamespaceId, Operation, Outcome, PayloadKind,
    QueueFull, ReportFilter, ZoneDescriptor, ZoneIndex, ZoneState,
};

use super::host::{HostModel, RunContext, Uncertainty};
use super::window::Window;
use crate::check::{quiescent, survival};
use crate::ledger::Phase;
use crate::observe::{CheckError, ObservedZone};
use crate::outcome::FailureKind;
use crate::power::update_model;

/// Ids of verification commands start here; those of the load are smaller.
const FIRST_ID: u64 = 1 << 40;
/// Queue depth of a verification.
const READS_IN_FLIGHT_MAX: usize = 8;

/// A verification in progress: first a zone report, then reads.
#[derive(Debug)]
pub(crate) struct VerifyPass {
    window: Window,
    geometry: Geometry,
    operations: Vec<Operation>,
    /// The zone of each read.
    zones: Vec<usize>,
    next: usize,
    in_flight: BTreeMap<CommandId, usize>,
    outcomes: Vec<Option<Outcome>>,
}

pub(crate) fn is_verify_id(id: CommandId) -> bool {
    id.0 >= FIRST_ID
}

impl VerifyPass {
    /// A verification of a window, which has this geometry for its host.
    pub(crate) fn new(window: &Window, geometry: &Geometry) -> VerifyPass {
        let mut operations = vec![Operation::ReportZones {
            start: window.out(Lba(0)),
            filter: ReportFilter::All,
            extended: geometry.descriptor_extension_bytes > 0,
            partial: true,
            descriptors_max: window.count,
        }];
        let mut zones = vec![0];
        let (size, most) = (geometry.zone_size_blocks.0, geometry.max_transfer_blocks.0);
        for zone in 0..window.count {
            let start = window.out(geometry.zone_start(ZoneIndex(zone)));
            for first in (0..size).step_by(most as usize) {
                let blocks = Blocks(most.min(size - first));
                operations.push(Operation::Read { start: start + Blocks(first), blocks });
                zones.push(zone as usize);
            }
        }
        VerifyPass {
            window: *window,
            geometry: geometry.clone(),
            outcomes: vec![None; operations.len()],
            operations,
            zones,
            next: 0,
            in_flight: BTreeMap::new(),
        }
    }

    /// Submits further commands, up to the queue depth.
    pub(crate) fn submit(&mut self, now: Instant, machine: &mut Initiator) -> Result<(), CheckError> {
        while self.in_flight.len() < READS_IN_FLIGHT_MAX && self.next < self.operations.len() {
            let id = CommandId(FIRST_ID + self.next as u64);
            let operation = self.operations[self.next].clone();
            if let Err(QueueFull(_)) = machine.submit(now, Command::new(id, NamespaceId::FIRST, operation)) {
                if self.in_flight.is_empty() {
                    let message = "no command is in flight, but the initiator refuses a read".to_owned();
                    return Err(CheckError::new(FailureKind::Starved, None, message));
                }
                break;
            }
            self.in_flight.insert(id, self.next);
            self.next += 1;
        }
        Ok(())
    }

    pub(crate) fn take(&mut self, completion: Completion) -> Result<(), CheckError> {
        let wrong = |message| Err(CheckError::new(FailureKind::WrongAnswer, None, message));
        let Some(place) = self.in_flight.remove(&completion.id) else {
            let message = format!("verification read {} completed twice", completion.id);
            return Err(CheckError::new(FailureKind::StrayCompletion, None, message));
        };
        if !completion.status.is_success() {
            return wrong(format!("a verification command completed with \"{}\"", completion.status));
        }
        self.outcomes[place] = Some(completion.outcome);
        Ok(())
    }

    /// Drops a failed read: the verification will be repeated.
    pub(crate) fn drop_read(&mut self, id: CommandId) {
        self.in_flight.remove(&id);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.next == self.operations.len() && self.in_flight.is_empty()
    }

    /// Compares the zones with the model, and updates it where it was uncertain.
    pub(crate) fn check(
        self,
        host: usize,
        model: &mut HostModel,
        uncertainty: Uncertainty,
        context: &mut RunContext<'_>,
    ) -> Result<(), CheckError> {
        let of_host = |error: CheckError| error.of_host(host);
        let seen = self.seen().map_err(of_host)?;
        for zone in &seen {
            context.hash.mix(u64::from(zone.state.code()) << 32 | zone.pointer.unwrap_or(u64::from(u32::MAX)));
        }
        if uncertainty == Uncertainty::None {
            return quiescent::check(&model.oracle, &seen, PayloadKind::Bytes).map_err(of_host);
        }
        let partial = if uncertainty == Uncertainty::Power {
            survival::PartialExecution::Possible
        } else {
            survival::PartialExecution::Impossible
        };
        for (zone, seen) in (0..).map(ZoneIndex).zip(&seen) {
            let entry = &model.ledger.entries[zone.as_usize()];
            let uncertain = entry.effects.iter().filter(|effect| !effect.is_acknowledged).count();
            let closed = as_if_closed(seen);
            let mut shape = survival::check(&model.ledger.geometry, zone, entry, &closed, partial).map_err(of_host)?;
            match seen.state {
                ZoneState::ExplicitlyOpened => shape.phase = Phase::Opened,
                ZoneState::ImplicitlyOpened => shape.phase = Phase::Written,
                _ => {}
            }
            if uncertain > 0 {
                let place = quiescent::place(seen.state, seen.pointer);
                context.trace.log(context.now, || {
                    format!("  zone {zone} of host {host} is {place}; {uncertain} commands not acknowledged")
                });
            }
            update_model(&mut model.oracle, &mut model.ledger, zone, shape, seen);
        }
        Ok(())
    }

    fn seen(self) -> Result<Vec<ObservedZone>, CheckError> {
        let wrong = |message: String| CheckError::new(FailureKind::WrongAnswer, None, message);
        let mut outcomes = self.outcomes.into_iter().zip(self.zones);
        let Some((Some(Outcome::Report(report)), _)) = outcomes.next() else {
            return Err(wrong("Report Zones returned no report".to_owned()));
        };
        let of_host = |descriptor: &ZoneDescriptor| ZoneDescriptor {
            start: self.window.back(descriptor.start),
            write_pointer: descriptor.write_pointer.map(|pointer| self.window.back(pointer)),
            ..descriptor.clone()
        };
        let mut seen: Vec<ObservedZone> =
            report.zones.iter().map(|descriptor| ObservedZone::of(&of_host(descriptor), &self.geometry)).collect();
        if seen.len() != self.geometry.zone_count as usize {
            let message =
                format!("Report Zones of {} zones returned {} descriptors", self.geometry.zone_count, seen.len());
            return Err(wrong(message));
        }
        for (outcome, zone) in outcomes {
            match outcome {
                Some(Outcome::Data(payload)) => seen[zone].take(payload, &self.geometry),
                _ => return Err(wrong(format!("a read of zone {zone} returned no data"))),
            }
        }
        Ok(seen)
    }
}

/// A zone as it would be after a power loss, which is how the ledger distinguishes zones.
fn as_if_closed(seen: &ObservedZone) -> ObservedZone {
    let keeps = seen.pointer.is_some_and(|pointer| pointer > 0) || seen.zrwa || seen.extension.is_some();
    let state = match seen.state {
        ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened if keeps => ZoneState::Closed,
        ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened => ZoneState::Empty,
        state => state,
    };
    ObservedZone { state, ..seen.clone() }
}
