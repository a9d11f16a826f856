//! Members that have failed come back, and are caught up with what they missed.

use super::*;

/// Longer than the longest time between two looks for a member.
const LOOKS: u64 = 25;

impl Bench {
    /// Moves a drive somewhere else, or back.
    fn rename(&self, from: &str, to: &str) {
        std::fs::rename(self.at(from), self.at(to)).expect("it is there");
    }

    /// Until a notice says this, at most for some seconds.
    fn until(&self, volume: &mut VolumeDrive, text: &str) -> String {
        let (mut told, mut completions) = (String::new(), CompletionQueue::new());
        let began = std::time::Instant::now();
        while !told.contains(text) {
            assert!(began.elapsed().as_secs() < LOOKS, "\"{text}\" is not said: {told}");
            volume.poll(self.ring.now(), &mut completions);
            told += &notices(volume);
            let soon = self.ring.now() + zonda_zoned::Duration(50_000_000);
            self.ring.turn(Some(volume.next_wakeup().map_or(soon, |at| at.min(soon)))).expect("the loop works");
        }
        told
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
fn a_member_failed_by_command_is_given_only_what_it_missed_when_it_is_taken_back() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, PIECES, 1);
    bench.ask(&mut volume, &fail("b")).expect("it can do without");
    bench.write(&mut volume, 10, 2);
    let written = |volume: &VolumeDrive| volume.report().member_write_bytes;
    let before = written(&volume);
    bench.readd(&mut volume, "b").expect("it is the member");
    bench.rest(&mut volume);
    let caught_up = written(&volume) - before;
    let told = notices(&mut volume);
    assert!(told.contains("member 1 (../b) is taken back") && told.contains("member 1 (../b) is rebuilt"), "{told}");
    // A rebuild takes as much as the member holds.
    bench.ask(&mut volume, &fail("b")).expect("it can do without");
    let before = written(&volume);
    let with = bench.at("b").display().to_string();
    let replace =
        VolumeRequest::Replace { member: "b".to_owned(), with, may_wipe: true, credentials: Default::default() };
    bench.ask(&mut volume, &replace).expect("it may be wiped");
    bench.rest(&mut volume);
    let rebuilt = written(&volume) - before;
    assert!(caught_up * 3 < rebuilt, "caught up with {caught_up} bytes, rebuilt with {rebuilt}");
    bench.ask(&mut volume, &fail("b")).expect("it can do without");
    bench.readd(&mut volume, "b").expect("it is the member");
    bench.rest(&mut volume);
    bench.ask(&mut volume, &fail("c")).expect("it can do without");
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
fn a_member_that_was_away_at_a_start_comes_back_by_itself_at_the_next() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, PIECES, 1);
    bench.close(volume);
    bench.rename("b", "away");
    let mut volume = bench.open();
    // Everything is collected that the member holds.
    for salt in 2..7 {
        bench.write(&mut volume, PIECES, salt);
    }
    assert_eq!(states(&volume), ["active", "failed", "active"]);
    bench.close(volume);
    bench.rename("away", "b");
    let mut volume = bench.open();
    bench.rest(&mut volume);
    let told = notices(&mut volume);
    assert!(told.contains("member 1 (../b) is there again: it is caught up with what it missed"), "{told}");
    assert_eq!(volume.report().state, VolumeState::Well);
    bench.close(volume);
    remove(&bench.at("a"));
    bench.check(&mut bench.open(), PIECES, 6);
}

#[test]
fn a_member_that_was_away_comes_back_by_itself_while_the_volume_is_in_use() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 40, 1);
    bench.close(volume);
    bench.rename("b", "away");
    let mut volume = bench.open();
    bench.write(&mut volume, 60, 2);
    std::thread::sleep(std::time::Duration::from_secs(2));
    bench.rename("away", "b");
    bench.until(&mut volume, "member 1 (../b) is rebuilt");
    bench.ask(&mut volume, &fail("a")).expect("it can do without");
    bench.check(&mut volume, 60, 2);
}

