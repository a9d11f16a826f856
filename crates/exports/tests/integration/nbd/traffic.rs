//! Received and sent bytes are counted separately.

use std::time::Duration;

use zonda_devices::{Connection, Location, NamespaceOptions, NvmeTcpUrl};
use zonda_exports::snapshot::Snapshot;
use zonda_exports::{Running, metrics_text};
use zonda_zoned::{BlockBuffer, Blocks, Lba, NamespaceId, Operation, Payload, Status};

use super::client::open;
use super::{BLOCK, NQN, address, plan, serve, stop};

/// Written in each request; far more than all headers of a session.
const PIECE: u64 = 128 << 10;
const WRITES: u64 = 32;
const READS: u64 = 8;

fn snapshot(server: &Running) -> Snapshot {
    server.handle().snapshot(Duration::from_secs(30)).expect("a snapshot")
}

/// Received bytes are those written plus headers; sent bytes are those read plus headers.
fn assert_directions(received: u64, sent: u64) {
    let (written, read) = (WRITES * PIECE, READS * PIECE);
    assert!((written..written + PIECE).contains(&received), "{received} bytes received for {written} written");
    assert!((read..read + PIECE).contains(&sent), "{sent} bytes sent for {read} read");
}

/// The value of a metric without labels.
fn metric(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in\n{text}"));
    line.rsplit(' ').next().expect("a value").parse().expect("a whole number")
}

#[test]
fn bytes_from_nbd_clients_are_received_and_bytes_to_them_are_sent() {
    let server = serve(plan());
    let mut host = open(&address(&server), "memory");
    for piece in 0..WRITES {
        host.write(piece * PIECE, &vec![piece as u8; PIECE as usize]).expect("it is written");
    }
    for piece in 0..READS {
        assert_eq!(host.read(piece * PIECE, PIECE), vec![piece as u8; PIECE as usize]);
    }
    host.disconnect();
    let snapshot = snapshot(&server);
    let nbd = snapshot.nbd.as_ref().expect("NBD is configured");
    assert_directions(nbd.received_bytes, nbd.sent_bytes);
    let text = metrics_text(&snapshot);
    assert_directions(metric(&text, "zonda_nbd_received_bytes_total"), metric(&text, "zonda_nbd_sent_bytes_total"));
    assert_eq!((snapshot.traffic.received_bytes, snapshot.traffic.sent_bytes), (0, 0), "no NVMe host was connected");
    stop(server);
}

#[test]
fn bytes_from_nvme_hosts_are_received_and_bytes_to_them_are_sent() {
    let server = serve(plan());
    let url = NvmeTcpUrl {
        host: "127.0.0.1".to_owned(),
        port: server.info().listen[0].port(),
        subsystem: NQN.parse().expect("a name"),
        namespace: NamespaceId::FIRST,
    };
    let mut host = Connection::open(&Location::NvmeTcp(url), &NamespaceOptions::default()).expect("it is accepted");
    let blocks = Blocks(PIECE / BLOCK);
    for piece in 0..WRITES {
        let data = vec![piece as u8; PIECE as usize].into();
        let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata: Vec::new().into() }));
        let write = Operation::Write { start: Lba(piece * blocks.0), blocks, payload };
        assert_eq!(host.execute(write).expect("it is connected").status, Status::Success);
    }
    for piece in 0..READS {
        let read = Operation::Read { start: Lba(piece * blocks.0), blocks };
        assert_eq!(host.execute(read).expect("it is connected").status, Status::Success);
    }
    // The last send is counted when it has completed, which the host does not wait for.
    let all_sent = (0..250).map(|_| snapshot(&server)).find(|snapshot| {
        let is_all = snapshot.traffic.sent_bytes >= READS * PIECE;
        if !is_all {
            std::thread::sleep(Duration::from_millis(20));
        }
        is_all
    });
    let snapshot = all_sent.expect("all bytes read are counted as sent");
    host.close().expect("it closes");
    assert_directions(snapshot.traffic.received_bytes, snapshot.traffic.sent_bytes);
    let text = metrics_text(&snapshot);
    assert_directions(metric(&text, "zonda_received_bytes_total"), metric(&text, "zonda_sent_bytes_total"));
    stop(server);
}
