//! Sequences of actions that rarely occur at random: some runs follow one, with random actions
//! between its steps.
//!
//! A step that must have an effect (a program mounts, or has stopped) is repeated until it has; a
//! plan that fails is abandoned, and the run continues without it.

use std::collections::VecDeque;

use zonda_zoned::Prng;

use super::act::Action;
use super::testbed::{Program, Stage, State, Testbed};
use crate::mock;

/// The maximum number of actions before the plan begins.
const ACTIONS_BEFORE_MAX: u64 = 30;
/// The maximum number of attempts of a step.
const ATTEMPTS_MAX: u32 = 8;
/// The maximum number of commands from the beginning of a mount until the program loses drives.
const COMMANDS_MAX: u64 = 60;
/// The number of such mounts.
const STARTS: u32 = 3;

/// The plan of a run.
#[derive(Debug)]
pub(super) struct Plan {
    prng: Prng,
    /// The plan begins when the run has this number of actions left.
    begins_at: u32,
    steps: VecDeque<Step>,
    /// The number of attempts of the next step.
    attempts: u32,
    /// A step is in progress: actions meanwhile are random.
    is_busy: bool,
}

/// A step of a plan. Programs and drives are numbers.
#[derive(Clone, Debug)]
enum Step {
    Start(usize),
    Stop(usize),
    Pause(usize),
    Wake(usize),
    TakeOver(usize),
    /// A program takes these drives over from another one, which reaches them whenever it runs, and
    /// accepts all others as missing.
    TakeOverInPart(usize, usize, Vec<usize>),
    /// The connections of all programs to these drives are lost.
    Disconnect(Vec<usize>),
    /// All programs are killed, so that none can continue.
    KillAll,
    /// The members that are reserved for a directory are released.
    Release(usize),
    /// The directory of the second program is replaced by a copy of the first one.
    Copy(usize, usize),
    /// A program starts, and may fail.
    TryToStart(usize),
    /// The program is cut off from these drives, and reaches all others.
    CutOff(usize, Vec<usize>),
    /// The program is cut off from these drives after this number of commands.
    CutOffAfter(usize, u32, Vec<usize>),
    /// These drives fail, and no others.
    Fail(Vec<usize>),
    Write(usize),
    /// Every block that hosts use is read.
    ReadAll(usize),
    /// Waits until all commands to the program have completed.
    Await(usize),
}

impl Plan {
    /// A random plan, which may be empty. The volume can be used with any `data` of its `members`,
    /// which are the first of the `drives`, before the spares.
    pub(super) fn generate(
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
        // `count` of the members, and all other drives.
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
            4 | 5 if has_halves => paused_for_an_owner_of_a_half(&mut prng, one, other, &enough, &rest),
            _ => Vec::new(),
        };
        Plan { prng, begins_at, steps: steps.into(), attempts: 0, is_busy: false }
    }
}

/// No member is reserved, and the second directory is a copy of the first one, from which the
/// volume was last mounted.
///
/// Members stay reserved after a takeover, and after a program was killed: without this hardly any
/// member is ever free.
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

/// Some members fail while a program uses the volume, and work again when it has stopped.
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

/// A program with a copy of the directory uses the volume without some members. Then one with the
/// original mounts with these members alone.
fn outdated_members_alone(one: usize, other: usize, outdated: &[usize], rest: &[usize]) -> Vec<Step> {
    let mut steps = released(one, other);
    steps.extend(used_without(other, outdated));
    steps.extend([Step::CutOff(one, rest.to_vec()), Step::Start(one), Step::ReadAll(one), Step::Await(one)]);
    steps
}

/// The volume is used without some members. A program with an older copy of the directory starts
/// with all of them, and loses the others while it mounts.
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

/// A program is paused while another one takes the volume over, uses it, and stops.
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

/// A program is paused while another one takes a half of the volume over, accepts the other half as
/// missing, and uses it. The first one reaches both when it wakes.
fn paused_for_an_owner_of_a_half(
    prng: &mut Prng,
    one: usize,
    other: usize,
    taken: &[usize],
    rest: &[usize],
) -> Vec<Step> {
    let mut steps = vec![
        Step::CutOff(one, Vec::new()),
        Step::CutOff(other, Vec::new()),
        Step::Fail(Vec::new()),
        Step::Stop(other),
        Step::Start(one),
        Step::Write(one),
    ];
    if prng.chance(1, 2) {
        steps.push(Step::Await(one));
    }
    steps.extend([Step::Pause(one), Step::CutOff(other, rest.to_vec())]);
    match prng.below(4) {
        0 => {}
        1 => steps.push(Step::Disconnect(taken.iter().chain(rest).copied().collect())),
        _ => steps.push(Step::Disconnect(taken.to_vec())),
    }
    steps.extend([
        Step::TakeOverInPart(other, one, taken.to_vec()),
        Step::Start(other),
        Step::Write(other),
        Step::Await(other),
        Step::Wake(one),
        Step::ReadAll(one),
        Step::Write(one),
        Step::Await(one),
        Step::ReadAll(other),
        Step::Await(other),
    ]);
    steps
}

