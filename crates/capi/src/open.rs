//! Opening a namespace: exclusive or shared.

use rustix::io::Errno;
use zonda_devices::{Connection, DriveError, Location, NamespaceOptions, SharedConnection};

use crate::failure::Failure;
use crate::handle::Namespace;
use crate::layout::Sharing;
use crate::own::Own;

/// Opens a namespace.
pub(crate) fn open(location: &str, options: &NamespaceOptions, sharing: Sharing) -> Result<Namespace, Failure> {
    let location: Location = location
        .parse()
        .map_err(|error: zonda_config::ConfigError| Failure::invalid(error.message, error.help.unwrap_or_default()))?;
    let is_local = !matches!(location, Location::NvmeTcp(_));
    let queues = if is_local { 1 } else { usize::from(options.io_queues) };
    let commands_max = queues * usize::from(options.queue_depth);
    let is_shared = match sharing {
        Sharing::Auto => is_local,
        Sharing::Yes => true,
        Sharing::No => false,
    };
    let failure = |error| failure(&location, error);
    if is_shared {
        let shared = SharedConnection::open(&location, options).map_err(failure)?;
        let geometry = shared.geometry().clone();
        return Ok(Namespace::new(Box::new(shared), geometry, commands_max));
    }
    let connection = Connection::open(&location, options).map_err(failure)?;
    let geometry = connection.geometry().clone();
    Ok(Namespace::new(Box::new(Own::new(connection)), geometry, commands_max))
}

fn failure(location: &Location, error: DriveError) -> Failure {
    let failure = Failure::of(error);
    match location {
        Location::Image(path) | Location::Device(path) if !path.exists() => Failure { errno: Errno::NOENT, ..failure },
        _ => failure,
    }
}
