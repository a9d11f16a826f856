//! The remaining work of an operation, and its progress after each system call. Both backends share
//! it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::{Outcome, RegisteredBuffer, Socket, filled, limits};

/// The remaining work of an operation.
pub(crate) enum Work {
    Accept {
        listener: Rc<Socket>,
    },
    Connect {
        socket: Rc<Socket>,
    },
    Receive {
        socket: Rc<Socket>,
        buffer: BytesMut,
    },
    /// In the send queue of its socket.
    Send {
        socket: Rc<Socket>,
        pieces: Pieces,
    },
    File(FileWork),
    /// Taken by a thread of the pool, which returns it.
    Taken,
}

/// Work on a file: it owns its descriptor and buffers, so that a thread can do it.
pub(crate) struct FileWork {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) step: FileStep,
    /// Bytes read or written so far.
    pub(crate) moved: u64,
}

pub(crate) enum FileStep {
    Read {
        offset: u64,
        buffer: BytesMut,
    },
    Write {
        offset: u64,
        pieces: Pieces,
    },
    /// The buffer is absent once the read has ended.
    ReadRegistered {
        offset: u64,
        buffer: Option<RegisteredBuffer>,
    },
    WriteRegistered {
        offset: u64,
        buffer: RegisteredBuffer,
        written: usize,
    },
    Sync {
        data_only: bool,
    },
    Punch {
        offset: u64,
        length: u64,
    },
    Allocate {
        offset: u64,
        length: u64,
    },
    /// Zeros written instead of a hole, for a file system without holes.
    Zero {
        offset: u64,
        length: u64,
    },
    SetLength {
        length: u64,
    },
}

/// Whether the operation has ended after a call.
pub(crate) enum Progress {
    More,
    Ended(io::Result<Outcome>),
}

/// Bytes on their way out, in order.
pub(crate) struct Pieces {
    queue: VecDeque<Bytes>,
    left: u64,
}

/// Why a read into a registered buffer has it.
pub(crate) const HAS_BUFFER: &str = "a read that has not ended has its buffer";

static ZEROS: [u8; limits::ZEROS_BYTES] = [0; limits::ZEROS_BYTES];

/// Punches a hole: its space is freed, the length of the file stays.
pub(crate) const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

impl Pieces {
    pub(crate) fn new(pieces: Vec<Bytes>) -> Pieces {
        let left = pieces.iter().map(|piece| piece.len() as u64).sum();
        Pieces { queue: pieces.into(), left }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Removes up to `count` bytes from the front, and returns how many.
    pub(crate) fn consume(&mut self, count: u64) -> u64 {
        let taken = count.min(self.left);
        self.left -= taken;
        let mut rest = taken;
        while rest > 0 {
            let front = self.queue.front_mut().expect("bytes that are left are in a piece");
            if (front.len() as u64) > rest {
                bytes::Buf::advance(front, rest as usize);
                break;
            }
            rest -= front.len() as u64;
            self.queue.pop_front();
        }
        taken
    }

    /// Adds the pieces to `slices`, up to the number that one call takes.
    pub(crate) fn describe<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        let free = limits::PIECES_PER_CALL - slices.len();
        slices.extend(self.queue.iter().filter(|piece| !piece.is_empty()).take(free).map(|piece| IoSlice::new(piece)));
    }
}

impl FileWork {
    pub(crate) fn new(fd: Arc<OwnedFd>, step: FileStep) -> FileWork {
        FileWork { fd, step, moved: 0 }
    }

    /// The outcome of work that needs no system call, because it is empty.
    pub(crate) fn outcome_if_empty(&mut self) -> Option<Outcome> {
        match &mut self.step {
            FileStep::Read { buffer, .. } if filled::spare(buffer) == 0 => Some(Outcome::Read(std::mem::take(buffer))),
            FileStep::ReadRegistered { buffer, .. } if buffer.as_ref().is_some_and(|buffer| buffer.spare().1 == 0) => {
                buffer.take().map(Outcome::ReadRegistered)
            }
            FileStep::Write { pieces, .. } if pieces.is_empty() => Some(Outcome::Written),
            FileStep::WriteRegistered { buffer, .. } if buffer.as_ref().is_empty() => Some(Outcome::Written),
            FileStep::Punch { length: 0, .. } => Some(Outcome::Punched),
            FileStep::Allocate { length: 0, .. } => Some(Outcome::Allocated),
            _ => None,
        }
    }

    /// The registered buffer of a request that has not ended.
    pub(crate) fn registered_buffer(&self) -> Option<&RegisteredBuffer> {
        match &self.step {
            FileStep::ReadRegistered { buffer, .. } => buffer.as_ref(),
            FileStep::WriteRegistered { buffer, .. } => Some(buffer),
            _ => None,
        }
    }

