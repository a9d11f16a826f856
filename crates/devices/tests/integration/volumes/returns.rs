//! Failed members are re-added, and resynchronized.

use super::*;

/// Longer than the maximum delay between two attempts to open a member, in seconds.
const RETRY_SECONDS: u64 = 25;

impl Bench {
    /// Renames a drive.
    fn rename(&self, from: &str, to: &str) {
        std::fs::rename(self.at(from), self.at(to)).expect("it exists");
    }

    /// Runs the volume until a notice contains `text`, with a timeout.
    fn run_until(&self, volume: &mut VolumeDrive, text: &str) -> String {
        let (mut log, mut completions) = (String::new(), CompletionQueue::new());
        let began = std::time::Instant::now();
        while !log.contains(text) {
            assert!(began.elapsed().as_secs() < RETRY_SECONDS, "\"{text}\" is not logged: {log}");
            volume.poll(self.ring.now(), &mut completions);
            log += &notices(volume);
            let soon = self.ring.now() + zonda_zoned::Duration(50_000_000);
            self.ring.run_once(Some(volume.next_timeout().map_or(soon, |at| at.min(soon)))).expect("the loop works");
        }
        log
    }

    fn readd(&self, volume: &mut VolumeDrive, member: &str) -> Result<(), DriveError> {
        self.ask(volume, &VolumeRequest::Readd { member: member.to_owned() }).map(|_| ())
    }
}

fn fail(member: &str) -> VolumeRequest {
    VolumeRequest::Fail { member: member.to_owned() }
}

fn states(volume: &VolumeDrive) -> Vec<String> {
    volume.report().members.into_iter().map(|member| member.state).collect()
}

/// Pieces that fill some segments.
const PIECES: u64 = 250;

#[test]
fn a_readded_member_is_resynchronized_only_with_what_it_missed() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, PIECES, 1);
    bench.ask(&mut volume, &fail("b")).expect("it is redundant");
    bench.write(&mut volume, 10, 2);
    let written = |volume: &VolumeDrive| volume.report().member_write_bytes;
    let before = written(&volume);
    bench.readd(&mut volume, "b").expect("it is the member");
    bench.wait_until_quiescent(&mut volume);
    let resynchronized = written(&volume) - before;
    let log = notices(&mut volume);
    assert!(log.contains("member 1 (../b) is re-added") && log.contains("member 1 (../b) is resynchronized"), "{log}");
    // A rebuild writes all contents of the member.
    bench.ask(&mut volume, &fail("b")).expect("it is redundant");
    let before = written(&volume);
    let with = bench.at("b").display().to_string();
    let replace =
        VolumeRequest::Replace { member: "b".to_owned(), with, may_wipe: true, credentials: Default::default() };
    bench.ask(&mut volume, &replace).expect("it may be wiped");
    bench.wait_until_quiescent(&mut volume);
    let rebuilt = written(&volume) - before;
    assert!(resynchronized * 3 < rebuilt, "resynchronized with {resynchronized} bytes, rebuilt with {rebuilt}");
    bench.ask(&mut volume, &fail("b")).expect("it is redundant");
    bench.readd(&mut volume, "b").expect("it is the member");
    bench.wait_until_quiescent(&mut volume);
    bench.ask(&mut volume, &fail("c")).expect("it is redundant");
    bench.check(&mut volume, 10, 2);
    for piece in 10..PIECES {
        let read = Operation::Read { start: Lba(piece * 16), blocks: Blocks(16) };
        let Outcome::Data(Payload::Bytes(buffer)) = bench.execute(&mut volume, read).outcome else {
            panic!("piece {piece} can be read")
        };
        assert!(buffer.data.iter().all(|byte| *byte == piece as u8 ^ 1), "piece {piece}");
    }
}

#[test]
fn a_member_that_was_missing_at_a_mount_is_readded_automatically_at_the_next() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, PIECES, 1);
    bench.close(volume);
    bench.rename("b", "away");
    let mut volume = bench.open();
    // Garbage collection reclaims all contents of the member.
    for salt in 2..7 {
        bench.write(&mut volume, PIECES, salt);
    }
    assert_eq!(states(&volume), ["active", "failed", "active"]);
    bench.close(volume);
    bench.rename("away", "b");
    let mut volume = bench.open();
    bench.wait_until_quiescent(&mut volume);
    let log = notices(&mut volume);
    assert!(log.contains("member 1 (../b) is back: resynchronizing what it missed"), "{log}");
    assert_eq!(volume.report().state, VolumeState::Healthy);
    bench.close(volume);
    remove(&bench.at("a"));
    bench.check(&mut bench.open(), PIECES, 6);
}

