//! How commands reach a namespace: an image on this machine, or one that a server has.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use zonda_chap::Secret;
use zonda_config::ConfigError;
use zonda_devices::{Connection, Credentials, DriveError, Location, NamespaceOptions, exposed_files};
use zonda_zoned::{Geometry, Operation, Outcome, ReportFilter, Status, ZoneDescriptor, ZoneIndex};

use crate::errors::Failure;
use crate::files;

/// The heading of these options in a help text.
pub(crate) const HEADING: &str = "Connecting to a server";
/// Zones in one report: more than one transfer of any drive carries.
const REPORT_ZONES_MAX: u32 = 4096;

/// The same for the members of a volume, whose files volume.toml names.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CredentialArgs {
    /// The name under which the volume connects to servers; by default made of its UUID
    #[arg(long, value_name = "NQN", help_heading = HEADING)]
    host_nqn: Option<String>,
    /// A file with the secret that proves who connects; volume.toml keeps its name
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    secret_file: Option<PathBuf>,
    /// A file with the secret that the server must prove to know; volume.toml keeps its name
    #[arg(long, value_name = "FILE", requires = "secret_file", help_heading = HEADING)]
    controller_secret_file: Option<PathBuf>,
}

impl CredentialArgs {
    /// The same, for a program that may run in another directory.
    pub(crate) fn credentials(&self) -> Result<Credentials, Failure> {
        let absolute = |path: &Option<PathBuf>| {
            path.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        };
        let credentials = Credentials {
            host_nqn: self.host_nqn.clone(),
            secret_file: absolute(&self.secret_file),
            controller_secret_file: absolute(&self.controller_secret_file),
        };
        // What is wrong with them is said before anything is done.
        credentials.options().map_err(failure)?;
        Ok(credentials)
    }
}

/// What a host says of itself when it connects to a server.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConnectArgs {
    /// The name under which to connect to a server
    #[arg(long, value_name = "NQN", help_heading = HEADING)]
    host_nqn: Option<String>,
    /// A file with the secret that proves who connects
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    secret_file: Option<String>,
    /// A file with the secret that the server must prove to know
    #[arg(long, value_name = "FILE", requires = "secret_file", help_heading = HEADING)]
    controller_secret_file: Option<String>,
    /// Asks for digests over headers and data
    #[arg(long, help_heading = HEADING)]
    digests: bool,
}

impl ConnectArgs {
    /// Whether any is given.
    pub(crate) fn is_given(&self) -> bool {
        self.host_nqn.is_some() || self.secret_file.is_some() || self.digests
    }

    /// What they ask for.
    pub(crate) fn options(&self) -> Result<NamespaceOptions, Failure> {
        let named = Credentials { host_nqn: self.host_nqn.clone(), ..Credentials::default() };
        Ok(NamespaceOptions {
            secret: self.secret_file.as_deref().map(secret).transpose()?,
            controller_secret: self.controller_secret_file.as_deref().map(secret).transpose()?,
            digests: self.digests,
            ..named.options().map_err(failure)?
        })
    }
}

fn secret(path: &str) -> Result<Secret, Failure> {
    if path != "-" {
        return zonda_devices::read_secret(Path::new(path)).map_err(failure);
    }
    Secret::parse(files::read_text(path)?.trim()).map_err(|reason| {
        Failure::input(format!("{} holds no secret: {reason}", files::shown(path)), "zonda secret makes one")
    })
}

/// Where a namespace is, as a person writes it.
pub(crate) fn location(text: &str) -> Result<Location, Failure> {
    text.parse().map_err(|error: ConfigError| Failure::input(error.message, error.help.unwrap_or_default()))
}

/// Opens the image, or connects to the server.
pub(crate) fn open(location: &Location, options: &NamespaceOptions) -> Result<Connection, Failure> {
    let connection = Connection::open(location, options).map_err(failure)?;
    if let Location::Image(directory) = location {
        warn_if_exposed(directory);
    }
    Ok(connection)
}

/// Files of an image that others may open are told of, with the command that ends that.
pub(crate) fn warn_if_exposed(directory: &Path) {
    if let Some(words) = exposed_files(directory) {
        // The standard output is for what was asked.
        let _ = writeln!(io::stderr(), "warning: {}: {words}", directory.display());
    }
}

