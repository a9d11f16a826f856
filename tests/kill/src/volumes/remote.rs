//! A member exported by its own server.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use zonda_zoned::Prng;

use super::disk;
use super::link::Link;
use crate::loss::RunError;
use crate::server::{Launcher, Server, free_port};

/// The directory of its image and its log, relative to that of the run.
const FOLDER: &str = "remote";
const IMAGE: &str = "last";
/// The longest duration of a fault.
const ATTACK_MS_MAX: u64 = 1_500;
/// Failing commands per 1000.
const ERRORS_PER_MILLE: [u32; 3] = [20, 200, 1000];

/// The member, its server, and the network to it.
#[derive(Debug)]
pub(super) struct Remote {
    launcher: Launcher,
    server: Option<Server>,
    port: u16,
    link: Link,
}

/// Faults of the member while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemoteAttack {
    /// Its server is killed, and restarted.
    Kill,
    /// Its server is paused for a while.
    Pause,
    /// Connections are closed, and new ones refused for a while.
    Cut,
    /// This many of 1000 commands fail.
    Errors(u32),
}

impl RemoteAttack {
    /// A random fault, and its duration.
    pub(super) fn random(prng: &mut Prng) -> (RemoteAttack, Duration) {
        let attack = match prng.below(4) {
            0 => RemoteAttack::Kill,
            1 => RemoteAttack::Pause,
            2 => RemoteAttack::Cut,
            _ => RemoteAttack::Errors(*prng.pick(&ERRORS_PER_MILLE).expect("not empty")),
        };
        (attack, Duration::from_millis(prng.below(ATTACK_MS_MAX)))
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            RemoteAttack::Kill => "remote member killed",
            RemoteAttack::Pause => "remote member paused",
            RemoteAttack::Cut => "remote member cut off",
            RemoteAttack::Errors(_) => "errors of the remote member",
        }
    }
}

impl Remote {
    /// Creates an image and serves it.
    ///
    /// # Errors
    /// When that fails.
    pub(super) fn create(launcher: &Launcher, seed: u64) -> Result<Remote, RunError> {
        let directory = launcher.directory.join(FOLDER);
        std::fs::create_dir_all(&directory)
            .map_err(|error| RunError::Failed(format!("{}: {error}", directory.display())))?;
        let launcher = Launcher { directory, ..launcher.clone() };
        disk::create(&launcher, IMAGE.to_owned())?;
        let port = free_port()?;
        let link = Link::to(port, seed).map_err(|error| RunError::Failed(format!("cannot start a relay: {error}")))?;
        let mut remote = Remote { launcher, server: None, port, link };
        remote.start()?;
        Ok(remote)
    }

    /// Its URL for the volume.
    pub(super) fn url(&self) -> String {
        format!("nvme-tcp://127.0.0.1:{}/nqn.2026-01.io.zonda:{IMAGE}", self.link.port())
    }

    /// Its image.
    pub(super) fn path(&self) -> PathBuf {
        self.launcher.directory.join(IMAGE)
    }

    /// Serves it, if it is not served.
    ///
    /// # Errors
    /// When the server does not start. It needs --force, since it does not serve the volume itself.
    pub(super) fn start(&mut self) -> Result<(), RunError> {
        if self.server.is_none() {
            self.server = Some(self.launcher.start(&self.arguments())?);
        }
        Ok(())
    }

    /// The same if its image may be damaged: an image that cannot be opened is missing for the
    /// volume.
    ///
    /// # Errors
    /// When the server does not start, and prints no error.
    pub(super) fn start_if_possible(&mut self) -> Result<(), RunError> {
        if self.server.is_none() {
            self.server = self.launcher.start_or_refuse(&self.arguments())?.ok();
        }
        Ok(())
    }

    /// Kills its server.
    ///
    /// # Errors
    /// When it had exited by itself.
    pub(super) fn stop(&mut self) -> Result<(), RunError> {
        self.server.take().map_or(Ok(()), Server::kill)
    }

    /// Injects a fault for this time, and ends it.
    ///
    /// # Errors
    /// When its server cannot be killed, paused or started again.
    pub(super) fn apply(&mut self, attack: RemoteAttack, time: Duration) -> Result<(), RunError> {
        match attack {
            RemoteAttack::Kill => {
                self.stop()?;
                sleep(time);
                self.start()?;
            }
            RemoteAttack::Pause => {
                if let Some(server) = &self.server {
                    server.pause(time)?;
                }
            }
            RemoteAttack::Cut => {
                self.link.cut();
                sleep(time);
            }
            RemoteAttack::Errors(per_mille) => {
                self.link.fail_commands(per_mille);
                sleep(time);
            }
        }
        self.link.restore();
        Ok(())
    }

    fn arguments(&self) -> [String; 4] {
        let listen = format!("127.0.0.1:{}", self.port);
        [IMAGE, "--listen", &listen, "--force"].map(str::to_owned)
    }

    /// Errors injected since the last call.
    pub(super) fn take_injected(&self) -> u32 {
        self.link.take_injected()
    }
}
