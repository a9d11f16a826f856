//! From the first byte to transmission.

use super::testbed::{SIZE, Testbed, config};
use crate::testing::{Client, OptionReply, client_flags, info_data, meta_context_data, option as option_bytes};
use crate::wire::handshake::{flags, info, option, reply};
use crate::{CloseReason, Export, ExportIndex, Fault, ServerConfig, Stage};

fn kinds(replies: &[OptionReply]) -> Vec<u32> {
    replies.iter().map(|reply| reply.kind).collect()
}

fn data_of(replies: &[OptionReply], kind: u16) -> Option<&[u8]> {
    let data = replies.iter().filter(|reply| reply.kind == reply::INFO).map(|reply| &reply.data[..]);
    let mut found = data.filter(|data| data[..2] == kind.to_be_bytes()).map(|data| &data[2..]);
    let first = found.next();
    assert_eq!(found.next(), None, "an item comes once");
    first
}

#[test]
fn a_client_that_goes_to_an_export_is_in_transmission() {
    let mut testbed = Testbed::greeted(config());
    assert_eq!(testbed.connection.stage(), Stage::Handshake);
    let replies = testbed.option(option::GO, &info_data(b"disk", &[]));
    assert_eq!(kinds(&replies), [reply::INFO, reply::INFO, reply::ACK]);
    assert_eq!(data_of(&replies, info::EXPORT), Some(&[0, 0, 0, 0, 0, 16, 0, 0, 0, 0b0110_1101][..]));
    assert_eq!(data_of(&replies, info::BLOCK_SIZE), Some(&[0, 0, 0, 1, 0, 0, 16, 0, 2, 0, 0, 0][..]));
    assert_eq!((testbed.connection.stage(), testbed.opened), (Stage::Transmission, Some(ExportIndex(0))));
    assert_eq!(testbed.connection.export(), Some(ExportIndex(0)));
}

#[test]
fn info_has_the_replies_of_go_and_the_handshake_continues() {
    let mut testbed = Testbed::greeted(config());
    let wanted = info_data(b"disk", &[info::NAME, info::DESCRIPTION, 77]);
    let info_replies = testbed.option(option::INFO, &wanted);
    assert_eq!(data_of(&info_replies, info::NAME), Some(&b"disk"[..]));
    assert_eq!(data_of(&info_replies, info::DESCRIPTION), Some(&b"a disk to try things on"[..]));
    assert_eq!((info_replies.len(), testbed.opened), (5, None));
    let go_replies: Vec<OptionReply> = testbed.option(option::GO, &wanted);
    let same = go_replies
        .iter()
        .map(|reply| (reply.kind, &reply.data))
        .eq(info_replies.iter().map(|reply| (reply.kind, &reply.data)));
    assert!(same && testbed.opened == Some(ExportIndex(0)));
}

#[test]
fn an_empty_name_selects_the_default_export_and_info_reports_its_name() {
    let mut testbed = Testbed::greeted(ServerConfig { default_export: Some(ExportIndex(1)), ..config() });
    let replies = testbed.option(option::GO, &info_data(b"", &[]));
    assert_eq!(data_of(&replies, info::NAME), Some(&b"relic"[..]));
    assert_eq!(testbed.opened, Some(ExportIndex(1)));
}

#[test]
fn an_unknown_export_is_refused_and_another_may_be_requested() {
    let mut testbed = Testbed::greeted(ServerConfig { default_export: None, ..config() });
    for name in [&b"nothing"[..], b"", b"dis", b"disk\0", b"\xff\xfe"] {
        assert_eq!(testbed.option_reply(option::GO, &info_data(name, &[])), reply::ERR_UNKNOWN);
        assert_eq!(testbed.option_reply(option::INFO, &info_data(name, &[])), reply::ERR_UNKNOWN);
    }
    assert_eq!(testbed.option(option::GO, &info_data(b"disk", &[])).last().unwrap().kind, reply::ACK);
}

#[test]
fn export_name_begins_transmission_with_zeros_only_where_they_were_not_declined() {
    for no_zeroes in [false, true] {
        for fixed in [false, true] {
            let flag = |is_set: bool, flag: u16| if is_set { u32::from(flag) } else { 0 };
            let client = flag(no_zeroes, flags::NO_ZEROES) | flag(fixed, flags::FIXED_NEWSTYLE);
            let mut testbed = Testbed::with_client(config(), Client::with_flags(client));
            let bytes = [testbed.client.flags(), testbed.client.option(option::EXPORT_NAME, b"disk")].concat();
            testbed.feed(&bytes);
            assert_eq!(testbed.client.export(), Some((SIZE, 0b0110_1101)));
            assert!(testbed.client.is_idle() && testbed.connection.stage() == Stage::Transmission);
        }
    }
}

