//! Connections, exports, and how connections end.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use zonda_config::ByteSize;
use zonda_devices::sized;
use zonda_exports::{
    NamespacePlan, NbdExportPlan, NbdPlan, SchedulerSpec, ServeError, ServerPlan, Source, TimingSpec, start,
};
use zonda_nbd::NbdError;
use zonda_nbd::testing::{Answer, info_data};
use zonda_nbd::wire::handshake::{info, option, reply};
use zonda_nbd::wire::transmission::command;
use zonda_ring::Address;
use zonda_zoned::NamespaceId;

use super::client::{connect, connect_unix, open};
use super::{BLOCK, NQN, SIZE, address, drive, plan, plan_on, serve, stop};

use crate::PROFILES;

fn export(name: Option<&str>, namespace: u32) -> NbdExportPlan {
    NbdExportPlan {
        name: name.map(str::to_owned),
        description: String::new(),
        nqn: NQN.parse().expect("a name"),
        namespace: NamespaceId(namespace),
        read_only: false,
    }
}

/// Adds a drive in memory as another namespace.
fn add(plan: &mut ServerPlan, id: u32, source: Source) {
    // A volume has no scheduler.
    let is_volume = matches!(source, Source::Volume(_));
    let scheduler = if is_volume { SchedulerSpec::None } else { SchedulerSpec::MqDeadline };
    let (id, timing) = (NamespaceId(id), TimingSpec::None);
    plan.subsystems[0].namespaces.push(NamespacePlan {
        id,
        source,
        timing,
        scheduler,
        groups: None,
        read_only: false,
        zones: None,
    });
}

fn zoned() -> Source {
    let spec = sized("zn540", Some(8), Some(ByteSize(1 << 20)), &PROFILES).expect("a built-in profile");
    Source::Memory(Box::new(spec.plan(&PROFILES).expect("a valid size")))
}

fn refusal(plan: ServerPlan) -> ServeError {
    start(plan, false).expect_err("it cannot be served")
}

#[test]
fn exports_are_listed_with_their_names_and_block_sizes() {
    let mut plan = plan();
    add(&mut plan, 2, Source::Memory(Box::new(drive())));
    plan.nbd[0].exports = Some(vec![export(Some("first"), 1), export(Some("second"), 2), export(None, 2)]);
    let server = serve(plan);
    let names: Vec<&str> = server.info().nbd.iter().map(|export| export.name.as_str()).collect();
    assert_eq!(names, ["first", "second", "memory"]);
    let mut host = connect(&address(&server));
    let flags = host.client.flags();
    host.send(&flags);
    assert_eq!(host.option(option::LIST, &[]).kind & reply::ERROR, 0);
    let bytes = host.client.option(option::INFO, &info_data(b"second", &[info::BLOCK_SIZE]));
    host.send(&bytes);
    let mut sizes = None;
    while sizes.is_none() {
        let replies = std::iter::from_fn(|| host.client.option_replied());
        sizes = replies.filter(|reply| reply.data.starts_with(&info::BLOCK_SIZE.to_be_bytes())).last();
        if sizes.is_none() {
            assert!(host.receive().expect("the server answers") > 0);
        }
    }
    let sizes = sizes.expect("block sizes were received").data;
    assert_eq!((&sizes[2..6], &sizes[10..14]), (&4096u32.to_be_bytes()[..], &(32u32 << 20).to_be_bytes()[..]));
    assert_eq!(host.option(option::ABORT, &[]).kind, reply::ACK);
    host.wait_for_end();
    stop(server);
}

#[test]
fn two_exports_of_one_drive_show_the_same_bytes_and_a_read_only_one_refuses_writes() {
    let mut plan = plan();
    let view = NbdExportPlan { read_only: true, ..export(Some("view"), 1) };
    plan.nbd[0].exports = Some(vec![export(Some("disk"), 1), view]);
    let server = serve(plan);
    let at = address(&server);
    let (mut disk, mut view) = (open(&at, "disk"), open(&at, "view"));
    assert_eq!(disk.write(BLOCK, b"abc"), Ok(Answer::Done));
    assert_eq!(view.read(BLOCK, 3), b"abc");
    assert_eq!(view.write(BLOCK, b"def"), Err(NbdError::NotPermitted));
    assert_eq!(view.ask(command::TRIM, 0, 0, SIZE), Err(NbdError::NotPermitted));
    assert_eq!(disk.read(BLOCK, 3), b"abc");
    let nbd = server.handle().snapshot(Duration::from_secs(5)).expect("a snapshot").nbd.expect("NBD is configured");
    assert_eq!((nbd.connections, nbd.connections_accepted), (2, 2));
    let counts = |export: usize, kind: &str| {
        let found = nbd.exports[export].requests.iter().find(|request| request.kind == kind);
        found.map(|request| (request.count, request.errors, request.bytes))
    };
    assert_eq!(
        (counts(0, "write"), counts(0, "read"), counts(1, "read")),
        (Some((1, 0, 3)), Some((1, 0, 3)), Some((1, 0, 3)))
    );
    assert_eq!((nbd.exports[1].connections, counts(1, "write")), (1, None), "the protocol refused it");
    stop(server);
}

