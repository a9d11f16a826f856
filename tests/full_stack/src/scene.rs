//! The subsystems of a test, served by zonda on this machine, or by the guest's own kernel instead.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use crate::guest::guest_or_skip;
use crate::job::Extent;
use crate::pool::{self, POOL_DRIVE};
use crate::server::{Server, create_drive, free_ports, zonda};
use crate::shared::GuestLease;
use crate::stage::Stage;

/// One scene at a time: a guest without its own core runs into timeouts of its kernel.
static STAGE: Mutex<()> = Mutex::new(());

/// The subsystems of a test.
#[derive(Debug)]
pub struct Scene {
    name: &'static str,
    extent: Extent,
    subsystems: Vec<Subsystem>,
    is_on_epoll: bool,
}

/// One NVM subsystem: `nqn.2026-01.io.zonda:NAME`.
#[derive(Debug)]
pub struct Subsystem {
    name: String,
    namespaces: Vec<Namespace>,
    hosts: Vec<Host>,
}

#[derive(Debug)]
struct Host {
    nqn: String,
    secret: Option<String>,
    controller_secret: Option<String>,
}

/// One namespace with 4 KiB blocks, in one image or in several.
#[derive(Clone, Copy, Debug)]
pub struct Namespace {
    kind: Kind,
    zones: u32,
    zone_capacity_mib: u32,
    is_timed: bool,
}

/// The kind of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Zoned,
    Conventional,
    /// A RAID 5 of drives of these zones, with a spare.
    Volume {
        members: u32,
    },
    /// One of the pool of the scene, with so many zones that may be active.
    Pooled {
        name: &'static str,
        active: u32,
    },
}

/// The name of the configuration file.
pub(crate) const CONFIG: &str = "zonda.toml";

/// The rebuild rate until a script raises it: slow enough to be killed in the middle.
pub(crate) const REBUILD_RATE_FIRST: &str = "512KiB/s";

impl Namespace {
    /// Zones of this capacity, of which 14 may be open and active (profile zn540); the zone size is
    /// the next power of two.
    #[must_use]
    pub fn zoned(zones: u32, zone_capacity_mib: u32) -> Namespace {
        Namespace { kind: Kind::Zoned, zones, zone_capacity_mib, is_timed: false }
    }

    /// A drive without zones (profile conventional), of `units` times `unit_mib`.
    #[must_use]
    pub fn conventional(units: u32, unit_mib: u32) -> Namespace {
        Namespace { kind: Kind::Conventional, zones: units, zone_capacity_mib: unit_mib, is_timed: false }
    }

    /// A redundant volume (RAID 5) of drives with these zones each, with metadata per block
    /// (profile zn540-zapraid), and a spare, rebuilt at 512 KiB/s.
    #[must_use]
    pub fn volume(members: u32, zones: u32, zone_capacity_mib: u32) -> Namespace {
        Namespace { kind: Kind::Volume { members }, zones, zone_capacity_mib, is_timed: false }
    }

    /// A namespace of the pool of the scene, with zones of 8 MiB, over four zones of a drive of which
    /// 14 may be active. `active`: how many of its own.
    #[must_use]
    pub fn pooled(name: &'static str, zones: u32, active: u32) -> Namespace {
        let zone_capacity_mib = pool::VZONE_MIB;
        Namespace { kind: Kind::Pooled { name, active }, zones, zone_capacity_mib, is_timed: false }
    }

    /// The folders of its images.
    fn drives(&self, name: &str) -> Vec<String> {
        match self.kind {
            // All namespaces of the pool have the same.
            Kind::Pooled { .. } => Vec::new(),
            // The spare follows the members.
            Kind::Volume { members } => (0..=members).map(|drive| format!("{name}-{drive}")).collect(),
            Kind::Zoned | Kind::Conventional => vec![name.to_owned()],
        }
    }

    /// With the timing of its profile's drive.
    #[must_use]
    pub fn timed(mut self) -> Namespace {
        self.is_timed = true;
        self
    }
}

impl Subsystem {
    /// A subsystem without namespaces, for any host.
    #[must_use]
    pub fn named(name: &str) -> Subsystem {
        Subsystem { name: name.to_owned(), namespaces: Vec::new(), hosts: Vec::new() }
    }

