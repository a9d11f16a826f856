//! A pool on a small drive in memory.

use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Instant, Lba, NamespaceId,
    Operation, Outcome, Payload, PayloadKind, ZoneAction, ZoneIndex, ZoneState, ZoneTarget, ZonedDevice,
};

use super::drive::TestDrive;
use crate::bug::SeededBug;
use crate::{ElasticDevice, Goal, NamespaceConfig, PoolEvent, PoolId, PoolOptions, StartError};

pub(super) const ID: PoolId = PoolId([3; 16]);

/// Blocks of one byte.
pub(super) fn data(blocks: u64, byte: u8) -> Payload {
    let (data, metadata) = (vec![byte; blocks as usize * 512].into(), vec![byte; blocks as usize * 8].into());
    Payload::Bytes(Box::new(BlockBuffer { data, metadata }))
}

/// Blocks of these bytes.
pub(super) fn bytes(values: &[u8]) -> Payload {
    let data: Vec<u8> = values.iter().flat_map(|value| [*value; 512]).collect();
    let metadata: Vec<u8> = values.iter().flat_map(|value| [*value; 8]).collect();
    Payload::Bytes(Box::new(BlockBuffer { data: data.into(), metadata: metadata.into() }))
}

/// The namespace of the tests that need one.
pub(super) const TENANT: NamespaceId = NamespaceId(1);

pub(super) fn write(start: u64, blocks: u64, byte: u8) -> Operation {
    Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload: data(blocks, byte) }
}

pub(super) fn manage(start: u64, action: ZoneAction) -> Operation {
    Operation::ManageZones { action, target: ZoneTarget::Zone(Lba(start)) }
}

pub(super) struct Rig {
    device: Option<ElasticDevice<TestDrive>>,
    pub(super) now: Instant,
    next_id: u64,
}

impl Rig {
    /// Zones of 24 blocks of 512 bytes, 32 of them active; v-zones of 4 zones, groups of up to 4.
    pub(super) fn tiny() -> Rig {
        Rig::with_active_zones(32, 4)
    }

    /// The same, with [`TENANT`]: ten v-zones, three of them active.
    pub(super) fn tenant() -> Rig {
        let mut rig = Rig::tiny();
        rig.create("tenant", 10, 3);
        rig
    }

    /// Zones of 24 blocks on a drive that allows so many active ones; groups of up to `width`.
    pub(super) fn with_active_zones(active: u32, width: u32) -> Rig {
        let drive = Geometry {
            zone_size_blocks: Blocks(32),
            zone_capacity_blocks: Blocks(24),
            zone_count: 100,
            max_active_zones: Some(active),
            max_open_zones: Some(active),
            descriptor_extension_bytes: 0,
            ..Geometry::tiny()
        };
        Rig::new(drive, PoolOptions { zones_per_vzone: Some(4), width_max: Some(width), ..PoolOptions::default() })
    }

    pub(super) fn new(drive: Geometry, options: PoolOptions) -> Rig {
        let goal = Goal::Create { id: ID, options };
        let device = ElasticDevice::new(TestDrive::new(drive), goal, PayloadKind::Bytes);
        let mut rig = Rig { device: Some(device), now: Instant(1), next_id: 1 << 40 };
        rig.quiesce();
        rig
    }

    pub(super) fn device(&mut self) -> &mut ElasticDevice<TestDrive> {
        self.device.as_mut().expect("there is a pool")
    }

    pub(super) fn check(&self) {
        self.device.as_ref().expect("there is a pool").pool().expect("it is open").check_invariants();
    }

    /// Polls until nothing happens any more.
    pub(super) fn quiesce(&mut self) -> Vec<Completion> {
        let mut ended = Vec::new();
        loop {
            let mut queue = CompletionQueue::new();
            let now = self.now;
            self.device().poll(now, &mut queue);
            if queue.is_empty() {
                return ended;
            }
            ended.extend(std::iter::from_fn(|| queue.pop()));
        }
    }

    pub(super) fn create(&mut self, name: &str, zone_count: u32, active: u32) -> NamespaceId {
        let config = NamespaceConfig {
            max_open_zones: Some(active - 1),
            descriptor_extension_bytes: 64,
            read_across_zones: true,
            ..NamespaceConfig::new(name, [name.len() as u8; 16], zone_count, active)
        };
        let now = self.now;
        let id = self.device().create_namespace(now, &config).expect("the drive has room");
        self.quiesce();
        let events: Vec<PoolEvent> = std::iter::from_fn(|| self.device().poll_event()).collect();
        assert!(events.contains(&PoolEvent::Created { namespace: id, is_durable: true }), "{events:?}");
        id
    }

    pub(super) fn submit(&mut self, namespace: NamespaceId, operation: Operation) -> CommandId {
        let id = CommandId(self.next_id);
        self.next_id += 1;
        let now = self.now;
        self.device().submit(now, Command::new(id, namespace, operation)).expect("the queue is not full");
        id
    }

    /// Executes a command to its end.
    pub(super) fn execute(&mut self, namespace: NamespaceId, operation: Operation) -> Completion {
        self.submit(namespace, operation);
        let mut ended = self.quiesce();
        assert_eq!(ended.len(), 1, "one command was in flight");
        ended.remove(0)
    }

    /// The state of a v-zone of [`TENANT`] for its host.
    pub(super) fn state(&mut self, zone: u32) -> ZoneState {
        self.device().pool().and_then(|pool| pool.table(TENANT)).expect("it is open").zone(ZoneIndex(zone)).state
    }

