//! The NBD crate's client for tests, on a socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use zonda_nbd::NbdError;
use zonda_nbd::testing::{Answer, Ask, Client, Failure, OptionReply};
use zonda_nbd::wire::transmission::{command, command_flags};

/// How long to wait for a reply of the server.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A client and its connection.
pub(crate) struct Host {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) client: Client,
    cookies: u64,
    /// Completed requests that were not collected yet.
    ended: Vec<(u64, Result<Answer, Failure>)>,
}

/// Connected, nothing sent yet.
pub(crate) fn connect(address: &str) -> Host {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
    Host::on(Box::new(stream))
}

pub(crate) fn connect_unix(path: &Path) -> Host {
    let stream = UnixStream::connect(path).expect("the server listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout can be set");
    Host::on(Box::new(stream))
}

/// Connected to an export, with simple replies.
pub(crate) fn open(address: &str, export: &str) -> Host {
    connect(address).enter(export)
}

impl Host {
    pub(crate) fn on(stream: Box<dyn Stream>) -> Host {
        Host { stream, client: Client::new(), cookies: 0, ended: Vec::new() }
    }

    /// Greets, and chooses an export.
    pub(crate) fn enter(mut self, export: &str) -> Host {
        let flags = self.client.flags();
        self.send(&flags);
        self.choose(export)
    }

    /// Chooses an export.
    pub(crate) fn choose(mut self, export: &str) -> Host {
        let go = self.client.go(export);
        self.send(&go);
        while !self.client.is_in_transmission() {
            assert!(self.receive().expect("the server answers") > 0, "the server disconnected");
        }
        while self.client.option_replied().is_some() {}
        self
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Processes received bytes; returns zero at the end of the stream.
    pub(crate) fn receive(&mut self) -> io::Result<usize> {
        let mut bytes = vec![0; 1 << 20];
        let count = loop {
            match self.stream.read(&mut bytes) {
                // Interrupted by a signal: nothing has been read.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.client.on_bytes(&bytes[..count]);
        Ok(count)
    }

    /// An option, and its last reply.
    pub(crate) fn option(&mut self, option: u32, data: &[u8]) -> OptionReply {
        let bytes = self.client.option(option, data);
        self.send(&bytes);
        loop {
            let last = std::iter::from_fn(|| self.client.option_replied()).last();
            if let Some(reply) = last {
                return reply;
            }
            assert!(self.receive().expect("the server answers") > 0, "the server disconnected");
        }
    }

    /// Sends a request without waiting; returns its cookie.
    pub(crate) fn begin(&mut self, command: u16, flags: u16, offset: u64, length: u64, data: &[u8]) -> u64 {
        self.cookies += 1;
        let length = u32::try_from(length).expect("lengths have 32 bits");
        let ask = Ask { command, flags, cookie: self.cookies, offset, length };
        let bytes = self.client.ask(ask, data);
        self.send(&bytes);
        self.cookies
    }

    pub(crate) fn end(&mut self, cookie: u64) -> Result<Answer, NbdError> {
        loop {
            self.ended.extend(std::iter::from_fn(|| self.client.finished()));
            if let Some(place) = self.ended.iter().position(|(ended, _)| *ended == cookie) {
                return self.ended.swap_remove(place).1.map_err(|failure| failure.error);
            }
            assert!(self.receive().expect("the server answers") > 0, "the server disconnected");
        }
    }

    pub(crate) fn ask(&mut self, command: u16, flags: u16, offset: u64, length: u64) -> Result<Answer, NbdError> {
        let cookie = self.begin(command, flags, offset, length, &[]);
        self.end(cookie)
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) -> Result<Answer, NbdError> {
        let cookie = self.begin(command::WRITE, 0, offset, data.len() as u64, data);
        self.end(cookie)
    }

    pub(crate) fn write_durably(&mut self, offset: u64, data: &[u8]) -> Result<Answer, NbdError> {
        let cookie = self.begin(command::WRITE, command_flags::FUA, offset, data.len() as u64, data);
        self.end(cookie)
    }

    pub(crate) fn read(&mut self, offset: u64, length: u64) -> Vec<u8> {
        match self.ask(command::READ, 0, offset, length) {
            Ok(Answer::Data(data)) => data,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn flush(&mut self) -> Result<Answer, NbdError> {
        self.ask(command::FLUSH, 0, 0, 0)
    }

    /// Sends DISC; the server closes the connection.
    pub(crate) fn disconnect(mut self) {
        let bytes = self.client.disconnect();
        self.send(&bytes);
        self.wait_for_end();
    }

    pub(crate) fn wait_for_end(mut self) {
        loop {
            match self.receive() {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return,
                Err(error) => panic!("the connection was not closed: {error}"),
            }
        }
    }
}
