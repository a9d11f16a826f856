//! The drive compared with the oracle: the same random commands, valid and invalid, and the same
//! completions.
//!
//! A million commands over many small drives, at queue depths up to sixteen: every status, every
//! result and every byte of a completion must be the oracle's, and all zones and blocks are
//! compared periodically.

use zonda_config::{ByteSize, TimeSpan};
use zonda_profiles::builtin_text;
use zonda_ssd::Ssd;
use zonda_ssd::profile::{AllocationKind, Profile};
use zonda_zoned::reference::{CommandSource, ReferenceDevice, random_geometry};
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Operation,
    PayloadKind, Prng, ReportFilter, ZoneIndex, ZoneState, ZoneType, ZonedDevice,
};

/// Commands in all.
const COMMANDS: u64 = 1_000_000;
/// Commands to one drive before the next is created.
const COMMANDS_A_DRIVE: u64 = 5_000;
/// Commands between two comparisons of everything.
const COMMANDS_BETWEEN_SURVEYS: u64 = 2_500;
/// Events between two checks of the drive's invariants, which take longer than the events.
const WAITS_BETWEEN_CHECKS: u64 = 256;

/// The test is split into parts, to run on two cores.
const PARTS: u64 = 4;

const _: () = assert!(COMMANDS.is_multiple_of(COMMANDS_A_DRIVE * PARTS));

fn run_part(part: u64) {
    let testbeds = COMMANDS / COMMANDS_A_DRIVE / PARTS;
    for testbed in part * testbeds..(part + 1) * testbeds {
        Pair::new(testbed).run(COMMANDS_A_DRIVE);
    }
}

#[test]
fn the_first_quarter_of_a_million_random_commands_has_the_results_of_the_oracle() {
    run_part(0);
}

#[test]
fn the_second_quarter_of_a_million_random_commands_has_the_results_of_the_oracle() {
    run_part(1);
}

#[test]
fn the_third_quarter_of_a_million_random_commands_has_the_results_of_the_oracle() {
    run_part(2);
}

#[test]
fn the_last_quarter_of_a_million_random_commands_has_the_results_of_the_oracle() {
    run_part(3);
}

/// A drive and its oracle.
struct Pair {
    testbed: u64,
    keeps: PayloadKind,
    prng: Prng,
    drive: Ssd,
    oracle: ReferenceDevice,
    geometry: Geometry,
    now: Instant,
    expected: Vec<Completion>,
    next_survey_id: u64,
    waits: u64,
}

impl Pair {
    fn new(testbed: u64) -> Pair {
        let mut prng = Prng::new(testbed).fork("oracle test");
        let geometry = random_geometry(&mut prng);
        let profile = profile_of(&geometry, &mut prng);
        let keeps = if prng.chance(1, 2) { PayloadKind::Bytes } else { PayloadKind::Fingerprints };
        Pair {
            testbed,
            keeps,
            drive: Ssd::new(&profile, keeps, &prng.fork("drive")),
            oracle: ReferenceDevice::new(geometry.clone(), keeps),
            geometry,
            prng: prng.fork("run"),
            now: Instant::ZERO,
            expected: Vec::new(),
            next_survey_id: 1 << 60,
            waits: 0,
        }
    }

    fn run(&mut self, commands: u64) {
        let mut source = CommandSource::new(&self.geometry, self.keeps, self.prng.fork("commands"));
        let depth = 1 + self.prng.below(16) as usize;
        for step in 0..commands {
            while self.expected.len() >= depth {
                self.wait();
            }
            if self.prng.chance(1, 400) {
                self.degrade_a_zone();
            }
            let command = source.next(&self.oracle);
            self.submit(command);
            if self.prng.chance(1, 2) {
                self.wait();
            }
            if (step + 1).is_multiple_of(COMMANDS_BETWEEN_SURVEYS) {
                self.survey();
            }
        }
        self.survey();
    }

    fn submit(&mut self, command: Command) {
        self.expected.push(self.oracle.execute(&command));
        self.drive.submit(self.now, command).expect("the queue of the drive is not full");
    }

    /// Lets the drive reach its next event, and checks what completes.
    fn wait(&mut self) {
        let Some(next) = self.drive.next_timeout() else {
            assert!(self.expected.is_empty(), "testbed {}: commands are lost: {:?}", self.testbed, self.expected);
            return;
        };
        self.now = self.now.max(next);
        let mut completions = CompletionQueue::new();
        self.drive.poll(self.now, &mut completions);
        while let Some(completion) = completions.pop() {
            let place = self.expected.iter().position(|expected| expected.id == completion.id);
            let expected = self.expected.swap_remove(place.expect("a command completes once"));
            assert_eq!(completion, expected, "testbed {} {:?}", self.testbed, self.geometry);
        }
        self.waits += 1;
        if self.waits.is_multiple_of(WAITS_BETWEEN_CHECKS) {
            self.drive.check_invariants();
        }
    }

