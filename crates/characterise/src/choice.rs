//! Which I/O scheduler suits the drive: the comparison of readers beside writers, and the rule.

use zonda_plot::text::{counted, duration, list, mebibytes, percent};

use crate::limits::{CHANGE_MIN, LATENCY_CHANGE_MIN, SCHEDULER_THROUGHPUT_MIN};
use crate::{Figures, Finding, Kind, Load, Part, Report, SchedulerName};

/// The figures behind one scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// Which.
    pub scheduler: SchedulerName,
    /// The load of the readers.
    pub read: Load,
    /// The load of the writers.
    pub write: Load,
    /// Of the readers.
    pub reads: Figures,
    /// Of the writers.
    pub writes: Figures,
}

impl Compared {
    /// Bytes of readers and writers in a second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.reads.bytes_per_second + self.writes.bytes_per_second
    }
}

/// The schedulers of which both loads were measured, the simplest first.
#[must_use]
pub fn compared_schedulers(report: &Report) -> Vec<Compared> {
    let of = |scheduler: SchedulerName| {
        let find = |kind: Kind| {
            let is_it = |finding: &&Finding| finding.scheduler == Some(scheduler) && finding.load.kind == kind;
            let finding = report.of_part(Part::Schedulers).find(is_it)?;
            Some((finding.load, finding.figures?))
        };
        let ((read, reads), (write, writes)) = (find(Kind::Read)?, find(Kind::Write)?);
        Some(Compared { scheduler, read, write, reads, writes })
    };
    SchedulerName::ALL.into_iter().filter_map(of).collect()
}

/// The scheduler with the lowest p99 of reads among those whose throughput is within 10% of the best;
/// a simpler one if its p99 is not longer by more than 10%. `is_possible` excludes schedulers that
/// cannot be configured. `None` if there was nothing to choose from.
#[must_use]
pub fn choice(report: &Report, is_possible: impl Fn(SchedulerName) -> bool) -> Option<Compared> {
    let mut compared = compared_schedulers(report);
    compared.retain(|compared| is_possible(compared.scheduler));
    if compared.len() < 2 {
        return None;
    }
    let best = compared.iter().map(Compared::bytes_per_second).fold(0.0, f64::max);
    compared.retain(|compared| compared.bytes_per_second() >= SCHEDULER_THROUGHPUT_MIN * best);
    let lowest = compared.iter().map(|compared| compared.reads.p99_ns).min()?;
    let is_equal = |compared: &Compared| compared.reads.p99_ns as f64 <= lowest as f64 * (1.0 + LATENCY_CHANGE_MIN);
    compared.into_iter().find(is_equal)
}

/// The guideline of the rule `scheduler`.
pub(crate) fn guideline(report: &Report, is_possible: impl Fn(SchedulerName) -> bool) -> Option<String> {
    let chosen = choice(report, &is_possible)?;
    let compared = compared_schedulers(report);
    let best = compared.iter().filter(|compared| is_possible(compared.scheduler));
    let best = best.map(Compared::bytes_per_second).fold(0.0, f64::max);
    let beside = counted(u64::from(chosen.write.zones), "writer");
    let p99 = duration(chosen.reads.p99_ns);
    if chosen.scheduler == SchedulerName::None {
        return Some(format!(
            "Use no I/O scheduler: beside {beside} the p99 of reads is {p99}, and no scheduler with {} of the best throughput \
             shortens it by a tenth.",
            percent(SCHEDULER_THROUGHPUT_MIN)
        ));
    }
    let share = chosen.bytes_per_second() / best.max(1.0);
    let none = compared.iter().find(|compared| compared.scheduler == SchedulerName::None);
    let Some(none) = none else {
        return Some(format!(
            "Use the I/O scheduler {}: beside {beside} the p99 of reads is {p99}, and reads and writes together reach {} of the \
             best throughput. What it costs was not measured: there are no figures without a scheduler.",
            chosen.scheduler,
            percent(share)
        ));
    };
    let gained = if none.reads.p99_ns <= chosen.reads.p99_ns {
        format!(
            "reads and writes together reach {} of the best throughput, without a scheduler only {}",
            percent(share),
            percent(none.bytes_per_second() / best.max(1.0))
        )
    } else {
        format!("the p99 of reads is {p99}, not {} as without a scheduler", duration(none.reads.p99_ns))
    };
    Some(format!("Use the I/O scheduler {}: beside {beside} {gained}. {}", chosen.scheduler, price(none, &chosen)))
}

