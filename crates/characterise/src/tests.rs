//! Whole characterisations of models, in virtual time.

use zonda_layers::{Fault, FaultEffect, FaultRule, Matcher, OperationKind, OperationSet, When};
use zonda_profiler::{DriveIdentity, VirtualClock};
use zonda_ssd::{Ssd, profile::Profile};
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Instant, NamespaceId, Namespaces, Operation, Outcome,
    PayloadKind, Prng, QueueFull, ReportFilter, Status, ZoneDescriptor, ZoneIndex, ZoneState, ZonedDevice,
};

use crate::*;

/// `bae-small` with zones of a quarter of their size, which are filled and finished in a quarter of the
/// time.
fn profile(zones: u32) -> Profile {
    let text = zonda_profiles::builtin_text("bae-small").expect("built in");
    let text = text.replace("= \"96 MiB\"", "= \"24 MiB\"");
    let mut profile = Profile::parse(&text).expect("valid");
    profile.geometry.zones = zones;
    profile
}

fn options(budget: Duration) -> Options {
    Options { budget, seed: 1 }
}

fn of_model(may_write: bool, budget: Duration) -> Characterisation {
    let mut subject = ModelSubject::new(profile(200), may_write, 1);
    characterise(&mut subject, &options(budget), &mut |_| Control::Continue).expect("the model reports its zones")
}

fn report_of(measured: Characterisation) -> Report {
    let geometry = profile(400).geometry();
    let conditions = Conditions {
        target: "model:bae-small".to_owned(),
        is_virtual: true,
        is_destructive: true,
        budget_ns: 1,
        seed: 1,
        made_at_unix_s: None,
        is_page_cached: false,
    };
    Report::new(DriveIdentity::new("S", &geometry), DriveLimits::of(&geometry), conditions, measured)
}

/// Enough for a run of each load.
const BUDGET: Duration = Duration::from_secs(16);

#[test]
fn all_parts_of_a_model_are_measured_within_the_budget_and_the_same_seed_gives_the_same_report() {
    let measured = of_model(true, BUDGET);
    for part in &measured.parts {
        assert_eq!(part.reason, None, "{part:?}");
        assert!(part.part == Part::Groups || part.measured > 5, "{part:?}");
    }
    assert!(measured.elapsed <= BUDGET + Duration::from_secs(1), "{}", measured.elapsed);
    let report = report_of(measured);
    assert_eq!(report.matrix_loads().iter().map(|load| load.kind).collect::<Vec<_>>(), Kind::MATRIX);
    let missing: Vec<&Finding> = report.findings.iter().filter(|finding| finding.figures.is_none()).collect();
    assert!(missing.len() * 10 < report.findings.len(), "{missing:?}");
    assert!(report.guidelines.len() > 8, "{:?}", report.guidelines);
    assert_eq!(report.groups.as_ref().map(|groups| groups.groups), Some(8));
    assert_eq!(report.to_json(), report_of(of_model(true, BUDGET)).to_json());
}

#[test]
fn without_permission_only_groups_and_reads_are_measured_and_the_others_say_why() {
    let measured = of_model(false, Duration::from_secs(4));
    for summary in &measured.parts {
        let expected = summary.part.is_destructive().then_some(Missing::ReadOnly);
        assert_eq!(summary.reason, expected, "{summary:?}");
    }
    assert!(measured.findings.iter().all(|finding| finding.load.kind == Kind::Read && finding.figures.is_some()));
}

#[test]
fn a_model_that_may_only_be_read_holds_data_as_one_that_may_be_written() {
    let single = |may_write| {
        let measured = of_model(may_write, Duration::from_secs(20));
        let reads = measured.findings.into_iter().filter(|finding| finding.part == Part::Reads);
        let single = reads.filter(|finding| finding.load.queue_depth == 1 && finding.figures.is_some());
        let smallest = single.min_by_key(|finding| finding.load.size_bytes).expect("single reads are measured");
        (smallest.load.size_bytes, smallest.figures.expect("it has figures").p50_ns)
    };
    let ((size, read), (of_written, written)) = (single(false), single(true));
    assert_eq!(size, of_written);
    assert!(read.abs_diff(written) * 10 < written, "{read} ns if it may only be read, {written} ns otherwise");
}

#[test]
fn zones_of_a_conventional_drive_are_only_read() {
    let profile = Profile::parse(zonda_profiles::builtin_text("conventional").expect("built in")).expect("valid");
    let mut subject = ModelSubject::new(profile, true, 1);
    let budget = Duration::from_millis(500);
    let measured =
        characterise(&mut subject, &options(budget), &mut |_| Control::Continue).expect("it reports its zones");
    for summary in measured.parts.iter().filter(|summary| summary.part.is_destructive()) {
        assert!(matches!(summary.reason, Some(Missing::NotSupported(_))), "{summary:?}");
    }
}

