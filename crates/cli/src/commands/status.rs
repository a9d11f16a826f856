//! `zonda status`: how a running server is doing.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use clap::Args;
use zonda_exports::HTTP_DEFAULT;
use zonda_exports::snapshot::{NamespaceSnapshot, NbdRequestSnapshot, NbdSnapshot, Snapshot, SpaceSnapshot};

use crate::commands::drive::image::elements_in_words;
use crate::commands::volume::show;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;
use crate::units;

pub(crate) const LONG_ABOUT: &str = "Shows how a running server is doing: its sessions, zones, commands, wear.

The server must have an HTTP address, which it has unless it was started with --http off. The same figures are at /metrics \
for Prometheus, and at /status.json.";

const EXAMPLES: &str = "Examples:
  zonda status
  zonda status 127.0.0.1:9500 --json | jq '.subsystems[].namespaces[].life.dlwa'";

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of the longest answer: some thousands of namespaces.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// The HTTP address of the server
    #[arg(value_name = "HOST:PORT", default_value_t = HTTP_DEFAULT.to_string())]
    address: String,
    /// Prints one JSON object, and nothing else
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let snapshot = fetch(&args.address)?;
    if args.json { print_json(&snapshot) } else { print(&text_of(&snapshot, Screen::of_stdout())) }
}

fn fetch(address: &str) -> Result<Snapshot, Failure> {
    let no_server = |reason: &dyn std::fmt::Display| {
        Failure::input(
            format!("no server tells its status at {address}: {reason}"),
            "start one with zonda serve; write the address at which it says that its metrics are",
        )
    };
    let mut addresses = address.to_socket_addrs().map_err(|error| no_server(&error))?;
    let first = addresses.next().ok_or_else(|| no_server(&"the name stands for no address"))?;
    let answer = get(first, "/status.json").map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => no_server(&"it does not answer in time"),
        _ => no_server(&error),
    })?;
    serde_json::from_slice(&answer).map_err(|_| no_server(&"what answers there is no zonda of this version"))
}

/// One HTTP/1.0 request: the server closes the connection after its answer.
fn get(address: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let body = end.ok_or_else(|| io::Error::other("what answers there does not speak HTTP"))? + 4;
    let status = answer.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    if status != b"200" {
        return Err(io::Error::other(format!("it answers with HTTP status {}", String::from_utf8_lossy(status))));
    }
    answer.drain(..body);
    Ok(answer)
}

fn text_of(snapshot: &Snapshot, screen: Screen) -> String {
    let traffic = &snapshot.traffic;
    let mut text = format!(
        "zonda {}, up {}, on {} ({})\n{} now, {} accepted, {} refused; {} in, {} out\n",
        snapshot.version,
        units::time(snapshot.uptime_ns),
        snapshot.listen.join(", "),
        snapshot.backend,
        units::counted(snapshot.connections, "connection"),
        units::count(traffic.connections_accepted),
        units::count(traffic.connections_refused),
        units::bytes(traffic.received_bytes),
        units::bytes(traffic.sent_bytes),
    );
    let memory = &snapshot.memory;
    text += &format!(
        "memory for data: {} in use of {}; {} had to wait\n",
        units::bytes(memory.used_bytes),
        units::bytes(memory.budget_bytes),
        units::counted(memory.waits, "request"),
    );
    if traffic.protocol_errors + traffic.authentication_failures > 0 {
        text += &format!(
            "{}, {}\n",
            units::counted(traffic.protocol_errors, "protocol error"),
            units::counted(traffic.authentication_failures, "failed authentication"),
        );
    }
    for subsystem in &snapshot.subsystems {
        text += &format!("\n{}\n", screen.bold(&subsystem.nqn));
        for session in &subsystem.sessions {
            let proved = if session.authenticated { ", authenticated" } else { "" };
            let queues = units::counted(u64::from(session.io_queues), "I/O queue");
            text += &format!("  host {} ({queues}{proved})\n", session.host_nqn);
        }
        if subsystem.sessions.is_empty() {
            text += "  no host is connected\n";
        }
        for namespace in &subsystem.namespaces {
            text += &namespace_text(namespace, screen);
        }
    }
    text + &snapshot.nbd.as_ref().map_or_else(String::new, |nbd| nbd_text(nbd, screen))
}

fn nbd_text(nbd: &NbdSnapshot, screen: Screen) -> String {
    let mut text = format!(
        "\n{} on {}\n  {} now, {} accepted, {} refused; {} in, {} out\n",
        screen.bold("NBD"),
        nbd.listen.join(", "),
        units::counted(nbd.connections, "connection"),
        units::count(nbd.connections_accepted),
        units::count(nbd.connections_refused),
        units::bytes(nbd.received_bytes),
        units::bytes(nbd.sent_bytes),
    );
    let mut table = Table::new(&["export", ">size", ">clients", "request", ">count", ">errors", ">moved"]);
    for export in &nbd.exports {
        let size = units::bytes(export.size_bytes) + if export.read_only { ", read-only" } else { "" };
        let own = [export.name.clone(), size, units::count(export.connections)];
        let none = [NbdRequestSnapshot { kind: "none yet".to_owned(), ..NbdRequestSnapshot::default() }];
        let requests = if export.requests.is_empty() { &none[..] } else { &export.requests[..] };
        for (at, request) in requests.iter().enumerate() {
            let [name, size, clients] = if at == 0 { own.clone() } else { Default::default() };
            let (count, errors) = (units::count(request.count), units::count(request.errors));
            table.row(&[name, size, clients, request.kind.clone(), count, errors, units::bytes(request.bytes)]);
        }
    }
    text += &table.render(screen, 2);
    text
}

