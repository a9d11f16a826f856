//! The summary that a server prints when it has started.

use std::net::{SocketAddr, TcpListener};

use serde::Serialize;
use zonda_exports::{HostInfo, ServerInfo, SubsystemInfo};

use crate::output::Screen;
use crate::units;

/// What `--json` prints.
#[derive(Serialize)]
pub(super) struct Greeting<'a> {
    listen: Vec<String>,
    /// Absent with `--http off`.
    http: Option<String>,
    backend: &'a str,
    subsystems: Vec<Subsystem<'a>>,
    /// Absent without NBD.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nbd: Vec<NbdExport<'a>>,
}

#[derive(Serialize)]
struct NbdExport<'a> {
    export: &'a str,
    /// For clients on this machine, one for each address.
    urls: &'a [String],
    size_bytes: u64,
    read_only: bool,
}

#[derive(Serialize)]
struct Subsystem<'a> {
    nqn: &'a str,
    namespaces: Vec<Namespace<'a>>,
}

#[derive(Serialize)]
struct Namespace<'a> {
    namespace: u32,
    source: &'a str,
    zones: u32,
    zone_capacity_bytes: u64,
    size_bytes: u64,
    state: &'a str,
    read_only: bool,
    /// For `zonda zone` and `zonda bench --target` on this machine.
    url: String,
}