    pub(super) fn zone_size(&mut self, namespace: NamespaceId) -> u64 {
        self.device().geometry(namespace).zone_size_blocks.0
    }

    /// Physical zones of a v-zone.
    pub(super) fn zones_of(&mut self, namespace: NamespaceId, zone: u32) -> Vec<ZoneIndex> {
        let pool = self.device().pool().expect("it is open");
        pool.physical_zones(namespace, ZoneIndex(zone))
    }

    /// Zones of a v-zone that the drive counts as active.
    pub(super) fn active_zones_of(&mut self, namespace: NamespaceId, zone: u32) -> usize {
        let zones = self.zones_of(namespace, zone);
        zones.into_iter().filter(|zone| self.drive().state(*zone).is_active()).count()
    }

    pub(super) fn drive(&mut self) -> &mut TestDrive {
        self.device().drive_mut()
    }

    fn directly(&mut self, operation: Operation) -> Completion {
        let (now, id) = (self.now, CommandId(u64::MAX));
        let drive = self.drive();
        drive.submit(now, Command::new(id, NamespaceId::FIRST, operation)).expect("the queue is not full");
        let mut ended = CompletionQueue::new();
        drive.poll(now, &mut ended);
        ended.pop().expect("a drive in memory is fast")
    }

    /// Another program writes a zone of the drive.
    pub(super) fn write_directly(&mut self, zone: ZoneIndex, byte: u8) {
        let start = self.drive().geometry(NamespaceId::FIRST).zone_start(zone);
        let operation = Operation::Write { start, blocks: Blocks(4), payload: data(4, byte) };
        assert!(self.directly(operation).status.is_success());
    }

    /// Blocks of a zone of the drive before its write pointer.
    pub(super) fn write_pointer(&mut self, zone: ZoneIndex) -> u64 {
        self.drive().written(zone)
    }

    pub(super) fn write_blocks_directly(&mut self, start: Lba, blocks: u64) {
        let operation = Operation::Write { start, blocks: Blocks(blocks), payload: data(blocks, 0xee) };
        assert!(self.directly(operation).status.is_success());
    }

    pub(super) fn reset_directly(&mut self, zone: ZoneIndex) {
        let start = self.drive().geometry(NamespaceId::FIRST).zone_start(zone);
        let operation = Operation::ManageZones { action: ZoneAction::Reset, target: ZoneTarget::Zone(start) };
        assert!(self.directly(operation).status.is_success());
    }

    pub(super) fn read_directly(&mut self, zone: ZoneIndex) -> u8 {
        let start = self.drive().geometry(NamespaceId::FIRST).zone_start(zone);
        match self.directly(Operation::Read { start, blocks: Blocks(1) }).outcome {
            Outcome::Data(Payload::Bytes(buffer)) => buffer.data[0],
            other => panic!("a read returns bytes, not {other:?}"),
        }
    }

    pub(super) fn read_block_directly(&mut self, lba: u64) -> BlockBuffer {
        match self.directly(Operation::Read { start: Lba(lba), blocks: Blocks(1) }).outcome {
            Outcome::Data(Payload::Bytes(buffer)) => *buffer,
            other => panic!("a read returns bytes, not {other:?}"),
        }
    }

    /// Exchanges what two zones of the drive hold.
    pub(super) fn exchange_directly(&mut self, zone: ZoneIndex, other: ZoneIndex) {
        let geometry = self.drive().geometry(NamespaceId::FIRST).clone();
        let mut held: Vec<Vec<BlockBuffer>> = Vec::new();
        for zone in [zone, other] {
            let start = geometry.zone_start(zone).0;
            let written = self.write_pointer(zone);
            held.push((start..start + written).map(|lba| self.read_block_directly(lba)).collect());
            self.reset_directly(zone);
        }
        for (zone, blocks) in [other, zone].into_iter().zip(held) {
            let start = geometry.zone_start(zone);
            for (at, buffer) in blocks.into_iter().enumerate() {
                let payload = Payload::Bytes(Box::new(buffer));
                let operation = Operation::Write { start: start + Blocks(at as u64), blocks: Blocks(1), payload };
                // With too many active zones it stays empty, which is damage, too.
                self.directly(operation);
            }
        }
    }

    /// Tries to mount the pool, which must have reached this epoch.
    pub(super) fn try_mount(&mut self, epoch_min: u64) -> Option<StartError> {
        self.try_mount_with_bug(epoch_min, None)
    }

    pub(super) fn try_mount_with_bug(&mut self, epoch_min: u64, bug: Option<SeededBug>) -> Option<StartError> {
        let memory = self.device.take().expect("there is a pool").into_drive();
        let goal = Goal::Mount { id: Some(ID), epoch_min };
        self.device = Some(ElasticDevice::seeded(memory, goal, PayloadKind::Bytes, bug.into()));
        self.quiesce();
        self.device().error().cloned()
    }

    /// Cuts the power: the drive keeps what it has executed, and the pool is mounted again.
    pub(super) fn mount_again(&mut self) {
        self.mount_after(TestDrive::power_cycle);
    }

    /// Mounts the pool again after something has happened to the drive.
    pub(super) fn mount_after(&mut self, happens: impl FnOnce(&mut TestDrive)) {
        let mut memory = self.device.take().expect("there is a pool").into_drive();
        happens(&mut memory);
        let goal = Goal::Mount { id: Some(ID), epoch_min: 1 };
        self.device = Some(ElasticDevice::new(memory, goal, PayloadKind::Bytes));
        self.quiesce();
        assert_eq!(self.device().error(), None);
    }
}
