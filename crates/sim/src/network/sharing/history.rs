//! What hosts asked for and were answered, held against the rules: is there an order of their commands that explains all of it?
//!
//! Commands of several hosts overlap, and each takes effect at some moment between its start and its end. So there is not one
//! state but all that are possible: [`History`] has each of them, with the commands that have taken effect there and not been
//! answered (just-in-time linearization, Lowe 2017). An answer that no possible state explains is wrong. A command whose
//! connection is lost may take effect until the target cannot know of it any more.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{Answer, Ask, State};

/// Commands that have not ended, at most: with more, too many orders are possible.
pub(super) const OPEN_MAX: usize = 6;

/// Identifies a command; those that start later have a higher one.
pub(super) type Number = u64;

/// All that may be true of a namespace.
#[derive(Debug)]
pub(super) struct History {
    keeps: bool,
    open: BTreeMap<Number, Command>,
    possible: Possible,
    next: Number,
    /// What a device that failed may bring up after a loss of power, until a command that starts after this one has succeeded.
    doubt: Option<(Number, State)>,
}

#[derive(Clone, Copy, Debug)]
struct Command {
    host: usize,
    ask: Ask,
    /// It is answered, if at all, by a connection that still exists.
    has_connection: bool,
    /// It may still take effect.
    is_alive: bool,
}

/// A state, and the answers of the commands that have taken effect in it and not ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    state: State,
    done: BTreeMap<Number, Answer>,
}

/// Answers that commands without effect may have had on the way there.
type Seen = BTreeMap<Number, BTreeSet<Answer>>;
type Possible = BTreeMap<Point, Seen>;

impl History {
    pub(super) fn new(keeps: bool) -> History {
        let start = Point { state: State::default(), done: BTreeMap::new() };
        History { keeps, open: BTreeMap::new(), possible: BTreeMap::from([(start, Seen::new())]), next: 1, doubt: None }
    }