    /// Continues after a call that moved `result` bytes. The bytes of a read are in its buffer
    /// already.
    pub(crate) fn advance(&mut self, result: io::Result<usize>) -> Progress {
        let count = match result {
            Ok(count) => count as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Progress::More,
            Err(error) => return self.refused(error),
        };
        self.moved += match self.step {
            FileStep::Read { .. }
            | FileStep::Write { .. }
            | FileStep::ReadRegistered { .. }
            | FileStep::WriteRegistered { .. } => count,
            _ => 0,
        };
        Progress::Ended(match &mut self.step {
            FileStep::Read { offset, buffer } => {
                *offset += count;
                if count > 0 && filled::spare(buffer) > 0 {
                    return Progress::More;
                }
                Ok(Outcome::Read(std::mem::take(buffer)))
            }
            FileStep::Write { offset, pieces } => {
                *offset += count;
                pieces.consume(count);
                match (pieces.is_empty(), count) {
                    (true, _) => Ok(Outcome::Written),
                    (false, 0) => Err(ErrorKind::WriteZero.into()),
                    (false, _) => return Progress::More,
                }
            }
            FileStep::ReadRegistered { offset, buffer } => {
                *offset += count;
                let read = buffer.take().expect(HAS_BUFFER);
                if count > 0 && read.spare().1 > 0 {
                    *buffer = Some(read);
                    return Progress::More;
                }
                Ok(Outcome::ReadRegistered(read))
            }
            FileStep::WriteRegistered { offset, buffer, written } => {
                *offset += count;
                *written += count as usize;
                match (buffer.as_ref().len() - *written, count) {
                    (0, _) => Ok(Outcome::Written),
                    (_, 0) => Err(ErrorKind::WriteZero.into()),
                    (..) => return Progress::More,
                }
            }
            FileStep::Zero { offset, length } => {
                *offset += count;
                *length -= count;
                match (*length, count) {
                    (0, _) => Ok(Outcome::Punched),
                    (_, 0) => Err(ErrorKind::WriteZero.into()),
                    (..) => return Progress::More,
                }
            }
            FileStep::Sync { .. } => Ok(Outcome::Synced),
            FileStep::Punch { .. } => Ok(Outcome::Punched),
            FileStep::Allocate { .. } => Ok(Outcome::Allocated),
            FileStep::SetLength { .. } => Ok(Outcome::LengthSet),
        })
    }

    /// Falls back to writing zeros if the file system cannot punch holes, and skips allocation if
    /// it cannot allocate; any other error ends the operation.
    fn refused(&mut self, error: io::Error) -> Progress {
        if error.raw_os_error() != Some(Errno::OPNOTSUPP.raw_os_error()) {
            return Progress::Ended(Err(error));
        }
        let (offset, length) = match self.step {
            FileStep::Punch { offset, length } => (offset, length),
            FileStep::Allocate { .. } => return Progress::Ended(Ok(Outcome::Allocated)),
            _ => return Progress::Ended(Err(error)),
        };
        let end = match rustix::fs::fstat(&self.fd) {
            Ok(status) => offset.saturating_add(length).min(status.st_size as u64),
            Err(error) => return Progress::Ended(Err(error.into())),
        };
        if end <= offset {
            return Progress::Ended(Ok(Outcome::Punched));
        }
        self.step = FileStep::Zero { offset, length: end - offset };
        Progress::More
    }

    /// Does all of it, blocking.
    pub(crate) fn run(&mut self) -> io::Result<Outcome> {
        if let Some(outcome) = self.outcome_if_empty() {
            return Ok(outcome);
        }
        loop {
            let result = self.call();
            if let Progress::Ended(result) = self.advance(result) {
                return result;
            }
        }
    }

    /// The next call to the kernel, blocking.
    fn call(&mut self) -> io::Result<usize> {
        let fd = self.fd.as_fd();
        Ok(match &mut self.step {
            FileStep::Read { offset, buffer } => filled::read_at(fd, buffer, *offset)?,
            FileStep::Write { offset, pieces } => {
                let mut slices = Vec::new();
                pieces.describe(&mut slices);
                rustix::io::pwritev(fd, &slices, *offset)?
            }
            FileStep::ReadRegistered { .. } | FileStep::WriteRegistered { .. } => {
                panic!("registered buffers are of io_uring, which uses no thread pool")
            }
            FileStep::Zero { offset, length } => rustix::io::pwrite(fd, zeros(*length), *offset)?,
            FileStep::Sync { data_only: true } => rustix::fs::fdatasync(fd).map(|()| 0)?,
            FileStep::Sync { data_only: false } => rustix::fs::fsync(fd).map(|()| 0)?,
            FileStep::Punch { offset, length } => rustix::fs::fallocate(fd, HOLE, *offset, *length).map(|()| 0)?,
            FileStep::Allocate { offset, length } => {
                rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, *offset, *length).map(|()| 0)?
            }
            FileStep::SetLength { length } => rustix::fs::ftruncate(fd, *length).map(|()| 0)?,
        })
    }
}

/// Zeros for the next call, when `length` are left to write.
pub(crate) fn zeros(length: u64) -> &'static [u8] {
    &ZEROS[..length.min(ZEROS.len() as u64) as usize]
}

/// The error of a cancelled operation.
pub(crate) fn cancelled() -> io::Error {
    io::Error::from_raw_os_error(Errno::CANCELED.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_consumed_across_their_borders_and_empty_ones_do_not_count() {
        let mut pieces = Pieces::new(["ab", "", "cde", "", "f"].map(Bytes::from).into());
        assert_eq!(pieces.consume(3), 3);
        let mut slices = Vec::new();
        pieces.describe(&mut slices);
        assert_eq!(slices.iter().map(|slice| &slice[..]).collect::<Vec<_>>(), [&b"de"[..], &b"f"[..]]);
        assert_eq!((pieces.consume(9), pieces.is_empty()), (3, true));
    }

    #[test]
    fn a_hole_that_the_file_system_refuses_becomes_zeros_within_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; 200_000]).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let mut work =
            FileWork::new(Arc::new(file.into()), FileStep::Punch { offset: 100_000, length: u64::MAX - 100_000 });
        let refusal = io::Error::from_raw_os_error(Errno::OPNOTSUPP.raw_os_error());
        assert!(matches!(work.advance(Err(refusal)), Progress::More));
        assert!(matches!(work.run(), Ok(Outcome::Punched)));
        let content = std::fs::read(&path).unwrap();
        assert_eq!(content.len(), 200_000);
        assert!(content[..100_000].iter().all(|&byte| byte == 7) && content[100_000..].iter().all(|&byte| byte == 0));
    }
}
