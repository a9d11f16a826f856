//! A drive with its layers, and the store above them: what a loss of power takes apart.

use std::collections::VecDeque;

use zonda_files::FileStore;
use zonda_layers::{Fault, Shared};
use zonda_ssd::Ssd;
use zonda_zoned::{Command, Completion, CompletionQueue, Instant, Prng, QueueFull, ZonedDevice};

use super::world::FilesWorld;
use crate::stack::{Device, pile_up};

/// A drive with power, the layers over it, and a store.
pub(super) struct Machine {
    pub(super) drive: Shared<Ssd>,
    layers: Layers,
    pub(super) store: FileStore,
    /// Completions that have not reached the store.
    inbox: VecDeque<Completion>,
    /// Commands that have not ended for the store.
    pub(super) under_way: usize,
    /// The store may have a command to hand out.
    pub(super) may_have_commands: bool,
}

/// The layers over a drive. Faults can be switched off: commands then go by another way.
struct Layers {
    clean: Shared<Device>,
    faulty: Option<Fault<Shared<Device>>>,
    strikes: bool,
}

impl Machine {
    /// Puts layers and a store on a drive. `life` counts how often that was done: each life has its own randomness.
    pub(super) fn new(world: &FilesWorld, drive: Shared<Ssd>, store: FileStore, life: u64) -> Machine {
        let (lower, _) = pile_up(&world.root, &world.layers, &drive, life);
        let clean = Shared::new(lower);
        let faulty = (!world.faults.is_empty()).then(|| {
            let prng = world.root.fork(&format!("strikes/{life}"));
            Fault::new(clean.clone(), world.faults.clone(), prng)
        });
        let layers = Layers { clean, faulty, strikes: false };
        Machine { drive, layers, store, inbox: VecDeque::new(), under_way: 0, may_have_commands: true }
    }

    /// From now on commands fail, or they do not.
    pub(super) fn set_faults(&mut self, are_on: bool) {
        self.layers.strikes = are_on && self.layers.faulty.is_some();
    }

    /// Whether commands may fail now.
    pub(super) fn has_faults(&self) -> bool {
        self.layers.strikes
    }

    /// Faults that have struck in this life.
    pub(super) fn struck(&self) -> u64 {
        let counters = self.layers.faulty.iter().flat_map(Fault::counters);
        counters.map(|counters| counters.struck).sum()
    }

    /// Hands one command from the store to the drive, if there is one and there is room. Returns it as it was.
    pub(super) fn submit(&mut self, now: Instant, queue_depth: usize) -> Option<Command> {
        let Some(command) = self.store.poll_command(now) else {
            self.may_have_commands = false;
            return None;
        };
        let told = Command { operation: command.operation.clone(), ..command };
        let refused =
            if self.under_way >= queue_depth { Err(QueueFull(command)) } else { self.layers.submit(now, command) };
        if let Err(QueueFull(command)) = refused {
            assert!(self.under_way > 0, "a drive with nothing to do takes a command");
            self.store.on_queue_full(command);
            self.may_have_commands = false;
            return None;
        }
        self.under_way += 1;
        Some(told)
    }

    /// Whether a completion waits to reach the store.
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

    /// Hands one of the completions that wait to the store; any, as they come from queues of their own.
    pub(super) fn deliver(&mut self, now: Instant, prng: &mut Prng) -> Completion {
        let place = prng.below(self.inbox.len() as u64) as usize;
        let completion = self.inbox.remove(place).expect("a completion waits");
        self.under_way -= 1;
        self.may_have_commands = true;
        self.store.on_completion(now, completion.clone());
        completion
    }

    /// When the drive has news.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.layers.next_wakeup()
    }

    /// Whether nothing will happen before somebody asks for something.
    pub(super) fn is_quiet(&self) -> bool {
        self.under_way == 0 && !self.may_have_commands
    }

    /// The store's program is gone. The drive ends what it was given, and nobody hears of it; returns the drive, and when
    /// that was.
    pub(super) fn drain(mut self, mut now: Instant) -> (Shared<Ssd>, Instant) {
        while self.under_way > self.inbox.len() {
            let wakeup = self.next_wakeup().expect("a drive with commands under way has something to do");
            now = now.max(wakeup);
            self.poll(now);
        }
        (self.drive, now)
    }

    /// The power goes: everything but the drive is gone.
    pub(super) fn into_drive(self) -> Ssd {
        let Machine { drive, layers, .. } = self;
        drop(layers);
        let Ok(drive) = drive.take_inner() else { panic!("the layers are gone, and no other handle is left") };
        drive
    }
}

impl Layers {
    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        match &mut self.faulty {
            Some(faulty) if self.strikes => faulty.submit(now, command),
            _ => self.clean.submit(now, command),
        }
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.clean.poll(now, completions);
        if let Some(faulty) = &mut self.faulty {
            faulty.poll(now, completions);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let faulty = self.faulty.as_ref().and_then(|faulty| faulty.next_wakeup());
        self.clean.next_wakeup().into_iter().chain(faulty).min()
    }
}
