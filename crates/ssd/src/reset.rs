//! Resets that hold back programs: the mapping work of a reset excludes the programming of data.
//!
//! Such a reset waits until the units that were on their way to flash when it arrived are
//! programmed; units that fill later are held back until it has done its exclusive work. Its work
//! does not delay commands, and it programs the zone's mapping.
//! Padding maps nothing and is not held back.

use std::collections::VecDeque;

use zonda_zoned::{Duration, ZoneIndex};

use crate::events::Event;
use crate::pending::{Cause, CommandKey, Place, Work};
use crate::ssd::Ssd;

/// Work of resets, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Resets {
    /// The first is at work.
    queue: VecDeque<CommandKey>,
    stage: Stage,
    /// Programs of data that dies have and have not completed.
    programs_in_flight: u32,
    held_back: Vec<Work>,
    next_mapping_die: u16,
}

/// What the first reset does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    None,
    /// Work beside the programs before it.
    Concurrent,
    /// No work is left but the exclusive: the programs before it must end.
    Draining,
    Exclusive,
}

impl Resets {
    /// Whether programs of data are held back.
    pub(crate) fn holds_back(&self) -> bool {
        self.stage != Stage::None
    }

    pub(crate) fn check_invariants(&self) {
        assert!(self.holds_back() || self.held_back.is_empty(), "a program is held back only for a reset");
        assert!(self.stage != Stage::Exclusive || self.programs_in_flight == 0, "exclusive work is alone");
        assert!((self.stage == Stage::None) == self.queue.is_empty(), "the first reset is at work");
    }
}

impl Ssd {
    /// A reset with exclusive work arrives at its server.
    pub(crate) fn queue_reset(&mut self, command: CommandKey) {
        self.resets.queue.push_back(command);
        if self.resets.queue.len() == 1 {
            self.start_reset();
        }
    }

    fn start_reset(&mut self) {
        let Some(first) = self.resets.queue.front() else { return };
        self.buffer.begin_reset();
        let command = &self.commands[*first];
        self.enter_stage(Stage::Concurrent, command.serial_left - command.exclusive);
    }

    fn enter_stage(&mut self, stage: Stage, work: Duration) {
        self.resets.stage = stage;
        self.events.schedule(self.now + work, Event::ResetEnd);
    }

    /// The work of a stage is done.
    pub(crate) fn on_reset_end(&mut self) {
        let resets = &mut self.resets;
        match resets.stage {
            Stage::Concurrent if resets.programs_in_flight > 0 => resets.stage = Stage::Draining,
            Stage::Concurrent => self.start_exclusive(),
            Stage::Exclusive => self.end_reset(),
            stage => unreachable!("a reset does no work in stage {stage:?}"),
        }
    }

    fn start_exclusive(&mut self) {
        let first = self.resets.queue.front().expect("a reset at work is the first");
        let command = &self.commands[*first];
        let (zone, work, mapping_bytes) = (command.zone, command.exclusive, command.mapping_bytes);
        for _ in 0..mapping_bytes.div_ceil(self.timing.program_unit_bytes) {
            self.program_mapping(zone);
        }
        self.enter_stage(Stage::Exclusive, work);
    }

    /// A unit of mapping is programmed on the next die in turn.
    fn program_mapping(&mut self, zone: ZoneIndex) {
        let die = self.resets.next_mapping_die;
        self.resets.next_mapping_die = (die + 1) % self.dies.len() as u16;
        self.program_mapping_on(die, zone);
    }

    /// A unit of mapping is programmed on a die; nothing waits for it.
    pub(crate) fn program_mapping_on(&mut self, die: u16, zone: ZoneIndex) {
        self.add_work(Work {
            cause: Cause::Mapping,
            die,
            place: Place::Mapping { zone },
            host_bytes: 0,
            spilled_bytes: 0,
            pad_bytes: 0,
            pages_to_load: (self.timing.program_unit_bytes / self.timing.read_unit_bytes) as u32,
            group: 0,
            command: None,
            padding: None,
        });
    }

    fn end_reset(&mut self) {
        let command = self.resets.queue.pop_front().expect("a reset at work is the first");
        self.resets.stage = Stage::None;
        self.buffer.end_reset();
        for work in std::mem::take(&mut self.resets.held_back) {
            self.program_data(work);
        }
        self.after_firmware(command);
        self.start_reset();
        if self.buffer.is_waited_for() {
            self.admit();
        }
    }

    /// A program of data goes to its die, unless a reset holds it back.
    pub(crate) fn program_data(&mut self, work: Work) {
        if self.resets.holds_back() {
            return self.resets.held_back.push(work);
        }
        self.resets.programs_in_flight += 1;
        self.add_work(work);
    }

    /// A die has programmed data.
    pub(crate) fn on_data_programmed(&mut self) {
        let resets = &mut self.resets;
        resets.programs_in_flight -= 1;
        if resets.programs_in_flight == 0 && resets.stage == Stage::Draining {
            self.start_exclusive();
        }
    }
}
