//! Two takeovers of one volume whose steps alternate at random.

use std::fs;
use std::path::{Path, PathBuf};

use zonda_initiator::Holder;
use zonda_nvme::HostId;
use zonda_nvme::reservation::ReservationKey;
use zonda_raid::{Level, Scheme};
use zonda_ring::Ring;
use zonda_zoned::{Duration, Prng};

use super::directory::VolumeDirectory;
use super::lease::LEASE;
use super::owner_tests::{Bench, MIRROR};
use super::targets::Targets;
use super::{TakeoverOptions, VOLUME_FILE, VolumeDrive};
use crate::{DriveError, mock};

/// The number of interleavings of two takeovers.
const INTERLEAVINGS: u64 = 400;

/// A takeover, from one step to the next.
struct Takeover<'a> {
    program: usize,
    ring: &'a Ring,
    directory: VolumeDirectory,
    targets: Option<Targets>,
    /// The drives that it has yet to reserve.
    order: Vec<usize>,
    /// Its reservations were confirmed since it reserved the last drive.
    is_checked: bool,
    /// It has reserved all drives, and waits until other owners have noticed.
    is_waiting: bool,
    ended: Option<Result<(), DriveError>>,
}

impl<'a> Takeover<'a> {
    fn new(program: usize, path: &Path, ring: &'a Ring) -> Takeover<'a> {
        let mut directory = VolumeDirectory::open(path).expect("it is not in use");
        assert!(directory.note_owner(), "its members are remote");
        let order = Vec::new();
        Takeover { program, ring, directory, targets: None, order, is_checked: false, is_waiting: false, ended: None }
    }

    fn step(&mut self) {
        mock::as_program(self.program, || {
            let Err(error) = self.try_to_step() else { return };
            if let Some(targets) = self.targets.take() {
                assert_eq!(targets.undo(&self.directory, self.ring), Vec::<String>::new());
            }
            self.ended = Some(Err(error));
        });
    }

    fn try_to_step(&mut self) -> Result<(), DriveError> {
        let (ring, directory) = (self.ring, &mut self.directory);
        let Some(targets) = &mut self.targets else {
            let mut targets = Targets::ask(directory, false, ring)?;
            targets.must_reach_enough(directory)?;
            targets.targets.iter_mut().for_each(|target| target.granted(directory));
            self.order = targets.order();
            self.targets = Some(targets);
            return Ok(());
        };
        if !self.is_checked || self.is_waiting {
            targets.must_be_own(directory, ring)?;
            self.is_checked = true;
            self.ended = self.is_waiting.then_some(Ok(()));
        } else if self.order.is_empty() {
            self.is_waiting = true;
        } else {
            targets.take(self.order.remove(0), directory, ring)?;
            self.is_checked = false;
        }
        Ok(())
    }

    fn is_acting(&self) -> bool {
        self.ended.is_none() && !self.is_waiting
    }
}

/// A third directory, like the second one.
fn third_directory(bench: &Bench) -> PathBuf {
    let third = bench.above.path().join("c");
    fs::create_dir(&third).expect("there is space");
    fs::copy(bench.directory(0).join(VOLUME_FILE), third.join(VOLUME_FILE)).expect("there is space");
    third
}

/// Executes two takeovers, and returns which of them succeed, and the program of each step with the
/// holders after it.
fn interleave(bench: &Bench, paths: [&Path; 2], prng: &mut Prng) -> ([Result<(), DriveError>; 2], Vec<String>) {
    let mut trace = Vec::new();
    let holder = |drive: &PathBuf| mock::holder(drive).map_or_else(|| "-".to_owned(), |holder| holder.to_string());
    let mut note = |program: usize| {
        let holders: Vec<String> = bench.drives.iter().map(holder).collect();
        trace.push(format!("{program}: {}", holders.join(", ")));
    };
    let mut takeovers = [Takeover::new(1, paths[0], &bench.ring), Takeover::new(2, paths[1], &bench.ring)];
    while takeovers.iter().any(Takeover::is_acting) {
        let at = prng.below(2) as usize;
        if takeovers[at].is_acting() {
            takeovers[at].step();
            note(at);
            bench.ring.run_once(Some(bench.ring.now() + Duration::from_millis(1))).expect("time passes");
        }
    }
    bench.ring.run_once(Some(bench.ring.now() + LEASE)).expect("time passes");
    let first = prng.below(2) as usize;
    for at in [first, 1 - first] {
        while takeovers[at].ended.is_none() {
            takeovers[at].step();
            note(at);
        }
    }
    (takeovers.map(|takeover| takeover.ended.expect("it has ended")), trace)
}

#[test]
fn exactly_one_of_two_takeovers_succeeds_however_their_steps_alternate() {
    let raid6 = Scheme { level: Level::Raid6, data: 2, parity: 2 };
    for seed in 0..INTERLEAVINGS {
        let mut prng = Prng::new(seed);
        let scheme = *prng.pick(&[MIRROR, Scheme::raid5(2), Scheme::raid5(3), raid6]).expect("there are some");
        let mut bench = Bench::of(scheme);
        let third = third_directory(&bench);
        bench.volumes[0] = None;
        // Earlier takeovers that were refused have left different keys, and some drives free.
        for drive in &bench.drives {
            let holder = mock::holder(drive).expect("it is reserved");
            let key = ReservationKey(holder.key.0 + prng.below(4));
            mock::set_holder(drive, prng.chance(3, 4).then_some(Holder { key, ..holder }));
        }
        let ([one, other], trace) = interleave(&bench, [&bench.directory(1), &third], &mut prng);
        assert!(one.is_ok() != other.is_ok(), "seed {seed}, {scheme}: {one:?}, {other:?} {trace:#?}");
        let winner = if one.is_ok() { bench.directory(1) } else { third };
        let taken = VolumeDrive::take_over(&winner, TakeoverOptions::default(), &bench.ring);
        assert!(taken.expect("it has reserved the members").is_enough);
    }
}

#[test]
fn a_takeover_continues_after_another_one_was_refused_and_has_restored_a_reservation() {
    let bench = Bench::of(MIRROR);
    let path = bench.directory(1);
    let mut takeover = Takeover::new(1, &path, &bench.ring);
    (0..3).for_each(|_| takeover.step());
    // The reservation of the owner has a greater key then.
    let holder = mock::holder(&bench.drives[1]).expect("it is reserved");
    mock::set_holder(&bench.drives[1], Some(Holder { key: ReservationKey(holder.key.0 + 7), ..holder }));
    while takeover.is_acting() {
        takeover.step();
    }
    takeover.step();
    assert!(matches!(takeover.ended, Some(Ok(()))), "{:?}", takeover.ended);
}

#[test]
fn of_two_takeovers_that_preempt_each_other_the_one_with_the_greater_host_identifier_continues() {
    for is_greater in [false, true] {
        let bench = Bench::of(Scheme::raid5(2));
        let path = bench.directory(1);
        let mut takeover = Takeover::new(1, &path, &bench.ring);
        (0..3).for_each(|_| takeover.step());
        let own = mock::holder(&bench.drives[0]).expect("it is reserved");
        let other =
            Holder { host: HostId([if is_greater { 0xff } else { 0 }; 16]), key: ReservationKey(own.key.0 + 1) };
        mock::set_holder(&bench.drives[0], Some(other));
        while takeover.is_acting() {
            takeover.step();
        }
        assert_eq!(takeover.ended.is_some(), is_greater, "{:?}", takeover.ended);
        let holder = mock::holder(&bench.drives[0]).map(|holder| holder.host);
        assert_eq!(holder, Some(if is_greater { other.host } else { own.host }));
    }
}
