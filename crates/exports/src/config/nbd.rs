//! `[[nbd]]`: exports over NBD, their addresses and names.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use serde::Deserialize;
use zonda_config::{ConfigError, Spanned};
use zonda_nbd::limits::{EXPORTS_MAX, STRING_BYTES_MAX};
use zonda_nvme::Nqn;
use zonda_ring::Address;
use zonda_zoned::NamespaceId;

use super::check::{ParseContext, resolve};
use super::{ListenSpec, SubsystemPlan};
use crate::nbd::{NbdTls, NbdTlsPart};

/// The port of NBD (IANA: `nbd`).
pub const NBD_PORT_DEFAULT: u16 = 10_809;
/// Bytes of the path of a Unix socket (Linux, `sun_path` without the NUL).
const UNIX_PATH_BYTES_MAX: usize = 107;
const LISTEN_HELP: &str =
    "use HOST:PORT, HOST or unix:PATH, such as \"127.0.0.1:10809\" or \"unix:/run/zonda/nbd.sock\"";
/// The forms of an address for TCP.
const LISTEN_FORMS: &str = "use HOST:PORT or HOST, such as 127.0.0.1:10809";

/// `[[nbd]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NbdSpec {
    /// `HOST:PORT`, `HOST`, `unix:PATH`, or several; default `127.0.0.1:10809`.
    pub listen: Option<Spanned<ListenSpec>>,
    /// Whether writes are refused, by default of its exports.
    #[serde(default)]
    pub read_only: bool,
    /// Absent: connections are not encrypted.
    pub tls: Option<Spanned<NbdTlsSpec>>,
    /// `[[nbd.export]]`; absent: every conventional namespace.
    pub export: Option<Vec<Spanned<NbdExportSpec>>>,
}

/// `tls = {...}` of `[[nbd]]`: files in PEM.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NbdTlsSpec {
    /// The server's certificate, and its chain.
    pub certificate: Spanned<String>,
    /// Its private key.
    pub key: Spanned<String>,
    /// Clients must have a certificate signed by this authority; absent: they need none.
    pub client_authority: Option<Spanned<String>>,
    /// Whether TLS is required (the default) or optional.
    pub required: Option<bool>,
}

/// `[[nbd.export]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NbdExportSpec {
    /// The export name; default: the name of the namespace's directory.
    pub name: Option<Spanned<String>>,
    /// A human-readable description.
    pub description: Option<Spanned<String>>,
    /// The subsystem; optional if there is only one.
    pub nqn: Option<Spanned<String>>,
    /// The namespace ID; optional if the subsystem has only one namespace.
    pub namespace: Option<Spanned<u32>>,
    /// Default: the table's.
    pub read_only: Option<bool>,
}

/// An NBD server.
#[derive(Debug)]
pub struct NbdPlan {
    /// The addresses for clients.
    pub listen: Vec<Address>,
    /// Whether writes are refused, for automatic exports.
    pub read_only: bool,
    /// Keys and certificates, if connections are encrypted.
    pub tls: Option<NbdTls>,
    /// The exports; `None`: every conventional namespace, named after its directory.
    pub exports: Option<Vec<NbdExportPlan>>,
}

/// An export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdExportPlan {
    /// `None`: the name of the namespace's directory.
    pub name: Option<String>,
    /// A human-readable description; may be empty.
    pub description: String,
    /// The subsystem.
    pub nqn: Nqn,
    /// The namespace in it.
    pub namespace: NamespaceId,
    /// Whether writes are refused.
    pub read_only: bool,
}

impl NbdPlan {
    /// Exports every conventional namespace on these addresses, given in the syntax of the command
    /// line.
    ///
    /// # Errors
    /// Why one is not a valid address, and the remedy.
    pub fn on(listen: &[String]) -> Result<NbdPlan, (String, String)> {
        let listen = listen.iter().map(|text| nbd_address(text, Path::new(""))).collect::<Result<_, _>>()?;
        Ok(NbdPlan { listen, read_only: false, tls: None, exports: None })
    }
}

