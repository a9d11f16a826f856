//! Owners of mirrors one half of which another server has taken over, with the other half accepted
//! as missing.

use zonda_raid::{Level, Scheme};
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, Duration, Lba, NamespaceId, Operation, Payload, Status,
    ZonedDevice,
};

use super::VolumeState;
use super::lease::LEASE;
use super::owner_tests::{Bench, MIRROR};
use crate::mock;

const LONG: Duration = Duration::from_secs(20);

fn state(bench: &Bench, at: usize) -> VolumeState {
    bench.volumes[at].as_ref().expect("it is open").report().state
}

fn submit(bench: &mut Bench, at: usize, id: u64, operation: Operation) {
    let command = Command::new(CommandId(1_000_000 + id), NamespaceId::FIRST, operation);
    let now = bench.ring.now();
    let volume = bench.volumes[at].as_mut().expect("it is open");
    mock::as_program(at, || volume.submit(now, command)).expect("there is a queue slot");
}

fn write_of(lba: u64, byte: u8) -> Operation {
    let buffer = BlockBuffer { data: vec![byte; 512].into(), metadata: Vec::new().into() };
    Operation::Write { start: Lba(lba), blocks: Blocks(1), payload: Payload::Bytes(Box::new(buffer)) }
}

fn read_of(lba: u64) -> Operation {
    Operation::Read { start: Lba(lba), blocks: Blocks(1) }
}

fn run(bench: &mut Bench, at: usize, time: Duration) -> Vec<Completion> {
    mock::as_program(at, || bench.run(at, time))
}

/// The first program is paused, and the second one takes the `reached` drives over, accepts the
/// others as missing, and writes.
fn taken_over_in_part(scheme: Scheme, reached: &[usize]) -> Bench {
    let mut bench = Bench::of(scheme);
    assert_eq!((bench.write(0, 0, 1), bench.write(0, 1, 1)), (Status::Success, Status::Success));
    let missing: Vec<usize> = (0..scheme.members()).filter(|drive| !reached.contains(drive)).collect();
    bench.cut_off(1, &missing);
    assert!(bench.try_to_take_over(1, true).expect("it is accepted").is_enough);
    bench.open(1).expect("it is accepted");
    submit(&mut bench, 1, 0, write_of(0, 2));
    let ended = run(&mut bench, 1, Duration::from_secs(3));
    assert!(ended.len() == 1 && ended[0].status == Status::Success, "{ended:?} {}", bench.log);
    bench
}

const RAID6: Scheme = Scheme { level: Level::Raid6, data: 2, parity: 2 };
const RAID01: Scheme = Scheme { level: Level::Raid01, data: 2, parity: 2 };
const THREE_COPIES: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 2 };

#[test]
fn an_owner_that_wakes_with_the_half_that_was_not_taken_over_completes_no_command() {
    for (scheme, reached) in [
        (MIRROR, vec![0]),
        (MIRROR, vec![1]),
        (THREE_COPIES, vec![1]),
        (THREE_COPIES, vec![0, 2]),
        (RAID6, vec![0, 1]),
        (RAID01, vec![0, 1]),
    ] {
        for is_connected in [true, false] {
            let mut bench = taken_over_in_part(scheme, &reached);
            if !is_connected {
                // The servers have closed its connections meanwhile.
                bench.drives.iter().for_each(|drive| mock::disconnect(drive));
            }
            submit(&mut bench, 0, 1, write_of(1, 3));
            submit(&mut bench, 0, 2, read_of(0));
            submit(&mut bench, 0, 3, read_of(9));
            let ended = run(&mut bench, 0, LONG);
            let case = format!("{scheme} {reached:?} {is_connected}: {}", bench.log);
            assert!(ended.len() == 3 && ended.iter().all(|it| it.status == Status::InternalError), "{ended:?} {case}");
            assert_eq!(state(&bench, 0), VolumeState::TakenOver, "{case}");
            assert!(bench.log.contains("has been taken over by another server of this volume"), "{case}");
            assert!(!bench.log.contains("has failed: its commands have failed"), "{case}");
            bench.volumes[0] = None;
            bench.drives.iter().for_each(|drive| mock::set_cut_off(1, drive, true));
            bench.reconnect(1);
        }
    }
}

