//! Clients over TLS.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use zonda_exports::{NbdTls, NbdTlsPart, Running};
use zonda_nbd::testing::{Answer, info_data};
use zonda_nbd::wire::handshake::{option, reply};
use zonda_nbd::wire::transmission::command;

use super::client::{Host, connect};
use super::{SIZE, plan, serve, stop};

/// A certificate and its key, in PEM.
struct Identity {
    certificate: String,
    key: String,
}

/// An authority, and certificates of a server and a client signed by it.
struct Testbed {
    authority: String,
    server: Identity,
    client: Identity,
}

impl Testbed {
    fn new() -> Testbed {
        let mut params = CertificateParams::new(Vec::new()).expect("valid parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("chance");
        let authority = params.self_signed(&key).expect("an authority").pem();
        let issuer = Issuer::new(params, key);
        let sign = |name: &str, usage| {
            let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
            params.extended_key_usages.push(usage);
            let key = KeyPair::generate().expect("chance");
            let certificate = params.signed_by(&key, &issuer).expect("a certificate").pem();
            Identity { certificate, key: key.serialize_pem() }
        };
        let server = sign("localhost", ExtendedKeyUsagePurpose::ServerAuth);
        let client = sign("client", ExtendedKeyUsagePurpose::ClientAuth);
        Testbed { authority, server, client }
    }

    fn serve(&self, client_authority: Option<&str>, required: bool) -> Running {
        let tls = NbdTls::new(&self.server.certificate, &self.server.key, client_authority, required);
        let mut plan = plan();
        plan.nbd[0].tls = Some(tls.expect("matching certificate and key"));
        serve(plan)
    }

    /// A client's side, with a certificate or without.
    fn session(&self, identity: Option<&Identity>) -> ClientConnection {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.authority.as_bytes()).expect("a certificate");
        roots.add(authority).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("versions").with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate")];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(chain, key).expect("matching certificate and key")
            }
        };
        let name = ServerName::try_from("localhost").expect("a name");
        ClientConnection::new(Arc::new(config), name).expect("a session")
    }

    /// Connected, with TLS started.
    fn connect(&self, server: &Running, identity: Option<&Identity>) -> Host {
        let (mut host, stream) = start_tls(server);
        host.stream = Box::new(StreamOwned::new(self.session(identity), stream));
        host
    }
}

fn address(server: &Running) -> String {
    let url = &server.info().nbd[0].urls[0];
    let rest = url.strip_prefix("nbds://").expect("an encrypted export");
    rest.split('/').next().expect("an address").to_owned()
}

/// A client whose server waits for TLS, and the bare connection.
fn start_tls(server: &Running) -> (Host, TcpStream) {
    let stream = TcpStream::connect(address(server)).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time-out can be set");
    let mut host = Host::on(Box::new(stream.try_clone().expect("a clone")));
    let flags = host.client.flags();
    host.send(&flags);
    assert_eq!(host.option(option::STARTTLS, &[]).kind, reply::ACK);
    (host, stream)
}

fn tls_failures(server: &Running) -> u64 {
    server.handle().snapshot(Duration::from_secs(5)).expect("a snapshot").nbd.expect("NBD is configured").tls_failures
}

#[test]
fn data_are_encrypted_both_ways_and_the_session_ends_with_close_notify() {
    let testbed = Testbed::new();
    let server = testbed.serve(None, true);
    let (mut one, mut other) =
        (testbed.connect(&server, None).choose("memory"), testbed.connect(&server, None).choose("memory"));
    let data: Vec<u8> = (0..5 << 20).map(|at| (at / 257) as u8).collect();
    let asked = one.begin(command::WRITE, 0, 100, data.len() as u64, &data);
    assert_eq!(one.end(asked), Ok(Answer::Done));
    assert!(other.read(100, data.len() as u64) == data);
    assert!(other.read(SIZE - (16 << 20), 16 << 20).iter().all(|&byte| byte == 0));
    one.disconnect();
    server.handle().stop();
    other.wait_for_end();
    server.wait().expect("it stops cleanly");
}

