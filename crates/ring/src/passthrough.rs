//! NVMe passthrough: commands to the character device of a namespace, on a ring of their own, whose
//! entries are large enough for them. One of the five files with unsafe code.
//!
//! The structure and the number of a command are those of `linux/nvme_ioctl.h`. Completions wake the
//! loop whose [`Waker`] was given; its owner then reaps them with [`PassthroughQueue::poll_done`].
//!
//! Soundness: a command points to the heap memory of its data, which is in the table of commands in
//! flight until the completion is reaped. Whether the kernel reads or writes that memory depends on the
//! opcode alone, which is checked against the direction of the data.
#![allow(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use crate::{File, Waker, limits};

/// `NVME_URING_CMD_IO`: `_IOWR('N', 0x80, struct nvme_uring_cmd)`.
const URING_CMD_IO: u32 = 0xc048_4e80;
/// Opcode of Fabrics commands, whose direction the opcode does not tell.
const FABRICS: u8 = 0x7f;

/// A submission queue entry (NVMe Base 2.0, Figure 86). Its command identifier, metadata and data
/// pointers are ignored.
pub type NvmeCommand = [u8; 64];

/// The data of a command.
#[derive(Debug)]
pub enum CommandData {
    /// None.
    None,
    /// For an opcode whose bit 0 is set.
    ToDevice(Bytes),
    /// For an opcode whose bit 0 is clear: the buffer is overwritten, all or in part.
    FromDevice(BytesMut),
}

/// The answer of the device: its status field (without phase), and dwords 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmeAnswer {
    /// Status Code Type and Status Code, and above them More and Do Not Retry.
    pub status: u16,
    /// Command specific.
    pub result: u64,
}

/// A command that has ended.
#[derive(Debug)]
pub struct PassthroughDone {
    /// The token passed to `submit`.
    pub token: u64,
    /// The answer of the device, or why the kernel did not send the command or has no answer.
    pub result: io::Result<NvmeAnswer>,
    /// The data of the command.
    pub data: CommandData,
    /// Its metadata.
    pub metadata: CommandData,
}

/// A queue of commands to one namespace.
pub struct PassthroughQueue {
    ring: IoUring<squeue::Entry128, cqueue::Entry32>,
    file: Rc<File>,
    waker: Waker,
    /// Commands in flight, with what the kernel may access.
    lent: BTreeMap<u64, [CommandData; 2]>,
    /// Commands that the submission queue had no space for.
    waiting: VecDeque<(u64, squeue::Entry128)>,
    /// Commands that were refused before they reached the kernel.
    refused: VecDeque<PassthroughDone>,
}

impl PassthroughQueue {
    /// Creates a queue to the namespace whose character device is open, for the loop of `waker`.
    ///
    /// # Errors
    /// The error of the system call; on kernels before Linux 5.19 `InvalidInput`.
    pub fn new(file: Rc<File>, waker: Waker, entries: u32) -> io::Result<PassthroughQueue> {
        let ring = IoUring::<squeue::Entry128, cqueue::Entry32>::builder().dontfork().build(entries)?;
        ring.submitter().register_eventfd(waker.event().as_raw_fd())?;
        let (lent, waiting, refused) = (BTreeMap::new(), VecDeque::new(), VecDeque::new());
        Ok(PassthroughQueue { ring, file, waker, lent, waiting, refused })
    }

