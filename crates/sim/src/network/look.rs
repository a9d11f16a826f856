//! A host reads all its zones over the network, and holds them against its books.

use std::collections::BTreeMap;

use zonda_initiator::Initiator;
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, Geometry, Instant, Lba, NamespaceId, Operation, Outcome, PayloadKind,
    QueueFull, ReportFilter, ZoneDescriptor, ZoneIndex, ZoneState,
};

use super::host::{Books, Desk, Doubt};
use super::window::Window;
use crate::check::{quiet, survival};
use crate::ledger::Phase;
use crate::outcome::FailureKind;
use crate::power::believe;
use crate::survey::{SeenZone, Trouble};

/// Identifiers of commands that look; those of the load are smaller.
const FIRST_ID: u64 = 1 << 40;
/// Reads of one look under way at once.
const READS_AT_ONCE: usize = 8;

/// A look under way: first the report, then the reads.
#[derive(Debug)]
pub(crate) struct Look {
    window: Window,
    geometry: Geometry,
    operations: Vec<Operation>,
    /// The zone of each read.
    zones: Vec<usize>,
    next: usize,
    under_way: BTreeMap<CommandId, usize>,
    outcomes: Vec<Option<Outcome>>,
}

pub(crate) fn is_of_look(id: CommandId) -> bool {
    id.0 >= FIRST_ID
}

impl Look {
    /// A look at a window, which to its host has this geometry.
    pub(crate) fn new(window: &Window, geometry: &Geometry) -> Look {
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
        Look {
            window: *window,
            geometry: geometry.clone(),
            outcomes: vec![None; operations.len()],
            operations,
            zones,
            next: 0,
            under_way: BTreeMap::new(),
        }
    }

    /// Submits what comes next, as far as there is room.
    pub(crate) fn submit(&mut self, now: Instant, machine: &mut Initiator) -> Result<(), Trouble> {
        while self.under_way.len() < READS_AT_ONCE && self.next < self.operations.len() {
            let id = CommandId(FIRST_ID + self.next as u64);
            let operation = self.operations[self.next].clone();
            if let Err(QueueFull(_)) = machine.submit(now, Command { id, namespace: NamespaceId::FIRST, operation }) {
                if self.under_way.is_empty() {
                    let message = "nothing is under way, and no read is taken".to_owned();
                    return Err(Trouble::new(FailureKind::Starved, None, message));
                }
                break;
            }
            self.under_way.insert(id, self.next);
            self.next += 1;
        }
        Ok(())
    }

    pub(crate) fn take(&mut self, completion: Completion) -> Result<(), Trouble> {
        let wrong = |message| Err(Trouble::new(FailureKind::WrongAnswer, None, message));
        let Some(place) = self.under_way.remove(&completion.id) else {
            let message = format!("read {} of a look ended twice", completion.id);
            return Err(Trouble::new(FailureKind::StrayCompletion, None, message));
        };
        if !completion.status.is_success() {
            return wrong(format!("a look at the zones ended with \"{}\"", completion.status));
        }
        self.outcomes[place] = Some(completion.outcome);
        Ok(())
    }

    /// A read has failed: the look will be made again.
    pub(crate) fn give_up(&mut self, id: CommandId) {
        self.under_way.remove(&id);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.next == self.operations.len() && self.under_way.is_empty()
    }

    /// Holds what was seen against the books, and brings them to it where they were in doubt.
    pub(crate) fn judge(
        self,
        host: usize,
        books: &mut Books,
        doubt: Doubt,
        desk: &mut Desk<'_>,
    ) -> Result<(), Trouble> {
        let of_host = |trouble: Trouble| trouble.of_host(host);
        let seen = self.seen().map_err(of_host)?;
        for zone in &seen {
            desk.hash.mix(u64::from(zone.state.code()) << 32 | zone.pointer.unwrap_or(u64::from(u32::MAX)));
        }
        if doubt == Doubt::None {
            return quiet::check(&books.oracle, &seen, PayloadKind::Bytes).map_err(of_host);
        }
        let halves = if doubt == Doubt::Power { survival::Halves::Possible } else { survival::Halves::Impossible };
        for (zone, seen) in (0..).map(ZoneIndex).zip(&seen) {
            let page = &books.ledger.pages[zone.as_usize()];
            let unsure = page.effects.iter().filter(|effect| !effect.is_acknowledged).count();
            let closed = as_if_closed(seen);
            let mut shape = survival::check(&books.ledger.geometry, zone, page, &closed, halves).map_err(of_host)?;
            match seen.state {
                ZoneState::ExplicitlyOpened => shape.phase = Phase::Opened,
                ZoneState::ImplicitlyOpened => shape.phase = Phase::Written,
                _ => {}
            }
            if unsure > 0 {
                let place = quiet::place(seen.state, seen.pointer);
                desk.teller.tell(desk.now, || format!("  zone {zone} of host {host} is {place}; {unsure} unsure"));
            }
            believe(&mut books.oracle, &mut books.ledger, zone, shape, seen);
        }
        Ok(())
    }

    fn seen(self) -> Result<Vec<SeenZone>, Trouble> {
        let wrong = |message: String| Trouble::new(FailureKind::WrongAnswer, None, message);
        let mut outcomes = self.outcomes.into_iter().zip(self.zones);
        let Some((Some(Outcome::Report(report)), _)) = outcomes.next() else {
            return Err(wrong("a report of zones brought no report".to_owned()));
        };
        let of_host = |descriptor: &ZoneDescriptor| ZoneDescriptor {
            start: self.window.back(descriptor.start),
            write_pointer: descriptor.write_pointer.map(|pointer| self.window.back(pointer)),
            ..descriptor.clone()
        };
        let mut seen: Vec<SeenZone> =
            report.zones.iter().map(|descriptor| SeenZone::of(&of_host(descriptor), &self.geometry)).collect();
        if seen.len() != self.geometry.zone_count as usize {
            let message = format!("a report of {} zones lists {}", self.geometry.zone_count, seen.len());
            return Err(wrong(message));
        }
        for (outcome, zone) in outcomes {
            match outcome {
                Some(Outcome::Data(payload)) => seen[zone].take(payload, &self.geometry),
                _ => return Err(wrong(format!("a read of zone {zone} brought no data"))),
            }
        }
        Ok(seen)
    }
}

/// A zone as it would come back after a loss of power, which is how the books tell zones apart.
fn as_if_closed(seen: &SeenZone) -> SeenZone {
    let keeps = seen.pointer.is_some_and(|pointer| pointer > 0) || seen.zrwa || seen.extension.is_some();
    let state = match seen.state {
        ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened if keeps => ZoneState::Closed,
        ZoneState::ImplicitlyOpened | ZoneState::ExplicitlyOpened => ZoneState::Empty,
        state => state,
    };
    SeenZone { state, ..seen.clone() }
}
