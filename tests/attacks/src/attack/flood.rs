//! A host that wants everything: nothing it does is wrong.

use std::io;
use std::thread;

use bytes::Bytes;
use zonda_nvme::IoOpcode;

use super::{ADDRESS, PAUSE, Victim};
use crate::nvme::{QUEUE_ENTRIES, attach, transfer};
use crate::{BLOCK_BYTES, DRIVE_BLOCKS, OPEN};

const HOST: &str = "nqn.2026-01.io.zonda:flood";
/// Its queues, each with as many commands as it takes: in all more than a thousand.
const QUEUES: u64 = 9;
/// Blocks of one command: 128 KiB.
const BLOCKS: u64 = (128 << 10) / BLOCK_BYTES as u64;

/// Keeps all queues full of writes; every third one has reads.
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
    let opcode = if number % 3 == 0 { IoOpcode::Read } else { IoOpcode::Write };
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
