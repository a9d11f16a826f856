//! A die: one operation at a time, reads before programs, programs in slices.
//!
//! Reads that wait when a program or erase starts, ends or reaches the end of a slice are served
//! first, all of them; those that arrive meanwhile wait for the next slice. So neither starves the
//! other: a busy die alternates between the present reads and a slice of work. A unit whose data
//! are being transferred has started: its register is in use, and reads that arrive then wait for
//! the end of its first slice.

use std::collections::VecDeque;

use zonda_zoned::{Duration, Instant, Key};

use crate::pending::{PageId, ReadChain, Work};
use crate::share::StartTag;

/// State of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DieState {
    Idle,
    /// The command to sense a page of this read chain waits for the channel, or is on it.
    Asking(Key<ReadChain>),
    /// A page of this read chain is being sensed.
    Sensing(Key<ReadChain>),
    /// The page waits for the channel, or is on it.
    Sending(Key<ReadChain>),
    /// The work that ran is being suspended.
    Suspending,
    /// The pages of this work are being transferred over the channel.
    Loading(Key<Work>),
    /// This work runs since an instant, with that much left from then on.
    Running {
        work: Key<Work>,
        since: Instant,
        left: Duration,
    },
}

/// Next operation of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Read(Key<ReadChain>),
    /// Work that starts.
    Start(Key<Work>, StartTag),
    /// Work that was suspended, with its remaining time.
    Resume(Key<Work>, Duration),
    Nothing,
}

/// One die with its queues.
#[derive(Debug)]
pub(crate) struct Die {
    pub(crate) state: DieState,
    /// When the present operation or slice ends; an event for another time is stale.
    pub(crate) due: Option<Instant>,
    /// Read chains with a page to sense, and the page if it is the only one.
    reads: VecDeque<(Key<ReadChain>, Option<PageId>)>,
    /// The page that was sensed last, while no other operation has used the register.
    register: Option<PageId>,
    /// Programs and erases in their order.
    work: VecDeque<(StartTag, Key<Work>)>,
    suspended: Option<(Key<Work>, Duration)>,
    /// How often the work at hand has been suspended.
    suspends: u32,
    /// Reads that go before the work at hand.
    reads_before_work: usize,
    busy_since: Option<Instant>,
    busy: Duration,
}

impl Die {
    pub(crate) fn new() -> Die {
        Die {
            state: DieState::Idle,
            due: None,
            reads: VecDeque::new(),
            register: None,
            work: VecDeque::new(),
            suspended: None,
            suspends: 0,
            reads_before_work: 0,
            busy_since: None,
            busy: Duration::ZERO,
        }
    }

    #[inline]
    pub(crate) fn add_read(&mut self, chain: Key<ReadChain>, page: Option<PageId>) {
        self.reads.push_back((chain, page));
    }

    /// Whether this page is in the register, so that it need not be sensed.
    #[inline]
    pub(crate) fn holds(&self, page: Option<PageId>) -> bool {
        page.is_some() && page == self.register
    }

    /// A page was sensed: other reads of it go first, while it is in the register.
    pub(crate) fn keep_in_register(&mut self, page: Option<PageId>) {
        self.register = page;
        if page.is_none() {
            return;
        }
        let mut sharing = 0;
        for place in 0..self.reads.len() {
            if self.reads[place].1 == page {
                let read = self.reads.remove(place).expect("the place is in the queue");
                self.reads.insert(sharing, read);
                sharing += 1;
                // Those behind the work at hand pass it, and only they.
                self.reads_before_work += usize::from(place >= self.reads_before_work);
            }
        }
    }

    pub(crate) fn add_work(&mut self, work: Key<Work>, tag: StartTag) {
        if self.work.is_empty() && self.suspended.is_none() {
            self.reads_before_work = self.reads.len();
        }
        let place = self.work.iter().rposition(|(before, _)| *before <= tag).map_or(0, |last| last + 1);
        self.work.insert(place, (tag, work));
    }

    pub(crate) fn has_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    /// Takes the next operation; the caller starts it.
    #[inline]
    pub(crate) fn take_next(&mut self) -> Next {
        let has_work = self.suspended.is_some() || !self.work.is_empty();
        let reads_first = !has_work || self.reads_before_work > 0;
        if let Some((chain, _)) = self.reads.pop_front_if(|_| reads_first) {
            self.reads_before_work = self.reads_before_work.saturating_sub(1);
            return Next::Read(chain);
        }
        self.reads_before_work = 0;
        if has_work {
            self.register = None;
        }
        if let Some((work, left)) = self.suspended.take() {
            return Next::Resume(work, left);
        }
        self.work.pop_front().map_or(Next::Nothing, |(tag, work)| Next::Start(work, tag))
    }

