//! Runs the conformance checks on a zoned drive of this machine: `conformance /dev/nullb0`. Everything on the
//! drive is lost. The guest tests run it on drives of a Linux guest.

use std::path::Path;
use std::process::ExitCode;

use zonda_conformance::{TestBackend, conformance_of_drive};
use zonda_devices::{DeviceMode, Drive, open_device};
use zonda_ring::{Ring, RingOptions};
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Geometry, Instant, Lba, NamespaceId, Namespaces, Operation,
    QueueFull, Status, ZoneAction, ZoneTarget, ZonedDevice,
};

/// The longest wait in the event loop, so that a lost command fails a check instead of hanging it.
const WAIT_MAX: Duration = Duration(20_000_000);

struct Live {
    drive: Box<dyn Drive>,
    ring: Ring,
    /// Whether the drive deallocates, and the most commands whose effects are those of their order.
    deallocates: bool,
    depth: usize,
}

impl Live {
    fn open(path: &Path, deallocates: bool, depth: usize) -> Live {
        let ring = Ring::new(RingOptions::default()).expect("the event loop can be created");
        let drive = open_device(path, DeviceMode::ReadWrite, &ring).unwrap_or_else(|error| panic!("{error}"));
        Live { drive, ring, deallocates, depth }
    }

    /// Empties all zones, and writes zeros to conventional ones.
    fn clear(&mut self) {
        let geometry = self.drive.geometry(NamespaceId::FIRST).clone();
        let reset = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::All };
        assert_eq!(self.execute(reset), Status::Success, "zones can be reset");
        let size = geometry.zone_size_blocks;
        for zone in 0..u64::from(geometry.conventional_zone_count) {
            let zeros = Operation::WriteZeroes { start: Lba(zone * size.0), blocks: size };
            assert_eq!(self.execute(zeros), Status::Success, "conventional zones can be written");
        }
    }

    fn execute(&mut self, operation: Operation) -> Status {
        let now = self.ring.now();
        let command = Command::new(CommandId(u64::MAX >> 1), NamespaceId::FIRST, operation);
        self.drive.submit(now, command).expect("an idle drive accepts a command");
        let mut completions = CompletionQueue::new();
        loop {
            self.drive.poll(self.ring.now(), &mut completions);
            if let Some(completion) = completions.pop() {
                return completion.status;
            }
            self.wait();
        }
    }
}

impl ZonedDevice for Live {
    fn namespaces(&self) -> &Namespaces {
        self.drive.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.drive.submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.drive.poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.drive.next_timeout()
    }
}

impl TestBackend for Live {
    fn now(&mut self) -> Instant {
        self.ring.now()
    }

    fn wait(&mut self) {
        let latest = self.ring.now() + WAIT_MAX;
        let until = self.drive.next_timeout().map_or(latest, |at| at.min(latest));
        self.ring.run_once(Some(until)).expect("the event loop works");
    }

    fn queue_depth_max(&self) -> usize {
        self.depth
    }

    fn deallocates(&self) -> bool {
        self.deallocates
    }

    fn carries(&self, command: &Command) -> bool {
        self.deallocates || !matches!(command.operation, Operation::Deallocate { .. })
    }

    fn random_commands(&self) -> u64 {
        400
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.drive.close(self.ring.now());
        while !self.drive.is_closed() {
            self.drive.poll(self.ring.now(), &mut CompletionQueue::new());
            self.wait();
        }
        assert_eq!(self.drive.close_error(), None);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(path) = arguments.first().map(Path::new) else {
        eprintln!("usage: conformance DEVICE [deallocates] [depth-1]");
        return ExitCode::from(2);
    };
    let has = |word: &str| arguments.iter().any(|argument| argument == word);
    let (deallocates, depth) = (has("deallocates"), if has("depth-1") { 1 } else { 16 });
    let geometry: Geometry = Live::open(path, deallocates, depth).drive.geometry(NamespaceId::FIRST).clone();
    assert!(geometry.zone_count >= 8 && geometry.max_transfer_blocks >= Blocks(8), "{geometry:?}");
    let summary = conformance_of_drive(&arguments[0], &geometry, &mut || {
        let mut live = Live::open(path, deallocates, depth);
        live.clear();
        Box::new(live)
    });
    assert!(summary.passed > 0, "no check suits {geometry:?}");
    ExitCode::SUCCESS
}