#[test]
fn a_member_that_was_failed_by_command_comes_back_by_command_only() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 40, 1);
    bench.ask(&mut volume, &fail("b")).expect("it can do without");
    assert_eq!(volume.report().members[1].failed.as_deref(), Some("by command"));
    bench.close(volume);
    let text = std::fs::read_to_string(bench.at("vol").join("volume.toml")).expect("it is there");
    assert!(text.contains("failed = \"command\""), "{text}");
    let looked = zonda_devices::VolumeReport::look(&bench.at("vol")).expect("it can be read");
    assert_eq!(looked.members[1].failed.as_deref(), Some("by command"));
    let mut volume = bench.open();
    bench.rest(&mut volume);
    assert_eq!(states(&volume), ["active", "failed", "active"]);
    assert_eq!(volume.report().members[1].failed.as_deref(), Some("by command"));
    let error = bench.readd(&mut volume, "c").expect_err("it is active");
    assert!(error.message.contains("has not failed"), "{error}");
    bench.readd(&mut volume, "b").expect("the operator says so");
    bench.rest(&mut volume);
    bench.close(volume);
    let text = std::fs::read_to_string(bench.at("vol").join("volume.toml")).expect("it is there");
    assert!(!text.contains("failed"), "{text}");
}

#[test]
fn a_member_that_was_failed_by_command_stays_failed_though_the_program_is_killed_at_once() {
    let bench = Bench::with(&["a", "b", "c"]);
    bench.close(bench.create(&["a", "b", "c"], &[]));
    for _ in 0..5 {
        let mut volume = bench.open();
        bench.ask(&mut volume, &fail("b")).expect("it can do without");
        drop(volume);
        let mut volume = bench.open();
        bench.rest(&mut volume);
        assert_eq!(states(&volume), ["active", "failed", "active"]);
        bench.readd(&mut volume, "b").expect("the operator says so");
        bench.rest(&mut volume);
        bench.close(volume);
    }
}

#[test]
fn a_drive_that_is_not_the_member_is_refused_and_named() {
    let bench = Bench::with(&["a", "b", "c", "x"]);
    bench.close(bench.create_at("other", &["x"], &[]));
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 40, 1);
    bench.ask(&mut volume, &fail("b")).expect("it can do without");
    bench.rename("b", "away");
    let error = bench.readd(&mut volume, "b").expect_err("it is not there");
    assert!(error.to_string().contains('b'), "{error}");
    bench.make_drive("b");
    let error = bench.readd(&mut volume, "b").expect_err("it is empty");
    assert!(error.message.contains("it was wiped") && error.help.contains("member replace"), "{error}");
    remove(&bench.at("b"));
    bench.rename("x", "b");
    let error = bench.readd(&mut volume, "b").expect_err("it is another volume's");
    assert!(error.message.contains("member 0 of the volume \"other\""), "{error}");
    remove(&bench.at("b"));
    bench.rename("away", "b");
    bench.readd(&mut volume, "b").expect("it is the member");
    bench.rest(&mut volume);
    assert_eq!(volume.report().state, VolumeState::Well);
    // The drive that failed, after another one has taken its place.
    bench.ask(&mut volume, &fail("b")).expect("it can do without");
    bench.rename("b", "away");
    bench.make_drive("b");
    let with = bench.at("b").display().to_string();
    bench
        .ask(
            &mut volume,
            &VolumeRequest::Replace { member: "1".to_owned(), with, may_wipe: false, credentials: Default::default() },
        )
        .expect("it is empty");
    bench.rest(&mut volume);
    bench.ask(&mut volume, &fail("b")).expect("it can do without");
    remove(&bench.at("b"));
    bench.rename("away", "b");
    let error = bench.readd(&mut volume, "b").expect_err("it was replaced");
    assert!(error.message.contains("another one has taken its place"), "{error}");
}

