//! A drive below the target, with its layers. It outlives the servers.

use std::collections::{BTreeMap, VecDeque};

use zonda_layers::{Memory, Shared};
use zonda_ssd::Ssd;
use zonda_stack::Layer;
use zonda_zoned::{Command, CommandId, CompletionQueue, Instant, PayloadKind, Prng, QueueFull, ZonedDevice};

use super::simulation::DriveShape;
use crate::stack::{Device, Layers, build_layers};

/// Capacity of a drive in memory: enough for any generated one.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// This bit is set in the ids of commands that were not submitted by a target.
const INTERNAL: u64 = 1 << 63;

/// A drive with its layers.
pub(crate) struct Drive {
    /// `None` only while power is off.
    handle: Option<Handle>,
    /// The layers that the target submits to; `None` only while the server is killed.
    stack: Option<Stack>,
    /// Stacks of killed servers: their commands in flight complete, and the completions are
    /// dropped.
    orphans: Vec<Stack>,
    /// Commands submitted so far.
    submitted: u64,
    /// Commands that did not fit into the drive's queue, in order, with their numbers.
    backlog: VecDeque<(u64, Command)>,
    /// Writes that were acknowledged before they are submitted to the drive, by a seeded bug.
    pub(super) late: VecDeque<Command>,
    /// The command that the server repeats, by a seeded bug.
    pub(super) last: Option<Command>,
    internal: u64,
}

#[derive(Clone)]
enum Handle {
    Model(Shared<Ssd>),
    Memory(Shared<Memory>),
}

/// The layers over a drive, and the number of each command in flight.
struct Stack {
    device: Layers,
    in_flight: BTreeMap<CommandId, u64>,
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
            internal: 0,
        };
        drive.rebuild(shape, root, 0);
        drive
    }

    /// Another handle on the drive.
    pub(crate) fn device(&self) -> Device {
        match self.handle() {
            Handle::Model(drive) => Box::new(drive.clone()),
            Handle::Memory(drive) => Box::new(drive.clone()),
        }
    }

    /// The server is killed: submitted commands are executed, commands in the backlog are lost. If
    /// power is lost, the drive also loses what a power loss may lose.
    pub(super) fn lose_server(
        &mut self,
        loses_power: bool,
        shape: &DriveShape,
        root: &Prng,
        prng: &mut Prng,
        life: u64,
    ) {
        self.orphans.extend(self.stack.take().filter(|stack| !stack.in_flight.is_empty()));
        self.backlog.clear();
        self.late.clear();
        self.last = None;
        if loses_power {
            self.orphans.clear();
            self.handle = Some(match self.handle.take().expect("power is on") {
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

    /// Submits a command, in order.
    pub(super) fn submit(&mut self, now: Instant, command: Command) {
        self.submitted += 1;
        self.backlog.push_back((self.submitted, command));
        if self.backlog.len() == 1 {
            self.submit_backlog(now);
        }
    }

    /// Submits a command that the target has not submitted, and whose completion is dropped.
    pub(super) fn submit_internal(&mut self, now: Instant, command: Command) {
        self.internal += 1;
        self.submit(now, command.with_id(CommandId(self.internal | INTERNAL)));
    }

    pub(super) fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let mut all = CompletionQueue::new();
        for orphan in &mut self.orphans {
            orphan.device.poll(now, &mut all);
            while let Some(completion) = all.pop() {
                orphan.in_flight.remove(&completion.id);
            }
        }
        self.orphans.retain(|orphan| !orphan.in_flight.is_empty());
        let stack = self.stack();
        stack.device.poll(now, &mut all);
        while let Some(completion) = all.pop() {
            stack.in_flight.remove(&completion.id).expect("a drive completes only submitted commands");
            if completion.id.0 & INTERNAL == 0 {
                completions.push(completion);
            }
        }
        self.submit_backlog(now);
    }

    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let stacks = self.stack.iter().chain(&self.orphans);
        stacks.filter_map(|stack| stack.device.next_timeout()).min()
    }

    /// The number of the last command.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted
    }

    /// Whether all commands up to a number have completed, so that no power loss can undo one of
    /// them.
    pub(crate) fn has_ended(&self, number: u64) -> bool {
        let stacks = self.stack.iter().chain(&self.orphans);
        let mut numbers =
            stacks.flat_map(|stack| stack.in_flight.values()).chain(self.backlog.iter().map(|(of, _)| of));
        numbers.all(|of| *of > number)
    }

    pub(crate) fn check_invariants(&self) {
        if let Handle::Model(drive) = self.handle() {
            drive.with_inner(Ssd::check_invariants);
        }
    }

    fn handle(&self) -> &Handle {
        self.handle.as_ref().expect("power is on")
    }

    fn stack(&mut self) -> &mut Stack {
        self.stack.as_mut().expect("the server is up")
    }

    fn rebuild(&mut self, shape: &DriveShape, root: &Prng, life: u64) {
        let faults = Some(Layer::Fault(shape.faults.clone())).filter(|_| !shape.faults.is_empty());
        let layers: Vec<Layer> = [Layer::Delay(shape.delays.clone())].into_iter().chain(faults).collect();
        let device = build_layers(root, &layers, self.device(), &|_, layer| match layer {
            Layer::Fault(_) => format!("faults/{life}"),
            _ => format!("delays/{life}"),
        });
        self.stack = Some(Stack { device, in_flight: BTreeMap::new() });
    }

    /// Submits commands from the backlog, until the queue of the drive is full.
    fn submit_backlog(&mut self, now: Instant) {
        while let Some((number, command)) = self.backlog.pop_front() {
            let stack = self.stack();
            let id = command.id;
            if let Err(QueueFull(command)) = stack.device.submit(now, command) {
                self.backlog.push_front((number, command));
                return;
            }
            stack.in_flight.insert(id, number);
        }
    }
}
