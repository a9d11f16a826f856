//! A drive in memory whose zones share hardware in hidden groups.

use std::collections::BTreeMap;

use zonda_layers::Memory;
use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Duration, Geometry, Instant, NamespaceId, Namespaces, Operation,
    Prng, QueueFull, ZoneTarget, ZonedDevice,
};

use super::simulation::HiddenGroups;

/// The drive. A command takes effect when it is submitted, and completes after the commands of its
/// group before it.
pub(super) struct HiddenDrive {
    memory: Memory,
    hidden: HiddenGroups,
    of_zone: Vec<u32>,
    /// When each group is idle again; that of commands without a zone has the number of groups.
    idle: BTreeMap<u32, Instant>,
    /// By the time of completion, and the number of the command.
    held: BTreeMap<(Instant, u64), Completion>,
    is_read: BTreeMap<CommandId, bool>,
    submitted: u64,
    prng: Prng,
    scratch: CompletionQueue,
}

impl HiddenDrive {
    pub(super) fn new(geometry: &Geometry, hidden: &HiddenGroups, prng: Prng) -> HiddenDrive {
        HiddenDrive {
            memory: Memory::new(geometry.clone(), u64::MAX),
            of_zone: hidden.of_zone.clone(),
            hidden: hidden.clone(),
            idle: BTreeMap::new(),
            held: BTreeMap::new(),
            is_read: BTreeMap::new(),
            submitted: 0,
            prng,
            scratch: CompletionQueue::new(),
        }
    }

    /// The groups change.
    pub(super) fn change(&mut self) {
        self.of_zone.clone_from(&self.hidden.after_change);
    }

    fn group(&self, operation: &Operation) -> u32 {
        let geometry = self.memory.geometry(NamespaceId::FIRST);
        let start = match operation {
            Operation::Read { start, .. }
            | Operation::Write { start, .. }
            | Operation::WriteZeroes { start, .. }
            | Operation::Append { zone_start: start, .. }
            | Operation::ManageZones { target: ZoneTarget::Zone(start), .. } => Some(*start),
            _ => None,
        };
        let zone = start.and_then(|start| geometry.zone_of(start));
        zone.map_or(u32::MAX, |zone| self.of_zone[zone.as_usize()])
    }
}

impl ZonedDevice for HiddenDrive {
    fn namespaces(&self) -> &Namespaces {
        self.memory.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        let is_read = matches!(command.operation, Operation::Read { .. });
        let writes = self.is_read.values().filter(|is_read| !**is_read).count() as u64;
        let is_full = self.is_read.len() as u64 >= self.hidden.all_max;
        if is_full || !is_read && writes >= self.hidden.writes_max {
            return Err(QueueFull(command));
        }
        let (id, group) = (command.id, self.group(&command.operation));
        self.memory.submit(now, command)?;
        self.memory.poll(now, &mut self.scratch);
        let completion = self.scratch.pop().expect("memory completes a command at once");
        let time = self.hidden.service_ns + self.prng.below(self.hidden.noise_ns + 1);
        let idle = self.idle.entry(group).or_default();
        *idle = now.max(*idle) + Duration(time);
        self.submitted += 1;
        self.is_read.insert(id, is_read);
        self.held.insert((*idle, self.submitted), completion);
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        while let Some(first) = self.held.first_entry().filter(|first| first.key().0 <= now) {
            let completion = first.remove();
            self.is_read.remove(&completion.id);
            completions.push(completion);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.held.first_key_value().map(|(key, _)| key.0)
    }
}
