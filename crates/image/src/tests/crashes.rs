//! Random commands on random drives, through crash after crash.

use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
use zonda_zoned::{Command, Geometry, PayloadKind, Prng, ZoneIndex, ZoneState};

use crate::limits::RESERVATIONS_BYTES_MAX;
use crate::testing::{Crash, Disk, Drive, Ledger, spec};

/// The parameters of a run.
struct Plan {
    rounds: u64,
    commands_max: u64,
    depth_max: u64,
    crashes: &'static [Crash],
}

/// Runs rounds of commands on one drive, each ended by a crash. Returns the number of accepted
/// commands.
fn run(geometry: &Geometry, seed: u64, plan: &Plan) -> u64 {
    let root = Prng::new(seed);
    let mut prng = root.fork("run");
    let mut source = CommandSource::new(geometry, PayloadKind::Bytes, root.fork("commands"));
    let mut spec = spec(geometry.clone());
    spec.journal_bytes += 4096 * prng.below(16);
    let mut drive = Drive::create(&spec);
    let mut ledger = Ledger::new(ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes), geometry);
    let mut taken = 0;
    let mut reservations = SavedReservations::default();
    for _ in 0..plan.rounds {
        let depth = 1 + prng.below(plan.depth_max) as usize;
        let commands = prng.below(plan.commands_max);
        let mut left = commands;
        while left > 0 {
            if ledger.outstanding() < depth && (drive.out.is_empty() || prng.chance(1, 3)) {
                left -= 1;
                let command: Command = source.next(&ledger.oracle);
                ledger.submitted(&command);
                drive.submit_command(command);
                taken += 1;
                if prng.chance(1, 2000) {
                    degrade(&mut drive, &mut ledger, &mut prng);
                }
                if prng.chance(1, 20) {
                    reservations.change(&mut drive, &mut prng);
                }
                if prng.chance(1, 200) {
                    drive.image.checkpoint();
                    drive.collect();
                }
            } else {
                drive.step_any(&mut prng);
            }
            for completion in drive.poll() {
                ledger.completed(&completion, false).unwrap();
            }
            reservations.note(&mut drive);
            if prng.chance(1, 100) {
                drive.image.check_invariants();
            }
        }
        let crash = *prng.pick(plan.crashes).unwrap();
        if crash == Crash::Close || crash == Crash::None {
            while drive.step_any(&mut prng) {}
            for completion in drive.poll() {
                ledger.completed(&completion, false).unwrap();
            }
            assert_eq!(ledger.outstanding(), 0, "every accepted command has ended");
            reservations.note(&mut drive);
            assert_eq!(reservations.next, None, "and so has every change of reservations");
            drive.image.check_invariants();
            assert!(drive.image.is_idle());
        }
        let counters = drive.image.counters();
        let quiet = ledger.outstanding() == 0;
        let mut tried = false;
        drive = match crash {
            Crash::None => drive,
            Crash::Close => Drive::open(drive.close()),
            Crash::Kill => reopen(drive.kill(&mut prng), crash, &mut prng, &mut tried),
            Crash::PowerLoss => reopen(drive.lose_power(&mut prng), crash, &mut prng, &mut tried),
        };
        if crash == Crash::Close {
            assert!(drive.report.clean);
            assert_eq!(drive.image.counters(), counters);
        }
        if crash == Crash::Kill {
            assert_eq!(drive.report.finished_zones, []);
            if quiet && geometry.conventional_zone_count == 0 && geometry.zrwa.is_none() {
                let found = drive.image.counters();
                assert_eq!(found.host_written_blocks, counters.host_written_blocks);
                assert_eq!((found.padding_blocks, found.erases), (counters.padding_blocks, counters.erases));
            }
        }
        reservations.judge(&drive);
        let observed = drive.observe();
        // An interrupted opening may have finished zones without a report.
        let all: Vec<ZoneIndex> = (0..geometry.zone_count).map(ZoneIndex).collect();
        let finished: &[ZoneIndex] = match crash {
            Crash::PowerLoss if tried => &all,
            Crash::PowerLoss => &drive.report.finished_zones,
            Crash::None | Crash::Kill | Crash::Close => &[],
        };
        ledger.judge(&observed, crash, finished).unwrap();
        if crash != Crash::None {
            ledger = Ledger::new(observed.oracle(geometry), geometry);
        }
    }
    taken
}

