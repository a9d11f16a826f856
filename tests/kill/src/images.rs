//! The two images of a run, and how they are served.

use crate::loss::RunError;
use crate::server::{Launcher, free_port};

/// Zones of the zoned image.
pub(crate) const ZONES: u32 = 42;
/// Blocks of each: 4 MiB, so that zones are filled, finished and reset all the time.
pub(crate) const ZONE_BLOCKS: u64 = 1024;
/// Hosts with zones: each has every third zone.
pub(crate) const HOSTS: u32 = 3;
/// Blocks of the conventional image: 64 MiB.
pub(crate) const PLAIN_BLOCKS: u64 = PLAIN_ZONES * ZONE_BLOCKS;

const PLAIN_ZONES: u64 = 16;
/// Active zones of the profile `zn540`.
const ACTIVE_MAX: usize = 14;
const ZONED: &str = "zoned";
const PLAIN: &str = "plain";
const CONFIG: &str = "zonda.toml";
const SUBSYSTEM: &str = "nqn.2026-01.io.zonda:both";

/// The images that a server exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The zoned image alone, named on the command line.
    Zoned,
    /// Both images as namespaces of one subsystem, by a `zonda.toml`.
    Both,
}

/// Images, and the port on which they are served.
#[derive(Clone, Debug)]
pub(crate) struct Images {
    port: u16,
}

impl Images {
    /// Creates them, and the configuration file of their server.
    ///
    /// # Errors
    /// When that fails.
    pub(crate) fn create(launcher: &Launcher) -> Result<Images, RunError> {
        let port = free_port()?;
        let (zones, plain_zones) = (ZONES.to_string(), PLAIN_ZONES.to_string());
        for (name, profile, zones) in [(ZONED, "zn540", &zones), (PLAIN, "conventional", &plain_zones)] {
            let create = ["drive", "create", name, "--profile", profile, "--zones", zones, "--zone-capacity", "4MiB"];
            launcher.run(&create)?;
        }
        let mut config = format!("[server]\nlisten = \"127.0.0.1:{port}\"\n\n[[subsystem]]\nnqn = \"{SUBSYSTEM}\"\n");
        for name in [ZONED, PLAIN] {
            config += &format!("\n  [[subsystem.namespace]]\n  image = \"{name}\"\n");
        }
        let file = launcher.directory.join(CONFIG);
        std::fs::write(&file, config).map_err(|error| RunError::Failed(format!("{}: {error}", file.display())))?;
        Ok(Images { port })
    }

    /// The arguments of `zonda serve`.
    #[must_use]
    pub(crate) fn arguments(&self, shape: Shape) -> Vec<String> {
        match shape {
            Shape::Zoned => vec![ZONED.to_owned(), "--listen".to_owned(), format!("127.0.0.1:{}", self.port)],
            Shape::Both => vec!["--config".to_owned(), CONFIG.to_owned()],
        }
    }

    /// The names of the served images.
    #[must_use]
    pub(crate) fn names(&self, shape: Shape) -> &'static [&'static str] {
        if shape == Shape::Both { &[ZONED, PLAIN] } else { &[ZONED] }
    }

    /// The URL of the zoned image.
    #[must_use]
    pub(crate) fn zoned_url(&self, shape: Shape) -> String {
        match shape {
            Shape::Zoned => format!("nvme-tcp://127.0.0.1:{}/nqn.2026-01.io.zonda:{ZONED}", self.port),
            Shape::Both => format!("nvme-tcp://127.0.0.1:{}/{SUBSYSTEM}", self.port),
        }
    }

    /// The URL of the conventional image.
    #[must_use]
    pub(crate) fn plain_url(&self) -> String {
        format!("nvme-tcp://127.0.0.1:{}/{SUBSYSTEM}?namespace=2", self.port)
    }

    /// Active zones that the zoned image can have.
    #[must_use]
    pub(crate) fn active_max(&self) -> usize {
        ACTIVE_MAX
    }
}
