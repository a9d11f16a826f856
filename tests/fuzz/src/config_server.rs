//! `zonda.toml`: any text is parsed or refused with an error whose position lies in the text, and
//! no message contains a secret.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use zonda_chap::Secret;
use zonda_config::{Spanned, parse};
use zonda_exports::{ListenSpec, NAMESPACES_MAX, ParseContext, ServerPlan, ServerSpec};
use zonda_ssd::description::ErrorSource;

use crate::Seed;
use crate::config_job::check_error;

/// A secret that the text may contain.
const SECRET: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";
/// Shorter texts occur in many messages by chance.
const SECRET_BYTES_MIN: usize = 8;
const PROFILE: &str = "./p.toml";

pub(crate) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    // A host name would be resolved, which takes time and depends on the machine.
    if names_a_host(text) {
        return;
    }
    let files = files();
    let read_file = |path: &str| match path.ends_with(".toml") {
        true => Err(format!("there is no {PROFILE}")),
        false => Ok(format!("{}\n", files[path.len() % 2])),
    };
    let context = ParseContext {
        base: Path::new("/etc/zonda"),
        builtin_profiles: zonda_profiles::BUILTIN,
        read_file: &read_file,
        read_key: &read_file,
    };
    match ServerPlan::parse(text, &context) {
        Ok(plan) => check_plan(&plan),
        Err(error) => {
            match &error.source {
                ErrorSource::JobFile => check_error(&error.error, text),
                ErrorSource::Profile { text, .. } => check_error(&error.error, text),
            }
            let message = format!("{} {:?}", error.error.message, error.error.help);
            for secret in secrets(text) {
                assert!(!message.contains(&secret), "a message contains a secret: {message}");
            }
        }
    }
}

/// The contents of the files that the text names: a secret, and one with a character changed.
fn files() -> [String; 2] {
    let good = Secret::new(None, &[9; 32]).expect("a valid length").to_string();
    let bad = good.replacen("CQkJ", "CQkK", 1);
    [good, bad]
}

fn names_a_host(text: &str) -> bool {
    let Ok(spec) = parse::<ServerSpec>(text) else { return false };
    let is_name = |text: &str| text.parse::<SocketAddr>().is_err();
    let texts = |listen: &Option<Spanned<ListenSpec>>| {
        listen.as_ref().map_or_else(Vec::new, |listen| listen.get_ref().texts().to_vec())
    };
    let http = spec.server.http.as_ref().map(|http| http.get_ref().clone());
    let mut with_port = texts(&spec.server.listen).into_iter().chain(http);
    // NBD has its own default port, so that a bare word is a host name, too.
    let mut nbd = spec.nbd.iter().flat_map(|table| texts(&table.get_ref().listen));
    let is_address = |text: &str| text.starts_with("unix:") || text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    with_port.any(|text| text.contains(':') && is_name(&text)) || nbd.any(|text| !is_address(&text) && is_name(&text))
}

/// What no message may contain: the contents of files, and secrets that the text contains only as
/// such.
fn secrets(text: &str) -> Vec<String> {
    let mut secrets: Vec<String> = files().into();
    let Ok(spec) = parse::<ServerSpec>(text) else { return secrets };
    let hosts = spec.subsystem.iter().flat_map(|subsystem| subsystem.get_ref().host.iter().flatten());
    for host in hosts {
        let host = host.get_ref();
        secrets
            .extend([&host.secret, &host.controller_secret].into_iter().flatten().map(|text| text.get_ref().clone()));
    }
    secrets.retain(|secret| secret.len() >= SECRET_BYTES_MIN && text.matches(secret.as_str()).count() <= 1);
    secrets
}

fn check_plan(plan: &ServerPlan) {
    assert!(!plan.listen.is_empty() && !plan.subsystems.is_empty());
    for subsystem in &plan.subsystems {
        assert!(subsystem.serial.len() <= 20 && subsystem.model.len() <= 40, "{subsystem:?}");
        let ids: Vec<u32> = subsystem.namespaces.iter().map(|namespace| namespace.id.0).collect();
        assert!(!ids.is_empty() && ids.is_sorted_by(|one, other| one < other), "{ids:?}");
        assert!(ids.iter().all(|id| (1..=NAMESPACES_MAX as u32).contains(id)), "{ids:?}");
    }
}

pub(crate) fn seeds() -> Vec<Seed> {
    let small = "[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:a\"\n[[subsystem.namespace]]\nimage = \"a\"\n";
    let whole = format!(
        "[server]\nlisten = [\"127.0.0.1:4420\", \"[::1]:4420\"]\nhttp = \"127.0.0.1:9420\"\ntiming = \"profile\"\n\
         digests = \"off\"\n\n[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:fast\"\nserial = \"S1\"\nmodel = \"m\"\n\
         host = [{{ nqn = \"nqn.2014-08.org.nvmexpress:host1\", secret_file = \"db1.key\" }},\n\
         {{ nqn = \"nqn.2014-08.org.nvmexpress:host2\", secret = \"{SECRET}\" }}]\n\n  [[subsystem.namespace]]\n\
         image = \"drives/fast\"\nid = 3\n\n  [[subsystem.namespace]]\n\
         memory = {{ profile = \"zn540\", set = {{ \"geometry.zones\" = 64 }} }}\ntiming = \"none\"\n"
    );
    let memory = small.replace("image = \"a\"", "memory = { profile = \"tiny\" }");
    let nbd = format!(
        "{whole}[[nbd]]\n[[nbd]]\nlisten = [\"unix:a.sock\", \"::1\", \"127.0.0.1:9\"]\nread_only = true\n\
         [[nbd.export]]\nname = \"disk\"\nnamespace = 3\n[[nbd.export]]\nnamespace = 1\nread_only = false\n"
    );
    let tls = "tls = { certificate = \"c.pem\", key = \"k.pem\", client_authority = \"a.pem\", required = false }\n";
    let mistakes = [
        ("twice", format!("{small}{small}")),
        ("bad-nqn", small.replace("nqn.", "iqn.")),
        ("bad-secret", whole.replace("ia6z", "ia6y")),
        ("both", small.replace("image", "memory = { profile = \"tiny\" }\nimage")),
        ("no-namespace", "[[subsystem]]\nnqn = \"nqn.2024-01.a:a\"\n".to_owned()),
        ("bad-listen", format!("[server]\nlisten = \"nowhere\"\n{small}")),
        ("nbd-namespace", nbd.replace("namespace = 3", "namespace = 2")),
        ("nbd-tls", format!("{small}[[nbd]]\n{tls}")),
        ("namespace-0", format!("{small}id = 0\n")),
    ];
    let good = [("small", small.to_owned()), ("whole", whole), ("memory", memory), ("nbd", nbd.clone())];
    good.into_iter().chain(mistakes).map(|(name, text)| (name.to_owned(), text.into_bytes())).collect()
}
