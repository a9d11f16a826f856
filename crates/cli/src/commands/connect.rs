//! How commands access a namespace: an image on this machine, or a namespace of a server.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use zonda_chap::Secret;
use zonda_config::ConfigError;
use zonda_devices::{
    Connection, Credentials, DriveError, ImageDirectory, Location, NamespaceOptions, exposed_files, is_volume,
};
use zonda_zoned::{Geometry, Operation, Outcome, ReportFilter, Status, ZoneDescriptor, ZoneIndex};

use crate::errors::Failure;
use crate::{files, remedies};

/// The heading of these options in a help text.
pub(crate) const HEADING: &str = "Connecting to a server";
/// Maximum number of zones in one report: more than fit into one transfer of any drive.
const REPORT_ZONES_MAX: u32 = 4096;

/// Credentials for the drives of a volume or pool; volume.toml or pool.toml stores the names of the
/// files.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CredentialArgs {
    /// Host NQN with which to connect to servers [default: derived from the UUID of the volume or
    /// pool]
    #[arg(long, value_name = "NQN", help_heading = HEADING)]
    host_nqn: Option<String>,
    /// File with the DH-HMAC-CHAP secret of the host; volume.toml or pool.toml stores its name
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    secret_file: Option<PathBuf>,
    /// File with the DH-HMAC-CHAP secret of the controller, to authenticate the server; volume.toml
    /// or pool.toml stores its name
    #[arg(long, value_name = "FILE", requires = "secret_file", help_heading = HEADING)]
    controller_secret_file: Option<PathBuf>,
}

impl CredentialArgs {
    /// The credentials with absolute paths, for a server that runs in another directory.
    pub(crate) fn credentials(&self) -> Result<Credentials, Failure> {
        let absolute = |path: &Option<PathBuf>| {
            path.as_ref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()))
        };
        let credentials = Credentials {
            host_nqn: self.host_nqn.clone(),
            secret_file: absolute(&self.secret_file),
            controller_secret_file: absolute(&self.controller_secret_file),
        };
        // Invalid credentials are reported before anything is changed.
        credentials.check_host_nqn().map_err(failure)?;
        credentials.options().map_err(failure)?;
        Ok(credentials)
    }
}

/// How a host identifies itself when it connects to a server.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConnectArgs {
    /// Host NQN with which to connect to the server [default: a new one with a random UUID]
    #[arg(long, value_name = "NQN", help_heading = HEADING)]
    host_nqn: Option<String>,
    /// File with the DH-HMAC-CHAP secret of the host
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    secret_file: Option<String>,
    /// File with the DH-HMAC-CHAP secret of the controller, to authenticate the server
    #[arg(long, value_name = "FILE", requires = "secret_file", help_heading = HEADING)]
    controller_secret_file: Option<String>,
    /// Enable header and data digests
    #[arg(long, help_heading = HEADING)]
    digests: bool,
}

impl ConnectArgs {
    /// Whether any of the options is given.
    pub(crate) fn is_given(&self) -> bool {
        self.host_nqn.is_some() || self.secret_file.is_some() || self.digests
    }

