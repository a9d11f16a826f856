//! `zonda status`: shows the status of a running server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use zonda_exports::HTTP_DEFAULT;
use zonda_exports::snapshot::{NamespaceSnapshot, NbdRequestSnapshot, NbdSnapshot, Snapshot, SpaceSnapshot};

use crate::commands::drive::image::elements_in_words;
use crate::commands::pool;
use crate::commands::volume::show;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::table::Table;
use crate::units;

pub(crate) const LONG_ABOUT: &str = "Show the status of a running server: sessions, zones, commands, wear.

Reads the status over HTTP, which a server supports unless it was started with --http off. The same figures are available \
at /metrics for Prometheus, and at /status.json.";

const EXAMPLES: &str = "Examples:
  zonda status
  zonda status 127.0.0.1:9500 --json | jq '.subsystems[].namespaces[].life.dlwa'";

/// Timeout of connecting, and of each read and write.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a response: enough for thousands of namespaces.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct StatusArgs {
    /// HTTP address of the server
    #[arg(value_name = "HOST:PORT", default_value_t = HTTP_DEFAULT.to_string())]
    address: String,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let snapshot = fetch(&args.address)?;
    if args.json { print_json(&snapshot) } else { print(&text_of(&snapshot, Screen::of_stdout())) }
}

/// The state of the server with this HTTP address.
pub(crate) fn fetch(address: &str) -> Result<Snapshot, Failure> {
    Ok(fetch_from(address, "/status.json")?)
}

/// The same with the zone maps of drives.
pub(crate) fn fetch_with_zones(address: &str) -> Result<Snapshot, Unreachable> {
    fetch_from(address, "/status.json?zones")
}

/// Why there is no status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreachable {
    pub(crate) message: String,
    /// The reason alone, without the address.
    pub(crate) reason: String,
    pub(crate) help: String,
}

impl From<Unreachable> for Failure {
    fn from(error: Unreachable) -> Failure {
        Failure::input(error.message, error.help)
    }
}

fn fetch_from(address: &str, path: &str) -> Result<Snapshot, Unreachable> {
    // As a server prints it.
    let address = address.strip_prefix("http://").map_or(address, |rest| rest.trim_end_matches('/'));
    let because = |reason: String, help: &str| Unreachable {
        message: format!("cannot read the status of a server at {address}: {reason}"),
        reason,
        help: help.to_owned(),
    };
    let no_server = |reason: &dyn std::fmt::Display| {
        because(
            reason.to_string(),
            "start a server with zonda serve, or give the address of its metrics, which it prints when it starts; a server with a \
             configuration file has one only with a line such as http = \"127.0.0.1:9420\" in [server]",
        )
    };
    let mut addresses = address.to_socket_addrs().map_err(|error| no_address(address, &error))?;
    let first = addresses.next().ok_or_else(|| no_server(&"the host name has no address"))?;
    let answer = get(first, path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => because(
            "the response is not HTTP".to_owned(),
            "give the HTTP address of the server, which it prints as metrics when it starts; is this its NVMe/TCP port?",
        ),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => because(
            format!("no response within {} s", TIMEOUT.as_secs()),
            "the server is overloaded, paused or unreachable: see its log, check the network, and try again; if it never \
             responds, stop and restart it",
        ),
        _ => no_server(&error),
    })?;
    serde_json::from_slice(&answer).map_err(|_| no_server(&"the response is not from this version of zonda"))
}

/// An address without a port, or a host name that cannot be resolved.
fn no_address(address: &str, error: &io::Error) -> Unreachable {
    let (message, help) = if error.kind() == io::ErrorKind::InvalidInput {
        let message = format!("\"{address}\" is not the address of a server, which has a host and a port");
        (message, format!("give HOST:PORT, such as {HTTP_DEFAULT}; a directory of this name does not exist"))
    } else {
        let message = format!("cannot resolve {address}: {error}");
        (message, "check the host name, or give an IP address".to_owned())
    };
    Unreachable { reason: message.clone(), message, help }
}

