//! Exports that come and go while clients use others.

use std::path::Path;
use std::time::Duration;

use zonda_exports::snapshot::NbdSnapshot;
use zonda_exports::{
    NamespacePlan, NbdExportPlan, NbdPlan, Running, SchedulerSpec, ServeError, ServerPlan, Source, TimingSpec,
};
use zonda_nbd::testing::{Answer, info_data};
use zonda_nbd::wire::handshake::{option, reply};
use zonda_nbd::wire::transmission::command;
use zonda_ring::Address;
use zonda_zoned::NamespaceId;

use super::client::{connect, connect_unix, open};
use super::{BLOCK, NQN, address, drive, plan, serve, stop};

const WAIT: Duration = Duration::from_secs(20);

/// A server of these namespaces in memory, and of these exports: name, namespace.
fn plan_with(namespaces: &[u32], exports: &[(&str, u32)]) -> ServerPlan {
    let mut plan = plan();
    plan.subsystems[0].namespaces = namespaces.iter().map(|id| namespace(*id)).collect();
    plan.nbd[0].exports = Some(exports.iter().map(|(name, namespace)| export(name, *namespace)).collect());
    plan
}

fn namespace(id: u32) -> NamespacePlan {
    let source = Source::Memory(Box::new(drive()));
    NamespacePlan {
        id: NamespaceId(id),
        source,
        timing: TimingSpec::None,
        scheduler: SchedulerSpec::MqDeadline,
        groups: None,
        read_only: false,
        zones: None,
    }
}

fn export(name: &str, namespace: u32) -> NbdExportPlan {
    NbdExportPlan {
        name: Some(name.to_owned()),
        description: String::new(),
        nqn: NQN.parse().expect("a name"),
        namespace: NamespaceId(namespace),
        read_only: false,
    }
}

fn reload(server: &Running, plan: ServerPlan) -> Result<Vec<String>, ServeError> {
    server.handle().reload(plan, WAIT).expect("the server runs")
}

fn snapshot(server: &Running) -> NbdSnapshot {
    server.handle().snapshot(WAIT).expect("the server runs").nbd.expect("NBD is configured")
}

/// Whether new clients can choose an export.
fn is_offered(at: &str, name: &str) -> bool {
    let mut host = connect(at);
    let flags = host.client.flags();
    host.send(&flags);
    let kind = host.option(option::INFO, &info_data(name.as_bytes(), &[])).kind;
    assert!(kind == reply::ACK || kind == reply::ERR_UNKNOWN, "{kind:x}");
    kind == reply::ACK
}

#[test]
fn a_new_export_is_offered_at_once_and_clients_of_others_stay_connected() {
    let server = serve(plan_with(&[1], &[("a", 1)]));
    let at = address(&server);
    let mut first = open(&at, "a");
    assert_eq!(first.write(BLOCK, b"first"), Ok(Answer::Done));
    // Once an export of a namespace that is served already, once with its namespace.
    let lines = reload(&server, plan_with(&[1, 2], &[("b", 2), ("view", 1), ("a", 1)])).expect("it is valid");
    let is_line = |part: &str| lines.iter().any(|line| line.contains(part));
    assert!(is_line("NBD export \"b\" added (127.0.0.1:0)") && is_line("NBD export \"view\" added"), "{lines:?}");
    assert!(!is_line("\"a\"") && is_line("namespace 2 added"), "{lines:?}");
    assert_eq!(first.read(BLOCK, 5), b"first");
    let (mut second, mut view) = (open(&at, "b"), open(&at, "view"));
    assert_eq!(view.read(BLOCK, 5), b"first");
    assert_eq!(second.write(BLOCK, b"other"), Ok(Answer::Done));
    assert_eq!((first.read(BLOCK, 5), second.read(BLOCK, 5)), (b"first".to_vec(), b"other".to_vec()));
    let exports = snapshot(&server).exports;
    let counted: Vec<(&str, u64)> = exports.iter().map(|export| (export.name.as_str(), export.connections)).collect();
    assert_eq!(counted, [("b", 1), ("view", 1), ("a", 1)]);
    let reads = exports[2].requests.iter().find(|request| request.kind == "read").map(|request| request.count);
    assert_eq!(reads, Some(2), "those before the change count");
    stop(server);
}

