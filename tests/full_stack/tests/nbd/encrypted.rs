//! TLS, with libnbd's client, which uses GnuTLS.

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use zonda_full_stack::create_drive;

use crate::tools::{have, refused, run};
use crate::{SIZE, Shelf, fill};

/// Makes an authority, a server's certificate for `localhost`, and a client's, as libnbd looks for them.
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

fn encrypted(keys: &str) -> Shelf {
    let directory: TempDir = tempfile::tempdir().expect("a directory");
    create_drive(&directory.path().join("disk"), "conventional", 16, 16);
    certificates(&directory.path().join("pki"));
    let tls = format!("tls = {{ certificate = \"pki/server-cert.pem\", key = \"pki/server-key.pem\"{keys} }}\n");
    Shelf::in_directory(directory, &tls)
}

/// The URL of an encrypted export for a client that looks for its certificates there.
fn url(shelf: &Shelf, folder: &str) -> String {
    let folder = shelf.path(folder);
    let url = shelf.url("nbds").replace("127.0.0.1", "localhost");
    format!("{url}?tls-certificates={}", folder.to_str().expect("UTF-8"))
}

#[test]
fn libnbd_copies_over_tls_and_plain_text_is_refused() {
    if !have(&["nbdinfo", "nbdcopy", "openssl"]) {
        return;
    }
    let shelf = encrypted("");
    let (there, back) = (shelf.path("there.raw"), shelf.path("back.raw"));
    fill(&there, SIZE);
    let (there, back) = (there.to_str().expect("UTF-8"), back.to_str().expect("UTF-8"));
    // Who has only the authority believes the server.
    fs::create_dir(shelf.path("guest")).expect("a new directory");
    fs::copy(shelf.path("pki/ca-cert.pem"), shelf.path("guest/ca-cert.pem")).expect("there is room");
    let url = url(&shelf, "guest");
    let info = run("nbdinfo", &[&url]);
    assert!(info.contains("with TLS"), "{info}");
    run("nbdcopy", &["--flush", there, &url]);
    run("nbdcopy", &[&url, back]);
    assert!(fs::read(there).expect("it is there") == fs::read(back).expect("it is there"));
    let plain = shelf.url("nbds").replace("nbds://", "nbd://");
    refused("nbdinfo", &[&plain]);
}

#[test]
fn clients_need_a_certificate_where_an_authority_is_named() {
    if !have(&["nbdinfo", "openssl"]) {
        return;
    }
    let mut shelf = encrypted(", client_authority = \"pki/ca-cert.pem\"");
    assert!(run("nbdinfo", &[&url(&shelf, "pki")]).contains("with TLS"));
    fs::create_dir(shelf.path("guest")).expect("a new directory");
    fs::copy(shelf.path("pki/ca-cert.pem"), shelf.path("guest/ca-cert.pem")).expect("there is room");
    refused("nbdinfo", &[&url(&shelf, "guest")]);
    assert!(shelf.server.stop().success());
    shelf.wait_for_words("TLS failed: peer sent no certificates");
}

#[test]
fn where_tls_is_not_required_clients_choose() {
    if !have(&["nbdinfo", "openssl"]) {
        return;
    }
    let shelf = encrypted(", required = false");
    assert!(run("nbdinfo", &[&url(&shelf, "pki")]).contains("with TLS"));
    assert!(run("nbdinfo", &[&shelf.url("nbd")]).contains("without TLS"));
}
