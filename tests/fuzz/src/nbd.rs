//! An NBD server and its caller, with a client that conforms to the protocol unless the input says
//! otherwise: the server stays within its limits, conforms to the protocol, and completes every
//! request of an honest client.
//!
//! ```text
//! 0 exports: 1..0 TLS, 2 no zeros at the end, 4..3 requests at a time, 5 fast zeros   1.. events, see event
//! ```

mod testbed;

use zonda_nbd::testing::{Ask, info_data, meta_context_data};
use zonda_nbd::wire::handshake::{info, option};
use zonda_nbd::wire::transmission::command;

use crate::Seed;
use crate::feed::Feed;
use testbed::Testbed;

/// Events of one input: more find nothing that another input does not.
const EVENTS_MAX: usize = 300;
/// Bytes of a raw byte string, and of a WRITE.
const STRETCH_BYTES_MAX: usize = 4096;
/// Export names that the client requests: two existing ones, the default, and others.
const NAMES: [&[u8]; 6] = [b"disk", b"relic", b"", b"nothing", b"disk\0", b"\xff"];
const QUERIES: [&[u8]; 5] = [b"base:allocation", b"base:", b"base:other", b"x-other:thing", b""];

/// Events, by the first byte of each.
mod kind {
    pub(super) const OPTION: u8 = 0;
    pub(super) const REQUEST: u8 = 1;
    pub(super) const RAW: u8 = 2;
    pub(super) const SEND: u8 = 3;
    pub(super) const REPLY: u8 = 4;
    pub(super) const READ: u8 = 5;
    pub(super) const HOLD: u8 = 6;
    pub(super) const END: u8 = 7;
    pub(super) const COUNT: usize = 8;
}

pub(crate) fn run(input: &[u8]) {
    let mut feed = Feed::new(input);
    let mut testbed = Testbed::new(feed.u8());
    for _ in 0..EVENTS_MAX {
        if feed.is_empty() || testbed.is_over() {
            break;
        }
        event(&mut testbed, &mut feed);
    }
    testbed.finish();
}

fn event(testbed: &mut Testbed, feed: &mut Feed<'_>) {
    match feed.below(kind::COUNT) as u8 {
        kind::OPTION => an_option(testbed, feed),
        kind::REQUEST => a_request(testbed, feed),
        // Arbitrary bytes: from now on responses are not checked.
        kind::RAW => testbed.send_raw(feed.stretch(STRETCH_BYTES_MAX)),
        kind::SEND => testbed.send(usize::from(feed.u16())),
        kind::REPLY => {
            let (which, how, cut) = (feed.u8(), feed.u8(), feed.u16());
            testbed.reply(usize::from(which), how, cut);
        }
        kind::READ => testbed.release(),
        kind::HOLD => testbed.hold = !testbed.hold,
        kind::END => match feed.below(8) {
            0 => testbed.disconnect(),
            1 => testbed.shutdown(),
            2 => testbed.close_socket(),
            _ => testbed.send(usize::MAX),
        },
        _ => unreachable!("the kind is below COUNT"),
    }
}

/// A valid option, or one with wrong data.
fn an_option(testbed: &mut Testbed, feed: &mut Feed<'_>) {
    let code = u32::from(feed.u8() % 14);
    let name = feed.pick(&NAMES);
    let choice = feed.u8();
    let data = match code {
        option::EXPORT_NAME => name.to_vec(),
        option::INFO | option::GO => {
            let wanted = [info::EXPORT, info::NAME, info::DESCRIPTION, info::BLOCK_SIZE, 9];
            info_data(name, &wanted[..usize::from(choice) % 6])
        }
        option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
            let first = usize::from(choice) % QUERIES.len();
            let count = usize::from(choice >> 4) % (QUERIES.len() + 1 - first);
            meta_context_data(name, &QUERIES[first..first + count])
        }
        _ if choice & 0x80 != 0 => feed.stretch(STRETCH_BYTES_MAX).to_vec(),
        _ => Vec::new(),
    };
    testbed.send_option(code, &data);
}