    /// Adds the next namespace; the first is number 1.
    #[must_use]
    pub fn namespace(mut self, namespace: Namespace) -> Subsystem {
        self.namespaces.push(namespace);
        self
    }

    /// Adds a host; only added hosts may connect then.
    #[must_use]
    pub fn host(mut self, nqn: &str, secret: Option<&str>, controller_secret: Option<&str>) -> Subsystem {
        let text = |secret: Option<&str>| secret.map(str::to_owned);
        let host = Host { nqn: nqn.to_owned(), secret: text(secret), controller_secret: text(controller_secret) };
        self.hosts.push(host);
        self
    }

    /// Its NVMe Qualified Name.
    #[must_use]
    pub fn nqn(&self) -> String {
        format!("nqn.2026-01.io.zonda:{}", self.name)
    }
}

impl Scene {
    /// An empty scene; its logs have this name.
    #[must_use]
    pub fn new(name: &'static str, extent: Extent) -> Scene {
        Scene { name, extent, subsystems: Vec::new(), is_on_epoll: false }
    }

    /// The name of its logs.
    pub(crate) fn log_name(&self) -> String {
        if self.extent.is_soak() { format!("soak-{}", self.name) } else { self.name.to_owned() }
    }

    /// Its extent.
    pub(crate) fn extent(&self) -> Extent {
        self.extent
    }

    /// Adds a subsystem.
    #[must_use]
    pub fn subsystem(mut self, subsystem: Subsystem) -> Scene {
        self.subsystems.push(subsystem);
        self
    }

    /// Runs the server without io_uring.
    #[must_use]
    pub fn on_epoll(mut self) -> Scene {
        self.is_on_epoll = true;
        self
    }

    /// Creates the drives and serves them, when no other scene runs; or prints on the terminal why
    /// the test is skipped.
    ///
    /// # Panics
    /// If the drives cannot be created or served, or the environment variables are invalid.
    #[must_use]
    pub fn open_or_skip(self) -> Option<Stage> {
        if !guest_or_skip(&self.log_name()) {
            return None;
        }
        // A failed test leaves nothing that could affect the next one.
        let lock = STAGE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = TempDir::new().expect("a temporary folder can be created");
        let target = std::env::var("ZONDA_GUEST_TARGET").unwrap_or_default();
        let is_zonda = match target.as_str() {
            "kernel" => false,
            "" | "zonda" => true,
            other => panic!("ZONDA_GUEST_TARGET must be zonda or kernel, not {other}"),
        };
        // The guest boots while the drives are created.
        let guest = GuestLease::take(is_zonda);
        let (port, http_port, server) = if is_zonda {
            let [port, http_port] = free_ports();
            (port, http_port, Some(self.serve(folder.path(), port, http_port)))
        } else {
            (4420, 0, None)
        };
        Some(Stage::new(self, guest, port, http_port, server, folder, lock))
    }

    fn serve(&self, folder: &Path, port: u16, http_port: u16) -> Server {
        let mut config = format!("[server]\nlisten = \"127.0.0.1:{port}\"\n");
        if self.has_pool() {
            pool::create(folder);
        }
        for subsystem in &self.subsystems {
            let _ = write!(config, "\n[[subsystem]]\nnqn = \"{}\"\n", subsystem.nqn());
            if !subsystem.hosts.is_empty() {
                let hosts: Vec<String> = subsystem.hosts.iter().map(Host::table).collect();
                let _ = writeln!(config, "host = [{}]", hosts.join(", "));
            }
            for (namespace, id) in subsystem.namespaces.iter().zip(1..) {
                let image = image_name(&subsystem.name, id);
                let profile = match namespace.kind {
                    Kind::Zoned | Kind::Pooled { .. } => "zn540",
                    Kind::Conventional => "conventional",
                    Kind::Volume { .. } => "zn540-zapraid",
                };
                for drive in namespace.drives(&image) {
                    create_drive(&folder.join(&drive), profile, namespace.zones, namespace.zone_capacity_mib);
                }
                match namespace.kind {
                    Kind::Volume { members } => {
                        create_volume(folder, &image, members);
                        config += &table(id, &[("volume", &image)]);
                    }
                    Kind::Pooled { name, active } => {
                        pool::create_namespace(folder, name, namespace.zones, active);
                        config += &pool::table(id, name);
                    }
                    Kind::Zoned | Kind::Conventional => config += &table(id, &[("image", &image)]),
                }
                if namespace.is_timed {
                    config += "  timing = \"profile\"\n";
                }
            }
        }
        let path = folder.join(CONFIG);
        fs::write(&path, config).expect("a temporary file can be written");
        let mut options = vec!["--http".to_owned(), format!("127.0.0.1:{http_port}")];
        if self.is_on_epoll {
            options.push("--epoll".to_owned());
        }
        let server = Server::start(&path, &options);
        assert!(!self.is_on_epoll || server.printed().contains("(epoll)"), "not on epoll:\n{}", server.printed());
        server
    }

