//! Decides how a command is processed, by the slice's own zone table.

use zonda_zoned::zones::{WriteGrant, ZoneEffect, ZoneSnapshot};
use zonda_zoned::{
    Blocks, Lba, LbaRange, Operation, Outcome, Payload, PayloadKind, Status, ZoneIndex, ZoneState, ZoneTarget,
    ZonedDevice,
};

use super::Slice;

/// How a command is processed. The table is already updated.
pub(super) enum Decision {
    /// The slice completes it.
    Answer(Result<Outcome, Status>),
    /// It is submitted to the device, after a Close of another zone if it needs an open resource.
    Pass { touched: Touched, expected: Option<Lba>, closed: Option<ZoneIndex>, undo: Undo },
    /// It is submitted to the device once for each zone that the table has changed.
    Each,
    /// It completes after all zones are resynced with the device.
    Resync,
}

/// The zones, from the first to the last, that a command affects on the device.
#[derive(Clone, Copy, Debug)]
pub(super) enum Touched {
    /// None.
    Nothing,
    /// It does not change their states.
    Read(ZoneIndex, ZoneIndex),
    /// It changes their states or write pointers.
    Changed(ZoneIndex, ZoneIndex),
}

/// How to revert the table if the device refuses the command.
pub(super) enum Undo {
    /// The table is unchanged.
    Nothing,
    /// By restoring a zone.
    Zone(ZoneIndex, ZoneSnapshot),
    /// Impossible: the order in which zones were implicitly opened would change.
    Impossible,
}

impl<D: ZonedDevice> Slice<D> {
    /// Applies a command to the table.
    pub(super) fn decide(&mut self, operation: &Operation) -> Decision {
        let decision = match operation {
            Operation::Read { start, blocks } => self
                .zones
                .check_read(*start, *blocks)
                .map(|()| self.pass_read(&[LbaRange { start: *start, blocks: *blocks }])),
            Operation::Write { start, blocks, payload } => {
                let fits = self.fits(payload, *blocks);
                let before = self.before_write(*start);
                self.zones.write(*start, *blocks, fits).map(|grant| self.grant(&grant, *blocks, before))
            }
            Operation::WriteZeroes { start, blocks } => {
                let before = self.before_write(*start);
                self.zones.write_zeroes(*start, *blocks).map(|grant| self.grant(&grant, *blocks, before))
            }
            Operation::Append { zone_start, blocks, payload } => {
                let fits = self.fits(payload, *blocks);
                let before = self.before_write(*zone_start);
                self.zones.append(*zone_start, *blocks, fits).map(|grant| self.grant(&grant, *blocks, before))
            }
            Operation::Deallocate { ranges } => self.zones.check_deallocate(ranges).map(|()| self.pass_read(ranges)),
            Operation::Flush => {
                Ok(Decision::Pass { touched: Touched::Nothing, expected: None, closed: None, undo: Undo::Nothing })
            }
            Operation::ManageZones { action, target } => {
                self.effects.clear();
                let result = self.zones.manage(action, *target, &mut self.effects);
                result.map(|()| match target {
                    ZoneTarget::All => Decision::Each,
                    ZoneTarget::Zone(block) => self.manage_one(*block),
                })
            }
            Operation::ReportZones { start, filter, extended, partial, descriptors_max } => self
                .zones
                .report(*start, *filter, *extended, *partial, *descriptors_max)
                .map(|report| Decision::Answer(Ok(Outcome::Report(Box::new(report))))),
            Operation::ReadChangedZones => Ok(Decision::Resync),
        };
        decision.unwrap_or_else(|status| Decision::Answer(Err(status)))
    }

    fn fits(&self, payload: &Payload, blocks: Blocks) -> bool {
        let geometry = self.zones.geometry();
        let kept = self.keeps != PayloadKind::Bytes || !matches!(payload, Payload::Fingerprints(_));
        kept && payload.fits(blocks.0, geometry.block_size_bytes, geometry.metadata_bytes)
    }

    /// A command that reads or deallocates these ranges, which are inside the slice.
    fn pass_read(&self, ranges: &[LbaRange]) -> Decision {
        let geometry = self.zones.geometry();
        let first = ranges.iter().map(|range| range.start.0).min().unwrap_or(0);
        let last = ranges.iter().map(|range| range.start.0 + (range.blocks.0 - 1)).max().unwrap_or(0);
        let zone = |lba| geometry.zone_of(Lba(lba)).expect("the table has checked the range");
        let touched = Touched::Read(zone(first), zone(last));
        Decision::Pass { touched, expected: None, closed: None, undo: Undo::Nothing }
    }

    fn before_write(&self, start: Lba) -> Option<ZoneSnapshot> {
        let geometry = self.zones.geometry();
        let zone = geometry.zone_of(start).filter(|zone| zone.0 >= geometry.conventional_zone_count)?;
        Some(self.zones.snapshot(zone))
    }

    fn grant(&self, grant: &WriteGrant, blocks: Blocks, before: Option<ZoneSnapshot>) -> Decision {
        let WriteGrant { zone, start, closed, opened, filled, .. } = *grant;
        let last = self.zones.geometry().zone_of(start + (blocks - Blocks(1))).unwrap_or(zone);
        // A zone that a write has filled may have been implicitly opened, and would be restored as
        // the newest of those.
        let undo = match before {
            None => Undo::Nothing,
            Some(_) if closed.is_some() || (filled && !opened) => Undo::Impossible,
            Some(snapshot) => Undo::Zone(zone, snapshot),
        };
        Decision::Pass { touched: Touched::Changed(zone, last), expected: Some(start), closed, undo }
    }

    fn manage_one(&self, block: Lba) -> Decision {
        let zone = self.zones.geometry().zone_of(block).expect("the table has checked the target");
        let closed = self.effects.iter().find_map(|effect| match effect {
            ZoneEffect::Closed { zone: other } if *other != zone => Some(*other),
            _ => None,
        });
        // A command without effect is passed on as well: the state of the device is authoritative.
        let undo = if self.effects.is_empty() { Undo::Nothing } else { Undo::Impossible };
        Decision::Pass { touched: Touched::Changed(zone, zone), expected: None, closed, undo }
    }
}

/// Whether a zone in this state is degraded.
pub(super) fn is_degraded(state: ZoneState) -> bool {
    matches!(state, ZoneState::ReadOnly | ZoneState::Offline)
}
