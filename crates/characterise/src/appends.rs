//! Whether appends or writes are faster at one zone: the rule `append-or-write`.

use zonda_plot::text::{list, percent, round_bytes};

use crate::limits::{BETTER, CHANGE_ERRORS};
use crate::report::Report;
use crate::rules::over_size;
use crate::{Kind, Part};

/// Appends and writes of one size at one zone, one request outstanding.
#[derive(Clone, Copy)]
struct Compared {
    size_bytes: u64,
    /// The rate of appends divided by that of writes.
    ratio: f64,
    /// A ratio within `1 / (1 + noise)` and `1 + noise` is no difference.
    noise: f64,
}

impl Compared {
    fn is_append(&self) -> bool {
        self.ratio >= BETTER.max(1.0 + self.noise)
    }

    fn is_write(&self) -> bool {
        1.0 / self.ratio >= BETTER.max(1.0 + self.noise)
    }

    /// Neither is faster, and the measurement is exact enough to say so.
    fn is_equal(&self) -> bool {
        self.factor() < BETTER && self.noise < BETTER - 1.0
    }

    fn is_open(&self) -> bool {
        !self.is_append() && !self.is_write() && !self.is_equal()
    }

    /// How much faster the faster one is.
    fn factor(&self) -> f64 {
        self.ratio.max(1.0 / self.ratio)
    }
}

/// The guideline of the rule `append-or-write`.
pub(crate) fn guideline(report: &Report) -> Option<String> {
    let writes = over_size(report, Part::Writes, Kind::Write);
    let compared: Vec<Compared> = over_size(report, Part::Appends, Kind::Append)
        .iter()
        .filter_map(|(load, append)| {
            let (_, write) = writes.iter().find(|(write, _)| write.size_bytes == load.size_bytes)?;
            let error = append.uncertainty.hypot(write.uncertainty);
            let ratio = append.per_second.max(1e-9) / write.per_second.max(1e-9);
            Some(Compared { size_bytes: load.size_bytes, ratio, noise: CHANGE_ERRORS * error })
        })
        .collect();
    if compared.is_empty() {
        return None;
    }
    let are = |is_in: fn(&Compared) -> bool| compared.iter().filter(|one| is_in(one)).collect::<Vec<_>>();
    let (append, write, open) = (are(Compared::is_append), are(Compared::is_write), are(Compared::is_open));
    let place = |of: &Compared| compared.iter().position(|one| one.size_bytes == of.size_bytes).unwrap_or(0);
    let range = |sizes: &[&Compared]| match sizes {
        [first, _, .., last] if place(last) - place(first) + 1 == sizes.len() => {
            format!("from {} to {}", round_bytes(first.size_bytes), round_bytes(last.size_bytes))
        }
        _ => format!("at {}", list(&sizes.iter().map(|one| round_bytes(one.size_bytes)).collect::<Vec<_>>())),
    };
    let most =
        |of: &[&Compared]| percent((of.iter().map(|one| one.factor()).fold(1.0, f64::max) - 1.0).clamp(0.0, 1e9));
    let text = match (append.is_empty(), write.is_empty()) {
        (true, true) if open.is_empty() => {
            return Some(
                "Append and write are equally fast at one zone with one request outstanding: append has no cost."
                    .to_owned(),
            );
        }
        (true, true) => {
            return Some(format!(
                "No difference between append and write was measured {} at one zone with one request outstanding: up to {}, \
                 which is within three standard errors. A longer budget measures smaller differences.",
                range(&open),
                most(&open)
            ));
        }
        (false, true) => format!("Append beats write {} at one zone: by up to {}.", range(&append), most(&append)),
        (true, false) => format!(
            "Write beats append {} at one zone with one request outstanding: by up to {}. Append pays with several \
             outstanding.",
            range(&write),
            most(&write)
        ),
        (false, false) => {
            format!("At one zone, append beats write {}, and write beats append {}.", range(&append), range(&write))
        }
    };
    Some(if open.is_empty() {
        text
    } else {
        format!("{text} No difference was measured {}: it is within three standard errors.", range(&open))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{figures, report};
    use crate::{Figures, Finding, Load};

    /// One append or write of this size, so many in a second, with this standard error.
    fn data(kind: Kind, size: u64, per_second: f64, uncertainty: f64) -> Finding {
        let part = if kind == Kind::Append { Part::Appends } else { Part::Writes };
        let figures = Figures { uncertainty, ..figures(per_second, size, 10_000, 20_000) };
        Finding::new(part, Load::of_data(kind, size, 1, 1), None, Ok(figures))
    }

    fn of(findings: Vec<Finding>) -> String {
        guideline(&report(findings)).expect("both were measured")
    }

    #[test]
    fn append_beats_write_only_where_it_is_faster() {
        let write = |size, iops| data(Kind::Write, size, iops, 0.01);
        let append = |size, iops| data(Kind::Append, size, iops, 0.01);
        let both = vec![write(4096, 100.0), write(8192, 100.0), append(4096, 150.0), append(8192, 101.0)];
        assert_eq!(of(both), "Append beats write at 4 KiB at one zone: by up to 50.0%.");
        assert!(of(vec![write(4096, 100.0), append(4096, 80.0)]).starts_with("Write beats append at 4 KiB"));
        let sizes = [4096u64, 8192, 16_384, 32_768, 65_536];
        let writes = sizes.map(|size| write(size, 100.0));
        let appends = sizes.iter().zip([150.0, 80.0, 150.0, 150.0, 150.0]).map(|(size, iops)| append(*size, iops));
        let expected = "At one zone, append beats write at 4 KiB, 16 KiB, 32 KiB and 64 KiB, and write beats append at 8 \
                        KiB.";
        assert_eq!(of(writes.into_iter().chain(appends).collect()), expected);
        let equal = of(vec![write(4096, 100.0), append(4096, 101.0)]);
        assert!(equal.starts_with("Append and write are equally fast"), "{equal}");
    }

    #[test]
    fn a_difference_within_the_uncertainty_is_none() {
        let pair =
            |size, appends, error| [data(Kind::Write, size, 100.0, error), data(Kind::Append, size, appends, error)];
        let expected = "No difference between append and write was measured at 4 KiB at one zone with one request \
                        outstanding: up to 20.0%, which is within three standard errors. A longer budget measures smaller \
                        differences.";
        assert_eq!(of(pair(4096, 120.0, 0.1).to_vec()), expected);
        assert!(of(pair(4096, 120.0, 0.01).to_vec()).starts_with("Append beats write"));
        let vague = of(pair(4096, 101.0, 0.1).to_vec());
        assert!(vague.starts_with("No difference between"), "it does not show that they are equal: {vague}");
        let expected = "Append beats write at 8 KiB at one zone: by up to 50.0%. No difference was measured at 4 KiB: it is \
                        within three standard errors.";
        assert_eq!(of([pair(4096, 120.0, 0.1), pair(8192, 150.0, 0.01)].concat()), expected);
    }
}
