//! Zone management, and zones that fail: a record in the journal is synced before the
//! acknowledgement.

use zonda_zoned::zones::{ZoneEffect, ZoneSnapshot};
use zonda_zoned::{CommandId, Key, Outcome, Status, ZoneAction, ZoneIndex, ZoneState, ZoneTarget};

use crate::bugs::SeededBug;
use crate::format::Generation;
use crate::format::entry::{Entry, RecordedState, add};
use crate::format::record::Kind;
use crate::{Counters, FileOperation, ImageFile};

use super::Image;
use super::commands::CommandRun;
use super::journal::{OwnRecord, Waiter};
use super::operations::Purpose;
use super::parts::{LedgerUndo, Manage, Part, Stage, Step, Undo, Work};

impl Image {
    pub(super) fn take_management(
        &mut self,
        id: CommandId,
        action: &ZoneAction,
        target: ZoneTarget,
    ) -> Result<(), Status> {
        let before = self.snapshots(action, target);
        let mut effects = std::mem::take(&mut self.zone_effects);
        effects.clear();
        let result = self.table.manage(action, target, &mut effects);
        if result.is_ok() {
            let command = self.commands.begin(id, Outcome::None);
            for effect in &effects {
                self.take_effect(command, effect, action, &before);
            }
            self.wait_for_others(command, target, &effects);
            self.commands.end_part(command, Status::Success);
        }
        self.zone_effects = effects;
        result
    }

    /// Snapshots of the zones that the action may change, from before it, in the order of the
    /// zones.
    fn snapshots(&self, action: &ZoneAction, target: ZoneTarget) -> Vec<(ZoneIndex, ZoneSnapshot)> {
        if matches!(action, ZoneAction::Close | ZoneAction::Open { zrwa: false }) {
            return Vec::new();
        }
        let all = target == ZoneTarget::All;
        self.targeted(target)
            .filter(|&zone| !all || !matches!(self.table.zone(zone).state, ZoneState::Empty | ZoneState::Offline))
            .map(|zone| (zone, self.table.snapshot(zone)))
            .collect()
    }

    /// The zones that management of this target may change.
    fn targeted(&self, target: ZoneTarget) -> impl Iterator<Item = ZoneIndex> + use<> {
        let zones = match target {
            ZoneTarget::Zone(lba) => self.spec.geometry.zone_of(lba).map_or(0..0, |zone| zone.0..zone.0 + 1),
            ZoneTarget::All => self.layout.conventional..self.layout.zones,
        };
        zones.map(ZoneIndex)
    }

    /// Turns a change of one zone into a part.
    fn take_effect(
        &mut self,
        command: Key<CommandRun>,
        effect: &ZoneEffect,
        action: &ZoneAction,
        before: &[(ZoneIndex, ZoneSnapshot)],
    ) {
        // Changes by the controller beside the action need no record, and no command waits for
        // them.
        let beside = match effect {
            ZoneEffect::Closed { .. } => !matches!(action, ZoneAction::Close),
            ZoneEffect::Opened { .. } => !matches!(action, ZoneAction::Open { .. }),
            _ => false,
        };
        if beside {
            return;
        }
        let zone = effect.zone();
        let view = self.table.zone(zone);
        let zrwa =
            matches!(action, ZoneAction::Open { zrwa: true } | ZoneAction::SetDescriptorExtension { zrwa: true, .. });
        let (kind, steps): (Option<Kind>, &'static [Step]) = match effect {
            ZoneEffect::Opened { .. } if zrwa && self.bug.has(SeededBug::MissingHole) => {
                (Some(Kind::Zrwa), &[Step::Record])
            }
            ZoneEffect::Opened { .. } if zrwa => (Some(Kind::Zrwa), &[Step::Punch, Step::Sync, Step::Record]),
            ZoneEffect::ExtensionSet { .. } if zrwa => {
                (Some(Kind::Extension), &[Step::Punch, Step::Sync, Step::Record])
            }
            ZoneEffect::ExtensionSet { .. } => (Some(Kind::Extension), &[Step::Record]),
            ZoneEffect::Finished { .. } if self.bug.has(SeededBug::UnsyncedFinish) => {
                (Some(Kind::Finish), &[Step::Record])
            }
            ZoneEffect::Finished { .. } => (Some(Kind::Finish), &[Step::Sync, Step::Record]),
            ZoneEffect::Reset { .. } if self.bug.has(SeededBug::EarlyHole) => {
                (Some(Kind::Reset), &[Step::Punch, Step::Record])
            }
            ZoneEffect::Reset { .. } => (Some(Kind::Reset), &[Step::Record, Step::Punch]),
            ZoneEffect::Offlined { .. } => (Some(Kind::Offline), &[Step::Record, Step::Punch]),
            ZoneEffect::Committed { .. } => (Some(Kind::Commit), &[Step::Record]),
            ZoneEffect::Opened { .. } | ZoneEffect::Closed { .. } => (None, &[]),
        };
        let generation = self.zones[zone.as_usize()].generation;
        let snapshot = before.binary_search_by_key(&zone, |(zone, _)| *zone).ok().map(|place| before[place].1.clone());
        let extension = match action {
            ZoneAction::SetDescriptorExtension { extension, .. } => extension.clone(),
            _ => Box::default(),
        };
        let written = match effect {
            ZoneEffect::Reset { written_blocks, .. } => written_blocks.0,
            _ => view.written_blocks.0,
        };
        let manage = Manage {
            kind,
            steps,
            at: 0,
            pointer: view.write_pointer_blocks.0,
            written,
            zrwa,
            extension,
            degrades: false,
            undo: snapshot
                .filter(|_| kind.is_some())
                .map(|snapshot| Box::new(Undo { snapshot, generation, ledger: None })),
        };
        let run = &mut self.zones[zone.as_usize()];
        match effect {
            ZoneEffect::Reset { .. } => {
                if !self.bug.has(SeededBug::KeptGeneration) {
                    run.generation = run.generation.next();
                }
                run.had_zrwa = false;
            }
            _ => run.had_zrwa |= zrwa && kind.is_some(),
        }
        let takes = matches!(kind, Some(Kind::Zrwa | Kind::Extension));
        let key = self.add_manage(Some(command), zone, generation, manage, takes);
        if !view.state.is_active() && kind.is_some() {
            self.parts.frees_resource(key);
        }
    }

