//! Which request is released next, and what releases those that wait.

use zonda_zoned::{Class, Instant, Key};

use super::Ezns;
use super::queue::QueueState;
use super::streams::Stream;
use super::tenants::Turn;
use crate::direction::Direction;
use crate::limits::EZNS_REQUEST_BYTES_MAX;
use crate::{Accepts, Request, RequestId, Scheduler};

impl Ezns {
    /// The next request of a class.
    pub(super) fn dispatch(&mut self, class: Class, now: Instant, accepts: Accepts) -> Option<RequestId> {
        while let Some(turn) = self.tenants[class as usize].next(accepts) {
            if !self.admits_first(class, turn, now) {
                self.block(class, turn, now);
                continue;
            }
            let id = self.take_first(class, turn, now);
            let entry = self.entries.get_mut(id);
            entry.is_charged = true;
            let bytes = entry.bytes;
            let stream = self.streams.get_mut(turn.stream);
            if turn.direction == Direction::Write {
                stream.tokens.take(bytes);
            }
            let queue = stream.queue(class, turn.direction);
            let is_last = queue.is_empty();
            if is_last {
                queue.state = QueueState::Idle;
            }
            self.tenants[class as usize].on_released(turn, bytes, is_last);
            return Some(id);
        }
        None
    }

    /// Releases a request in the foreground that no queue holds, if no other waits: with the same result as
    /// through a queue, but only if its stream is known. If it is the last one, the turn of its tenant ends.
    pub(super) fn pass_in(&mut self, direction: Direction, now: Instant, request: &Request, is_last: bool) -> bool {
        let class = Class::Foreground;
        if self.waiting() > 0 || request.origin.class != class || !self.tenants[class as usize].are_idle() {
            return false;
        }
        let Some(key) = self.streams.find(request, &self.config) else { return false };
        let stream = self.streams.get_mut(key);
        if !stream.has_slot(class, direction, &self.config) {
            return false;
        }
        let bytes = request.bytes.min(EZNS_REQUEST_BYTES_MAX);
        if direction == Direction::Write {
            let block_latency = self.monitor.block_latency(now, &self.config);
            stream.tokens.refill(now, block_latency, stream.width, &self.config);
            if !stream.tokens.admits(bytes, stream.width, &self.config) {
                return false;
            }
            stream.tokens.take(bytes);
            self.monitor.on_released(now, &self.config);
        }
        self.streams.pass(key, direction, class);
        self.arrivals += 1;
        self.in_progress[class as usize] += 1;
        let tenant = request.origin.tenant;
        self.tenants[class as usize].pass(tenant, direction, bytes, is_last, &self.config);
        true
    }

    /// No request waits: the turns of all tenants that would be considered end.
    pub(super) fn end_turns(&mut self) {
        self.tenants[Class::Foreground as usize].end_turns();
        if self.in_progress[Class::Foreground as usize] == 0 {
            self.tenants[Class::Background as usize].end_turns();
        }
    }

    /// Whether the window or the tokens of a stream admit the first request of a queue.
    fn admits_first(&mut self, class: Class, turn: Turn, now: Instant) -> bool {
        let stream = self.streams.get_mut(turn.stream);
        if !stream.has_slot(class, turn.direction, &self.config) {
            return false;
        }
        match turn.direction {
            Direction::Read => true,
            Direction::Write => {
                let first =
                    stream.queue(class, turn.direction).first().expect("a queue that is considered has requests");
                let block_latency = self.monitor.block_latency(now, &self.config);
                stream.tokens.refill(now, block_latency, stream.width, &self.config);
                stream.tokens.admits(self.entries.get(first).bytes, stream.width, &self.config)
            }
        }
    }

    /// The first request of a queue must wait: for a completion of its stream, or for tokens.
    fn block(&mut self, class: Class, turn: Turn, now: Instant) {
        self.tenants[class as usize].remove(turn);
        let stream = self.streams.get_mut(turn.stream);
        stream.queue(class, turn.direction).state = QueueState::Blocked;
        let has_slot = stream.has_slot(class, turn.direction, &self.config);
        if turn.direction == Direction::Write && has_slot && !stream.waits_for_tokens {
            stream.waits_for_tokens = true;
            if self.waits_for_tokens.is_empty() {
                self.next_refill = now + self.config.token_period;
            }
            self.waits_for_tokens.push(turn.stream);
        }
    }

