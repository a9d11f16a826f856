//! TLS of NBD connections. No other module has access to keys.
//!
//! rustls is a state machine without I/O, like the other protocols here. Certificates are read with
//! the configuration, so that an error in them is reported with its position.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use zonda_nbd::TlsPolicy;

/// Initial size of the buffer for decrypted bytes: a TLS record (RFC 8446, section 5.1).
const RECORD_BYTES: usize = 16 << 10;

/// Bytes that are encrypted at once: the ciphertext replaces them before the next are encrypted.
const ENCRYPTED_BYTES: usize = 256 << 10;

/// A server's certificate and key, and the authority it trusts.
#[derive(Clone)]
pub struct NbdTls {
    config: Arc<ServerConfig>,
    required: bool,
}

/// The part with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NbdTlsPart {
    /// The server's certificate.
    Certificate,
    /// Its key.
    Key,
    /// The certificate of the authority that signs clients' certificates.
    ClientAuthority,
}

/// An invalid TLS configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdTlsError {
    /// The file with the error.
    pub part: NbdTlsPart,
    /// The reason.
    pub reason: String,
}

impl NbdTls {
    /// TLS with a certificate chain (the server's first), its key, and the authority of clients'
    /// certificates, if they must have one; all in PEM (RFC 7468). If it is not `required`, it is
    /// optional for clients.
    ///
    /// # Errors
    /// The error, and which of the three it concerns.
    pub fn new(
        certificate: &str,
        key: &str,
        client_authority: Option<&str>,
        required: bool,
    ) -> Result<NbdTls, NbdTlsError> {
        let fault = |part| move |reason: String| NbdTlsError { part, reason };
        let chain = certificates(certificate).map_err(fault(NbdTlsPart::Certificate))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| fault(NbdTlsPart::Key)(format!("no private key in PEM format found ({error})")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("the provider supports its default versions");
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let fault = fault(NbdTlsPart::ClientAuthority);
                let mut roots = RootCertStore::empty();
                for certificate in certificates(authority).map_err(fault)? {
                    roots.add(certificate).map_err(|error| fault(format!("unusable certificate: {error}")))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(
                    verifier.map_err(|error| fault(format!("unusable certificate: {error}")))?,
                )
            }
        };
        let config = builder.with_single_cert(chain, key);
        let config = config
            .map_err(|error| fault(NbdTlsPart::Key)(format!("the key does not match the certificate: {error}")))?;
        Ok(NbdTls { config: Arc::new(config), required })
    }

    /// Whether TLS is required.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.required
    }

    pub(super) fn policy(&self) -> TlsPolicy {
        if self.required { TlsPolicy::Required } else { TlsPolicy::Allowed }
    }
}

/// Keys must never be logged.
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
            ServerConnection::new(Arc::clone(&tls.config)).expect("a checked configuration starts a session");
        // Its output is sent at once; the connection above bounds it.
        session.set_buffer_limit(None);
        Channel { session }
    }

    /// Decrypts bytes from the socket.
    pub(super) fn on_bytes(&mut self, chunk: &[u8]) -> Result<Bytes, String> {
        let mut rest = chunk;
        let mut plain = BytesMut::new();
        while !rest.is_empty() {
            // Bytes after close_notify are ignored.
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

    /// Encrypts bytes for the client.
    pub(super) fn send(&mut self, pieces: Vec<Bytes>) -> Vec<Bytes> {
        let mut records = Vec::new();
        let mut taken = 0;
        for mut piece in pieces {
            while !piece.is_empty() {
                let part = piece.split_to(piece.len().min(ENCRYPTED_BYTES - taken));
                self.session.writer().write_all(&part).expect("its buffer is unbounded");
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

    /// Sends close_notify.
    pub(super) fn finish(&mut self) -> Vec<Bytes> {
        self.session.send_close_notify();
        self.outgoing()
    }

    /// Output of TLS itself: handshake messages and alerts.
    pub(super) fn outgoing(&mut self) -> Vec<Bytes> {
        let mut records = Vec::new();
        while self.session.wants_write() {
            self.session.write_tls(&mut records).expect("writing to memory succeeds");
        }
        // Without its excess capacity.
        if records.is_empty() { Vec::new() } else { vec![Bytes::from(records.into_boxed_slice())] }
    }
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match found {
        Ok(found) if found.is_empty() => Err("no certificate in PEM format found".to_owned()),
        Ok(found) => Ok(found),
        Err(error) => Err(format!("not a certificate in PEM format ({error})")),
    }
}
