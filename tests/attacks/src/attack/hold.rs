//! Connections that are held open, and their memory.

use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;

use bytes::Bytes;
use zonda_nbd::wire::transmission::command;
use zonda_nvme::{AdminOpcode, IoOpcode, SglDescriptor, SubmissionEntry};

use super::{ADDRESS, Victim};
use crate::nbd::Disk;
use crate::nvme::{QUEUE_ENTRIES, Queue, attach, dial, transfer};
use crate::{BLOCK_BYTES, DRIVE_BLOCKS, OPEN};

const HOST: &str = "nqn.2026-01.io.zonda:attacker";
const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Blocks of one read over NVMe: 1 MiB.
const READ_BLOCKS: u64 = (1 << 20) / BLOCK_BYTES as u64;
/// Bytes of one read over NBD, and reads of each client.
const NBD_READ: (usize, u64) = (4 << 20, 64);
/// Bytes of one log page, and commands on each admin queue.
const LOG: (u32, usize) = (1 << 20, 100);

/// Keeps a connection open. An error if the server has closed it.
pub(super) fn keep_open(connection: &mut OpenStreams) -> io::Result<()> {
    let stream = &connection.0[0];
    stream.set_nonblocking(true)?;
    match stream.peek(&mut [0]) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

/// Streams that are never read.
pub(super) struct OpenStreams(Vec<TcpStream>);

pub(super) fn discovery(victim: &Victim) -> io::Result<OpenStreams> {
    let mut queue = Queue::open(ADDRESS, victim.nvme)?;
    queue.connect(HOST, DISCOVERY, 0, None, 120_000)?;
    Ok(OpenStreams(vec![queue.stream]))
}

pub(super) fn idle_nbd(victim: &Victim) -> io::Result<OpenStreams> {
    Ok(OpenStreams(vec![Disk::open(ADDRESS, victim.nbd)?.stream]))
}

pub(super) fn unread_nbd(victim: &Victim) -> io::Result<OpenStreams> {
    let mut disk = Disk::open(ADDRESS, victim.nbd)?;
    let (length, count) = NBD_READ;
    let places = DRIVE_BLOCKS * BLOCK_BYTES as u64 / length as u64;
    for number in 0..count {
        disk.begin(command::READ, number % places * length as u64, length, &[])?;
    }
    Ok(OpenStreams(vec![disk.stream]))
}

pub(super) fn unread_nvme(victim: &Victim) -> io::Result<OpenStreams> {
    let (admin, mut queue) = attach(ADDRESS, victim.nvme, HOST, OPEN, None)?;
    for number in 0..u64::from(QUEUE_ENTRIES) - 1 {
        let block = number * READ_BLOCKS % (DRIVE_BLOCKS - READ_BLOCKS);
        queue.start(transfer(IoOpcode::Read, block, READ_BLOCKS), &Bytes::new())?;
    }
    Ok(OpenStreams(vec![queue.stream, admin.stream]))
}

pub(super) fn unread_logs(victim: &Victim) -> io::Result<OpenStreams> {
    let mut admin = Queue::open(ADDRESS, victim.nvme)?;
    admin.connect(HOST, OPEN, 0, None, 0)?;
    admin.enable()?;
    let (length, count) = LOG;
    for _ in 0..count {
        let mut entry = SubmissionEntry::new(AdminOpcode::GetLogPage.code(), 0);
        entry.data_pointer = SglDescriptor::transport(length);
        let dwords = length / 4 - 1;
        (entry.cdw10, entry.cdw11) = ((0x02 | dwords << 16).into(), (dwords >> 16).into());
        admin.start(entry, &Bytes::new())?;
    }
    Ok(OpenStreams(vec![admin.stream]))
}

pub(super) fn half_http(victim: &Victim) -> io::Result<OpenStreams> {
    let mut stream = dial(ADDRESS, victim.http)?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {}\r\nX-Padding: ", victim.http)?;
    Ok(OpenStreams(vec![stream]))
}

/// Wraps streams.
pub(super) fn open_streams(streams: Vec<TcpStream>) -> OpenStreams {
    OpenStreams(streams)
}