    fn drain(&mut self) {
        while !self.expected.is_empty() {
            self.wait();
        }
    }

    /// Compares all zones, and all blocks.
    fn survey(&mut self) {
        self.drain();
        let extended = self.geometry.descriptor_extension_bytes > 0;
        let report = Operation::ReportZones {
            start: Lba(0),
            filter: ReportFilter::All,
            extended,
            partial: false,
            descriptors_max: u32::MAX,
        };
        self.execute(report);
        let (zone_blocks, step) = (self.geometry.zone_size_blocks.0, self.geometry.max_transfer_blocks.0);
        for zone in (0..self.geometry.zone_count).map(ZoneIndex) {
            for first in (0..zone_blocks).step_by(step as usize) {
                let start = self.geometry.zone_start(zone) + Blocks(first);
                self.execute(Operation::Read { start, blocks: Blocks(step.min(zone_blocks - first)) });
            }
        }
        if self.prng.chance(1, 4) {
            self.cycle_power();
        }
    }

    fn execute(&mut self, operation: Operation) {
        self.next_survey_id += 1;
        self.submit(Command::new(CommandId(self.next_survey_id), NamespaceId::FIRST, operation));
        self.drain();
    }

    fn degrade_a_zone(&mut self) {
        let zone = ZoneIndex(self.prng.below(u64::from(self.geometry.zone_count)) as u32);
        if self.geometry.zone_type(zone) == ZoneType::SequentialWriteRequired {
            let to = if self.prng.chance(2, 3) { ZoneState::ReadOnly } else { ZoneState::Offline };
            self.drive.degrade(zone, to);
            self.oracle.degrade(zone, to);
        }
    }

    /// Power-cycles the idle drive: nothing may change but open zones.
    fn cycle_power(&mut self) {
        let profile = self.drive.profile().clone();
        let placeholder = Ssd::new(&profile, PayloadKind::None, &self.prng);
        let drive = std::mem::replace(&mut self.drive, placeholder);
        let media = drive.power_loss(&mut self.prng);
        self.drive = Ssd::power_on(&profile, media, &self.prng.fork("again"));
        self.oracle.power_cycle();
        self.now = Instant::ZERO;
    }
}

/// A drive of this geometry, with random hardware.
fn profile_of(geometry: &Geometry, prng: &mut Prng) -> Profile {
    let text = builtin_text("tiny").expect("tiny is built in");
    let mut profile = Profile::parse(text).expect("built-in profiles are valid");
    let block = u64::from(geometry.block_size_bytes);
    profile.geometry = geometry.into();
    let flash = &mut profile.flash;
    flash.read_unit = ByteSize(block);
    flash.program_unit = ByteSize(block * (1 + prng.below(4)));
    flash.erase_unit = ByteSize(flash.program_unit.0 * (2 + prng.below(3)));
    flash.cache_read = prng.chance(1, 2);
    flash.suspend_slice = TimeSpan([0, 100_000][prng.below(2) as usize]);
    let capacity_blocks = geometry.zone_capacity_blocks.0;
    profile.zones.parallelism =
        [4, 2, 1].into_iter().find(|width| capacity_blocks.is_multiple_of(*width) && prng.chance(1, 2)).unwrap_or(1)
            as u32;
    let parallelism = profile.zones.parallelism;
    let chunk = AllocationKind::Vchunk(parallelism);
    let kinds = [AllocationKind::Fixed, AllocationKind::Block, chunk, AllocationKind::Superblock];
    let kinds = if parallelism == 4 { &kinds[..] } else { &kinds[..3] };
    profile.zones.allocation = *prng.pick(kinds).expect("there is a policy to choose");
    if profile.zones.allocation != AllocationKind::Fixed && prng.chance(1, 2) {
        profile.zones.luns_eligible = Some(4);
        profile.zones.luns_min = Some(1);
    }
    let stripe = profile.flash.program_unit.0 * u64::from(parallelism);
    profile.write_buffer.capacity = ByteSize(stripe + block * prng.below(8));
    profile.write_buffer.cap = (geometry.conventional_zone_count == 0 && prng.chance(1, 2)).then_some(ByteSize(stripe));
    profile.write_buffer.early_completion = prng.chance(2, 3);
    assert_eq!(&profile.geometry(), geometry);
    profile
}
