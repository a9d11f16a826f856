//! What can be asked of a ring, and what comes back.

use std::io;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use crate::{Address, File, Socket};

/// Something to do. The ring owns what is in it until it has ended.
#[derive(Debug)]
pub enum Operation {
    /// Take the next connection of a listener. One operation, one connection: submit several to take several in one turn.
    Accept(Rc<Socket>),
    /// Open a connection.
    Connect {
        /// The listener's address.
        address: Address,
    },
    /// Append what has arrived, at least one byte and at most the spare capacity of `buffer`, or nothing at the end of the
    /// stream. Of several receives outstanding on one socket, it is not said which gets which bytes.
    Receive {
        /// A connected socket.
        socket: Rc<Socket>,
        /// Where to. It must have spare capacity: `submit` panics otherwise, because nothing received means end of stream.
        buffer: BytesMut,
    },
    /// Send all of `pieces`, after everything submitted earlier for this socket. A failed send breaks the socket: every
    /// later one fails too, because the stream has a gap.
    Send {
        /// A connected socket.
        socket: Rc<Socket>,
        /// What, in order. May be empty.
        pieces: Vec<Bytes>,
    },
    /// Fill the spare capacity of `buffer` from the file; what lies beyond the file's end stays out.
    Read {
        /// Opened for reading.
        file: Rc<File>,
        /// Where in the file, in bytes.
        offset: u64,
        /// Where to; the bytes are appended.
        buffer: BytesMut,
    },
    /// Write all of `pieces` one after another. On an error, [`Done::bytes`] says how many bytes were written before it.
    Write {
        /// Opened for writing.
        file: Rc<File>,
        /// Where in the file, in bytes.
        offset: u64,
        /// What, in order. May be empty.
        pieces: Vec<Bytes>,
    },
    /// Make durable what writes that have ended left in the file (`fsync`, or `fdatasync` with `data_only`).
    Sync {
        /// The file.
        file: Rc<File>,
        /// Leave out what is not needed to read the data back, such as the time of change.
        data_only: bool,
    },
    /// Make a range read as zeros and give its space back where the file system can. The length of the file stays.
    PunchHole {
        /// Opened for writing.
        file: Rc<File>,
        /// Start of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes. What lies beyond the file's end is left out.
        length: u64,
    },
    /// See to it that later writes of a range find space, without changing what it reads as or the length of the file. Where the file
    /// system cannot, nothing is done, successfully.
    Allocate {
        /// Opened for writing.
        file: Rc<File>,
        /// Start of the range, in bytes.
        offset: u64,
        /// Length of the range, in bytes.
        length: u64,
    },
    /// Cut the file, or make it longer with zeros that take no space.
    SetLength {
        /// Opened for writing.
        file: Rc<File>,
        /// The length, in bytes.
        length: u64,
    },
}

/// What an operation that succeeded brings.
#[derive(Debug)]
pub enum Outcome {
    /// A connection was taken. The socket is not tied to this ring: it may go to another thread.
    Accepted(Socket),
    /// The connection stands.
    Connected(Socket),
    /// The buffer with what was received appended; [`Done::bytes`] of it, zero at the end of the stream.
    Received(BytesMut),
    /// All pieces are with the kernel.
    Sent,
    /// The buffer with what was read appended; [`Done::bytes`] of it, less than asked only at the end of the file.
    Read(BytesMut),
    /// All pieces are written (to the page cache: [`Operation::Sync`] makes them durable).
    Written,
    /// What was written is durable.
    Synced,
    /// The range reads as zeros.
    Punched,
    /// The range has its space.
    Allocated,
    /// The file has the length.
    LengthSet,
}

/// The end of an operation.
#[derive(Debug)]
pub struct Done {
    /// What `submit` was given.
    pub token: u64,
    /// How it ended. A full disk is `ErrorKind::StorageFull`; an operation that was cancelled ends with `ECANCELED`.
    pub result: io::Result<Outcome>,
    /// Bytes moved, also when the operation failed.
    pub bytes: u64,
}
