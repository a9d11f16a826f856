//! Bytes that are sent one by one, and data that never end.

use std::io::{self, Write};
use std::net::TcpStream;

use bytes::Bytes;
use zonda_nbd::wire::handshake::OPTION_MAGIC;
use zonda_nbd::wire::transmission::command;
use zonda_nvme::IoOpcode;
use zonda_nvme::tcp::{Digests, InitializeRequest, Pdu};

use super::hold::{OpenStreams, open_streams};
use super::{ADDRESS, Victim};
use crate::nbd::Disk;
use crate::nvme::{QUEUE_ENTRIES, attach, dial, transfer};
use crate::{BLOCK_BYTES, OPEN};

const HOST: &str = "nqn.2026-01.io.zonda:slow";
/// Blocks of one write over NVMe: 1 MiB.
const WRITE_BLOCKS: u64 = (1 << 20) / BLOCK_BYTES as u64;
/// Bytes of one write over NBD.
const NBD_WRITE_BYTES: usize = 32 << 20;
/// The length in the header of an option.
const OPTION_BYTES: u32 = 0xffff_0000;

/// Bytes still to be sent, the last byte first.
pub(super) struct Slow {
    stream: TcpStream,
    left: Vec<u8>,
    /// Streams that belong to it.
    _others: Vec<TcpStream>,
}

/// Sends a byte. An error if the server has closed the connection.
pub(super) fn next_byte(slow: &mut Slow) -> io::Result<()> {
    slow.left.pop().map_or(Ok(()), |byte| slow.stream.write_all(&[byte]))
}

pub(super) fn slow_pdu(victim: &Victim) -> io::Result<Slow> {
    let stream = dial(ADDRESS, victim.nvme)?;
    let left = InitializeRequest::new(0, Digests::NONE, 1).bytes().iter().rev().copied().collect();
    Ok(Slow { stream, left, _others: Vec::new() })
}

/// Fills the queue with writes; sends the data for the first R2T, except the last bytes.
pub(super) fn slow_data(victim: &Victim) -> io::Result<Slow> {
    let (admin, mut queue) = attach(ADDRESS, victim.nvme, HOST, OPEN, None)?;
    for number in 0..u64::from(QUEUE_ENTRIES) - 1 {
        queue.start(transfer(IoOpcode::Write, number, WRITE_BLOCKS), &Bytes::new())?;
    }
    let Pdu::ReadyToTransfer(r2t) = queue.next()? else { return Err(io::Error::other("no R2T")) };
    let zeros = Bytes::from(vec![0; r2t.length.get() as usize]);
    queue.writer.host_data(r2t.command_id.get(), r2t.tag.get(), 0, &[zeros], true);
    let mut bytes = queue.writer.take().concat();
    let last = bytes.split_off(bytes.len() - 4096);
    queue.stream.write_all(&bytes)?;
    Ok(Slow { stream: queue.stream, left: last, _others: vec![admin.stream] })
}

/// A write without its last byte; and, on a second connection, an option without an end.
pub(super) fn unfinished_nbd(victim: &Victim) -> io::Result<OpenStreams> {
    let mut disk = Disk::open(ADDRESS, victim.nbd)?;
    let data = vec![0; NBD_WRITE_BYTES];
    // Encoded by hand, without the last byte.
    let ask = zonda_nbd::testing::Ask {
        command: command::WRITE,
        flags: 0,
        cookie: 1,
        offset: 0,
        length: NBD_WRITE_BYTES as u32,
    };
    let bytes = disk.client.ask(ask, &data);
    // Bytes that the server does not receive stay in the kernel.
    disk.stream.set_nonblocking(true)?;
    let mut sent = 0;
    for _ in 0..200 {
        match disk.stream.write(&bytes[sent..bytes.len() - 1]) {
            Ok(0) => break,
            Ok(count) => sent += count,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
    let mut option = dial(ADDRESS, victim.nbd)?;
    let mut header = vec![0, 0, 0, 3];
    header.extend(OPTION_MAGIC.to_be_bytes());
    header.extend(7u32.to_be_bytes());
    header.extend(OPTION_BYTES.to_be_bytes());
    header.extend([0; 1000]);
    option.write_all(&header)?;
    Ok(open_streams(vec![disk.stream, option]))
}
