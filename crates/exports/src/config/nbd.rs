//! `[[nbd]]`: what is exported over NBD, where, and under which names.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use serde::Deserialize;
use zonda_config::{ConfigError, Spanned};
use zonda_nbd::limits::{EXPORTS_MAX, STRING_BYTES_MAX};
use zonda_nvme::Nqn;
use zonda_ring::Address;
use zonda_zoned::NamespaceId;

use super::check::{Surroundings, resolve};
use super::{ListenSpec, SubsystemPlan};
use crate::nbd::{NbdTls, NbdTlsPart};

/// The port of NBD (IANA: `nbd`).
pub const NBD_PORT_DEFAULT: u16 = 10_809;
/// Bytes of the path of a Unix socket (Linux, `sun_path` without its end).
const UNIX_PATH_BYTES_MAX: usize = 107;
const LISTEN_HELP: &str =
    "write HOST:PORT, HOST or unix:PATH, like \"127.0.0.1:10809\" or \"unix:/run/zonda/nbd.sock\"";

/// `[[nbd]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NbdSpec {
    /// `HOST:PORT`, `HOST`, `unix:PATH`, or several; default `127.0.0.1:10809`.
    pub listen: Option<Spanned<ListenSpec>>,
    /// Whether writes are refused, where an export does not say otherwise.
    #[serde(default)]
    pub read_only: bool,
    /// Absent: connections are not encrypted.
    pub tls: Option<Spanned<NbdTlsSpec>>,
    /// `[[nbd.export]]`; absent: every namespace that is conventional.
    pub export: Option<Vec<Spanned<NbdExportSpec>>>,
}

/// `tls = {...}` of `[[nbd]]`: files in PEM.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NbdTlsSpec {
    /// The server's certificate, and those that vouch for it.
    pub certificate: Spanned<String>,
    /// Its private key.
    pub key: Spanned<String>,
    /// Clients must have a certificate that this authority has signed; absent: they need none.
    pub client_authority: Option<Spanned<String>>,
    /// Whether clients must use TLS; if not, they may. Default: they must.
    pub required: Option<bool>,
}

/// `[[nbd.export]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NbdExportSpec {
    /// What clients ask for; default: the name of the namespace's directory.
    pub name: Option<Spanned<String>>,
    /// Words for people.
    pub description: Option<Spanned<String>>,
    /// The subsystem; may be left out where there is one.
    pub nqn: Option<Spanned<String>>,
    /// Namespace id; may be left out where the subsystem has one namespace.
    pub namespace: Option<Spanned<u32>>,
    /// Default: the table's.
    pub read_only: Option<bool>,
}

/// An NBD server.
#[derive(Debug)]
pub struct NbdPlan {
    /// Where clients connect.
    pub listen: Vec<Address>,
    /// Whether writes are refused, of exports that nobody named.
    pub read_only: bool,
    /// Keys and certificates, where connections are encrypted.
    pub tls: Option<NbdTls>,
    /// What is exported; `None`: every namespace that is conventional, named after its directory.
    pub exports: Option<Vec<NbdExportPlan>>,
}

/// An export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdExportPlan {
    /// `None`: the name of the namespace's directory.
    pub name: Option<String>,
    /// Words for people; may be empty.
    pub description: String,
    /// The subsystem.
    pub nqn: Nqn,
    /// The namespace in it.
    pub namespace: NamespaceId,
    /// Whether writes are refused.
    pub read_only: bool,
}

impl NbdPlan {
    /// Every conventional namespace, on these addresses, as the command line has them.
    ///
    /// # Errors
    /// In a sentence, why one is no address.
    pub fn on(listen: &[String]) -> Result<NbdPlan, String> {
        let listen = listen.iter().map(|text| nbd_address(text, Path::new(""))).collect::<Result<_, _>>()?;
        Ok(NbdPlan { listen, read_only: false, tls: None, exports: None })
    }
}

/// An address as people write it: `HOST:PORT`, `HOST` or `unix:PATH`, which begins at `base` if it is relative. A name is
/// looked up.
///
/// # Errors
/// In a sentence, why it is none.
pub fn nbd_address(text: &str, base: &Path) -> Result<Address, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = base.join(path);
        let bytes = path.as_os_str().len();
        if text == "unix:" {
            return Err("\"unix:\" names no file".to_owned());
        }
        if bytes > UNIX_PATH_BYTES_MAX {
            return Err(format!("a Unix socket's path has at most {UNIX_PATH_BYTES_MAX} bytes, this one {bytes}"));
        }
        return Ok(Address::Unix(path));
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(Address::Tcp(SocketAddr::new(ip, NBD_PORT_DEFAULT)));
    }
    let has_port = text.contains(':');
    let address = if has_port { resolve(text) } else { resolve(&format!("{text}:{NBD_PORT_DEFAULT}")) };
    address.map(Address::Tcp)
}

