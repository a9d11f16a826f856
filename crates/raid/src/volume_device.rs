//! [`VolumeDevice`]: a volume on its member devices, as a device of conventional zones.

use std::collections::VecDeque;

use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{
    Command, Completion, CompletionQueue, Duration, Instant, NamespaceId, Namespaces, Operation, Outcome, Payload,
    QueueFull, Status, ZonedDevice,
};

use crate::{MemberIndex, Volume};

/// A volume and its member devices. It is a [`ZonedDevice`] itself, whose zones are all
/// conventional.
#[derive(Debug)]
pub struct VolumeDevice<D> {
    volume: Volume,
    namespaces: Namespaces,
    /// The conventional zones that hosts see. They decide which commands are valid, so that a
    /// volume refuses what every other device refuses, and with the same status. `None` until the
    /// size is known: a mount reads it from the superblocks.
    zones: Option<ZoneTable>,
    members: Vec<Option<D>>,
    completions: CompletionQueue,
    /// Completions of commands that the volume does not execute.
    answers: CompletionQueue,
    /// Time of the last activity.
    now: Instant,
    /// CPU time per command.
    command_time: Duration,
    /// When the CPU has processed all commands so far.
    busy_until: Instant,
    /// Commands that the CPU processes, in their order.
    prepared: VecDeque<(Instant, MemberIndex, Command)>,
    /// When members with full queues are retried: if nothing is in flight on them, no completion
    /// will trigger it.
    retry_at: Option<Instant>,
}

/// Interval between retries of a member with a full queue.
const FULL_PAUSE: Duration = Duration::from_micros(100);

impl<D: ZonedDevice> VolumeDevice<D> {
    /// Creates the device from a volume and its members, in their order; `None` for missing
    /// members. No command is sent before the first poll.
    pub fn new(volume: Volume, members: Vec<Option<D>>) -> VolumeDevice<D> {
        assert_eq!(volume.member_count(), members.len(), "a volume has a place for each of its members");
        VolumeDevice {
            namespaces: Namespaces::single(volume.geometry().clone()),
            zones: None,
            volume,
            members,
            completions: CompletionQueue::new(),
            answers: CompletionQueue::new(),
            now: Instant::ZERO,
            command_time: Duration(0),
            busy_until: Instant::ZERO,
            prepared: VecDeque::new(),
            retry_at: None,
        }
    }

