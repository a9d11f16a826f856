//! An NBD client that waits for each reply, or violates the protocol on request.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use zonda_nbd::testing::{Ask, Client};
use zonda_nbd::wire::transmission::command;

use crate::nvme::dial;
use crate::{BLOCK_BYTES, EXPORT};

/// One connection that has chosen the export.
pub(crate) struct Disk {
    pub(crate) stream: TcpStream,
    pub(crate) client: Client,
    cookies: u64,
    buffer: Vec<u8>,
}

impl Disk {
    pub(crate) fn open(from: Ipv4Addr, to: SocketAddr) -> io::Result<Disk> {
        let stream = dial(from, to)?;
        let mut disk = Disk { stream, client: Client::new(), cookies: 0, buffer: vec![0; 256 << 10] };
        let hello = disk.client.hello(EXPORT);
        disk.stream.write_all(&hello)?;
        while !disk.client.is_in_transmission() {
            disk.receive()?;
        }
        Ok(disk)
    }

    /// Sends a request without waiting.
    pub(crate) fn begin(&mut self, command: u16, offset: u64, length: usize, data: &[u8]) -> io::Result<()> {
        self.cookies += 1;
        let ask = Ask { command, flags: 0, cookie: self.cookies, offset, length: length as u32 };
        let bytes = self.client.ask(ask, data);
        self.stream.write_all(&bytes)
    }

    /// Reads or writes a block, and waits.
    pub(crate) fn transfer(&mut self, is_write: bool, block: u64) -> io::Result<()> {
        let offset = block * BLOCK_BYTES as u64;
        if is_write {
            return self.write(offset, &[0; BLOCK_BYTES]);
        }
        self.begin(command::READ, offset, BLOCK_BYTES, &[])?;
        self.finish()
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.begin(command::WRITE, offset, data.len(), data)?;
        self.finish()
    }

    fn finish(&mut self) -> io::Result<()> {
        loop {
            match self.client.finished() {
                Some((_, Ok(_))) => return Ok(()),
                Some((_, Err(failure))) => return Err(io::Error::other(failure.error.to_string())),
                None => self.receive()?,
            }
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        match self.stream.read(&mut self.buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.client.on_bytes(&self.buffer[..count]);
                Ok(())
            }
        }
    }
}
