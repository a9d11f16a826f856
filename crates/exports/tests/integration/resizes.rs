//! Images of which a part is served, and more of it later.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use zonda_config::ByteSize;
use zonda_devices::{Drive, NamespaceOptions, NvmeTcpUrl, Remote, create_image, sized};
use zonda_exports::{Running, ServeError, ServerPlan, Source, start};
use zonda_ring::{Ring, RingOptions};
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, CompletionQueue, NamespaceId, Operation, Payload, Status, ZoneIndex,
    ZonedDevice,
};

use crate::PROFILES;

const NQN: &str = "nqn.2026-01.io.zonda:resized";
const WAIT: Duration = Duration::from_secs(20);

/// An image of 12 zones.
fn image(directory: &Path) -> PathBuf {
    let spec = sized("zn540", Some(12), Some(ByteSize(1 << 20)), &PROFILES).expect("a built-in profile");
    create_image(&directory.join("a"), &spec.plan(&PROFILES).expect("a valid size")).expect("there is space");
    directory.join("a")
}

fn plan(image: &Path, zones: Option<u32>) -> ServerPlan {
    let mut plan = ServerPlan::on_loopback(NQN.parse().expect("a name"), Source::Image(image.to_owned()));
    plan.subsystems[0].namespaces[0].zones = zones;
    plan
}

fn reload(server: &Running, plan: ServerPlan) -> Result<Vec<String>, ServeError> {
    server.handle().reload(plan, WAIT).expect("the server runs")
}

/// A host, and its drive.
struct Host {
    drive: Remote,
    ring: Ring,
}

impl Host {
    fn of(server: &Running) -> Host {
        let url = NvmeTcpUrl {
            host: "127.0.0.1".to_owned(),
            port: server.info().listen[0].port(),
            subsystem: NQN.parse().expect("a name"),
            namespace: NamespaceId(1),
        };
        let ring = Ring::new(RingOptions::default()).expect("an event loop");
        let drive = Remote::connect(&url, &NamespaceOptions::default(), &ring).expect("the server runs");
        Host { drive, ring }
    }

    fn zones(&self) -> u32 {
        self.drive.geometry(NamespaceId::FIRST).zone_count
    }

    fn wait_until(&mut self, holds: impl Fn(&mut Remote) -> bool) {
        let deadline = Instant::now() + WAIT;
        while !holds(&mut self.drive) {
            assert!(Instant::now() < deadline, "timeout");
            let until = self.ring.now() + zonda_zoned::Duration::from_millis(20);
            self.ring.run_once(Some(until)).expect("the loop works");
            self.drive.poll(self.ring.now(), &mut CompletionQueue::new());
        }
    }

    /// Writes the first block of a zone.
    fn write(&mut self, zone: u32) -> Status {
        let geometry = self.drive.geometry(NamespaceId::FIRST).clone();
        let start = geometry.zone_start(ZoneIndex(zone));
        let data = vec![7; geometry.block_size_bytes as usize].into();
        let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata: Vec::new().into() }));
        let operation = Operation::Write { start, blocks: Blocks(1), payload };
        let command = Command::new(CommandId(1), NamespaceId::FIRST, operation);
        self.drive.submit(self.ring.now(), command).expect("the queue is empty");
        let mut completions = CompletionQueue::new();
        loop {
            self.drive.poll(self.ring.now(), &mut completions);
            if let Some(completion) = completions.pop() {
                return completion.status;
            }
            self.ring.run_once(self.drive.next_timeout()).expect("the loop works");
        }
    }
}

#[test]
fn a_connected_host_sees_a_namespace_grow_and_the_image_keeps_its_data() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = image(directory.path());
    let server = start(plan(&image, Some(5)), false).expect("it starts");
    let mut host = Host::of(&server);
    assert_eq!((host.zones(), host.write(4), host.write(5)), (5, Status::Success, Status::LbaOutOfRange));
    let lines = reload(&server, plan(&image, Some(8))).expect("the image has more zones");
    assert_eq!(lines, [format!("subsystem {NQN}: namespace 1 resized to 8 zones")]);
    host.wait_until(|drive| drive.geometry(NamespaceId::FIRST).zone_count == 8);
    assert_eq!((host.write(7), host.write(8)), (Status::Success, Status::LbaOutOfRange));
    let error = reload(&server, plan(&image, Some(13))).expect_err("the image has 12 zones");
    assert!(error.message.contains("namespace 1 cannot have 13 zones: its image has 12"), "{error}");
    assert!(reload(&server, plan(&image, Some(7))).is_err(), "it does not shrink");
    reload(&server, plan(&image, None)).expect("all zones");
    host.wait_until(|drive| drive.geometry(NamespaceId::FIRST).zone_count == 12);
    assert_eq!(host.write(11), Status::Success);
    let snapshot = server.handle().snapshot(WAIT).expect("the server runs");
    let namespace = &snapshot.subsystems[0].namespaces[0];
    let states: u32 = namespace.zones_by_state.iter().map(|state| state.zones).sum();
    assert_eq!((namespace.zones, states), (12, 12));
    drop(host);
    server.handle().stop();
    server.wait().expect("it stops cleanly");

    // Data must not be hidden.
    let error = start(plan(&image, Some(11)), false).expect_err("zone 11 has data");
    assert!(error.message.contains("zone 11 of") && error.message.contains("is not empty"), "{error}");
    let error = start(plan(&image, Some(13)), false).expect_err("there are 12 zones");
    assert!(error.message.contains("13 of the 12 zones"), "{error}");
    let server = start(plan(&image, Some(12)), false).expect("no data is hidden");
    server.handle().stop();
    server.wait().expect("it stops cleanly");
}

#[test]
fn a_host_is_warned_when_its_namespace_is_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = image(directory.path());
    let server = start(plan(&image, None), false).expect("it starts");
    let mut host = Host::of(&server);
    assert_eq!(host.drive.take_warning(), None);
    let spec = sized("zn540", Some(12), Some(ByteSize(1 << 20)), &PROFILES).expect("a built-in profile");
    let mut other = plan(&image, None);
    other.subsystems[0].namespaces[0].id = NamespaceId(2);
    other.subsystems[0].namespaces[0].source = Source::Memory(Box::new(spec.plan(&PROFILES).expect("it is valid")));
    reload(&server, other).expect("it is valid");
    host.wait_until(|drive| drive.is_disconnected());
    let warning = host.drive.take_warning().expect("a warning");
    assert!(warning.ends_with("the namespace does not exist, or is not active"), "{warning}");
    assert_eq!((host.drive.take_warning(), host.write(0)), (None, Status::NamespaceNotReady));
    server.handle().stop();
    server.wait().expect("it stops cleanly");
}
