//! A pool on a small drive in memory.

use zonda_layers::Memory;
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Instant, NamespaceId, Operation,
    Outcome, Payload, PayloadKind, ZoneAction, ZoneIndex, ZoneTarget, ZonedDevice,
};

use crate::{ElasticDevice, Goal, NamespaceConfig, PoolEvent, PoolId, PoolOptions, StartError};

pub(super) const ID: PoolId = PoolId([3; 16]);
const MEMORY_BYTES_MAX: u64 = 1 << 26;

/// Blocks of one byte.
pub(super) fn data(blocks: u64, byte: u8) -> Payload {
    let (data, metadata) = (vec![byte; blocks as usize * 512].into(), vec![byte; blocks as usize * 8].into());
    Payload::Bytes(Box::new(BlockBuffer { data, metadata }))
}

pub(super) struct Rig {
    device: Option<ElasticDevice<Memory>>,
    pub(super) now: Instant,
    next_id: u64,
}

impl Rig {
    /// Zones of 24 blocks of 512 bytes, 32 of them active; v-zones of 4 zones, groups of up to 4.
    pub(super) fn tiny() -> Rig {
        let drive = Geometry {
            zone_size_blocks: Blocks(32),
            zone_capacity_blocks: Blocks(24),
            zone_count: 100,
            max_active_zones: Some(32),
            max_open_zones: Some(32),
            descriptor_extension_bytes: 0,
            ..Geometry::tiny()
        };
        Rig::new(drive, PoolOptions { zones_per_vzone: Some(4), width_max: Some(4), ..PoolOptions::default() })
    }

    pub(super) fn new(drive: Geometry, options: PoolOptions) -> Rig {
        let goal = Goal::Create { id: ID, options };
        let device = ElasticDevice::new(Memory::new(drive, MEMORY_BYTES_MAX), goal, PayloadKind::Bytes);
        let mut rig = Rig { device: Some(device), now: Instant(1), next_id: 1 << 40 };
        rig.quiesce();
        rig
    }

    pub(super) fn device(&mut self) -> &mut ElasticDevice<Memory> {
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

    /// Executes a command to its end.
    pub(super) fn execute(&mut self, namespace: NamespaceId, operation: Operation) -> Completion {
        let id = CommandId(self.next_id);
        self.next_id += 1;
        let now = self.now;
        self.device().submit(now, Command::new(id, namespace, operation)).expect("the queue is not full");
        let mut ended = self.quiesce();
        assert_eq!(ended.len(), 1, "one command was in flight");
        ended.remove(0)
    }

    pub(super) fn zone_size(&mut self, namespace: NamespaceId) -> u64 {
        self.device().geometry(namespace).zone_size_blocks.0
    }

    /// Physical zones of a v-zone.
    pub(super) fn zones_of(&mut self, namespace: NamespaceId, zone: u32) -> Vec<ZoneIndex> {
        let pool = self.device().pool().expect("it is open");
        pool.physical_zones(namespace, ZoneIndex(zone))
    }

    pub(super) fn drive(&mut self) -> &mut Memory {
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

    /// Tries to mount the pool, which must have reached this epoch.
    pub(super) fn try_mount(&mut self, epoch_min: u64) -> Option<StartError> {
        let memory = self.device.take().expect("there is a pool").into_drive();
        let goal = Goal::Mount { id: Some(ID), epoch_min };
        self.device = Some(ElasticDevice::new(memory, goal, PayloadKind::Bytes));
        self.quiesce();
        self.device().error().cloned()
    }

    /// Cuts the power: the drive keeps what it has executed, and the pool is mounted again.
    pub(super) fn mount_again(&mut self) {
        let mut memory = self.device.take().expect("there is a pool").into_drive();
        memory.power_cycle();
        let goal = Goal::Mount { id: Some(ID), epoch_min: 1 };
        self.device = Some(ElasticDevice::new(memory, goal, PayloadKind::Bytes));
        self.quiesce();
        assert_eq!(self.device().error(), None);
    }
}
