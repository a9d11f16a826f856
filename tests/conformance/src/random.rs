//! Random commands, valid and invalid, against the oracle.

use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Lba, NamespaceId, Operation, Outcome, Payload,
    PayloadKind, Prng, QueueFull, ReportFilter, ZoneIndex, ZoneState, ZoneType,
};

use crate::checks::Check;
use crate::rig::{Rig, Stop, Verdict, ensure, shown, zeros};
use crate::shapes::{Shape, volume_geometry};

/// Waits without a completion after which a command counts as lost.
const WAITS_MAX: u32 = 10_000_000;
/// Identifiers of the commands that compare the whole device.
const FIRST_SURVEY_ID: u64 = 1 << 60;

/// The shapes on which random commands run, each at both depths.
pub(crate) fn checks() -> Vec<Check> {
    macro_rules! of {
        ($($shape:ident: $one:literal, $sixteen:literal;)+) => {
            vec![$(
                Check { sentence: $one, shape: Shape::$shape, body: |rig| run(rig, 1) },
                Check { sentence: $sixteen, shape: Shape::$shape, body: |rig| run(rig, 16) },
            )+]
        };
    }
    of! {
        Full: "random commands one at a time complete as in the oracle",
              "random commands sixteen at a time complete as in the oracle";
        Metadata: "random commands one at a time with metadata complete as in the oracle",
              "random commands sixteen at a time with metadata complete as in the oracle";
        Bare: "random commands one at a time without limits complete as in the oracle",
              "random commands sixteen at a time without limits complete as in the oracle";
        Conventional: "random commands one at a time to conventional zones too complete as in the oracle",
              "random commands sixteen at a time to conventional zones too complete as in the oracle";
        OneConventionalZone: "random commands one at a time to one conventional zone complete as in the oracle",
              "random commands sixteen at a time to one conventional zone complete as in the oracle";
        Zrwa: "random commands one at a time with zrwas complete as in the oracle",
              "random commands sixteen at a time with zrwas complete as in the oracle";
    }
}

/// Geometries of every kind, for backends that support any; see [`crate::conformance`].
pub(crate) fn geometries() -> impl Iterator<Item = Geometry> {
    let mut prng = Prng::new(23).fork("conformance/geometries");
    std::iter::repeat_with(move || random_geometry(&mut prng))
}

/// Namespaces of conventional zones only, of random sizes, as volumes have them.
pub(crate) fn conventional_geometries() -> impl Iterator<Item = Geometry> {
    let mut prng = Prng::new(24).fork("conformance/geometries");
    std::iter::repeat_with(move || {
        let block_size_bytes = if prng.chance(1, 4) { 4096 } else { 512 };
        let zone_blocks_max = if prng.chance(1, 2) { 40 } else { 3000 };
        volume_geometry(block_size_bytes, 1 + prng.below(zone_blocks_max), 1)
    })
}

/// Random commands to one device, with a queue depth of `depth`.
pub(crate) fn run(rig: &mut Rig, depth: usize) -> Verdict {
    let depth = depth.min(rig.backend.queue_depth_max());
    let keeps = rig.backend.keeps();
    let prng = Prng::new(depth as u64).fork("conformance/random");
    let mut pair = Pair {
        oracle: ReferenceDevice::new(rig.geometry.clone(), keeps),
        expected: Vec::new(),
        prng: prng.fork("world"),
        next_survey_id: FIRST_SURVEY_ID,
        rig,
    };
    let mut source = CommandSource::new(&pair.rig.geometry, keeps, prng.fork("commands"));
    let commands = pair.rig.backend.random_commands();
    for number in 0..commands {
        if pair.prng.chance(1, 300) {
            pair.degrade_a_zone()?;
        }
        let command = source.next(&pair.oracle);
        if pair.rig.backend.carries(&command) {
            pair.submit(command, depth)?;
        }
        while pair.expected.len() >= depth {
            pair.wait()?;
        }
        if (number + 1).is_multiple_of(commands.div_ceil(4)) {
            pair.survey()?;
            if pair.rig.backend.power_cycle() {
                pair.oracle.power_cycle();
                pair.survey()?;
            }
        }
    }
    pair.survey()
}

/// A command in flight.
struct InFlight {
    id: CommandId,
    operation: Operation,
    /// What it must return; absent until it has taken effect.
    expected: Option<Completion>,
    /// The command, until it takes effect.
    command: Option<Command>,
}

/// A device and its oracle.
struct Pair<'a> {
    rig: &'a mut Rig,
    oracle: ReferenceDevice,
    expected: Vec<InFlight>,
    prng: Prng,
    next_survey_id: u64,
}

