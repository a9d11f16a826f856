//! [`SpaceWatch`]: whether the file system of a drive is full, from writes that fail for that and what it says of itself.

use zonda_zoned::{Duration, Instant};

/// How often a file system that was full is asked again.
const LOOK_INTERVAL: Duration = Duration(1_000_000_000);
/// It has room again if it has so much more than when a write failed last, in bytes.
const ROOM_BYTES: u64 = 1 << 20;
/// Where what it says is no help, as with a quota: it has room if writes succeed, and for so long none has failed.
const QUIET: Duration = Duration(10_000_000_000);

/// What is known of the room for a drive's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceFacts {
    /// The file system is full, or a quota used up: writes end with Capacity Exceeded.
    pub is_full: bool,
    /// File operations that failed for that since the drive was opened.
    pub failures: u64,
}

/// Tells when a file system is full, and when it has room again: once each, however many writes fail.
#[derive(Debug, Default)]
pub(crate) struct SpaceWatch {
    failures: u64,
    full: Option<Full>,
    /// To be told.
    news: Option<String>,
}

#[derive(Debug)]
struct Full {
    /// Failures before.
    failures_before: u64,
    /// Room when a write failed last, as far as that is known.
    free_bytes: Option<u64>,
    failed_at: Instant,
    has_succeeded: bool,
    look_at: Instant,
}

impl SpaceWatch {
    pub(crate) fn facts(&self) -> SpaceFacts {
        SpaceFacts { is_full: self.full.is_some(), failures: self.failures }
    }

    /// An operation has failed since there was no room. `free` asks the file system.
    pub(crate) fn failed(&mut self, now: Instant, free: impl FnOnce() -> Option<u64>) {
        let failures_before = self.full.as_ref().map_or(self.failures, |full| full.failures_before);
        self.failures += 1;
        if let Some(full) = self.full.as_mut().filter(|full| full.failed_at == now) {
            full.has_succeeded = false;
            return;
        }
        if self.full.is_none() {
            self.news =
                Some("the file system is full: writes end with Capacity Exceeded until there is room".to_owned());
        }
        let look_at = now + LOOK_INTERVAL;
        self.full = Some(Full { failures_before, free_bytes: free(), failed_at: now, has_succeeded: false, look_at });
    }

    /// Blocks were written.
    pub(crate) fn succeeded(&mut self) {
        if let Some(full) = &mut self.full {
            full.has_succeeded = true;
        }
    }

    /// Asks the file system, if that is due.
    pub(crate) fn look(&mut self, now: Instant, free: impl FnOnce() -> Option<u64>) {
        let Some(full) = self.full.as_mut().filter(|full| now >= full.look_at) else { return };
        full.look_at = now + LOOK_INTERVAL;
        let free = free();
        let has_grown =
            full.free_bytes.zip(free).is_some_and(|(before, free)| free >= before.saturating_add(ROOM_BYTES));
        let is_quiet = full.has_succeeded && now.since(full.failed_at) >= QUIET;
        if free.is_some_and(|free| free < ROOM_BYTES) || !(has_grown || is_quiet) {
            return;
        }
        let failed = self.failures - full.failures_before;
        let writes = if failed == 1 { "1 write has".to_owned() } else { format!("{failed} writes have") };
        self.full = None;
        // Nobody was told yet that there was none.
        self.news = match self.news.take() {
            Some(_) => Some(format!("the file system was full for a moment: {writes} failed")),
            None => Some(format!("there is room on the file system again; {writes} failed for want of it")),
        };
    }

    /// When the file system is asked next.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.full.as_ref().map(|full| full.look_at)
    }

    /// What is to be told, once.
    pub(crate) fn take_news(&mut self) -> Option<String> {
        self.news.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * SECOND)
    }

    fn full_with(free: u64) -> SpaceWatch {
        let mut watch = SpaceWatch::default();
        (0..5).for_each(|_| watch.failed(at(1), || Some(free)));
        assert_eq!(watch.facts(), SpaceFacts { is_full: true, failures: 5 });
        watch
    }

    #[test]
    fn a_full_file_system_is_told_once_and_once_when_it_has_room() {
        let mut watch = full_with(0);
        assert!(watch.take_news().is_some_and(|news| news.contains("the file system is full")));
        watch.failed(at(2), || Some(0));
        assert_eq!((watch.take_news(), watch.next_wakeup()), (None, Some(at(3))));
        watch.look(at(3), || Some(100));
        assert!(watch.facts().is_full, "some bytes are no room");
        watch.look(at(4), || Some(ROOM_BYTES));
        let news = watch.take_news().expect("there is room");
        assert!(news.contains("room on the file system again; 6 writes have failed"), "{news}");
        assert_eq!((watch.facts(), watch.next_wakeup()), (SpaceFacts { is_full: false, failures: 6 }, None));
        watch.failed(at(9), || Some(0));
        watch.take_news();
        watch.look(at(10), || Some(ROOM_BYTES));
        assert!(watch.take_news().is_some_and(|news| news.contains("1 write has failed")), "each time counts its own");
    }

    #[test]
    fn writes_in_place_do_not_say_that_a_full_file_system_has_room() {
        let mut watch = full_with(0);
        watch.succeeded();
        (2..60).for_each(|second| watch.look(at(second), || Some(0)));
        assert!(watch.facts().is_full);
    }

    #[test]
    fn where_a_quota_is_used_up_writes_that_succeed_say_that_there_is_room() {
        let mut watch = full_with(1 << 40);
        watch.look(at(20), || Some(1 << 40));
        assert!(watch.facts().is_full, "nothing was tried");
        watch.succeeded();
        watch.failed(at(21), || Some(1 << 40));
        watch.look(at(40), || Some(1 << 40));
        assert!(watch.facts().is_full, "the last one failed");
        watch.succeeded();
        watch.look(at(41), || None);
        assert!(!watch.facts().is_full);
    }

    #[test]
    fn what_is_over_before_anybody_hears_of_it_is_told_in_one_line() {
        let mut watch = full_with(0);
        watch.look(at(2), || Some(1 << 30));
        assert!(watch.take_news().is_some_and(|news| news.contains("for a moment: 5 writes have failed")));
        assert_eq!(watch.take_news(), None);
    }
}
