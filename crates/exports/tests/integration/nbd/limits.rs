//! Hostile clients, and too many clients.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::{self, AddressFamily, SocketType};
use zonda_nbd::testing::Answer;
use zonda_nbd::wire::transmission::command;

use super::client::{Host, connect, open};
use super::{BLOCK, address, plan, serve, stop};

/// The limit on connections.
const CONNECTIONS: usize = 128;

fn work(host: &mut Host, place: u64) {
    let data = vec![place as u8 + 1; BLOCK as usize];
    assert_eq!(host.write(place * BLOCK, &data), Ok(Answer::Done));
    assert_eq!(host.read(place * BLOCK, BLOCK), data);
}

#[test]
fn a_client_without_an_export_is_disconnected_after_ten_seconds() {
    let server = serve(plan());
    let at = address(&server);
    let mut good = open(&at, "memory");
    let silent = connect(&at);
    let mut slow = connect(&at);
    let flags = slow.client.flags();
    slow.send(&flags);
    silent.wait_for_end();
    slow.wait_for_end();
    // A client that is idle after the handshake is not.
    work(&mut good, 1);
    let nbd = server.handle().snapshot(Duration::from_secs(5)).expect("a snapshot").nbd.expect("NBD is configured");
    assert_eq!((nbd.connections, nbd.handshake_timeouts), (1, 2));
    good.disconnect();
    stop(server);
}

#[test]
fn clients_without_an_export_are_evicted_and_active_ones_are_not_for_their_own_address() {
    let server = serve(plan());
    let at = address(&server);
    let mut silent: Vec<TcpStream> =
        (0..3 * CONNECTIONS).map(|_| TcpStream::connect(&at).expect("the server listens")).collect();
    let mut good: Vec<Host> = (0..CONNECTIONS).map(|_| open(&at, "memory")).collect();
    work(&mut good[0], 0);
    work(&mut good[CONNECTIONS - 1], 1);
    // All slots are in use now.
    connect(&at).wait_for_end();
    good.pop().expect("there are many").disconnect();
    let mut late = open(&at, "memory");
    work(&mut late, 2);
    silent.clear();
    stop(server);
}

/// A connection from another address of this machine.
fn open_from(source: &str, at: &str, export: &str) -> Host {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    let source: SocketAddr = format!("{source}:0").parse().expect("an address");
    net::bind(&socket, &source).expect("all of 127.0.0.0/8 is this machine's");
    let at: SocketAddr = at.parse().expect("an address");
    net::connect(&socket, &at).expect("the server listens");
    Host::on(Box::new(TcpStream::from(socket))).enter(export)
}

#[test]
fn idle_clients_of_one_address_do_not_lock_out_others() {
    let server = serve(plan());
    let at = address(&server);
    let mut idle: Vec<Host> = (0..CONNECTIONS).map(|_| open(&at, "memory")).collect();
    work(&mut idle[0], 0);
    let mut late = open_from("127.0.0.2", &at, "memory");
    work(&mut late, 1);
    // The active client is still connected; the oldest of the others was evicted.
    work(&mut idle[0], 2);
    idle.remove(1).wait_for_end();
    late.disconnect();
    stop(server);
}

#[test]
fn malformed_requests_close_only_their_own_connection() {
    let server = serve(plan());
    let at = address(&server);
    let mut good = open(&at, "memory");
    for (place, nonsense) in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &[0; 4096]].into_iter().enumerate() {
        let mut stream = TcpStream::connect(&at).expect("the server listens");
        stream.write_all(nonsense).expect("the server reads");
        Host::on(Box::new(stream)).wait_for_end();
        work(&mut good, place as u64);
    }
    let nbd = server.handle().snapshot(Duration::from_secs(5)).expect("a snapshot").nbd.expect("NBD is configured");
    assert_eq!((nbd.connections, nbd.protocol_errors), (1, 3));
    good.disconnect();
    stop(server);
}

#[test]
fn a_client_that_never_reads_delays_only_itself() {
    let server = serve(plan());
    let at = address(&server);
    let (mut good, mut rude) = (open(&at, "memory"), open(&at, "memory"));
    work(&mut good, 0);
    // Far more than any socket buffer holds; it never reads a reply.
    (0..16).for_each(|_| {
        rude.begin(command::READ, 0, 0, 16 << 20, &[]);
    });
    (1..16).for_each(|place| work(&mut good, place));
    drop(rude);
    work(&mut good, 1);
    good.disconnect();
    stop(server);
}

#[test]
fn a_client_that_disconnects_during_a_request_leaves_nothing_in_flight() {
    let server = serve(plan());
    let at = address(&server);
    let mut good = open(&at, "memory");
    for round in 0..20 {
        let mut rude = open(&at, "memory");
        rude.begin(command::TRIM, 0, 0, 64 << 20, &[]);
        rude.begin(command::WRITE, 0, 1, 100, &[1; 100]);
        rude.begin(command::WRITE, 0, 50, 100, &[2; 100]);
        drop(rude);
        work(&mut good, 100 + round);
        assert_eq!(good.write(3, b"mine"), Ok(Answer::Done));
        assert_eq!(good.read(3, 4).len(), 4);
    }
    good.disconnect();
    stop(server);
}
