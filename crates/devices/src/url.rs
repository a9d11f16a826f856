//! Where a namespace is: a path or a URL.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use zonda_config::ConfigError;
use zonda_nvme::Nqn;
use zonda_zoned::NamespaceId;

/// What a URL of a remote namespace begins with.
const SCHEME: &str = "nvme-tcp://";
/// Where NVMe/TCP servers listen by custom (IANA, "nvme"): the port where none is written.
pub const PORT_DEFAULT: u16 = 4420;
const HELP: &str = "write nvme-tcp://HOST:PORT/NQN, with ?namespace=N for another namespace than the first; \
                    or the directory of an image";

/// Where a namespace is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// The directory of an image on this machine.
    Image(PathBuf),
    /// Behind a server.
    NvmeTcp(NvmeTcpUrl),
}

/// `nvme-tcp://HOST[:PORT]/NQN[?namespace=N]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmeTcpUrl {
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The subsystem.
    pub subsystem: Nqn,
    /// The namespace in it.
    pub namespace: NamespaceId,
}

impl FromStr for Location {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Location, ConfigError> {
        if text.starts_with(SCHEME) {
            return text.parse().map(Location::NvmeTcp);
        }
        if let Some((scheme, _)) = text.split_once("://") {
            return Err(ConfigError::new(format!("\"{scheme}\" is no protocol that zonda speaks")).help(HELP));
        }
        if text.is_empty() {
            return Err(ConfigError::new("an empty name stands for no drive").help(HELP));
        }
        Ok(Location::Image(PathBuf::from(text)))
    }
}

impl FromStr for NvmeTcpUrl {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<NvmeTcpUrl, ConfigError> {
        let error = |reason: String| ConfigError::new(reason).help(HELP);
        let rest =
            text.strip_prefix(SCHEME).ok_or_else(|| error(format!("\"{text}\" does not begin with {SCHEME}")))?;
        let (authority, rest) =
            rest.split_once('/').ok_or_else(|| error(format!("\"{text}\" names no subsystem after the port")))?;
        let (host, port) = host_and_port(authority).map_err(error)?;
        let (subsystem, query) = rest.split_once('?').map_or((rest, None), |(nqn, query)| (nqn, Some(query)));
        let subsystem = Nqn::new(subsystem)
            .map_err(|reason| error(format!("\"{subsystem}\" is no NVMe Qualified Name: {reason}")))?;
        let namespace = query.map_or(Ok(NamespaceId::FIRST), namespace_of).map_err(error)?;
        Ok(NvmeTcpUrl { host, port, subsystem, namespace })
    }
}

impl fmt::Display for NvmeTcpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "{SCHEME}{host}:{}/{}", self.port, self.subsystem)?;
        match self.namespace {
            NamespaceId::FIRST => Ok(()),
            other => write!(f, "?namespace={other}"),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Image(path) => path.display().fmt(f),
            Location::NvmeTcp(url) => url.fmt(f),
        }
    }
}

fn host_and_port(authority: &str) -> Result<(String, u16), String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(|| format!("\"{authority}\" has no closing bracket"))?;
            match (host.contains('['), rest.strip_prefix(':')) {
                (false, Some(port)) => (host, Some(port)),
                (false, None) if rest.is_empty() => (host, None),
                _ => return Err(format!("\"{authority}\" is no host and port")),
            }
        }
        None => match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(format!(
                    "\"{authority}\" has more than one colon: an IPv6 address stands in brackets, [::1]:4420"
                ));
            }
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.contains(['[', ']']) {
        return Err(format!("\"{host}\" is no host"));
    }
    if host.is_empty() {
        return Err("no host stands before the port".to_owned());
    }
    let port = match port {
        None => PORT_DEFAULT,
        Some(port) => match port.parse() {
            Ok(port) if port != 0 => port,
            _ => return Err(format!("\"{port}\" is no TCP port")),
        },
    };
    Ok((host.to_owned(), port))
}

fn namespace_of(query: &str) -> Result<NamespaceId, String> {
    let number = query.strip_prefix("namespace=").ok_or_else(|| format!("\"{query}\" is not namespace=N"))?;
    match number.parse() {
        Ok(number) if (1..u32::MAX).contains(&number) => Ok(NamespaceId(number)),
        _ => Err(format!("\"{number}\" is no namespace's number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NQN: &str = "nqn.2026-01.io.zonda:mine";

    #[test]
    fn a_url_survives_being_written_out() {
        for text in [
            format!("nvme-tcp://127.0.0.1:4420/{NQN}"),
            format!("nvme-tcp://[::1]:9/{NQN}?namespace=3"),
            format!("nvme-tcp://drives.example:65535/{NQN}"),
        ] {
            assert_eq!(text.parse::<NvmeTcpUrl>().expect("it is right").to_string(), text);
        }
    }

    #[test]
    fn a_port_may_be_left_out() {
        let url: NvmeTcpUrl = format!("nvme-tcp://localhost/{NQN}").parse().expect("it is right");
        assert_eq!((url.host.as_str(), url.port, url.namespace), ("localhost", 4420, NamespaceId::FIRST));
    }

    #[test]
    fn what_is_no_url_is_a_path() {
        assert_eq!("drives/a".parse::<Location>(), Ok(Location::Image("drives/a".into())));
    }

    #[test]
    fn each_mistake_is_named() {
        let cases = [
            ("http://localhost/", "\"http\" is no protocol that zonda speaks"),
            ("", "an empty name stands for no drive"),
            ("nvme-tcp://localhost:4420", "names no subsystem"),
            ("nvme-tcp://:4420/nqn.2026-01.io.zonda:a", "no host stands before the port"),
            ("nvme-tcp://a:0/nqn.2026-01.io.zonda:a", "\"0\" is no TCP port"),
            ("nvme-tcp://a:99999/nqn.2026-01.io.zonda:a", "\"99999\" is no TCP port"),
            ("nvme-tcp://[::1/nqn.2026-01.io.zonda:a", "no closing bracket"),
            ("nvme-tcp://a/nqn.2026-01.io.zonda:a?namespace=0", "\"0\" is no namespace's number"),
            ("nvme-tcp://a/nqn.2026-01.io.zonda:a?ns=1", "\"ns=1\" is not namespace=N"),
            ("nvme-tcp://a/", "no NVMe Qualified Name"),
            ("nvme-tcp://::1/nqn.2026-01.io.zonda:a", "stands in brackets"),
            ("nvme-tcp://fe80::1/nqn.2026-01.io.zonda:a", "stands in brackets"),
            ("nvme-tcp://[::1]x/nqn.2026-01.io.zonda:a", "is no host and port"),
            ("nvme-tcp://a]:1/nqn.2026-01.io.zonda:a", "is no host"),
        ];
        for (text, message) in cases {
            let error = text.parse::<Location>().expect_err(text);
            assert!(error.message.contains(message), "{text}: {}", error.message);
            assert!(error.help.is_some(), "{text}");
        }
    }
}
