//! Members that are preempted and restored, once or several times, under load and while they are verified.

use zonda_raid::Scheme;
use zonda_zoned::{Completion, Duration, Prng, Status};

use super::VolumeState;
use super::owner_tests::{Bench, MIRROR, add_spare};
use super::takeover_tests::{seize_during_write, state};
use crate::mock;

#[test]
fn a_member_that_is_preempted_briefly_under_load_does_not_fail_and_is_not_replaced() {
    for (times, first) in [(1, 0), (8, 1)] {
        let mut bench = Bench::new();
        add_spare(&mut bench);
        assert_eq!(bench.write(0, 9, 1), Status::Success);
        for at in 0..times {
            let drive = (first + at) % 3;
            let holder = seize_during_write(&mut bench, drive);
            let mut ended = bench.run(0, Duration::from_secs(1));
            mock::set_holder(&bench.drives[drive], Some(holder));
            ended.extend(bench.run(0, Duration::from_secs(2)));
            assert_eq!(ended.len(), 4, "{at}: {}", bench.log);
            assert!(ended.iter().all(|ended| ended.status == Status::Success), "{ended:?} {}", bench.log);
            assert_eq!((bench.read(0, 0), bench.read(0, 9)), (Ok(7), Ok(1)));
        }
        assert!(bench.log.contains("was briefly reserved by another host"), "{}", bench.log);
        assert!(!bench.log.contains("has failed") && !bench.log.contains("the spare"), "{}", bench.log);
        assert_eq!(state(&bench), VolumeState::Healthy, "{}", bench.log);
    }
}

/// Until the owner has detected a restored reservation, and has not reconnected yet.
fn until_noticed(bench: &mut Bench) -> Vec<Completion> {
    let mut ended = Vec::new();
    while !bench.log.contains("was briefly reserved by another host") {
        bench.ring.run_once(Some(bench.ring.now() + Duration::from_millis(10))).expect("time passes");
        ended.extend(bench.run(0, Duration(0)));
    }
    ended
}

#[test]
fn a_member_that_is_preempted_again_while_reconnecting_is_awaited_again() {
    for scheme in [Scheme::raid5(2), MIRROR] {
        let mut bench = Bench::of(scheme);
        let holder = seize_during_write(&mut bench, 1);
        let mut ended = bench.run(0, Duration::from_secs(1));
        mock::set_holder(&bench.drives[1], Some(holder));
        ended.extend(until_noticed(&mut bench));
        mock::seize(&bench.drives[1]);
        ended.extend(bench.run(0, Duration::from_millis(2000)));
        assert_eq!(ended, [], "they wait");
        mock::set_holder(&bench.drives[1], Some(holder));
        ended.extend(bench.run(0, Duration::from_secs(5)));
        assert!(
            ended.len() == 4 && ended.iter().all(|ended| ended.status == Status::Success),
            "{ended:?} {}",
            bench.log
        );
        assert!(!bench.log.contains("has failed"), "{}", bench.log);
        assert_eq!((state(&bench), bench.read(0, 3)), (VolumeState::Healthy, Ok(7)), "{}", bench.log);
    }
}

#[test]
fn a_member_that_is_preempted_at_any_moment_of_reconnecting_is_awaited_again() {
    for steps in 0..40 {
        let mut bench = Bench::new();
        mock::add_wire(Prng::new(3), false);
        let holder = seize_during_write(&mut bench, 1);
        let mut ended = bench.run(0, Duration::from_secs(1));
        mock::set_holder(&bench.drives[1], Some(holder));
        ended.extend(until_noticed(&mut bench));
        ended.extend(bench.run(0, Duration::from_micros(steps * 100)));
        mock::seize(&bench.drives[1]);
        ended.extend(bench.run(0, Duration::from_millis(500)));
        mock::set_holder(&bench.drives[1], Some(holder));
        ended.extend(bench.run(0, Duration::from_secs(5)));
        assert!(
            ended.len() == 4 && ended.iter().all(|ended| ended.status == Status::Success),
            "{steps}: {ended:?} {}",
            bench.log
        );
        assert!(!bench.log.contains("has failed"), "{steps}: {}", bench.log);
        assert_eq!((state(&bench), bench.read(0, 3)), (VolumeState::Healthy, Ok(7)), "{}", bench.log);
    }
}
