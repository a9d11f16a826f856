//! [`SpaceWatch`]: detects that the file system of a drive is full, by failed writes and by statvfs.

use zonda_zoned::{Duration, Instant};

/// How often a full file system is checked again.
const CHECK_INTERVAL: Duration = Duration(1_000_000_000);
/// It has space again if this much was freed since the last failed write, in bytes.
const FREED_BYTES: u64 = 1 << 20;
/// Where statvfs is of no use, as with a quota: it has space if writes succeed, and none has failed
/// for this long.
const QUIET: Duration = Duration(10_000_000_000);

/// The state of the free space for the blocks of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceFacts {
    /// The file system is full, or a quota is exhausted: writes fail with Capacity Exceeded.
    pub is_full: bool,
    /// File operations that failed for lack of space since the drive was opened.
    pub failures: u64,
}

/// Reports when a file system is full, and when it has space again: once each, independent of the
/// number of failed writes.
#[derive(Debug, Default)]
pub(crate) struct SpaceWatch {
    failures: u64,
    full: Option<Full>,
    /// The notice to be taken next.
    news: Option<String>,
}

#[derive(Debug)]
struct Full {
    /// The number of failures before.
    failures_before: u64,
    /// Free space at the last failed write, if known.
    free_bytes: Option<u64>,
    failed_at: Instant,
    has_succeeded: bool,
    check_at: Instant,
}

impl SpaceWatch {
    pub(crate) fn facts(&self) -> SpaceFacts {
        SpaceFacts { is_full: self.full.is_some(), failures: self.failures }
    }

    /// An operation has failed for lack of space. `free` returns the free space of the file system.
    pub(crate) fn failed(&mut self, now: Instant, free: impl FnOnce() -> Option<u64>) {
        let failures_before = self.full.as_ref().map_or(self.failures, |full| full.failures_before);
        self.failures += 1;
        if let Some(full) = self.full.as_mut().filter(|full| full.failed_at == now) {
            full.has_succeeded = false;
            return;
        }
        if self.full.is_none() {
            self.news =
                Some("the file system is full: writes fail with Capacity Exceeded until space is freed".to_owned());
        }
        let check_at = now + CHECK_INTERVAL;
        self.full = Some(Full { failures_before, free_bytes: free(), failed_at: now, has_succeeded: false, check_at });
    }

    /// A write of blocks has succeeded.
    pub(crate) fn succeeded(&mut self) {
        if let Some(full) = &mut self.full {
            full.has_succeeded = true;
        }
    }

    /// Checks the file system, if that is due.
    pub(crate) fn look(&mut self, now: Instant, free: impl FnOnce() -> Option<u64>) {
        let Some(full) = self.full.as_mut().filter(|full| now >= full.check_at) else { return };
        full.check_at = now + CHECK_INTERVAL;
        let free = free();
        let has_grown =
            full.free_bytes.zip(free).is_some_and(|(before, free)| free >= before.saturating_add(FREED_BYTES));
        let is_quiet = full.has_succeeded && now.since(full.failed_at) >= QUIET;
        if free.is_some_and(|free| free < FREED_BYTES) || !(has_grown || is_quiet) {
            return;
        }
        let failed = self.failures - full.failures_before;
        let writes = if failed == 1 { "1 write has".to_owned() } else { format!("{failed} writes have") };
        self.full = None;
        // The notice that it is full was not taken yet.
        self.news = match self.news.take() {
            Some(_) => Some(format!("the file system was briefly full: {writes} failed")),
            None => Some(format!("the file system has space again; {writes} failed for lack of space")),
        };
    }

    /// When the file system is checked next.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.full.as_ref().map(|full| full.check_at)
    }

    /// Takes the notice, if there is one.
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
    fn a_full_file_system_is_reported_once_and_once_when_it_has_space() {
        let mut watch = full_with(0);
        assert!(watch.take_news().is_some_and(|news| news.contains("the file system is full")));
        watch.failed(at(2), || Some(0));
        assert_eq!((watch.take_news(), watch.next_timeout()), (None, Some(at(3))));
        watch.look(at(3), || Some(100));
        assert!(watch.facts().is_full, "100 bytes are not enough");
        watch.look(at(4), || Some(FREED_BYTES));
        let news = watch.take_news().expect("there is space");
        assert!(news.contains("the file system has space again; 6 writes have failed"), "{news}");
        assert_eq!((watch.facts(), watch.next_timeout()), (SpaceFacts { is_full: false, failures: 6 }, None));
        watch.failed(at(9), || Some(0));
        watch.take_news();
        watch.look(at(10), || Some(FREED_BYTES));
        assert!(
            watch.take_news().is_some_and(|news| news.contains("1 write has failed")),
            "failures are counted from the last time it was full"
        );
    }

    #[test]
    fn successful_overwrites_do_not_show_that_a_full_file_system_has_space() {
        let mut watch = full_with(0);
        watch.succeeded();
        (2..60).for_each(|second| watch.look(at(second), || Some(0)));
        assert!(watch.facts().is_full);
    }

    #[test]
    fn where_a_quota_was_exhausted_successful_writes_show_that_there_is_space() {
        let mut watch = full_with(1 << 40);
        watch.look(at(20), || Some(1 << 40));
        assert!(watch.facts().is_full, "no write was tried");
        watch.succeeded();
        watch.failed(at(21), || Some(1 << 40));
        watch.look(at(40), || Some(1 << 40));
        assert!(watch.facts().is_full, "the last one failed");
        watch.succeeded();
        watch.look(at(41), || None);
        assert!(!watch.facts().is_full);
    }

    #[test]
    fn a_full_file_system_that_has_space_before_the_notice_is_taken_is_reported_once() {
        let mut watch = full_with(0);
        watch.look(at(2), || Some(1 << 30));
        assert!(watch.take_news().is_some_and(|news| news.contains("was briefly full: 5 writes have failed")));
        assert_eq!(watch.take_news(), None);
    }
}
