//! Checks that the requests and responses of all hosts are linearizable: that some order of the
//! commands explains every response.
//!
//! Commands of several hosts overlap, and each takes effect at some moment between its start and
//! its end. So there is not one state but a set of possible states: [`History`] has each of them,
//! with the commands that have taken effect in it and not completed (just-in-time linearization,
//! Lowe 2017). A response that no possible state explains is wrong. A command whose connection is
//! lost may take effect until the target has released the connection.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::{Request, Response, State};

/// Maximum number of commands in flight: with more, too many orders are possible.
pub(super) const OPEN_MAX: usize = 6;

/// Identifies a command; commands that start later have higher numbers.
pub(super) type Number = u64;

/// All possible states of a namespace.
#[derive(Debug)]
pub(super) struct History {
    keeps: bool,
    open: BTreeMap<Number, Command>,
    possible: Possible,
    next: Number,
    /// The state that a power loss may restore after a failed save, until a command that starts
    /// later succeeds.
    fallback: Option<(Number, State)>,
}

#[derive(Clone, Copy, Debug)]
struct Command {
    host: usize,
    request: Request,
    /// Its connection exists, so that it may complete.
    has_connection: bool,
    /// It may still take effect.
    is_alive: bool,
}

/// A state, with the responses of the commands that have taken effect in it and not completed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Point {
    state: State,
    done: BTreeMap<Number, Response>,
}

/// Possible responses of commands without effect on the way to a point.
type Seen = BTreeMap<Number, BTreeSet<Response>>;
type Possible = BTreeMap<Point, Seen>;

impl History {
    pub(super) fn new(keeps: bool) -> History {
        let start = Point { state: State::default(), done: BTreeMap::new() };
        History {
            keeps,
            open: BTreeMap::new(),
            possible: BTreeMap::from([(start, Seen::new())]),
            next: 1,
            fallback: None,
        }
    }

