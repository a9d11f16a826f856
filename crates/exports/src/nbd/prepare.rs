//! Everything that can fail before a connection is accepted.

use std::net::IpAddr;

use zonda_nbd::ExportIndex;
use zonda_ring::{Address, Ring};

use super::listen::{self, Listener};
use super::service::Nbd;
use super::table::{Candidate, Table};
use super::tls::NbdTls;
use crate::config::ServerPlan;
use crate::start::{NbdExportInfo, ServeError};

/// Listens on the addresses of each `[[nbd]]`.
pub(crate) fn listen(plan: &ServerPlan) -> Result<Vec<Vec<Listener>>, ServeError> {
    plan.nbd.iter().map(|plan| plan.listen.iter().map(listen::listen).collect()).collect()
}

/// Creates the NBD server of a plan on the listeners of each `[[nbd]]`, if configured, and lists
/// its exports.
pub(crate) fn prepare(
    plan: &ServerPlan,
    listening: Vec<Vec<Listener>>,
    connections_max: usize,
    ring: &Ring,
    candidates: &[Candidate],
) -> Result<(Option<Nbd>, Vec<NbdExportInfo>), ServeError> {
    if plan.nbd.is_empty() {
        return Ok((None, Vec::new()));
    }
    let (mut tables, mut listeners, mut infos) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (plan, listening)) in plan.nbd.iter().zip(listening).enumerate() {
        let table = Table::build(plan, candidates)?;
        let addresses: Vec<Address> = listening.iter().map(|listener| listener.address.clone()).collect();
        listeners.extend(listening.into_iter().map(|listener| (place, listener)));
        for index in (0..table.exports.len() as u16).map(ExportIndex) {
            let (export, _) = table.export(index);
            infos.push(NbdExportInfo {
                name: export.name.clone(),
                urls: addresses.iter().flat_map(|address| urls(address, &export.name, table.tls.as_ref())).collect(),
                size_bytes: export.size_bytes,
                read_only: export.read_only,
            });
        }
        tables.push(table);
    }
    Ok((Some(Nbd::new(ring, connections_max, tables, listeners)), infos))
}

/// The URIs of an export for clients on this machine (`doc/uri.md` of the project
/// NetworkBlockDevice/nbd): encrypted and unencrypted, as permitted.
fn urls(address: &Address, name: &str, tls: Option<&NbdTls>) -> Vec<String> {
    let schemes: &[&str] = match tls {
        None => &["nbd"],
        Some(tls) if tls.is_required() => &["nbds"],
        Some(_) => &["nbds", "nbd"],
    };
    schemes.iter().map(|scheme| url(scheme, address, name)).collect()
}

fn url(scheme: &str, address: &Address, name: &str) -> String {
    match address {
        Address::Tcp(address) => {
            let host = match address.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
                IpAddr::V6(ip) if ip.is_unspecified() => "[::1]".to_owned(),
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            };
            format!("{scheme}://{host}:{}/{}", address.port(), encoded(name, ""))
        }
        Address::Unix(path) => {
            let path = encoded(&path.to_string_lossy(), "/");
            format!("{scheme}+unix:///{}?socket={path}", encoded(name, ""))
        }
    }
}

/// Percent-encodes everything but unreserved characters (RFC 3986, section 2.3) and `kept`.
fn encoded(text: &str, kept: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        let character = char::from(byte);
        if byte.is_ascii_alphanumeric() || "-._~".contains(character) || kept.contains(character) {
            encoded.push(character);
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_for_clients_on_this_machine() {
        let tcp = |text: &str| Address::Tcp(text.parse().expect("an address"));
        for (address, name, expected) in [
            (tcp("0.0.0.0:10809"), "a", "nbd://127.0.0.1:10809/a"),
            (tcp("[::]:9"), "a b", "nbd://[::1]:9/a%20b"),
            (tcp("10.0.0.1:9"), "ä/%", "nbd://10.0.0.1:9/%C3%A4%2F%25"),
            (Address::Unix("/run/my nbd.sock".into()), "a", "nbd+unix:///a?socket=/run/my%20nbd.sock"),
        ] {
            assert_eq!(urls(&address, name, None), [expected]);
        }
    }
}