#[test]
fn a_missing_member_is_readded_automatically_while_the_volume_is_in_use() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 40, 1);
    bench.close(volume);
    bench.rename("b", "away");
    let mut volume = bench.open();
    bench.write(&mut volume, 60, 2);
    std::thread::sleep(std::time::Duration::from_secs(2));
    bench.rename("away", "b");
    bench.run_until(&mut volume, "member 1 (../b) is resynchronized");
    bench.ask(&mut volume, &fail("a")).expect("it is redundant");
    bench.check(&mut volume, 60, 2);
}

#[test]
fn a_member_that_was_failed_by_command_is_readded_by_command_only() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 40, 1);
    bench.ask(&mut volume, &fail("b")).expect("it is redundant");
    assert_eq!(volume.report().members[1].failed.as_deref(), Some("by command"));
    bench.close(volume);
    let text = std::fs::read_to_string(bench.at("vol").join("volume.toml")).expect("it exists");
    assert!(text.contains("failed = \"command\""), "{text}");
    let looked = zonda_devices::VolumeReport::inspect(&bench.at("vol")).expect("it can be read");
    assert_eq!(looked.members[1].failed.as_deref(), Some("by command"));
    let mut volume = bench.open();
    bench.wait_until_quiescent(&mut volume);
    assert_eq!(states(&volume), ["active", "failed", "active"]);
    assert_eq!(volume.report().members[1].failed.as_deref(), Some("by command"));
    let error = bench.readd(&mut volume, "c").expect_err("it is active");
    assert!(error.message.contains("has not failed"), "{error}");
    bench.readd(&mut volume, "b").expect("it was requested");
    bench.wait_until_quiescent(&mut volume);
    bench.close(volume);
    let text = std::fs::read_to_string(bench.at("vol").join("volume.toml")).expect("it exists");
    assert!(!text.contains("failed"), "{text}");
}

#[test]
fn a_member_that_was_failed_by_command_stays_failed_though_the_program_is_killed_at_once() {
    let bench = Bench::with(&["a", "b", "c"]);
    bench.close(bench.create(&["a", "b", "c"], &[]));
    for _ in 0..5 {
        let mut volume = bench.open();
        bench.ask(&mut volume, &fail("b")).expect("it is redundant");
        drop(volume);
        let mut volume = bench.open();
        bench.wait_until_quiescent(&mut volume);
        assert_eq!(states(&volume), ["active", "failed", "active"]);
        bench.readd(&mut volume, "b").expect("it was requested");
        bench.wait_until_quiescent(&mut volume);
        bench.close(volume);
    }
}

#[test]
fn a_drive_that_is_not_the_member_is_refused_and_named() {
    let bench = Bench::with(&["a", "b", "c", "x"]);
    bench.close(bench.create_at("other", &["x"], &[]));
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 40, 1);
    bench.ask(&mut volume, &fail("b")).expect("it is redundant");
    bench.rename("b", "away");
    let error = bench.readd(&mut volume, "b").expect_err("it is missing");
    assert!(error.to_string().contains('b'), "{error}");
    bench.make_drive("b");
    let error = bench.readd(&mut volume, "b").expect_err("it is empty");
    assert!(error.message.contains("it was wiped") && error.help.contains("member replace"), "{error}");
    remove(&bench.at("b"));
    bench.rename("x", "b");
    let error = bench.readd(&mut volume, "b").expect_err("it is of another volume");
    assert!(error.message.contains("member 0 of the volume \"other\""), "{error}");
    remove(&bench.at("b"));
    bench.rename("away", "b");
    bench.readd(&mut volume, "b").expect("it is the member");
    bench.wait_until_quiescent(&mut volume);
    assert_eq!(volume.report().state, VolumeState::Healthy);
    // The drive that failed, after it was replaced by another one.
    bench.ask(&mut volume, &fail("b")).expect("it is redundant");
    bench.rename("b", "away");
    bench.make_drive("b");
    let with = bench.at("b").display().to_string();
    bench
        .ask(
            &mut volume,
            &VolumeRequest::Replace { member: "1".to_owned(), with, may_wipe: false, credentials: Default::default() },
        )
        .expect("it is empty");
    bench.wait_until_quiescent(&mut volume);
    bench.ask(&mut volume, &fail("b")).expect("it is redundant");
    remove(&bench.at("b"));
    bench.rename("away", "b");
    let error = bench.readd(&mut volume, "b").expect_err("it was replaced");
    assert!(error.message.contains("it has been replaced since"), "{error}");
}