#[test]
fn a_unix_socket_is_removed_with_its_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("nbd.sock");
    let server = serve(plan_on(&path));
    let url = format!("nbd+unix:///memory?socket={}", path.canonicalize().expect("it exists").display());
    assert_eq!(server.info().nbd[0].urls, [url]);
    let mut host = connect_unix(&path).enter("memory");
    assert_eq!(host.write(0, b"zone"), Ok(Answer::Done));
    assert_eq!(host.read(0, 4), b"zone");
    let error = refusal(plan_on(&path));
    assert!(error.message.contains("another server listens"), "{error}");
    stop(server);
    assert!(!path.exists());
    // A stale socket, as of a killed server.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("the path is free"));
    stop(serve(plan_on(&path)));
}

#[test]
fn a_zoned_namespace_cannot_be_exported() {
    let plan = |exports| {
        let mut plan = super::plan_of(zoned());
        plan.nbd[0].exports = exports;
        plan
    };
    for exports in [None, Some(vec![export(None, 1)])] {
        let error = refusal(plan(exports));
        assert!(error.message.contains("zoned") && error.help.contains("zonda volume create"), "{error}");
    }
    let mut mixed = plan(None);
    add(&mut mixed, 2, Source::Memory(Box::new(drive())));
    let server = serve(mixed);
    assert_eq!(server.info().nbd.len(), 1, "the conventional one");
    stop(server);
}

#[test]
fn an_invalid_plan_is_refused_before_a_connection_is_accepted() {
    let mut twice = plan();
    add(&mut twice, 2, Source::Memory(Box::new(drive())));
    let error = refusal(twice);
    assert!(error.message.contains("duplicate export name \"memory\""), "{error}");
    let taken = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let mut plan = plan();
    plan.nbd[0].listen = vec![Address::Tcp(taken.local_addr().expect("it is bound"))];
    let error = refusal(plan);
    assert!(error.help.contains("--nbd"), "{error}");
}

#[test]
fn each_server_has_its_own_exports() {
    let mut plan = plan();
    let port = || Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
    plan.nbd[0].exports = Some(vec![export(Some("one"), 1)]);
    plan.nbd.push(NbdPlan { listen: vec![port(), port()], read_only: true, tls: None, exports: None });
    let server = serve(plan);
    assert_eq!(server.info().nbd.len(), 2);
    assert_eq!(server.info().nbd[1].urls.len(), 2, "one for each address");
    let mut host = connect(&address(&server));
    let flags = host.client.flags();
    host.send(&flags);
    assert_eq!(host.option(option::GO, &info_data(b"memory", &[])).kind, reply::ERR_UNKNOWN);
    stop(server);
}

#[test]
fn a_stopping_server_completes_requests_in_flight_and_disconnects() {
    let server = serve(plan());
    let at = address(&server);
    let (mut busy, idle, mut shy) = (open(&at, "memory"), open(&at, "memory"), connect(&at));
    let data = vec![3; 8 << 20];
    let asked: Vec<u64> =
        (0..3).map(|index| busy.begin(command::WRITE, 0, index << 23, data.len() as u64, &data)).collect();
    // The server has accepted all when it has greeted the last.
    assert_eq!(busy.end(asked[2]), Ok(Answer::Done));
    assert!(shy.receive().expect("it greets") > 0);
    server.handle().stop();
    for cookie in &asked[..2] {
        assert_eq!(busy.end(*cookie), Ok(Answer::Done));
    }
    [busy, idle, shy].into_iter().for_each(super::client::Host::wait_for_end);
    server.wait().expect("it stops cleanly");
}
