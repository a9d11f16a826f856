//! A drive below the target, with what is above it. It outlives servers.

use std::collections::{BTreeMap, VecDeque};

use zonda_layers::{Delay, Fault, Memory, Shared};
use zonda_ssd::Ssd;
use zonda_zoned::{Command, CommandId, CompletionQueue, Instant, PayloadKind, Prng, QueueFull, ZonedDevice};

use super::world::DriveShape;

type Device = Box<dyn ZonedDevice>;

/// Bytes that a drive in memory may keep: enough for any that is drawn.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// The bit in the identifiers of commands that no target has submitted.
const UNASKED: u64 = 1 << 63;

/// A drive with what is above it.
pub(crate) struct Drive {
    /// Absent only while the power is off.
    handle: Option<Handle>,
    /// What the target submits to; absent only while the server dies.
    stack: Option<Stack>,
    /// Those of servers that have died: what they have under way ends, and nobody hears of it.
    orphans: Vec<Stack>,
    /// Commands so far.
    submitted: u64,
    /// Commands that the drive had no room for, in order, with their numbers.
    backlog: VecDeque<(u64, Command)>,
    /// Writes that were acknowledged and that the drive does not have.
    pub(super) late: VecDeque<Command>,
    /// What a server that repeats itself would repeat.
    pub(super) last: Option<Command>,
    unasked: u64,
}

#[derive(Clone)]
enum Handle {
    Model(Shared<Ssd>),
    Memory(Shared<Memory>),
}

/// The layers over a drive, and the number of each command under way.
struct Stack {
    device: Device,
    under_way: BTreeMap<CommandId, u64>,
}

impl Drive {
    pub(crate) fn new(shape: &DriveShape, root: &Prng) -> Drive {
        let handle = match &shape.profile {
            Some(profile) => Handle::Model(Shared::new(Ssd::new(profile, PayloadKind::Bytes, &root.fork("life/0")))),
            None => Handle::Memory(Shared::new(Memory::new(shape.geometry.clone(), MEMORY_BYTES_MAX))),
        };
        let mut drive = Drive {
            handle: Some(handle),
            stack: None,
            orphans: Vec::new(),
            submitted: 0,
            backlog: VecDeque::new(),
            late: VecDeque::new(),
            last: None,
            unasked: 0,
        };
        drive.rebuild(shape, root, 0);
        drive
    }

    /// Another handle on the drive, as a device.
    pub(crate) fn device(&self) -> Device {
        match self.handle() {
            Handle::Model(drive) => Box::new(drive.clone()),
            Handle::Memory(drive) => Box::new(drive.clone()),
        }
    }

    /// The server dies: what the drive has been given happens, what it has not is lost. With its power the drive loses what
    /// it may.
    pub(super) fn lose_server(
        &mut self,
        loses_power: bool,
        shape: &DriveShape,
        root: &Prng,
        prng: &mut Prng,
        life: u64,
    ) {
        self.orphans.extend(self.stack.take().filter(|stack| !stack.under_way.is_empty()));
        self.backlog.clear();
        self.late.clear();
        self.last = None;
        if loses_power {
            self.orphans.clear();
            self.handle = Some(match self.handle.take().expect("the power is on") {
                Handle::Model(drive) => {
                    let Ok(drive) = drive.take_inner() else { panic!("no other handle is left") };
                    let media = drive.power_loss(prng);
                    let profile = shape.profile.as_ref().expect("a model has a profile");
                    Handle::Model(Shared::new(Ssd::power_on(profile, media, &root.fork(&format!("life/{life}")))))
                }
                Handle::Memory(drive) => {
                    drive.with_inner_mut(Memory::power_cycle);
                    Handle::Memory(drive)
                }
            });
        }
        self.rebuild(shape, root, life);
    }

    /// Gives it a command, after those before.
    pub(super) fn give(&mut self, now: Instant, command: Command) {
        self.submitted += 1;
        self.backlog.push_back((self.submitted, command));
        if self.backlog.len() == 1 {
            self.hand_over(now);
        }
    }

    /// Gives it a command that no target has submitted, and whose end nobody hears of.
    pub(super) fn give_unasked(&mut self, now: Instant, command: Command) {
        self.unasked += 1;
        self.give(now, Command { id: CommandId(self.unasked | UNASKED), ..command });
    }

    pub(super) fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let mut all = CompletionQueue::new();
        for orphan in &mut self.orphans {
            orphan.device.poll(now, &mut all);
            while let Some(completion) = all.pop() {
                orphan.under_way.remove(&completion.id);
            }
        }
        self.orphans.retain(|orphan| !orphan.under_way.is_empty());
        let stack = self.stack();
        stack.device.poll(now, &mut all);
        while let Some(completion) = all.pop() {
            stack.under_way.remove(&completion.id).expect("a drive ends what it was given");
            if completion.id.0 & UNASKED == 0 {
                completions.push(completion);
            }
        }
        self.hand_over(now);
    }

    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let stacks = self.stack.iter().chain(&self.orphans);
        stacks.filter_map(|stack| stack.device.next_wakeup()).min()
    }

    /// The number of the last command.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Whether all commands up to a number have ended, so that no loss of power can take one of them back.
    pub(crate) fn has_ended(&self, number: u64) -> bool {
        let stacks = self.stack.iter().chain(&self.orphans);
        let mut numbers =
            stacks.flat_map(|stack| stack.under_way.values()).chain(self.backlog.iter().map(|(of, _)| of));
        numbers.all(|of| *of > number)
    }

    pub(crate) fn check_invariants(&self) {
        if let Handle::Model(drive) = self.handle() {
            drive.with_inner(Ssd::check_invariants);
        }
    }

    fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("the power is on")
    }

    fn stack(&mut self) -> &mut Stack {
        self.stack.as_mut().expect("the server has its drives")
    }

    fn rebuild(&mut self, shape: &DriveShape, root: &Prng, life: u64) {
        let prng = |label: &str| root.fork(&format!("{label}/{life}"));
        let late = Delay::new(self.device(), shape.delays.clone(), prng("delays"));
        let device: Device = match shape.faults.is_empty() {
            true => Box::new(late),
            false => Box::new(Fault::new(late, shape.faults.clone(), prng("faults"))),
        };
        self.stack = Some(Stack { device, under_way: BTreeMap::new() });
    }

    /// Gives the drive what waits, as far as it has room.
    fn hand_over(&mut self, now: Instant) {
        while let Some((number, command)) = self.backlog.pop_front() {
            let stack = self.stack();
            let id = command.id;
            if let Err(QueueFull(command)) = stack.device.submit(now, command) {
                self.backlog.push_front((number, command));
                return;
            }
            stack.under_way.insert(id, number);
        }
    }
}
