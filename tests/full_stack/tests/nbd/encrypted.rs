//! TLS, with libnbd's client, which uses GnuTLS.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use zonda_full_stack::create_drive;

use crate::tools::{have, refused, run};
use crate::{Fixture, SIZE, fill};

/// Creates an authority, a server's certificate for `localhost`, and a client's, with the file
/// names that libnbd expects.
fn certificates(directory: &Path) {
    fs::create_dir_all(directory).expect("a new directory");
    let path = |name: &str| directory.join(name).to_str().expect("UTF-8").to_owned();
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
    let authority =
        ["req", "-x509", "-subj", "/CN=an authority", "-keyout", &path("ca-key.pem"), "-out", &path("ca-cert.pem")];
    run("openssl", &[&authority[..], &key].concat());
    for (name, subject, extension) in [
        ("server", "/CN=localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ("client", "/CN=a client", "extendedKeyUsage=clientAuth"),
    ] {
        let (authority, authority_key) = (path("ca-cert.pem"), path("ca-key.pem"));
        let (own_key, certificate) = (path(&format!("{name}-key.pem")), path(&format!("{name}-cert.pem")));
        let signed =
            ["req", "-x509", "-CA", &authority, "-CAkey", &authority_key, "-subj", subject, "-addext", extension];
        let ours = ["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", &own_key, "-out", &certificate];
        run("openssl", &[&signed[..], &ours, &key].concat());
    }
}

fn encrypted(keys: &str) -> Fixture {
    let directory: TempDir = tempfile::tempdir().expect("a directory");
    create_drive(&directory.path().join("disk"), "conventional", 16, 16);
    certificates(&directory.path().join("pki"));
    let tls = format!("tls = {{ certificate = \"pki/server-cert.pem\", key = \"pki/server-key.pem\"{keys} }}\n");
    Fixture::in_directory(directory, &tls)
}

/// The URL of an encrypted export for a client with certificates in this folder.
fn url(fixture: &Fixture, folder: &str) -> String {
    let folder = fixture.path(folder);
    let url = fixture.url("nbds").replace("127.0.0.1", "localhost");
    format!("{url}?tls-certificates={}", folder.to_str().expect("UTF-8"))
}

#[test]
fn libnbd_copies_over_tls_and_unencrypted_sessions_are_refused() {
    if !have(&["nbdinfo", "nbdcopy", "openssl"]) {
        return;
    }
    let fixture = encrypted("");
    let (there, back) = (fixture.path("there.raw"), fixture.path("back.raw"));
    fill(&there, SIZE);
    let (there, back) = (there.to_str().expect("UTF-8"), back.to_str().expect("UTF-8"));
    // A client with only the authority trusts the server.
    fs::create_dir(fixture.path("guest")).expect("a new directory");
    fs::copy(fixture.path("pki/ca-cert.pem"), fixture.path("guest/ca-cert.pem")).expect("the file is written");
    let url = url(&fixture, "guest");
    let info = run("nbdinfo", &[&url]);
    assert!(info.contains("with TLS"), "{info}");
    run("nbdcopy", &["--flush", there, &url]);
    run("nbdcopy", &[&url, back]);
    assert!(fs::read(there).expect("the file exists") == fs::read(back).expect("the file exists"));
    let plain = fixture.url("nbds").replace("nbds://", "nbd://");
    refused("nbdinfo", &[&plain]);
}

#[test]
fn clients_need_a_certificate_if_an_authority_is_configured() {
    if !have(&["nbdinfo", "openssl"]) {
        return;
    }
    let mut fixture = encrypted(", client_authority = \"pki/ca-cert.pem\"");
    assert!(run("nbdinfo", &[&url(&fixture, "pki")]).contains("with TLS"));
    fs::create_dir(fixture.path("guest")).expect("a new directory");
    fs::copy(fixture.path("pki/ca-cert.pem"), fixture.path("guest/ca-cert.pem")).expect("the file is written");
    refused("nbdinfo", &[&url(&fixture, "guest")]);
    assert!(fixture.server.stop().success());
    fixture.wait_for_output("TLS failed: peer sent no certificates");
}

#[test]
fn if_tls_is_optional_clients_may_choose() {
    if !have(&["nbdinfo", "openssl"]) {
        return;
    }
    let fixture = encrypted(", required = false");
    assert!(run("nbdinfo", &[&url(&fixture, "pki")]).contains("with TLS"));
    assert!(run("nbdinfo", &[&fixture.url("nbd")]).contains("without TLS"));
}