/// A request; only a WRITE has data.
fn a_request(testbed: &mut Testbed, feed: &mut Feed<'_>) {
    let command = [command::READ, command::WRITE, command::FLUSH, command::TRIM, command::CACHE, command::WRITE_ZEROES]
        .into_iter()
        .chain([command::BLOCK_STATUS, 8, 0xffff])
        .nth(feed.below(9))
        .expect("nine commands");
    let flags = u16::from(feed.u8() & 0x3f);
    // Offsets and lengths of a block, of an odd number, around the end of the data, around the end
    // of the export.
    let scale = feed.u8();
    let base = [0, testbed::STORE_BYTES - 4096, testbed::SIZE_BYTES - 4096, u64::MAX - 4096][usize::from(scale & 3)];
    let offset = base.wrapping_add(u64::from(feed.u16()) << ((scale >> 2 & 3) * 3));
    let length = u32::from(feed.u16()) << (scale >> 4 & 15);
    let length = if command == command::WRITE { length.min(STRETCH_BYTES_MAX as u32) } else { length };
    let (offset, length) = if command == command::FLUSH && scale & 0x80 == 0 { (0, 0) } else { (offset, length) };
    testbed.send_request(Ask { command, flags, cookie: 0, offset, length });
}

pub(crate) fn seeds() -> Vec<Seed> {
    let go = |name: u8| [kind::OPTION, option::GO as u8, name, 3];
    let structured = [kind::OPTION, option::STRUCTURED_REPLY as u8, 0, 0];
    let select = [kind::OPTION, option::SET_META_CONTEXT as u8, 0, 0x10];
    // Command, flags, scale, offset, length: little-endian numbers of the input.
    let ask = |command: u8, flags: u8, scale: u8, length: u16| {
        let [low, high] = length.to_le_bytes();
        [kind::REQUEST, command, flags, scale, 0, 16, low, high]
    };
    let send = [kind::SEND, 0xff, 0xff];
    let reply = |which: u8, how: u8| [kind::REPLY, which, how, 100, 0];
    let mut seeds: Vec<Seed> = Vec::new();
    for code in 0..14 {
        for tls in [0, 2] {
            let first = [tls, kind::OPTION, code, 0, 0x15];
            let again = [kind::OPTION, code, 3, 0x80, 4, 0, 1, 2, 3, 4];
            let input = [&first[..], &[kind::OPTION, option::STRUCTURED_REPLY as u8, 0, 0], &again, &go(0)].concat();
            seeds.push((format!("option-{code}-{tls}"), input));
        }
    }
    for command in 0..9 {
        for how in 0..6 {
            let flags = [0, 1, 4, 2, 8, 16][how];
            let request = ask(command, flags, (how as u8) << 4, 2048);
            let parts: [&[u8]; 5] = [&request, &send, &reply(0, how as u8), &request, &reply(0, 0)];
            if how < 2 {
                let simple = [&[8][..], &go(0), &parts.concat()].concat();
                seeds.push((format!("simple-{command}-{how}"), simple));
            }
            let chunks = [&[0x28][..], &structured, &select, &go(0), &parts.concat()].concat();
            seeds.push((format!("chunks-{command}-{how}"), chunks));
        }
    }
    let many: Vec<u8> = (0..40).flat_map(|index| ask(index % 2, 0, 0x70, 900)).collect();
    let ends = [
        (
            "pipelined",
            [&[0][..], &structured, &go(0), &[kind::HOLD], &many, &send, &reply(0, 3), &[kind::READ]].concat(),
        ),
        ("disconnected", [&[8][..], &go(0), &ask(0, 0, 0, 512), &send, &[kind::END, 0]].concat()),
        ("shutdown", [&[8][..], &go(0), &ask(1, 0, 0, 512), &send, &[kind::END, 1]].concat()),
        ("vanished", [&[8][..], &go(1), &ask(1, 0, 0, 512), &[kind::SEND, 40, 0, kind::END, 2]].concat()),
        ("raw-request", [&[8][..], &go(0), &[kind::RAW, 28, 0, 0x25, 0x60, 0x95, 0x13], &[0; 24]].concat()),
        ("raw-option", [&[0, kind::RAW, 16, 0][..], b"IHAVEOPT\x00\x00\x00\x06\x00\x00\x00\x40"].concat()),
    ];
    seeds.extend(ends.map(|(name, input)| (name.to_owned(), input)));
    seeds
}
