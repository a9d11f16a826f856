//! Servers that export members, and two directories of one volume with a server each.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::loss::{Loss, RunError};
use crate::server::{Launcher, Server, free_port};

/// The directory of the volume, in the folder of each side.
pub(super) const VOLUME: &str = "vol";
/// The folders of the two sides.
const SIDES: [&str; 2] = ["first", "second"];
const ZONES: &str = "24";
/// How long a server may take to detect that its volume was taken over, or to resynchronize a
/// member.
const STATE_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// A server with images that are members of volumes elsewhere.
pub(super) struct Drives {
    launcher: Launcher,
    names: Vec<&'static str>,
    port: u16,
    server: Option<Server>,
}

impl Drives {
    /// Creates images in a new folder, and serves them.
    ///
    /// # Errors
    /// When that fails.
    pub(super) fn create(launcher: &Launcher, folder: &str, names: &[&'static str]) -> Result<Drives, RunError> {
        let launcher = within(launcher, folder)?;
        for name in names {
            create_image(&launcher, name)?;
        }
        let mut drives = Drives { launcher, names: names.to_vec(), port: free_port()?, server: None };
        drives.start()?;
        Ok(drives)
    }

    /// The URL of an image.
    pub(super) fn url(&self, name: &str) -> String {
        format!("nvme-tcp://127.0.0.1:{}/nqn.2026-01.io.zonda:{name}", self.port)
    }

    /// Kills the server, and restarts it after a delay.
    ///
    /// # Errors
    /// When it had ended by itself, or does not start.
    pub(super) fn restart(&mut self, after: Duration) -> Result<(), RunError> {
        self.kill()?;
        sleep(after);
        self.start()
    }

    fn kill(&mut self) -> Result<(), RunError> {
        self.server.take().map_or(Ok(()), Server::kill)
    }

    fn start(&mut self) -> Result<(), RunError> {
        let mut arguments: Vec<String> = self.names.iter().map(|&name| name.to_owned()).collect();
        // Its images are members of a volume that it does not serve.
        arguments.extend(["--force".to_owned(), "--listen".to_owned(), format!("127.0.0.1:{}", self.port)]);
        self.server = Some(self.launcher.start(&arguments)?);
        Ok(())
    }
}

/// One directory of the volume.
pub(super) struct Side {
    pub(super) launcher: Launcher,
    port: u16,
    nbd_port: u16,
}

impl Side {
    /// Serves the volume, or returns why that was refused.
    ///
    /// # Errors
    /// When the server neither starts nor prints an error.
    pub(super) fn serve(&self) -> Result<Result<Server, String>, RunError> {
        let [nvme, nbd] = [self.port, self.nbd_port].map(|port| format!("127.0.0.1:{port}"));
        self.launcher.start_or_refuse(&[VOLUME.to_owned(), "--listen".to_owned(), nvme, "--nbd".to_owned(), nbd])
    }

    /// Its URL for hosts.
    pub(super) fn url(&self, is_nbd: bool) -> String {
        if is_nbd {
            format!("nbd://127.0.0.1:{}/{VOLUME}", self.nbd_port)
        } else {
            format!("nvme-tcp://127.0.0.1:{}/nqn.2026-01.io.zonda:{VOLUME}", self.port)
        }
    }

    /// Takes the volume over. Returns the previous holder of each member. One member may be `away`.
    ///
    /// # Errors
    /// When not all members are reserved afterwards.
    pub(super) fn take_over(&self, away: Option<&str>) -> Result<Vec<Option<String>>, RunError> {
        let text = match self.launcher.run(&["volume", "takeover", VOLUME, "--json"]) {
            // Exit code 1: not all members are reserved, which the JSON shows too.
            Err(RunError::Failed(text)) if text.contains("\"drives\"") => text,
            other => other?,
        };
        let report: Value =
            serde_json::from_str(text.lines().find(|line| line.starts_with('{')).unwrap_or_default())
                .map_err(|error| RunError::Failed(format!("the report is not valid JSON ({error}): {text}")))?;
        let drives = report["drives"].as_array().map_or(&[][..], |drives| &drives[..]);
        let is_reached = |drive: &&Value| drive["at"].as_str() != away;
        if drives.is_empty() || drives.iter().filter(is_reached).any(|drive| !drive["error"].is_null()) {
            return Err(RunError::lost(Loss::new("takeover", "all members reserved", report)));
        }
        Ok(drives.iter().map(|drive| drive["taken_from"].as_str().map(str::to_owned)).collect())
    }

    /// Starts a takeover, and kills the program a little later.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn take_over_and_kill(&self, after: Duration) -> Result<(), RunError> {
        let failed = |error: std::io::Error| RunError::Failed(format!("cannot start a takeover: {error}"));
        let mut command = Command::new(&self.launcher.program);
        command.args(["volume", "takeover", VOLUME, "--json"]).current_dir(&self.launcher.directory);
        let mut child: Child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(failed)?;
        sleep(after);
        // It may have exited by itself.
        let _ = child.kill();
        child.wait().map_err(failed)?;
        Ok(())
    }

    /// The output of `zonda volume status`.
    ///
    /// # Errors
    /// When it fails.
    pub(super) fn status(&self) -> Result<Value, RunError> {
        status_of(&self.launcher)
    }

