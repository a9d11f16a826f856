//! What becomes of a command, by the slice's own table.

use zonda_zoned::zones::{WriteGrant, ZoneEffect, ZoneSnapshot};
use zonda_zoned::{
    Blocks, Lba, LbaRange, Operation, Outcome, Payload, PayloadKind, Status, ZoneIndex, ZoneState, ZoneTarget,
    ZonedDevice,
};

use super::Slice;

/// What becomes of a command. The table has changed already.
pub(super) enum Verdict {
    /// It ends here.
    Answer(Result<Outcome, Status>),
    /// It goes to the device, after a Close of the zone that made room for it.
    Pass { touched: Touched, expected: Option<Lba>, closed: Option<ZoneIndex>, undo: Undo },
    /// It goes to the device once for each of the effects that the table has noted.
    Each,
    /// It ends when all zones have been read from the device.
    Survey,
}

/// The zones, from the first to the last, that a command on the device has to do with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Touched {
    /// None.
    Nothing,
    /// It leaves their states alone.
    Looked(ZoneIndex, ZoneIndex),
    /// It changes their states or write pointers.
    Changed(ZoneIndex, ZoneIndex),
}

/// How the table gets back to before the command, if the device refuses it.
pub(super) enum Undo {
    /// It is there.
    Nothing,
    /// By putting a zone back.
    Zone(ZoneIndex, ZoneSnapshot),
    /// Not exactly: the order in which zones were implicitly opened would change.
    Impossible,
}

impl<D: ZonedDevice> Slice<D> {
    /// Applies a command to the table.
    pub(super) fn judge(&mut self, operation: &Operation) -> Verdict {
        let verdict = match operation {
            Operation::Read { start, blocks } => self
                .zones
                .check_read(*start, *blocks)
                .map(|()| self.look(&[LbaRange { start: *start, blocks: *blocks }])),
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
            Operation::Deallocate { ranges } => self.zones.check_deallocate(ranges).map(|()| self.look(ranges)),
            Operation::Flush => {
                Ok(Verdict::Pass { touched: Touched::Nothing, expected: None, closed: None, undo: Undo::Nothing })
            }
            Operation::ManageZones { action, target } => {
                self.effects.clear();
                let result = self.zones.manage(action, *target, &mut self.effects);
                result.map(|()| match target {
                    ZoneTarget::All => Verdict::Each,
                    ZoneTarget::Zone(block) => self.manage_one(*block),
                })
            }
            Operation::ReportZones { start, filter, extended, partial, descriptors_max } => self
                .zones
                .report(*start, *filter, *extended, *partial, *descriptors_max)
                .map(|report| Verdict::Answer(Ok(Outcome::Report(Box::new(report))))),
            Operation::ReadChangedZones => Ok(Verdict::Survey),
        };
        verdict.unwrap_or_else(|status| Verdict::Answer(Err(status)))
    }

    fn fits(&self, payload: &Payload, blocks: Blocks) -> bool {
        let geometry = self.zones.geometry();
        let kept = self.keeps != PayloadKind::Bytes || !matches!(payload, Payload::Fingerprints(_));
        kept && payload.fits(blocks.0, geometry.block_size_bytes, geometry.metadata_bytes)
    }

    /// Ranges that are inside the slice, in whatever order.
    fn look(&self, ranges: &[LbaRange]) -> Verdict {
        let geometry = self.zones.geometry();
        let first = ranges.iter().map(|range| range.start.0).min().unwrap_or(0);
        let last = ranges.iter().map(|range| range.start.0 + (range.blocks.0 - 1)).max().unwrap_or(0);
        let zone = |lba| geometry.zone_of(Lba(lba)).expect("the table has checked the range");
        let touched = Touched::Looked(zone(first), zone(last));
        Verdict::Pass { touched, expected: None, closed: None, undo: Undo::Nothing }
    }

    fn before_write(&self, start: Lba) -> Option<ZoneSnapshot> {
        let geometry = self.zones.geometry();
        let zone = geometry.zone_of(start).filter(|zone| zone.0 >= geometry.conventional_zone_count)?;
        Some(self.zones.snapshot(zone))
    }

    fn grant(&self, grant: &WriteGrant, blocks: Blocks, before: Option<ZoneSnapshot>) -> Verdict {
        let WriteGrant { zone, start, closed, opened, filled, .. } = *grant;
        let last = self.zones.geometry().zone_of(start + (blocks - Blocks(1))).unwrap_or(zone);
        // A zone that a write filled may have been implicitly opened, and would come back as the newest of those.
        let undo = match before {
            None => Undo::Nothing,
            Some(_) if closed.is_some() || (filled && !opened) => Undo::Impossible,
            Some(snapshot) => Undo::Zone(zone, snapshot),
        };
        Verdict::Pass { touched: Touched::Changed(zone, last), expected: Some(start), closed, undo }
    }

    fn manage_one(&self, block: Lba) -> Verdict {
        let zone = self.zones.geometry().zone_of(block).expect("the table has checked the target");
        let closed = self.effects.iter().find_map(|effect| match effect {
            ZoneEffect::Closed { zone: other } if *other != zone => Some(*other),
            _ => None,
        });
        // What has no effect is passed on as well: it is the device that has the last word on the zone.
        let undo = if self.effects.is_empty() { Undo::Nothing } else { Undo::Impossible };
        Verdict::Pass { touched: Touched::Changed(zone, zone), expected: None, closed, undo }
    }
}

/// Whether the medium of a zone in this state has given up.
pub(super) fn is_degraded(state: ZoneState) -> bool {
    matches!(state, ZoneState::ReadOnly | ZoneState::Offline)
}
