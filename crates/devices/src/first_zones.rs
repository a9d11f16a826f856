//! [`FirstZones`]: a drive that shows its first zones only, and more of them later.

use std::collections::BTreeMap;

use zonda_zoned::limits::DEALLOCATE_RANGES_MAX;
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Namespaces,
    Operation, Outcome, QueueFull, ReportFilter, Status, ZoneState, ZoneTarget, ZonedDevice,
};

use crate::drive::as_the_drive_below;
use crate::{Drive, DriveFacts};

/// A drive of which hosts see the first zones, so that its owner can let it grow while it is used.
///
/// All hidden zones are empty or conventional, and stay as they are: commands beyond the last zone
/// that is shown fail with LBA Out of Range, as if the drive ended there, and Select All does not
/// change empty zones. The limits of open and active zones are those of the whole drive.
pub struct FirstZones {
    drive: Box<dyn Drive>,
    namespaces: Namespaces,
    /// Reports in flight.
    reports: BTreeMap<CommandId, Report>,
    /// Completions of commands that did not reach the drive.
    refused: Vec<Completion>,
}

/// A report in flight.
struct Report {
    /// Zones are reported up to here.
    end: Lba,
    /// Hidden zones that the drive counts as matching.
    hidden: u64,
}

impl FirstZones {
    /// Shows this many zones of a drive, whose other zones must be empty or conventional.
    ///
    /// # Panics
    /// For no zones, more than the drive has, or only a part of its conventional zones beside
    /// others.
    #[must_use]
    pub fn new(drive: Box<dyn Drive>, zone_count: u32) -> FirstZones {
        let geometry = part_of(drive.geometry(NamespaceId::FIRST), zone_count);
        FirstZones { drive, namespaces: Namespaces::single(geometry), reports: BTreeMap::new(), refused: Vec::new() }
    }

    /// Whether a drive can show so many zones: at least one and, if it has both kinds, one that is
    /// not conventional.
    fn can_show(whole: &Geometry, zone_count: u32) -> bool {
        let is_mixed = (1..whole.zone_count).contains(&whole.conventional_zone_count);
        let least = if is_mixed { whole.conventional_zone_count + 1 } else { 1 };
        (least..=whole.zone_count).contains(&zone_count)
    }

    fn drive(&self) -> &dyn Drive {
        &*self.drive
    }

    fn drive_mut(&mut self) -> &mut dyn Drive {
        &mut *self.drive
    }

    fn shown(&self) -> &Geometry {
        self.geometry(NamespaceId::FIRST)
    }

    /// The status of a command that the drive would carry out beyond the end. The drive itself
    /// refuses lengths that are out of range, which comes first.
    fn refusal(&self, operation: &Operation) -> Option<Status> {
        let (shown, blocks) = (self.shown(), self.shown().namespace_blocks());
        let is_beyond = |start: Lba, blocks_of: Blocks| start.0.saturating_add(blocks_of.0) > blocks.0;
        let is_refused = match operation {
            Operation::Read { start, blocks } | Operation::Write { start, blocks, .. } => {
                (1..=shown.max_transfer_blocks.0).contains(&blocks.0) && is_beyond(*start, *blocks)
            }
            Operation::WriteZeroes { start, blocks } => blocks.0 > 0 && is_beyond(*start, *blocks),
            Operation::Append { zone_start, blocks, .. } => {
                (1..=shown.max_append_blocks.0).contains(&blocks.0) && is_beyond(*zone_start, Blocks(1))
            }
            Operation::Deallocate { ranges } => {
                let is_valid = ranges.len() <= DEALLOCATE_RANGES_MAX && ranges.iter().all(|range| range.blocks.0 > 0);
                is_valid && ranges.iter().any(|range| is_beyond(range.start, range.blocks))
            }
            Operation::ManageZones { target: ZoneTarget::Zone(lba), .. } => is_beyond(*lba, Blocks(1)),
            Operation::ReportZones { start, .. } => is_beyond(*start, Blocks(1)),
            Operation::ManageZones { .. } | Operation::Flush | Operation::ReadChangedZones => false,
        };
        is_refused.then_some(Status::LbaOutOfRange)
    }

    fn report(&self, filter: ReportFilter, partial: bool) -> Report {
        let (shown, whole) = (self.shown(), self.drive.geometry(NamespaceId::FIRST));
        let is_hidden_reported = matches!(filter, ReportFilter::All | ReportFilter::State(ZoneState::Empty));
        let hidden = if is_hidden_reported && !partial { whole.zone_count - shown.zone_count } else { 0 };
        Report { end: Lba(u64::from(shown.zone_count) * shown.zone_size_blocks.0), hidden: hidden.into() }
    }

    /// Removes hidden zones from a completion.
    fn shown_of(&mut self, mut completion: Completion) -> Completion {
        let report = self.reports.remove(&completion.id);
        match (&mut completion.outcome, report) {
            (Outcome::Report(found), Some(Report { end, hidden })) => {
                let all = found.zones.len() as u64;
                found.zones.retain(|zone| zone.start < end);
                let left = found.zones.len() as u64;
                let is_partial = found.matching_zones == all && hidden == 0;
                found.matching_zones = if is_partial { left } else { found.matching_zones - hidden };
            }
            (Outcome::ChangedZones(list), _) => {
                let zone_count = self.namespaces.geometry(NamespaceId::FIRST).map_or(0, |it| it.zone_count);
                list.zones.retain(|zone| zone.0 < zone_count);
            }
            _ => {}
        }
        completion
    }
}