#[test]
fn a_user_who_stops_gets_what_is_measured_and_the_rest_is_interrupted() {
    let mut subject = ModelSubject::new(profile(400), true, 1);
    let mut observe = |step: &Progress| if step.part == Part::Writes { Control::Stop } else { Control::Continue };
    let measured = characterise(&mut subject, &options(BUDGET), &mut observe).expect("it reports its zones");
    assert!(measured.is_interrupted);
    let of = |part: Part| measured.findings.iter().filter(move |finding| finding.part == part);
    assert!(of(Part::Reads).all(|finding| finding.figures.is_some()) && of(Part::Reads).count() > 5);
    assert!(of(Part::Writes).all(|finding| finding.missing == Some(Missing::Interrupted)));
    assert_eq!(measured.parts.last().and_then(|part| part.reason.clone()), Some(Missing::Interrupted));
}

#[test]
fn a_budget_that_is_too_short_leaves_loads_without_time() {
    let measured = of_model(true, Duration::from_millis(400));
    // A finish in progress is not interrupted.
    assert!(measured.elapsed < Duration::from_millis(1500), "{}", measured.elapsed);
    let no_time = measured.findings.iter().filter(|finding| finding.missing == Some(Missing::NoTime)).count();
    assert!(no_time > 20, "{no_time} of {}", measured.findings.len());
}

#[test]
fn without_conflict_groups_the_scheduler_that_needs_them_is_not_measured() {
    let mut subject = ModelSubject::new(profile(400), true, 1);
    let parts = [Part::Schedulers];
    let budget = Duration::from_millis(500);
    let measured =
        crate::characterise::characterise_parts(&mut subject, &options(budget), &parts, &mut |_| Control::Continue);
    for finding in measured.expect("the model reports its zones").findings {
        let is_without = finding.scheduler == Some(SchedulerName::Interference);
        assert_eq!(finding.missing, is_without.then_some(Missing::NoGroups), "{}", finding.words());
    }
}

/// A drive whose first zones are full, behind a layer that fails some commands.
fn used_drive(full: u32, rules: Vec<(OperationSet, Status)>) -> Fault<Ssd> {
    let profile = profile(200);
    let mut drive = Ssd::new(&profile, PayloadKind::None, &Prng::new(1));
    for zone in 0..full {
        drive.prefill(ZoneIndex(zone), profile.geometry().zone_capacity_blocks).expect("full zones are not active");
    }
    let rule = |(operations, status)| FaultRule {
        matches: Matcher::operations(operations),
        when: When::Always,
        effect: FaultEffect::Fail(status),
    };
    Fault::new(drive, rules.into_iter().map(rule).collect(), Prng::new(1))
}

/// A drive with a short queue, as SATA and SCSI disks have.
struct ShortQueue {
    drive: Ssd,
    in_flight: usize,
}

