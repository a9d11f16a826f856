//! [`Source`]: where the figures come from: the HTTP address of a server, or the control socket in the
//! directory of a volume or pool.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zonda_devices::{CONTROL_SOCKET, is_pool, is_volume};
use zonda_exports::snapshot::Snapshot;

use crate::commands::control_client::{exchange, socket_of_server};
use crate::commands::serve::control::{STATUS_REQUEST, StatusAnswer};
use crate::commands::status::{Unreachable, fetch_with_zones};
use crate::errors::Failure;
use crate::remedies;

/// Timeout of a request to a control socket.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A server.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// At this HTTP address.
    Http(String),
    /// That of the volume or pool in this directory.
    Directory(PathBuf),
}

impl Source {
    /// The server that the user has named.
    pub(super) fn of(server: &str) -> Result<Source, Failure> {
        let directory = Path::new(server);
        if is_pool(directory) || is_volume(directory) {
            // The server of the directory must exist at the start; later it may be restarted.
            if socket_of_server(directory)?.is_none() {
                return Err(no_server(directory).into());
            }
            return Ok(Source::Directory(directory.to_owned()));
        }
        if let Some(what) = remedies::drive_at(directory) {
            return Err(Failure::input(
                format!("{server} is {what}, which has no control socket"),
                "give the HTTP address of its server, which it prints as metrics when it starts; directories are those of \
                 pools and volumes",
            ));
        }
        if directory.exists() {
            let message = format!("{server} is not the directory of a pool or volume");
            return Err(Failure::input(message, "give such a directory, or the HTTP address of a server"));
        }
        Ok(Source::Http(server.to_owned()))
    }

    /// Its name for the user.
    pub(super) fn name(&self) -> String {
        match self {
            Source::Http(address) => address.clone(),
            Source::Directory(directory) => directory.display().to_string(),
        }
    }

    /// The state of the server, with the zone maps of drives.
    pub(super) fn fetch(&self) -> Result<Snapshot, Unreachable> {
        match self {
            Source::Http(address) => fetch_with_zones(address),
            Source::Directory(directory) => of_directory(directory),
        }
    }
}

fn of_directory(directory: &Path) -> Result<Snapshot, Unreachable> {
    // Whether the directory is in use is asked each time: the server may have been restarted.
    let socket = socket_of_server(directory).map_err(|_| {
        let socket = directory.join(CONTROL_SOCKET);
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        because(directory, &error.to_string(), &format!("run zonda as a user that may connect to {}", socket.display()))
    })?;
    let socket = socket.ok_or_else(|| no_server(directory))?;
    match exchange(&socket, &STATUS_REQUEST, TIMEOUT) {
        Ok(StatusAnswer::Status(snapshot)) => Ok(*snapshot),
        Ok(StatusAnswer::Error { message, help }) => Err(because(directory, &message, &help)),
        Err(error) => Err(because(directory, &error, "see the log of the server, and try again")),
    }
}

fn no_server(directory: &Path) -> Unreachable {
    let shown = directory.display();
    because(
        directory,
        "no server uses it",
        &format!("start one: zonda serve {shown}; or give the HTTP address of a server"),
    )
}

fn because(directory: &Path, reason: &str, help: &str) -> Unreachable {
    let message = format!("cannot read the status of the server of {}: {reason}", directory.display());
    Unreachable { message, reason: reason.to_owned(), help: help.to_owned() }
}