fn indented(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") }).collect()
}

/// Commands of hosts since the server started, by kind.
fn commands_text(namespace: &NamespaceSnapshot, screen: Screen) -> String {
    if namespace.commands.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["command", ">count", ">moved", ">mean", ">p50 up to", ">p99 up to"]);
    for command in &namespace.commands {
        let bound = |bound: Option<u64>| bound.map_or_else(|| "more".to_owned(), units::time);
        table.row(&[
            command.kind.clone(),
            units::count(command.count),
            units::bytes(command.bytes),
            units::time(command.latency_sum_ns / command.count.max(1)),
            bound(command.p50_ns),
            bound(command.p99_ns),
        ]);
    }
    table.render(screen, 4)
}

fn namespace_text(namespace: &NamespaceSnapshot, screen: Screen) -> String {
    let capacity = u64::from(namespace.zones) * namespace.zone_capacity_bytes;
    let mut text = format!(
        "  namespace {}: {}, {} of {}, {} written{}\n",
        namespace.id,
        namespace.source,
        units::counted(u64::from(namespace.zones), "zone"),
        units::bytes(namespace.zone_capacity_bytes),
        units::percent(namespace.written_bytes as f64 / capacity.max(1) as f64),
        if namespace.read_only { ", read-only" } else { "" },
    );
    if let Some(volume) = &namespace.volume {
        return text + &indented(&show::text(volume, screen)) + &commands_text(namespace, screen);
    }
    let states = namespace.zones_by_state.iter().map(|state| format!("{} {}", state.zones, state.state));
    text += &format!("    zones      {}\n", states.collect::<Vec<_>>().join(", "));
    let of = |max: Option<u32>| max.map_or_else(String::new, |max| format!(" of {max}"));
    text += &format!(
        "    resources  {}{} active, {}{} open\n",
        namespace.active_zones,
        of(namespace.max_active_zones),
        namespace.open_zones,
        of(namespace.max_open_zones),
    );
    if let Some(life) = &namespace.life {
        text += &format!(
            "    life       {} written by hosts, DLWA {:.3}, {} to {} erases {}\n",
            units::bytes(life.host_write_bytes),
            life.dlwa,
            units::count(life.erases_min),
            units::count(life.erases_max),
            if namespace.elements.is_some() { "an element" } else { "a zone" },
        );
    }
    if let Some(elements) = &namespace.elements {
        let mapping = units::bytes(elements.mapping_bytes);
        text += &format!("    elements   {}, {mapping} of mapping\n", elements_in_words(elements));
    }
    if let Some(SpaceSnapshot { is_full, failures: failures @ 1.. }) = namespace.space {
        let now = if is_full { "none on the file system: writes fail until there is room" } else { "enough by now" };
        let failed = units::counted(failures, "file operation");
        text += &format!("    room       {now}; {failed} failed for want of it since the start\n");
    }
    let errors = namespace.errors.iter().map(|error| format!("{} {}", units::count(error.count), error.status));
    let errors: Vec<String> = errors.collect();
    if !errors.is_empty() {
        text += &format!("    errors     {}\n", errors.join(", "));
    }
    text + &commands_text(namespace, screen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_is_served_read_only_says_so() {
        let text = |read_only| {
            let namespace = NamespaceSnapshot { id: 1, read_only, ..NamespaceSnapshot::default() };
            namespace_text(&namespace, Screen { width: 100, colour: false })
        };
        assert!(text(true).lines().next().is_some_and(|line| line.ends_with(" written, read-only")), "{}", text(true));
        assert!(!text(false).contains("read-only"), "{}", text(false));
    }

    #[test]
    fn a_file_system_without_room_is_shown_and_that_it_had_none_later() {
        let text = |is_full, failures| {
            let space = Some(SpaceSnapshot { is_full, failures });
            let namespace = NamespaceSnapshot { id: 1, space, ..NamespaceSnapshot::default() };
            namespace_text(&namespace, Screen { width: 100, colour: false })
        };
        let full = text(true, 1_200);
        assert!(
            full.contains("room       none on the file system: writes fail") && full.contains("1,200 file"),
            "{full}"
        );
        let later = text(false, 1);
        assert!(later.contains("room       enough by now; 1 file operation failed for want of it"), "{later}");
        assert!(!text(false, 0).contains("room"), "nothing where nothing has failed");
    }
}
