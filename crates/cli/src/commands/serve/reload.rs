//! Reads the configuration file again on SIGHUP.

use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zonda_exports::Handle;
use zonda_exports::snapshot::{ConfigurationSnapshot, ReloadSnapshot};

use super::{ServeArgs, plan};
use crate::errors::Failure;
use crate::files;

/// Timeout of a reload: the drives of new namespaces are opened.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// Starts the thread that reloads the configuration, one reload after the other. `None` if the
/// server has no configuration file that can be read again.
pub(super) fn start(args: &ServeArgs, handle: &Handle) -> Option<Sender<()>> {
    let path = args.config.clone().filter(|path| path != "-")?;
    let (requests, receiver) = mpsc::channel();
    let (args, handle) = (args.clone(), handle.clone());
    let mut state = ConfigurationSnapshot { file: files::shown(&path).to_owned(), reloads: 0, last_reload: None };
    handle.set_configuration(state.clone());
    thread::spawn(move || {
        while receiver.recv().is_ok() {
            state.reloads += 1;
            state.last_reload = Some(reload(&args, &path, &handle));
            handle.set_configuration(state.clone());
        }
    });
    Some(requests)
}

/// Reloads, logs the result, and returns it.
fn reload(args: &ServeArgs, path: &str, handle: &Handle) -> ReloadSnapshot {
    let result = plan::of(args).and_then(|plan| match handle.reload(plan, TIMEOUT) {
        Some(Ok(changes)) => Ok(changes),
        Some(Err(error)) => Err(Failure::broken(error.message, error.help)),
        None => Err(Failure::broken("the server has stopped, or does not answer within 2 minutes", "")),
    });
    // A clock before 1970 is wrong anyway.
    let unix_time_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match result {
        Ok(changes) => {
            if changes.is_empty() {
                tracing::info!("reloaded {path}: no changes");
            }
            changes.iter().for_each(|change| tracing::info!("reloaded {path}: {change}"));
            ReloadSnapshot { unix_time_s, changes, error: None }
        }
        Err(failure) => {
            tracing::error!("{path} is not reloaded, and the server continues as before:");
            let error = Some(failure.text_without_source());
            failure.report();
            ReloadSnapshot { unix_time_s, changes: Vec::new(), error }
        }
    }
}