    /// For simulations: each command to a member takes this much CPU time, one after another.
    #[must_use]
    pub fn with_command_time(mut self, command_time: Duration) -> VolumeDevice<D> {
        self.command_time = command_time;
        self
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The volume, for management.
    pub fn volume_mut(&mut self) -> &mut Volume {
        &mut self.volume
    }

    /// A member's device.
    pub fn member(&self, member: MemberIndex) -> Option<&D> {
        self.members[member.as_usize()].as_ref()
    }

    /// A member's device. Commands submitted to it directly must be polled directly, too.
    pub fn member_mut(&mut self, member: MemberIndex) -> Option<&mut D> {
        self.members[member.as_usize()].as_mut()
    }

    /// Removes a member's device, or replaces it by another one.
    pub fn replace(&mut self, member: MemberIndex, device: Option<D>) -> Option<D> {
        std::mem::replace(&mut self.members[member.as_usize()], device)
    }

    /// Returns the volume and its devices.
    pub fn into_parts(self) -> (Volume, Vec<Option<D>>) {
        (self.volume, self.members)
    }

    /// Sends pending commands to the members.
    fn send_commands(&mut self, now: Instant) {
        self.now = now;
        self.retry_at.take_if(|at| *at <= now);
        while self.prepared.front().is_some_and(|(ready, ..)| *ready <= now) {
            let Some((_, member, command)) = self.prepared.pop_front() else { break };
            self.send(now, member, command);
        }
        for member in (0..self.members.len() as u8).map(MemberIndex) {
            while let Some(command) = self.volume.poll_command(now, member) {
                if self.command_time.0 > 0 {
                    self.busy_until = self.busy_until.max(now) + self.command_time;
                    self.prepared.push_back((self.busy_until, member, command));
                } else if !self.send(now, member, command) {
                    break;
                }
            }
        }
    }

    /// Returns whether the member accepted the command.
    fn send(&mut self, now: Instant, member: MemberIndex, command: Command) -> bool {
        // A command to a removed device is never completed.
        let Some(device) = &mut self.members[member.as_usize()] else { return true };
        match device.submit(now, command) {
            Ok(()) => true,
            Err(QueueFull(command)) => {
                self.volume.on_queue_full(member, command);
                if !self.volume.waits_for_completion(member) {
                    self.retry_at.get_or_insert(now + FULL_PAUSE);
                }
                false
            }
        }
    }

    /// Processes commands and completions until none are left at `now`.
    pub fn process(&mut self, now: Instant) {
        self.process_all(now);
        if self.zones.is_none() && self.volume.is_ready() {
            self.namespaces = Namespaces::single(self.volume.geometry().clone());
            self.zones = Some(ZoneTable::new(self.volume.geometry().clone()));
        }
    }

    /// Completes a command that the volume does not execute: one that the rules of zones refuse, or
    /// that asks about zones, or acts on all of them. `None`: the volume executes it, or refuses it
    /// because it is not mounted yet.
    pub fn answer(&mut self, command: &Command) -> Option<Completion> {
        match outcome_without_members(self.zones.as_mut()?, command) {
            Ok(None) => None,
            Ok(Some(outcome)) => Some(Completion { id: command.id, status: Status::Success, outcome }),
            Err(status) => Some(Completion::of(command.id, status)),
        }
    }

    fn process_all(&mut self, now: Instant) {
        loop {
            let mut moves = false;
            if self.volume.next_timeout().is_some_and(|due| due <= now) {
                self.volume.on_timeout(now);
                moves = true;
            }
            self.send_commands(now);
            for (at, device) in self.members.iter_mut().enumerate() {
                let Some(device) = device else { continue };
                device.poll(now, &mut self.completions);
                while let Some(completion) = self.completions.pop() {
                    self.volume.on_completion(now, MemberIndex(at as u8), completion);
                    moves = true;
                }
            }
            // Only completions produce new commands, and most produce none.
            if !moves || !self.volume.has_commands() && self.volume.next_timeout().is_none_or(|due| due > now) {
                return;
            }
        }
    }
}

/// What a command returns that needs no member; `None`: the volume executes it.
fn outcome_without_members(zones: &mut ZoneTable, command: &Command) -> Result<Option<Outcome>, Status> {
    if command.namespace != NamespaceId::FIRST {
        return Err(Status::InvalidNamespace);
    }
    let block_bytes = zones.geometry().block_size_bytes;
    // Parity cannot be computed of fingerprints.
    let fits = |payload: &Payload, blocks: u64| {
        !matches!(payload, Payload::Fingerprints(_)) && payload.fits(blocks, block_bytes, 0)
    };
    match &command.operation {
        Operation::Read { start, blocks } => zones.check_read(*start, *blocks)?,
        Operation::Write { start, blocks, payload } => {
            zones.write(*start, *blocks, fits(payload, blocks.0))?;
        }
        Operation::WriteZeroes { start, blocks } => {
            zones.write_zeroes(*start, *blocks)?;
        }
        Operation::Deallocate { ranges } => zones.check_deallocate(ranges)?,
        Operation::Flush => {}
        Operation::Append { zone_start, blocks, payload } => {
            let granted = zones.append(*zone_start, *blocks, fits(payload, blocks.0))?;
            unreachable!("an append was granted in conventional zone {}", granted.zone);
        }
        Operation::ManageZones { action, target } => {
            let mut effects = Vec::new();
            zones.manage(action, *target, &mut effects)?;
            assert!(effects.is_empty(), "conventional zones have no state to change, but {effects:?}");
            return Ok(Some(Outcome::None));
        }
        Operation::ReportZones { start, filter, extended, partial, descriptors_max } => {
            let report = zones.report(*start, *filter, *extended, *partial, *descriptors_max)?;
            return Ok(Some(Outcome::Report(Box::new(report))));
        }
        Operation::ReadChangedZones => {
            return Ok(Some(Outcome::ChangedZones(Box::new(zones.take_changed_zones()))));
        }
    }
    Ok(None)
}

impl<D: ZonedDevice> ZonedDevice for VolumeDevice<D> {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if let Some(answer) = self.answer(&command) {
            self.now = now;
            self.answers.push(answer);
            return Ok(());
        }
        self.volume.submit(now, command)?;
        self.send_commands(now);
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.process(now);
        while let Some(answer) = self.answers.pop() {
            completions.push(answer);
        }
        while let Some(completion) = self.volume.poll_completion() {
            completions.push(completion);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.volume.has_completions() || !self.answers.is_empty() {
            return Some(self.now);
        }
        let devices = self.members.iter().flatten().filter_map(ZonedDevice::next_timeout);
        let prepared = self.prepared.front().map(|(ready, ..)| *ready);
        devices.chain(self.volume.next_timeout()).chain(prepared).chain(self.retry_at).min()
    }
}
