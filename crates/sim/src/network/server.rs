//! The server: a target, and the drives it gives commands to. It can die and come back; drives may lose power with it.

use zonda_target::{DeviceKey, Target};
use zonda_zoned::{
    Command, Completion, CompletionQueue, Instant, NamespaceId, Operation, Payload, Prng, Status, ZoneAction,
};

use super::bugs::NetworkBug;
use super::drive::Drive;
use super::sharing::Store;
use super::world::{DriveShape, Network};

/// By how many device completions a write is late that was acknowledged too early.
const PREMATURE_BY: usize = 3;

/// The target while it is up, and the drives.
pub(crate) struct Server {
    pub(crate) target: Option<Target>,
    pub(crate) drives: Vec<Drive>,
    /// Of the device that keeps reservations, the last one.
    pub(crate) store: Option<Store>,
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

impl Server {
    pub(crate) fn new(world: &Network, bug: Option<NetworkBug>) -> Server {
        let drive =
            |(place, shape): (usize, &DriveShape)| Drive::new(shape, &world.root.fork(&format!("drive/{place}")));
        Server {
            target: Some(Target::new(world.target.clone()).expect("a drawn target is valid")),
            drives: world.drives.iter().enumerate().map(drive).collect(),
            store: world
                .sharing
                .as_ref()
                .filter(|sharing| sharing.keeps)
                .map(|sharing| Store::new(sharing.fails, world.root.fork("store"))),
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
        if let Some(store) = &mut self.store {
            store.cut();
        }
        self.is_draining = false;
        self.up_at = Some(up_at);
    }

    pub(crate) fn come_up(&mut self, world: &Network) {
        self.up_at = None;
        let mut config = world.target.clone();
        if let Some(store) = &self.store {
            let is_stale = self.bug == Some(NetworkBug::StaleReservations) && self.bugs.chance(1, 2);
            let found = if is_stale { store.found_before() } else { store.found() };
            config.kept_reservations.insert(DeviceKey(world.drives.len() as u32 - 1), found);
        }
        self.target = Some(Target::new(config).expect("it was valid before"));
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
        drive.poll(now, scratch);
        if drive.late.len() >= PREMATURE_BY
            && let Some(late) = drive.late.pop_front()
        {
            drive.give_unasked(now, late);
        }
        while let Some(completion) = scratch.pop() {
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
                if let Some(again) = drive.last.take() {
                    drive.give_unasked(now, again);
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