#[test]
fn a_member_that_was_written_independently_is_refused() {
    let bench = Bench::with(&["a", "b"]);
    let mut volume = bench.create(&["a", "b"], &[]);
    bench.write(&mut volume, 40, 1);
    bench.close(volume);
    std::fs::create_dir(bench.at("alone")).expect("there is space");
    std::fs::copy(bench.at("vol").join("volume.toml"), bench.at("alone").join("volume.toml")).expect("there is space");
    bench.rename("a", "away");
    let mut alone = VolumeDrive::open(&bench.at("alone"), &bench.ring).expect("one member of a mirror is enough");
    bench.write(&mut alone, 10, 2);
    bench.close(alone);
    bench.rename("b", "b-away");
    bench.rename("away", "a");
    let mut volume = bench.open();
    bench.write(&mut volume, 20, 3);
    bench.rename("b-away", "b");
    let log = bench.run_until(&mut volume, "is not re-added");
    assert!(log.contains("split brain") && log.contains("--force"), "{log}");
    let error = bench.readd(&mut volume, "b").expect_err("it was written independently");
    assert!(error.message.contains("split brain") && error.help.contains("member replace"), "{error}");
    assert_eq!(states(&volume), ["active", "failed"]);
    bench.check(&mut volume, 20, 3);
}

#[test]
fn a_member_whose_resynchronization_was_interrupted_by_a_kill_is_resynchronized_at_the_next_mount() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, PIECES, 1);
    for (round, iterations) in [0, 1, 3, 6, 10, 20, 40].into_iter().enumerate() {
        let salt = round as u8 + 2;
        bench.ask(&mut volume, &fail("b")).expect("it is redundant");
        bench.write(&mut volume, 100, salt);
        let request = VolumeRequest::Readd { member: "b".to_owned() };
        assert!(matches!(volume.ask(&request, &bench.ring), VolumeReply::Pending(_)));
        let mut completions = CompletionQueue::new();
        for _ in 0..iterations * 5 {
            volume.poll(bench.ring.now(), &mut completions);
            let soon = bench.ring.now() + zonda_zoned::Duration(1_000_000);
            bench.ring.run_once(Some(soon)).expect("the loop works");
        }
        drop(volume);
        // The thread that was opening the drive exits a little later.
        volume = loop {
            match VolumeDrive::open(&bench.at("vol"), &bench.ring) {
                Err(error) if error.is_in_use => std::thread::sleep(std::time::Duration::from_millis(10)),
                opened => break opened.expect("there is a volume"),
            }
        };
        while states(&volume)[1] == "failed" {
            match bench.readd(&mut volume, "b") {
                Err(error) if error.is_in_use => std::thread::sleep(std::time::Duration::from_millis(10)),
                readded => readded.expect("it is the member"),
            }
        }
        bench.wait_until_quiescent(&mut volume);
        assert_eq!(volume.report().state, VolumeState::Healthy, "after {iterations} iterations");
        bench.ask(&mut volume, &fail("c")).expect("it is redundant");
        bench.check(&mut volume, 100, salt);
        bench.readd(&mut volume, "c").expect("it is the member");
        bench.wait_until_quiescent(&mut volume);
    }
}

#[test]
fn a_missing_member_can_be_failed_by_command_so_that_it_is_not_readded() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 10, 1);
    bench.close(volume);
    bench.rename("b", "away");
    let mut volume = bench.open();
    bench.ask(&mut volume, &fail("b")).expect("it must not be re-added");
    let error = bench.ask(&mut volume, &fail("b")).expect_err("it has failed");
    assert!(error.message.contains("has failed already") && error.help.contains("re-add"), "{error}");
    bench.rename("away", "b");
    bench.close(volume);
    let mut volume = bench.open();
    bench.wait_until_quiescent(&mut volume);
    assert_eq!(states(&volume), ["active", "failed", "active"]);
}
