//! A real server, real sockets, and hostile hosts: it keeps running, and honest hosts are served.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use zonda_config::ByteSize;
use zonda_devices::{Connection, Location, NamespaceOptions, NvmeTcpUrl, sized};
use zonda_exports::{Running, ServerPlan, Source, start};
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Lba, NamespaceId, Operation, Outcome, Payload, Status, ZoneAction,
    ZoneTarget,
};

use crate::PROFILES;

const NQN: &str = "nqn.2026-01.io.zonda:hostile";
/// Connections that never send anything.
const SILENT: usize = 10_000;
/// How long to wait until the server closes a connection.
const TIMEOUT: Duration = Duration::from_secs(20);

fn server() -> Running {
    let spec = sized("zn540", Some(16), Some(ByteSize(1 << 20)), &PROFILES).expect("a built-in profile");
    let drive = spec.plan(&PROFILES).expect("a valid size");
    let plan = ServerPlan::on_loopback(NQN.parse().expect("a name"), Source::Memory(Box::new(drive)));
    start(plan, false).expect("it starts")
}

fn address(server: &Running) -> SocketAddr {
    server.info().listen[0]
}

/// An honest host.
fn host(server: &Running) -> Connection {
    let url = NvmeTcpUrl {
        host: "127.0.0.1".to_owned(),
        port: address(server).port(),
        subsystem: NQN.parse().expect("a name"),
        namespace: NamespaceId::FIRST,
    };
    Connection::open(&Location::NvmeTcp(url), &NamespaceOptions::default()).expect("the server accepts it")
}

/// Fills a zone, reads it, and resets it.
fn work(host: &mut Connection, zone: u64) {
    let capacity = host.geometry().zone_capacity_blocks.0;
    let zone_start = Lba(zone * host.geometry().zone_size_blocks.0);
    let block = host.geometry().block_size_bytes as usize;
    let piece = 16;
    for start in (0..capacity).step_by(piece as usize).map(|block| Lba(zone_start.0 + block)) {
        let data = vec![start.0 as u8; piece as usize * block];
        let payload = Payload::Bytes(Box::new(BlockBuffer { data: data.clone().into(), metadata: Vec::new().into() }));
        let write = Operation::Write { start, blocks: Blocks(piece), payload };
        assert_eq!(host.execute(write).expect("it is connected").status, Status::Success);
        let read = host.execute(Operation::Read { start, blocks: Blocks(piece) }).expect("it is connected");
        let Outcome::Data(Payload::Bytes(found)) = read.outcome else { panic!("{}", read.status) };
        assert_eq!(found.data, data, "block {}", start.0);
    }
    let reset = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(zone_start) };
    assert_eq!(host.execute(reset).expect("it is connected").status, Status::Success);
}

fn stop(server: Running, hosts: impl IntoIterator<Item = Connection>) {
    hosts.into_iter().for_each(|host| host.close().expect("it closes"));
    server.handle().stop();
    server.wait().expect("it stops cleanly");
}

/// The bytes that the server sends until it closes the connection.
fn bytes_until_close(mut stream: TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
    let mut words = Vec::new();
    match stream.read_to_end(&mut words) {
        Ok(_) => words,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => words,
        Err(error) => panic!("the connection was not closed: {error}"),
    }
}

/// The common header of a PDU (NVMe/TCP 1.0, Figure 25).
fn header(kind: u8, header_bytes: u8, pdu_bytes: u32) -> Vec<u8> {
    let mut header = vec![kind, 0, header_bytes, 0];
    header.extend(pdu_bytes.to_le_bytes());
    header
}

#[test]
fn ten_thousand_silent_connections_delay_no_honest_host() {
    let server = server();
    let mut early = host(&server);
    let mut silent = Vec::with_capacity(SILENT);
    while silent.len() < SILENT {
        match TcpStream::connect(address(&server)) {
            Ok(stream) => silent.push(stream),
            // This process, which is both sides, cannot open more files: fewer have to suffice.
            Err(error) if error.raw_os_error() == Some(24) => {
                let spare = silent.len().min(64);
                silent.truncate(silent.len() - spare);
                println!("{} silent connections: the limit of open files is reached", silent.len());
                break;
            }
            Err(error) => panic!("connection {}: {error}", silent.len()),
        }
        if silent.len() % 1000 == 500 {
            work(&mut early, (silent.len() / 1000) as u64);
        }
    }
    let mut late = host(&server);
    work(&mut early, 14);
    work(&mut late, 15);
    drop(silent);
    work(&mut late, 15);
    stop(server, [early, late]);
}

#[test]
fn malformed_pdus_close_only_their_own_connection() {
    let server = server();
    let mut good = host(&server);
    let initialize = || [header(0, 128, 128), vec![0; 120]].concat();
    let nonsense: [(&str, Vec<u8>); 6] = [
        ("a first PDU of a gigabyte", header(0, 128, 1 << 30)),
        ("a command before the connection is initialised", [header(4, 72, 72), vec![0; 64]].concat()),
        ("a capsule of a gigabyte", [initialize(), header(4, 72, 1 << 30)].concat()),
        ("a PDU that only controllers send", [initialize(), header(5, 24, 24), vec![0; 16]].concat()),
        ("unsolicited data", [initialize(), header(6, 24, 24), vec![0; 16]].concat()),
        ("another protocol", b"GET / HTTP/1.1\r\nHost: zonda\r\n\r\n".to_vec()),
    ];
    for (zone, (name, bytes)) in (0..).zip(nonsense) {
        let mut stream = TcpStream::connect(address(&server)).expect("the server listens");
        stream.write_all(&bytes).expect("the server reads");
        let words = bytes_until_close(stream);
        assert!(words.len() <= 128 + 152, "{name}: {} bytes", words.len());
        work(&mut good, zone);
    }
    stop(server, [good]);
}

#[test]
fn a_host_that_never_reads_delays_only_itself() {
    let server = server();
    let mut good = host(&server);
    let mut rude = host(&server);
    work(&mut good, 0);
    // A full queue; it never reads a reply, so far more than any socket buffer holds is queued for
    // it.
    let blocks = rude.geometry().max_transfer_blocks.min(Blocks(256));
    for id in 0..100 {
        let operation = Operation::Read { start: Lba(0), blocks };
        let command = Command::new(CommandId(id), NamespaceId::FIRST, operation);
        rude.submit(command).expect("the queue is not full");
    }
    rude.poll(&mut zonda_zoned::CompletionQueue::new());
    rude.run_once(Some(rude.now())).expect("the commands are sent");
    (1..16).for_each(|zone| work(&mut good, zone));
    drop(rude);
    work(&mut good, 1);
    stop(server, [good]);
}

#[test]
fn a_host_that_is_refused_while_sending_gets_the_reason() {
    let server = server();
    let mut stream = TcpStream::connect(address(&server)).expect("the server listens");
    let nonsense = [header(0, 128, 128), vec![0; 120], header(4, 72, 1 << 30), vec![0; 64 << 10]].concat();
    stream.write_all(&nonsense).expect("the server reads");
    let words = bytes_until_close(stream);
    assert_eq!(words[0], 1, "the connection was initialised");
    assert_eq!(words.get(128), Some(&3), "a request to end the connection (C2HTermReq) follows");
    stop(server, []);
}