/// Parses an address: `HOST:PORT`, `HOST` or `unix:PATH`, which is relative to `base`. A host name
/// is resolved.
///
/// # Errors
/// Why it is not a valid address, and the remedy.
pub fn nbd_address(text: &str, base: &Path) -> Result<Address, (String, String)> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = base.join(path);
        let bytes = path.as_os_str().len();
        if text == "unix:" {
            return Err(("\"unix:\" without a path".to_owned(), "add the path: unix:/run/zonda/nbd.sock".to_owned()));
        }
        if bytes > UNIX_PATH_BYTES_MAX {
            let reason =
                format!("the path of the Unix socket has {bytes} bytes, and the maximum is {UNIX_PATH_BYTES_MAX}");
            return Err((reason, "choose a shorter path".to_owned()));
        }
        return Ok(Address::Unix(path));
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(Address::Tcp(SocketAddr::new(ip, NBD_PORT_DEFAULT)));
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        // A URI of an export: its host and port are the address.
        let address = rest.split(['/', '?']).next().filter(|address| !address.is_empty());
        let help = match address {
            Some(address) => format!("write {address}, without {scheme}://"),
            None => LISTEN_FORMS.to_owned() + "; for a Unix socket, write unix:PATH",
        };
        return Err((format!("\"{text}\" is a URI, and not HOST or HOST:PORT"), help));
    }
    if text.contains('/') {
        let help = format!("for a Unix socket, write unix:{text}; for TCP, {LISTEN_FORMS}");
        return Err((format!("\"{text}\" is a path, and not HOST or HOST:PORT"), help));
    }
    // The resolver accepts a number as an IPv4 address: 10809 is 0.0.42.57.
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let help = format!("add the host, such as 127.0.0.1:{text} for clients on this machine");
        return Err((format!("\"{text}\" is a port without a host"), help));
    }
    if let Some((host, port)) = text.rsplit_once(':')
        && port.parse::<u16>().is_err()
    {
        let what = if port.is_empty() { "the port is missing".to_owned() } else { format!("\"{port}\" is not a port") };
        let help = format!("use a port from 1 to 65535, such as {host}:{NBD_PORT_DEFAULT}, or 0 for a free one");
        return Err((format!("invalid address \"{text}\": {what}"), help));
    }
    let has_port = text.contains(':');
    let address = if has_port { resolve(text) } else { resolve(&format!("{text}:{NBD_PORT_DEFAULT}")) };
    address.map(Address::Tcp).map_err(|reason| {
        let socket = if has_port { "unix:PATH".to_owned() } else { format!("unix:{text}") };
        let help = format!("check the host name, or use an IP address such as 127.0.0.1; for a Unix socket, {socket}");
        (reason, help)
    })
}

/// Checks a table against the subsystems of the file.
pub(super) fn check(
    spec: &Spanned<NbdSpec>,
    subsystems: &[SubsystemPlan],
    context: &ParseContext<'_>,
) -> Result<NbdPlan, ConfigError> {
    let table = spec.get_ref();
    let listen = match &table.listen {
        None => vec![Address::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), NBD_PORT_DEFAULT))],
        Some(listen) => addresses(listen, context.base)?,
    };
    let exports = match &table.export {
        None => None,
        Some(exports) => {
            if let Some(excess) = exports.get(EXPORTS_MAX) {
                let error = ConfigError::at(excess, format!("too many exports: {}", exports.len()));
                return Err(error.help(format!("the maximum per [[nbd]] is {EXPORTS_MAX}")));
            }
            let plans = exports.iter().map(|spec| export(spec, table.read_only, subsystems));
            Some(plans.collect::<Result<Vec<_>, _>>()?)
        }
    };
    let tls = table.tls.as_ref().map(|spec| tls(spec.get_ref(), context)).transpose()?;
    Ok(NbdPlan { listen, read_only: table.read_only, tls, exports })
}

