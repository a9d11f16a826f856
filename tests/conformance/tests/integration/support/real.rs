//! Backends that run in real time.

use std::path::Path;

use tempfile::TempDir;
use zonda_conformance::TestBackend;
use zonda_devices::{Drive, FileBacked, NamespaceOptions, NvmeTcpUrl, Remote, create_image_of};
use zonda_exports::{Running, ServerPlan, Source, start};
use zonda_image::ImageSpec;
use zonda_ring::{Ring, RingOptions};
use zonda_zoned::{
    Command, CompletionQueue, Duration, Geometry, Instant, NamespaceId, Namespaces, Operation, Payload, QueueFull,
    ZoneIndex, ZoneState, ZonedDevice,
};

/// The longest wait in the event loop, so that a lost command fails a check instead of hanging it.
const WAIT_MAX: Duration = Duration(20_000_000);
const NQN: &str = "nqn.2026-01.io.zonda:conformance";

/// An image in a new directory.
pub fn image(geometry: &Geometry) -> Option<TempDir> {
    // In memory if there is a tmpfs: thousands of syncs on a disk take minutes.
    let directory = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a directory can be created");
    let spec = ImageSpec::new(geometry.clone(), String::new(), [7; 16]);
    create_image_of(directory.path(), &spec).ok().map(|()| directory)
}

/// A drive on a ring.
pub struct Live<D: Drive> {
    drive: Option<D>,
    ring: Ring,
    directory: TempDir,
    /// Behind a remote drive.
    server: Option<Running>,
    reopen: fn(&Path, &Ring) -> Option<D>,
    degrade: Option<fn(&mut D, ZoneIndex, ZoneState)>,
    is_remote: bool,
    queue_depth_max: usize,
}

/// An image, opened.
pub fn file_backed(geometry: &Geometry, options: RingOptions) -> Option<Live<FileBacked>> {
    let directory = image(geometry)?;
    let ring = Ring::new(options).expect("the event loop can be created");
    let reopen = |path: &Path, ring: &Ring| FileBacked::open(path, ring).ok().map(|(drive, _)| drive);
    let drive = reopen(directory.path(), &ring).expect("the image is new");
    let degrade = Some(FileBacked::degrade as fn(&mut FileBacked, ZoneIndex, ZoneState));
    let mut live = Live::local(drive, ring, directory, reopen);
    live.degrade = degrade;
    Some(live)
}

/// An image behind a server on loopback.
pub fn nvme_tcp(geometry: &Geometry, options: &NamespaceOptions) -> Option<Live<Remote>> {
    let directory = image(geometry)?;
    let plan = ServerPlan::on_loopback(NQN.parse().expect("valid NQN"), Source::Image(directory.path().to_owned()));
    // The server refuses a geometry that NVMe cannot express.
    let server = start(plan, false).ok()?;
    let url = NvmeTcpUrl {
        host: "127.0.0.1".to_owned(),
        port: server.info().listen[0].port(),
        subsystem: NQN.parse().expect("valid NQN"),
        namespace: NamespaceId(1),
    };
    let ring = Ring::new(RingOptions::default()).expect("the event loop can be created");
    let drive = Remote::connect(&url, options, &ring).expect("the server is running");
    let same = drive.geometry(NamespaceId::FIRST) == geometry;
    // NVMe can express some limits only as powers of two, and has no conventional zones.
    same.then_some(Live {
        drive: Some(drive),
        ring,
        directory,
        server: Some(server),
        reopen: |_, _| None,
        degrade: None,
        is_remote: true,
        // Over several queues the limits of open and active zones may see commands in another
        // order.
        queue_depth_max: if options.io_queues == 1 { 16 } else { 1 },
    })
}

impl<D: Drive> Live<D> {
    /// A drive whose files are in this directory.
    pub fn local(drive: D, ring: Ring, directory: TempDir, reopen: fn(&Path, &Ring) -> Option<D>) -> Live<D> {
        Live {
            drive: Some(drive),
            ring,
            directory,
            server: None,
            reopen,
            degrade: None,
            is_remote: false,
            queue_depth_max: 16,
        }
    }

    fn drive(&self) -> &D {
        self.drive.as_ref().expect("the drive is open")
    }

    fn drive_mut(&mut self) -> &mut D {
        self.drive.as_mut().expect("the drive is open")
    }

    fn close(&mut self) {
        let mut drive = self.drive.take().expect("the drive is open");
        drive.close(self.ring.now());
        let until = self.ring.now() + Duration(10_000_000_000);
        while !drive.is_closed() {
            assert!(self.ring.now() < until, "the drive does not close");
            self.ring.run_once(Some(self.ring.now() + WAIT_MAX)).expect("the event loop works");
            drive.poll(self.ring.now(), &mut CompletionQueue::new());
        }
    }
}

impl<D: Drive> ZonedDevice for Live<D> {
    fn namespaces(&self) -> &Namespaces {
        self.drive().namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.drive_mut().submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.drive_mut().poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.drive().next_timeout()
    }
}

impl<D: Drive> TestBackend for Live<D> {
    fn now(&mut self) -> Instant {
        self.ring.now()
    }

    fn wait(&mut self) {
        let latest = self.ring.now() + WAIT_MAX;
        let until = self.drive().next_timeout().map_or(latest, |at| at.min(latest));
        self.ring.run_once(Some(until)).expect("the event loop works");
    }

    fn carries(&self, command: &Command) -> bool {
        !self.is_remote || is_encodable(command, self.drive().geometry(NamespaceId::FIRST))
    }

    fn queue_depth_max(&self) -> usize {
        self.queue_depth_max
    }

    fn remembers_untouched_zones(&self) -> bool {
        false
    }

    fn random_commands(&self) -> u64 {
        500
    }

    fn power_cycle(&mut self) -> bool {
        if self.is_remote {
            return false;
        }
        self.close();
        self.drive = (self.reopen)(self.directory.path(), &self.ring);
        assert!(self.drive.is_some(), "an image that was closed opens again");
        true
    }

    fn degrade(&mut self, zone: ZoneIndex, to: ZoneState) -> bool {
        let Some(degrade) = self.degrade else { return false };
        degrade(self.drive_mut(), zone, to);
        true
    }
}

impl<D: Drive> Drop for Live<D> {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            // A server waits a while for hosts that have not shut down.
            match std::thread::panicking() {
                true => self.drive = None,
                false => self.close(),
            }
            server.handle().stop();
            let ended = server.wait();
            assert!(std::thread::panicking() || ended.is_ok(), "the server stops without an error: {ended:?}");
        }
    }
}

/// Whether NVMe can encode a command: counts are zero-based in fields of limited width, and the
/// count determines the length of the data.
fn is_encodable(command: &Command, geometry: &Geometry) -> bool {
    if command.namespace != NamespaceId::FIRST {
        return false;
    }
    let fits =
        |payload: &Payload, blocks: u64| payload.fits(blocks, geometry.block_size_bytes, geometry.metadata_bytes);
    match &command.operation {
        Operation::Read { blocks, .. } | Operation::WriteZeroes { blocks, .. } => (1..=65_536).contains(&blocks.0),
        Operation::Write { blocks, payload, .. } | Operation::Append { blocks, payload, .. } => {
            (1..=65_536).contains(&blocks.0) && fits(payload, blocks.0)
        }
        Operation::Deallocate { ranges } => {
            (1..=256).contains(&ranges.len()) && ranges.iter().all(|range| range.blocks.0 <= u64::from(u32::MAX))
        }
        _ => true,
    }
}