    /// The options for connecting.
    pub(crate) fn options(&self) -> Result<NamespaceOptions, Failure> {
        let named = Credentials { host_nqn: self.host_nqn.clone(), ..Credentials::default() };
        named.check_host_nqn().map_err(failure)?;
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
    Secret::parse(files::read_text(path, "zonda secret generates one")?.trim()).map_err(|reason| {
        Failure::input(format!("no valid secret in {}: {reason}", files::shown(path)), "generate one with zonda secret")
    })
}

/// Parses the location of a namespace.
pub(crate) fn location(text: &str) -> Result<Location, Failure> {
    remedies::refuse_other_places(text)?;
    text.parse().map_err(|error: ConfigError| Failure::input(error.message, error.help.unwrap_or_default()))
}

/// Opens the image, or connects to the server.
pub(crate) fn open(location: &Location, options: &NamespaceOptions) -> Result<Connection, Failure> {
    let connection = Connection::open(location, options).map_err(|error| match location {
        // The holder of a reservation of a volume may have been killed.
        Location::NvmeTcp(_) if error.is_in_use => Failure::input(error.message, remedies::RESERVED),
        // Readers share the image.
        Location::Image(directory) if error.is_in_use && is_read_only(directory) => {
            Failure::input(error.message, READERS)
        }
        Location::Image(directory) if error.is_missing => remedies::no_image(directory, error),
        _ => failure(error),
    })?;
    if let Location::Image(directory) = location {
        warn_if_exposed(directory);
    }
    Ok(connection)
}

/// The remedy for an image that other programs read.
const READERS: &str = "stop the program that reads it: a server that serves it read-only (zonda serve --read-only) does not accept \
                       writes, nor other programs that write; to write to the drive, serve it without --read-only";

/// Whether programs use an image, but none of them may write to it.
fn is_read_only(directory: &Path) -> bool {
    !is_volume(directory) && ImageDirectory::open_shared(directory).is_ok()
}

/// Warns if other users can open the files of an image, and names the command that prevents it.
pub(crate) fn warn_if_exposed(directory: &Path) {
    if let Some(words) = exposed_files(directory) {
        warn(&format!("{}: {words}", directory.display()));
    }
}

/// Prints a warning.
pub(crate) fn warn(words: &str) {
    // The standard output is reserved for results.
    let _ = writeln!(io::stderr(), "warning: {words}");
}

/// Opens a namespace, calls `work` and closes the namespace, also if `work` fails, so that an image
/// is shut down cleanly.
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

/// Refuses a drive that a volume or pool uses, which must not be written to directly. `instead`
/// is what the user can do with the volume.
pub(crate) fn refuse_member(connection: &mut Connection, location: &Location, instead: &str) -> Result<(), Failure> {
    let user = connection.user().map_err(failure)?;
    user.map_or(Ok(()), |user| Err(remedies::used_by(&user, &location.to_string(), instead)))
}

/// Closes a connection.
pub(crate) fn close(connection: Connection) -> Result<(), Failure> {
    connection.close().map_err(failure)
}

/// Converts an error of a drive.
pub(crate) fn failure(error: DriveError) -> Failure {
    // Some messages end with their remedy.
    let message = error.message.strip_suffix(error.help.as_str()).map(|message| message.trim_end_matches([';', ' ']));
    let message = message.unwrap_or(&error.message).to_owned();
    Failure::input(message, error.help)
}

/// Converts an error of a drive; the remedy does not name options that the user has given.
pub(crate) fn failure_without(mut error: DriveError, given: &[&str], otherwise: &str) -> Failure {
    error.help = remedies::without(&error.help, given, otherwise);
    failure(error)
}

/// Carries out one operation; `request` names it in the error message, after "refuses".
pub(crate) fn execute(connection: &mut Connection, operation: Operation, request: &str) -> Result<Outcome, Failure> {
    execute_or(connection, operation, request, |_| None)
}

/// The same with the remedies of this operation, where it has one for a status.
pub(crate) fn execute_or(
    connection: &mut Connection,
    operation: Operation,
    request: &str,
    own_remedy: impl FnOnce(Status) -> Option<&'static str>,
) -> Result<Outcome, Failure> {
    let completion = connection.execute(operation).map_err(failure)?;
    let status = completion.status;
    if status.is_success() {
        return Ok(completion.outcome);
    }
    let help = own_remedy(status).unwrap_or_else(|| remedy(status));
    Err(Failure::input(format!("the drive refuses {request}: {status}"), help))
}

/// The remedy for a command that failed with this status.
pub(crate) fn remedy(status: Status) -> &'static str {
    match status {
        Status::TooManyActiveZones => "finish or reset an open or closed zone, then try again",
        Status::TooManyOpenZones => "close an open zone, then try again",
        Status::InvalidZoneStateTransition => "check the state of the zone with zonda zone report",
        Status::ZoneIsOffline | Status::ZoneIsReadOnly => "the medium of the zone has failed: use another zone",
        Status::ReservationConflict => remedies::RESERVED,
        Status::AbortedPowerLoss | Status::NamespaceNotReady => {
            "the connection was lost: check that the server is running, then try again"
        }
        Status::NamespaceWriteProtected => {
            "the namespace is served read-only (zonda status): remove read_only from the configuration of its server"
        }
        _ => "see the log of the server",
    }
}

/// Descriptors of `count` zones starting at `first`, in several reports if they do not fit into one
/// transfer.
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
                return Err(Failure::input("the drive reports fewer zones than it has", "check the log of the server"));
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

    /// The rendered message and remedy.
    fn shown(failure: Failure) -> String {
        let Failure::Input(text) = failure else { panic!("{failure:?} is not about the input") };
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_status_has_the_remedy_for_its_own_cause() {
        for (status, words) in [
            // Active: a zone that is merely closed still counts. Open: closing one is enough.
            (Status::TooManyActiveZones, &["finish or reset an open or closed zone"][..]),
            (Status::TooManyOpenZones, &["close an open zone"]),
            (Status::InvalidZoneStateTransition, &["zonda zone report"]),
            (Status::ZoneIsOffline, &["medium", "use another zone"]),
            (Status::ZoneIsReadOnly, &["medium", "use another zone"]),
            (Status::AbortedPowerLoss, &["connection was lost", "server is running"]),
            (Status::NamespaceNotReady, &["connection was lost", "server is running"]),
            (Status::InternalError, &["see the log"]),
        ] {
            let remedy = remedy(status);
            assert!(words.iter().all(|word| remedy.contains(word)), "{status}: {remedy}");
            // No remedy names the cause of another status.
            let others = ["finish or reset", "close an open", "zone report", "medium", "connection", "log of"];
            let causes = others.iter().filter(|cause| remedy.contains(*cause)).count();
            assert_eq!(causes, 1, "{status}: {remedy}");
        }
    }

    #[test]
    fn a_wrong_name_and_a_wrong_secret_have_their_own_remedies() {
        let name = ConnectArgs { host_nqn: Some("me".to_owned()), ..ConnectArgs::default() };
        let name = shown(name.options().expect_err("not a valid NQN"));
        assert!(
            name.contains("\"me\"") && name.contains("/etc/nvme/hostnqn") && !name.contains("zonda secret"),
            "{name}"
        );
        let file = tempfile::NamedTempFile::new().expect("there is space for an empty file");
        let path = file.path().to_str().expect("a path in UTF-8");
        for is_controller in [false, true] {
            let file = Some(path.to_owned());
            let secret = match is_controller {
                false => ConnectArgs { secret_file: file, ..ConnectArgs::default() },
                true => ConnectArgs { controller_secret_file: file, ..ConnectArgs::default() },
            };
            let secret = shown(secret.options().expect_err("not a valid secret"));
            assert!(secret.contains("generate one: zonda secret") && !secret.contains("hostnqn"), "{secret}");
        }
    }

    #[test]
    fn a_remedy_that_the_message_repeats_is_shown_once() {
        let text = shown(failure(DriveError::new("the port is closed; start the server", "start the server")));
        assert_eq!(text.matches("start the server").count(), 1, "{text}");
        let text = shown(failure(DriveError::new("the port is closed", "start the server")));
        assert!(text.contains("the port is closed") && text.contains("start the server"), "{text}");
    }
}
