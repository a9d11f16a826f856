//! Connections of nobody's: garbage, silence, and what a host once said with a byte changed.

use bytes::Bytes;
use zonda_nvme::tcp::{Digests, InitializeRequest};
use zonda_zoned::{Instant, Prng};

use super::link::Owner;
use super::run::NetworkRun;

/// What a stranger sends.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    bytes: Bytes,
    /// How many such strangers come at once.
    crowd: u64,
}

impl Script {
    /// Draws one. `captured` is how an admin queue of a host once began: nothing that it can ask for touches a drive.
    pub(super) fn draw(prng: &mut Prng, captured: &[u8]) -> Script {
        let garbage =
            |prng: &mut Prng, most: u64| -> Vec<u8> { (0..prng.below(most)).map(|_| prng.next_u64() as u8).collect() };
        let opening = InitializeRequest::new(0, Digests::NONE, 1);
        let mut crowd = 1;
        let bytes = match prng.below(5) {
            0 => garbage(prng, 300),
            1 => [opening.bytes(), &garbage(prng, 300)].concat(),
            2 => {
                crowd = 1 + prng.below(12);
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
        Script { bytes: bytes.into(), crowd }
    }
}

impl NetworkRun<'_> {
    pub(super) fn open_stranger(&mut self, script: &Script, until: Instant) {
        for _ in 0..script.crowd {
            let id = self.open_link(Owner::Stranger);
            let link = self.links.get_mut(&id).expect("it was opened just now");
            if !script.bytes.is_empty() {
                link.up.push([script.bytes.clone()]);
            }
            self.strangers.push((until, id));
        }
    }

    /// Strangers whose time is over close their connections.
    pub(super) fn close_strangers(&mut self, now: Instant) {
        let links = &mut self.links;
        self.strangers.retain(|(until, id)| {
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
