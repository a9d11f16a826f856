//! What the model of a volume allows, and what it does not.

use super::*;

fn submit(model: &mut Model, request: &Request) -> Command {
    let mut taken = None;
    assert!(model.submit(request, |command| {
        taken = Some(command);
        Ok(())
    }));
    taken.unwrap()
}

fn end(model: &mut Model, command: &Command) -> Result<(), Violation> {
    model.on_completion(&Completion::of(command.id, Status::Success))
}

/// Reads block 3, which returns a version; 0 is zeros.
fn read(model: &mut Model, version: u64) -> Result<(), Violation> {
    let command = submit(model, &Request::Read { start: 3, blocks: 1 });
    answer(model, &command, version)
}

fn answer(model: &mut Model, command: &Command, version: u64) -> Result<(), Violation> {
    let data = if version == 0 { vec![0; 512] } else { model.contents(3, version) };
    let outcome = Outcome::Data(Payload::Bytes(Box::new(BlockBuffer { data: data.into(), metadata: Bytes::new() })));
    model.on_completion(&Completion { id: command.id, status: Status::Success, outcome })
}

const WRITE: Request = Request::Write { start: 3, blocks: 1 };

#[test]
fn a_read_has_the_newest_version_of_its_submission_whenever_it_ends() {
    let mut model = Model::new(8, 512);
    assert_eq!(read(&mut model, 0), Ok(()));
    let first = submit(&mut model, &WRITE);
    let early = submit(&mut model, &Request::Read { start: 3, blocks: 1 });
    let second = submit(&mut model, &WRITE);
    assert_eq!(end(&mut model, &second), Ok(()));
    assert_eq!(read(&mut model, 2), Ok(()));
    assert_eq!(end(&mut model, &first), Ok(()));
    assert_eq!(answer(&mut model, &early, 1), Ok(()));
    assert_eq!(read(&mut model, 1).unwrap_err().promise, Promise::Contents);
}

#[test]
fn a_crash_leaves_what_was_acknowledged_or_anything_newer_and_what_was_read_stays() {
    let mut start = Model::new(8, 512);
    let writes: Vec<Command> = (0..4).map(|_| submit(&mut start, &WRITE)).collect();
    end(&mut start, &writes[1]).unwrap();
    start.crash();
    for version in 0..=5 {
        let mut model = start.clone();
        assert_eq!(read(&mut model, version).is_ok(), (2..=4).contains(&version), "version {version}");
    }
    let mut model = start;
    read(&mut model, 3).unwrap();
    model.crash();
    assert_eq!(read(&mut model, 4).unwrap_err().lba, Some(3));
    assert_eq!(read(&mut model, 3), Ok(()));
}

#[test]
fn what_was_not_flushed_may_be_lost_where_caches_are_volatile() {
    let mut start = Model::new(8, 512);
    start.is_cache_volatile = true;
    let writes: Vec<Command> = (0..3).map(|_| submit(&mut start, &WRITE)).collect();
    end(&mut start, &writes[0]).unwrap();
    let flush = submit(&mut start, &Request::Flush);
    end(&mut start, &writes[2]).unwrap();
    assert!(read(&mut start.clone(), 2).is_err(), "without a crash the newest is read");
    for is_flushed in [false, true] {
        for version in 0..=4 {
            let mut model = start.clone();
            if is_flushed {
                end(&mut model, &flush).unwrap();
            }
            model.crash();
            let may_be = if is_flushed { 1..=3 } else { 0..=3 };
            assert_eq!(read(&mut model, version).is_ok(), may_be.contains(&version), "version {version}");
        }
    }
}

#[test]
fn a_kill_without_power_loss_loses_nothing_and_a_mount_makes_that_durable() {
    let mut model = Model::new(8, 512);
    model.is_cache_volatile = true;
    let write = submit(&mut model, &WRITE);
    end(&mut model, &write).unwrap();
    model.kill();
    assert!(read(&mut model.clone(), 0).is_err());
    let mut early = model.clone();
    early.crash();
    assert_eq!(read(&mut early, 0), Ok(()), "the mount had no time to flush");
    model.mounted();
    model.crash();
    assert!(read(&mut model, 0).is_err());
}

#[test]
fn a_read_does_not_constrain_failed_writes_submitted_after_it() {
    let mut model = Model::new(8, 512);
    model.may_be_full = true;
    let read_before = submit(&mut model, &Request::Read { start: 3, blocks: 1 });
    let write = submit(&mut model, &WRITE);
    model.on_completion(&Completion::of(write.id, Status::CapacityExceeded)).unwrap();
    answer(&mut model, &read_before, 0).unwrap();
    assert_eq!(read(&mut model.clone(), 1), Ok(()));
    assert_eq!(read(&mut model, 0), Ok(()));
    assert!(read(&mut model, 1).is_err(), "a version that was read stays");
}

