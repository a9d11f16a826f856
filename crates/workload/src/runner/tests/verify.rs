//! Runs that verify their reads.

use super::*;
use crate::{Finding, PrepareError, PrepareProgress, VerifyErrors, prepare};
use proptest::prelude::*;
use zonda_layers::{Delay, DelayRule, Fault, FaultEffect, FaultRule, Matcher, Memory, OperationSet, When};
use zonda_zoned::{Duration, Lba, LiveClock, Outcome, Prng, Status};

/// A clock that jumps to the end of each wait.
struct Jump(Instant);

impl LiveClock for Jump {
    fn now(&mut self) -> Instant {
        self.0
    }

    fn wait(&mut self, until: Option<Instant>) {
        self.0 = self.0.max(until.expect("there is always an event to wait for"));
    }
}

/// A faulty device: it alters commands on submission, and completions on return.
struct FaultyDevice<D> {
    inner: D,
    down: fn(&mut Operation, u64),
    up: fn(&mut Outcome, u64),
    passed: u64,
}

impl<D: ZonedDevice> ZonedDevice for FaultyDevice<D> {
    fn namespaces(&self) -> &Namespaces {
        self.inner.namespaces()
    }

    fn submit(&mut self, now: Instant, mut command: Command) -> Result<(), QueueFull> {
        self.passed += 1;
        (self.down)(&mut command.operation, self.passed);
        self.inner.submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let mut ended = CompletionQueue::new();
        self.inner.poll(now, &mut ended);
        while let Some(mut completion) = ended.pop() {
            self.passed += 1;
            (self.up)(&mut completion.outcome, self.passed);
            completions.push(completion);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }
}

fn keeping(geometry: &Geometry) -> FixedLatency {
    FixedLatency::keeping(PayloadKind::Bytes, geometry, 10_000)
}

fn runner(geometry: &Geometry, text: &str) -> Runner {
    Runner::new(plan(geometry, text), PayloadKind::Bytes, NamespaceId::FIRST)
}

/// Writes and reads two zones of a faulty device.
fn run_faulty(down: fn(&mut Operation, u64), up: fn(&mut Outcome, u64)) -> VerifyErrors {
    let mut device = FaultyDevice { inner: keeping(&drive()), down, up, passed: 0 };
    let text = "[run]\nverify = true\n[[job]]\noperation = \"mix\"\nmix = { read = 1, append = 1 }\nzones = \"0..2\"\n\
                block_size = \"8 KiB\"\non_full = \"reset\"\noperations = 2000\n";
    let result = runner(&drive(), text).run(&mut device, Instant::ZERO, &mut |_| {});
    assert!(result.has_failed() && result.jobs[0].errors.is_empty());
    result.jobs[0].verify_errors.expect("the run has failed only by verification")
}

#[test]
fn a_correct_device_passes_and_the_result_counts_verified_blocks() {
    let mut device = keeping(&drive_with_conventional_zones());
    let text = "[run]\nverify = true\ntime = \"20 ms\"\n\
        [[job]]\noperation = \"mix\"\nmix = { read = 2, append = 1 }\nzones = \"4..8\"\non_full = \"reset\"\nqueue_depth = 4\n\
        [[job]]\noperation = \"write\"\nzones = \"8..10\"\non_full = \"reset\"\nqueue_depth = 4\n\
        [[job]]\noperation = \"randread\"\nzones = \"0..10\"\nqueue_depth = 8\n\
        [[job]]\noperation = \"randwrite\"\nzones = \"0..4\"\nblock_size = \"8 KiB\"\nqueue_depth = 8\n";
    let result = runner(&drive_with_conventional_zones(), text).run(&mut device, Instant::ZERO, &mut |_| {});
    assert!(!result.has_failed(), "{:?}", result.jobs);
    assert!(result.verified_blocks.is_some_and(|blocks| blocks > 5_000), "{:?}", result.verified_blocks);
}

#[test]
fn verification_does_not_change_commands_or_results_of_a_run() {
    let text = |verify: bool| {
        format!(
            "[run]\nverify = {verify}\ntime = \"5 ms\"\n[[job]]\noperation = \"mix\"\nmix = {{ read = 1, write = 1 }}\n\
             zones = \"0..4\"\non_full = \"reset\"\nqueue_depth = 3\n"
        )
    };
    let run = |verify| {
        let mut result = runner(&drive(), &text(verify)).run(&mut keeping(&drive()), Instant::ZERO, &mut |_| {});
        assert_eq!(result.verified_blocks.take().is_some(), verify);
        result
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_lost_write_is_found() {
    let errors = run_faulty(
        |operation, passed| {
            if let Operation::Append { payload, .. } = operation
                && passed % 9 == 0
            {
                *payload = Payload::None;
            }
        },
        |_, _| {},
    );
    assert_eq!(errors.first.found, Finding::Zeros);
    assert!(errors.blocks > 10 && errors.first.zone < 2, "{errors:?}");
}

#[test]
fn a_read_of_a_wrong_address_is_found_and_reported_with_it() {
    let errors = run_faulty(
        |operation, _| {
            if let Operation::Read { start, .. } = operation
                && start.0 == 8
            {
                *start = Lba(6);
            }
        },
        |_, _| {},
    );
    assert_eq!((errors.first.lba, errors.first.found), (8, Finding::OtherBlock { of_lba: 6 }));
    assert_eq!(errors.first.found.to_string(), "the data of block 6");
}

#[test]
fn a_flipped_bit_is_found() {
    let errors = run_faulty(
        |_, _| {},
        |outcome, passed| {
            if let Outcome::Data(Payload::Bytes(buffer)) = outcome
                && passed % 50 == 0
            {
                let mut data = buffer.data.to_vec();
                data[4096 + 777] ^= 4;
                buffer.data = data.into();
            }
        },
    );
    assert!(matches!(errors.first.found, Finding::Damaged | Finding::Foreign), "{errors:?}");
}

#[test]
fn data_of_another_run_are_found() {
    let text = "[run]\nseed = 2\n[[job]]\noperation = \"append\"\nzones = \"0..2\"\n";
    let mut device = keeping(&drive());
    runner(&drive(), &format!("verify = true\n{text}").replace("verify = true\n[run]", "[run]\nverify = true")).run(
        &mut device,
        Instant::ZERO,
        &mut |_| {},
    );
    let text = "[run]\nverify = true\n[[job]]\noperation = \"read\"\nzones = \"0..2\"\n";
    let result = runner(&drive(), text).run(&mut device, Instant::ZERO, &mut |_| {});
    let errors = result.jobs[0].verify_errors.expect("blocks of another seed are not of this run");
    assert_eq!((errors.blocks, errors.first.lba, errors.first.found), (96, 0, Finding::Foreign));
}

#[test]
fn a_lost_overwrite_of_a_conventional_zone_is_found() {
    let geometry = drive_with_conventional_zones();
    let lose: fn(&mut Operation, u64) = |operation, passed| {
        if let Operation::Write { start, .. } = operation
            && passed > 500
            && start.0 == 5
        {
            *start = Lba(64);
        }
    };
    let mut device = FaultyDevice { inner: keeping(&geometry), down: lose, up: |_, _| {}, passed: 0 };
    let text = "[run]\nverify = true\ntime = \"50 ms\"\n[[job]]\noperation = \"randwrite\"\nzones = 0\n\
                [[job]]\noperation = \"randread\"\nzones = 0\n";
    let result = runner(&geometry, text).run(&mut device, Instant::ZERO, &mut |_| {});
    let errors = result.jobs[1].verify_errors.expect("an acknowledged write is missing");
    assert_eq!(errors.first.lba, 5);
    assert!(matches!(errors.first.found, Finding::OtherWrite { .. }), "{errors:?}");
}

#[test]
fn an_append_outside_its_zone_is_an_error() {
    let errors = run_faulty(
        |_, _| {},
        |outcome, passed| {
            if let Outcome::Appended(lba) = outcome
                && passed % 100 == 0
            {
                *lba = Lba(lba.0 + 128);
            }
        },
    );
    assert_eq!(errors.first.found, Finding::Misplaced);
}

#[test]
fn a_device_that_keeps_no_bytes_cannot_be_verified_and_the_run_fails() {
    let mut device = FixedLatency::new(&drive(), 10_000);
    let text = "[run]\nverify = true\n[[job]]\noperation = \"read\"\nzones = 0\nprefill = false\n";
    let plan = plan(&drive(), text);
    let error = plan.check_payload(PayloadKind::Fingerprints).expect_err("fingerprints are not bytes");
    assert!(error.help.is_some_and(|help| help.contains("payload = \"bytes\"")));
    plan.check_payload(PayloadKind::Bytes).unwrap();
    let runner = Runner::new(plan, PayloadKind::None, NamespaceId::FIRST);
    let result = runner.run(&mut device, Instant::ZERO, &mut |_| {});
    assert_eq!(result.jobs[0].verify_errors.map(|errors| errors.first.found), Some(Finding::Nothing));
}

#[test]
fn more_conventional_blocks_than_can_be_recorded_are_a_mistake() {
    let size = Blocks(1 << 24);
    let geometry = Geometry { zone_size_blocks: size, zone_capacity_blocks: size, ..drive_with_conventional_zones() };
    let of = |zones: &str| {
        let text =
            format!("[run]\nverify = true\ntime = \"1 s\"\n[[job]]\noperation = \"randwrite\"\nzones = {zones}\n");
        let (run, jobs) = parse_jobs(&text).unwrap();
        Plan::new(&run, &jobs, &geometry).map(|_| ())
    };
    of("0").unwrap();
    let error = of("\"0..2\"").expect_err("two zones are too many");
    assert!(error.message.contains("33554432 blocks of conventional zones"), "{error}");
}

const PREPARED: &str = "[run]\nverify = true\nseed = 9\n\
    [[job]]\noperation = \"read\"\nzones = \"0..8\"\nblock_size = \"16 KiB\"\n\
    [[job]]\noperation = \"randread\"\nzones = \"8..10\"\nprefill = 0.5\noperations = 500\n\
    [[job]]\noperation = \"append\"\nzones = \"10..12\"\nprefill = 0.25\n";

/// Prepares a used device.
fn prepare_used(device: &mut dyn ZonedDevice, plan: &Plan) -> Result<PrepareProgress, PrepareError> {
    let mut last = PrepareProgress::default();
    let mut clock = Jump(Instant(1 << 40));
    prepare(plan, PayloadKind::Bytes, NamespaceId::FIRST, device, &mut clock, &mut |progress| last = progress)?;
    Ok(last)
}

#[test]
fn a_used_device_is_prepared_by_commands_and_the_run_expects_its_blocks() {
    for geometry in [drive(), drive_with_conventional_zones()] {
        let mut device = keeping(&geometry);
        device.queue_slots = 5;
        let first = geometry.conventional_zone_count;
        let used =
            format!("[[job]]\noperation = \"append\"\nzones = \"{first}..14\"\nfinish_at = 0.8\nqueue_depth = 4\n");
        runner(&geometry, &used).run(&mut device, Instant::ZERO, &mut |_| {});
        let plan = plan(&geometry, PREPARED);
        let progress = prepare_used(&mut device, &plan).unwrap();
        assert_eq!(progress.zones_reset, u64::from(12 - first));
        assert_eq!((progress.zones_reset, progress.bytes_written), (progress.zones_to_reset, progress.bytes_to_write));
        let zones = zones(&mut device.oracle);
        let half = geometry.zone_capacity_blocks.0 / 2;
        assert_eq!(zones[8..10], [(ZoneState::Closed, Some(half)); 2]);
        assert_eq!(zones[10], (ZoneState::Closed, Some(half / 2)));
        assert_eq!(zones[7].0, ZoneState::Full);

        let runner = Runner::new(plan, PayloadKind::Bytes, NamespaceId::FIRST).prepared();
        let result = runner.run_live(&mut device, &mut Jump(Instant(1 << 50)), &mut |_| {});
        assert!(!result.has_failed(), "{:?}", result.jobs);
        assert!(result.verified_blocks.is_some_and(|blocks| blocks >= 8 * 48));
    }
}

#[test]
fn a_prepared_zone_lost_before_the_run_is_found() {
    let mut device = keeping(&drive());
    let plan = plan(&drive(), PREPARED);
    prepare_used(&mut device, &plan).unwrap();
    let reset = RequestKind::Reset.management(&drive(), ZoneIndex(3));
    device.oracle.execute(&Command::new(zonda_zoned::CommandId(0), NamespaceId::FIRST, reset));
    let runner = Runner::new(plan, PayloadKind::Bytes, NamespaceId::FIRST).prepared();
    let errors = runner.run(&mut device, Instant(1 << 50), &mut |_| {}).jobs[0].verify_errors.unwrap();
    assert_eq!((errors.blocks, errors.first.zone, errors.first.found), (48, 3, Finding::Zeros));
}

#[test]
fn a_zone_that_cannot_be_prepared_is_reported() {
    let mut device = keeping(&drive());
    device.oracle.degrade(ZoneIndex(5), ZoneState::ReadOnly);
    let error = prepare_used(&mut device, &plan(&drive(), PREPARED)).expect_err("zone 5 is read only");
    let (zone, status) = (ZoneIndex(5), Status::InvalidZoneStateTransition);
    assert_eq!(error, PrepareError { zone, operation: "reset", status });
    assert!(device.waiting.is_empty(), "no command is left in flight");
    assert_eq!(error.to_string(), "zone 5 cannot be prepared: reset failed with invalid zone state transition");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_valid_plan_verifies_on_a_correct_device_although_commands_fail(
        first in super::any_jobs::any_job(0),
        second in super::any_jobs::any_job(0),
        faults in any::<bool>(),
        seed in 0u64..1000,
    ) {
        let second = second.replace("from 0", "second");
        let text = format!("[run]\nverify = true\nseed = {seed}\ntime = \"3 ms\"\n{first}{second}");
        let (run, jobs) = parse_jobs(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let Ok(plan) = Plan::new(&run, &jobs, &drive()) else { return Ok(()) };
        let matches = || Matcher::operations(OperationSet::ALL);
        let one_in = |denominator| When::Chance { numerator: 1, denominator };
        let rules = vec![
            FaultRule { matches: matches(), when: one_in(60), effect: FaultEffect::Fail(Status::InternalError) },
            FaultRule { matches: matches(), when: one_in(60), effect: FaultEffect::FailAfter(Status::InternalError) },
        ];
        let delay = DelayRule {
            matches: matches(),
            when: When::Always,
            fixed: Duration(4_000),
            spread: Duration(20_000),
        };
        let prng = Prng::new(seed);
        let rules = if faults { rules } else { Vec::new() };
        let memory = Memory::new(drive(), 1 << 30);
        let mut device = Delay::new(Fault::new(memory, Vec::new(), prng.fork("none")), vec![delay.clone()], prng.fork("delay"));
        prop_assert!(prepare_used(&mut device, &plan).is_ok());
        let memory = device.into_inner().into_inner();
        let mut device = Delay::new(Fault::new(memory, rules, prng.fork("fault")), vec![delay], prng.fork("delay"));
        let runner = Runner::new(plan, PayloadKind::Bytes, NamespaceId::FIRST).prepared();
        let result = runner.run(&mut device, Instant(1 << 50), &mut |_| {});
        for job in &result.jobs {
            prop_assert!(job.verify_errors.is_none(), "{:?}\n{text}", job.verify_errors);
        }
    }
}