    /// A host sends a command.
    pub(super) fn start(&mut self, host: usize, ask: Ask) -> Number {
        let number = self.next;
        self.next += 1;
        self.open.insert(number, Command { host, ask, has_connection: true, is_alive: true });
        number
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// A command ends with an answer.
    ///
    /// # Errors
    /// What may be true, when none of it explains the answer.
    pub(super) fn end(&mut self, number: Number, answer: &Answer) -> Result<(), String> {
        let command = self.open[&number];
        let before = std::mem::take(&mut self.possible);
        let mut after = Possible::new();
        self.explore(before.clone(), Some(number), |point, seen| self.explain(point, seen, number, answer, &mut after));
        self.open.remove(&number);
        if after.is_empty() {
            let some = before.keys().next().expect("something is possible");
            return Err(format!(
                "{:?} of sharing host {} ended with {answer:?}; {} states are possible, as {:?}",
                command.ask,
                command.host,
                before.len(),
                some.state
            ));
        }
        let is_change = !matches!(command.ask, Ask::Report | Ask::Read | Ask::Write);
        if is_change && *answer == Answer::Success && self.doubt.as_ref().is_some_and(|(since, _)| number >= *since) {
            self.doubt = None;
        }
        for seen in after.values_mut() {
            seen.remove(&number);
        }
        self.possible = after;
        Ok(())
    }

    /// The connection of a command is gone: nobody will answer it.
    pub(super) fn lose(&mut self, number: Number) {
        let Some(command) = self.open.get_mut(&number) else { return };
        command.has_connection = false;
        if !command.is_alive {
            return self.drop_command(number);
        }
        // Its answer is of no use to anybody.
        for (mut point, mut seen) in std::mem::take(&mut self.possible) {
            let is_done = point.done.contains_key(&number);
            if is_done {
                // It stays in the table: it must not take effect again.
                point.done.insert(number, Answer::Success);
            }
            seen.remove(&number);
            merge(&mut self.possible, point, seen);
        }
    }

    /// The target cannot know of these commands any more: they have taken effect, or never will.
    pub(super) fn expire(&mut self, numbers: &[Number]) {
        if !numbers.is_empty() {
            self.possible = self.reachable();
            numbers.iter().for_each(|&number| self.drop_command(number));
        }
    }

    /// A device could not keep a change for sure, and may have it all the same.
    pub(super) fn keep_failed(&mut self, durable: State) {
        self.doubt = Some((self.next, durable));
    }

    /// The server ends: what it has not kept is gone, and what was under way may have been kept or not.
    pub(super) fn server_ends(&mut self) {
        let mut after = self.reachable();
        for (point, seen) in &mut after {
            self.observe(point, seen);
        }
        self.open.values_mut().for_each(|command| command.is_alive = false);
        for (point, seen) in after {
            if let Some((_, durable)) = &self.doubt {
                let state = durable.after_power_loss();
                merge(&mut self.possible, Point { state, done: point.done.clone() }, seen.clone());
            }
            merge(&mut self.possible, Point { state: point.state.after_power_loss(), ..point }, seen);
        }
        self.doubt = None;
        let lost: Vec<Number> =
            self.open.iter().filter(|(_, command)| !command.has_connection).map(|(number, _)| *number).collect();
        lost.into_iter().for_each(|number| self.drop_command(number));
    }

    fn reachable(&self) -> Possible {
        let mut after = Possible::new();
        self.explore(self.possible.clone(), None, |point, seen| merge(&mut after, point.clone(), seen.clone()));
        after
    }

    fn drop_command(&mut self, number: Number) {
        self.open.remove(&number);
        for (mut point, mut seen) in std::mem::take(&mut self.possible) {
            point.done.remove(&number);
            seen.remove(&number);
            merge(&mut self.possible, point, seen);
        }
    }

    /// Visits every point that can be reached from some, with what was seen on all ways there. A step adds a command to those that
    /// are done, so that a point is visited after all that lead to it.
    fn explore(&self, from: Possible, but: Option<Number>, mut visit: impl FnMut(&Point, &Seen)) {
        let mut left: BTreeMap<(usize, Point), Seen> = BTreeMap::new();
        for (point, seen) in from {
            left.insert((point.done.len(), point), seen);
        }
        while let Some(((done, point), mut seen)) = left.pop_first() {
            visit(&point, &seen);
            if but.is_some_and(|number| point.done.contains_key(&number)) {
                continue;
            }
            self.observe(&point, &mut seen);
            for next in self.steps(&point, but) {
                let known = left.entry((done + 1, next)).or_default();
                add(known, seen.clone());
            }
        }
    }

    /// Notes, at a point, whether a command can have ended there with an answer.
    fn explain(&self, point: &Point, seen: &Seen, number: Number, answer: &Answer, after: &mut Possible) {
        if let Some(done) = point.done.get(&number) {
            if done == answer {
                merge(after, without(point, number), seen.clone());
            }
            return;
        }
        let is_seen = seen.get(&number).is_some_and(|answers| answers.contains(answer));
        if is_seen || *answer == Answer::WriteFault {
            merge(after, without(point, number), seen.clone());
        }
        let command = self.open[&number];
        let (state, would_be) = point.state.after(command.host, command.ask, self.keeps);
        if command.is_alive && would_be == *answer {
            let mut seen = seen.clone();
            if state != point.state {
                self.observe(point, &mut seen);
            }
            merge(after, Point { state, ..without(point, number) }, seen);
        }
    }

    /// The points after one more command has taken effect.
    fn steps(&self, point: &Point, but: Option<Number>) -> Vec<Point> {
        let mut steps = Vec::new();
        for (&number, command) in &self.open {
            if Some(number) == but || !command.is_alive || point.done.contains_key(&number) {
                continue;
            }
            let (state, answer) = point.state.after(command.host, command.ask, self.keeps);
            if state != point.state {
                let mut done = point.done.clone();
                done.insert(number, if command.has_connection { answer } else { Answer::Success });
                steps.push(Point { state, done });
            }
        }
        steps
    }

    /// Notes the answers that commands would have here without an effect.
    fn observe(&self, point: &Point, seen: &mut Seen) {
        for (&number, command) in &self.open {
            if !command.has_connection || !command.is_alive || point.done.contains_key(&number) {
                continue;
            }
            let (state, answer) = point.state.after(command.host, command.ask, self.keeps);
            if state == point.state {
                seen.entry(number).or_default().insert(answer);
            }
        }
    }
}

fn without(point: &Point, number: Number) -> Point {
    let mut point = point.clone();
    point.done.remove(&number);
    point
}

/// Adds a point. What was seen on several ways there is taken together, which can only excuse more.
fn merge(possible: &mut Possible, point: Point, seen: Seen) {
    add(possible.entry(point).or_default(), seen);
}

fn add(known: &mut Seen, seen: Seen) {
    for (number, answers) in seen {
        known.entry(number).or_default().extend(answers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTER: Ask = Ask::Register { action: 0, ignores_key: false, persist: 0, current: 0, new: 1 };
    const ACQUIRE: Ask = Ask::Acquire { action: 0, kind: 2, current: 1, preempted: 0 };

    fn held_by_0(persist: u8) -> History {
        let mut history = History::new(true);
        let register = Ask::Register { action: 0, ignores_key: false, persist, current: 0, new: 1 };
        for ask in [register, ACQUIRE] {
            let number = history.start(0, ask);
            assert_eq!(history.end(number, &Answer::Success), Ok(()));
        }
        history
    }

    #[test]
    fn commands_that_overlap_may_take_effect_in_any_order_and_those_that_do_not_in_theirs() {
        for (first, second) in [(Answer::Success, Answer::Conflict), (Answer::Conflict, Answer::Conflict)] {
            let mut history = held_by_0(0);
            let release = history.start(0, Ask::Release { action: 0, kind: 2, current: 1 });
            let write = history.start(1, Ask::Write);
            assert_eq!(history.end(release, &Answer::Success), Ok(()));
            // It may have come before the release, and have been answered later.
            assert_eq!(history.end(write, &first), Ok(()));
            let late = history.start(1, Ask::Write);
            assert!(history.end(late, &second).is_err(), "the release has ended");
        }
    }

    #[test]
    fn a_command_of_a_lost_connection_takes_effect_once_or_never() {
        let mut history = held_by_0(0);
        let register = history.start(1, REGISTER);
        history.lose(register);
        let is_registered = |history: &mut History, expected: bool| {
            let report = history.start(0, Ask::Report);
            let registrants = if expected { [(0, (1, true)), (1, (1, false))].to_vec() } else { vec![(0, (1, true))] };
            let (generation, registrants) = (if expected { 2 } else { 1 }, registrants.into_iter().collect());
            history.end(report, &Answer::Report { generation, kind: 2, persists: false, registrants }).is_ok()
        };
        assert!(is_registered(&mut history, false) && is_registered(&mut history, true));
        assert!(!is_registered(&mut history, false));
        let mut history = held_by_0(0);
        let register = history.start(1, REGISTER);
        history.lose(register);
        history.expire(&[register]);
        assert!(is_registered(&mut history, false) && !is_registered(&mut history, true));
    }

    #[test]
    fn after_a_loss_of_power_there_is_what_persists_or_nothing() {
        for (persist, answer) in [(3, Answer::Conflict), (0, Answer::Success)] {
            let mut history = held_by_0(persist);
            history.server_ends();
            let write = history.start(1, Ask::Write);
            assert_eq!(history.end(write, &answer), Ok(()));
        }
    }

    #[test]
    fn what_could_not_be_kept_may_be_there_after_a_loss_of_power_until_a_later_command_succeeds() {
        for is_kept_later in [false, true] {
            let mut history = held_by_0(3);
            let release = Ask::Release { action: 0, kind: 2, current: 1 };
            let number = history.start(0, release);
            let durable = State { held: None, ..history.possible.keys().next().unwrap().state.clone() };
            history.keep_failed(durable);
            assert_eq!(history.end(number, &Answer::WriteFault), Ok(()));
            if is_kept_later {
                let again = history.start(0, ACQUIRE);
                assert_eq!(history.end(again, &Answer::Success), Ok(()));
            }
            history.server_ends();
            let write = history.start(1, Ask::Write);
            assert_eq!(history.end(write, &Answer::Success).is_ok(), !is_kept_later);
        }
    }
}
