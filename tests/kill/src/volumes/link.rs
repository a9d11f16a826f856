//! The network between a volume and a remote member: a relay that can be cut, and that can inject
//! command errors.
//!
//! It parses as much of NVMe/TCP as necessary (NVMe TCP Transport Specification 1.1): PDUs start
//! with their type (byte 0) and length (bytes 4 to 8), CapsuleResp (type 5) has the completion at
//! byte 8, C2HData (type 7) the command at byte 8; the first command of a connection identifies its
//! queue.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use zonda_zoned::Prng;

const HEADER_BYTES: usize = 8;
const CAPSULE_RESP: u8 = 0x05;
const CAPSULE_CMD: u8 = 0x04;
const C2H_DATA: u8 = 0x07;
/// C2HData: the last PDU of a command, and no response follows it.
const LAST_AND_SUCCESS: u8 = 0x0c;
const RESPONSE_BYTES: usize = 24;
/// Fields of a CapsuleResp: submission queue head, command identifier, status.
const QUEUE_HEAD: std::ops::Range<usize> = 16..18;
const COMMAND: std::ops::Range<usize> = 20..22;
const STATUS: std::ops::Range<usize> = 22..24;
/// Internal Error (NVMe Base Specification 2.0, figure 95), after the phase bit.
const INTERNAL_ERROR: u16 = 0x06 << 1;
/// The largest PDU that is relayed.
const PDU_BYTES_MAX: usize = 64 << 20;

/// A relay on its own port. Dropped, it is closed.
#[derive(Debug)]
pub(super) struct Link {
    state: Arc<State>,
    port: u16,
}

#[derive(Debug)]
struct State {
    /// The port of the server.
    server: u16,
    is_cut: AtomicBool,
    is_closed: AtomicBool,
    /// Completions of I/O queues that become errors, per 1000.
    errors_per_mille: AtomicU32,
    /// Completions seen since.
    completions: AtomicU64,
    injected: AtomicU32,
    seed: u64,
    streams: Mutex<Vec<TcpStream>>,
}