    fn add_manage(
        &mut self,
        command: Option<Key<CommandRun>>,
        zone: ZoneIndex,
        generation: Generation,
        manage: Manage,
        takes: bool,
    ) -> Key<Part> {
        let capacity = self.layout.capacity;
        let part = Part::new(command, zone, generation, 0, capacity, Work::Manage(Box::new(manage)));
        self.add_waiting(part, takes)
    }

    /// A command that finds a zone in the requested state waits for the commands that caused this
    /// state.
    fn wait_for_others(&mut self, command: Key<CommandRun>, target: ZoneTarget, effects: &[ZoneEffect]) {
        for zone in self.targeted(target) {
            if !self.parts.has_any(zone) {
                continue;
            }
            if !effects.iter().any(|effect| effect.zone() == zone) {
                self.wait_for_management(command, zone);
            }
        }
    }

    /// The command waits for all earlier management of the zone.
    pub(super) fn wait_for_management(&mut self, command: Key<CommandRun>, zone: ZoneIndex) {
        let generation = self.zones[zone.as_usize()].generation;
        self.add_manage(Some(command), zone, generation, Manage::waiting(), false);
    }

    pub(super) fn degrade_zone(&mut self, zone: ZoneIndex, state: ZoneState) {
        let before = self.table.zone(zone);
        self.table.degrade(zone, state);
        if before.state == ZoneState::Offline {
            return;
        }
        let (kind, steps): (Kind, &'static [Step]) = if state == ZoneState::Offline {
            (Kind::Offline, &[Step::Record, Step::Punch])
        } else {
            (Kind::ReadOnly, &[Step::Record])
        };
        let (pointer, written) = (before.write_pointer_blocks.0, before.written_blocks.0);
        let manage = Manage { kind: Some(kind), steps, pointer, written, degrades: true, ..Manage::waiting() };
        let generation = self.zones[zone.as_usize()].generation;
        let key = self.add_manage(None, zone, generation, manage, false);
        self.parts.frees_resource(key);
    }

    /// Records a zone that became full without being written to its capacity.
    pub(super) fn note_finished(&mut self, zone: ZoneIndex) {
        let view = self.table.zone(zone);
        let (pointer, written) = (view.write_pointer_blocks.0, view.written_blocks.0);
        let steps = &[Step::Sync, Step::Record];
        let manage = Manage { kind: Some(Kind::Finish), steps, pointer, written, ..Manage::waiting() };
        let generation = self.zones[zone.as_usize()].generation;
        self.add_manage(None, zone, generation, manage, false);
    }

