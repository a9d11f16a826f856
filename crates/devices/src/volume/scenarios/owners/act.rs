//! The random actions on programs, drives and directories.

use std::fs;

use zonda_zoned::Prng;

use super::testbed::{Stage, State, Testbed};
use crate::mock;
use crate::volume::VOLUME_FILE;

/// An action.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Start,
    Stop,
    Kill,
    Pause,
    Wake,
    TakeOver,
    CutOff,
    Silence,
    Partition,
    Reconnect,
    Fail,
    Repair,
    Copy,
    Write,
    Read,
    Flush,
}

const ACTIONS: [(Action, u64); 16] = [
    (Action::Start, 10),
    (Action::Stop, 2),
    (Action::Kill, 4),
    (Action::Pause, 4),
    (Action::Wake, 6),
    (Action::TakeOver, 5),
    (Action::CutOff, 3),
    (Action::Silence, 2),
    (Action::Partition, 4),
    (Action::Reconnect, 4),
    (Action::Fail, 2),
    (Action::Repair, 3),
    (Action::Copy, 1),
    (Action::Write, 16),
    (Action::Read, 16),
    (Action::Flush, 2),
];

/// The random weights of the actions in one run: some are zero, some much greater than others, so
/// that runs differ (swarm testing).
pub(super) fn swarm(prng: &mut Prng) -> Vec<u64> {
    let mut often = |(action, weight): &(Action, u64)| match action {
        Action::Start | Action::TakeOver | Action::Write | Action::Read => weight * (1 + prng.below(3)),
        _ => weight * *prng.pick(&[0, 1, 1, 4]).expect("the list is not empty"),
    };
    ACTIONS.iter().map(&mut often).collect()
}

impl Stage {
    /// Executes the next action.
    pub(super) fn act(&self) {
        if self.follow_plan() {
            return;
        }
        let (action, at) = {
            let mut testbed = self.testbed.borrow_mut();
            let all: u64 = testbed.weights.iter().sum();
            let mut random = testbed.prng.below(all);
            let chosen = ACTIONS.iter().zip(&testbed.weights).find(|(_, weight)| {
                let is_it = random < **weight;
                random = random.saturating_sub(**weight);
                is_it
            });
            let action = chosen.expect("the weights cover the range").0.0;
            let programs = testbed.programs.len() as u64;
            let at = testbed.prng.below(programs) as usize;
            (action, at)
        };
        match action {
            Action::Start | Action::TakeOver => self.begin(action, at),
            _ => self.testbed.borrow_mut().act(action, at),
        }
    }

    fn begin(&self, action: Action, at: usize) {
        {
            let testbed = self.testbed.borrow();
            if !testbed.programs[at].is_down() || !testbed.may_block() {
                return;
            }
        }
        self.testbed.borrow_mut().log(format!("{at}: {action:?}"));
        // The result is in the trace.
        let _ = match action {
            Action::TakeOver => self.take_over(at, false),
            _ => self.mount(at),
        };
    }
}

impl Testbed {
    fn act(&mut self, action: Action, at: usize) {
        let drive = self.prng.below(self.drives.len() as u64) as usize;
        let is_protected = self.is_protected(None, drive);
        let stays_paused = self.stays_paused == Some(at);
        let program = &mut self.programs[at];
        match action {
            Action::Stop if program.is_up() && !program.is_paused => self.stop(at),
            Action::Kill if !program.is_down() => {
                self.coverage.kills += 1;
                self.log(format!("{at} is killed"));
                self.kill(at);
            }
            Action::Pause if matches!(program.state, State::Up { .. }) && !program.is_paused => {
                program.is_paused = true;
                self.coverage.pauses += 1;
                self.log(format!("{at} is paused"));
            }
            Action::Wake if program.is_paused && !stays_paused => {
                self.log(format!("{at} wakes"));
                self.wake(at);
            }
            Action::CutOff => {
                self.log(format!("{at} is cut off from d{drive}"));
                self.cut_off(at, drive);
            }
            Action::Silence => {
                self.log(format!("all traffic between {at} and d{drive} is dropped"));
                self.silence(at, drive);
            }
            Action::Partition => self.partition(at),
            Action::Reconnect if !(program.cut_off.is_empty() && program.silent.is_empty()) => {
                self.log(format!("{at} reaches all drives"));
                self.reconnect(at);
            }
            Action::Fail if self.failing.is_empty() && !is_protected => {
                self.failing.push(drive);
                mock::set_failing(&self.drives[drive], true);
                self.log(format!("d{drive} fails"));
            }
            Action::Repair => {
                for drive in std::mem::take(&mut self.failing) {
                    mock::set_failing(&self.drives[drive], false);
                    self.log(format!("d{drive} works again"));
                }
            }
            Action::Copy => self.copy(at),
            Action::Write | Action::Read | Action::Flush if program.is_up() => self.ask_something(action, at),
            _ => {}
        }
    }

    fn copy(&mut self, at: usize) {
        let from = self.prng.below(self.programs.len() as u64) as usize;
        self.copy_from(from, at);
    }

    /// Replaces the directory of a program that is not running by a copy of another one. Returns
    /// whether it did: a copy that restores an earlier state of the directory itself is not made,
    /// since that cannot be detected.
    pub(super) fn copy_from(&mut self, from: usize, at: usize) -> bool {
        if from == at || !self.programs[at].is_down() {
            return false;
        }
        let text = fs::read_to_string(self.programs[from].directory.join(VOLUME_FILE)).expect("it exists");
        let own_places = &self.programs[at].places;
        if own_places.iter().any(|place| text.contains(place)) {
            return false;
        }
        fs::write(self.programs[at].directory.join(VOLUME_FILE), text).expect("there is space");
        self.log(format!("{at} gets a copy of the directory of {from}"));
        true
    }

    /// Partitions the network: a program reaches some drives, and all others reach the rest.
    /// Connections are lost, or traffic is dropped silently.
    fn partition(&mut self, at: usize) {
        let side: Vec<bool> = self.drives.iter().map(|_| self.prng.chance(1, 2)).collect();
        let is_silent = self.prng.chance(1, 2);
        let how = if is_silent { "silently " } else { "" };
        self.log(format!("{at} is {how}on the side of {side:?}"));
        for program in 0..self.programs.len() {
            self.reconnect(program);
            for drive in (0..side.len()).filter(|drive| side[*drive] != (program == at)) {
                if is_silent { self.silence(program, drive) } else { self.cut_off(program, drive) }
            }
        }
    }

    pub(super) fn ask_something(&mut self, action: Action, at: usize) {
        for _ in 0..=self.prng.below(3) {
            let blocks = 1 + self.prng.below(4);
            let start = self.prng.below(super::testbed::HOST_BLOCKS - blocks);
            let value = matches!(action, Action::Write).then(|| self.next_value());
            let blocks = if matches!(action, Action::Flush) { 0 } else { blocks };
            self.ask(at, start, blocks, value);
        }
    }
}
