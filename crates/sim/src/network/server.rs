//! The server: a target and its drives. It can be killed and restarted; drives may lose power with
//! it.

use zonda_target::{DeviceKey, Target};
use zonda_zoned::{
    Command, Completion, CompletionQueue, Instant, NamespaceId, Operation, Payload, Prng, Status, ZoneAction,
};

use super::bugs::NetworkBug;
use super::drive::Drive;
use super::sharing::Store;
use super::simulation::{DriveShape, Network};

/// A prematurely acknowledged write is submitted after this many completions of the device.
const PREMATURE_BY: usize = 3;

/// The target while it is up, and the drives.
pub(crate) struct Server {
    pub(crate) target: Option<Target>,
    pub(crate) drives: Vec<Drive>,
    /// The store for reservations of the last device.
    pub(crate) store: Option<Store>,
    /// When it restarts.
    pub(crate) up_at: Option<Instant>,
    pub(crate) kills: u64,
    bug: Option<NetworkBug>,
    bugs: Prng,
    /// It accepts no further command, and goes down when all commands have completed.
    pub(crate) is_draining: bool,
    /// The run ends: seeded bugs have no more effect.
    pub(crate) is_ending: bool,
    /// A connection was lost since the last dropped completion: a seeded bug drops the next one.
    has_lost_connection: bool,
}

impl Server {
    pub(crate) fn new(simulation: &Network, bug: Option<NetworkBug>) -> Server {
        let drive =
            |(place, shape): (usize, &DriveShape)| Drive::new(shape, &simulation.root.fork(&format!("drive/{place}")));
        Server {
            target: Some(Target::new(simulation.target.clone()).expect("a generated target is valid")),
            drives: simulation.drives.iter().enumerate().map(drive).collect(),
            store: simulation
                .sharing
                .as_ref()
                .filter(|sharing| sharing.keeps)
                .map(|sharing| Store::new(sharing.fails, simulation.root.fork("store"))),
            up_at: None,
            kills: 0,
            bug,
            bugs: simulation.root.fork("bugs"),
            is_draining: false,
            is_ending: false,
            has_lost_connection: false,
        }
    }

    /// Kills the process, with every connection and all commands in flight.
    pub(crate) fn kill(&mut self, simulation: &Network, lose_power: bool, up_at: Instant, prng: &mut Prng) {
        self.go_down(up_at);
        self.kills += 1;
        for (place, drive) in self.drives.iter_mut().enumerate() {
            let root = simulation.root.fork(&format!("drive/{place}"));
            drive.lose_server(lose_power, &simulation.drives[place], &root, prng, self.kills);
        }
    }

    /// Removes the target until a restart.
    pub(crate) fn go_down(&mut self, up_at: Instant) {
        self.target = None;
        if let Some(store) = &mut self.store {
            store.interrupt();
        }
        self.is_draining = false;
        self.up_at = Some(up_at);
    }

    pub(crate) fn come_up(&mut self, simulation: &Network) {
        self.up_at = None;
        let mut config = simulation.target.clone();
        if let Some(store) = &self.store {
            let is_stale = self.bug == Some(NetworkBug::StaleReservations) && self.bugs.chance(1, 2);
            let saved = if is_stale { store.saved_before() } else { store.saved() };
            config.saved_reservations.insert(DeviceKey(simulation.drives.len() as u32 - 1), saved);
        }
        self.target = Some(Target::new(config).expect("it was valid before"));
    }

    /// Submits a command of the target to its drive.
    pub(crate) fn submit(&mut self, now: Instant, device: DeviceKey, command: Command) {
        let drive = &mut self.drives[device.0 as usize];
        let is_write = matches!(command.operation, Operation::Write { .. });
        match self.bug {
            Some(NetworkBug::PrematureResponse) if is_write && self.bugs.chance(1, 4) => {
                let completion = Completion::of(command.id, Status::Success);
                drive.late.push_back(command);
                let target = self.target.as_mut().expect("it has just submitted a command");
                return target.on_completion(now, device, completion);
            }
            Some(NetworkBug::DroppedChunk) if self.bugs.chance(1, 20) => {
                return drive.submit(now, without_a_block(command));
            }
            Some(NetworkBug::ReplayedCommand) if changes_zones(&command.operation) => {
                drive.last = Some(command.clone());
            }
            _ => {}
        }
        drive.submit(now, command);
    }

    /// Polls a drive for completions.
    pub(crate) fn poll(&mut self, now: Instant, place: usize, scratch: &mut CompletionQueue) {
        let drive = &mut self.drives[place];
        drive.poll(now, scratch);
        if drive.late.len() >= PREMATURE_BY
            && let Some(late) = drive.late.pop_front()
        {
            drive.submit_internal(now, late);
        }
        while let Some(completion) = scratch.pop() {
            if self.bug == Some(NetworkBug::LostCompletion) && std::mem::take(&mut self.has_lost_connection) {
                continue;
            }
            if let Some(target) = &mut self.target {
                target.on_completion(now, DeviceKey(place as u32), completion);
            }
        }
    }

    /// Notes that the server has lost a connection.
    pub(crate) fn connection_lost(&mut self, now: Instant) {
        if self.is_ending {
            return;
        }
        self.has_lost_connection = true;
        if self.bug == Some(NetworkBug::ReplayedCommand) && self.target.is_some() {
            for drive in &mut self.drives {
                if let Some(again) = drive.last.take() {
                    drive.submit_internal(now, again);
                }
            }
        }
    }
}

/// Whether repeating the operation changes the state of a zone.
fn changes_zones(operation: &Operation) -> bool {
    let is_reset = matches!(operation, Operation::ManageZones { action: ZoneAction::Reset, .. });
    is_reset || matches!(operation, Operation::Append { .. })
}

/// A write whose first block is replaced by zeros.
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
    assert_eq!(command.namespace, NamespaceId::FIRST);
    command
}