    /// Continues a management part with its next step, or ends it.
    pub(super) fn next_step(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let zone = part.zone;
        let Work::Manage(manage) = &mut part.work else { unreachable!("management") };
        let Some(&step) = manage.steps.get(manage.at) else {
            self.end_manage(key, Status::Success);
            return;
        };
        part.stage = Stage::Files;
        match step {
            // Earlier writes to the zone may be lost, and a sync would succeed all the same.
            Step::Sync if self.flush.is_broken() => self.undo(key),
            Step::Record => self.record_management(key),
            Step::Punch => {
                let next = ZoneIndex(zone.0 + 1);
                part.out = 2;
                let (offset, end) = (self.layout.data_offset(zone, 0), self.layout.data_offset(next, 0));
                let hole = FileOperation::PunchHole { file: ImageFile::Data, offset, length: end - offset };
                self.operations.issue(Purpose::Data(key), hole);
                let (offset, end) = (self.layout.tag_offset(zone, 0), self.layout.tag_offset(next, 0));
                let hole = FileOperation::PunchHole { file: ImageFile::Tags, offset, length: end - offset };
                self.operations.issue(Purpose::Tags(key), hole);
            }
            Step::Sync => {
                part.out = 2;
                self.operations.issue(Purpose::Data(key), FileOperation::Sync { file: ImageFile::Data });
                self.operations.issue(Purpose::Tags(key), FileOperation::Sync { file: ImageFile::Tags });
            }
        }
    }

    pub(super) fn on_step_files(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let mut failed = std::mem::take(&mut part.failed);
        let Work::Manage(manage) = &mut part.work else { unreachable!("management") };
        let recorded = manage.steps[..manage.at].contains(&Step::Record);
        // The operating system reports each failure once: to another sync in progress, perhaps, and
        // not to this one.
        failed |= manage.steps[manage.at] == Step::Sync && self.flush.is_broken();
        // The record is valid: without its hole a zone only occupies space.
        if failed && !recorded {
            self.undo(key);
            return;
        }
        self.manage_mut(key).at += 1;
        self.next_step(key);
    }

    fn record_management(&mut self, key: Key<Part>) {
        let record = self.record_of(key);
        let part = &mut self.parts[key];
        part.stage = Stage::Journal;
        let (kind, zone, padding) = (record.kind, part.zone, record.c);
        let ledger = LedgerUndo {
            entry: self.ledger.entries[zone.as_usize()],
            extension: self.ledger.extensions.get(&zone).cloned(),
            counters_added: Counters::default(),
            on_file: self.zones[zone.as_usize()].on_file,
        };
        let before = self.ledger.counters;
        self.push_record(record, Waiter::Part(key));
        if kind == Kind::Finish {
            add(&mut self.padding_blocks, padding);
        }
        if kind == Kind::Reset {
            self.zones[zone.as_usize()].on_file = 0;
            let blocks = self.lba(zone, 0)..self.lba(ZoneIndex(zone.0 + 1), 0);
            self.intents.forget(blocks);
            if self.bug.has(SeededBug::KeptGeneration) {
                self.ledger.entries[zone.as_usize()].generation = self.zones[zone.as_usize()].generation;
            }
        }
        let counters_added = self.ledger.counters.minus(&before);
        if let Some(undo) = &mut self.manage_mut(key).undo {
            undo.ledger = Some(LedgerUndo { counters_added, ..ledger });
        }
    }

    /// The record of a management part.
    fn record_of(&self, key: Key<Part>) -> OwnRecord {
        let part = &self.parts[key];
        let Work::Manage(manage) = &part.work else { unreachable!("management") };
        let kind = manage.kind.expect("a record has a kind");
        let mut record = OwnRecord::of_zone(kind, part.zone, part.generation);
        let had_zrwa = self.ledger.entries[part.zone.as_usize()].had_zrwa;
        let on_file = self.zones[part.zone.as_usize()].on_file;
        let (pointer, written) = if had_zrwa { (manage.pointer, manage.written) } else { (on_file, on_file) };
        match kind {
            Kind::Reset | Kind::Offline => record.a = written,
            Kind::Finish => {
                let padding = if written == 0 { 0 } else { self.layout.capacity - written };
                (record.a, record.b, record.c) = (pointer, written, padding);
            }
            Kind::ReadOnly | Kind::Commit => (record.a, record.b) = (pointer, written),
            Kind::Extension => {
                record.a = u64::from(manage.zrwa);
                record.head = manage.extension.to_vec().into();
            }
            _ => {}
        }
        record
    }

    fn manage_mut(&mut self, key: Key<Part>) -> &mut Manage {
        match &mut self.parts[key].work {
            Work::Manage(manage) => manage,
            _ => unreachable!("management"),
        }
    }

    /// Called when the record of a management part is synced, or was not written.
    pub(super) fn on_management_recorded(&mut self, key: Key<Part>, recorded: bool) {
        if !recorded {
            self.undo(key);
            return;
        }
        if self.manage_mut(key).kind == Some(Kind::Reset) {
            self.zones[self.parts[key].zone.as_usize()].uncleared = false;
        }
        self.manage_mut(key).at += 1;
        self.next_step(key);
    }

