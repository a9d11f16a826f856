//! The subsystems that a server has for a host, from its discovery service: for the message about one
//! that does not exist.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time;

use zonda_initiator::{Discovery, Effect, InitiatorConfig, QueueId};
use zonda_nvme::Nqn;
use zonda_ring::Bytes;
use zonda_zoned::Instant;

/// The server has just answered: one that does not answer now is not asked longer.
const TIMEOUT: time::Duration = time::Duration::from_secs(2);
/// How long a read waits, at most, before the timeouts of the discovery are looked at.
const WAIT: time::Duration = time::Duration::from_millis(50);
const RECEIVE_BYTES: usize = 16 << 10;
/// More names are counted.
const NAMES_MAX: usize = 6;

/// The remedy for an unknown subsystem: the names that the server has, or how to list them.
pub(crate) fn remedy(address: SocketAddr, config: InitiatorConfig) -> String {
    let list = format!("nvme discover -t tcp -a {} -s {}", address.ip(), address.port());
    match subsystems(address, config) {
        None => format!("check its NQN; {list} lists the subsystems of the server"),
        Some(names) if names.is_empty() => {
            "the server has no subsystem for this host: allow the host in the configuration of the server, or connect \
             as a host that it allows: --host-nqn NQN"
                .to_owned()
        }
        Some(names) => {
            let shown: Vec<&str> = names.iter().take(NAMES_MAX).map(Nqn::as_str).collect();
            let more = match names.len().saturating_sub(NAMES_MAX) {
                0 => String::new(),
                more => format!(" and {more} more, which {list} lists"),
            };
            format!("check its NQN: the server has {}{more}", shown.join(", "))
        }
    }
}

/// The names, sorted; `None` if the server does not give them.
fn subsystems(address: SocketAddr, config: InitiatorConfig) -> Option<Vec<Nqn>> {
    let began = time::Instant::now();
    let now = || Instant(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let mut discovery = Discovery::new(InitiatorConfig { subsystem_nqn: Nqn::discovery(), ..config });
    discovery.start(now());
    let mut socket: Option<TcpStream> = None;
    let mut buffer = vec![0; RECEIVE_BYTES];
    loop {
        while let Some(effect) = discovery.poll_effect() {
            match effect {
                Effect::Connect { queue } => {
                    let opened = TcpStream::connect_timeout(&address, TIMEOUT).ok()?;
                    opened.set_read_timeout(Some(WAIT)).ok()?;
                    opened.set_write_timeout(Some(TIMEOUT)).ok()?;
                    socket = Some(opened);
                    discovery.on_connect(now(), queue);
                }
                Effect::Send { pieces, .. } => {
                    let socket = socket.as_mut()?;
                    pieces.iter().try_for_each(|piece| socket.write_all(piece)).ok()?;
                }
                Effect::Close { .. } | Effect::Event(_) => {}
            }
        }
        if let Some(result) = discovery.result() {
            let found = result.as_ref().ok()?;
            let mut names: Vec<Nqn> = found.iter().map(|entry| entry.subsystem_nqn.clone()).collect();
            names.retain(|name| !name.is_discovery());
            names.sort();
            names.dedup();
            return Some(names);
        }
        if began.elapsed() > TIMEOUT {
            return None;
        }
        match socket.as_mut()?.read(&mut buffer) {
            Ok(0) => discovery.on_disconnect(now(), QueueId::ADMIN, "the server closed the connection"),
            Ok(length) => discovery.on_bytes(now(), QueueId::ADMIN, Bytes::copy_from_slice(&buffer[..length])),
            // Time has passed.
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
        if discovery.next_timeout().is_some_and(|at| at <= now()) {
            discovery.on_timeout(now());
        }
    }
}