/// The geometry of the first zones.
fn part_of(whole: &Geometry, zone_count: u32) -> Geometry {
    assert!(FirstZones::can_show(whole, zone_count), "a drive shows between one and all of its zones");
    let conventional_zone_count = whole.conventional_zone_count.min(zone_count);
    Geometry { zone_count, conventional_zone_count, ..whole.clone() }
}

impl ZonedDevice for FirstZones {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if command.namespace != NamespaceId::FIRST {
            return self.drive.submit(now, command);
        }
        if let Some(status) = self.refusal(&command.operation) {
            self.refused.push(Completion::of(command.id, status));
            return Ok(());
        }
        let report = match command.operation {
            Operation::ReportZones { filter, partial, .. } => Some((command.id, self.report(filter, partial))),
            _ => None,
        };
        self.drive.submit(now, command)?;
        self.reports.extend(report);
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.refused.drain(..).for_each(|refused| completions.push(refused));
        let mut ended = CompletionQueue::new();
        self.drive.poll(now, &mut ended);
        while let Some(completion) = ended.pop() {
            let shown = self.shown_of(completion);
            completions.push(shown);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.refused.is_empty() { self.drive.next_timeout() } else { Some(Instant::ZERO) }
    }
}

impl Drive for FirstZones {
    as_the_drive_below!(drive, drive_mut);

    fn facts(&self) -> DriveFacts {
        let mut facts = self.drive.facts();
        let whole = self.drive.geometry(NamespaceId::FIRST);
        let hidden = whole.zone_count - self.shown().zone_count;
        let state = if whole.conventional_zone_count > 0
            && self.shown().conventional_zone_count < whole.conventional_zone_count
        {
            ZoneState::NotWritePointer
        } else {
            ZoneState::Empty
        };
        for (_, zones) in facts.zones_by_state.iter_mut().filter(|(of, _)| *of == state) {
            *zones = zones.saturating_sub(hidden);
        }
        facts.zones_by_state.retain(|(_, zones)| *zones > 0);
        facts
    }

    fn visit_zones(&self, visit: &mut dyn FnMut(ZoneState, Blocks)) {
        let mut left = self.shown().zone_count;
        self.drive.visit_zones(&mut |state, written| {
            if left > 0 {
                left -= 1;
                visit(state, written);
            }
        });
    }

    fn whole_geometry(&self) -> Option<&Geometry> {
        Some(self.drive.geometry(NamespaceId::FIRST))
    }

    fn show_zones(&mut self, zone_count: u32) {
        let geometry = part_of(self.drive.geometry(NamespaceId::FIRST), zone_count);
        assert!(geometry.zone_count >= self.shown().zone_count, "zones in use are not hidden");
        self.namespaces.resize(NamespaceId::FIRST, geometry);
    }

    fn close(&mut self, now: Instant) {
        self.drive.close(now);
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::reference::{CommandSource, ReferenceDevice};
    use zonda_zoned::{PayloadKind, Prng, ZoneAction};

    use super::*;
    use crate::MemoryDrive;

    fn zoned(zone_count: u32) -> Geometry {
        Geometry { zone_count, ..Geometry::tiny() }
    }

    /// Executes one command.
    fn execute(drive: &mut FirstZones, command: Command) -> Completion {
        let mut completions = CompletionQueue::new();
        drive.submit(Instant::ZERO, command).expect("the queue is empty");
        drive.poll(Instant::ZERO, &mut completions);
        completions.pop().expect("it completes at once")
    }

    #[test]
    fn a_drive_that_shows_a_part_is_as_a_drive_of_this_size_also_after_it_has_grown() {
        for seed in 0..20 {
            let mut drive = FirstZones::new(Box::new(MemoryDrive::new(zoned(12), u64::MAX)), 5);
            for zone_count in [5, 6, 12] {
                drive.show_zones(zone_count);
                let geometry = zoned(zone_count);
                assert_eq!(*drive.geometry(NamespaceId::FIRST), geometry);
                let all = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All };
                execute(&mut drive, Command::new(CommandId(0), NamespaceId::FIRST, all));
                let mut oracle = ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes);
                let mut source = CommandSource::new(&geometry, PayloadKind::Bytes, Prng::new(seed));
                for _ in 0..400 {
                    let command = source.next(&oracle);
                    let shown = format!("{:.200}", format!("{:?}", command.operation));
                    assert_eq!(execute(&mut drive, command.clone()), oracle.execute(&command), "{seed}: {shown}");
                }
                let facts = drive.facts().zones_by_state.iter().map(|(_, zones)| *zones).sum::<u32>();
                assert_eq!(facts, zone_count, "hidden zones are not counted");
            }
        }
    }

    #[test]
    fn a_drive_shows_at_least_one_zone_and_all_conventional_ones_beside_others() {
        let mixed = Geometry { conventional_zone_count: 2, ..zoned(8) };
        let conventional = Geometry { conventional_zone_count: 8, ..zoned(8) };
        let possible =
            |whole: &Geometry| (0..10).filter(|zones| FirstZones::can_show(whole, *zones)).collect::<Vec<u32>>();
        assert_eq!(possible(&zoned(8)), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(possible(&mixed), [3, 4, 5, 6, 7, 8]);
        assert_eq!(possible(&conventional), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