#[test]
fn lost_blocks_are_read_with_an_error_or_as_they_were_until_they_are_written() {
    let mut model = Model::new(8, 512);
    for _ in 0..2 {
        let write = submit(&mut model, &WRITE);
        end(&mut model, &write).unwrap();
    }
    let fails = |model: &mut Model| {
        let command = submit(model, &Request::Read { start: 2, blocks: 2 });
        model.on_completion(&Completion::of(command.id, Status::UnrecoveredReadError))
    };
    assert!(fails(&mut model.clone()).is_err());
    model.lose(&[3].into());
    assert_eq!((fails(&mut model), model.take_failed_reads()), (Ok(()), vec![(2, 2)]));
    model.crash();
    assert!(model.may_be_lost(3) && !model.may_be_lost(2));
    assert_eq!(read(&mut model, 2), Ok(()));
    assert!(read(&mut model, 1).is_err() && read(&mut model, 0).is_err());
    let write = submit(&mut model, &WRITE);
    end(&mut model, &write).unwrap();
    assert!(fails(&mut model).is_err(), "it was written");
}

#[test]
fn once_losses_are_accepted_a_block_may_be_older_and_what_was_read_stays() {
    let mut start = Model::new(8, 512);
    for _ in 0..3 {
        let write = submit(&mut start, &WRITE);
        end(&mut start, &write).unwrap();
    }
    start.crash();
    start.accept_losses();
    for version in 0..=3 {
        let mut model = start.clone();
        assert_eq!(read(&mut model, version), Ok(()), "version {version}");
        assert_eq!(read(&mut model, version), Ok(()));
        assert!(read(&mut model, (version + 1) % 4).is_err());
    }
    let write = submit(&mut start, &WRITE);
    end(&mut start, &write).unwrap();
    assert!(read(&mut start, 2).is_err(), "a later write is not lost");
}

#[test]
fn two_reads_after_a_crash_agree() {
    let mut model = Model::new(8, 512);
    submit(&mut model, &WRITE);
    model.crash();
    let reads = [0; 2].map(|_| submit(&mut model, &Request::Read { start: 3, blocks: 1 }));
    assert_eq!(answer(&mut model, &reads[0], 1), Ok(()));
    assert_eq!(answer(&mut model, &reads[1], 0).unwrap_err().promise, Promise::Durability);
}

#[test]
fn a_trim_reads_as_zeros_and_errors_are_for_volumes_that_are_lost() {
    let mut model = Model::new(8, 512);
    let write = submit(&mut model, &WRITE);
    end(&mut model, &write).unwrap();
    let trim = submit(&mut model, &Request::Trim(vec![(2, 3), (3, 1)]));
    assert_eq!(read(&mut model, 0), Ok(()));
    end(&mut model, &trim).unwrap();
    assert_eq!(model.expect_idle(), Ok(()));
    let flush = submit(&mut model, &Request::Flush);
    let failed = Completion::of(flush.id, Status::InternalError);
    assert!(model.expect_idle().is_err());
    assert_eq!(model.clone().on_completion(&failed).unwrap_err().promise, Promise::Answers);
    model.is_lost = true;
    assert_eq!(model.on_completion(&failed), Ok(()));
    assert_eq!(model.on_completion(&failed).unwrap_err().promise, Promise::Ends, "it has ended before");
}

#[test]
fn a_request_out_of_space_leaves_each_block_with_its_old_or_its_new_contents() {
    let mut model = Model::new(8, 512);
    let full = |command: &Command| Completion::of(command.id, Status::CapacityExceeded);
    let write = submit(&mut model, &WRITE);
    assert_eq!(
        model.clone().on_completion(&full(&write)).unwrap_err().promise,
        Promise::Answers,
        "the volume is not out of space"
    );
    model.may_be_full = true;
    assert_eq!((model.on_completion(&full(&write)), model.refused()), (Ok(()), 1));
    for (seen, other) in [(0, 1), (1, 0)] {
        let mut model = model.clone();
        assert_eq!(read(&mut model, seen), Ok(()));
        assert_eq!(read(&mut model, other).unwrap_err().promise, Promise::Contents, "a version that was read stays");
        model.crash();
        assert_eq!(read(&mut model, 1), Ok(()), "a crash may bring it back");
    }
    let again = submit(&mut model, &WRITE);
    end(&mut model, &again).unwrap();
    assert!(read(&mut model, 1).is_err(), "a newer write takes its place");
    assert_eq!(read(&mut model, 2), Ok(()));
}