/// The reservations that the drive was asked to save.
#[derive(Default)]
struct SavedReservations {
    now: Vec<u8>,
    /// The new value, while its result is unknown.
    next: Option<Vec<u8>>,
}

impl SavedReservations {
    fn change(&mut self, drive: &mut Drive, prng: &mut Prng) {
        if self.next.is_none() {
            let next = vec![prng.below(256) as u8; prng.below(RESERVATIONS_BYTES_MAX as u64 + 1) as usize];
            drive.image.save_reservations(next.clone().into());
            drive.collect();
            self.next = Some(next);
        }
    }

    fn note(&mut self, drive: &mut Drive) {
        if let Some(is_kept) = drive.image.take_reservations_saved() {
            assert!(is_kept, "no file fails");
            self.now = self.next.take().expect("a change ends once");
        }
    }

    fn judge(&mut self, drive: &Drive) {
        let found = drive.image.reservations().to_vec();
        assert!(found == self.now || Some(&found) == self.next.as_ref(), "{} bytes are saved", found.len());
        *self = SavedReservations { now: found, next: None };
    }
}

/// Opens a drive after a crash; now and then the opening is interrupted and repeated.
fn reopen(mut disk: Disk, crash: Crash, prng: &mut Prng, tried: &mut bool) -> Drive {
    while prng.chance(1, 3) {
        *tried = true;
        disk.prng = Some(prng.fork("recovery"));
        disk.changes_left = Some(1 + prng.below(12));
        let broken_off = crate::open(&mut disk).is_err();
        disk.changes_left = None;
        if crash == Crash::PowerLoss {
            disk.lose_power(prng);
        }
        if !broken_off {
            break;
        }
    }
    Drive::open(disk)
}

fn degrade(drive: &mut Drive, ledger: &mut Ledger, prng: &mut Prng) {
    let sequential = ledger.geometry.zone_count - ledger.geometry.conventional_zone_count;
    let zone = ZoneIndex(ledger.geometry.conventional_zone_count + prng.below(u64::from(sequential)) as u32);
    let state = if prng.chance(1, 2) { ZoneState::ReadOnly } else { ZoneState::Offline };
    ledger.degraded(zone, state);
    drive.image.degrade(zone, state);
    drive.collect();
}

fn run_all(label: &str, drives: u64, plan: &Plan) {
    let mut geometries = Prng::new(1).fork(label);
    let mut taken = 0;
    for seed in 0..drives {
        let geometry = random_geometry(&mut geometries);
        let result = std::panic::catch_unwind(|| run(&geometry, seed, plan));
        match result {
            Ok(commands) => taken += commands,
            Err(cause) => {
                eprintln!("drive {seed} of {label}: {geometry:?}");
                std::panic::resume_unwind(cause);
            }
        }
    }
    eprintln!("{label}: {taken} commands");
}

#[test]
fn without_crashes_a_drive_behaves_like_the_oracle() {
    run_all("quiet", 60, &Plan { rounds: 4, commands_max: 800, depth_max: 32, crashes: &[Crash::None, Crash::Close] });
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    run_all("kill", 60, &Plan { rounds: 20, commands_max: 150, depth_max: 24, crashes: &[Crash::Kill] });
}

#[test]
fn flushed_writes_survive_a_loss_of_power() {
    run_all("power", 60, &Plan { rounds: 20, commands_max: 150, depth_max: 24, crashes: &[Crash::PowerLoss] });
}

#[test]
fn crashes_of_every_kind_may_follow_each_other() {
    let crashes = &[Crash::Kill, Crash::PowerLoss, Crash::Close, Crash::None];
    run_all("mixed", 60, &Plan { rounds: 25, commands_max: 80, depth_max: 64, crashes });
}

#[test]
#[ignore = "soak"]
fn soak_crashes_of_every_kind_on_many_drives() {
    let crashes = &[Crash::Kill, Crash::PowerLoss, Crash::Close, Crash::None];
    for depth_max in [8, 64] {
        let label = format!("soak at depth {depth_max}");
        run_all(&label, 1500, &Plan { rounds: 25, commands_max: 120, depth_max, crashes });
    }
}
