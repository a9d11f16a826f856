//! A drive with its layers and the store above them, rebuilt after every power loss.

use std::collections::VecDeque;

use zonda_files::FileStore;
use zonda_layers::{Fault, Shared};
use zonda_ssd::Ssd;
use zonda_stack::Layer;
use zonda_zoned::{Command, Completion, CompletionQueue, Instant, Prng, QueueFull, ZonedDevice};

use super::simulation::FilesSimulation;
use crate::stack::{self, build_layers};

/// A drive with power, the layers over it, and a store.
pub(super) struct Machine {
    pub(super) drive: Shared<Ssd>,
    layers: Layers,
    pub(super) store: FileStore,
    /// Completions that are not yet delivered to the store.
    inbox: VecDeque<Completion>,
    /// Commands whose completions are not yet delivered.
    pub(super) in_flight: usize,
    /// The store may have a command to submit.
    pub(super) may_have_commands: bool,
}

/// The layers over a drive. Faults can be disabled: commands then bypass the fault layer.
struct Layers {
    clean: Shared<stack::Layers>,
    faulty: Option<Fault<Shared<stack::Layers>>>,
    is_faulty: bool,
}

impl Machine {
    /// Builds layers and a store over a drive. `life` counts mounts: each life has its own random
    /// numbers.
    pub(super) fn new(simulation: &FilesSimulation, drive: Shared<Ssd>, store: FileStore, life: u64) -> Machine {
        let handle = Box::new(drive.clone());
        let label = |index, _: &Layer| format!("layer/{index}/{life}");
        let lower = build_layers(&simulation.root, &simulation.layers, handle, &label);
        let clean = Shared::new(lower);
        let faulty = (!simulation.faults.is_empty()).then(|| {
            let prng = simulation.root.fork(&format!("strikes/{life}"));
            Fault::new(clean.clone(), simulation.faults.clone(), prng)
        });
        let layers = Layers { clean, faulty, is_faulty: false };
        Machine { drive, layers, store, inbox: VecDeque::new(), in_flight: 0, may_have_commands: true }
    }

    /// Enables or disables faults.
    pub(super) fn set_faults(&mut self, are_on: bool) {
        self.layers.is_faulty = are_on && self.layers.faulty.is_some();
    }

    /// Whether faults are enabled.
    pub(super) fn has_faults(&self) -> bool {
        self.layers.is_faulty
    }

    /// Number of faults injected in this life.
    pub(super) fn injected_faults(&self) -> u64 {
        let counters = self.layers.faulty.iter().flat_map(Fault::counters);
        counters.map(|counters| counters.struck).sum()
    }

    /// Submits one command of the store to the drive, if there is one and the queue is not full;
    /// returns a copy.
    pub(super) fn submit(&mut self, now: Instant, queue_depth: usize) -> Option<Command> {
        let Some(command) = self.store.poll_command(now) else {
            self.may_have_commands = false;
            return None;
        };
        let submitted = command.clone();
        let refused =
            if self.in_flight >= queue_depth { Err(QueueFull(command)) } else { self.layers.submit(now, command) };
        if let Err(QueueFull(command)) = refused {
            assert!(self.in_flight > 0, "an idle drive accepts a command");
            self.store.on_queue_full(command);
            self.may_have_commands = false;
            return None;
        }
        self.in_flight += 1;
        Some(submitted)
    }

    /// Whether a completion waits for delivery.
    pub(super) fn has_completions(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// Polls the drive.
    pub(super) fn poll(&mut self, now: Instant) {
        let mut completions = CompletionQueue::new();
        self.layers.poll(now, &mut completions);
        while let Some(completion) = completions.pop() {
            self.inbox.push_back(completion);
        }
    }

    /// Delivers a random one of the waiting completions, as from several completion queues.
    pub(super) fn deliver(&mut self, now: Instant, prng: &mut Prng) -> Completion {
        let place = prng.below(self.inbox.len() as u64) as usize;
        let completion = self.inbox.remove(place).expect("a completion is waiting");
        self.in_flight -= 1;
        self.may_have_commands = true;
        self.store.on_completion(now, completion.clone());
        completion
    }

    /// The next wakeup of the drive.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.layers.next_timeout()
    }

    /// Whether no command is in flight or waiting.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && !self.may_have_commands
    }

    /// Ends the store's process, and waits until the drive has completed all commands; returns the
    /// drive, and the time.
    pub(super) fn drain(mut self, mut now: Instant) -> (Shared<Ssd>, Instant) {
        while self.in_flight > self.inbox.len() {
            let wakeup = self.next_timeout().expect("a drive with commands in flight has a next wakeup");
            now = now.max(wakeup);
            self.poll(now);
        }
        (self.drive, now)
    }

    /// Drops everything but the drive, for a power loss.
    pub(super) fn into_drive(self) -> Ssd {
        let Machine { drive, layers, .. } = self;
        drop(layers);
        let Ok(drive) = drive.take_inner() else { panic!("the layers were dropped, and held the only other handles") };
        drive
    }
}

impl Layers {
    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        match &mut self.faulty {
            Some(faulty) if self.is_faulty => faulty.submit(now, command),
            _ => self.clean.submit(now, command),
        }
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.clean.poll(now, completions);
        if let Some(faulty) = &mut self.faulty {
            faulty.poll(now, completions);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        let faulty = self.faulty.as_ref().and_then(|faulty| faulty.next_timeout());
        self.clean.next_timeout().into_iter().chain(faulty).min()
    }
}