/// Reads keys and certificates. Messages never contain their content.
fn tls(spec: &NbdTlsSpec, context: &ParseContext<'_>) -> Result<NbdTls, ConfigError> {
    let unread = |file: &Spanned<String>, reason: String| {
        ConfigError::at(file, format!("cannot read the file: {reason}")).help("use the path of a PEM file")
    };
    let read = |file: &Spanned<String>| (context.read_file)(file.get_ref()).map_err(|reason| unread(file, reason));
    let key = (context.read_key)(spec.key.get_ref()).map_err(|reason| unread(&spec.key, reason))?;
    let certificate = read(&spec.certificate)?;
    let authority = spec.client_authority.as_ref().map(read).transpose()?;
    let required = spec.required.unwrap_or(true);
    NbdTls::new(&certificate, &key, authority.as_deref(), required).map_err(|error| {
        let place = match error.part {
            NbdTlsPart::Certificate => &spec.certificate,
            NbdTlsPart::Key => &spec.key,
            NbdTlsPart::ClientAuthority => spec.client_authority.as_ref().unwrap_or(&spec.certificate),
        };
        ConfigError::at(place, error.reason).help("docs/guide/nbd.md shows how to generate certificates and keys")
    })
}

fn addresses(listen: &Spanned<ListenSpec>, base: &Path) -> Result<Vec<Address>, ConfigError> {
    let texts = listen.get_ref().texts();
    if texts.is_empty() {
        return Err(ConfigError::at(listen, "no address to listen on").help(LISTEN_HELP));
    }
    let address =
        |text: &String| nbd_address(text, base).map_err(|(reason, help)| ConfigError::at(listen, reason).help(help));
    texts.iter().map(address).collect()
}

