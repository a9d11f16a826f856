//! The server: a target, and the drives it gives commands to. It can die and come back; drives may lose power with it.

use std::collections::VecDeque;

use zonda_layers::{Delay, Memory, Shared};
use zonda_ssd::Ssd;
use zonda_target::{DeviceKey, Target};
use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Instant, NamespaceId, Operation, Payload, Prng, QueueFull, Status,
    ZoneAction, ZonedDevice,
};

use super::bugs::NetworkBug;
use super::world::{DriveShape, Network};

type Device = Box<dyn ZonedDevice>;

/// Bytes that a drive in memory may keep: enough for any that is drawn.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// By how many device completions a write is late that was acknowledged too early.
const PREMATURE_BY: usize = 3;

/// The target while it is up, and the drives.
pub(crate) struct Server {
    pub(crate) target: Option<Target>,
    pub(crate) drives: Vec<Drive>,
    /// When it comes back.
    pub(crate) up_at: Option<Instant>,
    pub(crate) deaths: u64,
    bug: Option<NetworkBug>,
    bugs: Prng,
    /// It takes nothing more, and goes down when it has ended what it has.
    pub(crate) is_draining: bool,
    /// Hosts take their leave for good: a planted bug has had its time.
    pub(crate) is_ending: bool,
    /// A connection has been lost since a completion got lost: the bug strikes.
    has_lost_connection: bool,
}

/// A drive with what is above it.
pub(crate) struct Drive {
    /// Absent only while the power is off.
    handle: Option<Handle>,
    /// What the target submits to; without it the commands under way end unseen.
    stack: Option<Device>,
    /// Commands that the drive had no room for, in order.
    backlog: VecDeque<Command>,
    /// Writes that were acknowledged and that the drive does not have.
    late: VecDeque<Command>,
    /// What a server that repeats itself would repeat.
    last: Option<Command>,
    /// Completions of commands that the target knows nothing of.
    extra: Vec<CommandId>,
}

#[derive(Clone)]
enum Handle {
    Model(Shared<Ssd>),
    Memory(Shared<Memory>),
}

impl Drive {
    fn new(shape: &DriveShape, root: &Prng) -> Drive {
        let handle = match &shape.profile {
            Some(profile) => {
                let drive = Ssd::new(profile, zonda_zoned::PayloadKind::Bytes, &root.fork("life/0"));
                Handle::Model(Shared::new(drive))
            }
            None => Handle::Memory(Shared::new(Memory::new(shape.geometry.clone(), MEMORY_BYTES_MAX))),
        };
        let mut drive = Drive {
            handle: Some(handle),
            stack: None,
            backlog: VecDeque::new(),
            late: VecDeque::new(),
            last: None,
            extra: Vec::new(),
        };
        drive.rebuild(shape, root, 0);
        drive
    }

    fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("the power is on")
    }

    /// Another handle on the drive, as a device.
    pub(crate) fn device(&self) -> Device {
        match self.handle() {
            Handle::Model(drive) => Box::new(drive.clone()),
            Handle::Memory(drive) => Box::new(drive.clone()),
        }
    }

    fn rebuild(&mut self, shape: &DriveShape, root: &Prng, life: u64) {
        let prng = root.fork(&format!("delays/{life}"));
        self.stack = Some(Box::new(Delay::new(self.device(), shape.delays.clone(), prng)));
    }

    /// The server dies: what the drive has been given happens, what it has not is lost.
    fn lose_server(&mut self, lose_power: bool, shape: &DriveShape, root: &Prng, prng: &mut Prng, life: u64) {
        self.stack = None;
        self.backlog.clear();
        self.late.clear();
        self.last = None;
        self.extra.clear();
        if lose_power {
            self.handle = Some(match self.handle.take().expect("the power is on") {
                Handle::Model(drive) => {
                    let Ok(drive) = drive.take_inner() else { panic!("no other handle is left") };
                    let media = drive.power_loss(prng);
                    let profile = shape.profile.as_ref().expect("a model has a profile");
                    let drive = Ssd::power_on(profile, media, &root.fork(&format!("life/{life}")));
                    Handle::Model(Shared::new(drive))
                }
                Handle::Memory(drive) => {
                    drive.with_inner_mut(Memory::power_cycle);
                    Handle::Memory(drive)
                }
            });
        }
        self.rebuild(shape, root, life);
    }

    fn give(&mut self, now: Instant, command: Command) {
        if self.backlog.is_empty() {
            let stack = self.stack.as_mut().expect("the server has its drives");
            if let Err(QueueFull(command)) = stack.submit(now, command) {
                self.backlog.push_back(command);
            }
        } else {
            self.backlog.push_back(command);
        }
    }

    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.stack.as_ref().and_then(ZonedDevice::next_wakeup)
    }

    pub(crate) fn check_invariants(&self) {
        if let Handle::Model(drive) = self.handle() {
            drive.with_inner(Ssd::check_invariants);
        }
    }
}

