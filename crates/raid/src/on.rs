//! [`VolumeOn`]: a volume with its members, as a device of conventional zones.

use std::collections::VecDeque;

use zonda_zoned::{Command, CompletionQueue, Duration, Geometry, Instant, NamespaceId, QueueFull, ZonedDevice};

use crate::{MemberIndex, Volume};

/// A volume and the devices below it. It is a [`ZonedDevice`] again, whose zones are all conventional.
#[derive(Debug)]
pub struct VolumeOn<D> {
    volume: Volume,
    members: Vec<Option<D>>,
    completions: CompletionQueue,
    /// When something was last done.
    now: Instant,
    /// What a command costs the processor that the volume runs on.
    command_time: Duration,
    /// When that processor has done all it was given.
    busy_until: Instant,
    /// Commands that it is busy with, in their order.
    prepared: VecDeque<(Instant, MemberIndex, Command)>,
    /// When members that had no room are asked again: where they have nothing under way, nothing else will wake anybody.
    ask_again_at: Option<Instant>,
}

/// How long a member that had no room is left alone.
const FULL_PAUSE: Duration = Duration::from_micros(100);

impl<D: ZonedDevice> VolumeOn<D> {
    /// Puts a volume on its members, in their order; `None` for those that are absent. Nothing moves before the first poll.
    pub fn new(volume: Volume, members: Vec<Option<D>>) -> VolumeOn<D> {
        assert_eq!(volume.member_count(), members.len(), "a volume has a place for each of its members");
        VolumeOn {
            volume,
            members,
            completions: CompletionQueue::new(),
            now: Instant::ZERO,
            command_time: Duration(0),
            busy_until: Instant::ZERO,
            prepared: VecDeque::new(),
            ask_again_at: None,
        }
    }

    /// In simulation: every command to a member takes this time of one processor, one after another.
    #[must_use]
    pub fn with_command_time(mut self, command_time: Duration) -> VolumeOn<D> {
        self.command_time = command_time;
        self
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The volume, to manage it.
    pub fn volume_mut(&mut self) -> &mut Volume {
        &mut self.volume
    }

    /// A member's device.
    pub fn member(&self, member: MemberIndex) -> Option<&D> {
        self.members[member.as_usize()].as_ref()
    }

    /// A member's device. What is submitted to it directly must not be polled for here.
    pub fn member_mut(&mut self, member: MemberIndex) -> Option<&mut D> {
        self.members[member.as_usize()].as_mut()
    }

    /// Takes a member's device out, as a hand that pulls it, or puts another in.
    pub fn replace(&mut self, member: MemberIndex, device: Option<D>) -> Option<D> {
        std::mem::replace(&mut self.members[member.as_usize()], device)
    }

    /// The volume and its devices again.
    pub fn into_parts(self) -> (Volume, Vec<Option<D>>) {
        (self.volume, self.members)
    }

    /// Gives members their commands.
    fn hand_out(&mut self, now: Instant) {
        self.now = now;
        self.ask_again_at.take_if(|at| *at <= now);
        while self.prepared.front().is_some_and(|(ready, ..)| *ready <= now) {
            let Some((_, member, command)) = self.prepared.pop_front() else { break };
            self.give(now, member, command);
        }
        for member in (0..self.members.len() as u8).map(MemberIndex) {
            while let Some(command) = self.volume.poll_command(now, member) {
                if self.command_time.0 > 0 {
                    self.busy_until = self.busy_until.max(now) + self.command_time;
                    self.prepared.push_back((self.busy_until, member, command));
                } else if !self.give(now, member, command) {
                    break;
                }
            }
        }
    }

    /// Says whether the member took the command.
    fn give(&mut self, now: Instant, member: MemberIndex, command: Command) -> bool {
        // A command to a device that is gone is one that nobody answers.
        let Some(device) = &mut self.members[member.as_usize()] else { return true };
        match device.submit(now, command) {
            Ok(()) => true,
            Err(QueueFull(command)) => {
                self.volume.on_queue_full(member, command);
                if !self.volume.waits_for_completion(member) {
                    self.ask_again_at.get_or_insert(now + FULL_PAUSE);
                }
                false
            }
        }
    }

    /// Moves commands and completions until nothing moves at `now`.
    pub fn turn(&mut self, now: Instant) {
        loop {
            let mut moves = false;
            if self.volume.next_timeout().is_some_and(|due| due <= now) {
                self.volume.on_timeout(now);
                moves = true;
            }
            self.hand_out(now);
            for (at, device) in self.members.iter_mut().enumerate() {
                let Some(device) = device else { continue };
                device.poll(now, &mut self.completions);
                while let Some(completion) = self.completions.pop() {
                    self.volume.on_completion(now, MemberIndex(at as u8), completion);
                    moves = true;
                }
            }
            // Only what has just ended makes new commands, and most of it makes none.
            if !moves || !self.volume.has_commands() && self.volume.next_timeout().is_none_or(|due| due > now) {
                return;
            }
        }
    }
}

impl<D: ZonedDevice> ZonedDevice for VolumeOn<D> {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        assert_eq!(namespace, NamespaceId::FIRST, "a volume is one namespace");
        self.volume.geometry()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.volume.submit(now, command)?;
        self.hand_out(now);
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.turn(now);
        while let Some(completion) = self.volume.poll_completion() {
            completions.push(completion);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        if self.volume.has_completions() {
            return Some(self.now);
        }
        let devices = self.members.iter().flatten().filter_map(ZonedDevice::next_wakeup);
        let prepared = self.prepared.front().map(|(ready, ..)| *ready);
        devices.chain(self.volume.next_timeout()).chain(prepared).chain(self.ask_again_at).min()
    }
}
