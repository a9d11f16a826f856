//! A greedy host, whose commands are all valid.

use std::io::{self, Read, Write};
use std::thread;

use bytes::Bytes;
use zonda_nvme::{AdminOpcode, IoOpcode, SubmissionEntry};

use super::{ADDRESS, PAUSE, Victim};
use crate::nvme::{QUEUE_ENTRIES, Queue, attach, transfer};
use crate::{BLOCK_BYTES, DRIVE_BLOCKS, OPEN};

const HOST: &str = "nqn.2026-01.io.zonda:flood";
/// Its queues, each filled with commands: in all more than a thousand.
const QUEUES: u64 = 9;
/// Blocks of one command: 128 KiB.
const BLOCKS: u64 = (128 << 10) / BLOCK_BYTES as u64;

/// Keeps all queues full: every third one of reads, the others of writes.
pub(super) fn flood(victim: Victim) -> ! {
    for number in 0..QUEUES {
        thread::spawn(move || {
            loop {
                if keep_full(&victim, number).is_err() {
                    thread::sleep(PAUSE);
                }
            }
        });
    }
    loop {
        thread::park();
    }
}

fn keep_full(victim: &Victim, number: u64) -> io::Result<()> {
    let (_admin, mut queue) = attach(ADDRESS, victim.nvme, HOST, OPEN, None)?;
    let opcode = if number.is_multiple_of(3) { IoOpcode::Read } else { IoOpcode::Write };
    let mut block = number * BLOCKS;
    let mut outstanding = 0;
    loop {
        while outstanding < QUEUE_ENTRIES - 1 {
            block = (block + BLOCKS) % (DRIVE_BLOCKS - BLOCKS);
            queue.start(transfer(opcode, block, BLOCKS), &Bytes::new())?;
            outstanding += 1;
        }
        queue.finish()?;
        outstanding -= 1;
    }
}

/// Admin queues that send short commands.
const COMMANDERS: usize = 32;
const COMMANDS: usize = 2000;

/// Sends commands that complete at once, and reads the completions.
pub(super) fn commands(victim: Victim) -> ! {
    for _ in 0..COMMANDERS {
        thread::spawn(move || {
            loop {
                if send_commands(&victim).is_err() {
                    thread::sleep(PAUSE);
                }
            }
        });
    }
    loop {
        thread::park();
    }
}

fn send_commands(victim: &Victim) -> io::Result<()> {
    let mut queue = Queue::open(ADDRESS, victim.nvme)?;
    queue.connect(HOST, OPEN, 0, None, 0)?;
    queue.enable()?;
    for number in 0..COMMANDS {
        let mut entry = SubmissionEntry::new(AdminOpcode::KeepAlive.code(), 0);
        entry.command_id = (number as u16).into();
        queue.writer.command(&entry, &Bytes::new());
    }
    let bytes = queue.writer.take().concat();
    let mut answers = queue.stream.try_clone()?;
    thread::spawn(move || while matches!(answers.read(&mut [0; 64 << 10]), Ok(1..)) {});
    loop {
        queue.stream.write_all(&bytes)?;
    }
}
