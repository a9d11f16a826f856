//! Operations of a ring, and their completions.

use std::io;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use crate::{Address, File, RegisteredBuffer, Socket};

/// An operation. The ring owns its buffers, sockets and files until it has ended.
#[derive(Debug)]
pub enum Operation {
    /// Accept the next connection of a listener. One operation, one connection: submit several to
    /// accept several in one iteration.
    Accept(Rc<Socket>),
    /// Open a connection.
    Connect {
        /// The listener's address.
        address: Address,
    },
    /// Append the bytes that have arrived, at least one and at most the spare capacity of `buffer`,
    /// or none at the end of the stream. If several receives are outstanding on one socket, which
    /// gets which bytes is unspecified.
    Receive {
        /// A connected socket.
        socket: Rc<Socket>,
        /// The destination. It must have spare capacity: `submit` panics otherwise, because zero
        /// bytes mean end of stream.
        buffer: BytesMut,
    },
    /// Send all of `pieces`, after everything submitted earlier for this socket. A failed send
    /// breaks the socket: every later one fails too, because the stream has a gap.
    Send {
        /// A connected socket.
        socket: Rc<Socket>,
        /// The bytes, in order. May be empty.
        pieces: Vec<Bytes>,
    },
    /// Fill the spare capacity of `buffer` from the file, up to the end of the file.
    Read {
        /// Opened for reading.
        file: Rc<File>,
        /// Offset in the file, in bytes.
        offset: u64,
        /// The destination; the bytes are appended.
        buffer: BytesMut,
    },
    /// [`Read`](Operation::Read) into a registered buffer.
    ReadRegistered {
        /// Opened for reading.
        file: Rc<File>,
        /// Offset in the file, in bytes.
        offset: u64,
        /// The destination, of this ring; the bytes are appended.
        buffer: RegisteredBuffer,
    },
    /// Write all bytes of a registered buffer. On an error, [`Done::bytes`] is the number of bytes
    /// written before it.
    WriteRegistered {
        /// Opened for writing.
        file: Rc<File>,
        /// Offset in the file, in bytes.
        offset: u64,
        /// The bytes, in a buffer of this ring.
        buffer: RegisteredBuffer,
    },
    /// Write all of `pieces` one after another. On an error, [`Done::bytes`] is the number of bytes
    /// written before it.
    Write {
        /// Opened for writing.
        file: Rc<File>,
        /// Offset in the file, in bytes.
        offset: u64,
        /// The bytes, in order. May be empty.
        pieces: Vec<Bytes>,
    },
    /// Make the data of completed writes durable (`fsync`, or `fdatasync` with `data_only`).
    Sync {
        /// The file.
        file: Rc<File>,
        /// Omit metadata that is not needed to read the data back, such as the modification time.
        data_only: bool,
    },
    /// Make a range read as zeros and free its space where the file system can. The length of the
    /// file stays.
    PunchHole {
        /// Opened for writing.
        file: Rc<File>,
        /// Start of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes. It is clamped to the end of the file.
        length: u64,
    },
    /// Reserve space for later writes of a range, without changing its content or the length of the
    /// file. Where the file system does not support it, this succeeds and does nothing.
    Allocate {
        /// Opened for writing.
        file: Rc<File>,
        /// Start of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        length: u64,
    },
    /// Truncate the file, or extend it with a hole.
    SetLength {
        /// Opened for writing.
        file: Rc<File>,
        /// The length, in bytes.
        length: u64,
    },
}

/// The result of an operation that succeeded.
#[derive(Debug)]
pub enum Outcome {
    /// A connection was accepted. The socket is not tied to this ring: it may move to another
    /// thread.
    Accepted(Socket),
    /// The connection is established.
    Connected(Socket),
    /// The buffer with the received bytes appended; [`Done::bytes`] of them, zero at the end of the
    /// stream.
    Received(BytesMut),
    /// The kernel has accepted all pieces.
    Sent,
    /// The buffer with the bytes read appended; [`Done::bytes`] of them, fewer than requested only
    /// at the end of the file.
    Read(BytesMut),
    /// The same of [`Operation::ReadRegistered`].
    ReadRegistered(RegisteredBuffer),
    /// All bytes are written (to the page cache: [`Operation::Sync`] makes them durable).
    Written,
    /// The data are durable.
    Synced,
    /// The range reads as zeros.
    Punched,
    /// The space of the range is reserved.
    Allocated,
    /// The file has the length.
    LengthSet,
}

/// The completion of an operation.
#[derive(Debug)]
pub struct Done {
    /// The token passed to `submit`.
    pub token: u64,
    /// The result. A full disk is `ErrorKind::StorageFull`; a cancelled operation ends with
    /// `ECANCELED`.
    pub result: io::Result<Outcome>,
    /// Bytes moved, also when the operation failed.
    pub bytes: u64,
}
