//! The order in which blocks reach the members' media: no member holds any block of a group, or a
//! footer, while another member lacks a durable part of the previous group. Mounts rely on that.

use std::collections::BTreeSet;

use zonda_zoned::{ZoneIndex, ZoneState};

use super::{Drive, Promise, Simulation, Violation};
use crate::MemberState;
use crate::format::SegmentHeader;
use crate::limits::METADATA_ZONES;

/// Interval of checks where each stripe is a group.
const SINGLE_STRIPES_BETWEEN_LOOKS: u64 = 8;

/// A member's progress with its zone of a segment.
#[derive(Clone, Copy, Debug)]
struct Progress {
    member: usize,
    /// Written blocks, and those of them that survive a power loss.
    written: u64,
    durable: u64,
}

impl Simulation {
    /// Checks that a power loss now would leave media as the format guarantees.
    ///
    /// # Errors
    /// The inconsistency, as [`Promise::Order`].
    pub fn check_order(&mut self) -> Result<(), Violation> {
        let mut seen = BTreeSet::new();
        for member in 0..self.drives.len() {
            for zone in METADATA_ZONES..self.drives[member].geometry().zone_count {
                let header = self.drives[member].header_of(member, zone);
                if let Some(header) = header.filter(|header| seen.insert((header.segment, header.epoch))) {
                    self.check_order_of(&header)?;
                }
            }
        }
        Ok(())
    }

    /// The same for one segment, if a member has just begun another group of it, or a footer.
    pub(super) fn check_order_after_write(&mut self, member: usize) -> Result<(), Violation> {
        let Some(zone) = self.drives[member].written_zone.take().filter(|&zone| zone >= METADATA_ZONES) else {
            return Ok(());
        };
        let Some(header) = self.drives[member].header_of(member, zone) else { return Ok(()) };
        let written = self.drives[member].count_written(zone).saturating_sub(u64::from(header.copies) + 1);
        let slot = written / u64::from(header.unit_blocks);
        let is_end = slot >= u64::from(header.stripes);
        let begins = match u64::from(header.group_stripes) {
            _ if is_end => true,
            1 => slot.is_multiple_of(SINGLE_STRIPES_BETWEEN_LOOKS),
            group => slot.is_multiple_of(group),
        };
        if begins && slot > 0 { self.check_order_of(&header) } else { Ok(()) }
    }

    fn check_order_of(&mut self, header: &SegmentHeader) -> Result<(), Violation> {
        if !self.volume.is_ready() {
            return Ok(());
        }
        let mut all = Vec::new();
        for (member, report) in self.volume.status().members.iter().enumerate() {
            let is_missing = report.state != MemberState::Active || self.absent.known >> member & 1 == 1;
            let is_left_out = is_missing || self.drives[member].is_unreliable;
            let Some(zone) = header.zones.get(member).copied().flatten().filter(|_| !is_left_out) else { continue };
            let drive = &mut self.drives[member];
            // Zones of a rebuild are written independently.
            let own = drive.header_of(member, zone);
            if own.is_some_and(|own| (own.segment, own.epoch) == (header.segment, header.epoch)) {
                let (written, durable) = (drive.count_written(zone), drive.durable_blocks(zone));
                all.push(Progress { member, written, durable });
            }
        }
        order_in(header, &all)
    }
}

fn order_in(header: &SegmentHeader, all: &[Progress]) -> Result<(), Violation> {
    let (headers, unit) = (u64::from(header.copies), u64::from(header.unit_blocks));
    let (group, stripes) = (u64::from(header.group_stripes), u64::from(header.stripes));
    let Some(first) = all.iter().max_by_key(|progress| progress.written) else { return Ok(()) };
    let slots = match first.written.checked_sub(headers + 1) {
        None => return Ok(()),
        Some(blocks) if blocks >= stripes * unit => stripes,
        Some(blocks) => blocks / unit / group * group,
    };
    let needed = headers + slots * unit;
    match all.iter().find(|progress| progress.durable < needed) {
        None => Ok(()),
        Some(behind) => {
            let what = format!(
                "segment {}: member {} has {} blocks, but on member {} only {} of the preceding {needed} are durable",
                header.segment, first.member, first.written, behind.member, behind.durable
            );
            Err(Violation::new(Promise::Order, what))
        }
    }
}

impl Drive {
    /// The header at the start of a zone, if the zone was opened with the segment.
    fn header_of(&mut self, member: usize, zone: u32) -> Option<SegmentHeader> {
        let is_dead = matches!(self.zone_state(zone), ZoneState::Offline | ZoneState::ReadOnly);
        if is_dead || self.count_written(zone) == 0 {
            return None;
        }
        let start = self.geometry().zone_start(ZoneIndex(zone));
        let header = SegmentHeader::read(&self.block(start)?).ok()?;
        let is_own = header.zones.get(member) == Some(&Some(zone)) && usize::from(header.member) == member;
        is_own.then_some(header)
    }
}
