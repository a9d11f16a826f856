//! The limits of commands in flight: up to the limit commands are accepted, the next one is
//! returned, and all accepted ones complete.

use std::collections::BTreeSet;

use zonda_zoned::{Blocks, CommandId, Geometry, Instant, Lba, LbaRange, Operation, Status};

use super::failures::geometry;
use super::script::{Kind, Script, plain_config, write};
use crate::limits::{BUFFERED_BLOCKS_MAX, MEMBER_COMMANDS_MAX, REQUEST_BLOCKS_MAX, REQUESTS_MAX, TRIM_RANGES_MAX};
use crate::{Level, MemberIndex, Scheme};

const ONE_MEMBER: Scheme = Scheme { level: Level::Raid0, data: 1, parity: 0 };

/// For a volume with more blocks than one request may name.
fn many_zones() -> Geometry {
    Geometry { zone_count: 64, ..geometry(64) }
}

fn script() -> Script {
    let mut script = Script::on(plain_config(ONE_MEMBER), many_zones());
    script.hold(|sent| sent.kind == Kind::Chunk);
    script
}

fn read(start: u64) -> Operation {
    Operation::Read { start: Lba(start), blocks: Blocks(1) }
}

/// The volume accepts no more: it returns this command unchanged.
fn expect_full(script: &mut Script, operation: &Operation, what: &str) {
    let Err(full) = script.try_submit(operation.clone()) else { panic!("the volume accepts {what}") };
    assert_eq!(full.0.operation, *operation, "the command is handed back as it was");
}

/// All accepted commands complete; then the volume accepts this command, and it completes too.
fn expect_all_to_end(mut script: Script, taken: &BTreeSet<CommandId>, operation: Operation) {
    script.release();
    assert!(taken.iter().all(|&id| script.has_ended(id)), "everything in flight ends");
    let id = script.submit(operation);
    assert!(script.has_ended(id), "there is space again");
}

#[test]
fn the_request_beyond_the_limit_is_handed_back_and_all_others_end() {
    let mut script = script();
    let taken: BTreeSet<CommandId> = (0..REQUESTS_MAX as u64)
        .map(|number| {
            script.try_submit(write(number % 64, 1, number + 1)).expect("a request within the limit is accepted")
        })
        .collect();
    for operation in [write(0, 1, 7), read(0), Operation::Flush, read(200)] {
        expect_full(&mut script, &operation, "a request beyond the limit");
    }
    expect_all_to_end(script, &taken, write(0, 1, 7));
}

#[test]
fn the_block_beyond_the_buffer_is_handed_back_and_all_others_are_written() {
    let mut script = script();
    let blocks = REQUEST_BLOCKS_MAX;
    let mut taken: BTreeSet<CommandId> = (1..BUFFERED_BLOCKS_MAX as u64 / blocks)
        .map(|version| script.try_submit(write(0, blocks, version)).expect("blocks within the limit are accepted"))
        .collect();
    taken.insert(script.try_submit(write(0, blocks - 1, 70)).expect("one block less fits"));
    expect_full(&mut script, &write(0, 2, 71), "a block beyond the limit");
    taken.insert(script.try_submit(write(0, 1, 72)).expect("the last block fits"));
    expect_full(&mut script, &write(0, 1, 73), "a block beyond the limit");
    // Reads need no space there.
    taken.insert(script.try_submit(read(0)).expect("a read is accepted"));
    expect_all_to_end(script, &taken, write(0, blocks, 74));
}

#[test]
fn a_member_is_never_given_more_commands_than_the_limit() {
    let mut script = script();
    let write = script.write(0, 1, 1);
    script.release();
    assert!(script.has_ended(write));
    let reads: BTreeSet<CommandId> =
        (0..MEMBER_COMMANDS_MAX + 10).map(|_| script.try_submit(read(0)).expect("there is space")).collect();
    script.hold(|sent| sent.kind == Kind::Read);
    script.run();
    assert_eq!(script.held(), MEMBER_COMMANDS_MAX, "the rest waits in the volume");
    assert_eq!(script.volume.poll_command(Instant::ZERO, MemberIndex(0)), None);
    expect_all_to_end(script, &reads, read(0));
}

#[test]
fn ranges_of_trims_beyond_the_limit_are_handed_back_and_all_others_end() {
    let mut config = plain_config(ONE_MEMBER);
    config.tuning.trim_blocks = 1;
    let mut script = Script::on(config, many_zones());
    let ranges: Vec<LbaRange> = (0..TRIM_RANGES_MAX as u64)
        .map(|number| LbaRange { start: Lba(number % 100 * 2), blocks: Blocks(1) })
        .collect();
    let trim = |count: usize| Operation::Deallocate { ranges: ranges[..count].into() };
    expect_full(&mut script, &trim(TRIM_RANGES_MAX), "a trim of more ranges than the table holds");
    let taken = BTreeSet::from([script.try_submit(trim(TRIM_RANGES_MAX - 1)).expect("as many as the table holds")]);
    expect_all_to_end(script, &taken, trim(256));
}

#[test]
fn a_request_of_one_block_too_many_is_refused_and_all_blocks_of_the_largest_one_are_counted() {
    let mut script = Script::on(plain_config(ONE_MEMBER), many_zones());
    let largest = script.write(0, REQUEST_BLOCKS_MAX, 1);
    assert!(script.has_ended(largest));
    assert_eq!(script.volume.counters().host_blocks, REQUEST_BLOCKS_MAX);
    let blocks = Blocks(REQUEST_BLOCKS_MAX + 1);
    for operation in [write(0, blocks.0, 2), Operation::Read { start: Lba(0), blocks }] {
        let id = script.submit(operation);
        assert_eq!(script.status(id), Some(Status::InvalidField));
    }
    assert_eq!(script.volume.counters().host_blocks, REQUEST_BLOCKS_MAX, "refused requests do not count");
}