/// What is lost with a scheduler, compared with none.
fn price(none: &Compared, chosen: &Compared) -> String {
    let mut lost = Vec::new();
    let mut slower = |what: &str, without: f64, with: f64| {
        if with < without * (1.0 - CHANGE_MIN) {
            lost.push(format!("{what} reach {} MiB/s, not {}", mebibytes(with), mebibytes(without)));
        }
    };
    slower("reads", none.reads.bytes_per_second, chosen.reads.bytes_per_second);
    slower("writes", none.writes.bytes_per_second, chosen.writes.bytes_per_second);
    slower("both together", none.bytes_per_second(), chosen.bytes_per_second());
    let mut longer = |what: &str, without: u64, with: u64| {
        if with as f64 > without as f64 * (1.0 + LATENCY_CHANGE_MIN) {
            lost.push(format!("the p99 of {what} is {}, not {}", duration(with), duration(without)));
        }
    };
    longer("reads", none.reads.p99_ns, chosen.reads.p99_ns);
    longer("writes", none.writes.p99_ns, chosen.writes.p99_ns);
    if lost.is_empty() {
        return "It costs nothing that was measured: neither throughput of reads and writes nor p99 of writes."
            .to_owned();
    }
    format!("Its price: {}.", list(&lost))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{figures, report};

    /// Schedulers with their p99 of reads, and reads and writes in a second.
    fn of(schedulers: &[(SchedulerName, u64, f64, f64)]) -> Report {
        let read = Load::of_data(Kind::Read, 16_384, 64, 8);
        let write = Load::of_data(Kind::Write, 16_384, 512, 4);
        let findings = schedulers.iter().flat_map(|(scheduler, p99_ns, reads, writes)| {
            let of = |load: Load, beside, per_second, p99_ns| {
                let figures = figures(per_second, 16_384, 1, p99_ns);
                Finding::new(Part::Schedulers, load, Some(beside), Ok(figures)).behind(Some(*scheduler))
            };
            [of(read, write, *reads, *p99_ns), of(write, read, *writes, 50_000_000)]
        });
        report(findings.collect())
    }

    fn chosen(report: &Report) -> Option<&'static str> {
        choice(report, |_| true).map(|chosen| chosen.scheduler.name())
    }

    const ANY: fn(SchedulerName) -> bool = |_| true;

    #[test]
    fn the_lowest_tail_of_reads_decides_among_schedulers_with_enough_throughput() {
        use SchedulerName::{Ezns, Interference, MqDeadline, None};
        let report = of(&[
            (None, 8_000_000, 50_000.0, 50_000.0),
            (MqDeadline, 2_000_000, 60_000.0, 35_000.0),
            (Ezns, 1_000_000, 60_000.0, 29_000.0),
            (Interference, 7_000_000, 50_000.0, 49_000.0),
        ]);
        assert_eq!(chosen(&report), Some("mq-deadline"), "ezns has only 89% of the throughput");
        let text = guideline(&report, ANY).expect("there is a choice");
        let expected = "Use the I/O scheduler mq-deadline: beside 4 writers the p99 of reads is 2.00 ms, not 8.00 ms as \
                        without a scheduler. Its price: writes reach 547 MiB/s, not 781.";
        assert_eq!(text, expected);
        assert_eq!(report.guidelines.last().map(|guideline| guideline.rule.as_str()), Some("scheduler"));
    }

    #[test]
    fn without_a_scheduler_throughput_may_be_too_low() {
        use SchedulerName::{Ezns, MqDeadline, None};
        let report = of(&[
            (None, 1_000_000, 20_000.0, 20_000.0),
            (MqDeadline, 2_000_000, 50_000.0, 50_000.0),
            (Ezns, 3_000_000, 50_000.0, 45_000.0),
        ]);
        let expected = "Use the I/O scheduler mq-deadline: beside 4 writers reads and writes together reach 100% of the best \
                        throughput, without a scheduler only 40.0%. Its price: the p99 of reads is 2.00 ms, not 1.00 ms.";
        assert_eq!(guideline(&report, ANY).as_deref(), Some(expected));
    }

    #[test]
    fn the_simpler_of_equal_schedulers_is_chosen() {
        use SchedulerName::{Ezns, Interference, MqDeadline, None};
        let equal = of(&[
            (None, 1_090_000, 50_000.0, 50_000.0),
            (MqDeadline, 1_000_000, 50_000.0, 50_000.0),
            (Interference, 1_050_000, 50_000.0, 50_000.0),
        ]);
        assert_eq!(chosen(&equal), Some("none"));
        let text = guideline(&equal, ANY).expect("there is a choice");
        assert!(text.starts_with("Use no I/O scheduler: beside 4 writers the p99 of reads is 1.09 ms"), "{text}");
        let later = of(&[
            (None, 1_111_000, 50_000.0, 50_000.0),
            (Ezns, 1_080_000, 50_000.0, 50_000.0),
            (Interference, 1_000_000, 50_000.0, 50_000.0),
        ]);
        assert_eq!(chosen(&later), Some("ezns"));
        assert_eq!(choice(&later, |scheduler| scheduler == None), Option::None, "one is no choice");
        let without = choice(&later, |scheduler| scheduler != Ezns).expect("two are left");
        assert_eq!(without.scheduler, Interference);
    }

    #[test]
    fn a_scheduler_without_figures_of_its_writers_is_not_compared() {
        let report = of(&[(SchedulerName::None, 5, 1.0, 1.0), (SchedulerName::Ezns, 1, 1.0, 1.0)]);
        let mut findings = report.findings.clone();
        findings[3].figures = None;
        let report = crate::report::tests::report(findings);
        assert_eq!(compared_schedulers(&report).len(), 1);
        assert_eq!(chosen(&report), None);
    }
}