    /// Removes the first request of a queue, which is in flight from now on.
    fn take_first(&mut self, class: Class, turn: Turn, now: Instant) -> RequestId {
        let stream = self.streams.get_mut(turn.stream);
        let id = stream.queue(class, turn.direction).pop(&self.entries).expect("the queue has requests");
        stream.waiting -= 1;
        stream.in_flight(turn.direction).add(class);
        if turn.direction == Direction::Write {
            self.monitor.on_released(now, &self.config);
        }
        if class == Class::Background {
            self.background.remove(&self.entries.get(id).sequence);
            self.background_due = now + self.config.background_period;
        }
        self.waiting -= 1;
        id
    }

    /// The oldest request in the background, whatever its window and tokens are. It is not charged
    /// for: otherwise it would take from the foreground what it has not waited for.
    pub(super) fn dispatch_due(&mut self, now: Instant) -> Option<RequestId> {
        let entry = *self.entries.get(*self.background.first_key_value()?.1);
        let tenant = self.streams.get(entry.stream).tenant;
        let turn = Turn { tenant, direction: entry.direction, stream: entry.stream };
        let id = self.take_first(Class::Background, turn, now);
        assert_eq!(id, entry.id, "the oldest request is the first of its queue");
        self.entries.get_mut(id).is_charged = false;
        let queue = self.streams.get_mut(turn.stream).queue(Class::Background, turn.direction);
        if queue.is_empty() {
            match std::mem::take(&mut queue.state) {
                QueueState::Ready => self.tenants[Class::Background as usize].remove(turn),
                QueueState::Blocked => self.stop_waiting_for_tokens(turn.stream),
                QueueState::Idle => unreachable!("an idle queue has no request"),
            }
        }
        Some(id)
    }

    /// Streams whose first write waits for tokens receive them.
    pub(super) fn refill(&mut self, now: Instant) {
        if self.waits_for_tokens.is_empty() || now < self.next_refill {
            return;
        }
        self.next_refill = now + self.config.token_period;
        let mut waiting = std::mem::take(&mut self.waits_for_tokens);
        waiting.retain(|key| {
            self.wake_writes(*key, now);
            let stream = self.streams.get_mut(*key);
            stream.waits_for_tokens = stream.is_blocked(Direction::Write);
            stream.waits_for_tokens
        });
        self.waits_for_tokens = waiting;
    }

    /// Considers the blocked writes of a stream again that have tokens by now.
    pub(super) fn wake_writes(&mut self, key: Key<Stream>, now: Instant) {
        for class in [Class::Foreground, Class::Background] {
            let stream = self.streams.get(key);
            if stream.state(class, Direction::Write) == QueueState::Blocked {
                let turn = Turn { tenant: stream.tenant, direction: Direction::Write, stream: key };
                if self.admits_first(class, turn, now) {
                    self.consider(class, turn, false);
                }
            }
        }
    }

    /// A queue of the stream is not blocked any more.
    pub(super) fn stop_waiting_for_tokens(&mut self, key: Key<Stream>) {
        let stream = self.streams.get_mut(key);
        if stream.waits_for_tokens && !stream.is_blocked(Direction::Write) {
            stream.waits_for_tokens = false;
            self.waits_for_tokens.retain(|other| *other != key);
        }
    }

    pub(super) fn consider(&mut self, class: Class, turn: Turn, is_first: bool) {
        self.streams.get_mut(turn.stream).queue(class, turn.direction).state = QueueState::Ready;
        self.tenants[class as usize].add(turn, is_first, &self.config);
    }

    /// More requests of the stream may be in flight. Whether a write has tokens, too, `dispatch` will
    /// check.
    pub(super) fn consider_blocked(&mut self, key: Key<Stream>, direction: Direction) {
        for class in [Class::Foreground, Class::Background] {
            let stream = self.streams.get(key);
            let is_blocked = stream.state(class, direction) == QueueState::Blocked;
            if is_blocked && stream.has_slot(class, direction, &self.config) {
                let turn = Turn { tenant: stream.tenant, direction, stream: key };
                self.consider(class, turn, false);
            }
        }
        self.stop_waiting_for_tokens(key);
    }
}