#[test]
fn unencrypted_sessions_are_refused_where_tls_is_required_and_accepted_where_it_is_optional() {
    let testbed = Testbed::new();
    let server = testbed.serve(None, true);
    let mut plain = connect(&address(&server));
    let flags = plain.client.flags();
    plain.send(&flags);
    assert_eq!(plain.option(option::GO, &info_data(b"memory", &[])).kind, reply::ERR_TLS_REQD);
    assert_eq!(plain.option(option::LIST, &[]).kind, reply::ERR_TLS_REQD);
    stop(server);
    let server = testbed.serve(None, false);
    assert_eq!(server.info().nbd[0].urls.len(), 2, "encrypted, and not");
    let mut plain = connect(&address(&server)).enter("memory");
    let mut secret = testbed.connect(&server, None).choose("memory");
    assert_eq!(plain.write(0, b"zone"), Ok(Answer::Done));
    assert_eq!(secret.read(0, 4), b"zone");
    plain.disconnect();
    secret.disconnect();
    stop(server);
}

#[test]
fn clients_need_a_certificate_of_the_configured_authority() {
    let testbed = Testbed::new();
    let server = testbed.serve(Some(&testbed.authority), true);
    let untrusted = Testbed::new().client;
    for identity in [None, Some(&untrusted)] {
        let mut host = testbed.connect(&server, identity);
        let go = host.client.go("memory");
        // In TLS 1.3 the refusal arrives after the client's first bytes.
        let refused = host.stream.write_all(&go).and_then(|()| host.receive());
        let error = refused.expect_err("its certificate is rejected");
        assert!(matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::ConnectionReset), "{error}");
    }
    let mut host = testbed.connect(&server, Some(&testbed.client)).choose("memory");
    assert_eq!(host.write(0, b"zone"), Ok(Answer::Done));
    host.disconnect();
    assert_eq!(tls_failures(&server), 2);
    stop(server);
}

#[test]
fn invalid_tls_closes_only_its_own_connection() {
    let testbed = Testbed::new();
    let server = testbed.serve(None, true);
    let mut good = testbed.connect(&server, None).choose("memory");
    for nonsense in [&[0; 100][..], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 0xff, 0xff]] {
        let (_, mut stream) = start_tls(&server);
        io::Write::write_all(&mut stream, &[nonsense, &[0xff; 20_000]].concat()).expect("the server reads");
        let mut last_words = Vec::new();
        // An alert, or a reset because of unread bytes.
        let _ = io::Read::read_to_end(&mut stream, &mut last_words);
        assert!(last_words.len() < 100, "{last_words:?}");
        assert_eq!(good.write(0, b"zone"), Ok(Answer::Done));
    }
    good.disconnect();
    assert_eq!(tls_failures(&server), 3);
    stop(server);
}

#[test]
fn errors_of_keys_and_certificates_do_not_contain_them() {
    let testbed = Testbed::new();
    let (mine, others) = (&testbed.server, &testbed.client);
    let part = |certificate: &str, key: &str, authority: Option<&str>| {
        let error = NbdTls::new(certificate, key, authority, true).expect_err("an invalid configuration");
        assert!(!error.reason.contains("BEGIN") && !error.reason.contains(&key[..key.len().min(60)]) || key.is_empty());
        error.part
    };
    assert_eq!(part("", &mine.key, None), NbdTlsPart::Certificate);
    assert_eq!(part(&mine.key, &mine.key, None), NbdTlsPart::Certificate);
    assert_eq!(part(&mine.certificate, "", None), NbdTlsPart::Key);
    assert_eq!(part(&mine.certificate, &mine.certificate, None), NbdTlsPart::Key);
    assert_eq!(part(&mine.certificate, &others.key, None), NbdTlsPart::Key, "the key of another certificate");
    assert_eq!(part(&mine.certificate, &mine.key, Some("")), NbdTlsPart::ClientAuthority);
    let tls = NbdTls::new(&mine.certificate, &mine.key, None, true).expect("matching certificate and key");
    assert_eq!(format!("{tls:?}"), "NbdTls { required: true, .. }");
}
