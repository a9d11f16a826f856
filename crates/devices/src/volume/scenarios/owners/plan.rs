//! Sequences of actions that random ones seldom make up: some runs follow one, with random actions between its steps.
//!
//! A step that has to have an effect (a program mounts, or has stopped) is repeated until it has; a plan that comes to nothing is abandoned,
//! and the run goes on without it.

use std::collections::VecDeque;

use zonda_zoned::Prng;

use super::act::Action;
use super::world::{Program, Stage, State, World};
use crate::shelf;

/// Actions of a run before its plan begins, at most.
const ACTIONS_BEFORE_MAX: u64 = 30;
/// So often a step is repeated.
const ATTEMPTS_MAX: u32 = 8;
/// Commands of a program from the beginning of a mount until it loses drives, at most.
const COMMANDS_MAX: u64 = 60;
/// So often that is tried.
const STARTS: u32 = 3;

/// What a run follows.
#[derive(Debug)]
pub(super) struct Plan {
    prng: Prng,
    /// It begins when the run has so many actions left.
    begins_at: u32,
    steps: VecDeque<Step>,
    /// How often the next step was taken.
    attempts: u32,
    /// A step is being taken: what happens meanwhile is random.
    is_busy: bool,
}

/// A step of a plan. Programs and drives are named by their numbers.
#[derive(Clone, Debug)]
enum Step {
    Start(usize),
    Stop(usize),
    Pause(usize),
    Wake(usize),
    TakeOver(usize),
    /// All programs are killed: none is left that might go on where it was.
    KillAll,
    /// The members that are reserved for a directory are released.
    Release(usize),
    /// The directory of the second program becomes a copy of the first one's.
    Copy(usize, usize),
    /// A program starts, and it does not matter what becomes of it.
    TryToStart(usize),
    /// The program is cut off from these drives, and reaches all others.
    CutOff(usize, Vec<usize>),
    /// The same, after so many commands.
    CutOffAfter(usize, u32, Vec<usize>),
    /// These drives fail, and no others.
    Fail(Vec<usize>),
    Write(usize),
    /// Every block that hosts use is read.
    ReadAll(usize),
    /// Whatever was asked of the program has been answered.
    Await(usize),
}

impl Plan {
    /// The plan of a run, which may be empty. Any `data` of the `members` are enough to use the volume; they come before spares in `drives`.
    pub(super) fn draw(
        mut prng: Prng,
        actions: u32,
        programs: usize,
        members: usize,
        data: usize,
        drives: usize,
    ) -> Plan {
        let one = prng.below(programs as u64) as usize;
        let other = (one + 1 + prng.below(programs as u64 - 1) as usize) % programs;
        let begins_at = actions.saturating_sub(prng.below(ACTIONS_BEFORE_MAX) as u32);
        let first = prng.below(members as u64) as usize;
        // Some members, as many as are enough or one less, and all other drives.
        let split = |count: usize| -> (Vec<usize>, Vec<usize>) {
            (0..drives).partition(|drive| *drive < members && (*drive + members - first) % members < count)
        };
        let has_halves = members >= 2 * data;
        let (enough, rest) = split(data);
        let (too_few, most) = split(data - 1);
        let steps = match prng.below(8) {
            0 if has_halves => outdated_members_alone(one, other, &enough, &rest),
            1 if has_halves => newest_members_lost(&mut prng, one, other, &enough, &rest),
            2 => paused_for_an_owner(one, other),
            3 if data > 1 => left_with_too_few(one, other, &too_few, &most),
            _ => Vec::new(),
        };
        Plan { prng, begins_at, steps: steps.into(), attempts: 0, is_busy: false }
    }
}

/// Nothing is reserved, and the second directory is a copy of the first one, from which the volume was used last.
///
/// What was taken over once stays reserved, and so do the members of a program that was killed: without this no member is free for long.
fn released(one: usize, other: usize) -> Vec<Step> {
    vec![
        Step::CutOff(one, Vec::new()),
        Step::CutOff(other, Vec::new()),
        Step::Fail(Vec::new()),
        Step::KillAll,
        Step::TakeOver(one),
        Step::Release(one),
        Step::Start(one),
        Step::Stop(one),
        Step::Copy(one, other),
    ]
}

/// Some members fail while a program uses the volume, and are well again when it has stopped.
fn used_without(at: usize, outdated: &[usize]) -> [Step; 6] {
    [
        Step::Start(at),
        Step::Fail(outdated.to_vec()),
        Step::Write(at),
        Step::Await(at),
        Step::Stop(at),
        Step::Fail(Vec::new()),
    ]
}

/// A copy of the directory uses the volume without some members. Then the directory is used with these alone.
fn outdated_members_alone(one: usize, other: usize, outdated: &[usize], rest: &[usize]) -> Vec<Step> {
    let mut steps = released(one, other);
    steps.extend(used_without(other, outdated));
    steps.extend([Step::CutOff(one, rest.to_vec()), Step::Start(one), Step::ReadAll(one), Step::Await(one)]);
    steps
}

/// The volume is used without some members. A copy of the directory that is older than that starts with all of them, and loses the others while
/// it mounts.
fn newest_members_lost(prng: &mut Prng, one: usize, other: usize, outdated: &[usize], rest: &[usize]) -> Vec<Step> {
    let mut steps = released(one, other);
    steps.extend(used_without(one, outdated));
    for _ in 0..STARTS {
        let commands = 1 + prng.below(COMMANDS_MAX) as u32;
        let lost = Step::CutOffAfter(other, commands, rest.to_vec());
        steps.extend([Step::CutOff(other, Vec::new()), lost, Step::TryToStart(other)]);
    }
    steps.extend([Step::ReadAll(other), Step::Await(other)]);
    steps
}