    /// Adds a command, which [`flush`](PassthroughQueue::flush) submits. Metadata that do not travel
    /// with the data have a buffer of their own, in the direction of the data.
    ///
    /// # Panics
    /// If a command with this token is in flight.
    pub fn submit(&mut self, token: u64, command: &NvmeCommand, data: CommandData, metadata: CommandData) {
        let lengths = length_of(command, &data).zip(length_of(command, &metadata));
        let Some((data_length, metadata_length)) = lengths else {
            let result = Err(io::Error::new(io::ErrorKind::InvalidInput, "the data does not suit the opcode"));
            self.refused.push_back(PassthroughDone { token, result, data, metadata });
            self.waker.wake();
            return;
        };
        let earlier = self.lent.insert(token, [data, metadata]);
        assert!(earlier.is_none(), "the tokens of commands in flight are unique");
        let address = |lent: &mut CommandData| match lent {
            CommandData::None => 0,
            CommandData::ToDevice(bytes) => bytes.as_ptr() as u64,
            CommandData::FromDevice(buffer) => buffer.as_mut_ptr() as u64,
        };
        let [data, metadata] = self.lent.get_mut(&token).expect("it was just inserted").each_mut().map(address);
        let cmd = uring_command(command, (data, data_length), (metadata, metadata_length));
        let entry = opcode::UringCmd80::new(Fd(self.file.fd_number()), URING_CMD_IO).cmd(cmd).build().user_data(token);
        self.waiting.push_back((token, entry));
    }

    /// Submits the commands that were added.
    pub fn flush(&mut self) {
        while !self.waiting.is_empty() {
            while let Some((_, entry)) = self.waiting.front() {
                // SAFETY: the entry points to the data and metadata in `lent`, which stay there, and at their place on
                // the heap, until the completion is reaped; the kernel writes one only if it is a buffer
                // that is lent exclusively (`length_of`). The file lives as long as the queue.
                if unsafe { self.ring.submission().push(entry) }.is_err() {
                    break;
                }
                self.waiting.pop_front();
            }
            if let Err(error) = self.ring.submit() {
                // Completions that were not reaped, or a lack of memory: try again with the next
                // iteration of the loop.
                if error.raw_os_error() != Some(Errno::INTR.raw_os_error()) {
                    self.waker.wake();
                    return;
                }
            }
        }
        if !self.ring.submission().is_empty() && self.ring.submit().is_err() {
            self.waker.wake();
        }
    }

    /// The next command that has ended.
    pub fn poll_done(&mut self) -> Option<PassthroughDone> {
        if let Some(refused) = self.refused.pop_front() {
            return Some(refused);
        }
        let mut next = self.ring.completion().next();
        if next.is_none() && self.ring.submission().cq_overflow() {
            // The kernel keeps completions for which the queue had no space, until it is entered.
            let _ = self.ring.submit();
            next = self.ring.completion().next();
        }
        let entry = next?;
        let token = entry.user_data();
        let [data, metadata] = self.lent.remove(&token).expect("a command that ends is in flight");
        let result = match u16::try_from(entry.result()) {
            Ok(status) => Ok(NvmeAnswer { status, result: entry.big_cqe()[0] }),
            Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
        };
        Some(PassthroughDone { token, result, data, metadata })
    }
}

impl Drop for PassthroughQueue {
    /// Waits for the commands in flight. What the kernel does not return in time is leaked.
    fn drop(&mut self) {
        self.waiting.drain(..).for_each(|(token, _)| {
            self.lent.remove(&token);
        });
        let until = Instant::now() + Duration::from_nanos(limits::CLOSE_TIMEOUT.0);
        while !self.lent.is_empty() && Instant::now() < until {
            let time = Timespec::new().sec(1);
            // An error is a timeout or a signal.
            let _ = self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&time));
            while self.poll_done().is_some() {}
        }
        if !self.lent.is_empty() {
            std::mem::forget(std::mem::take(&mut self.lent));
        }
    }
}

impl std::fmt::Debug for PassthroughQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PassthroughQueue").field("in_flight", &self.lent.len()).finish_non_exhaustive()
    }
}

/// The length of the data, in bytes; `None` if its direction is not that of the opcode.
fn length_of(command: &NvmeCommand, data: &CommandData) -> Option<u32> {
    let (length, suits) = match data {
        CommandData::None => (0, true),
        CommandData::ToDevice(bytes) => (bytes.len(), command[0] & 1 == 1),
        CommandData::FromDevice(buffer) => (buffer.len(), command[0] & 1 == 0),
    };
    u32::try_from(length).ok().filter(|_| suits && command[0] != FABRICS)
}

