//! Exchanges byte for byte, written by hand from the protocol specification.

use bytes::Bytes;

use super::testbed::config;
use crate::{Connection, Effect, Extent, NbdError, Operation, ReadPiece, Reply, Request, Server};

/// The effects of the connection, with all sent bytes concatenated.
fn effects(connection: &mut Connection) -> (Vec<u8>, Vec<Request>) {
    let (mut sent, mut requests) = (Vec::new(), Vec::new());
    while let Some(effect) = connection.poll_effect() {
        match effect {
            Effect::Send(pieces) => {
                connection.on_sent(pieces.iter().map(Bytes::len).sum());
                sent.extend_from_slice(&pieces.concat());
            }
            Effect::Request(request) => requests.push(request),
            _ => {}
        }
    }
    (sent, requests)
}

fn feed(connection: &mut Connection, bytes: &[u8]) -> (Vec<u8>, Vec<Request>) {
    connection.on_bytes(Bytes::copy_from_slice(bytes));
    effects(connection)
}

fn greeted() -> Connection {
    let mut connection = Server::new(config()).unwrap().connect();
    assert_eq!(effects(&mut connection).0, b"NBDMAGICIHAVEOPT\x00\x03");
    assert_eq!(feed(&mut connection, &[0, 0, 0, 3]).0, b"");
    connection
}

const GO: &[u8] = b"IHAVEOPT\x00\x00\x00\x07\x00\x00\x00\x0a\x00\x00\x00\x04disk\x00\x00";

#[test]
fn a_handshake_with_go() {
    let mut connection = greeted();
    let expected: &[&[u8]] = &[
        b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0c",
        b"\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x6d",
        b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0e",
        b"\x00\x03\x00\x00\x00\x01\x00\x00\x10\x00\x02\x00\x00\x00",
        b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00",
    ];
    assert_eq!(feed(&mut connection, GO).0, expected.concat());
}

#[test]
fn a_handshake_with_export_name() {
    let mut connection = greeted();
    let reply = feed(&mut connection, b"IHAVEOPT\x00\x00\x00\x01\x00\x00\x00\x05relic").0;
    assert_eq!(reply, b"\x00\x00\x00\x00\x00\x10\x00\x00\x00\x0f");
}

#[test]
fn an_option_that_is_refused() {
    let mut connection = greeted();
    let reply = feed(&mut connection, b"IHAVEOPT\x00\x00\x00\x0b\x00\x00\x00\x00").0;
    assert_eq!(reply[..16], *b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x0b\x80\x00\x00\x01");
    assert_eq!(reply.len(), 20 + usize::from(reply[19]), "a human-readable message");
}

#[test]
fn writes_and_reads_with_simple_replies() {
    let mut connection = greeted();
    feed(&mut connection, GO);
    let write = b"\x25\x60\x95\x13\x00\x01\x00\x01COOKIE_1\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x00\x04data";
    let (sent, requests) = feed(&mut connection, write);
    let operation = Operation::Write { offset: 4096, data: Bytes::from_static(b"data"), fua: true };
    assert_eq!((sent.len(), &requests[0].operation), (0, &operation));
    connection.reply(requests[0].id, Ok(Reply::Done));
    assert_eq!(effects(&mut connection).0, b"\x67\x44\x66\x98\x00\x00\x00\x00COOKIE_1");

    let read = b"\x25\x60\x95\x13\x00\x00\x00\x00COOKIE_2\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x00\x04";
    let (_, requests) = feed(&mut connection, read);
    assert_eq!(requests[0].operation, Operation::Read { offset: 4096, length: 4 });
    connection.reply(requests[0].id, Ok(Reply::data(Bytes::from_static(b"data"))));
    assert_eq!(effects(&mut connection).0, b"\x67\x44\x66\x98\x00\x00\x00\x00COOKIE_2data");

    let (_, requests) = feed(&mut connection, read);
    connection.reply(requests[0].id, Err(NbdError::Io));
    assert_eq!(effects(&mut connection).0, b"\x67\x44\x66\x98\x00\x00\x00\x05COOKIE_2");
}

#[test]
fn a_read_in_chunks_and_a_status() {
    let mut connection = greeted();
    let ack = b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00";
    assert_eq!(feed(&mut connection, b"IHAVEOPT\x00\x00\x00\x08\x00\x00\x00\x00").0, ack);
    let set: &[&[u8]] = &[
        b"IHAVEOPT\x00\x00\x00\x0a\x00\x00\x00\x1f",
        b"\x00\x00\x00\x04disk\x00\x00\x00\x01\x00\x00\x00\x0fbase:allocation",
    ];
    let expected: &[&[u8]] = &[
        b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x0a\x00\x00\x00\x04\x00\x00\x00\x13",
        b"\x00\x00\x00\x01base:allocation",
        b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x00\x00\x00",
    ];
    assert_eq!(feed(&mut connection, &set.concat()).0, expected.concat());
    feed(&mut connection, GO);

    let read = b"\x25\x60\x95\x13\x00\x00\x00\x00COOKIE_3\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x06\x08";
    let (_, requests) = feed(&mut connection, read);
    let pieces = vec![
        ReadPiece::Data(Bytes::from_static(b"DATADATA")),
        ReadPiece::Hole { length: 1024 },
        ReadPiece::Failed { length: 512, error: NbdError::Io },
    ];
    connection.reply(requests[0].id, Ok(Reply::Read(pieces)));
    let message = b"the device failed; see the server's log";
    let expected: &[&[u8]] = &[
        b"\x66\x8e\x33\xef\x00\x00\x00\x01COOKIE_3\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x10\x00DATADATA",
        b"\x66\x8e\x33\xef\x00\x00\x00\x02COOKIE_3\x00\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x10\x08\x00\x00\x04\x00",
        b"\x66\x8e\x33\xef\x00\x01\x80\x02COOKIE_3\x00\x00\x00\x35\x00\x00\x00\x05\x00\x27",
        message,
        b"\x00\x00\x00\x00\x00\x00\x14\x08",
    ];
    assert_eq!(effects(&mut connection).0, expected.concat());

    let status = b"\x25\x60\x95\x13\x00\x00\x00\x07COOKIE_4\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x30\x00";
    let (_, requests) = feed(&mut connection, status);
    assert_eq!(requests[0].operation, Operation::BlockStatus { offset: 0, length: 12_288, one: false });
    let data = Extent { length: 4096, is_hole: false, is_zero: false };
    let hole = Extent { length: 1 << 40, is_hole: true, is_zero: true };
    connection.reply(requests[0].id, Ok(Reply::Status(vec![data, hole])));
    let expected: &[&[u8]] = &[
        b"\x66\x8e\x33\xef\x00\x01\x00\x05COOKIE_4\x00\x00\x00\x14\x00\x00\x00\x01",
        b"\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x20\x00\x00\x00\x00\x03",
    ];
    assert_eq!(effects(&mut connection).0, expected.concat());
}
