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

/// An authority, a server that it vouches for, and a client.
struct World {
    authority: String,
    server: Identity,
    client: Identity,
}

impl World {
    fn new() -> World {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are fine");
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
        World { authority, server, client }
    }

    fn serve(&self, client_authority: Option<&str>, required: bool) -> Running {
        let tls = NbdTls::new(&self.server.certificate, &self.server.key, client_authority, required);
        let mut plan = plan();
        plan.nbd[0].tls = Some(tls.expect("they go together"));
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
                builder.with_client_auth_cert(chain, key).expect("they go together")
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
    let mut host = Host::on(Box::new(stream.try_clone().expect("a second name for it")));
    let flags = host.client.flags();
    host.send(&flags);
    assert_eq!(host.option(option::STARTTLS, &[]).kind, reply::ACK);
    (host, stream)
}

fn tls_failures(server: &Running) -> u64 {
    server.handle().snapshot(Duration::from_secs(5)).expect("it tells").nbd.expect("it exports").tls_failures
}

#[test]
fn data_go_there_and_back_encrypted_and_the_end_is_told() {
    let world = World::new();
    let server = world.serve(None, true);
    let (mut one, mut other) =
        (world.connect(&server, None).choose("memory"), world.connect(&server, None).choose("memory"));
    let data: Vec<u8> = (0..5 << 20).map(|at| (at / 257) as u8).collect();
    let asked = one.begin(command::WRITE, 0, 100, data.len() as u64, &data);
    assert_eq!(one.end(asked), Ok(Answer::Done));
    assert!(other.read(100, data.len() as u64) == data);
    assert!(other.read(SIZE - (16 << 20), 16 << 20).iter().all(|&byte| byte == 0));
    one.disconnect();
    server.handle().stop();
    other.wait_for_end();
    server.wait().expect("it stops well");
}

#[test]
fn plain_text_is_refused_where_tls_is_required_and_taken_where_it_is_not() {
    let world = World::new();
    let server = world.serve(None, true);
    let mut plain = connect(&address(&server));
    let flags = plain.client.flags();
    plain.send(&flags);
    assert_eq!(plain.option(option::GO, &info_data(b"memory", &[])).kind, reply::ERR_TLS_REQD);
    assert_eq!(plain.option(option::LIST, &[]).kind, reply::ERR_TLS_REQD);
    stop(server);
    let server = world.serve(None, false);
    assert_eq!(server.info().nbd[0].urls.len(), 2, "encrypted, and not");
    let mut plain = connect(&address(&server)).enter("memory");
    let mut secret = world.connect(&server, None).choose("memory");
    assert_eq!(plain.write(0, b"zone"), Ok(Answer::Done));
    assert_eq!(secret.read(0, 4), b"zone");
    plain.disconnect();
    secret.disconnect();
    stop(server);
}

#[test]
fn a_client_is_believed_by_its_certificate_alone_where_an_authority_is_named() {
    let world = World::new();
    let server = world.serve(Some(&world.authority), true);
    let stranger = World::new().client;
    for identity in [None, Some(&stranger)] {
        let mut host = world.connect(&server, identity);
        let go = host.client.go("memory");
        // In TLS 1.3 the refusal comes behind the client's first words.
        let refused = host.stream.write_all(&go).and_then(|()| host.receive());
        let error = refused.expect_err("it is not believed");
        assert!(matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::ConnectionReset), "{error}");
    }
    let mut host = world.connect(&server, Some(&world.client)).choose("memory");
    assert_eq!(host.write(0, b"zone"), Ok(Answer::Done));
    host.disconnect();
    assert_eq!(tls_failures(&server), 2);
    stop(server);
}

#[test]
fn nonsense_in_place_of_tls_ends_its_own_connection() {
    let world = World::new();
    let server = world.serve(None, true);
    let mut good = world.connect(&server, None).choose("memory");
    for nonsense in [&[0; 100][..], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 0xff, 0xff]] {
        let (_, mut stream) = start_tls(&server);
        io::Write::write_all(&mut stream, &[nonsense, &[0xff; 20_000]].concat()).expect("the server reads");
        let mut last_words = Vec::new();
        // An alert, or a reset, as not all was read.
        let _ = io::Read::read_to_end(&mut stream, &mut last_words);
        assert!(last_words.len() < 100, "{last_words:?}");
        assert_eq!(good.write(0, b"zone"), Ok(Answer::Done));
    }
    good.disconnect();
    assert_eq!(tls_failures(&server), 3);
    stop(server);
}

#[test]
fn what_is_wrong_with_keys_and_certificates_is_said_without_them() {
    let world = World::new();
    let (mine, others) = (&world.server, &world.client);
    let part = |certificate: &str, key: &str, authority: Option<&str>| {
        let error = NbdTls::new(certificate, key, authority, true).expect_err("something is wrong");
        assert!(!error.reason.contains("BEGIN") && !error.reason.contains(&key[..key.len().min(60)]) || key.is_empty());
        error.part
    };
    assert_eq!(part("", &mine.key, None), NbdTlsPart::Certificate);
    assert_eq!(part(&mine.key, &mine.key, None), NbdTlsPart::Certificate);
    assert_eq!(part(&mine.certificate, "", None), NbdTlsPart::Key);
    assert_eq!(part(&mine.certificate, &mine.certificate, None), NbdTlsPart::Key);
    assert_eq!(part(&mine.certificate, &others.key, None), NbdTlsPart::Key, "it is another's");
    assert_eq!(part(&mine.certificate, &mine.key, Some("")), NbdTlsPart::ClientAuthority);
    let tls = NbdTls::new(&mine.certificate, &mine.key, None, true).expect("they go together");
    assert_eq!(format!("{tls:?}"), "NbdTls { required: true, .. }");
}
