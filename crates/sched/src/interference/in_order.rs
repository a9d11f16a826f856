//! [`InOrder`]: the requests that wait while the table is not used, in the order of their arrival.

use std::collections::VecDeque;

use crate::{Accepts, RequestId};

/// As [`Fifo`](crate::Fifo): by number, and reads pass others that the device refuses.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    reads: Queue,
    others: Queue,
}

/// Requests by number. Nearly all come behind the last one; others, which had to wait for an earlier request
/// or were refused by the device, are older than most, so that few are moved for them.
#[derive(Debug, Default)]
struct Queue(VecDeque<(u64, RequestId)>);

impl InOrder {
    pub(super) fn len(&self) -> usize {
        self.reads.0.len() + self.others.0.len()
    }

    pub(super) fn push(&mut self, number: u64, id: RequestId, is_read: bool) {
        let queue = if is_read { &mut self.reads } else { &mut self.others };
        queue.push(number, id);
    }

    pub(super) fn pop(&mut self, accepts: Accepts) -> Option<RequestId> {
        let read = self.reads.first();
        let other = self.others.first().filter(|_| accepts == Accepts::All);
        let queue = match (read, other) {
            (Some(read), Some(other)) if other < read => &mut self.others,
            (None, Some(_)) => &mut self.others,
            _ => &mut self.reads,
        };
        queue.0.pop_front().map(|(_, id)| id)
    }

    /// Removes all requests, in the order of their arrival.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = RequestId> + use<> {
        let mut all: Vec<(u64, RequestId)> = self.reads.0.drain(..).chain(self.others.0.drain(..)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, id)| id)
    }
}

impl Queue {
    fn first(&self) -> Option<u64> {
        self.0.front().map(|(number, _)| *number)
    }

    fn push(&mut self, number: u64, id: RequestId) {
        if self.0.back().is_none_or(|(last, _)| *last < number) {
            return self.0.push_back((number, id));
        }
        let place = self.0.binary_search_by_key(&number, |(listed, _)| *listed);
        self.0.insert(place.expect_err("two requests do not have one number"), (number, id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use zonda_zoned::{Key, Prng};

    fn id(number: u64) -> RequestId {
        RequestId(Key::of_command(zonda_zoned::CommandId(number)).expect("it is small"))
    }

    #[test]
    fn requests_leave_as_from_two_sorted_maps_in_whatever_order_they_come() {
        let mut prng = Prng::new(1);
        let (mut queue, mut maps) = (InOrder::default(), [BTreeMap::new(), BTreeMap::new()]);
        for step in 0..20_000 {
            let number = step * 8 + 4000 - prng.below(2) * prng.below(500) * 8;
            if prng.chance(1, 2) && !maps.iter().any(|map| map.contains_key(&number)) {
                let is_read = prng.chance(2, 3);
                queue.push(number, id(number), is_read);
                maps[usize::from(is_read)].insert(number, id(number));
            } else {
                let accepts = if prng.chance(1, 4) { Accepts::Reads } else { Accepts::All };
                let from = if accepts == Accepts::Reads { 1..2 } else { 0..2 };
                let next = from.filter_map(|map| Some((*maps[map].first_key_value()?.0, map))).min();
                let expected = next.and_then(|(number, map)| maps[map].remove(&number));
                assert_eq!(queue.pop(accepts), expected);
            }
            assert_eq!(queue.len(), maps[0].len() + maps[1].len());
        }
        let [mut all, reads] = maps;
        all.extend(reads);
        assert!(queue.drain().eq(all.into_values()));
        assert_eq!(queue.len(), 0);
    }
}
