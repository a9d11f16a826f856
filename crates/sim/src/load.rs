//! What the host asks for: random commands, mixed as the world says.

use zonda_layers::OperationKind;
use zonda_zoned::Prng;
use zonda_zoned::reference::{CommandSource, ReferenceDevice};
use zonda_zoned::{Command, CommandId, Duration, Instant};

use crate::world::{Load, World};

/// Commands drawn before one is taken whatever it is: where the oracle's state allows nothing else.
const DRAWS_MAX: u32 = 24;

/// Makes the commands of a run, and says when the host is ready for the next.
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
    pub(crate) fn new(world: &World) -> Host {
        Host {
            source: CommandSource::new(&world.geometry, world.keeps, world.root.fork("commands")),
            mix: world.root.fork("mixing"),
            pauses: world.root.fork("pauses"),
            weight_max: world.load.weights.into_iter().max().expect("there are kinds of operations"),
            load: world.load.clone(),
            next_id: 0,
            ready_at: Instant::ZERO,
        }
    }

    /// The next command. Ids count up from 0.
    pub(crate) fn next(&mut self, oracle: &ReferenceDevice) -> Command {
        let mut drawn = self.source.next(oracle);
        for _ in 0..DRAWS_MAX {
            let weight = self.load.weights[OperationKind::of(&drawn.operation) as usize];
            if weight == self.weight_max || self.mix.chance(weight, self.weight_max) {
                break;
            }
            drawn = self.source.next(oracle);
        }
        let id = CommandId(self.next_id);
        self.next_id += 1;
        Command { id, ..drawn }
    }

    /// When the host is ready for its next command.
    pub(crate) fn ready_at(&self) -> Instant {
        self.ready_at
    }

    /// A command was taken: the host pauses.
    pub(crate) fn pause(&mut self, now: Instant) {
        let pause = self.load.pause;
        let pause = if pause == Duration::ZERO { pause } else { Duration(self.pauses.exponential(pause.0)) };
        self.ready_at = now + pause;
    }
}