    /// The running work is suspended at the end of a slice.
    pub(crate) fn suspend(&mut self, work: Key<Work>, left: Duration) {
        assert!(self.suspended.is_none(), "a die suspends one operation");
        self.suspended = Some((work, left));
        self.suspends += 1;
        self.reads_before_work = self.reads.len();
    }

    /// The running work is done: reads that waited for it go before the next.
    pub(crate) fn work_done(&mut self) {
        self.suspends = 0;
        self.reads_before_work = self.reads.len();
    }

    /// The state changes; time in any state but idle is busy time.
    #[inline]
    pub(crate) fn enter(&mut self, now: Instant, state: DieState) {
        match (self.busy_since, state) {
            (Some(since), DieState::Idle) => {
                self.busy += now - since;
                self.busy_since = None;
            }
            (None, DieState::Idle) => {}
            (None, _) => self.busy_since = Some(now),
            (Some(_), _) => {}
        }
        self.state = state;
    }

    /// Busy time up to `now`, operations in progress included.
    pub(crate) fn busy_until(&self, now: Instant) -> Duration {
        self.busy_since.map_or(self.busy, |since| self.busy + (now - since))
    }

    /// The end of the slice that is running at `now`, if it comes before the work's own end and
    /// reads may use it.
    pub(crate) fn slice_end(&self, now: Instant, slice: Duration, suspends_max: u32) -> Option<Instant> {
        let DieState::Running { since, left, .. } = self.state else { return None };
        let is_exhausted = suspends_max > 0 && self.suspends >= suspends_max;
        if slice == Duration::ZERO || is_exhausted {
            return None;
        }
        let slices = (now - since).0 / slice.0 + 1;
        let end = since + slice * slices;
        (end < since + left).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use zonda_zoned::{CommandId, ZoneIndex};

    use super::*;

    fn key<T>(index: u64) -> Key<T> {
        Key::of_command(CommandId(index)).expect("it is small")
    }

    #[test]
    fn reads_at_hand_go_before_work_and_later_ones_wait_for_a_slice() {
        let mut die = Die::new();
        die.add_read(key(1), None);
        die.add_work(key(100), StartTag::default());
        die.add_read(key(2), None);
        assert_eq!(die.take_next(), Next::Read(key(1)));
        assert_eq!(die.take_next(), Next::Start(key(100), StartTag::default()));
        die.suspend(key(100), Duration(70));
        die.add_read(key(3), None);
        assert_eq!(die.take_next(), Next::Read(key(2)));
        assert_eq!(die.take_next(), Next::Resume(key(100), Duration(70)), "read 3 came after the slice ended");
        die.work_done();
        assert_eq!(die.take_next(), Next::Read(key(3)));
        assert_eq!(die.take_next(), Next::Nothing);
    }

    #[test]
    fn reads_of_the_page_in_the_register_pass_others_until_the_die_works() {
        let page = |page: u64| Some(PageId { zone: ZoneIndex(0), generation: 0, page });
        let mut die = Die::new();
        for (chain, of_page) in [(1, 7), (2, 8), (3, 7)] {
            die.add_read(key(chain), page(of_page));
        }
        assert_eq!(die.take_next(), Next::Read(key(1)));
        die.keep_in_register(page(7));
        assert!(die.holds(page(7)) && !die.holds(page(8)) && !die.holds(None));
        assert_eq!(die.take_next(), Next::Read(key(3)));
        die.add_work(key(100), StartTag::default());
        assert_eq!(die.take_next(), Next::Read(key(2)));
        assert_eq!(die.take_next(), Next::Start(key(100), StartTag::default()));
        assert!(!die.holds(page(7)));
    }

    #[test]
    fn a_slice_ends_at_the_next_multiple_before_the_work_does() {
        let mut die = Die::new();
        die.enter(Instant(1_000), DieState::Running { work: key(0), since: Instant(1_000), left: Duration(500) });
        assert_eq!(die.slice_end(Instant(1_000), Duration(200), 0), Some(Instant(1_200)));
        assert_eq!(die.slice_end(Instant(1_250), Duration(200), 0), Some(Instant(1_400)));
        assert_eq!(die.slice_end(Instant(1_450), Duration(200), 0), None, "the work itself ends first");
        assert_eq!(die.slice_end(Instant(1_000), Duration::ZERO, 0), None, "no slices, no suspension");
        die.suspend(key(0), Duration(300));
        assert_eq!(die.slice_end(Instant(1_250), Duration(200), 2), Some(Instant(1_400)));
        assert_eq!(die.slice_end(Instant(1_250), Duration(200), 1), None, "it has been suspended once");
    }

    #[test]
    fn time_in_any_state_but_idle_is_busy_time() {
        let mut die = Die::new();
        die.enter(Instant(10), DieState::Sensing(key(0)));
        die.enter(Instant(15), DieState::Sending(key(0)));
        die.enter(Instant(30), DieState::Idle);
        die.enter(Instant(40), DieState::Idle);
        assert_eq!(die.busy, Duration(20));
    }
}
