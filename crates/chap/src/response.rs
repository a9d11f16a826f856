//! The response that proves knowledge of a secret.

use crate::group::SharedSecret;
use crate::hash::{Digest, Hash};

/// Secure channel concatenation (SC_C): none. The other values, which establish a TLS key, are not
/// supported.
pub(crate) const NO_CONCATENATION: u8 = 0;

/// The side that responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prover {
    Host,
    Controller,
}

/// KS, the hash of the shared secret; nothing without a Diffie-Hellman exchange.
pub(crate) struct SessionKey(Option<Digest>);

/// The inputs of a response (NVMe Base Specification 2.0, section 8.13, DH-HMAC-CHAP_Reply for the
/// host's, DH-HMAC-CHAP_Success1 for the controller's).
pub(crate) struct Proof<'a> {
    pub(crate) hash: Hash,
    pub(crate) session_key: &'a SessionKey,
    pub(crate) prover: Prover,
    /// The challenge as it was sent: C1 for the host, C2 for the controller.
    pub(crate) challenge: &'a [u8],
    /// The sequence number of the challenge: S1 or S2.
    pub(crate) sequence: u32,
    pub(crate) transaction: u16,
    pub(crate) host_nqn: &'a str,
    pub(crate) subsystem_nqn: &'a str,
}

impl SessionKey {
    pub(crate) fn none() -> SessionKey {
        SessionKey(None)
    }

    /// KS = H(g^xy mod p), of the number padded to the length of the prime.
    pub(crate) fn new(hash: Hash, shared: &SharedSecret) -> SessionKey {
        SessionKey(Some(hash.digest(shared.bytes())))
    }
}

impl Proof<'_> {
    /// HMAC(K, Ca || S || T_ID || SC_C || label || NQN of the prover || 00h || NQN of the other),
    /// with the numbers little endian, the label "HostHost" or "Controller", and Ca = HMAC(KS, C),
    /// or C itself without an exchange.
    ///
    /// `key` is the secret of the prover, transformed.
    pub(crate) fn response(&self, key: &[u8]) -> Digest {
        let augmented = match &self.session_key.0 {
            Some(session_key) => self.hash.hmac(session_key, &[self.challenge]),
            None => Digest::new(self.challenge),
        };
        let (label, prover, other) = match self.prover {
            Prover::Host => ("HostHost", self.host_nqn, self.subsystem_nqn),
            Prover::Controller => ("Controller", self.subsystem_nqn, self.host_nqn),
        };
        let parts: [&[u8]; 8] = [
            &augmented,
            &self.sequence.to_le_bytes(),
            &self.transaction.to_le_bytes(),
            &[NO_CONCATENATION],
            label.as_bytes(),
            prover.as_bytes(),
            &[0],
            other.as_bytes(),
        ];
        self.hash.hmac(key, &parts)
    }
}
