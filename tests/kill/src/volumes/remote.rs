//! A member behind a server of its own.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use zonda_zoned::Prng;

use super::disk;
use super::link::Link;
use crate::loss::Trouble;
use crate::server::{Launcher, Server, free_port};

/// Where its image and its log are, seen from the directory of a run.
const FOLDER: &str = "remote";
const IMAGE: &str = "last";
/// The longest time for which it is not what it should be.
const ATTACK_MS_MAX: u64 = 1_500;
/// Of 1000 commands, how many fail.
const ERRORS_PER_MILLE: [u32; 3] = [20, 200, 1000];

/// The member, its server, and the network in between.
#[derive(Debug)]
pub(super) struct Remote {
    launcher: Launcher,
    server: Option<Server>,
    port: u16,
    link: Link,
}

/// What can be done to it while it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemoteAttack {
    /// Its server is killed, and started again.
    Kill,
    /// Its server is stopped for a while.
    Pause,
    /// Connections end, and new ones are refused for a while.
    Cut,
    /// So many commands of 1000 fail.
    Errors(u32),
}

impl RemoteAttack {
    /// One of them, and for how long.
    pub(super) fn draw(prng: &mut Prng) -> (RemoteAttack, Duration) {
        let attack = match prng.below(4) {
            0 => RemoteAttack::Kill,
            1 => RemoteAttack::Pause,
            2 => RemoteAttack::Cut,
            _ => RemoteAttack::Errors(*prng.pick(&ERRORS_PER_MILLE).expect("there are rates")),
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
    /// Makes an image and serves it.
    ///
    /// # Errors
    /// When that does not succeed.
    pub(super) fn create(launcher: &Launcher, seed: u64) -> Result<Remote, Trouble> {
        let directory = launcher.directory.join(FOLDER);
        std::fs::create_dir_all(&directory)
            .map_err(|error| Trouble::Stuck(format!("{}: {error}", directory.display())))?;
        let launcher = Launcher { directory, ..launcher.clone() };
        disk::create(&launcher, IMAGE.to_owned())?;
        let port = free_port()?;
        let link = Link::to(port, seed).map_err(|error| Trouble::Stuck(format!("a relay: {error}")))?;
        let mut remote = Remote { launcher, server: None, port, link };
        remote.start()?;
        Ok(remote)
    }

    /// Where the volume finds it.
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
    /// When the server does not start. A member is served by force: its server does not know the volume.
    pub(super) fn start(&mut self) -> Result<(), Trouble> {
        if self.server.is_none() {
            self.server = Some(self.launcher.start(&self.arguments())?);
        }
        Ok(())
    }

    /// The same where its image may be damaged: one that cannot be opened is not there for the volume.
    ///
    /// # Errors
    /// When the server does not start, and does not say why.
    pub(super) fn start_if_possible(&mut self) -> Result<(), Trouble> {
        if self.server.is_none() {
            self.server = self.launcher.start_or_refuse(&self.arguments())?.ok();
        }
        Ok(())
    }

    /// Kills its server.
    ///
    /// # Errors
    /// When it had ended by itself.
    pub(super) fn stop(&mut self) -> Result<(), Trouble> {
        self.server.take().map_or(Ok(()), Server::kill)
    }

    /// Does this to it for so long; then it is as it was.
    ///
    /// # Errors
    /// When its server cannot be killed, paused or started again.
    pub(super) fn suffer(&mut self, attack: RemoteAttack, time: Duration) -> Result<(), Trouble> {
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

    /// Commands that were made to fail since this was asked last.
    pub(super) fn take_injected(&self) -> u32 {
        self.link.take_injected()
    }
}
