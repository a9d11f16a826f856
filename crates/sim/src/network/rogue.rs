//! Rogue clients: connections that send garbage, nothing, or the recorded bytes of a host with one
//! bit flipped.

use bytes::Bytes;
use zonda_nvme::tcp::{Digests, InitializeRequest};
use zonda_zoned::{Instant, Prng};

use super::link::Owner;
use super::run::NetworkRun;

/// The bytes that a rogue client sends.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    bytes: Bytes,
    /// Number of such clients that connect at once.
    clients: u64,
}

impl Script {
    /// Generates a script. `captured` has the first bytes of an admin queue of a host: its commands
    /// cannot access a drive.
    pub(super) fn generate(prng: &mut Prng, captured: &[u8]) -> Script {
        let garbage =
            |prng: &mut Prng, most: u64| -> Vec<u8> { (0..prng.below(most)).map(|_| prng.next_u64() as u8).collect() };
        let opening = InitializeRequest::new(0, Digests::NONE, 1);
        let mut clients = 1;
        let bytes = match prng.below(5) {
            0 => garbage(prng, 300),
            1 => [opening.bytes(), &garbage(prng, 300)].concat(),
            2 => {
                clients = 1 + prng.below(12);
                Vec::new()
            }
            3 => opening.bytes()[..prng.below(128) as usize].to_vec(),
            _ => {
                let mut bytes = captured.to_vec();
                if !bytes.is_empty() {
                    let place = prng.below(bytes.len() as u64) as usize;
                    bytes[place] ^= 1 << prng.below(8);
                    bytes.truncate((1 + prng.below(bytes.len() as u64 * 2)) as usize);
                }
                bytes
            }
        };
        Script { bytes: bytes.into(), clients }
    }
}

impl NetworkRun<'_> {
    pub(super) fn open_rogue_clients(&mut self, script: &Script, until: Instant) {
        for _ in 0..script.clients {
            let id = self.open_link(Owner::Rogue);
            let link = self.links.get_mut(&id).expect("it was opened just now");
            if !script.bytes.is_empty() {
                link.up.push([script.bytes.clone()]);
            }
            self.rogue_clients.push((until, id));
        }
    }

    /// Closes the connections of rogue clients that are due.
    pub(super) fn close_rogue_clients(&mut self, now: Instant) {
        let links = &mut self.links;
        self.rogue_clients.retain(|(until, id)| {
            if *until > now {
                return true;
            }
            if let Some(link) = links.get_mut(id) {
                link.host_closes();
            }
            false
        });
    }
}
