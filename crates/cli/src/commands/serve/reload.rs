//! Reads the configuration file again on SIGHUP.

use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use zonda_exports::Handle;

use super::{ServeArgs, plan};

/// Timeout of a reload: the drives of new namespaces are opened.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Starts the thread that reloads the configuration, one reload after the other. `None` if the
/// server has no configuration file that can be read again.
pub(super) fn start(args: &ServeArgs, handle: &Handle) -> Option<Sender<()>> {
    let path = args.config.clone().filter(|path| path != "-")?;
    let (requests, receiver) = mpsc::channel();
    let (args, handle) = (args.clone(), handle.clone());
    thread::spawn(move || {
        while receiver.recv().is_ok() {
            reload(&args, &path, &handle);
        }
    });
    Some(requests)
}

fn reload(args: &ServeArgs, path: &str, handle: &Handle) {
    let plan = match plan::of(args) {
        Ok(plan) => plan,
        Err(failure) => {
            tracing::error!("{path} is not reloaded, and the server continues as before:");
            failure.report();
            return;
        }
    };
    match handle.reload(plan, TIMEOUT) {
        Some(Ok(changes)) if changes.is_empty() => tracing::info!("reloaded {path}: no changes"),
        Some(Ok(changes)) => changes.iter().for_each(|change| tracing::info!("reloaded {path}: {change}")),
        Some(Err(error)) => {
            tracing::error!(
                "{path} is not reloaded, and the server continues as before: {}; {}",
                error.message,
                error.help
            );
        }
        None => tracing::error!("{path} is not reloaded: the server has stopped, or does not answer within 2 minutes"),
    }
}
