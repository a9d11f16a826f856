//! What keeps the blocks of the drive below a pool: the drive model, or an image in files.

use std::collections::VecDeque;

use zonda_image::{FileError, ImageSpec, create};
use zonda_ssd::Ssd;
use zonda_zoned::{
    Command, Completion, CompletionQueue, Duration, Geometry, Instant, Namespaces, Prng, QueueFull, ZoneIndex,
    ZoneState, ZonedDevice,
};

use crate::images::{Disk, ImageDrive};

/// Time that an operation on a file takes, at most.
const FILE_TIME_MAX: Duration = Duration::from_micros(100);
/// Pages that a file system that has become full still has, at most.
const FREE_PAGES_MAX: u64 = 12;
/// One in so many commands begins a checkpoint.
const CHECKPOINTS_EVERY: u64 = 200;

/// One of the two.
pub(super) enum Media {
    Model(Box<Ssd>),
    Files(Box<FileBacked>),
}

impl Media {
    pub(super) fn state(&self, zone: ZoneIndex) -> ZoneState {
        match self {
            Media::Model(ssd) => ssd.zone(zone).state,
            Media::Files(files) => files.drive.image.zones().zone(zone).state,
        }
    }

    pub(super) fn degrade(&mut self, zone: ZoneIndex, to: ZoneState) {
        match self {
            Media::Model(ssd) => ssd.degrade(zone, to),
            Media::Files(files) => files.degrade(zone, to),
        }
    }
}

impl ZonedDevice for Media {
    fn namespaces(&self) -> &Namespaces {
        match self {
            Media::Model(ssd) => ssd.namespaces(),
            Media::Files(files) => &files.namespaces,
        }
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        match self {
            Media::Model(ssd) => ssd.submit(now, command),
            Media::Files(files) => files.submit(now, command),
        }
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        match self {
            Media::Model(ssd) => ssd.poll(now, completions),
            Media::Files(files) => files.poll(now, completions),
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        match self {
            Media::Model(ssd) => ssd.next_timeout(),
            Media::Files(files) => files.next_timeout(),
        }
    }
}

/// An image on a simulated disk that becomes full, and whose operations end in any order.
pub(super) struct FileBacked {
    drive: ImageDrive,
    namespaces: Namespaces,
    prng: Prng,
    /// When the next operation on a file ends.
    next_at: Option<Instant>,
    /// Completions that wait to be polled for.
    ended: VecDeque<Completion>,
    /// Operations that have found no space since this was last asked.
    lacked_space: u64,
}

impl FileBacked {
    /// An empty drive.
    pub(super) fn create(geometry: &Geometry, prng: &Prng) -> FileBacked {
        let mut disk = Disk::new(prng.fork("disk"));
        let spec = ImageSpec::new(geometry.clone(), String::new(), [3; 16]);
        create(&spec, &mut disk).expect("an image can be created on an empty disk");
        FileBacked::open(disk, prng.fork("files"))
    }

    fn open(mut disk: Disk, prng: Prng) -> FileBacked {
        loop {
            match ImageDrive::open(disk, None) {
                Ok(drive) => {
                    let namespaces = Namespaces::single(drive.image.geometry().clone());
                    let (next_at, ended, lacked_space) = (None, VecDeque::new(), 0);
                    return FileBacked { drive, namespaces, prng, next_at, ended, lacked_space };
                }
                // An opening may need space after a power loss.
                Err(refusal) if refusal.0.faults.is_full => {
                    disk = refusal.0;
                    disk.faults.is_full = false;
                }
                Err(refusal) => panic!("the image below a pool cannot be opened: {}", refusal.1),
            }
        }
    }

    /// The file system has no space, or has some again.
    pub(super) fn set_full(&mut self, is_full: bool) {
        let disk = &mut self.drive.disk;
        disk.faults.is_full = is_full;
        // What resets free can be written again.
        disk.free_pages = self.prng.chance(3, 4).then(|| self.prng.below(FREE_PAGES_MAX));
    }

    /// How many operations on files have found no space since this was last asked.
    pub(super) fn take_lacked_space(&mut self) -> u64 {
        std::mem::take(&mut self.lacked_space)
    }

    /// The program that has the image is killed, with or without the power of its machine, and opens it
    /// again.
    pub(super) fn kill(self, loses_power: bool) -> FileBacked {
        let FileBacked { drive, prng, .. } = self;
        let mut disk = drive.kill();
        if loses_power {
            disk.lose_power();
        }
        FileBacked::open(disk, prng)
    }

    fn degrade(&mut self, zone: ZoneIndex, to: ZoneState) {
        self.drive.image.degrade(zone, to);
        self.drive.collect();
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.drive.image.submit(now, command)?;
        if self.prng.chance(1, CHECKPOINTS_EVERY) {
            self.drive.image.checkpoint();
        }
        self.drive.collect();
        self.take_ended();
        self.schedule(now);
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        while self.next_at.is_some_and(|at| at <= now) {
            let at = self.next_at.take().expect("it was just looked at");
            self.drive.step(&mut self.prng);
            self.take_ended();
            self.schedule(at);
        }
        self.schedule(now);
        self.ended.drain(..).for_each(|completion| completions.push(completion));
    }

    fn next_timeout(&self) -> Option<Instant> {
        let now = (!self.ended.is_empty()).then_some(Instant::ZERO);
        self.next_at.into_iter().chain(now).min()
    }

    fn take_ended(&mut self) {
        self.ended.extend(self.drive.poll());
        let failed = self.drive.disk.failed.drain(..);
        self.lacked_space += failed.filter(|failed| failed.error == FileError::StorageFull).count() as u64;
    }

    fn schedule(&mut self, now: Instant) {
        if self.next_at.is_none() && !self.drive.is_idle() {
            self.next_at = Some(now + Duration(1 + self.prng.below(FILE_TIME_MAX.0)));
        }
    }
}
