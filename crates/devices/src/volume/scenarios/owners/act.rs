//! What happens to programs, drives and directories, as the seed chooses.

use std::fs;

use zonda_zoned::Prng;

use super::world::{Stage, State, World};
use crate::shelf;
use crate::volume::VOLUME_FILE;

/// What may happen, and how often.
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
    Part,
    Mend,
    Fail,
    Heal,
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
    (Action::Part, 4),
    (Action::Mend, 4),
    (Action::Fail, 2),
    (Action::Heal, 3),
    (Action::Copy, 1),
    (Action::Write, 16),
    (Action::Read, 16),
    (Action::Flush, 2),
];

/// How often each of them happens in one run: some not at all, some much more than others, so that runs differ.
pub(super) fn swarm(prng: &mut Prng) -> Vec<u64> {
    let mut often = |(action, weight): &(Action, u64)| match action {
        Action::Start | Action::TakeOver | Action::Write | Action::Read => weight * (1 + prng.below(3)),
        _ => weight * *prng.pick(&[0, 1, 1, 4]).expect("there are some"),
    };
    ACTIONS.iter().map(&mut often).collect()
}

impl Stage {
    /// The next thing that happens.
    pub(super) fn act(&self) {
        if self.follow_plan() {
            return;
        }
        let (action, at) = {
            let mut world = self.world.borrow_mut();
            let all: u64 = world.weights.iter().sum();
            let mut drawn = world.prng.below(all);
            let chosen = ACTIONS.iter().zip(&world.weights).find(|(_, weight)| {
                let is_it = drawn < **weight;
                drawn = drawn.saturating_sub(**weight);
                is_it
            });
            let action = chosen.expect("one of them").0.0;
            let programs = world.programs.len() as u64;
            let at = world.prng.below(programs) as usize;
            (action, at)
        };
        match action {
            Action::Start | Action::TakeOver => self.begin(action, at),
            _ => self.world.borrow_mut().act(action, at),
        }
    }

    fn begin(&self, action: Action, at: usize) {
        {
            let world = self.world.borrow();
            if !world.programs[at].is_down() || !world.may_block() {
                return;
            }
        }
        self.world.borrow_mut().tell(format!("{at}: {action:?}"));
        // What becomes of it is in the trace.
        let _ = match action {
            Action::TakeOver => self.take_over(at, false),
            _ => self.mount(at),
        };
    }
}

impl World {
    fn act(&mut self, action: Action, at: usize) {
        let (drives, program) = (self.drives.len() as u64, &mut self.programs[at]);
        let drive = self.prng.below(drives) as usize;
        match action {
            Action::Stop if program.is_up() && !program.is_paused => self.stop(at),
            Action::Kill if !program.is_down() => {
                self.seen.kills += 1;
                self.tell(format!("{at} is killed"));
                self.kill(at);
            }
            Action::Pause if matches!(program.state, State::Up { .. }) && !program.is_paused => {
                program.is_paused = true;
                self.seen.pauses += 1;
                self.tell(format!("{at} is paused"));
            }
            Action::Wake if program.is_paused => {
                self.tell(format!("{at} wakes"));
                self.wake(at);
            }
            Action::CutOff => {
                self.tell(format!("{at} is cut off from d{drive}"));
                self.cut_off(at, drive);
            }
            Action::Silence => {
                self.tell(format!("nothing arrives between {at} and d{drive}"));
                self.silence(at, drive);
            }
            Action::Part => self.part(at),
            Action::Mend if !(program.cut_off.is_empty() && program.silent.is_empty()) => {
                self.tell(format!("{at} reaches all drives"));
                self.mend(at);
            }
            Action::Fail if self.failing.is_empty() => {
                self.failing.push(drive);
                shelf::set_failing(&self.drives[drive], true);
                self.tell(format!("d{drive} fails"));
            }
            Action::Heal => {
                for drive in std::mem::take(&mut self.failing) {
                    shelf::set_failing(&self.drives[drive], false);
                    self.tell(format!("d{drive} is well"));
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

    /// The directory of a program that is not running becomes a copy of another one's, and says whether it does. One that brings back what
    /// the directory itself once was is not made: what it has forgotten since, nobody can tell it.
    pub(super) fn copy_from(&mut self, from: usize, at: usize) -> bool {
        if from == at || !self.programs[at].is_down() {
            return false;
        }
        let text = fs::read_to_string(self.programs[from].directory.join(VOLUME_FILE)).expect("it is there");
        let own_places = &self.programs[at].places;
        if own_places.iter().any(|place| text.contains(place)) {
            return false;
        }
        fs::write(self.programs[at].directory.join(VOLUME_FILE), text).expect("there is room");
        self.tell(format!("{at} gets a copy of the directory of {from}"));
        true
    }

    /// The network falls into two parts: a program reaches some drives, and all others reach the rest. Connections are lost, or not.
    fn part(&mut self, at: usize) {
        let side: Vec<bool> = self.drives.iter().map(|_| self.prng.chance(1, 2)).collect();
        let is_silent = self.prng.chance(1, 2);
        let how = if is_silent { "silently " } else { "" };
        self.tell(format!("{at} is {how}on the side of {side:?}"));
        for program in 0..self.programs.len() {
            self.mend(program);
            for drive in (0..side.len()).filter(|drive| side[*drive] != (program == at)) {
                if is_silent { self.silence(program, drive) } else { self.cut_off(program, drive) }
            }
        }
    }

    pub(super) fn ask_something(&mut self, action: Action, at: usize) {
        for _ in 0..=self.prng.below(3) {
            let blocks = 1 + self.prng.below(4);
            let start = self.prng.below(super::world::HOST_BLOCKS - blocks);
            let value = matches!(action, Action::Write).then(|| self.next_value());
            let blocks = if matches!(action, Action::Flush) { 0 } else { blocks };
            self.ask(at, start, blocks, value);
        }
    }
}