/// Opens a namespace, does something with it, and closes it again; also where that fails, so that an image is at rest.
pub(crate) fn with<T>(
    location: &Location,
    options: &NamespaceOptions,
    work: impl FnOnce(&mut Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut connection = open(location, options)?;
    let result = work(&mut connection);
    let closed = close(connection);
    let value = result?;
    closed?;
    Ok(value)
}

/// A drive that belongs to a volume is not written to by itself.
pub(crate) fn refuse_member(connection: &mut Connection, location: &Location) -> Result<(), Failure> {
    match connection.volume().map_err(failure)? {
        None => Ok(()),
        Some(volume) => Err(Failure::input(
            format!("{location} is {volume}"),
            "use the volume by its own directory, or name another drive; say --force if nobody needs the volume any more",
        )),
    }
}

/// Ends a connection that is needed no more.
pub(crate) fn close(connection: Connection) -> Result<(), Failure> {
    connection.close().map_err(failure)
}

/// What a drive says is wrong.
pub(crate) fn failure(error: DriveError) -> Failure {
    // Some messages end with their remedy.
    let message = error.message.strip_suffix(error.help.as_str()).map(|message| message.trim_end_matches([';', ' ']));
    let message = message.unwrap_or(&error.message).to_owned();
    Failure::input(message, error.help)
}

/// Carries out one operation, which `wish` names after "refuses".
pub(crate) fn execute(connection: &mut Connection, operation: Operation, wish: &str) -> Result<Outcome, Failure> {
    let completion = connection.execute(operation).map_err(failure)?;
    if completion.status.is_success() {
        return Ok(completion.outcome);
    }
    Err(Failure::input(format!("the drive refuses {wish}: {}", completion.status), remedy(completion.status)))
}

/// What to do about a command that ended like this.
pub(crate) fn remedy(status: Status) -> &'static str {
    match status {
        Status::TooManyActiveZones => "finish or reset a zone that is open or closed, then try again",
        Status::TooManyOpenZones => "close a zone that is open, then try again",
        Status::InvalidZoneStateTransition => "zonda zone report shows which state it is in, and what can be done then",
        Status::ZoneIsOffline | Status::ZoneIsReadOnly => "the medium of the zone has given up: use another",
        Status::ReservationConflict => {
            "another host has reserved the drive, as servers of volumes do with their members: stop that server"
        }
        Status::AbortedPowerLoss | Status::NamespaceNotReady => {
            "the connection was lost: see whether the server runs, and try again"
        }
        // What a host is told of a write protected namespace, too.
        Status::WriteFault => {
            "see whether the namespace is served read-only (zonda status); if not, the log of the server may say more"
        }
        _ => "the log of the server may say more",
    }
}

/// Descriptors of `count` zones from `first` on, a piece at a time: a report has as many as fit into one transfer.
pub(crate) fn descriptors(connection: &mut Connection, first: u32, count: u32) -> Result<Vec<ZoneDescriptor>, Failure> {
    let geometry: Geometry = connection.geometry().clone();
    let mut zones: Vec<ZoneDescriptor> = Vec::with_capacity(count as usize);
    while (zones.len() as u32) < count {
        let next = first + zones.len() as u32;
        let operation = Operation::ReportZones {
            start: geometry.zone_start(ZoneIndex(next)),
            filter: ReportFilter::All,
            extended: false,
            partial: true,
            descriptors_max: (count - zones.len() as u32).min(REPORT_ZONES_MAX),
        };
        match execute(connection, operation, "a report of its zones")? {
            Outcome::Report(report) if !report.zones.is_empty() => zones.extend(report.zones),
            _ => {
                return Err(Failure::input(
                    "the drive reports fewer zones than it has",
                    "see whether the server is well",
                ));
            }
        }
    }
    Ok(zones)
}

/// Descriptors of all zones.
pub(crate) fn all_descriptors(connection: &mut Connection) -> Result<Vec<ZoneDescriptor>, Failure> {
    let zones = connection.geometry().zone_count;
    descriptors(connection, 0, zones)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The message and the remedy, as they are shown.
    fn shown(failure: Failure) -> String {
        let Failure::Input(text) = failure else { panic!("{failure:?} is not about the input") };
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_status_has_the_remedy_for_its_own_cause() {
        for (status, words) in [
            // Active: a zone that is merely closed still counts. Open: closing one is enough.
            (Status::TooManyActiveZones, &["finish or reset a zone"][..]),
            (Status::TooManyOpenZones, &["close a zone"]),
            (Status::InvalidZoneStateTransition, &["zonda zone report"]),
            (Status::ZoneIsOffline, &["medium", "use another"]),
            (Status::ZoneIsReadOnly, &["medium", "use another"]),
            (Status::AbortedPowerLoss, &["connection was lost", "server runs"]),
            (Status::NamespaceNotReady, &["connection was lost", "server runs"]),
            (Status::InternalError, &["log of the server"]),
        ] {
            let remedy = remedy(status);
            assert!(words.iter().all(|word| remedy.contains(word)), "{status}: {remedy}");
            // No remedy tells of another's cause.
            let others = ["finish or reset", "close a zone", "zone report", "medium", "connection", "log of"];
            let told = others.iter().filter(|cause| remedy.contains(*cause)).count();
            assert_eq!(told, 1, "{status}: {remedy}");
        }
    }

    #[test]
    fn a_wrong_name_and_a_wrong_secret_have_their_own_remedies() {
        let name = ConnectArgs { host_nqn: Some("me".to_owned()), ..ConnectArgs::default() };
        let name = shown(name.options().expect_err("it is no name"));
        assert!(
            name.contains("\"me\"") && name.contains("/etc/nvme/hostnqn") && !name.contains("zonda secret"),
            "{name}"
        );
        // A file that exists everywhere, holds no secret, and is no regular one, whose mode counts.
        let path = "/dev/null";
        for is_controller in [false, true] {
            let file = Some(path.to_owned());
            let secret = match is_controller {
                false => ConnectArgs { secret_file: file, ..ConnectArgs::default() },
                true => ConnectArgs { controller_secret_file: file, ..ConnectArgs::default() },
            };
            let secret = shown(secret.options().expect_err("it holds no secret"));
            assert!(secret.contains("zonda secret makes one") && !secret.contains("hostnqn"), "{secret}");
        }
    }

    #[test]
    fn a_message_that_ends_with_its_remedy_says_it_once() {
        let text = shown(failure(DriveError::new("the port is closed; start the server", "start the server")));
        assert_eq!(text.matches("start the server").count(), 1, "{text}");
        let text = shown(failure(DriveError::new("the port is closed", "start the server")));
        assert!(text.contains("the port is closed") && text.contains("start the server"), "{text}");
    }
}
