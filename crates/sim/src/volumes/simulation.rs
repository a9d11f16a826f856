//! A volume scenario: everything that is generated from a seed, less the parts that are left out.

use zonda_raid::testing::{Incident, Mix, Swarm};

use crate::options::{Options, Part};

/// Everything that is generated from a seed before the first event.
#[derive(Debug)]
pub(crate) struct VolumesSimulation {
    pub(crate) swarm: Swarm,
}

impl VolumesSimulation {
    pub(crate) fn new(seed: u64, options: &Options) -> VolumesSimulation {
        let mut swarm = Swarm::generate(seed);
        if !options.has(Part::Mix) {
            swarm.mix = Mix::default();
        }
        if !options.has(Part::Trims) {
            swarm.mix.trims = 0;
        }
        if !options.has(Part::Flushes) {
            swarm.mix.flushes = 0;
        }
        swarm.requests_max = options.commands_max.unwrap_or(u64::MAX);
        swarm.queue_depth = options.queue_depth_max.map_or(usize::MAX, |depth| depth.max(1) as usize);
        swarm.steps = swarm.steps.saturating_mul(options.scale.max(1));
        swarm.has_power_losses &= options.has(Part::PowerLoss);
        swarm.has_deaths &= options.has(Part::Deaths);
        swarm.has_absences &= options.has(Part::Absences);
        swarm.has_faults &= options.has(Part::Faults);
        swarm.heals &= options.has(Part::Rebuilds);
        swarm.has_scrubs &= options.has(Part::Scrubs);
        if !options.has(Part::SlowMembers) {
            swarm.slow_members.clear();
        }
        swarm.injected_faults.rot &= options.has(Part::Rot);
        swarm.injected_faults.zones &= options.has(Part::Degradation);
        swarm.injected_faults.members &= options.has(Part::MemberLosses);
        swarm.config.tuning.is_cache_volatile &= options.has(Part::Caches);
        let hazards = &mut swarm.hazards;
        hazards.incidents.retain(|(_, incident)| options.has(part_of(*incident)));
        hazards.fails_resets &= options.has(Part::ResetFaults);
        hazards.ignores_flushes &= options.has(Part::IgnoredFlushes);
        hazards.misdirects_writes &= options.has(Part::MisdirectedWrites);
        if !options.has(Part::LongPauses) {
            hazards.pauses_per_mille = 0;
        }
        VolumesSimulation { swarm }
    }
}

/// The part that an incident belongs to.
fn part_of(incident: Incident) -> Part {
    match incident {
        Incident::TooManyAbsent | Incident::UnreadableBlocks | Incident::Damage => Part::BeyondTolerance,
        Incident::SplitBrain => Part::SplitBrain,
        Incident::OldCopies => Part::OldCopies,
        Incident::NeededMemberPauses => Part::LongPauses,
        Incident::SharedFailure => Part::SharedFailures,
        Incident::LossAfterScrub | Incident::AbsenceAfterScrub => Part::ScrubLosses,
        Incident::FailedRebuild | Incident::DamagedRebuild => Part::RebuildFailures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_out_a_part_changes_no_other_part() {
        for seed in 0..40 {
            let whole = VolumesSimulation::new(seed, &Options::default()).swarm;
            for (_, part) in Part::ALL {
                let swarm =
                    VolumesSimulation::new(seed, &Options { without: [part].into(), ..Options::default() }).swarm;
                assert_eq!(whole.geometries, swarm.geometries, "{}", part.name());
                assert_eq!((whole.crashes, whole.steps, whole.calm), (swarm.crashes, swarm.steps, swarm.calm));
                assert!(part != Part::Rot || !swarm.injected_faults.rot);
                assert!(part != Part::Caches || !swarm.config.tuning.is_cache_volatile);
                assert!(part == Part::Caches || whole.config == swarm.config);
                assert!(matches!(part, Part::Mix | Part::Trims | Part::Flushes) || whole.mix == swarm.mix);
            }
        }
    }

    #[test]
    fn every_optional_part_is_in_some_scenarios_and_not_in_others() {
        type HasPart = fn(&Swarm) -> bool;
        let simulations: Vec<Swarm> =
            (0..200).map(|seed| VolumesSimulation::new(seed, &Options::default()).swarm).collect();
        let parts: [(&str, HasPart); 16] = [
            ("faults", |swarm| swarm.has_faults),
            ("injected faults", |swarm| swarm.injected_faults_per_mille > 0),
            ("losses of members", |swarm| swarm.is_rough),
            ("rebuilds", |swarm| swarm.heals),
            ("scrubs", |swarm| swarm.has_scrubs),
            ("crashes", |swarm| swarm.crashes > 0),
            ("crash loops", |swarm| swarm.is_loop),
            ("deaths", |swarm| swarm.has_deaths),
            ("absences", |swarm| swarm.has_absences),
            ("volatile caches", |swarm| swarm.config.tuning.is_cache_volatile),
            ("parity", |swarm| swarm.config.scheme.parity > 0),
            ("incidents", |swarm| !swarm.hazards.incidents.is_empty()),
            ("resets that fail", |swarm| swarm.hazards.fails_resets),
            ("flushes that do nothing", |swarm| swarm.hazards.ignores_flushes),
            ("misdirected writes", |swarm| swarm.hazards.misdirects_writes),
            ("pauses of the program", |swarm| swarm.hazards.pauses_per_mille > 0),
        ];
        for (name, has_part) in parts {
            let count = simulations.iter().filter(|swarm| has_part(swarm)).count();
            assert!((20..190).contains(&count), "{name} in {count} of 200 scenarios");
        }
    }
}
