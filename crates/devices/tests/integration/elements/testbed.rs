//! A drive with storage elements, driven by a simulated clock.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zonda_config::{ByteSize, unplaced};
use zonda_devices::{Drive, FileBacked, LoadedElements, create_image, sized};
use zonda_image::Image;
use zonda_ring::{Ring, RingOptions};
use zonda_ssd::allocation::{ElementTable, ElementTracker};
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Instant, Lba, NamespaceId, Operation, Payload, Prng, Status,
    ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

use crate::PROFILES;

pub(crate) const ZONES: u32 = 12;
/// A zone: two segments of 64 KiB on each of four dies.
pub(crate) const ZONE_BLOCKS: u64 = 128;
pub(crate) const SECOND: Duration = Duration(1_000_000_000);

/// Creates an image with this allocation of zones.
pub(crate) fn make(path: &Path, allocation: &str) {
    let mut spec = sized("silent-custom", Some(ZONES), Some(ByteSize(512 << 10)), &PROFILES).expect("it is built in");
    for (key, value) in [("flash.erase_unit", "64 KiB"), ("zones.allocation", allocation)] {
        spec.set.insert(unplaced(key.to_owned()), unplaced(value.into()));
    }
    spec.set.insert(unplaced("zones.parallelism".to_owned()), unplaced(4.into()));
    create_image(path, &spec.plan(&PROFILES).expect("the drive is valid")).expect("the directory is empty");
}

/// An image in a temporary directory.
pub(crate) fn image(allocation: &str) -> (TempDir, PathBuf) {
    let directory = TempDir::new().expect("there is space");
    let path = directory.path().join("drive");
    make(&path, allocation);
    (directory, path)
}

/// A drive, driven by a simulated clock.
pub(crate) struct Testbed {
    pub(crate) drive: FileBacked,
    pub(crate) ring: Ring,
    pub(crate) now: Instant,
    next_id: u64,
    completions: CompletionQueue,
    pub(crate) was_clean: bool,
}

impl Testbed {
    pub(crate) fn open(path: &Path) -> Testbed {
        let ring = Ring::new(RingOptions::default()).expect("there is a ring");
        let (drive, report) = FileBacked::open(path, &ring).expect("the image is intact");
        let (now, completions) = (Instant::ZERO, CompletionQueue::new());
        Testbed { drive, ring, now, next_id: 0, completions, was_clean: report.clean }
    }

    pub(crate) fn tracker(&self) -> &ElementTracker {
        self.drive.elements().expect("zones are built of elements")
    }

    pub(crate) fn submit(&mut self, operation: Operation) {
        self.next_id += 1;
        let command = Command::new(CommandId(self.next_id), NamespaceId::FIRST, operation);
        self.drive.submit(self.now, command).expect("there is a queue slot");
    }

    pub(crate) fn poll(&mut self) {
        self.drive.poll(self.now, &mut self.completions);
    }

    pub(crate) fn run_once(&mut self) {
        self.ring.run_once(Some(self.ring.now() + Duration(1_000_000))).expect("the ring works");
        self.poll();
    }

    /// Executes a command, and waits for its completion.
    pub(crate) fn execute(&mut self, operation: Operation) -> Status {
        self.submit(operation);
        self.poll();
        loop {
            if let Some(completion) = self.completions.pop() {
                return completion.status;
            }
            self.run_once();
        }
    }

    /// Advances the clock until the elements are saved.
    pub(crate) fn wait_until_saved(&mut self, path: &Path) {
        let spec = self.drive.image().spec().clone();
        for _ in 0..5_000 {
            self.now += SECOND;
            self.run_once();
            let found =
                LoadedElements::inspect(path, &spec, self.drive.image().zones()).expect("it is of this version");
            let found = found.expect("zones are built of elements");
            if found.reset_reason.is_none()
                && found.tracker.changes() == 0
                && found.tracker.record() == self.tracker().record()
            {
                return;
            }
        }
        panic!("the elements are never saved");
    }

    /// Makes the drive write both slots.
    pub(crate) fn fill_both_slots(&mut self, path: &Path) {
        for zone in [5, 6] {
            self.execute(self.write(zone, 1));
            self.wait_until_saved(path);
            self.execute(self.manage(ZoneAction::Reset, zone));
            self.wait_until_saved(path);
        }
    }

    pub(crate) fn close(mut self) {
        self.poll();
        self.drive.close(self.now);
        while !self.drive.is_closed() {
            self.run_once();
        }
    }

    pub(crate) fn lba(&self, zone: u32, block: u64) -> Lba {
        self.drive.image().geometry().zone_start(ZoneIndex(zone)) + Blocks(block)
    }

    pub(crate) fn write(&self, zone: u32, blocks: u64) -> Operation {
        let zone_start = self.lba(zone, 0);
        Operation::Append { zone_start, blocks: Blocks(blocks), payload: Payload::None }
    }

    pub(crate) fn manage(&self, action: ZoneAction, zone: u32) -> Operation {
        Operation::ManageZones { action, target: ZoneTarget::Zone(self.lba(zone, 0)) }
    }

    /// A random command of a host, which may fail.
    pub(crate) fn random_operation(&self, prng: &mut Prng) -> Operation {
        let zone = prng.below(u64::from(ZONES)) as u32;
        match prng.below(100) {
            0..70 => self.write(zone, 1 + prng.below(ZONE_BLOCKS / 2)),
            70..82 => self.manage(ZoneAction::Finish, zone),
            82..97 => self.manage(ZoneAction::Reset, zone),
            97..99 => self.manage(ZoneAction::Open { zrwa: false }, zone),
            _ => Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All },
        }
    }
}

/// The zones of an image: written blocks, and whether they are full.
pub(crate) fn standings(image: &Image) -> Vec<(u64, bool)> {
    let zones = (0..ZONES).map(|zone| image.zones().zone(ZoneIndex(zone)));
    zones.map(|zone| (zone.written_blocks.0, zone.state == ZoneState::Full)).collect()
}

/// Checks that each element has at most one owner, and that written zones have enough elements.
pub(crate) fn check_owners(table: &ElementTable, image: &Image) {
    let mut owners = vec![None; table.elements.len()];
    for (zone, elements) in table.zones.iter().enumerate() {
        for element in elements {
            let before = owners[*element as usize].replace(zone);
            assert_eq!(before, None, "element {element} is owned only by zone {zone}");
        }
        let (written, _) = standings(image)[zone];
        let element_blocks = ZONE_BLOCKS / u64::from(table.elements_per_zone);
        assert!(elements.len() as u64 >= written.div_ceil(element_blocks), "zone {zone}: {written} in {elements:?}");
        assert!(written > 0 || elements.is_empty(), "zone {zone} is empty and has {elements:?}");
    }
    for (element, owner) in table.elements.iter().zip(owners) {
        assert_eq!(element.state.is_free(), owner.is_none(), "{element:?} of {owner:?}");
    }
}

/// Writes zone 0 many times, so that elements have wear, and closes the drive.
pub(crate) fn used(allocation: &str) -> (TempDir, PathBuf) {
    let (directory, path) = image(allocation);
    let mut testbed = Testbed::open(&path);
    for _ in 0..3 * ZONES {
        assert_eq!(testbed.execute(testbed.write(0, ZONE_BLOCKS)), Status::Success);
        assert_eq!(testbed.execute(testbed.manage(ZoneAction::Reset, 0)), Status::Success);
    }
    assert_eq!(testbed.execute(testbed.write(0, 40)), Status::Success);
    assert!(testbed.tracker().wear().erases_min > 0);
    testbed.close();
    (directory, path)
}