#[test]
fn export_name_of_an_unknown_export_closes_the_connection() {
    let mut testbed = Testbed::greeted(config());
    let bytes = testbed.client.option(option::EXPORT_NAME, b"nothing");
    testbed.feed(&bytes);
    assert_eq!(testbed.closed, Some(CloseReason::UnknownExport { name: "nothing".to_owned() }));
    assert_eq!(testbed.connection.stage(), Stage::Closed);
}

#[test]
fn the_list_has_names_and_descriptions() {
    let mut testbed = Testbed::greeted(config());
    let replies = testbed.option(option::LIST, &[]);
    assert_eq!(kinds(&replies), [reply::SERVER, reply::SERVER, reply::ACK]);
    assert_eq!(replies[0].data, b"\0\0\0\x04diska disk to try things on");
    assert_eq!(replies[1].data, b"\0\0\0\x05relic");
    let mut testbed = Testbed::greeted(ServerConfig::new(vec![]));
    assert_eq!(testbed.option_reply(option::LIST, &[]), reply::ACK);
    let mut testbed = Testbed::greeted(ServerConfig { may_list: false, ..config() });
    assert_eq!(testbed.option_reply(option::LIST, &[]), reply::ERR_POLICY);
}

#[test]
fn structured_replies_bring_the_flag_for_reads_in_one_chunk() {
    let mut testbed = Testbed::greeted(config());
    assert_eq!(testbed.option_reply(option::STRUCTURED_REPLY, &[]), reply::ACK);
    let replies = testbed.option(option::INFO, &info_data(b"disk", &[]));
    assert_eq!(data_of(&replies, info::EXPORT).unwrap()[8..], [0, 0b1110_1101]);
}

#[test]
fn metadata_contexts_are_listed_and_selected() {
    let mut testbed = Testbed::greeted(config());
    let list = |queries: &[&[u8]]| meta_context_data(b"disk", queries);
    assert_eq!(
        testbed.option_reply(option::LIST_META_CONTEXT, &list(&[])),
        reply::ERR_INVALID,
        "structured replies first"
    );
    testbed.option(option::STRUCTURED_REPLY, &[]);
    let both = [reply::META_CONTEXT, reply::ACK];
    let listed: [&[&[u8]]; 4] = [&[], &[b"base:"], &[b"base:allocation"], &[b"x-no:thing", b"base:"]];
    for queries in listed {
        let replies = testbed.option(option::LIST_META_CONTEXT, &list(queries));
        assert_eq!(kinds(&replies), both);
        assert_eq!(replies[0].data, b"\0\0\0\0base:allocation");
    }
    let replies = testbed.option(option::SET_META_CONTEXT, &list(&[b"qemu:dirty-bitmap:a", b"base:allocation"]));
    assert_eq!((kinds(&replies), &replies[0].data[..]), (both.to_vec(), &b"\0\0\0\x01base:allocation"[..]));
    let unknown: [&[&[u8]]; 4] = [&[b"base:other"], &[b"x-no:thing"], &[b"base"], &[b""]];
    for queries in unknown {
        assert_eq!(testbed.option_reply(option::LIST_META_CONTEXT, &list(queries)), reply::ACK);
        assert_eq!(testbed.option_reply(option::SET_META_CONTEXT, &list(queries)), reply::ACK);
    }
    assert_eq!(testbed.option_reply(option::SET_META_CONTEXT, &list(&[])), reply::ACK, "no query selects nothing");
    assert_eq!(testbed.option_reply(option::SET_META_CONTEXT, &list(&[b"base:"])), reply::ACK, "nor does a wildcard");
    let elsewhere = meta_context_data(b"nothing", &[]);
    assert_eq!(testbed.option_reply(option::LIST_META_CONTEXT, &elsewhere), reply::ERR_UNKNOWN);
}

#[test]
fn malformed_options_are_refused_and_the_handshake_continues() {
    let mut testbed = Testbed::greeted(config());
    testbed.option(option::STRUCTURED_REPLY, &[]);
    let name = info_data(b"disk", &[]);
    let invalid: [(u32, Vec<u8>); 12] = [
        (option::LIST, vec![0]),
        (option::STRUCTURED_REPLY, vec![0; 5]),
        (option::GO, vec![]),
        (option::GO, name[..name.len() - 1].to_vec()),
        (option::GO, [&name[..], &[0]].concat()),
        (option::GO, [&name[..8], &[0, 2, 0, 1]].concat()),
        (option::INFO, vec![0xff; 4]),
        (option::INFO, info_data(&[b'a'; 4097], &[])),
        (option::SET_META_CONTEXT, vec![0; 7]),
        (option::SET_META_CONTEXT, [&meta_context_data(b"disk", &[b"base:"])[..], &[0]].concat()),
        (option::LIST_META_CONTEXT, [&meta_context_data(b"disk", &[])[..8], &[0xff; 4]].concat()),
        (option::LIST_META_CONTEXT, meta_context_data(b"disk", &[&[b'a'; 4097]])),
    ];
    for (option, data) in invalid {
        assert_eq!(testbed.option_reply(option, &data), reply::ERR_INVALID, "{option} {data:?}");
    }
    assert_eq!(testbed.option(option::GO, &name).last().unwrap().kind, reply::ACK);
}