/// `struct nvme_uring_cmd`.
fn uring_command(command: &NvmeCommand, data: (u64, u32), metadata: (u64, u32)) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[..64].copy_from_slice(command);
    bytes[2..4].fill(0);
    bytes[16..24].copy_from_slice(&metadata.0.to_ne_bytes());
    bytes[24..32].copy_from_slice(&data.0.to_ne_bytes());
    bytes[32..36].copy_from_slice(&metadata.1.to_ne_bytes());
    bytes[36..40].copy_from_slice(&data.1.to_ne_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileOptions, Ring, RingOptions};

    #[test]
    fn a_command_has_the_layout_of_the_kernel() {
        let mut command: NvmeCommand = [0xaa; 64];
        command[0] = 0x02;
        let bytes = uring_command(&command, (0x1122_3344_5566_7788, 4096), (0x99aa_bbcc_ddee_ff00, 64));
        assert_eq!((bytes[0], &bytes[2..4], &bytes[4..16]), (0x02, &[0, 0][..], &[0xaa; 12][..]));
        assert_eq!(bytes[16..24], 0x99aa_bbcc_ddee_ff00_u64.to_ne_bytes(), "metadata");
        assert_eq!(bytes[24..32], 0x1122_3344_5566_7788_u64.to_ne_bytes());
        assert_eq!(bytes[32..40], [64_u32.to_ne_bytes(), 4096_u32.to_ne_bytes()].concat());
        assert_eq!((&bytes[40..64], &bytes[64..]), (&[0xaa; 24][..], &[0; 16][..]));
    }

    #[test]
    fn data_whose_direction_is_not_that_of_the_opcode_never_reaches_the_kernel() {
        let (ring, mut queue) = match queue() {
            Some(found) => found,
            None => return,
        };
        let cases = [
            (0x02, CommandData::ToDevice(Bytes::from_static(&[0; 8])), CommandData::None),
            (0x01, CommandData::FromDevice(BytesMut::zeroed(8)), CommandData::None),
            (0x01, CommandData::None, CommandData::FromDevice(BytesMut::zeroed(8))),
            (FABRICS, CommandData::None, CommandData::None),
        ];
        for (opcode, data, metadata) in cases {
            let mut command = [0; 64];
            command[0] = opcode;
            queue.submit(1, &command, data, metadata);
            queue.flush();
            ring.run_once(Some(ring.now() + zonda_zoned::Duration(1_000_000_000))).unwrap();
            let done = queue.poll_done().expect("it has ended");
            assert_eq!(done.result.unwrap_err().kind(), io::ErrorKind::InvalidInput, "opcode {opcode:#x}");
        }
    }

    #[test]
    fn a_file_that_is_no_namespace_refuses_every_command_and_returns_its_data() {
        let Some((ring, mut queue)) = queue() else { return };
        let mut command = [0; 64];
        command[0] = 0x02;
        for token in 0..40 {
            queue.submit(token, &command, CommandData::FromDevice(BytesMut::zeroed(512)), CommandData::None);
        }
        queue.flush();
        let mut ended = Vec::new();
        while ended.len() < 40 {
            assert!(ring.now() < zonda_zoned::Instant(20_000_000_000), "{} have ended", ended.len());
            ring.run_once(Some(ring.now() + zonda_zoned::Duration(1_000_000_000))).unwrap();
            ended.extend(std::iter::from_fn(|| queue.poll_done()));
            queue.flush();
        }
        for done in ended {
            assert!(
                done.result.is_err() && matches!(done.data, CommandData::FromDevice(buffer) if buffer.len() == 512)
            );
        }
    }

    /// A queue to a file without passthrough; `None` where io_uring is refused.
    fn queue() -> Option<(Ring, PassthroughQueue)> {
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = Rc::new(File::open(path.path(), FileOptions::read_write()).unwrap());
        let ring = Ring::new(RingOptions::default()).unwrap();
        let queue = PassthroughQueue::new(file, ring.waker(), 16).ok()?;
        Some((ring, queue))
    }
}