#[test]
fn writes_that_were_in_flight_when_the_owner_was_paused_are_not_acknowledged_by_the_other_half_alone() {
    let mut bench = Bench::of(MIRROR);
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.cut_off(1, &[1]);
    submit(&mut bench, 0, 1, write_of(0, 2));
    assert!(bench.try_to_take_over(1, true).expect("it is accepted").is_enough);
    mock::disconnect(&bench.drives[0]);
    let ended = run(&mut bench, 0, LONG);
    assert!(ended.len() == 1 && ended[0].status == Status::InternalError, "{ended:?} {}", bench.log);
    assert_eq!(state(&bench, 0), VolumeState::TakenOver, "{}", bench.log);
}

#[test]
fn a_write_that_failed_on_the_half_that_was_taken_over_is_not_acknowledged() {
    let mut bench = Bench::of(MIRROR);
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    bench.cut_off(1, &[1]);
    mock::set_failing(&bench.drives[0], true);
    submit(&mut bench, 0, 1, write_of(0, 2));
    mock::set_failing(&bench.drives[0], false);
    assert!(bench.try_to_take_over(1, true).expect("it is accepted").is_enough);
    let ended = run(&mut bench, 0, LONG);
    assert!(ended.len() == 1 && ended[0].status == Status::InternalError, "{ended:?} {}", bench.log);
    assert_eq!(state(&bench, 0), VolumeState::TakenOver, "{}", bench.log);
}

#[test]
fn an_owner_whose_failed_half_is_taken_over_completes_no_command_after_it_has_learned_of_that() {
    for is_paused in [false, true] {
        let mut bench = Bench::of(MIRROR);
        assert_eq!(bench.write(0, 0, 1), Status::Success);
        bench.cut_off(0, &[0]);
        submit(&mut bench, 0, 1, write_of(0, 2));
        let ended = run(&mut bench, 0, Duration::from_secs(5));
        assert_eq!((ended.len(), state(&bench, 0)), (1, VolumeState::Degraded), "{}", bench.log);
        bench.cut_off(1, &[1]);
        assert!(bench.try_to_take_over(1, true).expect("it is accepted").is_enough);
        bench.reconnect(0);
        if is_paused {
            // The server retries after at most 10 s, and at once when it wakes.
            bench.ring.run_once(Some(bench.ring.now() + LEASE)).expect("time passes");
            submit(&mut bench, 0, 2, write_of(0, 3));
        }
        let ended = run(&mut bench, 0, LONG);
        assert!(ended.iter().all(|it| it.status == Status::InternalError), "{ended:?} {}", bench.log);
        assert_eq!(state(&bench, 0), VolumeState::TakenOver, "{}", bench.log);
    }
}

#[test]
fn the_new_owner_of_a_half_continues_when_it_reaches_the_half_that_is_still_reserved_for_the_old_one() {
    let mut bench = taken_over_in_part(MIRROR, &[0]);
    bench.reconnect(1);
    submit(&mut bench, 1, 1, write_of(3, 4));
    let ended = run(&mut bench, 1, LONG);
    assert!(ended.len() == 1 && ended[0].status == Status::Success, "{ended:?} {}", bench.log);
    assert_eq!(state(&bench, 1), VolumeState::Degraded, "{}", bench.log);
    bench.volumes[1] = None;
    bench.open(1).expect("the other half is reserved for an older owner");
    submit(&mut bench, 1, 2, write_of(3, 5));
    let ended = run(&mut bench, 1, LONG);
    assert!(ended.len() == 1 && ended[0].status == Status::Success, "{ended:?} {}", bench.log);
}