/// Checks a table against the subsystems of the file.
pub(super) fn check(
    spec: &Spanned<NbdSpec>,
    subsystems: &[SubsystemPlan],
    surroundings: &Surroundings<'_>,
) -> Result<NbdPlan, ConfigError> {
    let table = spec.get_ref();
    let listen = match &table.listen {
        None => vec![Address::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), NBD_PORT_DEFAULT))],
        Some(listen) => addresses(listen, surroundings.base)?,
    };
    let exports = match &table.export {
        None => None,
        Some(exports) => {
            if let Some(excess) = exports.get(EXPORTS_MAX) {
                let error = ConfigError::at(excess, format!("there are {} exports", exports.len()));
                return Err(error.help(format!("at most {EXPORTS_MAX} are allowed in one [[nbd]]")));
            }
            let plans = exports.iter().map(|spec| export(spec, table.read_only, subsystems));
            Some(plans.collect::<Result<Vec<_>, _>>()?)
        }
    };
    let tls = table.tls.as_ref().map(|spec| tls(spec.get_ref(), surroundings)).transpose()?;
    Ok(NbdPlan { listen, read_only: table.read_only, tls, exports })
}

/// Reads keys and certificates. What stands in them is in no message.
fn tls(spec: &NbdTlsSpec, surroundings: &Surroundings<'_>) -> Result<NbdTls, ConfigError> {
    let unread = |file: &Spanned<String>, reason: String| {
        ConfigError::at(file, format!("the file is not read: {reason}")).help("write the path of a file in PEM")
    };
    let read = |file: &Spanned<String>| (surroundings.read_file)(file.get_ref()).map_err(|reason| unread(file, reason));
    let key = (surroundings.read_key)(spec.key.get_ref()).map_err(|reason| unread(&spec.key, reason))?;
    let certificate = read(&spec.certificate)?;
    let authority = spec.client_authority.as_ref().map(read).transpose()?;
    let required = spec.required.unwrap_or(true);
    NbdTls::new(&certificate, &key, authority.as_deref(), required).map_err(|error| {
        let place = match error.part {
            NbdTlsPart::Certificate => &spec.certificate,
            NbdTlsPart::Key => &spec.key,
            NbdTlsPart::ClientAuthority => spec.client_authority.as_ref().unwrap_or(&spec.certificate),
        };
        ConfigError::at(place, error.reason).help("docs/guide/nbd.md says how to make certificates and keys")
    })
}

fn addresses(listen: &Spanned<ListenSpec>, base: &Path) -> Result<Vec<Address>, ConfigError> {
    let texts = listen.get_ref().texts();
    if texts.is_empty() {
        return Err(ConfigError::at(listen, "no address to listen on").help(LISTEN_HELP));
    }
    let address =
        |text: &String| nbd_address(text, base).map_err(|reason| ConfigError::at(listen, reason).help(LISTEN_HELP));
    texts.iter().map(address).collect()
}

fn export(
    spec: &Spanned<NbdExportSpec>,
    read_only: bool,
    subsystems: &[SubsystemPlan],
) -> Result<NbdExportPlan, ConfigError> {
    let table = spec.get_ref();
    let subsystem = match &table.nqn {
        Some(nqn) => subsystems.iter().find(|subsystem| subsystem.nqn.as_str() == nqn.get_ref()).ok_or_else(|| {
            ConfigError::at(nqn, "there is no subsystem of this name")
                .help("write the nqn of one of the [[subsystem]]s")
        })?,
        None if subsystems.len() == 1 => &subsystems[0],
        None => {
            let error = ConfigError::at(spec, format!("of which of {} subsystems?", subsystems.len()));
            return Err(error.help("write nqn = \"...\", the name of one of the [[subsystem]]s"));
        }
    };
    let namespaces = &subsystem.namespaces;
    let namespace = match &table.namespace {
        Some(id) => namespaces.iter().find(|namespace| namespace.id.0 == *id.get_ref()).ok_or_else(|| {
            let error = ConfigError::at(id, format!("{} has no namespace {}", subsystem.nqn, id.get_ref()));
            error.help("write the id of one of its [[subsystem.namespace]]s")
        })?,
        None if namespaces.len() == 1 => &namespaces[0],
        None => {
            let error = ConfigError::at(spec, format!("which of the {} namespaces?", namespaces.len()));
            return Err(error.help("write namespace = 1, or another id"));
        }
    };
    let words = |text: &Option<Spanned<String>>| text.as_ref().map(string).transpose();
    Ok(NbdExportPlan {
        name: words(&table.name)?,
        description: words(&table.description)?.unwrap_or_default(),
        nqn: subsystem.nqn.clone(),
        namespace: namespace.id,
        read_only: table.read_only.unwrap_or(read_only),
    })
}