#[test]
fn unknown_options_are_refused_regardless_of_their_data() {
    let mut testbed = Testbed::greeted(config());
    for option in [0, 4, option::EXTENDED_HEADERS, 12, u32::MAX] {
        assert_eq!(testbed.option_reply(option, &[]), reply::ERR_UNSUP);
        assert_eq!(testbed.option_reply(option, &[7; 100_000]), reply::ERR_UNSUP);
    }
    assert_eq!(testbed.option_reply(option::GO, &[0; 65_537]), reply::ERR_TOO_BIG);
    assert_eq!(testbed.option_reply(option::SET_META_CONTEXT, &[0; 65_537]), reply::ERR_TOO_BIG);
}

#[test]
fn abort_is_acknowledged_and_ends_the_connection() {
    for data in [&b""[..], b"why"] {
        let mut testbed = Testbed::greeted(config());
        assert_eq!(testbed.option_reply(option::ABORT, data), reply::ACK);
        assert_eq!(testbed.closed, Some(CloseReason::Aborted));
    }
}

#[test]
fn a_protocol_violation_closes_the_connection_with_the_reason() {
    let fault = |bytes: &[u8]| {
        let mut testbed = Testbed::new(config());
        // The client did not send these bytes itself, so it does not expect replies to them.
        testbed.hold = true;
        testbed.feed(bytes);
        let Some(CloseReason::Fault(fault)) = testbed.closed else { panic!("a fault, not {:?}", testbed.closed) };
        assert!(!fault.to_string().is_empty());
        fault
    };
    let hello = |option: &[u8]| [&client_flags(1), option].concat();
    assert_eq!(fault(&client_flags(4)), Fault::ClientFlags { flags: 4 });
    assert_eq!(fault(&hello(&[0; 16])), Fault::OptionMagic { found: 0 });
    let plain = [&client_flags(0)[..], &option_bytes(option::LIST, &[])].concat();
    assert_eq!(fault(&plain), Fault::NotFixedNewstyle { option: option::LIST });
    let long = option_bytes(option::EXPORT_NAME, &[b'a'; 4097]);
    assert_eq!(fault(&hello(&long)), Fault::NameTooLong { length_bytes: 4097 });
    let many = option_bytes(99, &[]).repeat(1025);
    assert_eq!(fault(&hello(&many)), Fault::TooManyOptions);
}

#[test]
fn a_client_may_send_as_many_options_as_all_exports_need() {
    let exports = (0..256).map(|index| Export::new(&index.to_string(), 512)).collect();
    let mut testbed = Testbed::greeted(ServerConfig::new(exports));
    testbed.option(option::STRUCTURED_REPLY, &[]);
    assert_eq!(testbed.option(option::LIST, &[]).len(), 257);
    for index in 0..256 {
        let name = index.to_string();
        assert_eq!(testbed.option(option::INFO, &info_data(name.as_bytes(), &[])).len(), 3);
        let contexts = meta_context_data(name.as_bytes(), &[]);
        assert_eq!(testbed.option(option::LIST_META_CONTEXT, &contexts).len(), 2);
    }
    assert_eq!(testbed.option_reply(option::ABORT, &[]), reply::ACK);
}

#[test]
fn a_handshake_may_arrive_byte_by_byte_or_followed_by_requests() {
    let mut client = Client::new();
    let bytes = [client.flags(), client.structured("disk"), client.go("disk"), client.read(1, 0, 8)].concat();
    for split in [1, 7, 64, bytes.len()] {
        let mut testbed = Testbed::new(config());
        let same = [
            testbed.client.flags(),
            testbed.client.structured("disk"),
            testbed.client.go("disk"),
            testbed.client.read(1, 0, 8),
        ];
        assert_eq!(same.concat(), bytes);
        bytes.chunks(split).for_each(|chunk| testbed.feed(chunk));
        assert_eq!((testbed.opened, testbed.requests.len()), (Some(ExportIndex(0)), 1));
    }
}
