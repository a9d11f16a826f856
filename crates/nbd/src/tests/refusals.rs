//! Requests that the server refuses by itself.

use super::testbed::{SIZE, Testbed, ask, config};
use crate::limits::REQUEST_BYTES_MAX;
use crate::testing::{Ask, info_data, meta_context_data};
use crate::wire::handshake::{option, reply};
use crate::wire::transmission::{command, command_flags as flag};
use crate::{NbdError, Operation};

const RANGED: [u16; 5] = [command::READ, command::WRITE, command::TRIM, command::WRITE_ZEROES, command::BLOCK_STATUS];

/// Sends a request that is refused, with data if it is a WRITE; the next request is served.
fn refusal(testbed: &mut Testbed, ask: Ask) -> NbdError {
    let data = vec![1; if ask.command == command::WRITE { ask.length as usize } else { 0 }];
    let error = testbed.refusal(ask, &data);
    assert_eq!((&testbed.closed, testbed.connection.requests_in_flight()), (&None, 0));
    error
}

#[test]
fn a_range_beyond_the_end_of_the_export_is_refused() {
    for mut testbed in [Testbed::simple("disk"), Testbed::structured("disk")] {
        for command in RANGED {
            let error = match command {
                command::WRITE | command::WRITE_ZEROES => NbdError::NoSpace,
                _ => NbdError::Invalid,
            };
            for (offset, length) in [(SIZE, 1), (SIZE - 512, 513), (u64::MAX, 2), (u64::MAX - 1, 1), (1 << 63, 512)] {
                assert_eq!(
                    refusal(&mut testbed, ask(command, 1, offset, length)),
                    error,
                    "{command} {offset} {length}"
                );
            }
        }
        assert_eq!(
            testbed.ask(ask(command::READ, 1, SIZE - 1, 1), &[]),
            Operation::Read { offset: SIZE - 1, length: 1 }
        );
    }
}

#[test]
fn a_read_or_write_longer_than_the_maximum_is_refused_and_other_commands_are_not() {
    let mut large = config();
    large.exports[0].size_bytes = 1 << 40;
    for maximum in [1 << 20, REQUEST_BYTES_MAX] {
        large.exports[0].maximum_block_bytes = maximum;
        let mut testbed = Testbed::structured_with(large.clone(), "disk");
        for command in [command::READ, command::WRITE] {
            assert_eq!(refusal(&mut testbed, ask(command, 1, 0, maximum + 1)), NbdError::Invalid);
        }
        for (cookie, command) in [command::TRIM, command::WRITE_ZEROES, command::BLOCK_STATUS].into_iter().enumerate() {
            testbed.ask(ask(command, cookie as u64, 0, u32::MAX), &[]);
        }
        assert_eq!(testbed.connection.requests_in_flight(), 3);
    }
}

#[test]
fn a_request_unaligned_to_the_minimum_block_size_is_refused() {
    let mut blocks = config();
    blocks.exports[0].minimum_block_bytes = 4096;
    let mut testbed = Testbed::structured_with(blocks, "disk");
    for command in RANGED {
        for (offset, length) in [(512, 4096), (4096, 512), (4097, 4095), (1, 1)] {
            assert_eq!(refusal(&mut testbed, ask(command, 1, offset, length)), NbdError::Invalid);
        }
    }
    testbed.ask(ask(command::READ, 1, 4096, 8192), &[]);
}

#[test]
fn an_export_that_accepts_unaligned_requests_reports_its_block_size_and_refuses_none() {
    let mut blocks = config();
    (blocks.exports[0].minimum_block_bytes, blocks.exports[0].takes_unaligned) = (4096, true);
    let mut testbed = Testbed::greeted(blocks);
    let replies = testbed.option(option::GO, &info_data(b"disk", &[]));
    let sizes = replies.iter().find(|reply| reply.data.starts_with(&3u16.to_be_bytes())).expect("sizes of blocks");
    assert_eq!(sizes.data[2..6], 4096u32.to_be_bytes());
    assert_eq!(testbed.ask(ask(command::READ, 1, 1, 1), &[]), Operation::Read { offset: 1, length: 1 });
}

#[test]
fn a_read_only_export_is_not_written() {
    for mut testbed in [Testbed::simple("relic"), Testbed::structured("relic")] {
        for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(refusal(&mut testbed, ask(command, 1, 0, 512)), NbdError::NotPermitted);
            assert_eq!(refusal(&mut testbed, ask(command, 1, 0, 0)), NbdError::NotPermitted);
        }
        assert_eq!(testbed.ask(ask(command::FLUSH, 1, 0, 0), &[]), Operation::Flush);
        testbed.ask(ask(command::READ, 2, 0, 512), &[]);
    }
}

