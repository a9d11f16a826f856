//! A request ends: its command makes progress, or the state of the zone is read again.

use bytes::{Bytes, BytesMut};
use zonda_zoned::{BlockBuffer, Completion, Key, Outcome, Payload, Status, ZoneIndex, ZoneState};

use super::parts::{Part, Work};
use super::{Answer, FLUSHES_FROM, Machine, RawAction, RawError, RequestId, Run, Trust};

impl Machine {
    /// A request has ended.
    pub(crate) fn on_completion(&mut self, id: RequestId, result: Result<Answer, RawError>) {
        if let Err(error) = &result {
            self.note_error(error);
        }
        if id.0 >= FLUSHES_FROM {
            self.end_flush(id, result);
        } else {
            let key = Machine::key_of(id);
            assert!(self.parts.get(key).is_running, "a part that ends was started");
            self.end_part(key, result);
        }
        self.start_ready();
    }

    fn note_error(&mut self, error: &RawError) {
        if error.is_removed && !self.is_removed {
            self.is_removed = true;
            self.warn(format!("the drive is missing, every command fails from now on: {}", error.why));
        }
    }

    fn end_flush(&mut self, id: RequestId, result: Result<Answer, RawError>) {
        let place = self.flushes.iter().position(|(known, _)| *known == id).expect("a flush ends once");
        let (_, run) = self.flushes.swap_remove(place);
        if let Err(error) = &result {
            self.media_errors += 1;
            self.warn(format!("a flush failed: {}", error.why));
        }
        match run {
            None => self.shutdown = Some(result.map(drop).map_err(|error| error.why)),
            Some(run) => self.end_share(run, result.map_or_else(|error| error.status, |_| Status::Success)),
        }
    }

    /// A part ends that was not passed to the drive.
    pub(super) fn end_unstarted(&mut self, key: Key<Part>, status: Status) {
        let part = self.parts.remove(key);
        if let Some(run) = part.run {
            self.end_share(run, status);
        }
    }

    pub(super) fn end_part(&mut self, key: Key<Part>, result: Result<Answer, RawError>) {
        if let Err(error) = &result {
            self.on_failed(key, error);
        }
        let part = self.parts.remove(key);
        let zone = part.zone;
        let status = match result {
            Err(error) => error.status,
            Ok(answer) => {
                self.on_success(&part, answer);
                Status::Success
            }
        };
        if let Some(run) = part.run {
            self.end_share(run, status);
        }
        if status != Status::Success && !matches!(part.work, Work::Report | Work::Nothing) {
            self.report_again(zone);
        }
    }

    fn on_success(&mut self, part: &Part, answer: Answer) {
        match (&part.work, answer) {
            (Work::Read { place }, Answer::Data(data)) => {
                let run = part.run.expect("reads are of hosts");
                self.runs[run].read.push((*place, data));
            }
            (Work::Append { .. }, Answer::Placed(lba)) => {
                let run = part.run.expect("appends are of hosts");
                self.runs[run].outcome = Outcome::Appended(lba);
            }
            (Work::Report, Answer::Zone(found)) => self.on_report(part.zone, &found),
            (Work::Manage(RawAction::Reset), _) => self.trust[part.zone.as_usize()] = Trust::Sure,
            _ => {}
        }
    }

    /// The state of the zone is not known any more, if the request would have changed it.
    fn on_failed(&mut self, key: Key<Part>, error: &RawError) {
        let part = self.parts.get(key);
        let (zone, is_read) = (part.zone, matches!(part.work, Work::Read { .. }));
        if matches!(part.work, Work::Report) {
            self.warn(format!("zone {zone} cannot be reported: {}", error.why));
            return;
        }
        self.media_errors += 1;
        let kind = match &part.work {
            Work::Read { .. } => "a read",
            Work::Write { .. } => "a write",
            Work::Append { .. } => "an append",
            Work::Deallocate => "a deallocation",
            _ => "a zone management command",
        };
        let blocks = if part.end == u64::MAX { String::new() } else { format!(" at block {}", part.first) };
        self.warn(format!("{kind} of zone {zone}{blocks} failed: {}", error.why));
        let is_conventional = zone.0 < self.table.geometry().conventional_zone_count;
        if !is_read && !is_conventional && !matches!(self.parts.get(key).work, Work::Deallocate) {
            self.parts.doom_behind(key);
            let is_write = self.parts.get(key).is_write();
            let trust = &mut self.trust[zone.as_usize()];
            if *trust != Trust::Unknown {
                *trust = if is_write { Trust::Suspect } else { Trust::Unknown };
            }
        }
    }

    /// Reads the state of a sequential zone again, once the parts before have ended.
    pub(super) fn report_again(&mut self, zone: ZoneIndex) {
        let is_conventional = zone.0 < self.table.geometry().conventional_zone_count;
        let is_reported = self.parts.of_zone(zone).any(|part| matches!(part.work, Work::Report));
        if !is_conventional && !is_reported && !self.is_removed {
            self.parts.add(Part::new(None, zone, 0, 0, Work::Report), false);
        }
    }

    /// Believes the drive about a zone.
    fn on_report(&mut self, zone: ZoneIndex, found: &super::FoundZone) {
        let known = self.table.zone(zone);
        if matches!(found.state, ZoneState::ReadOnly | ZoneState::Offline) {
            if known.state != found.state {
                self.table.degrade(zone, found.state);
                self.warn(format!("zone {zone} is {} now", found.state));
            }
            self.trust[zone.as_usize()] = Trust::Sure;
            return;
        }
        if self.trust[zone.as_usize()] == Trust::Sure {
            return;
        }
        // A reset that follows makes the table right.
        let follows = self.parts.of_zone(zone).any(|part| matches!(part.work, Work::Manage(RawAction::Reset)));
        if follows || self.adopt(zone, found) {
            self.trust[zone.as_usize()] = Trust::Sure;
        }
    }

    /// One part of a command has ended.
    pub(super) fn end_share(&mut self, key: Key<Run>, status: Status) {
        let run = &mut self.runs[key];
        if run.status == Status::Success {
            run.status = status;
        }
        run.parts_left -= 1;
        if run.parts_left > 0 {
            return;
        }
        let mut run = self.runs.remove(key);
        if run.status != Status::Success {
            self.completions.push_back(Completion::of(run.id, run.status));
            return;
        }
        if !run.read.is_empty() {
            run.outcome = Outcome::Data(Payload::Bytes(Box::new(self.assembled(&mut run))));
        }
        self.completions.push_back(Completion { id: run.id, status: run.status, outcome: run.outcome });
    }

    /// The contents of a read: its pieces, and zeros between them.
    fn assembled(&self, run: &mut Run) -> BlockBuffer {
        let geometry = self.table.geometry();
        let (block_bytes, metadata_bytes) = (geometry.block_size_bytes as usize, usize::from(geometry.metadata_bytes));
        let blocks = run.blocks.0 as usize;
        if run.read.len() == 1 && run.read[0].1.data.len() == blocks * block_bytes {
            return run.read.remove(0).1;
        }
        let assembled = |each: usize, of: fn(&BlockBuffer) -> &Bytes| {
            let mut bytes = BytesMut::zeroed(blocks * each);
            for (place, piece) in &run.read {
                let piece = of(piece);
                bytes[*place as usize * each..][..piece.len()].copy_from_slice(piece);
            }
            bytes.freeze()
        };
        BlockBuffer {
            data: assembled(block_bytes, |buffer| &buffer.data),
            metadata: assembled(metadata_bytes, |buffer| &buffer.metadata),
        }
    }
}