    fn end_manage(&mut self, key: Key<Part>, status: Status) {
        if self.parts[key].uses_journal() {
            self.leave_journal(key);
        }
        self.end_part(key, status);
    }

    /// The part could not be recorded: the zone is rolled back, and later parts for it fail.
    fn undo(&mut self, key: Key<Part>) {
        self.roll_back_management(key);
        self.end_manage(key, Status::WriteFault);
    }

    /// As [`undo`](Image::undo), of a part that has not begun.
    pub(super) fn refuse_management(&mut self, key: Key<Part>) {
        if self.manage_mut(key).degrades {
            let record = self.record_of(key);
            self.push_note(record);
        }
        self.roll_back_management(key);
        self.end_part(key, Status::WriteFault);
    }

    /// Fails a management part that depends on a failed one. A change that the medium caused stays.
    pub(super) fn fail_doomed_management(&mut self, key: Key<Part>) {
        let zone = self.parts[key].zone;
        let manage = self.manage_mut(key);
        let state = if manage.kind == Some(Kind::Offline) { ZoneState::Offline } else { ZoneState::ReadOnly };
        let again = manage.degrades;
        self.end_part(key, Status::WriteFault);
        if again {
            self.degrade_zone(zone, state);
        }
    }

    fn roll_back_management(&mut self, key: Key<Part>) {
        let part = &mut self.parts[key];
        let zone = part.zone;
        let Work::Manage(manage) = &mut part.work else { unreachable!("management") };
        let kind = manage.kind;
        let Some(undo) = manage.undo.take() else {
            // A change that the medium caused stays, and the next checkpoint contains it.
            self.checkpointing.want();
            return;
        };
        if let Some(ledger) = &undo.ledger {
            self.ledger.entries[zone.as_usize()] = ledger.entry;
            self.ledger.counters = self.ledger.counters.minus(&ledger.counters_added);
            match &ledger.extension {
                Some(extension) => self.ledger.extensions.insert(zone, extension.clone()),
                None => self.ledger.extensions.remove(&zone),
            };
            if kind == Some(Kind::Finish) {
                self.padding_blocks -= ledger.counters_added.padding_blocks;
            }
            self.zones[zone.as_usize()].on_file = ledger.on_file;
        }
        let run = &mut self.zones[zone.as_usize()];
        run.generation = undo.generation;
        run.had_zrwa = self.ledger.entries[zone.as_usize()].had_zrwa;
        self.parts.doom_behind(key);
        self.restore_zone(zone, &undo.snapshot);
        if std::mem::take(&mut self.zones[zone.as_usize()].uncleared) {
            self.degrade_zone(zone, ZoneState::ReadOnly);
        }
    }

    /// Restores a zone, or makes it full if its resources are no longer free.
    fn restore_zone(&mut self, zone: ZoneIndex, snapshot: &ZoneSnapshot) {
        let on_file = self.zones[zone.as_usize()].on_file;
        if !self.table.restore(zone, snapshot) {
            let had_zrwa = self.zones[zone.as_usize()].had_zrwa;
            let entry = Entry { state: RecordedState::Finished, had_zrwa, ..Entry::default() };
            let (pointer, written) = if had_zrwa {
                let view = self.builder.view(snapshot);
                (view.write_pointer_blocks.0, view.written_blocks.0)
            } else {
                (on_file, on_file)
            };
            let extension = self.ledger.extensions.get(&zone).map(|extension| &extension[..]);
            let restored = self.table.restore(zone, &self.builder.zone(&entry, extension, pointer, written));
            assert!(restored, "a full zone holds no resources");
            self.note_finished(zone);
        } else if !self.zones[zone.as_usize()].had_zrwa {
            self.roll_back(zone, on_file);
        }
    }
}

impl Manage {
    /// A part that only waits for earlier ones.
    fn waiting() -> Manage {
        Manage {
            kind: None,
            steps: &[],
            at: 0,
            pointer: 0,
            written: 0,
            zrwa: false,
            extension: Box::default(),
            degrades: false,
            undo: None,
        }
    }
}

impl Counters {
    fn minus(&self, other: &Counters) -> Counters {
        Counters {
            host_written_blocks: self.host_written_blocks - other.host_written_blocks,
            padding_blocks: self.padding_blocks - other.padding_blocks,
            host_read_blocks: self.host_read_blocks - other.host_read_blocks,
            erases: self.erases - other.erases,
        }
    }
}
