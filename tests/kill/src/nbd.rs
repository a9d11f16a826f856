//! A host over NBD: the test client of `zonda-nbd`, on a socket, with commands and completions as
//! over NVMe/TCP.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::{thread, time};

use zonda_nbd::NbdError;
use zonda_nbd::testing::{Answer, Ask, Client};
use zonda_nbd::wire::transmission::command;
use zonda_zoned::{
    BlockBuffer, Command, CommandId, Completion, CompletionQueue, Instant, Operation, Outcome, Payload, Status,
};

use crate::loss::RunError;
use crate::stamp::BLOCK_BYTES;

/// How long to wait for the greeting of a server.
const TIMEOUT: time::Duration = time::Duration::from_secs(30);
/// `nbd://HOST:PORT/EXPORT`.
pub(crate) const SCHEME: &str = "nbd://";

/// A connection to an export.
#[derive(Debug)]
pub(crate) struct NbdHost {
    stream: TcpStream,
    /// Bytes read by a thread, so that replies are received while requests are sent; it ends with
    /// the connection.
    received: Receiver<Vec<u8>>,
    client: Client,
    /// By their cookies, which are the ids of the commands.
    in_flight: BTreeMap<u64, Operation>,
    /// Commands submitted after the connection was lost.
    refused: Vec<CommandId>,
    is_lost: bool,
    /// The origin of `now`.
    since: time::Instant,
}

impl NbdHost {
    /// Connects to an export.
    ///
    /// # Errors
    /// When the server refuses the connection, or has no such export.
    pub(crate) fn open(url: &str) -> Result<NbdHost, RunError> {
        let failed = |what: &dyn std::fmt::Display| RunError::Failed(format!("{url}: {what}"));
        let (address, export) =
            url.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')).ok_or_else(|| failed(&"not a URL"))?;
        let stream = TcpStream::connect(address).map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        let mut incoming = stream.try_clone().map_err(|error| failed(&error))?;
        let (sender, received) = channel();
        thread::spawn(move || {
            let mut bytes = vec![0; 1 << 20];
            loop {
                match incoming.read(&mut bytes) {
                    // The receiver was dropped.
                    Ok(count) if count > 0 && sender.send(bytes[..count].to_vec()).is_ok() => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    _ => return,
                }
            }
        });
        let mut host = NbdHost {
            stream,
            received,
            client: Client::new(),
            in_flight: BTreeMap::new(),
            refused: Vec::new(),
            is_lost: false,
            since: time::Instant::now(),
        };
        let hello = host.client.hello(export);
        host.send(&hello);
        while !host.client.is_in_transmission() && !host.is_lost {
            host.receive(TIMEOUT);
        }
        if host.is_lost { Err(failed(&"the server disconnected during the handshake")) } else { Ok(host) }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant(u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Sends a command.
    pub(crate) fn submit(&mut self, command: Command) {
        if self.is_lost {
            self.refused.push(command.id);
            return;
        }
        let bytes_of = |blocks: u64| blocks * BLOCK_BYTES as u64;
        let (kind, start, blocks) = match &command.operation {
            Operation::Read { start, blocks } => (command::READ, start.0, blocks.0),
            Operation::Write { start, blocks, .. } => (command::WRITE, start.0, blocks.0),
            Operation::WriteZeroes { start, blocks } => (command::WRITE_ZEROES, start.0, blocks.0),
            Operation::Flush => (command::FLUSH, 0, 0),
            other => unreachable!("a load of a conventional namespace has no {}", other.name()),
        };
        let data = match &command.operation {
            Operation::Write { payload: Payload::Bytes(buffer), .. } => buffer.data.clone(),
            _ => Default::default(),
        };
        let length = u32::try_from(bytes_of(blocks)).expect("requests have a length of 32 bits");
        let ask = Ask { command: kind, flags: 0, cookie: command.id.0, offset: bytes_of(start), length };
        let bytes = self.client.ask(ask, &data);
        self.in_flight.insert(command.id.0, command.operation);
        self.send(&bytes);
    }

    /// Waits until bytes arrive, or until the deadline.
    pub(crate) fn run_once(&mut self, until: Option<Instant>) {
        let wait = until.map_or(TIMEOUT, |until| time::Duration::from_nanos(until.0.saturating_sub(self.now().0)));
        self.receive(wait);
    }

    /// Appends completions.
    pub(crate) fn poll(&mut self, completions: &mut CompletionQueue) {
        while let Some((cookie, answer)) = self.client.finished() {
            self.in_flight.remove(&cookie);
            let (status, outcome) = match answer {
                Ok(Answer::Data(data)) => {
                    let buffer = BlockBuffer { data: data.into(), ..BlockBuffer::default() };
                    (Status::Success, Outcome::Data(Payload::Bytes(Box::new(buffer))))
                }
                Ok(_) => (Status::Success, Outcome::None),
                Err(failure) if failure.error == NbdError::NoSpace => (Status::CapacityExceeded, Outcome::None),
                Err(failure) if failure.error == NbdError::Shutdown => (Status::NamespaceNotReady, Outcome::None),
                Err(_) => (Status::InternalError, Outcome::None),
            };
            completions.push(Completion { id: CommandId(cookie), status, outcome });
        }
        if self.is_lost {
            // Like the initiator of NVMe/TCP: ends commands in flight, and later ones.
            let aborted = std::mem::take(&mut self.in_flight).into_keys().map(|id| (id, Status::AbortedPowerLoss));
            let refused = self.refused.drain(..).map(|id| (id.0, Status::NamespaceNotReady));
            for (id, status) in aborted.chain(refused).collect::<Vec<_>>() {
                completions.push(Completion { id: CommandId(id), status, outcome: Outcome::None });
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.is_lost |= self.stream.write_all(bytes).is_err();
    }

    fn receive(&mut self, wait: time::Duration) {
        if self.is_lost {
            return;
        }
        match self.received.recv_timeout(wait) {
            Ok(bytes) => self.client.on_bytes(&bytes),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.is_lost = true,
        }
        while let Ok(bytes) = self.received.try_recv() {
            self.client.on_bytes(&bytes);
        }
    }
}

impl Drop for NbdHost {
    fn drop(&mut self) {
        // Ends the thread, too; the server may have closed the connection before.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
