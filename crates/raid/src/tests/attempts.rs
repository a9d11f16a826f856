//! How often a volume retries before a member is failed.

use super::script::{Kind, Script, Sent, plain_config};
use crate::limits::{MEMBER_FAILURES_MAX, WRITE_ATTEMPTS_MAX};
use crate::{Event, FailReason, MemberIndex, Scheme};

const FAILED: Event = Event::MemberFailed { member: MemberIndex(1), reason: FailReason::Errors };

fn script() -> Script {
    Script::create(plain_config(Scheme::raid5(3)))
}

fn is_of(kind: Kind) -> impl Fn(&Sent) -> bool + Copy {
    move |sent| sent.kind == kind && sent.member == 1
}

fn count(script: &Script, kind: Kind) -> usize {
    script.sent.iter().filter(|sent| is_of(kind)(sent)).count()
}

#[test]
fn a_stripe_that_a_member_cannot_write_is_tried_in_as_many_segments_as_the_limit_says() {
    let mut script = script();
    script.fail(is_of(Kind::Chunk));
    let write = script.write(0, 3, 1);
    assert!(script.has_ended(write), "without the member");
    assert_eq!(script.events[1..], [FAILED]);
    assert_eq!(count(&script, Kind::Chunk), usize::from(WRITE_ATTEMPTS_MAX));
    assert_eq!(script.version(0), 1);
}

#[test]
fn a_member_that_cannot_write_headers_is_failed_after_as_many_segments_as_the_limit_says() {
    let mut script = script();
    script.fail(is_of(Kind::Header));
    let write = script.write(0, 3, 1);
    assert!(script.has_ended(write), "without the member");
    assert_eq!(script.events[1..], [FAILED]);
    assert_eq!(count(&script, Kind::Header), MEMBER_FAILURES_MAX as usize);
    assert_eq!(script.version(0), 1);
}

#[test]
fn failures_with_successes_between_them_do_not_add_up() {
    let mut script = script();
    for version in 1..=2 * u64::from(MEMBER_FAILURES_MAX) {
        // The first attempt of each stripe fails, the second one does not.
        let before = count(&script, Kind::Chunk);
        script.hold(is_of(Kind::Chunk));
        let write = script.write(0, 3, version);
        assert_eq!(script.held(), 1);
        script.fail(is_of(Kind::Chunk));
        script.hold(is_of(Kind::Header));
        script.release_those(|sent| sent.kind == Kind::Chunk);
        script.fail(|_| false);
        script.release();
        assert!(script.has_ended(write));
        assert_eq!(count(&script, Kind::Chunk), before + 2);
    }
    assert_eq!(script.events[1..], [], "no member is failed");
}