    /// Whether a pool is served.
    fn has_pool(&self) -> bool {
        let mut namespaces = self.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
        namespaces.any(|namespace| matches!(namespace.kind, Kind::Pooled { .. }))
    }

    /// The folder of every image.
    pub(crate) fn images(&self) -> Vec<String> {
        let images = self.subsystems.iter().flat_map(|subsystem| {
            let namespaces = subsystem.namespaces.iter().zip(1..);
            namespaces.flat_map(|(namespace, id)| namespace.drives(&image_name(&subsystem.name, id)))
        });
        images.chain(self.has_pool().then(|| POOL_DRIVE.to_owned())).collect()
    }

    /// The calls of `guest/lib.sh` that make the guest's kernel serve the same.
    pub(crate) fn kernel_target(&self) -> String {
        let mut calls = String::new();
        for subsystem in &self.subsystems {
            let nqn = subsystem.nqn();
            let access = if subsystem.hosts.is_empty() { "any-host" } else { "named-hosts" };
            let _ = writeln!(calls, "serve_subsystem {nqn} {access}");
            for (namespace, id) in subsystem.namespaces.iter().zip(1..) {
                let Namespace { kind, zones, zone_capacity_mib, .. } = *namespace;
                let is_zoned = matches!(kind, Kind::Zoned | Kind::Pooled { .. });
                let kind = if is_zoned { "zoned" } else { "conventional" };
                let _ = writeln!(calls, "serve_namespace {nqn} {id} {kind} {zones} {zone_capacity_mib}");
            }
            for Host { nqn: host, secret, controller_secret } in &subsystem.hosts {
                let word = |secret: &Option<String>| secret.clone().unwrap_or_else(|| "-".to_owned());
                let (secret, controller_secret) = (word(secret), word(controller_secret));
                let _ = writeln!(calls, "serve_host {nqn} {host} {secret} {controller_secret}");
            }
        }
        calls
    }
}

impl Host {
    fn table(&self) -> String {
        let mut table = format!("{{ nqn = \"{}\"", self.nqn);
        for (key, secret) in [("secret", &self.secret), ("controller_secret", &self.controller_secret)] {
            if let Some(secret) = secret {
                let _ = write!(table, ", {key} = \"{secret}\"");
            }
        }
        table + " }"
    }
}

fn create_volume(folder: &Path, name: &str, members: u32) {
    let path =
        |name: &str| folder.join(name).into_os_string().into_string().expect("temporary folders have names in UTF-8");
    let drives: Vec<String> = (0..members).map(|drive| path(&format!("{name}-{drive}"))).collect();
    let spare = path(&format!("{name}-{members}"));
    zonda(&[
        "volume",
        "create",
        &path(name),
        "--level",
        "5",
        "--members",
        &drives.join(","),
        "--spare",
        &spare,
        "--rebuild-rate",
        REBUILD_RATE_FIRST,
    ]);
}

/// A namespace in the configuration file.
pub(crate) fn table(id: u32, keys: &[(&str, &str)]) -> String {
    let mut table = format!("\n  [[subsystem.namespace]]\n  id = {id}\n");
    for (key, value) in keys {
        let _ = writeln!(table, "  {key} = \"{value}\"");
    }
    table
}

/// The folder of a namespace's image.
pub(crate) fn image_name(subsystem: &str, id: u32) -> String {
    format!("{subsystem}-{id}")
}