/// A string that clients are sent.
fn string(text: &Spanned<String>) -> Result<String, ConfigError> {
    let value = text.get_ref();
    if (1..=STRING_BYTES_MAX).contains(&value.len()) && !value.contains('\0') {
        return Ok(value.clone());
    }
    let error = ConfigError::at(text, "NBD has no room for this");
    Err(error.help(format!("write 1 to {STRING_BYTES_MAX} bytes of text, without NUL")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerPlan;
    use std::path::PathBuf;

    #[test]
    fn addresses_are_read_as_people_write_them() {
        let tcp = |text: &str| Ok(Address::Tcp(text.parse().expect("an address")));
        let at = |text: &str| nbd_address(text, Path::new("/etc/zonda"));
        assert_eq!(at("127.0.0.1"), tcp("127.0.0.1:10809"));
        assert_eq!(at("127.0.0.1:7"), tcp("127.0.0.1:7"));
        assert_eq!(at("::1"), tcp("[::1]:10809"));
        assert_eq!(at("[::1]"), tcp("[::1]:10809"));
        assert_eq!(at("[::1]:7"), tcp("[::1]:7"));
        assert_eq!(at("unix:/run/a"), Ok(Address::Unix(PathBuf::from("/run/a"))));
        assert_eq!(at("unix:a"), Ok(Address::Unix(PathBuf::from("/etc/zonda/a"))));
        assert!(at("unix:").is_err() && at(&format!("unix:/{}", "a".repeat(107))).is_err());
        assert!(at("127.0.0.1:port").is_err());
    }

    const TWO: &str = "[[subsystem]]\nnqn = \"nqn.a\"\n[[subsystem.namespace]]\nimage = \"a\"\n\
                       [[subsystem.namespace]]\nimage = \"b\"\n[[subsystem]]\nnqn = \"nqn.b\"\n\
                       [[subsystem.namespace]]\nimage = \"c\"\n";

    fn parse(text: &str) -> Result<ServerPlan, ConfigError> {
        let read_file = |path: &str| match path {
            "empty.pem" => Ok(String::new()),
            _ => Err(format!("{path} is not there")),
        };
        let surroundings = Surroundings {
            base: Path::new("/etc/zonda"),
            builtin_profiles: zonda_profiles::BUILTIN,
            read_file: &read_file,
            read_key: &read_file,
        };
        ServerPlan::parse(text, &surroundings).map_err(|error| error.error)
    }

    #[test]
    fn a_table_without_keys_exports_what_can_be_exported_on_loopback() {
        let plan = parse(&format!("{TWO}[[nbd]]\n")).expect("it is right");
        assert_eq!(plan.nbd[0].listen, [Address::Tcp("127.0.0.1:10809".parse().expect("an address"))]);
        assert!(plan.nbd[0].exports.is_none() && plan.nbd[0].tls.is_none() && !plan.nbd[0].read_only);
        assert!(parse(TWO).expect("it is right").nbd.is_empty(), "nothing by default");
    }

    #[test]
    fn exports_name_their_namespace_as_far_as_there_is_a_choice() {
        let text = format!(
            "{TWO}[[nbd]]\nlisten = \"unix:n.sock\"\nread_only = true\n[[nbd.export]]\nnqn = \"nqn.b\"\n\
             [[nbd.export]]\nname = \"x\"\nnqn = \"nqn.a\"\nnamespace = 2\nread_only = false\n"
        );
        let plan = parse(&text).expect("it is right");
        assert_eq!(plan.nbd[0].listen, [Address::Unix(PathBuf::from("/etc/zonda/n.sock"))]);
        let exports = plan.nbd[0].exports.as_ref().expect("two were named");
        let seen = |export: &NbdExportPlan| {
            (export.name.clone(), export.nqn.to_string(), export.namespace.0, export.read_only)
        };
        assert_eq!(seen(&exports[0]), (None, "nqn.b".to_owned(), 1, true));
        assert_eq!(seen(&exports[1]), (Some("x".to_owned()), "nqn.a".to_owned(), 2, false));
    }

    #[test]
    fn each_mistake_is_shown_at_its_place() {
        let export = |keys: &str| format!("[[nbd.export]]\n{keys}\n");
        let tls = "tls = { certificate = \"empty.pem\", key = \"empty.pem\" }\n".to_owned();
        let cases = [
            (export(""), "of which of 2 subsystems?", "[[nbd.export]]"),
            (export("nqn = \"nqn.c\""), "there is no subsystem of this name", "\"nqn.c\""),
            (export("nqn = \"nqn.a\""), "which of the 2 namespaces?", "[[nbd.export]]"),
            (export("nqn = \"nqn.a\"\nnamespace = 3"), "nqn.a has no namespace 3", "3"),
            (export("nqn = \"nqn.b\"\nname = \"\""), "NBD has no room for this", "\"\""),
            ("listen = []\n".to_owned(), "no address to listen on", "[]"),
            ("listen = \"unix:\"\n".to_owned(), "\"unix:\" names no file", "\"unix:\""),
            ("port = 1\n".to_owned(), "unknown key \"port\"", "port"),
            (tls.clone(), "there is no certificate in PEM in it", "\"empty.pem\""),
            (tls.replace("empty", "no"), "the file is not read: no.pem is not there", "\"no.pem\""),
        ];
        for (keys, message, place) in cases {
            let text = format!("{TWO}[[nbd]]\n{keys}");
            let error = parse(&text).expect_err(&text);
            assert!(error.help.is_some() && error.message.contains(message), "{text}\n{}", error.message);
            let at = error.span.clone().map_or("", |span| &text[span]);
            assert!(at.starts_with(place), "{text}\nat {at:?}, not {place:?}");
        }
    }
}
