//! What happens to a volume before a run: it is filled, members fail and are replaced.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use zonda_layers::Null;
use zonda_raid::{Event, MemberIndex, Volume, VolumeDevice};
use zonda_sched::ZoneGroups;
use zonda_ssd::Ssd;
use zonda_ssd::description::DrivePlan;
use zonda_workload::{Distribution, Places};
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Geometry, Instant, Lba, NamespaceId, Operation, Payload,
    Prng, QueueFull, Status, ZoneIndex, ZoneState, ZonedDevice,
};

use crate::Stack;
use crate::drive::DriveNode;
use crate::groups::measured_groups;
use crate::node::{Factory, Node, VolumeNode};

/// The state of a volume at the start of a run.
#[derive(Clone, Debug)]
pub(crate) struct Preparation {
    /// Blocks written sequentially.
    pub(crate) fill_blocks: u64,
    /// Blocks then overwritten one by one.
    pub(crate) overwrite_blocks: u64,
    pub(crate) overwrite_distribution: Distribution,
    /// The geometry of each member.
    pub(crate) geometries: Vec<Geometry>,
    /// Members that have failed.
    pub(crate) fail: Vec<MemberIndex>,
    /// CPU time of each command to a member.
    pub(crate) command_time: Duration,
    /// Whether failed members are replaced.
    pub(crate) rebuilds: bool,
}

/// Builds simulated drives, and prepares volumes.
pub(crate) struct PowerOn<'a> {
    /// Written zones of the next drives, in the order in which they are built; the others are
    /// empty.
    written: VecDeque<Vec<(ZoneIndex, Blocks)>>,
    preparation: Option<&'a Preparation>,
    /// A volume that was filled without drives.
    filled: Option<Volume>,
    /// When the run starts.
    start: Instant,
}

/// A drive with `written` zones below its layers, whose zone numbers are those of the outermost.
pub(crate) fn power_on_drive(node: &DriveNode, written: &[(ZoneIndex, Blocks)], prng: &Prng) -> Stack<Ssd> {
    let mut factory = PowerOn::new(None);
    factory.write(node, written);
    let Ok(stack) = node.build(&mut factory, prng);
    stack
}

/// A volume below its layers, prepared for a run, and the time at which the run starts. Filling
/// with contents takes time.
pub(crate) fn power_on_volume(node: &DriveNode, preparation: &Preparation, prng: &Prng) -> (Stack<Ssd>, Instant) {
    let Node::Volume(volume) = node.base() else { unreachable!("only volumes are prepared") };
    let mut factory = PowerOn::new(Some(preparation));
    if !volume.config.tuning.has_contents {
        factory.fill_without_drives(volume, prng);
    }
    let Ok(stack) = node.build(&mut factory, prng);
    (stack, factory.start)
}

impl<'a> PowerOn<'a> {
    fn new(preparation: Option<&'a Preparation>) -> PowerOn<'a> {
        PowerOn { written: VecDeque::new(), preparation, filled: None, start: Instant::ZERO }
    }

    /// The written zones of the next drive, in numbers of the outermost of its layers.
    fn write(&mut self, node: &DriveNode, written: &[(ZoneIndex, Blocks)]) {
        self.written.push_back(written.iter().map(|(zone, blocks)| (node.zone_of_drive(*zone), *blocks)).collect());
    }

    /// Without contents only write pointers matter: a volume on devices without latency is filled,
    /// and continues on drives with the same write pointers.
    fn fill_without_drives(&mut self, volume: &VolumeNode<Arc<DrivePlan>>, prng: &Prng) {
        let preparation = self.preparation.expect("a volume is prepared");
        let nulls = preparation.geometries.iter().map(|geometry| Some(Null::new(geometry.clone())));
        let mut device = VolumeDevice::new(preparation.create(volume), nulls.collect());
        // Ages of segments matter only with overwrites; otherwise no time passes.
        let block_time = if preparation.overwrite_blocks > 0 { BLOCK_TIME } else { Duration(0) };
        let start = preparation.fill(&mut device, prng, Some(block_time));
        if block_time.0 > 0 {
            self.start = start;
        }
        let (filled, nulls) = device.into_parts();
        for (member, null) in volume.members.iter().zip(nulls.iter().flatten()) {
            self.write(member, &written(null));
        }
        self.filled = Some(filled);
    }
}

impl Factory<Arc<DrivePlan>> for PowerOn<'_> {
    type Drive = Ssd;
    type Error = Infallible;

    fn drive(&mut self, plan: &Arc<DrivePlan>, prng: &Prng) -> Result<Ssd, Infallible> {
        let mut drive = Ssd::new(plan.profile(), plan.keeps(), prng);
        for (zone, blocks) in self.written.pop_front().unwrap_or_default() {
            drive.prefill(zone, blocks).expect("the limit on active zones was checked, and volumes respect it");
        }
        Ok(drive)
    }

    fn groups(&mut self, device: &DriveNode, prng: &Prng) -> Result<ZoneGroups, Infallible> {
        let written = self.written.front().cloned().unwrap_or_default();
        Ok(measured_groups(device, written, prng))
    }