#[test]
fn a_removed_export_ends_its_clients_after_their_requests_and_its_drive_is_closed() {
    let server = serve(plan_with(&[1, 2], &[("a", 1), ("b", 2)]));
    let at = address(&server);
    let (mut stays, mut busy, idle) = (open(&at, "a"), open(&at, "b"), open(&at, "b"));
    let data = vec![7; 4 << 20];
    let cookies: Vec<u64> =
        (0..3).map(|index| busy.begin(command::WRITE, 0, index << 22, data.len() as u64, &data)).collect();
    assert_eq!(busy.end(cookies[0]), Ok(Answer::Done));
    let lines = reload(&server, plan_with(&[1], &[("a", 1)])).expect("it is valid");
    assert!(lines.iter().any(|line| line == "NBD export \"b\" removed (127.0.0.1:0)"), "{lines:?}");
    // Requests that the server had received are answered; others end with the connection.
    idle.wait_for_end();
    busy.wait_for_end();
    assert!(!is_offered(&at, "b") && is_offered(&at, "a"));
    assert_eq!(stays.write(0, b"x"), Ok(Answer::Done));
    let names: Vec<String> = snapshot(&server).exports.into_iter().map(|export| export.name).collect();
    assert_eq!(names, ["a"]);
    // Its place in the list of drives is used again.
    for _ in 0..3 {
        reload(&server, plan_with(&[1, 3], &[("a", 1), ("c", 3)])).expect("it is valid");
        let mut host = open(&at, "c");
        assert_eq!(host.read(0, 4), [0; 4], "it is another drive");
        assert_eq!(host.write(0, b"data"), Ok(Answer::Done));
        reload(&server, plan_with(&[1], &[("a", 1)])).expect("it is valid");
        host.wait_for_end();
    }
    stop(server);
}

#[test]
fn servers_come_and_go_with_their_addresses() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("nbd.sock");
    let with = |path: &Path| {
        let mut plan = plan_with(&[1], &[("a", 1)]);
        let listen = vec![Address::Unix(path.to_owned())];
        plan.nbd.push(NbdPlan { listen, read_only: true, tls: None, exports: None });
        plan
    };
    let server = serve(plan_with(&[1], &[("a", 1)]));
    let mut stays = open(&address(&server), "a");
    for _ in 0..2 {
        let lines = reload(&server, with(&path)).expect("it is valid");
        assert_eq!(lines, [format!("NBD export \"memory\" added (unix:{})", path.display())]);
        let mut local = connect_unix(&path).enter("memory");
        assert_eq!(local.read(0, 4), [0; 4]);
        let shy = connect_unix(&path);
        assert_eq!(snapshot(&server).listen.len(), 2);
        reload(&server, plan_with(&[1], &[("a", 1)])).expect("it is valid");
        local.wait_for_end();
        shy.wait_for_end();
        assert!(!path.exists(), "the socket is removed");
    }
    assert_eq!(stays.read(0, 4), [0; 4]);
    stop(server);
}

#[test]
fn a_mistake_in_an_export_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let port = |path: &str| Address::Unix(directory.path().join(path));
    let server = serve(plan_with(&[1], &[("a", 1)]));
    let at = address(&server);
    let mut twice = plan_with(&[1, 2], &[("b", 2), ("b", 1)]);
    twice.nbd.push(NbdPlan { listen: vec![port("x")], read_only: false, tls: None, exports: None });
    let error = reload(&server, twice).expect_err("a name is unique");
    assert!(error.message.contains("duplicate export name \"b\""), "{error}");
    let mut missing = plan_with(&[1, 2], &[("b", 2)]);
    missing.nbd.push(NbdPlan { listen: vec![port("none/x")], read_only: false, tls: None, exports: Some(vec![]) });
    let error = reload(&server, missing).expect_err("there is no such directory");
    assert!(error.message.contains("cannot listen for NBD clients"), "{error}");
    let mut moved = plan_with(&[1], &[("a", 1)]);
    moved.nbd[0].listen.push(port("y"));
    let error = reload(&server, moved).expect_err("its address is in use by the other table");
    assert!(error.message.contains("127.0.0.1:0 cannot move to another table"), "{error}");
    assert!(is_offered(&at, "a") && !is_offered(&at, "b"));
    let namespaces = &server.handle().snapshot(WAIT).expect("the server runs").subsystems[0].namespaces;
    assert_eq!(namespaces.len(), 1);
    stop(server);

    let mut none = plan();
    none.nbd.clear();
    let server = serve(none);
    let error = reload(&server, plan()).expect_err("there is no memory for clients");
    assert!(error.message.contains("[[nbd]] cannot be added to a server that was started without it"), "{error}");
    stop(server);
}
