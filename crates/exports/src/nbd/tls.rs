//! TLS of NBD connections: a room of its own, so that no other has a key.
//!
//! rustls is a machine as ours are: bytes in, bytes out. Certificates are read when the configuration is, so that a mistake in
//! them is told at its place.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use zonda_nbd::TlsPolicy;

/// Room made at once for what was decrypted: a record of TLS (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 16 << 10;

/// Bytes that are encrypted at once: what was encrypted replaces them before the next are.
const ENCRYPTED_BYTES: usize = 256 << 10;

/// A server's certificate, its key, and whom it believes.
#[derive(Clone)]
pub struct NbdTls {
    config: Arc<ServerConfig>,
    required: bool,
}

/// What of it is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdTlsPart {
    /// The server's certificate.
    Certificate,
    /// Its key.
    Key,
    /// The certificate of the authority that signs clients' certificates.
    ClientAuthority,
}

/// TLS that cannot be offered, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdTlsError {
    /// Which file is at fault.
    pub part: NbdTlsPart,
    /// In a sentence.
    pub reason: String,
}

impl NbdTls {
    /// TLS with a certificate (the server's first, then those that vouch for it), its key, and the authority that clients'
    /// certificates are from, if they must have one; all in PEM (RFC 7468). Where it is not `required`, clients may.
    ///
    /// # Errors
    /// What is wrong with which of the three.
    pub fn new(
        certificate: &str,
        key: &str,
        client_authority: Option<&str>,
        required: bool,
    ) -> Result<NbdTls, NbdTlsError> {
        let fault = |part| move |reason: String| NbdTlsError { part, reason };
        let chain = certificates(certificate).map_err(fault(NbdTlsPart::Certificate))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| fault(NbdTlsPart::Key)(format!("there is no private key in PEM in it ({error})")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider speaks the versions that it comes with");
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let fault = fault(NbdTlsPart::ClientAuthority);
                let mut roots = RootCertStore::empty();
                for certificate in certificates(authority).map_err(fault)? {
                    roots.add(certificate).map_err(|error| fault(format!("it cannot be used: {error}")))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder
                    .with_client_cert_verifier(verifier.map_err(|error| fault(format!("it cannot be used: {error}")))?)
            }
        };
        let config = builder.with_single_cert(chain, key);
        let config =
            config.map_err(|error| fault(NbdTlsPart::Key)(format!("it does not go with the certificate: {error}")))?;
        Ok(NbdTls { config: Arc::new(config), required })
    }

    /// Whether clients must.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.required
    }

    pub(super) fn policy(&self) -> TlsPolicy {
        if self.required { TlsPolicy::Required } else { TlsPolicy::Allowed }
    }
}

/// Nothing of a key may end up in a log.
impl fmt::Debug for NbdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NbdTls").field("required", &self.required).finish_non_exhaustive()
    }
}

/// One connection's side of TLS.
pub(super) struct Channel {
    session: ServerConnection,
}

impl Channel {
    pub(super) fn new(tls: &NbdTls) -> Channel {
        let mut session =
            ServerConnection::new(Arc::clone(&tls.config)).expect("a configuration that was checked begins a session");
        // What is given to it leaves for the socket at once; the machine above bounds it.
        session.set_buffer_limit(None);
        Channel { session }
    }

    /// Bytes from the socket; what the client has said in them.
    pub(super) fn received(&mut self, chunk: &[u8]) -> Result<Bytes, String> {
        let mut rest = chunk;
        let mut plain = BytesMut::new();
        while !rest.is_empty() {
            // Nothing is taken behind the client's last word.
            if self.session.read_tls(&mut rest).map_err(|error| error.to_string())? == 0 {
                break;
            }
            let state = self.session.process_new_packets().map_err(|error| error.to_string())?;
            let mut left = state.plaintext_bytes_to_read();
            plain.reserve(left.max(RECORD_BYTES));
            while left > 0 {
                let start = plain.len();
                plain.resize(start + left, 0);
                let taken = self.session.reader().read(&mut plain[start..]);
                let taken = taken.map_err(|error| error.to_string())?;
                plain.truncate(start + taken);
                left -= taken;
            }
        }
        Ok(plain.freeze())
    }

    /// Bytes for the client, to be sent encrypted.
    pub(super) fn send(&mut self, pieces: Vec<Bytes>) -> Vec<Bytes> {
        let mut records = Vec::new();
        let mut taken = 0;
        for mut piece in pieces {
            while !piece.is_empty() {
                let part = piece.split_to(piece.len().min(ENCRYPTED_BYTES - taken));
                self.session.writer().write_all(&part).expect("its buffer has no bound");
                taken += part.len();
                if taken == ENCRYPTED_BYTES {
                    records.append(&mut self.outgoing());
                    taken = 0;
                }
            }
        }
        records.append(&mut self.outgoing());
        records
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self) -> Vec<Bytes> {
        self.session.send_close_notify();
        self.outgoing()
    }

    /// What is to be sent by itself: its handshake, its alerts.
    pub(super) fn outgoing(&mut self) -> Vec<Bytes> {
        let mut records = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut records).expect("memory takes everything");
        }
        // Without the room into which it has grown.
        if records.is_empty() { Vec::new() } else { vec![Bytes::from(records.into_boxed_slice())] }
    }
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if found.is_empty() => Err("there is no certificate in PEM in it".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("it is no certificate in PEM ({error})")),
    }
}
