//! A pool of namespaces on a drive.

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;
use zonda_zoned::Prng;

use crate::elastic::{DriveFaults, ElasticEvents, ElasticLoad, ElasticSimulation, PoolPlan, TenantMix};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ElasticScenario {
    /// The drive's profile.
    profile: String,
    pool: PoolPlan,
    load: ElasticLoad,
    mix: TenantMix,
    events: ElasticEvents,
    faults: DriveFaults,
}

impl ElasticScenario {
    pub(super) fn of(simulation: &ElasticSimulation) -> ElasticScenario {
        ElasticScenario {
            profile: simulation.profile_text.clone(),
            pool: simulation.pool.clone(),
            load: simulation.load.clone(),
            mix: simulation.mix,
            events: simulation.events.clone(),
            faults: simulation.faults,
        }
    }

    pub(super) fn simulation(&self, root: Prng) -> Result<ElasticSimulation, ConfigError> {
        let ElasticScenario { profile, pool, load, mix, events, faults } = self.clone();
        let parsed = super::profile("elastic.profile", &profile)?;
        let at_least_one = [
            ("elastic.load.lives", load.lives),
            ("elastic.load.commands_of_life", load.commands_of_life),
            ("elastic.load.queue_depth", load.queue_depth as u64),
            ("elastic.pool.released_max", pool.released_max as u64),
            ("elastic.faults.depth", faults.depth as u64),
            ("elastic.events.check_every", events.check_every),
        ];
        for (name, number) in at_least_one {
            super::at_least_one(name, number)?;
        }
        let simulation = ElasticSimulation {
            root,
            geometry: parsed.geometry(),
            profile_text: profile,
            profile: Box::new(parsed),
            pool,
            load,
            mix,
            events,
            faults,
        };
        let shape = zonda_elastic::Shape::of_drive(&simulation.geometry, simulation.options());
        shape.map_err(|error| ConfigError::new(format!("elastic.pool: {error}")))?;
        Ok(simulation)
    }
}
