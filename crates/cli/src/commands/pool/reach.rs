//! Access to a pool: through the control socket of a server on this machine, or opened in this
//! process.

use std::path::Path;
use std::time::Duration;

use zonda_devices::{DriveError, PoolDrive, PoolReport, PoolRequest, is_pool};
use zonda_ring::Ring;

use crate::commands::serve::control::PoolAnswer;
use crate::commands::{connect, control_client, volume};
use crate::errors::Failure;
use crate::remedies;

/// Timeout of a request to a server, which may have to reset many zones.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The state of a pool, as its server or, if it is not in use, its drive reports it. Nothing is
/// changed.
pub(super) fn inspect(directory: &Path) -> Result<PoolReport, Failure> {
    refuse_others(directory)?;
    if let Some(report) = ask(directory, &PoolRequest::Report)? {
        return Ok(report);
    }
    PoolReport::inspect(directory).map_err(|error| failure(directory, error))
}

/// Changes a pool. Returns its state afterwards, and whether a server uses it.
pub(super) fn change(directory: &Path, request: &PoolRequest) -> Result<(PoolReport, bool), Failure> {
    refuse_others(directory)?;
    if let Some(report) = ask(directory, request)? {
        return Ok((report, true));
    }
    let ring = ring()?;
    let pool = PoolDrive::open(directory, &ring).map_err(|error| failure(directory, error))?;
    let changed = pool.manage(request, &ring).map_err(|error| failure(directory, error));
    let closed = pool.close(&ring).map_err(connect::failure);
    let report = changed?;
    closed?;
    Ok((report, false))
}

/// Refuses an image or a volume where the new directory of a pool is expected.
pub(super) fn must_be_new(directory: &Path) -> Result<(), Failure> {
    match remedies::drive_at(directory) {
        Some(what) if !is_pool(directory) => Err(Failure::input(
            format!("{} is {what}", directory.display()),
            "DIR is the new directory of the pool: choose one that is empty or does not exist, and name the drive with \
             --drive",
        )),
        _ => Ok(()),
    }
}

pub(super) fn ring() -> Result<Ring, Failure> {
    volume::reach::ring()
}

/// Refuses an image or a volume where the directory of a pool is expected.
pub(super) fn refuse_others(directory: &Path) -> Result<(), Failure> {
    match remedies::drive_at(directory) {
        Some(what) if !is_pool(directory) => {
            let help = "give the directory of a pool, which zonda pool create creates";
            Err(Failure::input(format!("{} is {what}, not of a pool", directory.display()), help))
        }
        _ => Ok(()),
    }
}

fn failure(directory: &Path, mut error: DriveError) -> Failure {
    error.help = remedies::in_directory(&error.help, directory);
    connect::failure(error)
}

/// Sends a request to the server of the pool, if there is one, and reads the answer.
fn ask(directory: &Path, request: &PoolRequest) -> Result<Option<PoolReport>, Failure> {
    let Some(socket) = control_client::socket_of_server(directory)? else { return Ok(None) };
    let answer = control_client::exchange(&socket, request, TIMEOUT).map_err(|why| {
        let help = "the server is overloaded or paused, or was stopped: see its log, and list the namespaces before you try \
                    again; if it never responds, stop and restart it";
        Failure::broken(format!("no answer from the server of the pool: {why}"), help)
    })?;
    match answer {
        PoolAnswer::Report(report) => Ok(Some(*report)),
        // Its namespaces were removed from the configuration.
        PoolAnswer::NotServed => Ok(None),
        PoolAnswer::Error { message, help } => Err(failure(directory, DriveError::new(message, help))),
    }
}