#[test]
fn a_restarted_server_does_not_mount_its_half_after_the_failed_one_has_been_taken_over() {
    let mut bench = Bench::of(MIRROR);
    bench.cut_off(0, &[0]);
    submit(&mut bench, 0, 1, write_of(0, 2));
    let ended = run(&mut bench, 0, Duration::from_secs(5));
    assert_eq!((ended.len(), state(&bench, 0)), (1, VolumeState::Degraded), "{}", bench.log);
    bench.volumes[0] = None;
    bench.cut_off(1, &[1]);
    assert!(bench.try_to_take_over(1, true).expect("it is accepted").is_enough);
    bench.reconnect(0);
    let error = bench.open(0).expect_err("another server uses member 0");
    let drive = bench.drives[0].display();
    assert!(
        error.message.contains(&format!("member 0 ({drive}) is reserved by another server of this volume")),
        "{error}"
    );
    bench.open(1).expect("it was taken over");
}

#[test]
fn a_half_whose_server_does_not_answer_fails_within_the_timeout_and_io_continues() {
    let mut bench = Bench::of(MIRROR);
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    for drive in [0, 1] {
        mock::set_away(&bench.drives[drive], true);
        mock::disconnect(&bench.drives[drive]);
        submit(&mut bench, 0, 1 + drive as u64, write_of(0, 2));
        let ended = run(&mut bench, 0, LEASE + LEASE);
        assert!(ended.len() == 1 && ended[0].status == Status::Success, "{ended:?} {}", bench.log);
        assert_eq!(state(&bench, 0), VolumeState::Degraded, "{}", bench.log);
        mock::set_away(&bench.drives[drive], false);
        run(&mut bench, 0, LONG);
        assert_eq!(state(&bench, 0), VolumeState::Healthy, "{}", bench.log);
    }
}

#[test]
fn a_half_whose_server_answers_is_kept_if_the_connections_to_both_are_lost() {
    for away in [0, 1] {
        let mut bench = Bench::of(MIRROR);
        assert_eq!(bench.write(0, 0, 1), Status::Success);
        mock::set_away(&bench.drives[away], true);
        bench.drives.iter().for_each(|drive| mock::disconnect(drive));
        submit(&mut bench, 0, 1, write_of(0, 2));
        let ended = run(&mut bench, 0, Duration::from_secs(5));
        assert!(ended.len() == 1 && ended[0].status == Status::Success, "{away}: {ended:?} {}", bench.log);
        assert_eq!(state(&bench, 0), VolumeState::Degraded, "{}", bench.log);
    }
}

#[test]
fn an_owner_of_a_mirror_waits_for_a_takeover_that_fails_because_the_other_half_is_lost() {
    let mut bench = Bench::of(MIRROR);
    assert_eq!(bench.write(0, 0, 1), Status::Success);
    let holder = mock::holder(&bench.drives[0]).expect("it is reserved");
    mock::seize(&bench.drives[0]);
    submit(&mut bench, 0, 1, write_of(0, 2));
    run(&mut bench, 0, Duration::from_millis(100));
    mock::set_away(&bench.drives[1], true);
    mock::disconnect(&bench.drives[1]);
    assert_eq!(run(&mut bench, 0, LEASE), [], "it waits");
    assert_ne!(state(&bench, 0), VolumeState::TakenOver, "{}", bench.log);
    mock::set_holder(&bench.drives[0], Some(holder));
    let ended = run(&mut bench, 0, Duration::from_secs(5));
    assert!(ended.len() == 1 && ended[0].status == Status::Success, "{ended:?} {}", bench.log);
    assert_eq!(state(&bench, 0), VolumeState::Degraded, "{}", bench.log);
    mock::set_away(&bench.drives[1], false);
    run(&mut bench, 0, LONG);
    assert_eq!((state(&bench, 0), bench.read(0, 0)), (VolumeState::Healthy, Ok(2)), "{}", bench.log);
}