impl Pair<'_> {
    fn submit(&mut self, command: Command, depth: usize) -> Verdict {
        while self.expected.len() >= depth {
            self.wait()?;
        }
        let has_releases = self.rig.backend.has_releases();
        let expected = (!has_releases).then(|| self.oracle.execute(&command));
        let (id, operation) = (command.id, command.operation.clone());
        self.expected.push(InFlight { id, operation, expected, command: has_releases.then(|| command.clone()) });
        let mut command = Some(command);
        while let Some(offered) = command.take() {
            let now = self.rig.backend.now();
            if let Err(QueueFull(refused)) = self.rig.backend.submit(now, offered) {
                ensure!(self.expected.len() > 1, "an idle device returned QueueFull for {}", shown(&refused.operation));
                command = Some(refused);
                self.wait()?;
            }
        }
        self.follow_releases()
    }

    /// Executes on the oracle what has taken effect since, in this order.
    fn follow_releases(&mut self) -> Verdict {
        while let Some(id) = self.rig.backend.take_release() {
            let released = self.expected.iter_mut().find(|in_flight| in_flight.id == id);
            let command = released.as_ref().and_then(|in_flight| in_flight.command.as_ref());
            let Some(command) = command else {
                return Err(Stop::Failed(format!("command {id} takes effect, but does not wait")));
            };
            let expected = self.oracle.execute(command);
            let in_flight = released.expect("it was just found");
            (in_flight.expected, in_flight.command) = (Some(expected), None);
        }
        Ok(())
    }

    /// Advances time until a command completes, and checks the completion against the oracle.
    fn wait(&mut self) -> Verdict {
        let mut completions = CompletionQueue::new();
        for _ in 0..WAITS_MAX {
            self.rig.backend.wait();
            let now = self.rig.backend.now();
            self.rig.backend.poll(now, &mut completions);
            self.follow_releases()?;
            if completions.is_empty() {
                continue;
            }
            while let Some(completion) = completions.pop() {
                self.check(completion)?;
            }
            return Ok(());
        }
        Err(Stop::Failed(format!("{} commands do not complete", self.expected.len())))
    }

    fn check(&mut self, completion: Completion) -> Verdict {
        let place = self.expected.iter().position(|in_flight| in_flight.id == completion.id);
        let Some(place) = place else {
            return Err(Stop::Failed(format!("command {} completes, but is not in flight", completion.id)));
        };
        let InFlight { operation, expected, .. } = self.expected.swap_remove(place);
        let Some(expected) = expected else {
            return Err(Stop::Failed(format!("command {} completes before it takes effect", completion.id)));
        };
        let keeps = self.rig.backend.keeps();
        let got = with_zeros(&self.rig.geometry, keeps, &operation, completion);
        ensure!(
            got.status == expected.status,
            "{} ended with \"{}\", not with \"{}\"",
            shown(&operation),
            got.status,
            expected.status
        );
        ensure!(got == expected, "{} returned {:?}, not {:?}", shown(&operation), got.outcome, expected.outcome);
        Ok(())
    }

    /// Compares all zones, and all blocks.
    fn survey(&mut self) -> Verdict {
        while !self.expected.is_empty() {
            self.wait()?;
        }
        self.rig.backend.check_invariants();
        let extended = self.rig.geometry.descriptor_extension_bytes > 0;
        self.compare(Operation::ReportZones {
            start: Lba(0),
            filter: ReportFilter::All,
            extended,
            partial: false,
            descriptors_max: self.rig.geometry.zone_count,
        })?;
        let (size, step) = (self.rig.geometry.zone_size_blocks.0, self.rig.geometry.max_transfer_blocks.0);
        for zone in (0..self.rig.geometry.zone_count).map(ZoneIndex) {
            for first in (0..size).step_by(step as usize) {
                let start = self.rig.geometry.zone_start(zone) + Blocks(first);
                self.compare(Operation::Read { start, blocks: Blocks(step.min(size - first)) })?;
            }
        }
        Ok(())
    }

    fn compare(&mut self, operation: Operation) -> Verdict {
        let id = CommandId(self.next_survey_id);
        self.next_survey_id += 1;
        let command = Command::new(id, NamespaceId::FIRST, operation);
        if !self.rig.backend.carries(&command) {
            return Ok(());
        }
        self.submit(command, 1)?;
        self.wait()
    }

    fn degrade_a_zone(&mut self) -> Verdict {
        // It must not affect commands in flight: a device may check a zone when it reads it.
        while !self.expected.is_empty() {
            self.wait()?;
        }
        let zone = ZoneIndex(self.prng.below(u64::from(self.rig.geometry.zone_count)) as u32);
        if self.rig.geometry.zone_type(zone) == ZoneType::SequentialWriteRequired {
            let to = if self.prng.chance(2, 3) { ZoneState::ReadOnly } else { ZoneState::Offline };
            if self.rig.backend.degrade(zone, to) {
                self.oracle.degrade(zone, to);
            }
        }
        Ok(())
    }
}

/// A device that stores bytes may return no payload if all blocks are zeros.
fn with_zeros(geometry: &Geometry, keeps: PayloadKind, operation: &Operation, completion: Completion) -> Completion {
    match (operation, &completion.outcome) {
        (Operation::Read { blocks, .. }, Outcome::Data(Payload::None)) if keeps == PayloadKind::Bytes => {
            let outcome = Outcome::Data(Payload::Bytes(Box::new(zeros(geometry, blocks.0))));
            Completion { outcome, ..completion }
        }
        _ => completion,
    }
}