impl<'a> Greeting<'a> {
    pub(super) fn of(info: &'a ServerInfo, http: Option<&TcpListener>) -> Greeting<'a> {
        let subsystems = info.subsystems.iter().map(|subsystem| Subsystem {
            nqn: &subsystem.nqn,
            namespaces: subsystem
                .namespaces
                .iter()
                .map(|namespace| Namespace {
                    namespace: namespace.id,
                    source: &namespace.source,
                    zones: namespace.zones,
                    zone_capacity_bytes: namespace.zone_capacity_bytes,
                    size_bytes: namespace.size_bytes,
                    state: &namespace.state,
                    read_only: namespace.read_only,
                    url: url(&info.listen[0], &subsystem.nqn, namespace.id),
                })
                .collect(),
        });
        let exports = info.nbd.iter().map(|export| NbdExport {
            export: &export.name,
            urls: &export.urls,
            size_bytes: export.size_bytes,
            read_only: export.read_only,
        });
        Greeting {
            listen: info.listen.iter().map(ToString::to_string).collect(),
            http: http.and_then(|listener| listener.local_addr().ok()).map(|address| address.to_string()),
            backend: info.backend,
            subsystems: subsystems.collect(),
            nbd: exports.collect(),
        }
    }
}

/// Most hosts of a subsystem for which a command is shown.
const HOSTS_SHOWN_MAX: usize = 4;

/// What the command to connect needs of each host that may; once nothing if any host may.
fn hosts_of(subsystem: &SubsystemInfo) -> Vec<String> {
    let Some(hosts) = &subsystem.hosts else { return vec![String::new()] };
    let options = |host: &HostInfo| {
        let secret = if host.has_secret { " --dhchap-secret \"$(cat SECRET_FILE)\"" } else { "" };
        let controller =
            if host.has_controller_secret { " --dhchap-ctrl-secret \"$(cat CONTROLLER_FILE)\"" } else { "" };
        format!(" --hostnqn {}{secret}{controller}", host.nqn)
    };
    hosts.iter().take(HOSTS_SHOWN_MAX).map(options).collect()
}

/// What zonda needs to connect as the first host that may; nothing if any may.
fn first_host_of(subsystem: &SubsystemInfo) -> String {
    let Some(host) = subsystem.hosts.as_ref().and_then(|hosts| hosts.first()) else { return String::new() };
    let secret = if host.has_secret { " --secret-file SECRET_FILE" } else { "" };
    let controller = if host.has_controller_secret { " --controller-secret-file CONTROLLER_FILE" } else { "" };
    format!(" --host-nqn {}{secret}{controller}", host.nqn)
}

/// Namespaces, addresses and commands to connect.
pub(super) fn text(info: &ServerInfo, http: Option<&TcpListener>, screen: Screen) -> String {
    let mut text = String::new();
    for subsystem in &info.subsystems {
        text += &format!("{}\n", screen.bold(&subsystem.nqn));
        for namespace in &subsystem.namespaces {
            let size = if namespace.is_volume {
                format!("{}, conventional", units::bytes(namespace.size_bytes))
            } else {
                let capacity = units::bytes(namespace.zone_capacity_bytes);
                format!("{} of {capacity}", units::counted(u64::from(namespace.zones), "zone"))
            };
            text += &format!("  namespace {}: {}, {size}, {}\n", namespace.id, namespace.source, namespace.state);
        }
        for address in &info.listen {
            let (ip, port) = (shown_ip(address), address.port());
            for who in hosts_of(subsystem) {
                text += &format!("    Linux:  nvme connect -t tcp -a {ip} -s {port} -n {}{who}\n", subsystem.nqn);
            }
        }
        let hosts = subsystem.hosts.as_ref().map_or(0, Vec::len);
        if let Some(more) = hosts.checked_sub(HOSTS_SHOWN_MAX).filter(|more| *more > 0) {
            text += &format!("            {} may connect, too\n", units::counted(more as u64, "other host"));
        }
        if let Some(zoned) = subsystem.namespaces.iter().find(|namespace| !namespace.is_volume) {
            let who = first_host_of(subsystem);
            text += &format!("    zonda:  zonda zone report {}{who}\n", url(&info.listen[0], &subsystem.nqn, zoned.id));
        }
        text.push('\n');
    }
    for export in &info.nbd {
        let size = units::bytes(export.size_bytes);
        let access = if export.read_only { ", read-only" } else { "" };
        text += &format!("{} over NBD, {size}{access}\n", screen.bold(&export.name));
        export.urls.iter().for_each(|url| text += &format!("    nbdinfo {}\n", quoted(url)));
        text.push('\n');
    }
    if let Some(address) = http.and_then(|listener| listener.local_addr().ok()) {
        let is_default = address == zonda_exports::HTTP_DEFAULT;
        let place = if is_default { String::new() } else { format!(" {address}") };
        text += &format!("metrics: http://{address}/metrics; status: zonda status{place}\n");
    }
    if let Some(reason) = &info.fallback_reason {
        let note = format!("io_uring is not available ({reason}): using epoll and threads instead, which is slower");
        text += &screen.paragraph(&note, 0);
    }
    let listen: Vec<String> = info.listen.iter().map(ToString::to_string).collect();
    text + &format!("listening on {} ({}); stop with Ctrl-C\n", listen.join(", "), info.backend)
}

/// The URL of a namespace for hosts on this machine.
fn url(address: &SocketAddr, nqn: &str, namespace: u32) -> String {
    let ip = shown_ip(address);
    let ip = if ip.contains(':') { format!("[{ip}]") } else { ip };
    let query = if namespace == 1 { String::new() } else { format!("?namespace={namespace}") };
    format!("nvme-tcp://{ip}:{}/{nqn}{query}", address.port())
}

/// A URL, quoted for a shell if necessary.
fn quoted(url: &str) -> String {
    if url.contains(['?', '&', '~']) { format!("'{url}'") } else { url.to_owned() }
}

/// The address that a host on this machine can use.
fn shown_ip(address: &SocketAddr) -> String {
    match address {
        SocketAddr::V4(v4) if v4.ip().is_unspecified() => "127.0.0.1".to_owned(),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => "::1".to_owned(),
        other => other.ip().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_exports::{NamespaceInfo, NbdExportInfo};

    #[test]
    fn a_server_on_all_addresses_is_reached_by_loopback() {
        let namespace = |id, is_volume| NamespaceInfo {
            id,
            source: "memory".to_owned(),
            zones: 4,
            zone_capacity_bytes: 1 << 20,
            size_bytes: 4 << 20,
            is_volume,
            state: "empty".to_owned(),
            read_only: false,
        };
        let subsystem = SubsystemInfo {
            nqn: "nqn.2026-01.io.zonda:a".to_owned(),
            hosts: None,
            namespaces: vec![namespace(2, false), namespace(3, true)],
        };
        let host = |name: &str, has_secret| HostInfo {
            nqn: format!("nqn.2026-01.io.zonda:{name}"),
            has_secret,
            has_controller_secret: false,
        };
        let guarded = SubsystemInfo {
            nqn: "nqn.2026-01.io.zonda:b".to_owned(),
            hosts: Some(vec![host("h1", false), host("h2", true)]),
            namespaces: Vec::new(),
        };
        let secret = SubsystemInfo {
            nqn: "nqn.2026-01.io.zonda:c".to_owned(),
            hosts: Some(vec![host("h3", true)]),
            namespaces: vec![namespace(1, false)],
        };
        let info = ServerInfo {
            listen: vec!["[::]:4420".parse().expect("an address"), "0.0.0.0:9".parse().expect("an address")],
            backend: "epoll",
            fallback_reason: Some("not permitted".to_owned()),
            subsystems: vec![subsystem, guarded, secret],
            nbd: vec![NbdExportInfo {
                name: "a".to_owned(),
                urls: vec!["nbd://127.0.0.1:10809/a".to_owned(), "nbd+unix:///a?socket=/run/a".to_owned()],
                size_bytes: 4 << 20,
                read_only: true,
            }],
        };
        let text = text(&info, None, Screen { width: 80, colour: false });
        for line in [
            "  namespace 2: memory, 4 zones of 1.00 MiB, empty",
            "  namespace 3: memory, 4.00 MiB, conventional, empty",
            "    Linux:  nvme connect -t tcp -a ::1 -s 4420 -n nqn.2026-01.io.zonda:a",
            "    Linux:  nvme connect -t tcp -a 127.0.0.1 -s 9 -n nqn.2026-01.io.zonda:a",
            "    Linux:  nvme connect -t tcp -a ::1 -s 4420 -n nqn.2026-01.io.zonda:b --hostnqn nqn.2026-01.io.zonda:h1",
            "    Linux:  nvme connect -t tcp -a 127.0.0.1 -s 9 -n nqn.2026-01.io.zonda:b --hostnqn nqn.2026-01.io.zonda:h2 \
             --dhchap-secret \"$(cat SECRET_FILE)\"",
            "a over NBD, 4.00 MiB, read-only",
            "    nbdinfo nbd://127.0.0.1:10809/a",
            "    nbdinfo 'nbd+unix:///a?socket=/run/a'",
            "    zonda:  zonda zone report nvme-tcp://[::1]:4420/nqn.2026-01.io.zonda:a?namespace=2",
            "    zonda:  zonda zone report nvme-tcp://[::1]:4420/nqn.2026-01.io.zonda:c --host-nqn \
             nqn.2026-01.io.zonda:h3 --secret-file SECRET_FILE",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("io_uring is not available (not permitted)") && !text.contains("metrics"), "{text}");
        assert!(!text.contains("other host"), "{text}");
    }

    #[test]
    fn the_hosts_without_a_command_are_counted() {
        let text_of = |hosts: usize| {
            let host = |number| HostInfo {
                nqn: format!("nqn.2026-01.io.zonda:h{number}"),
                has_secret: false,
                has_controller_secret: false,
            };
            let subsystem = SubsystemInfo {
                nqn: "nqn.2026-01.io.zonda:a".to_owned(),
                hosts: Some((0..hosts).map(host).collect()),
                namespaces: Vec::new(),
            };
            let info = ServerInfo {
                listen: vec!["127.0.0.1:4420".parse().expect("an address")],
                backend: "epoll",
                fallback_reason: None,
                subsystems: vec![subsystem],
                nbd: Vec::new(),
            };
            text(&info, None, Screen { width: 80, colour: false })
        };
        let shown = |text: &str| text.lines().filter(|line| line.contains("nvme connect")).count();
        for (hosts, words) in
            [(5, "            1 other host may connect, too"), (7, "            3 other hosts may connect, too")]
        {
            let text = text_of(hosts);
            assert!(shown(&text) == 4 && text.lines().any(|line| line == words), "{text}");
        }
        assert!(shown(&text_of(4)) == 4 && !text_of(4).contains("other host"));
    }
}