    /// Whether members stay reserved for this side when its server stops.
    ///
    /// # Errors
    /// When its `volume.toml` cannot be read.
    pub(super) fn stays_reserved(&self) -> Result<bool, RunError> {
        let file = self.launcher.directory.join(VOLUME).join("volume.toml");
        let text =
            fs::read_to_string(&file).map_err(|error| RunError::Failed(format!("{}: {error}", file.display())))?;
        Ok(text.lines().any(|line| line == "stays_reserved = true"))
    }

    /// Releases the reservations of this side.
    ///
    /// # Errors
    /// When that fails.
    pub(super) fn release(&self) -> Result<(), RunError> {
        self.launcher.run(&["volume", "takeover", VOLUME, "--release"]).map(|_| ())
    }

    /// Waits until its server reports this state of the volume.
    ///
    /// # Errors
    /// On timeout.
    pub(super) fn wait_until(&self, state: &str) -> Result<(), RunError> {
        let deadline = Instant::now() + STATE_TIMEOUT;
        loop {
            let status = self.status()?;
            if status["state"] == state {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(RunError::lost(Loss::new("status", format!("state {state} within 30 s"), status)));
            }
            sleep(POLL);
        }
    }

    fn file(&self) -> PathBuf {
        self.launcher.directory.join(VOLUME).join("volume.toml")
    }
}

/// All servers of a run.
pub(super) struct Site {
    pub(super) drives: Vec<Drives>,
    pub(super) sides: [Side; 2],
}

impl Site {
    /// A volume of three members behind two servers, and a copy of its directory.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(super) fn create(launcher: &Launcher) -> Result<Site, RunError> {
        let drives =
            vec![Drives::create(launcher, "drives1", &["a", "b"])?, Drives::create(launcher, "drives2", &["c"])?];
        let sides = [side(launcher, SIDES[0])?, side(launcher, SIDES[1])?];
        let members = [drives[0].url("a"), drives[0].url("b"), drives[1].url("c")].join(",");
        sides[0].launcher.run(&["volume", "create", VOLUME, "--members", &members, "--level", "5"])?;
        let directory = sides[1].launcher.directory.join(VOLUME);
        fs::create_dir(&directory).map_err(|error| RunError::Failed(format!("{}: {error}", directory.display())))?;
        let site = Site { drives, sides };
        site.copy(0)?;
        Ok(site)
    }

    /// Kills the server of the last member. Returns the URL of that member.
    ///
    /// # Errors
    /// When it had exited by itself.
    pub(super) fn stop_member(&mut self) -> Result<String, RunError> {
        self.drives[1].kill()?;
        Ok(self.drives[1].url("c"))
    }

    /// Restarts it.
    ///
    /// # Errors
    /// When it does not start.
    pub(super) fn start_member(&mut self) -> Result<(), RunError> {
        self.drives[1].start()
    }

    /// Copies the `volume.toml` of this side to the other one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn copy(&self, from: usize) -> Result<(), RunError> {
        let (from, to) = (self.sides[from].file(), self.sides[1 - from].file());
        fs::copy(&from, &to).map(|_| ()).map_err(|error| RunError::Failed(format!("{}: {error}", to.display())))
    }
}

/// Pauses a server.
///
/// # Errors
/// When it had exited by itself.
pub(super) fn pause(server: &Server) -> Result<(), RunError> {
    server.signal(Signal::STOP)
}

/// Resumes a server.
///
/// # Errors
/// When it had exited by itself.
pub(super) fn wake(server: &Server) -> Result<(), RunError> {
    server.signal(Signal::CONT)
}

/// The output of `zonda volume status` for the volume in this launcher's directory.
///
/// # Errors
/// When it fails.
pub(super) fn status_of(launcher: &Launcher) -> Result<Value, RunError> {
    let text = match launcher.run(&["volume", "status", VOLUME, "--json"]) {
        // Exit code 1: the volume is degraded, which the JSON shows too.
        Err(RunError::Failed(text)) if text.contains("\"state\"") => text,
        other => other?,
    };
    let json = text.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(json)
        .map_err(|error| RunError::Failed(format!("the status is not valid JSON ({error}): {text}")))
}

/// Creates an image in the directory of this launcher.
///
/// # Errors
/// When the program refuses.
pub(super) fn create_image(launcher: &Launcher, name: &str) -> Result<(), RunError> {
    let create = ["drive", "create", name, "--profile", "zn540-zapraid", "--zones", ZONES, "--zone-capacity", "1MiB"];
    launcher.run(&create).map(|_| ())
}

/// A launcher for a folder in the directory of this one.
///
/// # Errors
/// When the folder cannot be created.
pub(super) fn within(launcher: &Launcher, folder: &str) -> Result<Launcher, RunError> {
    let directory = launcher.directory.join(folder);
    fs::create_dir_all(&directory).map_err(|error| RunError::Failed(format!("{}: {error}", directory.display())))?;
    Ok(Launcher { directory, ..launcher.clone() })
}

/// A folder with its own volume and ports for its server.
///
/// # Errors
/// When the folder cannot be created, or no port is free.
pub(super) fn side(launcher: &Launcher, folder: &str) -> Result<Side, RunError> {
    Ok(Side { launcher: within(launcher, folder)?, port: free_port()?, nbd_port: free_port()? })
}