#[test]
fn a_member_that_was_written_to_without_the_others_is_refused() {
    let bench = Bench::with(&["a", "b"]);
    let mut volume = bench.create(&["a", "b"], &[]);
    bench.write(&mut volume, 40, 1);
    bench.close(volume);
    std::fs::create_dir(bench.at("alone")).expect("there is room");
    std::fs::copy(bench.at("vol").join("volume.toml"), bench.at("alone").join("volume.toml")).expect("there is room");
    bench.rename("a", "away");
    let mut alone = VolumeDrive::open(&bench.at("alone"), &bench.ring).expect("a mirror does without one");
    bench.write(&mut alone, 10, 2);
    bench.close(alone);
    bench.rename("b", "b-away");
    bench.rename("away", "a");
    let mut volume = bench.open();
    bench.write(&mut volume, 20, 3);
    bench.rename("b-away", "b");
    let told = bench.until(&mut volume, "is not taken back");
    assert!(told.contains("split brain") && told.contains("--force"), "{told}");
    let error = bench.readd(&mut volume, "b").expect_err("it went on by itself");
    assert!(error.message.contains("split brain") && error.help.contains("member replace"), "{error}");
    assert_eq!(states(&volume), ["active", "failed"]);
    bench.check(&mut volume, 20, 3);
}

#[test]
fn a_program_killed_while_a_member_is_caught_up_leaves_one_that_the_next_start_catches_up() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, PIECES, 1);
    for (round, turns) in [0, 1, 3, 6, 10, 20, 40].into_iter().enumerate() {
        let salt = round as u8 + 2;
        bench.ask(&mut volume, &fail("b")).expect("it can do without");
        bench.write(&mut volume, 100, salt);
        let request = VolumeRequest::Readd { member: "b".to_owned() };
        assert!(matches!(volume.ask(&request, &bench.ring), Asked::Later(_)));
        let mut completions = CompletionQueue::new();
        for _ in 0..turns * 5 {
            volume.poll(bench.ring.now(), &mut completions);
            let soon = bench.ring.now() + zonda_zoned::Duration(1_000_000);
            bench.ring.turn(Some(soon)).expect("the loop works");
        }
        drop(volume);
        // The thread that was opening the drive ends a little later.
        volume = loop {
            match VolumeDrive::open(&bench.at("vol"), &bench.ring) {
                Err(error) if error.is_in_use => std::thread::sleep(std::time::Duration::from_millis(10)),
                opened => break opened.expect("there is a volume"),
            }
        };
        while states(&volume)[1] == "failed" {
            match bench.readd(&mut volume, "b") {
                Err(error) if error.is_in_use => std::thread::sleep(std::time::Duration::from_millis(10)),
                taken_back => taken_back.expect("it is the member"),
            }
        }
        bench.rest(&mut volume);
        assert_eq!(volume.report().state, VolumeState::Well, "after {turns} turns");
        bench.ask(&mut volume, &fail("c")).expect("it can do without");
        bench.check(&mut volume, 100, salt);
        bench.readd(&mut volume, "c").expect("it is the member");
        bench.rest(&mut volume);
    }
}

#[test]
fn a_member_that_is_away_can_be_failed_by_command_so_that_it_stays_away() {
    let bench = Bench::with(&["a", "b", "c"]);
    let mut volume = bench.create(&["a", "b", "c"], &[]);
    bench.write(&mut volume, 10, 1);
    bench.close(volume);
    bench.rename("b", "away");
    let mut volume = bench.open();
    bench.ask(&mut volume, &fail("b")).expect("it is to stay away");
    let error = bench.ask(&mut volume, &fail("b")).expect_err("it has failed");
    assert!(error.message.contains("has failed already") && error.help.contains("re-add"), "{error}");
    bench.rename("away", "b");
    bench.close(volume);
    let mut volume = bench.open();
    bench.rest(&mut volume);
    assert_eq!(states(&volume), ["active", "failed", "active"]);
}
