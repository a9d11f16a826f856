//! Where a namespace is: a path or a URL.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use zonda_config::ConfigError;
use zonda_nvme::Nqn;
use zonda_zoned::NamespaceId;

/// The scheme of the URL of a remote namespace.
const SCHEME: &str = "nvme-tcp://";
/// The default port, which IANA assigns to NVMe ("nvme").
pub const PORT_DEFAULT: u16 = 4420;
const HELP: &str = "give nvme-tcp://HOST:PORT/NQN, with ?namespace=N for another namespace than the first, \
                    the directory of an image, or a zoned drive of this machine, such as /dev/nvme0n1";
/// Names below this are devices of this machine.
const DEVICES: &str = "/dev/";
/// File systems that Linux mounts there.
const NO_DEVICES: [&str; 3] = ["/dev/shm/", "/dev/hugepages/", "/dev/mqueue/"];

/// Where a namespace is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// The directory of an image on this machine.
    Image(PathBuf),
    /// The device file of a drive of this machine: a path below /dev.
    Device(PathBuf),
    /// A namespace of a server.
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
            return Err(ConfigError::new(format!("protocol \"{scheme}\" is not supported")).help(HELP));
        }
        if let Some(rest) = text.strip_prefix("nvme-tcp:") {
            let error = ConfigError::new(format!("\"{text}\" is not a URL: two slashes follow \"nvme-tcp:\""));
            return Err(error.help(format!("give {SCHEME}{}", rest.trim_start_matches('/'))));
        }
        if text.is_empty() {
            return Err(ConfigError::new("the name of the drive is empty").help(HELP));
        }
        if text.starts_with(DEVICES) && !NO_DEVICES.iter().any(|prefix| text.starts_with(prefix)) {
            return Ok(Location::Device(PathBuf::from(text)));
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
            rest.split_once('/').ok_or_else(|| error(format!("\"{text}\" has no subsystem NQN after the port")))?;
        let (host, port) = host_and_port(authority).map_err(error)?;
        let (subsystem, query) = rest.split_once('?').map_or((rest, None), |(nqn, query)| (nqn, Some(query)));
        let subsystem =
            Nqn::new(subsystem).map_err(|reason| error(format!("\"{subsystem}\" is not a valid NQN: {reason}")))?;
        if subsystem.is_discovery() {
            let error = ConfigError::new(format!("{subsystem} is the discovery service, which has no namespaces"));
            return Err(error.help(
                "give the NQN of a subsystem: zonda status shows those of a server of zonda, nvme discover those of any server",
            ));
        }
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
            Location::Image(path) | Location::Device(path) => path.display().fmt(f),
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
                _ => return Err(format!("\"{authority}\" is not a valid HOST:PORT")),
            }
        }
        None => match authority.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(format!(
                    "\"{authority}\" has more than one colon: write an IPv6 address in brackets, [::1]:4420"
                ));
            }
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.contains(['[', ']']) {
        return Err(format!("\"{host}\" is not a valid host name or address"));
    }
    if host.is_empty() {
        return Err("the host before the port is missing".to_owned());
    }
    let port = match port {
        None => PORT_DEFAULT,
        Some(port) => match port.parse() {
            Ok(port) if port != 0 => port,
            _ => return Err(format!("\"{port}\" is not a TCP port (1 to 65535)")),
        },
    };
    Ok((host.to_owned(), port))
}

fn namespace_of(query: &str) -> Result<NamespaceId, String> {
    let number = query
        .strip_prefix("namespace=")
        .ok_or_else(|| format!("\"{query}\" is not a valid query: expected namespace=N"))?;
    match number.parse() {
        Ok(number) if (1..u32::MAX).contains(&number) => Ok(NamespaceId(number)),
        _ => Err(format!("\"{number}\" is not a valid namespace identifier")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NQN: &str = "nqn.2026-01.io.zonda:mine";

    #[test]
    fn a_url_is_parsed_from_its_display() {
        for text in [
            format!("nvme-tcp://127.0.0.1:4420/{NQN}"),
            format!("nvme-tcp://[::1]:9/{NQN}?namespace=3"),
            format!("nvme-tcp://drives.example:65535/{NQN}"),
        ] {
            assert_eq!(text.parse::<NvmeTcpUrl>().expect("it is valid").to_string(), text);
        }
    }

    #[test]
    fn the_port_is_optional() {
        let url: NvmeTcpUrl = format!("nvme-tcp://localhost/{NQN}").parse().expect("it is valid");
        assert_eq!((url.host.as_str(), url.port, url.namespace), ("localhost", 4420, NamespaceId::FIRST));
    }

    #[test]
    fn a_name_that_is_not_a_url_is_a_path() {
        assert_eq!("drives/a".parse::<Location>(), Ok(Location::Image("drives/a".into())));
    }

    #[test]
    fn a_path_below_dev_is_a_device_but_for_the_file_systems_there() {
        for text in ["/dev/nvme0n1", "/dev/ng0n1", "/dev/disk/by-id/wwn-0x5000c500a1b2c3d4"] {
            assert_eq!(text.parse::<Location>(), Ok(Location::Device(text.into())));
        }
        for text in ["/dev/shm/drive", "/devices/a", "dev/a"] {
            assert_eq!(text.parse::<Location>(), Ok(Location::Image(text.into())));
        }
    }

    #[test]
    fn each_error_has_its_own_message() {
        let cases = [
            ("http://localhost/", "protocol \"http\" is not supported"),
            ("", "the name of the drive is empty"),
            ("nvme-tcp://localhost:4420", "has no subsystem NQN"),
            ("nvme-tcp://:4420/nqn.2026-01.io.zonda:a", "the host before the port is missing"),
            ("nvme-tcp://a:0/nqn.2026-01.io.zonda:a", "\"0\" is not a TCP port"),
            ("nvme-tcp://a:99999/nqn.2026-01.io.zonda:a", "\"99999\" is not a TCP port"),
            ("nvme-tcp://[::1/nqn.2026-01.io.zonda:a", "no closing bracket"),
            ("nvme-tcp://a/nqn.2026-01.io.zonda:a?namespace=0", "\"0\" is not a valid namespace identifier"),
            ("nvme-tcp://a/nqn.2026-01.io.zonda:a?ns=1", "expected namespace=N"),
            ("nvme-tcp://a/", "not a valid NQN"),
            ("nvme-tcp://::1/nqn.2026-01.io.zonda:a", "in brackets"),
            ("nvme-tcp://fe80::1/nqn.2026-01.io.zonda:a", "in brackets"),
            ("nvme-tcp://[::1]x/nqn.2026-01.io.zonda:a", "is not a valid HOST:PORT"),
            ("nvme-tcp://a]:1/nqn.2026-01.io.zonda:a", "is not a valid host name"),
        ];
        for (text, message) in cases {
            let error = text.parse::<Location>().expect_err(text);
            assert!(error.message.contains(message), "{text}: {}", error.message);
            assert!(error.help.is_some(), "{text}");
        }
    }
}
