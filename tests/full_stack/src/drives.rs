//! A guest with zoned drives of its own, in which zonda runs.

use std::path::PathBuf;
use std::process::Command;

use tempfile::{NamedTempFile, TempPath};

use crate::guest::{Guest, guest_or_skip};
use crate::job::{Extent, Job};
use crate::{Console, root};

/// Disks of null_blk and scsi_debug are in the memory of the guest.
const MEMORY_MIB: u32 = 1536;
/// Size of the NVMe drive.
const DRIVE_BYTES: u64 = 64 << 20;

/// A guest with a zoned NVMe drive of QEMU, which has two namespaces, and with the programs `zonda` and `conformance`.
#[derive(Debug)]
pub struct DrivesGuest {
    guest: Guest,
    extent: Extent,
    /// The contents of its namespaces.
    _drives: [TempPath; 2],
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
        let drives = [(); 2].map(|()| {
            let drive = NamedTempFile::new().expect("a temporary file can be created");
            drive.as_file().set_len(DRIVE_BYTES).expect("a sparse file takes no space");
            drive.into_temp_path()
        });
        let mut qemu = vec!["-device".to_owned(), "nvme,id=controller,serial=zonda".to_owned()];
        // The second one has metadata in a buffer of their own, and descriptor extensions.
        for (id, (drive, more)) in drives.iter().zip(["", ",ms=8,zoned.descr_ext_size=64"]).enumerate() {
            qemu.push("-drive".to_owned());
            qemu.push(format!("if=none,id=zns{id},file={},format=raw,discard=unmap", drive.display()));
            qemu.push("-device".to_owned());
            // Three active and two open zones, which the conformance checks know.
            qemu.push(format!(
                "nvme-ns,drive=zns{id},bus=controller,zoned=on,zoned.zone_size=2M,zoned.zone_capacity=1M,\
                 zoned.max_active=3,zoned.max_open=2,logical_block_size=4096,physical_block_size=4096{more}"
            ));
        }
        let guest = Guest::boot_with(MEMORY_MIB, &programs, &qemu);
        Some(DrivesGuest { guest, extent, _drives: drives })
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
