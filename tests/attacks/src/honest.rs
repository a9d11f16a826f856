//! Honest clients: their requests must be served, and their connections accepted.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use zonda_chap::Secret;
use zonda_nvme::{IoOpcode, StatusCode};

use crate::attack::Victim;
use crate::latencies::Latencies;
use crate::nbd::Disk;
use crate::nvme::{attach, transfer};
use crate::{DRIVE_BLOCKS, GUARDED, HOST};

/// The address of honest clients that connect repeatedly.
const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The address of honest clients that connect once: a separate one, since handshakes of one address
/// are serialized.
const ADDRESS_AT_WORK: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// Outstanding commands of the host.
const DEPTH: usize = 4;
/// Every n-th request is a write.
const WRITE_EVERY: u64 = 4;
/// Interval between two requests of each client: they must not saturate the CPUs.
const PAUSE: Duration = Duration::from_micros(500);
/// Interval between two new connections.
const CONNECT_EVERY: Duration = Duration::from_millis(200);

/// The measurements of honest clients.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) nvme: Latencies,
    pub(crate) nbd: Latencies,
    /// New connections, of either kind, until their first request completed.
    pub(crate) connects: Latencies,
    /// New connections attempted, successful or not.
    pub(crate) connects_tried: usize,
    /// Errors, the first of each kind.
    pub(crate) refusals: Vec<String>,
}

/// Running honest clients.
pub(crate) struct Honest {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Found>>,
}

type Work = fn(&Victim, &Secret, &AtomicBool, &mut Found) -> io::Result<()>;

impl Honest {
    pub(crate) fn start(victim: Victim, secret: &Secret) -> Honest {
        let is_over = Arc::new(AtomicBool::new(false));
        let works: [(&str, Work); 3] = [("NVMe host", nvme), ("NBD client", nbd), ("new connection", connect)];
        let start = |(name, work): (&'static str, Work)| {
            let (is_over, secret) = (Arc::clone(&is_over), secret.clone());
            thread::spawn(move || {
                let mut found = Found::default();
                while !is_over.load(Ordering::Relaxed) {
                    if let Err(error) = work(&victim, &secret, &is_over, &mut found) {
                        found.refusals.push(format!("{name}: {error}"));
                        thread::sleep(CONNECT_EVERY);
                    }
                }
                found
            })
        };
        let threads = works.into_iter().map(start).collect();
        Honest { is_over, threads }
    }

    /// Stops them.
    pub(crate) fn stop(self) -> Found {
        self.is_over.store(true, Ordering::Relaxed);
        let mut all = Found::default();
        for thread in self.threads {
            let found = thread.join().expect("honest clients do not panic");
            all.nvme.append(found.nvme);
            all.nbd.append(found.nbd);
            all.connects.append(found.connects);
            all.connects_tried += found.connects_tried;
            all.refusals.extend(found.refusals);
        }
        all
    }
}

/// Spreads block numbers over the drive.
fn block(number: u64) -> u64 {
    number * 7919 % DRIVE_BLOCKS
}

/// A host with several outstanding commands.
fn nvme(victim: &Victim, secret: &Secret, is_over: &AtomicBool, found: &mut Found) -> io::Result<()> {
    let (_admin, mut queue) = attach(ADDRESS_AT_WORK, victim.nvme, HOST, GUARDED, Some(secret))?;
    let mut started: Vec<(u16, Instant)> = Vec::new();
    let mut number = 0;
    loop {
        while started.len() < DEPTH && !is_over.load(Ordering::Relaxed) {
            number += 1;
            let opcode = if number % WRITE_EVERY == 0 { IoOpcode::Write } else { IoOpcode::Read };
            let begin = Instant::now();
            started.push((queue.start(transfer(opcode, block(number), 1), &Bytes::new())?, begin));
        }
        if started.is_empty() {
            return Ok(());
        }
        let answer = queue.finish()?;
        if answer.status != StatusCode::SUCCESS {
            return Err(io::Error::other(answer.status.to_string()));
        }
        let place = started.iter().position(|(command, _)| *command == answer.command);
        let (_, begin) = started.swap_remove(place.ok_or_else(|| io::Error::other("a completion without a command"))?);
        found.nvme.add(begin.elapsed());
        if started.len() < DEPTH / 2 {
            thread::sleep(PAUSE);
        }
    }
}

fn nbd(victim: &Victim, _: &Secret, is_over: &AtomicBool, found: &mut Found) -> io::Result<()> {
    let mut disk = Disk::open(ADDRESS_AT_WORK, victim.nbd)?;
    let mut number = 0;
    while !is_over.load(Ordering::Relaxed) {
        number += 1;
        let begin = Instant::now();
        disk.transfer(number % WRITE_EVERY == 0, block(number))?;
        found.nbd.add(begin.elapsed());
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// A host that authenticates, and an NBD client: from the connect to the completion of a read.
fn connect(victim: &Victim, secret: &Secret, is_over: &AtomicBool, found: &mut Found) -> io::Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        with_retry(found, || {
            let (_admin, mut queue) = attach(ADDRESS, victim.nvme, HOST, GUARDED, Some(secret))?;
            queue.execute(transfer(IoOpcode::Read, 0, 1), &Bytes::new()).map(|_| ())
        })?;
        with_retry(found, || Disk::open(ADDRESS, victim.nbd)?.transfer(false, 0))?;
        thread::sleep(CONNECT_EVERY);
    }
    Ok(())
}

/// Connects, and retries once if that fails, as hosts do: a handshake may be evicted in a flood.
fn with_retry(found: &mut Found, connect: impl Fn() -> io::Result<()>) -> io::Result<()> {
    let mut attempt = || {
        let begin = Instant::now();
        let result = connect();
        found.connects_tried += 1;
        result.inspect(|()| found.connects.add(begin.elapsed()))
    };
    attempt().or_else(|_| attempt())
}