impl Server {
    pub(crate) fn new(world: &Network, bug: Option<NetworkBug>) -> Server {
        let drive =
            |(place, shape): (usize, &DriveShape)| Drive::new(shape, &world.root.fork(&format!("drive/{place}")));
        Server {
            target: Some(Target::new(world.target.clone()).expect("a drawn target is valid")),
            drives: world.drives.iter().enumerate().map(drive).collect(),
            up_at: None,
            deaths: 0,
            bug,
            bugs: world.root.fork("bugs"),
            is_draining: false,
            is_ending: false,
            has_lost_connection: false,
        }
    }

    /// The process is gone, with every connection and everything under way.
    pub(crate) fn die(&mut self, world: &Network, lose_power: bool, up_at: Instant, prng: &mut Prng) {
        self.go_down(up_at);
        self.deaths += 1;
        for (place, drive) in self.drives.iter_mut().enumerate() {
            let root = world.root.fork(&format!("drive/{place}"));
            drive.lose_server(lose_power, &world.drives[place], &root, prng, self.deaths);
        }
    }

    /// There is no target until then.
    pub(crate) fn go_down(&mut self, up_at: Instant) {
        self.target = None;
        self.is_draining = false;
        self.up_at = Some(up_at);
    }

    pub(crate) fn come_up(&mut self, world: &Network) {
        self.up_at = None;
        self.target = Some(Target::new(world.target.clone()).expect("it was valid before"));
    }

    /// Gives a command of the target to its drive.
    pub(crate) fn submit(&mut self, now: Instant, device: DeviceKey, command: Command) {
        let drive = &mut self.drives[device.0 as usize];
        let is_write = matches!(command.operation, Operation::Write { .. });
        match self.bug {
            Some(NetworkBug::PrematureResponse) if is_write && self.bugs.chance(1, 4) => {
                let completion = Completion::of(command.id, Status::Success);
                drive.late.push_back(command);
                let target = self.target.as_mut().expect("it has just submitted");
                return target.completed(now, device, completion);
            }
            Some(NetworkBug::DroppedChunk) if self.bugs.chance(1, 20) => {
                return drive.give(now, without_a_block(command));
            }
            Some(NetworkBug::ReplayedCommand) if changes_zones(&command.operation) => {
                drive.last = Some(command.clone());
            }
            _ => {}
        }
        drive.give(now, command);
    }

    /// A drive has news.
    pub(crate) fn poll(&mut self, now: Instant, place: usize, scratch: &mut CompletionQueue) {
        let drive = &mut self.drives[place];
        drive.stack.as_mut().expect("the server has its drives").poll(now, scratch);
        if drive.late.len() >= PREMATURE_BY
            && let Some(mut late) = drive.late.pop_front()
        {
            late.id = CommandId(late.id.0 | 1 << 63);
            drive.extra.push(late.id);
            drive.give(now, late);
        }
        while let Some(command) = drive.backlog.pop_front() {
            let stack = drive.stack.as_mut().expect("the server has its drives");
            if let Err(QueueFull(command)) = stack.submit(now, command) {
                drive.backlog.push_front(command);
                break;
            }
        }
        while let Some(completion) = scratch.pop() {
            let drive = &mut self.drives[place];
            if let Some(extra) = drive.extra.iter().position(|id| *id == completion.id) {
                drive.extra.swap_remove(extra);
                continue;
            }
            if self.bug == Some(NetworkBug::LostCompletion) && std::mem::take(&mut self.has_lost_connection) {
                continue;
            }
            if let Some(target) = &mut self.target {
                target.completed(now, DeviceKey(place as u32), completion);
            }
        }
    }

    /// The server has lost a connection.
    pub(crate) fn connection_lost(&mut self, now: Instant) {
        if self.is_ending {
            return;
        }
        self.has_lost_connection = true;
        if self.bug == Some(NetworkBug::ReplayedCommand) && self.target.is_some() {
            for drive in &mut self.drives {
                if let Some(mut again) = drive.last.take() {
                    again.id = CommandId(again.id.0 | 1 << 63);
                    drive.extra.push(again.id);
                    drive.give(now, again);
                }
            }
        }
    }
}

/// Whether to do it again makes a difference.
fn changes_zones(operation: &Operation) -> bool {
    let is_reset = matches!(operation, Operation::ManageZones { action: ZoneAction::Reset, .. });
    is_reset || matches!(operation, Operation::Append { .. })
}

/// A write whose first block is lost: zeros are in its place.
fn without_a_block(mut command: Command) -> Command {
    let (Operation::Write { payload: Payload::Bytes(buffer), blocks, .. }
    | Operation::Append { payload: Payload::Bytes(buffer), blocks, .. }) = &mut command.operation
    else {
        return command;
    };
    let block_bytes = buffer.data.len() / blocks.0 as usize;
    let mut data = buffer.data.to_vec();
    data[..block_bytes].fill(0);
    buffer.data = data.into();
    debug_assert_eq!(command.namespace, NamespaceId::FIRST);
    command
}