/// A program keeps too few members to use the volume, which are disjoint from those of a takeover
/// by another one.
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
    /// Executes the next step of the plan, if it is due. Returns whether it was.
    pub(super) fn follow_plan(&self) -> bool {
        let step = {
            let mut testbed = self.testbed.borrow_mut();
            let left = testbed.actions_left;
            let plan = &mut testbed.plan;
            if plan.is_busy || plan.steps.is_empty() || left > plan.begins_at || plan.prng.chance(1, 4) {
                return false;
            }
            plan.attempts += 1;
            plan.is_busy = true;
            plan.steps[0].clone()
        };
        let is_done = self.take(&step);
        let mut testbed = self.testbed.borrow_mut();
        let plan = &mut testbed.plan;
        plan.is_busy = false;
        if is_done {
            plan.steps.pop_front();
            plan.attempts = 0;
        } else if plan.attempts == ATTEMPTS_MAX {
            plan.steps.clear();
        }
        true
    }

    /// Executes a step. Returns whether it had its effect.
    fn take(&self, step: &Step) -> bool {
        match *step {
            Step::Start(at) | Step::TryToStart(at) | Step::TakeOver(at) | Step::Release(at) => {
                let is_up = self.testbed.borrow().programs[at].is_up();
                if is_up && matches!(step, Step::Start(_) | Step::TryToStart(_)) {
                    self.testbed.borrow_mut().wake(at);
                    return true;
                }
                let may_begin = self.testbed.borrow().programs[at].is_down() && self.testbed.borrow().may_block();
                may_begin
                    && match step {
                        Step::Start(_) => self.mount(at).is_ok() && self.testbed.borrow().programs[at].is_up(),
                        Step::TryToStart(_) => {
                            let _ = self.mount(at);
                            true
                        }
                        Step::Release(_) => self.release(at).is_ok(),
                        _ => self.take_over(at, false).is_ok(),
                    }
            }
            Step::TakeOverInPart(at, from, ref drives) => {
                let may_begin = self.testbed.borrow().programs[at].is_down() && self.testbed.borrow().may_block();
                may_begin && self.testbed.borrow_mut().protect(at, from, drives) && self.take_over(at, true).is_ok()
            }
            _ => self.testbed.borrow_mut().take(step),
        }
    }
}

impl Testbed {
    fn take(&mut self, step: &Step) -> bool {
        match step {
            Step::Start(_) | Step::TryToStart(_) | Step::TakeOver(_) | Step::TakeOverInPart(..) | Step::Release(_) => {
                unreachable!("these steps block")
            }
            Step::Disconnect(drives) => {
                self.log(format!("the connections to {drives:?} are lost"));
                drives.iter().for_each(|drive| mock::disconnect(&self.drives[*drive]));
            }
            Step::KillAll => {
                self.log("all programs are killed");
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
                self.log(format!("{at} is paused"));
                return is_up;
            }
            Step::Wake(at) => {
                self.log(format!("{at} wakes"));
                self.stays_paused = self.stays_paused.filter(|paused| paused != at);
                self.wake(*at);
            }
            Step::CutOff(at, drives) => {
                self.log(format!("{at} reaches all drives but {drives:?}"));
                self.reconnect(*at);
                drives.iter().for_each(|drive| self.cut_off(*at, *drive));
            }
            Step::CutOffAfter(at, commands, drives) => {
                self.log(format!("{at} is going to be cut off from {drives:?} after {commands} commands"));
                self.cut_off_after(*at, *commands, drives);
            }
            Step::Fail(drives) => {
                self.log(format!("{drives:?} fail, and no other drives"));
                let before = std::mem::replace(&mut self.failing, drives.clone());
                before.iter().for_each(|drive| mock::set_failing(&self.drives[*drive], false));
                drives.iter().for_each(|drive| mock::set_failing(&self.drives[*drive], true));
            }
            Step::Write(at) if self.programs[*at].is_up() => self.ask_something(Action::Write, *at),
            Step::ReadAll(at) if self.programs[*at].is_up() => self.read_all(*at),
            Step::Write(_) | Step::ReadAll(_) => return false,
            Step::Await(at) => return !self.programs[*at].has_outstanding(),
        }
        true
    }
}
