//! Why loads have no figures, in words: each reason once, with the kinds of loads that it is of.

use zonda_plot::text::counted;

use crate::{Kind, Part, Report};

/// Loads without figures that have one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmeasured {
    /// The reason.
    pub reason: String,
    /// Kinds of loads with their number, in the order of the findings.
    pub kinds: Vec<(Kind, u64)>,
}

impl Unmeasured {
    /// The number of loads.
    #[must_use]
    pub fn loads(&self) -> u64 {
        self.kinds.iter().map(|(_, count)| count).sum()
    }

    /// The kinds, for example `3 of reads, 1 of writes`.
    #[must_use]
    pub fn kinds_words(&self) -> String {
        let words: Vec<String> =
            self.kinds.iter().map(|(kind, count)| format!("{count} of {}", kind.plural())).collect();
        words.join(", ")
    }
}

impl Report {
    /// The loads of a part without figures, by their reasons.
    #[must_use]
    pub fn unmeasured(&self, part: Part) -> Vec<Unmeasured> {
        let mut all: Vec<Unmeasured> = Vec::new();
        for finding in self.of_part(part) {
            let Some(missing) = &finding.missing else { continue };
            let reason = missing.to_string();
            let place = all.iter().position(|one| one.reason == reason).unwrap_or_else(|| {
                all.push(Unmeasured { reason, kinds: Vec::new() });
                all.len() - 1
            });
            let kinds = &mut all[place].kinds;
            match kinds.iter_mut().find(|(kind, _)| *kind == finding.load.kind) {
                Some((_, count)) => *count += 1,
                None => kinds.push((finding.load.kind, 1)),
            }
        }
        all
    }

    /// The same on one line; empty if all loads have figures.
    #[must_use]
    pub fn unmeasured_words(&self, part: Part) -> String {
        let of = |one: &Unmeasured| {
            format!("{} without figures ({}): {}", counted(one.loads(), "load"), one.kinds_words(), one.reason)
        };
        self.unmeasured(part).iter().map(of).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use crate::report::tests::{figures, report};
    use crate::{Finding, Kind, Load, Missing, Part};

    #[test]
    fn each_reason_names_the_kinds_of_its_loads() {
        let of = |kind, missing| Finding::new(Part::Writes, Load::of_data(kind, 4096, 1, 1), None, Err(missing));
        let report = report(vec![
            of(Kind::Write, Missing::ZonesUsedUp),
            of(Kind::Write, Missing::NoTime),
            of(Kind::Append, Missing::ZonesUsedUp),
            of(Kind::Write, Missing::ZonesUsedUp),
            Finding::new(Part::Writes, Load::of_data(Kind::Write, 8192, 1, 1), None, Ok(figures(1.0, 1, 1, 1))),
        ]);
        let expected = "3 loads without figures (2 of writes, 1 of appends): no command completed in the measured part of the \
                        run, which is short: the drive has too few zones to write, reset or finish; 1 load without figures (1 of writes): not measured: the budget was used up";
        assert_eq!(report.unmeasured_words(Part::Writes), expected);
        assert_eq!(report.unmeasured_words(Part::Reads), "");
    }
}
