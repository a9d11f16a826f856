//! The drive of a run, its pool, and how its namespaces are served.

use std::fmt::Write as _;
use std::fs;

use zonda_devices::{PoolNamespaceReport, PoolReport};

use crate::loss::RunError;
use crate::server::{Launcher, free_port};
use crate::space::Space;

/// Zones of the drive: enough for all namespaces at their largest.
const DRIVE_ZONES: u32 = 300;
/// Small enough that zones are filled and reset all the time.
const ZONE_CAPACITY: &str = "768KiB";
/// The profile whose drive has fewer active zones here.
const PROFILE: &str = "ezns-small";
/// With 45 active zones beside those of the log, a namespace that writes alone needs spares of
/// others for its widest groups.
const ACTIVE_MAX: u32 = 48;
const ESSENTIAL_ZONES: &str = "16";
const WIDTH_MAX: &str = "8";
/// Zones that are written, active zones and weight of a tenant, and of a guest.
const TENANT: (u32, u32, u32) = (8, 4, 2);
const GUEST: (u32, u32, u32) = (2, 1, 1);

/// The file system of the drive, and its size: more than the drive.
const SPACE: &str = "tmpfs";
const SPACE_MIB: u32 = 320;
const DRIVE: &str = "tmpfs/drive";
const PROFILE_FILE: &str = "drive.toml";
const POOL: &str = "pool";
const CONFIG: &str = "zonda.toml";

/// The kind of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It exists for the whole run.
    Tenant,
    /// It is created and deleted.
    Guest,
}

/// A pool on an image, and the port on which its namespaces are served.
#[derive(Debug)]
pub(super) struct Site {
    launcher: Launcher,
    port: u16,
    /// The file system of the drive.
    space: Result<Space, String>,
}

impl Kind {
    /// Zones of a new namespace, which its host writes. Those that are added later stay empty.
    pub(super) fn zones(self) -> u32 {
        self.numbers().0
    }

    /// Zones that may be active.
    pub(super) fn active_max(self) -> usize {
        self.numbers().1 as usize
    }

    fn numbers(self) -> (u32, u32, u32) {
        if self == Kind::Tenant { TENANT } else { GUEST }
    }

    /// The arguments that create a namespace of this kind.
    pub(super) fn creation(self, name: &str) -> Vec<String> {
        let (zones, active, weight) = self.numbers();
        let (zones, active, weight) = (zones.to_string(), active.to_string(), weight.to_string());
        let words =
            ["namespace", "create", POOL, name, "--zones", &zones, "--active", &active, "--weight", &weight, "--json"];
        words.map(str::to_owned).into()
    }
}

impl Site {
    /// Creates the drive and an empty pool on it.
    ///
    /// # Errors
    /// When that fails.
    pub(super) fn create(launcher: &Launcher) -> Result<Site, RunError> {
        let text = zonda_profiles::builtin_text(PROFILE).expect("it is a built-in profile");
        let mut profile = text.to_owned();
        for key in ["max_active_zones", "max_open_zones"] {
            let fewer = profile.replace(&format!("{key} = 256"), &format!("{key} = {ACTIVE_MAX}"));
            assert_ne!(fewer, profile, "the profile has 256 active zones");
            profile = fewer;
        }
        let file = launcher.directory.join(PROFILE_FILE);
        fs::write(&file, profile).map_err(|error| RunError::Failed(format!("{}: {error}", file.display())))?;
        let space = Space::mount(&launcher.directory.join(SPACE), SPACE_MIB);
        let zones = DRIVE_ZONES.to_string();
        let create =
            ["drive", "create", DRIVE, "--profile", PROFILE_FILE, "--zones", &zones, "--zone-capacity", ZONE_CAPACITY];
        launcher.run(&create)?;
        let create =
            ["pool", "create", POOL, "--drive", DRIVE, "--zones-per-vzone", WIDTH_MAX, "--width-max", WIDTH_MAX];
        launcher.run(&[&create[..], &["--essential-zones", ESSENTIAL_ZONES]].concat())?;
        Ok(Site { launcher: launcher.clone(), port: free_port()?, space })
    }

    /// The file system of the drive, if it could be mounted.
    pub(super) fn space(&self) -> Option<&Space> {
        self.space.as_ref().ok()
    }

    /// The file system of the drive has space.
    pub(super) fn free(&self) {
        if let Some(space) = self.space() {
            space.free();
        }
    }

    /// Why it could not.
    pub(super) fn skipped(&self) -> Option<&str> {
        self.space.as_ref().err().map(String::as_str)
    }

    /// Exports these namespaces, each as a subsystem. Returns the arguments of `zonda serve`.
    ///
    /// # Errors
    /// When the configuration cannot be written.
    pub(super) fn export<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<Vec<String>, RunError> {
        let mut config = format!("[server]\nlisten = \"127.0.0.1:{}\"\n", self.port);
        for name in names {
            let nqn = nqn(name);
            let _ = write!(
                config,
                "\n[[subsystem]]\nnqn = \"{nqn}\"\n\n  [[subsystem.namespace]]\n  pool = \"{POOL}\"\n  name = \"{name}\"\n"
            );
        }
        let file = self.launcher.directory.join(CONFIG);
        fs::write(&file, config).map_err(|error| RunError::Failed(format!("{}: {error}", file.display())))?;
        Ok(vec!["--config".to_owned(), CONFIG.to_owned()])
    }

    /// The URL of a namespace that is exported.
    pub(super) fn url(&self, name: &str) -> String {
        format!("nvme-tcp://127.0.0.1:{}/{}", self.port, nqn(name))
    }

    /// The state of the pool: its server reports it, or its drive.
    ///
    /// # Errors
    /// When `zonda pool show` fails.
    pub(super) fn show(&self) -> Result<PoolReport, RunError> {
        parsed(&self.launcher.run(&["pool", "show", POOL, "--json"])?)
    }

    /// The namespaces of the pool, which no server uses.
    ///
    /// # Errors
    /// When `zonda namespace list` fails.
    pub(super) fn list(&self) -> Result<Vec<PoolNamespaceReport>, RunError> {
        parsed(&self.launcher.run(&["namespace", "list", POOL, "--json"])?)
    }

    /// Checks the image, which no server uses; returns what is wrong.
    pub(super) fn damage(&self) -> Option<String> {
        match self.launcher.run(&["drive", "check", "--quiet", DRIVE]) {
            Ok(words) if words.contains("no damage") => None,
            Ok(words) => Some(words),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// The arguments that change the size of a namespace.
pub(super) fn resize(name: &str, zones: u32) -> Vec<String> {
    ["namespace", "resize", POOL, name, "--zones", &zones.to_string(), "--json"].map(str::to_owned).into()
}

/// The arguments that delete a namespace and its data.
pub(super) fn delete(name: &str) -> Vec<String> {
    ["namespace", "delete", POOL, name, "--yes"].map(str::to_owned).into()
}

fn nqn(name: &str) -> String {
    format!("nqn.2026-01.io.zonda:{name}")
}

fn parsed<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, RunError> {
    serde_json::from_str(text).map_err(|error| RunError::Failed(format!("{error}: {text}")))
}
