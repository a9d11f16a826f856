//! Ctrl-C ends a measurement with the results so far.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::errors::Failure;

/// The exit code of a program that SIGINT has ended.
const INTERRUPTED: i32 = 130;

/// Whether SIGINT or SIGTERM has arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the handlers. A second signal ends the program, for drives that do not answer.
    pub(super) fn install() -> Result<Interrupt, Failure> {
        let failed = |error: std::io::Error| {
            Failure::input(
                format!("cannot install a signal handler: {error}"),
                "raise the limit of open files (ulimit -n)",
            )
        };
        let runtime = Builder::new_current_thread().enable_io().build().map_err(failed)?;
        let inside = runtime.enter();
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt()).map_err(failed)?, signal(SignalKind::terminate()).map_err(failed)?);
        drop(inside);
        let own = Interrupt::default();
        let shared = own.clone();
        thread::spawn(move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    if shared.0.swap(true, Ordering::Relaxed) {
                        std::process::exit(INTERRUPTED);
                    }
                }
            });
        });
        Ok(own)
    }

    pub(super) fn has_arrived(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