impl Link {
    /// Relays connections from a new port of the loopback to this one.
    ///
    /// # Errors
    /// When no port is available.
    pub(super) fn to(server: u16, seed: u64) -> io::Result<Link> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(State {
            server,
            is_cut: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            errors_per_mille: AtomicU32::new(0),
            completions: AtomicU64::new(0),
            injected: AtomicU32::new(0),
            seed,
            streams: Mutex::new(Vec::new()),
        });
        let relayed = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if relayed.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                // If the server refuses the connection, so does the relay.
                let _ = relayed.relay(client);
            }
        });
        Ok(Link { state, port })
    }

    /// The port for the volume.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Closes all connections, and refuses new ones until [`restore`](Link::restore).
    pub(super) fn cut(&self) {
        self.state.is_cut.store(true, Ordering::SeqCst);
        self.state.disconnect();
    }

    /// Injects errors from now on: this many of 1000 executed commands are reported as failed;
    /// reads return no data.
    pub(super) fn fail_commands(&self, per_mille: u32) {
        self.state.errors_per_mille.store(per_mille, Ordering::SeqCst);
    }

    /// Ends all faults.
    pub(super) fn restore(&self) {
        self.state.errors_per_mille.store(0, Ordering::SeqCst);
        self.state.is_cut.store(false, Ordering::SeqCst);
    }

    /// Errors injected since the last call.
    pub(super) fn take_injected(&self) -> u32 {
        self.state.injected.swap(0, Ordering::SeqCst)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.is_closed.store(true, Ordering::SeqCst);
        self.state.disconnect();
        // Wakes the accepting thread; if that fails it sleeps until the program exits.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl State {
    fn disconnect(&self) {
        for stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn relay(self: &Arc<State>, client: TcpStream) -> io::Result<()> {
        if self.is_cut.load(Ordering::SeqCst) {
            return Ok(());
        }
        let server = TcpStream::connect(("127.0.0.1", self.server))?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream.try_clone()?);
        }
        if self.is_cut.load(Ordering::SeqCst) {
            self.disconnect();
        }
        let queue = Arc::new(AtomicU16::new(0));
        let (upstream, downstream) = ((client.try_clone()?, server.try_clone()?), (server, client));
        let of_queue = queue.clone();
        thread::spawn(move || {
            let (mut from, mut to) = upstream;
            // Both ends are closed in any case; the reason does not matter.
            let _ = pass_commands(&mut from, &mut to, &of_queue);
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
        let state = self.clone();
        thread::spawn(move || {
            let (mut from, mut to) = downstream;
            let _ = state.pass_completions(&mut from, &mut to, &queue);
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
        Ok(())
    }

    fn pass_completions(&self, from: &mut impl Read, to: &mut impl Write, queue: &AtomicU16) -> io::Result<()> {
        let mut queue_head = [0; 2];
        loop {
            let mut pdu = read_pdu(from)?;
            if pdu[0] == CAPSULE_RESP && pdu.len() >= RESPONSE_BYTES {
                queue_head.copy_from_slice(&pdu[QUEUE_HEAD]);
            }
            if queue.load(Ordering::SeqCst) != 0 && self.is_to_fail() {
                fail(&mut pdu, queue_head);
            }
            to.write_all(&pdu)?;
        }
    }

    fn is_to_fail(&self) -> bool {
        let per_mille = self.errors_per_mille.load(Ordering::SeqCst);
        if per_mille == 0 {
            return false;
        }
        let number = self.completions.fetch_add(1, Ordering::SeqCst);
        let fails = Prng::new(self.seed ^ number).below(1000) < u64::from(per_mille);
        self.injected.fetch_add(u32::from(fails), Ordering::SeqCst);
        fails
    }
}

/// Replaces a success by an error: the response of a write, or the data of a read.
fn fail(pdu: &mut Vec<u8>, queue_head: [u8; 2]) {
    match pdu[0] {
        CAPSULE_RESP if pdu.len() >= RESPONSE_BYTES => pdu[STATUS].copy_from_slice(&INTERNAL_ERROR.to_le_bytes()),
        // Data in several PDUs are not changed.
        C2H_DATA if pdu[1] & LAST_AND_SUCCESS == LAST_AND_SUCCESS && pdu[12..16] == [0; 4] => {
            let command = [pdu[8], pdu[9]];
            let mut response = vec![0; RESPONSE_BYTES];
            (response[0], response[2], response[4]) = (CAPSULE_RESP, RESPONSE_BYTES as u8, RESPONSE_BYTES as u8);
            response[QUEUE_HEAD].copy_from_slice(&queue_head);
            response[COMMAND].copy_from_slice(&command);
            response[STATUS].copy_from_slice(&INTERNAL_ERROR.to_le_bytes());
            *pdu = response;
        }
        _ => {}
    }
}

/// Forwards bytes of the volume, and records the queue of the connection: the first capsule is
/// Connect (NVMe over Fabrics).
fn pass_commands(from: &mut impl Read, to: &mut impl Write, queue: &AtomicU16) -> io::Result<()> {
    loop {
        let pdu = read_pdu(from)?;
        to.write_all(&pdu)?;
        if pdu[0] == CAPSULE_CMD {
            // QID, bytes 42 and 43 of the command.
            let id = pdu.get(HEADER_BYTES + 42..HEADER_BYTES + 44).map_or(0, |id| u16::from_le_bytes([id[0], id[1]]));
            queue.store(id, Ordering::SeqCst);
            break;
        }
    }
    io::copy(from, to).map(|_| ())
}

fn read_pdu(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut pdu = vec![0; HEADER_BYTES];
    from.read_exact(&mut pdu)?;
    let bytes = u32::from_le_bytes([pdu[4], pdu[5], pdu[6], pdu[7]]) as usize;
    if !(HEADER_BYTES..=PDU_BYTES_MAX).contains(&bytes) {
        return Err(ErrorKind::InvalidData.into());
    }
    pdu.resize(bytes, 0);
    from.read_exact(&mut pdu[HEADER_BYTES..])?;
    Ok(pdu)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(command: u8) -> Vec<u8> {
        let mut pdu = vec![0; RESPONSE_BYTES];
        (pdu[0], pdu[2], pdu[4], pdu[16], pdu[20]) = (CAPSULE_RESP, 24, 24, 9, command);
        pdu
    }

    #[test]
    fn a_response_becomes_an_error_with_its_command() {
        let mut pdu = response(5);
        fail(&mut pdu, [0; 2]);
        assert_eq!((pdu[20], pdu[22], pdu[23]), (5, 0x0c, 0));
    }

    #[test]
    fn the_data_of_a_read_become_a_response_with_an_error() {
        let mut pdu = vec![0; 24 + 4096];
        (pdu[0], pdu[1], pdu[8]) = (C2H_DATA, LAST_AND_SUCCESS, 7);
        fail(&mut pdu, [9, 0]);
        let mut expected = response(7);
        expected[22] = 0x0c;
        assert_eq!(pdu, expected);
    }

    #[test]
    fn commands_of_the_admin_queue_never_fail() {
        let link = Link::to(1, 1).expect("a port");
        link.fail_commands(1000);
        let (bytes, mut passed) = (response(3), Vec::new());
        // It returns at the end of the input.
        let _ = link.state.pass_completions(&mut &bytes[..], &mut passed, &AtomicU16::new(0));
        assert_eq!((passed, link.take_injected()), (bytes.clone(), 0));
        let mut passed = Vec::new();
        let _ = link.state.pass_completions(&mut &bytes[..], &mut passed, &AtomicU16::new(1));
        assert_eq!((passed[22], link.take_injected()), (0x0c, 1));
    }

    #[test]
    fn a_cut_link_closes_connections_and_accepts_none_until_it_is_restored() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a port");
        let link = Link::to(server.local_addr().expect("it has one").port(), 1).expect("a port");
        let connect = || TcpStream::connect(("127.0.0.1", link.port())).expect("the relay listens");
        let mut byte = [0];
        let mut client = connect();
        let (_kept, _) = server.accept().expect("the relay connects");
        link.cut();
        assert_eq!(client.read(&mut byte).unwrap_or(0), 0);
        assert_eq!(connect().read(&mut byte).unwrap_or(0), 0);
        link.restore();
        let _client = connect();
        server.accept().expect("the relay connects again");
    }
}
