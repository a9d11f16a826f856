//! State shared by all connections of a server.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::Connection;
use crate::export::{Export, ExportIndex};
use crate::limits::{EXPORTS_MAX, Limits};

/// Whether connections use TLS (section "TLS support").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPolicy {
    /// STARTTLS is refused.
    Off,
    /// Clients may use TLS.
    Allowed,
    /// Clients must start TLS before any other option.
    Required,
}

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Exports, with unique names; at most 256.
    pub exports: Vec<Export>,
    /// The export of a client that requests an empty name.
    pub default_export: Option<ExportIndex>,
    /// Whether clients may list the exports.
    pub may_list: bool,
    /// Whether connections use TLS.
    pub tls: TlsPolicy,
    /// Bounds of each connection.
    pub limits: Limits,
}

/// A server: the configuration shared by its connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Server {
    config: Arc<ServerConfig>,
}

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfigError {
    /// What is invalid: a limit, or an export and its field.
    pub subject: String,
    /// The permitted values.
    pub remedy: String,
}

impl ServerConfig {
    /// A configuration with default limits, without TLS, whose exports any client may list. The
    /// first export is the default.
    #[must_use]
    pub fn new(exports: Vec<Export>) -> ServerConfig {
        let default_export = (!exports.is_empty()).then_some(ExportIndex(0));
        ServerConfig { exports, default_export, may_list: true, tls: TlsPolicy::Off, limits: Limits::default() }
    }

    fn check(&self) -> Result<(), ServerConfigError> {
        if let Some((field, remedy)) = self.limits.fault() {
            return fault(format!("limits.{field}"), remedy);
        }
        if self.exports.len() > EXPORTS_MAX {
            return fault("exports".to_owned(), "must be at most 256");
        }
        if self.default_export.is_some_and(|index| usize::from(index.0) >= self.exports.len()) {
            return fault("default_export".to_owned(), "must be one of the exports");
        }
        let mut names = BTreeSet::new();
        for export in &self.exports {
            if let Some((field, remedy)) = export.fault() {
                return fault(format!("export {:?}: {field}", export.name), remedy);
            }
            if !names.insert(&export.name) {
                return fault(format!("export {:?}: name", export.name), "must be unique");
            }
        }
        Ok(())
    }
}

impl Server {
    /// Creates a server.
    ///
    /// # Errors
    /// When the configuration is invalid, with the permitted values.
    pub fn new(config: ServerConfig) -> Result<Server, ServerConfigError> {
        config.check()?;
        Ok(Server { config: Arc::new(config) })
    }

    /// A new connection, with the greeting to send.
    #[must_use]
    pub fn connect(&self) -> Connection {
        Connection::new(self.clone())
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// An export.
    ///
    /// # Panics
    /// When the server has no such export.
    #[must_use]
    pub fn export(&self, index: ExportIndex) -> &Export {
        &self.config.exports[usize::from(index.0)]
    }

    /// The export with a name; for an empty name, the default.
    pub(crate) fn find(&self, name: &[u8]) -> Option<ExportIndex> {
        if name.is_empty() {
            return self.config.default_export;
        }
        let place = self.config.exports.iter().position(|export| export.name.as_bytes() == name)?;
        Some(ExportIndex(place as u16))
    }
}

impl fmt::Display for ServerConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.subject, self.remedy)
    }
}

impl std::error::Error for ServerConfigError {}

fn fault(subject: String, remedy: &str) -> Result<(), ServerConfigError> {
    Err(ServerConfigError { subject, remedy: remedy.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(spoil: fn(&mut ServerConfig)) -> String {
        let mut config = ServerConfig::new(vec![Export::new("a", 4096), Export::new("b", 4096)]);
        spoil(&mut config);
        Server::new(config).expect_err("a fault").to_string()
    }

    #[test]
    fn an_invalid_configuration_is_refused_with_the_permitted_values() {
        assert_eq!(error(|config| config.limits.requests = 0), "limits.requests must be 1 to 1024");
        assert_eq!(error(|config| config.exports[1].name = "a".to_owned()), "export \"a\": name must be unique");
        assert_eq!(
            error(|config| config.default_export = Some(ExportIndex(2))),
            "default_export must be one of the exports"
        );
        assert_eq!(
            error(|config| config.exports[0].minimum_block_bytes = 3),
            "export \"a\": minimum_block_bytes must be a power of two from 1 to 65536"
        );
        let many = |config: &mut ServerConfig| {
            config.exports = (0..=EXPORTS_MAX).map(|index| Export::new(&index.to_string(), 512)).collect();
        };
        assert_eq!(error(many), "exports must be at most 256");
    }

    #[test]
    fn an_empty_name_is_the_default_export_if_configured() {
        let config = ServerConfig::new(vec![Export::new("a", 4096), Export::new("b", 4096)]);
        let server = Server::new(ServerConfig { default_export: Some(ExportIndex(1)), ..config.clone() }).unwrap();
        assert_eq!((server.find(b""), server.find(b"a")), (Some(ExportIndex(1)), Some(ExportIndex(0))));
        assert_eq!(server.find(b"c"), None);
        let server = Server::new(ServerConfig { default_export: None, ..config }).unwrap();
        assert_eq!(server.find(b""), None);
    }
}