fn export(
    spec: &Spanned<NbdExportSpec>,
    read_only: bool,
    subsystems: &[SubsystemPlan],
) -> Result<NbdExportPlan, ConfigError> {
    let table = spec.get_ref();
    let subsystem = match &table.nqn {
        Some(nqn) => subsystems
            .iter()
            .find(|subsystem| subsystem.nqn.as_str() == nqn.get_ref())
            .ok_or_else(|| ConfigError::at(nqn, "no subsystem has this NQN").help("use the nqn of a [[subsystem]]"))?,
        None if subsystems.len() == 1 => &subsystems[0],
        None => {
            let error = ConfigError::at(spec, format!("the export must name one of {} subsystems", subsystems.len()));
            return Err(error.help("add nqn = \"...\" of a [[subsystem]]"));
        }
    };
    let namespaces = &subsystem.namespaces;
    let namespace = match &table.namespace {
        Some(id) => namespaces.iter().find(|namespace| namespace.id.0 == *id.get_ref()).ok_or_else(|| {
            let error = ConfigError::at(id, format!("{} has no namespace {}", subsystem.nqn, id.get_ref()));
            error.help("use the id of one of its [[subsystem.namespace]]s")
        })?,
        None if namespaces.len() == 1 => &namespaces[0],
        None => {
            let error = ConfigError::at(spec, format!("the export must name one of {} namespaces", namespaces.len()));
            return Err(error.help("add namespace = ID"));
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

/// Checks a string that is sent to clients.
fn string(text: &Spanned<String>) -> Result<String, ConfigError> {
    let value = text.get_ref();
    if (1..=STRING_BYTES_MAX).contains(&value.len()) && !value.contains('\0') {
        return Ok(value.clone());
    }
    let error = ConfigError::at(text, "not a valid string for NBD");
    Err(error.help(format!("use 1 to {STRING_BYTES_MAX} bytes of text, without NUL")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerPlan;
    use std::path::PathBuf;

    #[test]
    fn addresses_have_a_host_and_port_a_host_or_a_path() {
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
    }

    #[test]
    fn the_remedy_for_an_invalid_address_is_a_valid_one() {
        let at = |text: &str| nbd_address(text, Path::new("/etc/zonda"));
        for (text, reason, remedy) in [
            ("10809", "\"10809\" is a port without a host", "127.0.0.1:10809"),
            ("/tmp/s", "\"/tmp/s\" is a path, and not HOST or HOST:PORT", "unix:/tmp/s"),
            ("127.0.0.1:99999", "invalid address \"127.0.0.1:99999\": \"99999\" is not a port", "127.0.0.1:10809"),
            ("localhost:", "invalid address \"localhost:\": the port is missing", "localhost:10809"),
            ("127.0.0.1:port", "invalid address \"127.0.0.1:port\": \"port\" is not a port", "127.0.0.1:10809"),
            ("unix:", "\"unix:\" without a path", "unix:/run/zonda/nbd.sock"),
            ("a b", "cannot resolve the address", "unix:a b"),
        ] {
            let (found, help) = at(text).expect_err(text);
            assert!(found.starts_with(reason) && help.contains(remedy), "{text}: {found} ({help})");
            assert!(at(remedy).is_ok(), "{remedy}");
        }
    }

    const TWO: &str = "[[subsystem]]\nnqn = \"nqn.2024-01.a:a\"\n[[subsystem.namespace]]\nimage = \"a\"\n\
                       [[subsystem.namespace]]\nimage = \"b\"\n[[subsystem]]\nnqn = \"nqn.2024-01.a:b\"\n\
                       [[subsystem.namespace]]\nimage = \"c\"\n";

    fn parse(text: &str) -> Result<ServerPlan, ConfigError> {
        let read_file = |path: &str| match path {
            "empty.pem" => Ok(String::new()),
            _ => Err(format!("{path} does not exist")),
        };
        let context = ParseContext {
            base: Path::new("/etc/zonda"),
            builtin_profiles: zonda_profiles::BUILTIN,
            read_file: &read_file,
            read_key: &read_file,
        };
        ServerPlan::parse(text, &context).map_err(|error| error.error)
    }

    #[test]
    fn a_table_without_keys_exports_all_conventional_namespaces_on_loopback() {
        let plan = parse(&format!("{TWO}[[nbd]]\n")).expect("a valid file");
        assert_eq!(plan.nbd[0].listen, [Address::Tcp("127.0.0.1:10809".parse().expect("an address"))]);
        assert!(plan.nbd[0].exports.is_none() && plan.nbd[0].tls.is_none() && !plan.nbd[0].read_only);
        assert!(parse(TWO).expect("a valid file").nbd.is_empty(), "nothing by default");
    }

    #[test]
    fn an_export_must_name_its_namespace_only_if_there_are_several() {
        let text = format!(
            "{TWO}[[nbd]]\nlisten = \"unix:n.sock\"\nread_only = true\n[[nbd.export]]\nnqn = \"nqn.2024-01.a:b\"\n\
             [[nbd.export]]\nname = \"x\"\nnqn = \"nqn.2024-01.a:a\"\nnamespace = 2\nread_only = false\n"
        );
        let plan = parse(&text).expect("a valid file");
        assert_eq!(plan.nbd[0].listen, [Address::Unix(PathBuf::from("/etc/zonda/n.sock"))]);
        let exports = plan.nbd[0].exports.as_ref().expect("two exports");
        let seen = |export: &NbdExportPlan| {
            (export.name.clone(), export.nqn.to_string(), export.namespace.0, export.read_only)
        };
        assert_eq!(seen(&exports[0]), (None, "nqn.2024-01.a:b".to_owned(), 1, true));
        assert_eq!(seen(&exports[1]), (Some("x".to_owned()), "nqn.2024-01.a:a".to_owned(), 2, false));
    }

    #[test]
    fn each_error_has_its_position() {
        let export = |keys: &str| format!("[[nbd.export]]\n{keys}\n");
        let tls = "tls = { certificate = \"empty.pem\", key = \"empty.pem\" }\n".to_owned();
        let cases = [
            (export(""), "the export must name one of 2 subsystems", "[[nbd.export]]"),
            (export("nqn = \"nqn.2024-01.a:c\""), "no subsystem has this NQN", "\"nqn.2024-01.a:c\""),
            (export("nqn = \"nqn.2024-01.a:a\""), "the export must name one of 2 namespaces", "[[nbd.export]]"),
            (export("nqn = \"nqn.2024-01.a:a\"\nnamespace = 3"), "nqn.2024-01.a:a has no namespace 3", "3"),
            (export("nqn = \"nqn.2024-01.a:b\"\nname = \"\""), "not a valid string for NBD", "\"\""),
            ("listen = []\n".to_owned(), "no address to listen on", "[]"),
            ("listen = \"unix:\"\n".to_owned(), "\"unix:\" without a path", "\"unix:\""),
            ("port = 1\n".to_owned(), "unknown key \"port\"", "port"),
            (tls.clone(), "no certificate in PEM format found", "\"empty.pem\""),
            (tls.replace("empty", "no"), "cannot read the file: no.pem does not exist", "\"no.pem\""),
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