impl ZonedDevice for ShortQueue {
    fn namespaces(&self) -> &Namespaces {
        self.drive.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        if self.in_flight == 32 {
            return Err(QueueFull(command));
        }
        self.drive.submit(now, command)?;
        self.in_flight += 1;
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let mut ended = CompletionQueue::new();
        self.drive.poll(now, &mut ended);
        while let Some(completion) = ended.pop() {
            self.in_flight -= 1;
            completions.push(completion);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.drive.next_timeout()
    }
}

#[test]
fn schedulers_are_compared_behind_the_same_load_and_one_that_prefers_reads_suits_a_short_queue() {
    let profile = profile(400);
    let mut drive = Ssd::new(&profile, PayloadKind::None, &Prng::new(1));
    for zone in 0..64 {
        drive.prefill(ZoneIndex(zone), profile.geometry().zone_capacity_blocks).expect("full zones are not active");
    }
    let (mut device, mut clock) = (ShortQueue { drive, in_flight: 0 }, VirtualClock::default());
    let mut subject = LiveSubject::new(&mut device, &mut clock).expect("it reports its zones");
    subject.allow_writes(subject.choose_scratch().0, 1);
    let parts = [Part::Groups, Part::Schedulers];
    let options = options(Duration::from_secs(3));
    let measured = crate::characterise::characterise_parts(&mut subject, &options, &parts, &mut |_| Control::Continue);
    let report = report_of(measured.expect("the model reports its zones"));
    let compared = compared_schedulers(&report);
    let names: Vec<&str> = compared.iter().map(|compared| compared.scheduler.name()).collect();
    assert_eq!(names, ["none", "mq-deadline", "ezns", "interference"], "{:?}", report.findings);
    for compared in &compared {
        println!("{}: {:?} {:?}", compared.scheduler, compared.reads, compared.writes);
        assert!(compared.reads.operations > 100 && compared.writes.operations > 100, "{compared:?}");
    }
    let p99 = |place: usize| compared[place].reads.p99_ns;
    assert!(p99(1) * 2 < p99(0), "reads before writes: {} {}", p99(1), p99(0));
    assert!(report.guidelines.iter().any(|guideline| guideline.rule == "scheduler"));
}

fn zones_of(device: &mut dyn ZonedDevice, clock: &mut VirtualClock) -> Vec<ZoneDescriptor> {
    let geometry = device.geometry(NamespaceId::FIRST).clone();
    let operation = Operation::ReportZones {
        start: geometry.zone_start(ZoneIndex(0)),
        filter: ReportFilter::All,
        extended: false,
        partial: true,
        descriptors_max: geometry.zone_count,
    };
    device.submit(clock.now, Command::new(CommandId(1 << 60), NamespaceId::FIRST, operation)).expect("it is idle");
    let mut completions = CompletionQueue::new();
    loop {
        clock.now = device.next_timeout().unwrap_or(clock.now).max(clock.now);
        device.poll(clock.now, &mut completions);
        if let Some(completion) = completions.pop() {
            let Outcome::Report(report) = completion.outcome else { panic!("{:?} is not a report", completion.status) };
            return report.zones;
        }
    }
}

fn live(device: &mut dyn ZonedDevice, clock: &mut VirtualClock, destructive: bool) -> Characterisation {
    let mut subject = LiveSubject::new(device, clock).expect("it reports its zones");
    if destructive {
        let (scratch, _) = subject.choose_scratch();
        subject.allow_writes(scratch, 1);
    }
    // Reads alone need less time.
    let budget = if destructive { BUDGET } else { Duration(BUDGET.0 / 4) };
    let measured = characterise(&mut subject, &options(budget), &mut |_| Control::Continue).expect("as above");
    subject.clean_up().expect("zones can be reset");
    measured
}

#[test]
fn a_drive_that_may_only_be_read_gets_no_other_command() {
    let all = OperationKind::ALL.into_iter();
    let others: Vec<OperationKind> =
        all.filter(|kind| !matches!(kind, OperationKind::Read | OperationKind::ReportZones)).collect();
    let mut device = used_drive(50, vec![(OperationSet::of(&others), Status::InternalError)]);
    let measured = live(&mut device, &mut VirtualClock { now: Instant(5) }, false);
    assert_eq!(device.counters()[0].matched, 0, "nothing but reads and reports was submitted");
    assert!(measured.findings.len() > 10 && measured.findings.iter().all(|finding| finding.figures.is_some()));
}

#[test]
fn zones_that_are_written_are_empty_zones_and_empty_again_at_the_end() {
    let mut device = used_drive(50, Vec::new());
    let mut clock = VirtualClock::default();
    let measured = live(&mut device, &mut clock, true);
    let without = measured.findings.iter().filter(|finding| finding.figures.is_none()).count();
    // Resets of eight partly written zones are too short for a pair.
    assert!(without * 3 < measured.findings.len(), "{without} of {}", measured.findings.len());
    for (zone, descriptor) in zones_of(&mut device, &mut clock).iter().enumerate() {
        let expected = if zone < 50 { ZoneState::Full } else { ZoneState::Empty };
        assert_eq!(descriptor.state, expected, "zone {zone}");
    }
}

#[test]
fn data_are_lost_only_where_too_few_zones_are_empty_and_from_the_last_zone_on() {
    let mut device = used_drive(190, Vec::new());
    let mut clock = VirtualClock::default();
    let subject = LiveSubject::new(&mut device, &mut clock).expect("it reports its zones");
    let (scratch, lost) = subject.choose_scratch();
    assert_eq!(scratch.len(), lost.len() + 10, "ten zones are empty");
    assert_eq!(lost.last(), Some(&ZoneIndex(189)));
    assert_eq!(lost.len() as u32, 190 - lost[0].0, "they are the last ones with data");
}

#[test]
fn an_empty_drive_is_filled_for_reads_before_its_groups_are_measured() {
    let mut device = used_drive(0, Vec::new());
    let mut clock = VirtualClock::default();
    let measured = live(&mut device, &mut clock, true);
    let reads = measured.findings.iter().filter(|finding| finding.part == Part::Reads);
    let (all, measured) = (reads.clone().count(), reads.filter(|finding| finding.figures.is_some()).count());
    assert_eq!(all, measured);
    assert!(zones_of(&mut device, &mut clock).iter().all(|zone| zone.state == ZoneState::Empty));
}

#[test]
fn an_operation_that_the_drive_refuses_is_not_supported_and_no_failure() {
    let append = OperationSet::of(&[OperationKind::Append]);
    let mut device = used_drive(50, vec![(append, Status::InvalidField)]);
    let measured = live(&mut device, &mut VirtualClock::default(), true);
    let (mut refused, mut others) = (0, 0);
    for finding in &measured.findings {
        // Reads beside appends of a limited rate cannot be measured either.
        let is_limited = |beside: Load| beside.kind == Kind::Append && beside.rate_percent.is_some();
        let is_append = finding.load.kind == Kind::Append || finding.beside.is_some_and(is_limited);
        match &finding.missing {
            Some(Missing::NotSupported(_)) => {
                assert!(is_append, "{finding:?}");
                refused += 1;
            }
            Some(Missing::NoTime | Missing::TooFewZones | Missing::NoneCompleted) => {}
            other => {
                assert!(other.is_none() && !is_append, "{finding:?}");
                others += 1;
            }
        }
    }
    assert!(refused > 15 && others > 50, "{refused} {others}");
}

#[test]
fn a_drive_that_fails_a_command_is_measured_as_far_as_possible() {
    let finish = OperationSet::of(&[OperationKind::Finish]);
    let mut device = used_drive(50, vec![(finish, Status::InternalError)]);
    let mut clock = VirtualClock::default();
    let measured = live(&mut device, &mut clock, true);
    let failed = measured.findings.iter().filter(|finding| matches!(finding.missing, Some(Missing::Failed(_))));
    assert!(failed.clone().count() > 5 && failed.into_iter().all(|finding| finding.load.kind == Kind::Finish));
    assert!(zones_of(&mut device, &mut clock)[50..].iter().all(|zone| zone.state == ZoneState::Empty));
}

#[test]
fn the_time_of_filling_zones_limits_how_many_are_filled() {
    let mut device = used_drive(0, Vec::new());
    let mut clock = VirtualClock::default();
    let mut subject = LiveSubject::new(&mut device, &mut clock).expect("it reports its zones");
    let (scratch, _) = subject.choose_scratch();
    subject.allow_writes(scratch.clone(), 1);
    let capacity = subject.geometry().zone_capacity_blocks;
    let (one, two) = (
        subject.preparation(&[(scratch[0], capacity)]),
        subject.preparation(&[(scratch[0], capacity), (scratch[1], Blocks(capacity.0))]),
    );
    assert!(one > Duration::ZERO && two.0.abs_diff(2 * one.0) <= 1);
    subject.prepare(&[(scratch[0], capacity)]).expect("it can be written");
    assert_eq!(subject.preparation(&[(scratch[0], capacity)]), Duration::ZERO, "it is full already");
    subject.forget(&scratch[..1]);
    assert!(subject.preparation(&[(scratch[0], capacity)]) > Duration::ZERO);
}

#[test]
fn a_drive_with_zones_of_a_gibibyte_is_measured_within_a_minute_although_zones_must_be_filled() {
    let mut profile = Profile::parse(zonda_profiles::builtin_text("zn540").expect("built in")).expect("valid");
    profile.geometry.zones = 904;
    let mut drive = Ssd::new(&profile, PayloadKind::None, &Prng::new(1));
    for zone in 0..60 {
        drive.prefill(ZoneIndex(zone), profile.geometry().zone_capacity_blocks).expect("full zones are not active");
    }
    let mut clock = VirtualClock::default();
    let mut subject = LiveSubject::new(&mut drive, &mut clock).expect("it reports its zones");
    let (scratch, lost) = subject.choose_scratch();
    assert!(lost.is_empty());
    subject.allow_writes(scratch, 1);
    let budget = Duration::from_secs(60);
    let measured = characterise(&mut subject, &options(budget), &mut |_| Control::Continue).expect("as above");
    subject.clean_up().expect("zones can be reset");
    assert!(measured.elapsed <= budget + Duration::from_secs(1), "{}", measured.elapsed);
    // Its zones have no conflict groups.
    let is_expected = |finding: &&Finding| finding.figures.is_none() && finding.missing != Some(Missing::NoGroups);
    let missing = measured.findings.iter().filter(is_expected);
    // A finish beside writes takes longer than a run.
    let in_matrix = missing.clone().filter(|finding| finding.part == Part::Interference).count();
    assert!(in_matrix <= 16 && missing.count() <= in_matrix + 1, "{in_matrix}");
}