#[test]
fn an_unsupported_flag_is_refused() {
    let every = [flag::NO_HOLE, flag::DF, flag::REQ_ONE, flag::FAST_ZERO, 1 << 5, 1 << 15];
    let own = |command| match command {
        command::READ => flag::DF,
        command::WRITE_ZEROES => flag::NO_HOLE,
        command::BLOCK_STATUS => flag::REQ_ONE,
        _ => 0,
    };
    let mut testbed = Testbed::structured("disk");
    for command in RANGED.into_iter().chain([command::FLUSH]) {
        for flags in every.into_iter().filter(|flags| flags & own(command) == 0) {
            let ask = Ask { flags, ..ask(command, 1, 0, 0) };
            assert_eq!(refusal(&mut testbed, ask), NbdError::Invalid, "{command} {flags:#x}");
        }
    }
    let mut testbed = Testbed::simple("disk");
    assert_eq!(refusal(&mut testbed, Ask { flags: flag::DF, ..ask(command::READ, 1, 0, 512) }), NbdError::Invalid);
}

#[test]
fn an_unknown_command_is_refused() {
    for mut testbed in [Testbed::simple("disk"), Testbed::structured("disk")] {
        for command in [command::CACHE, 8, 77, u16::MAX] {
            assert_eq!(refusal(&mut testbed, ask(command, 1, 0, 512)), NbdError::Invalid);
        }
    }
}

#[test]
fn a_flush_of_a_range_and_a_block_status_of_no_bytes_are_refused() {
    let mut testbed = Testbed::structured("disk");
    assert_eq!(refusal(&mut testbed, ask(command::FLUSH, 1, 512, 0)), NbdError::Invalid);
    assert_eq!(refusal(&mut testbed, ask(command::FLUSH, 1, 0, 512)), NbdError::Invalid);
    assert_eq!(refusal(&mut testbed, ask(command::BLOCK_STATUS, 1, 0, 0)), NbdError::Invalid);
}

#[test]
fn a_block_status_is_refused_unless_the_last_selection_was_for_this_export() {
    let status = ask(command::BLOCK_STATUS, 1, 0, 512);
    assert_eq!(refusal(&mut Testbed::simple("disk"), status), NbdError::Invalid);
    let allocation: [&[u8]; 1] = [b"base:allocation"];
    let select = |testbed: &mut Testbed, name: &[u8]| {
        let data = meta_context_data(name, &allocation);
        testbed.option(option::SET_META_CONTEXT, &data).last().unwrap().kind
    };
    let refused_after = |selections: &[&[u8]], spoil: &[u8]| {
        let mut testbed = Testbed::greeted(config());
        testbed.option(option::STRUCTURED_REPLY, &[]);
        selections.iter().for_each(|name| assert_eq!(select(&mut testbed, name), reply::ACK));
        if !spoil.is_empty() {
            assert_ne!(testbed.option_reply(option::SET_META_CONTEXT, spoil), reply::META_CONTEXT);
        }
        testbed.option(option::GO, &info_data(b"disk", &[]));
        let bytes = testbed.client.ask(status, &[]);
        testbed.feed(&bytes);
        testbed.requests.is_empty()
    };
    assert!(!refused_after(&[b"disk"], b""));
    assert!(!refused_after(&[b"relic", b"disk"], b""));
    assert!(!refused_after(&[b""], b""), "the default export is the same by its name");
    assert!(refused_after(&[], b""));
    assert!(refused_after(&[b"disk", b"relic"], b""));
    assert!(refused_after(&[b"disk"], &meta_context_data(b"disk", &[])), "a selection of nothing");
    assert!(refused_after(&[b"disk"], b"malformed"), "a selection that failed");
    assert!(refused_after(&[b"disk"], &[0; 70_000]), "a selection that was too big");
}

#[test]
fn data_of_a_refused_write_are_skipped_as_they_arrive() {
    let mut testbed = Testbed::simple("disk");
    let bytes = testbed.client.write(1, SIZE, &[0x25; 100_000]);
    for chunk in bytes.chunks(777) {
        assert!(testbed.connection.wants_bytes());
        assert_eq!(testbed.client.finished(), None);
        testbed.feed(chunk);
        assert!(testbed.connection.buffered_bytes() < 28, "nothing of it is buffered");
    }
    assert_eq!(testbed.finished(1).unwrap_err().error, NbdError::NoSpace);
    testbed.ask(ask(command::READ, 2, 0, 1), &[]);
}