    /// Records a command that a host sends.
    pub(super) fn start(&mut self, host: usize, request: Request) -> Number {
        let number = self.next;
        self.next += 1;
        self.open.insert(number, Command { host, request, has_connection: true, is_alive: true });
        number
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Records the completion of a command.
    ///
    /// # Errors
    /// If no possible state explains the response.
    pub(super) fn end(&mut self, number: Number, answer: &Response) -> Result<(), String> {
        let command = self.open[&number];
        let before = std::mem::take(&mut self.possible);
        let mut after = Possible::new();
        self.explore(before.clone(), Some(number), |point, seen| self.explain(point, seen, number, answer, &mut after));
        self.open.remove(&number);
        if after.is_empty() {
            let some = before.keys().next().expect("at least one state is possible");
            return Err(format!(
                "{} of sharing host {} completed with {answer}; possible states: {}, for example {}",
                command.request,
                command.host,
                before.len(),
                some.state
            ));
        }
        let is_change = !matches!(command.request, Request::Report | Request::Read | Request::Write);
        if is_change
            && *answer == Response::Success
            && self.fallback.as_ref().is_some_and(|(since, _)| number >= *since)
        {
            self.fallback = None;
        }
        for seen in after.values_mut() {
            seen.remove(&number);
        }
        self.possible = after;
        Ok(())
    }

    /// Records that the connection of a command is lost: it will not complete.
    pub(super) fn lose(&mut self, number: Number) {
        let Some(command) = self.open.get_mut(&number) else { return };
        command.has_connection = false;
        if !command.is_alive {
            return self.drop_command(number);
        }
        // Its response no longer matters.
        for (mut point, mut seen) in std::mem::take(&mut self.possible) {
            let is_done = point.done.contains_key(&number);
            if is_done {
                // It stays in the table: it must not take effect again.
                point.done.insert(number, Response::Success);
            }
            seen.remove(&number);
            merge(&mut self.possible, point, seen);
        }
    }

    /// Removes commands whose connections the target has released: they have taken effect, or never
    /// will.
    pub(super) fn expire(&mut self, numbers: &[Number]) {
        if !numbers.is_empty() {
            self.possible = self.reachable();
            numbers.iter().for_each(|&number| self.drop_command(number));
        }
    }

    /// Records a failed save, which may have become durable nevertheless.
    pub(super) fn save_failed(&mut self, durable: State) {
        self.fallback = Some((self.next, durable));
    }

    /// Records the end of the server: unsaved changes are lost, changes in progress may be saved or
    /// not.
    pub(super) fn server_ends(&mut self) {
        let mut after = self.reachable();
        for (point, seen) in &mut after {
            self.observe(point, seen);
        }
        self.open.values_mut().for_each(|command| command.is_alive = false);
        for (point, seen) in after {
            if let Some((_, durable)) = &self.fallback {
                let state = durable.after_power_loss();
                merge(&mut self.possible, Point { state, done: point.done.clone() }, seen.clone());
            }
            merge(&mut self.possible, Point { state: point.state.after_power_loss(), ..point }, seen);
        }
        self.fallback = None;
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

    /// Visits every reachable point, with the responses seen on all paths to it. A step adds a
    /// command to those that are done, so that a point is visited after all its predecessors.
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

    /// Adds the points that result if a command completes with a response at this point.
    fn explain(&self, point: &Point, seen: &Seen, number: Number, answer: &Response, after: &mut Possible) {
        if let Some(done) = point.done.get(&number) {
            if done == answer {
                merge(after, without(point, number), seen.clone());
            }
            return;
        }
        let is_seen = seen.get(&number).is_some_and(|answers| answers.contains(answer));
        if is_seen || *answer == Response::WriteFault {
            merge(after, without(point, number), seen.clone());
        }
        let command = self.open[&number];
        let (state, would_be) = point.state.after(command.host, command.request, self.keeps);
        if command.is_alive && would_be == *answer {
            let mut seen = seen.clone();
            if state != point.state {
                self.observe(point, &mut seen);
            }
            merge(after, Point { state, ..without(point, number) }, seen);
        }
    }

    /// The points after one more command takes effect.
    fn steps(&self, point: &Point, but: Option<Number>) -> Vec<Point> {
        let mut steps = Vec::new();
        for (&number, command) in &self.open {
            if Some(number) == but || !command.is_alive || point.done.contains_key(&number) {
                continue;
            }
            let (state, answer) = point.state.after(command.host, command.request, self.keeps);
            if state != point.state {
                let mut done = point.done.clone();
                done.insert(number, if command.has_connection { answer } else { Response::Success });
                steps.push(Point { state, done });
            }
        }
        steps
    }

    /// Adds the responses of commands that would have no effect at this point.
    fn observe(&self, point: &Point, seen: &mut Seen) {
        for (&number, command) in &self.open {
            if !command.has_connection || !command.is_alive || point.done.contains_key(&number) {
                continue;
            }
            let (state, answer) = point.state.after(command.host, command.request, self.keeps);
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

/// Adds a point. Responses seen on several paths to it are merged, which can only excuse more.
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

    const REGISTER: Request = Request::Register { action: 0, ignores_key: false, persist: 0, current: 0, new: 1 };
    const ACQUIRE: Request = Request::Acquire { action: 0, kind: 2, current: 1, preempted: 0 };

    fn held_by_0(persist: u8) -> History {
        let mut history = History::new(true);
        let register = Request::Register { action: 0, ignores_key: false, persist, current: 0, new: 1 };
        for request in [register, ACQUIRE] {
            let number = history.start(0, request);
            assert_eq!(history.end(number, &Response::Success), Ok(()));
        }
        history
    }

    #[test]
    fn overlapping_commands_take_effect_in_any_order_and_others_in_their_order() {
        for (first, second) in [(Response::Success, Response::Conflict), (Response::Conflict, Response::Conflict)] {
            let mut history = held_by_0(0);
            let release = history.start(0, Request::Release { action: 0, kind: 2, current: 1 });
            let write = history.start(1, Request::Write);
            assert_eq!(history.end(release, &Response::Success), Ok(()));
            // It may have been executed before the release, and have completed later.
            assert_eq!(history.end(write, &first), Ok(()));
            let late = history.start(1, Request::Write);
            assert!(history.end(late, &second).is_err(), "the release has completed");
        }
    }

    #[test]
    fn a_command_of_a_lost_connection_takes_effect_once_or_never() {
        let mut history = held_by_0(0);
        let register = history.start(1, REGISTER);
        history.lose(register);
        let is_registered = |history: &mut History, expected: bool| {
            let report = history.start(0, Request::Report);
            let registrants = if expected { [(0, (1, true)), (1, (1, false))].to_vec() } else { vec![(0, (1, true))] };
            let (generation, registrants) = (if expected { 2 } else { 1 }, registrants.into_iter().collect());
            history.end(report, &Response::Report { generation, kind: 2, persists: false, registrants }).is_ok()
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
    fn a_power_loss_leaves_the_persistent_state_or_none() {
        for (persist, answer) in [(3, Response::Conflict), (0, Response::Success)] {
            let mut history = held_by_0(persist);
            history.server_ends();
            let write = history.start(1, Request::Write);
            assert_eq!(history.end(write, &answer), Ok(()));
        }
    }

    #[test]
    fn a_failed_save_may_be_durable_until_a_later_command_succeeds() {
        for is_saved_later in [false, true] {
            let mut history = held_by_0(3);
            let release = Request::Release { action: 0, kind: 2, current: 1 };
            let number = history.start(0, release);
            let durable = State { held: None, ..history.possible.keys().next().unwrap().state.clone() };
            history.save_failed(durable);
            assert_eq!(history.end(number, &Response::WriteFault), Ok(()));
            if is_saved_later {
                let again = history.start(0, ACQUIRE);
                assert_eq!(history.end(again, &Response::Success), Ok(()));
            }
            history.server_ends();
            let write = history.start(1, Request::Write);
            assert_eq!(history.end(write, &Response::Success).is_ok(), !is_saved_later);
        }
    }
}
