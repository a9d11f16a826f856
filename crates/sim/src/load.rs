//! The load of the host: random commands, with the weights of the scenario.

use zonda_layers::OperationKind;
use zonda_zoned::Prng;
use zonda_zoned::reference::{CommandSource, ReferenceDevice};
use zonda_zoned::{Command, CommandId, Duration, Instant};

use crate::simulation::{Load, Simulation};

/// Commands that are rejected by weight before one is accepted regardless, because the state of the
/// oracle may allow nothing else.
const ATTEMPTS_MAX: u32 = 24;

/// Generates the commands of a run, with the pauses between them.
pub(crate) struct Host {
    load: Load,
    source: CommandSource,
    mix: Prng,
    pauses: Prng,
    weight_max: u64,
    next_id: u64,
    ready_at: Instant,
}

impl Host {
    pub(crate) fn new(simulation: &Simulation) -> Host {
        Host {
            source: CommandSource::new(&simulation.geometry, simulation.keeps, simulation.root.fork("commands")),
            mix: simulation.root.fork("mixing"),
            pauses: simulation.root.fork("pauses"),
            weight_max: simulation.load.weights.into_iter().max().expect("there are operation kinds"),
            load: simulation.load.clone(),
            next_id: 0,
            ready_at: Instant::ZERO,
        }
    }

    /// The next command. Ids count up from 0.
    pub(crate) fn next(&mut self, oracle: &ReferenceDevice) -> Command {
        let mut command = self.source.next(oracle);
        for _ in 0..ATTEMPTS_MAX {
            let weight = self.load.weights[OperationKind::of(&command.operation) as usize];
            if weight == self.weight_max || self.mix.chance(weight, self.weight_max) {
                break;
            }
            command = self.source.next(oracle);
        }
        let id = CommandId(self.next_id);
        self.next_id += 1;
        command.with_id(id)
    }

    /// When the host submits its next command.
    pub(crate) fn ready_at(&self) -> Instant {
        self.ready_at
    }

    /// Pauses after a command was accepted.
    pub(crate) fn pause(&mut self, now: Instant) {
        let pause = self.load.pause;
        let pause = if pause == Duration::ZERO { pause } else { Duration(self.pauses.exponential(pause.0)) };
        self.ready_at = now + pause;
    }
}
