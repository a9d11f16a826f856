//! A guest with zoned drives of its own, in which zonda runs.

use std::path::PathBuf;
use std::process::Command;

use tempfile::{NamedTempFile, TempPath};

use crate::guest::{Guest, guest_or_skip};
use crate::job::{Extent, Job};
use crate::{Console, root};

/// Disks of null_blk and scsi_debug are in the memory of the guest.
const MEMORY_MIB: u32 = 1536;
/// Size of a namespace of the NVMe drive.
const DRIVE_BYTES: u64 = 64 << 20;
/// NVMe drives that can be unplugged.
const MEMBERS: usize = 3;
/// The size of each.
const MEMBER_BYTES: u64 = 128 << 20;

/// A guest with zoned NVMe drives of QEMU, and with the programs `zonda` and `conformance`. The drive with the serial number
/// `zonda` has two namespaces; `member0` to `member2` have one each.
#[derive(Debug)]
pub struct DrivesGuest {
    guest: Guest,
    extent: Extent,
    /// The contents of their namespaces.
    _drives: Vec<TempPath>,
}

impl DrivesGuest {
    /// Boots the guest, or prints on the terminal that the test is skipped, and why.
    ///
    /// # Panics
    /// If it cannot be started, or a program cannot be built.
    #[must_use]
    pub fn boot_or_skip(test: &str, extent: Extent) -> Option<DrivesGuest> {
        if !guest_or_skip(test) {
            return None;
        }
        let programs = programs();
        let mut machine = Machine::default();
        machine.add_controller("controller", "zonda");
        // Three active and two open zones, which the conformance checks know.
        let zones = "zoned.zone_size=2M,zoned.zone_capacity=1M,zoned.max_active=3,zoned.max_open=2";
        machine.add_namespace("controller", DRIVE_BYTES, zones);
        // The second one has metadata in a buffer of their own, and descriptor extensions.
        machine.add_namespace("controller", DRIVE_BYTES, &format!("{zones},ms=8,zoned.descr_ext_size=64"));
        for member in 0..MEMBERS {
            let name = format!("member{member}");
            machine.add_controller(&name, &name);
            let zones = "zoned.zone_size=4M,zoned.zone_capacity=4M,zoned.max_active=14,zoned.max_open=14";
            machine.add_namespace(&name, MEMBER_BYTES, zones);
        }
        let guest = Guest::boot_with(MEMORY_MIB, &programs, &machine.arguments);
        Some(DrivesGuest { guest, extent, _drives: machine.drives })
    }

    /// Runs a script of `guest/`.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&mut self, script: &str) -> Console {
        let extent = if self.extent.is_soak() { "soak" } else { "smoke" };
        let job = Job::new(script)
            .variable("EXTENT", extent)
            .variable("TARGET", "zonda")
            .variable("ADDRESS", "127.0.0.1")
            .variable("PORT", "4420");
        let name = if self.extent.is_soak() { format!("soak-{script}") } else { script.to_owned() };
        let no_request = |request: &str| panic!("unexpected request of the guest: {request}");
        self.guest.run(&name, &job, no_request).unwrap_or_else(|failure| panic!("{failure}"))
    }
}

/// The drives of a guest, as arguments of QEMU.
#[derive(Default)]
struct Machine {
    arguments: Vec<String>,
    drives: Vec<TempPath>,
}

impl Machine {
    /// An NVMe controller, with transfers and appends of at most 256 KiB (MDTS). Linux numbers them in this order.
    fn add_controller(&mut self, id: &str, serial: &str) {
        self.arguments.extend(["-device".to_owned(), format!("nvme,id={id},serial={serial},mdts=6")]);
    }

    /// The next namespace of a controller, zoned.
    fn add_namespace(&mut self, controller: &str, bytes: u64, properties: &str) {
        let file = NamedTempFile::new().expect("a temporary file can be created");
        file.as_file().set_len(bytes).expect("a sparse file takes no space");
        let (file, id) = (file.into_temp_path(), self.drives.len());
        let drive = format!("if=none,id=zns{id},file={},format=raw,discard=unmap", file.display());
        let namespace = format!(
            "nvme-ns,drive=zns{id},bus={controller},zoned=on,logical_block_size=4096,physical_block_size=4096,{properties}"
        );
        self.arguments.extend(["-drive".to_owned(), drive, "-device".to_owned(), namespace]);
        self.drives.push(file);
    }
}

/// `zonda`, and the conformance checks of a drive, which are built in the profile of this program.
fn programs() -> [PathBuf; 2] {
    let zonda = zonda_kill::program(None).unwrap_or_else(|error| panic!("{error:?}"));
    let folder = zonda.parent().expect("a program is in a folder").to_owned();
    if let (Some(cargo), None) = (std::env::var_os("CARGO"), std::env::var_os("ZONDA_PROGRAM")) {
        let profile = match folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(name) => name,
        };
        let mut build = Command::new(cargo);
        build.args([
            "build",
            "--quiet",
            "--profile",
            profile,
            "--package",
            "zonda-devices",
            "--example",
            "conformance",
        ]);
        // Variables of the tested package would make build scripts run again.
        for (name, _) in std::env::vars_os() {
            if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
                build.env_remove(name);
            }
        }
        let status = build.current_dir(root()).status().expect("cargo starts");
        assert!(status.success(), "the conformance program is built");
    }
    let conformance = folder.join("examples/conformance");
    [zonda, conformance]
}