    fn volume(
        &mut self,
        volume: &VolumeNode<Arc<DrivePlan>>,
        members: Vec<Stack<Ssd>>,
        prng: &Prng,
    ) -> Result<VolumeDevice<Stack<Ssd>>, Infallible> {
        let preparation = self.preparation.expect("a volume is prepared");
        let members = members.into_iter().map(Some).collect();
        let mut device = match self.filled.take() {
            Some(filled) => VolumeDevice::new(filled, members),
            None => {
                // Contents must be on the drives themselves.
                let mut device = VolumeDevice::new(preparation.create(volume), members);
                self.start = preparation.fill(&mut device, prng, None);
                device
            }
        };
        let is_ready = device.volume().is_ready();
        for &member in preparation.fail.iter().filter(|_| is_ready) {
            device.volume_mut().fail_member(self.start, member);
            device.replace(member, None);
            if preparation.rebuilds {
                let place = usize::from(member.0);
                let prng = prng.fork(&format!("member/{place}")).fork("replacement");
                let replacement = volume.members[place].build(self, &prng)?;
                device.replace(member, Some(replacement));
                let geometry = preparation.geometries[place].clone();
                let replaced = device.volume_mut().replace_member(self.start, member, geometry, [member.0 + 101; 16]);
                // A volume that has lost another member by faults may refuse it.
                if replaced.is_err() {
                    device.replace(member, None);
                }
            }
        }
        Ok(device.with_command_time(preparation.command_time))
    }
}

impl Preparation {
    fn create(&self, volume: &VolumeNode<Arc<DrivePlan>>) -> Volume {
        volume.create(self.geometries.clone()).expect("validated when the file was parsed")
    }

    /// Writes the initial contents, with as many outstanding writes as the volume accepts; returns
    /// when they are durable.
    fn fill<D: ZonedDevice>(&self, volume: &mut VolumeDevice<D>, prng: &Prng, block_time: Option<Duration>) -> Instant {
        let most = volume.geometry(NamespaceId::FIRST).max_transfer_blocks.0;
        let mut filler = Filler::new(volume, block_time);
        let mut at = 0;
        while at < self.fill_blocks {
            let count = most.min(self.fill_blocks - at);
            filler.write(at, count);
            at += count;
        }
        if self.overwrite_blocks > 0 {
            let places = Places::new(self.overwrite_distribution, self.fill_blocks);
            let mut prng = prng.fork("overwrite");
            for _ in 0..self.overwrite_blocks {
                filler.write(places.sample(&mut prng), 1);
            }
            // The run begins with garbage collection under load; a quiescent volume would have more
            // free segments.
            return filler.flush();
        }
        filler.quiesce()
    }
}

/// Advances time until the rebuild completes; returns the time since the start.
pub(crate) fn finish_rebuild(volume: &mut VolumeDevice<Stack<Ssd>>, start: Instant, from: Instant) -> Option<u64> {
    let mut now = from;
    loop {
        volume.process(now);
        while let Some(event) = volume.volume_mut().poll_event() {
            if matches!(event, Event::Rebuilt { .. }) {
                return Some(now.since(start).as_nanos());
            }
        }
        now = volume.next_timeout()?.max(now);
    }
}

/// Written blocks of each zone.
fn written(null: &Null) -> Vec<(ZoneIndex, Blocks)> {
    let geometry = null.geometry(NamespaceId::FIRST);
    (0..geometry.zone_count)
        .map(ZoneIndex)
        .filter_map(|zone| {
            let blocks = match null.zones().zone(zone).state {
                ZoneState::Empty => return None,
                ZoneState::Full => geometry.zone_capacity_blocks,
                _ => null.zones().readable_blocks(zone),
            };
            Some((zone, blocks))
        })
        .collect()
}

/// Time per block written to devices without latency, so that ages of segments differ.
const BLOCK_TIME: Duration = Duration::from_micros(4);

/// Writes to a volume before the run.
struct Filler<'a, D> {
    volume: &'a mut VolumeDevice<D>,
    completions: CompletionQueue,
    now: Instant,
    /// Time per block; by default, time advances as the devices require.
    block_time: Option<Duration>,
    submitted: u64,
    ended: u64,
    /// A write failed, because of faults of members: no further ones are submitted.
    has_failed: bool,
}

impl<'a, D: ZonedDevice> Filler<'a, D> {
    /// Waits until the volume is created.
    fn new(volume: &'a mut VolumeDevice<D>, block_time: Option<Duration>) -> Filler<'a, D> {
        let mut filler = Filler {
            volume,
            completions: CompletionQueue::new(),
            now: Instant::ZERO,
            block_time,
            submitted: 0,
            ended: 0,
            has_failed: false,
        };
        filler.poll();
        // Faults of its members can prevent the creation.
        while !filler.volume.volume().is_ready() && filler.advance() {}
        filler
    }

    fn write(&mut self, start: u64, blocks: u64) {
        if self.has_failed {
            return;
        }
        self.submit(Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload: Payload::None });
        match self.block_time {
            Some(block_time) => {
                self.now += Duration(block_time.0 * blocks);
                self.poll();
            }
            None => {
                self.advance();
            }
        }
    }

    fn submit(&mut self, operation: Operation) {
        let mut command = Command::new(CommandId(self.submitted), NamespaceId::FIRST, operation);
        self.submitted += 1;
        while let Err(QueueFull(refused)) = self.volume.submit(self.now, command) {
            command = refused;
            assert!(self.advance(), "a volume whose queue is full has outstanding requests");
        }
    }

    /// Waits until all writes are durable.
    fn flush(mut self) -> Instant {
        self.submit(Operation::Flush);
        while self.ended < self.submitted {
            assert!(self.advance(), "a flush ends");
        }
        self.now
    }

    /// Waits until the volume is quiescent.
    fn quiesce(mut self) -> Instant {
        while self.advance() {}
        self.now
    }

    /// Advances time to the next event; false if there is none.
    fn advance(&mut self) -> bool {
        let Some(next) = self.volume.next_timeout() else { return false };
        self.now = next.max(self.now);
        self.poll();
        true
    }

    fn poll(&mut self) {
        self.volume.poll(self.now, &mut self.completions);
        while let Some(completion) = self.completions.pop() {
            self.ended += 1;
            self.has_failed |= completion.status != Status::Success;
        }
    }
}
