//! Protection of the HTTP server against cross-site requests and DNS rebinding.
//!
//! A web page can make a browser send requests to any address, and read the responses by DNS
//! rebinding, but it cannot choose the headers Host and Origin. So requests with a Host that is not
//! a name of this server, or with a foreign Origin, are refused.

use std::net::Ipv6Addr;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};

/// Host names of this server, in addition to addresses and `localhost`.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Vec<String>);

impl Names {
    /// The configured names and the name of the machine.
    pub(super) fn with_machine(configured: &[String]) -> Names {
        let machine = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
        let configured = configured.iter().map(|name| name.to_ascii_lowercase());
        Names(configured.chain(Some(machine).filter(|name| !name.is_empty())).collect())
    }

    /// Checks the headers of a request.
    ///
    /// # Errors
    /// The HTTP status of the refusal, and the remedy.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        // Browsers always send a Host.
        let Some(host) = headers.get(header::HOST) else { return Ok(()) };
        let host = text(host).filter(|host| self.is_own(name_of(host)));
        let host = host.ok_or((
            StatusCode::MISDIRECTED_REQUEST,
            "unknown host name: use the address of the server, or add the name to http_names in [server]\n",
        ))?;
        match headers.get(header::ORIGIN) {
            Some(origin) if text(origin).and_then(|it| it.strip_prefix("http://")) != Some(host) => {
                Err((StatusCode::FORBIDDEN, "cross-origin requests are refused\n"))
            }
            _ => Ok(()),
        }
    }

    fn is_own(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let is_machine =
            |own: &String| name == *own || name.strip_prefix(own.as_str()).is_some_and(|it| it.starts_with('.'));
        name == "localhost" || name.parse::<std::net::IpAddr>().is_ok() || self.0.iter().any(is_machine)
    }
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

/// A Host without its port, an IPv6 address without its brackets.
fn name_of(host: &str) -> &str {
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(address, _)| address);
    match bracketed {
        Some(address) if address.parse::<Ipv6Addr>().is_ok() => address,
        _ => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(host: Option<&str>, origin: Option<&str>) -> u16 {
        let names = Names(vec!["store1".to_owned(), "metrics.example".to_owned()]);
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            if let Some(value) = value {
                headers.insert(name, value.parse().expect("a header"));
            }
        }
        names.check(&headers).err().map_or(200, |(status, _)| status.as_u16())
    }

    #[test]
    fn addresses_the_machine_name_and_configured_names_are_accepted() {
        for host in
            ["127.0.0.1:9420", "10.1.2.3", "[::1]:9420", "localhost:9420", "LOCALHOST", "store1", "store1.lan:9420"]
        {
            assert_eq!(status(Some(host), None), 200, "{host}");
        }
        assert_eq!(status(Some("Metrics.Example.:9420"), None), 200);
        assert_eq!(status(None, None), 200, "not a browser");
    }

    #[test]
    fn other_host_names_are_refused() {
        for host in ["evil.example", "127.0.0.1.evil.example:9420", "store10", "localhost.evil.example", "[evil]:1", ""]
        {
            assert_eq!(status(Some(host), None), 421, "{host}");
        }
    }

    #[test]
    fn foreign_origins_are_refused() {
        assert_eq!(status(Some("127.0.0.1:9420"), Some("http://127.0.0.1:9420")), 200);
        for origin in ["http://evil.example", "null", "http://127.0.0.1:80", "https://127.0.0.1:9420"] {
            assert_eq!(status(Some("127.0.0.1:9420"), Some(origin)), 403, "{origin}");
        }
    }
}