/// A program is paused for as long as another one takes the volume over, uses it, and stops.
fn paused_for_an_owner(one: usize, other: usize) -> Vec<Step> {
    vec![
        Step::CutOff(other, Vec::new()),
        Step::Fail(Vec::new()),
        Step::Stop(other),
        Step::Start(one),
        Step::Pause(one),
        Step::TakeOver(other),
        Step::Start(other),
        Step::Write(other),
        Step::Await(other),
        Step::Stop(other),
        Step::Wake(one),
        Step::ReadAll(one),
        Step::Write(one),
        Step::Await(one),
    ]
}

/// A program keeps too few members to use the volume with, which those that another one has taken it over with do not include.
fn left_with_too_few(one: usize, other: usize, left: &[usize], taken: &[usize]) -> Vec<Step> {
    vec![
        Step::CutOff(one, Vec::new()),
        Step::Fail(Vec::new()),
        Step::Stop(other),
        Step::Start(one),
        Step::CutOff(other, left.to_vec()),
        Step::CutOff(one, taken.to_vec()),
        Step::TakeOver(other),
        Step::Start(other),
        Step::Write(other),
        Step::Await(other),
        Step::ReadAll(one),
        Step::Await(one),
    ]
}

impl Stage {
    /// Takes the next step of the plan, if it is its turn. Says whether it was.
    pub(super) fn follow_plan(&self) -> bool {
        let step = {
            let mut world = self.world.borrow_mut();
            let left = world.actions_left;
            let plan = &mut world.plan;
            if plan.is_busy || plan.steps.is_empty() || left > plan.begins_at || plan.prng.chance(1, 4) {
                return false;
            }
            plan.attempts += 1;
            plan.is_busy = true;
            plan.steps[0].clone()
        };
        let is_done = self.take(&step);
        let mut world = self.world.borrow_mut();
        let plan = &mut world.plan;
        plan.is_busy = false;
        if is_done {
            plan.steps.pop_front();
            plan.attempts = 0;
        } else if plan.attempts == ATTEMPTS_MAX {
            plan.steps.clear();
        }
        true
    }

    /// Takes a step. Says whether it has had its effect.
    fn take(&self, step: &Step) -> bool {
        match *step {
            Step::Start(at) | Step::TryToStart(at) | Step::TakeOver(at) | Step::Release(at) => {
                let is_up = self.world.borrow().programs[at].is_up();
                if is_up && matches!(step, Step::Start(_) | Step::TryToStart(_)) {
                    self.world.borrow_mut().wake(at);
                    return true;
                }
                let may_begin = self.world.borrow().programs[at].is_down() && self.world.borrow().may_block();
                may_begin
                    && match step {
                        Step::Start(_) => self.mount(at).is_ok() && self.world.borrow().programs[at].is_up(),
                        Step::TryToStart(_) => {
                            let _ = self.mount(at);
                            true
                        }
                        Step::Release(_) => self.release(at).is_ok(),
                        _ => self.take_over(at, false).is_ok(),
                    }
            }
            _ => self.world.borrow_mut().take(step),
        }
    }
}

impl World {
    fn take(&mut self, step: &Step) -> bool {
        match step {
            Step::Start(_) | Step::TryToStart(_) | Step::TakeOver(_) | Step::Release(_) => {
                unreachable!("these take a while")
            }
            Step::KillAll => {
                self.tell("all programs are killed");
                (0..self.programs.len()).for_each(|at| self.kill(at));
                return self.programs.iter().all(Program::is_down);
            }
            Step::Copy(from, to) => return self.copy_from(*from, *to),
            Step::Stop(at) => {
                self.wake(*at);
                self.stop(*at);
                return self.programs[*at].is_down();
            }
            Step::Pause(at) => {
                let is_up = matches!(self.programs[*at].state, State::Up { .. });
                self.programs[*at].is_paused |= is_up;
                self.tell(format!("{at} is paused"));
                return is_up;
            }
            Step::Wake(at) => {
                self.tell(format!("{at} wakes"));
                self.wake(*at);
            }
            Step::CutOff(at, drives) => {
                self.tell(format!("{at} reaches all drives but {drives:?}"));
                self.mend(*at);
                drives.iter().for_each(|drive| self.cut_off(*at, *drive));
            }
            Step::CutOffAfter(at, commands, drives) => {
                self.tell(format!("{at} is going to be cut off from {drives:?} after {commands} commands"));
                self.cut_off_after(*at, *commands, drives);
            }
            Step::Fail(drives) => {
                self.tell(format!("{drives:?} fail, and no other drives"));
                let before = std::mem::replace(&mut self.failing, drives.clone());
                before.iter().for_each(|drive| shelf::set_failing(&self.drives[*drive], false));
                drives.iter().for_each(|drive| shelf::set_failing(&self.drives[*drive], true));
            }
            Step::Write(at) if self.programs[*at].is_up() => self.ask_something(Action::Write, *at),
            Step::ReadAll(at) if self.programs[*at].is_up() => self.read_all(*at),
            Step::Write(_) | Step::ReadAll(_) => return false,
            Step::Await(at) => return !self.programs[*at].is_asked(),
        }
        true
    }
}