/// Sends an HTTP/1.0 request; the server closes the connection after its response.
fn get(address: SocketAddr, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").filter(|_| answer.starts_with(b"HTTP/"));
    let body = end.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))? + 4;
    let status = answer.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    if status != b"200" {
        return Err(io::Error::other(format!("HTTP status {}", String::from_utf8_lossy(status))));
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
        "memory for data: {} of {} in use; {} waited for memory\n",
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
    if let Some(error) = snapshot.configuration.as_ref().and_then(|it| it.last_reload.as_ref()?.error.as_ref()) {
        text += &format!("the last reload was refused:\n{}", indented(error));
    }
    for subsystem in &snapshot.subsystems {
        text += &format!("\n{}\n", screen.bold(&subsystem.nqn));
        for session in &subsystem.sessions {
            let authenticated = if session.authenticated { ", authenticated" } else { "" };
            let queues = units::counted(u64::from(session.io_queues), "I/O queue");
            text += &format!("  host {} ({queues}{authenticated})\n", session.host_nqn);
        }
        if subsystem.sessions.is_empty() {
            text += "  no host is connected\n";
        }
        for namespace in &subsystem.namespaces {
            text += &namespace_text(namespace, screen);
        }
    }
    for pool in &snapshot.pools {
        text += &format!("\n{}", pool::show::pool(&pool.report, Path::new(&pool.path), screen));
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
    let mut table = Table::new(&["command", ">count", ">moved", ">mean", ">p50 ≤", ">p99 ≤"]);
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
    let size = if namespace.volume.is_some() {
        format!("{}, conventional", units::bytes(capacity))
    } else {
        let zones = units::counted(u64::from(namespace.zones), "zone");
        format!("{zones} of {}", units::bytes(namespace.zone_capacity_bytes))
    };
    let states = &namespace.zones_by_state;
    // A conventional zone of a drive has no write pointer.
    let written = if namespace.volume.is_none() && states.iter().any(|zones| zones.state == "conventional") {
        "conventional".to_owned()
    } else {
        format!("{} written", units::percent(namespace.written_bytes as f64 / capacity.max(1) as f64))
    };
    let mut text = format!(
        "  namespace {}: {}, {size}, {written}{}\n",
        namespace.id,
        namespace.source,
        if namespace.read_only { ", read-only" } else { "" },
    );
    if let Some(volume) = &namespace.volume {
        return text
            + &indented(&show::text(volume, Path::new(&namespace.source), screen))
            + &commands_text(namespace, screen);
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
            "    wear       {} written by hosts, DLWA {:.3}, {} to {} erases per {}\n",
            units::bytes(life.host_write_bytes),
            life.dlwa,
            units::count(life.erases_min),
            units::count(life.erases_max),
            if namespace.elements.is_some() { "element" } else { "zone" },
        );
    }
    if let Some(elements) = &namespace.elements {
        let mapping = units::bytes(elements.mapping_bytes);
        text += &format!("    elements   {}, mapping table {mapping}\n", elements_in_words(elements));
    }
    if let Some(SpaceSnapshot { is_full, failures: failures @ 1.. }) = namespace.space {
        let now = if is_full {
            "file system full: writes fail until space is freed"
        } else {
            "file system has free space again"
        };
        let failed = units::counted(failures, "file operation");
        text += &format!("    space      {now}; {failed} failed with no space since the start\n");
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
    fn a_read_only_namespace_is_shown_as_such() {
        let text = |read_only| {
            let namespace = NamespaceSnapshot { id: 1, read_only, ..NamespaceSnapshot::default() };
            namespace_text(&namespace, Screen { width: 100, colour: false })
        };
        assert!(text(true).lines().next().is_some_and(|line| line.ends_with(" written, read-only")), "{}", text(true));
        assert!(!text(false).contains("read-only"), "{}", text(false));
    }

    #[test]
    fn a_full_file_system_is_shown_also_after_space_was_freed() {
        let text = |is_full, failures| {
            let space = Some(SpaceSnapshot { is_full, failures });
            let namespace = NamespaceSnapshot { id: 1, space, ..NamespaceSnapshot::default() };
            namespace_text(&namespace, Screen { width: 100, colour: false })
        };
        let full = text(true, 1_200);
        assert!(full.contains("space      file system full: writes fail") && full.contains("1,200 file"), "{full}");
        let later = text(false, 1);
        assert!(
            later.contains("space      file system has free space again; 1 file operation failed with no space"),
            "{later}"
        );
        assert!(!text(false, 0).contains("space  "), "no line if no file operation has failed");
    }
}
