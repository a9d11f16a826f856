//! Scenarios as data: everything that is generated from a seed before a run.
//!
//! An entry of the bug base stores its scenario, so that it replays without the generator: a change
//! of the generator does not affect stored entries. Random numbers of the run itself (the order of
//! events, contents) come from labelled forks of [`Scenario::seed`].
//!
//! The serde descriptions of types of other crates are here (`parts`, and one module per kind). A
//! field that is added to one of these types needs a default here: the value with which entries
//! without the field were recorded.

mod drive;
mod elastic;
mod files;
mod groups;
mod images;
mod network;
mod parts;
mod volumes;

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;
use zonda_ssd::profile::Profile;
use zonda_zoned::Prng;

use crate::options::{Options, ScenarioKind};
use crate::simulate::AnySimulation;
pub(crate) use drive::DriveScenario;
pub(crate) use elastic::ElasticScenario;
pub(crate) use files::{FilesScenario, MixDef};
pub(crate) use groups::GroupsScenario;
pub(crate) use images::ImagesScenario;
pub(crate) use network::NetworkScenario;
pub(crate) use parts::{DurationDef, is_unlimited, operation_weights, unlimited};
pub(crate) use volumes::VolumesScenario;

/// Everything that is generated from a seed before a run, as stored in an entry of the bug base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The seed of the random numbers of the run.
    seed: u64,
    /// Label of the fork of the seed that the run uses; `None`: the seed itself.
    fork: Option<String>,
    body: Body,
}

/// The generated scenario, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Drive(Box<DriveScenario>),
    Network(Box<NetworkScenario>),
    Files(Box<FilesScenario>),
    Volumes(Box<VolumesScenario>),
    Images(Box<ImagesScenario>),
    Elastic(Box<ElasticScenario>),
    Groups(Box<GroupsScenario>),
}

/// A scenario as stored in the file of an entry: a table for the random numbers of the run, and one
/// for the scenario.
#[derive(Default, Serialize)]
pub(crate) struct ScenarioText {
    pub(crate) run: Option<RunText>,
    pub(crate) drive: Option<DriveScenario>,
    pub(crate) network: Option<NetworkScenario>,
    pub(crate) files: Option<FilesScenario>,
    pub(crate) volumes: Option<VolumesScenario>,
    pub(crate) images: Option<ImagesScenario>,
    pub(crate) elastic: Option<ElasticScenario>,
    pub(crate) groups: Option<GroupsScenario>,
}

/// The source of the random numbers of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunText {
    /// As a string, because TOML integers are signed.
    seed: String,
    fork: Option<String>,
}

impl Scenario {
    /// Generates the scenario of a seed.
    #[must_use]
    pub fn generate(seed: u64, options: &Options) -> Scenario {
        let (fork, body) = match AnySimulation::new(seed, options) {
            AnySimulation::Drive(simulation) => (None, Body::Drive(Box::new(DriveScenario::of(&simulation)))),
            AnySimulation::Network(simulation) => {
                (Some(crate::network::FORK), Body::Network(Box::new(NetworkScenario::of(&simulation))))
            }
            AnySimulation::Files(simulation) => {
                (Some(crate::files::FORK), Body::Files(Box::new(FilesScenario::of(&simulation))))
            }
            AnySimulation::Volumes(simulation) => (None, Body::Volumes(Box::new(VolumesScenario::of(&simulation)))),
            AnySimulation::Images(simulation) => {
                (Some(crate::images::FORK), Body::Images(Box::new(ImagesScenario::of(&simulation))))
            }
            AnySimulation::Elastic(simulation) => {
                (Some(crate::elastic::FORK), Body::Elastic(Box::new(ElasticScenario::of(&simulation))))
            }
            AnySimulation::Groups(simulation) => {
                (Some(crate::groups::FORK), Body::Groups(Box::new(GroupsScenario::of(&simulation))))
            }
        };
        Scenario { seed, fork: fork.map(str::to_owned), body }
    }

    /// The kind of the scenario.
    #[must_use]
    pub fn kind(&self) -> ScenarioKind {
        match self.body {
            Body::Drive(_) => ScenarioKind::Drive,
            Body::Network(_) => ScenarioKind::Network,
            Body::Files(_) => ScenarioKind::Files,
            Body::Volumes(_) => ScenarioKind::Volumes,
            Body::Images(_) => ScenarioKind::Images,
            Body::Elastic(_) => ScenarioKind::Elastic,
            Body::Groups(_) => ScenarioKind::Groups,
        }
    }

    /// The simulation of the scenario.
    ///
    /// # Errors
    /// The first invalid value: an invalid profile, or inconsistent parts.
    pub(crate) fn simulation(&self) -> Result<AnySimulation, ConfigError> {
        let root = Prng::new(self.seed);
        let root = self.fork.as_ref().map_or(root.clone(), |label| root.fork(label));
        Ok(match &self.body {
            Body::Drive(scenario) => AnySimulation::Drive(Box::new(scenario.simulation(root)?)),
            Body::Network(scenario) => AnySimulation::Network(Box::new(scenario.simulation(root)?)),
            Body::Files(scenario) => AnySimulation::Files(Box::new(scenario.simulation(root)?)),
            Body::Images(scenario) => AnySimulation::Images(Box::new(scenario.simulation(root)?)),
            Body::Elastic(scenario) => AnySimulation::Elastic(Box::new(scenario.simulation(root)?)),
            Body::Groups(scenario) => AnySimulation::Groups(Box::new(scenario.simulation(root)?)),
            Body::Volumes(scenario) if self.fork.is_none() => {
                AnySimulation::Volumes(Box::new(scenario.simulation(self.seed)?))
            }
            Body::Volumes(_) => {
                return Err(ConfigError::new("run.fork: not allowed for a volume, whose run uses the seed itself"));
            }
        })
    }

    /// Drops parts that a run with this number of power losses and kills cannot reach.
    pub(crate) fn trim(&mut self, losses: u64) {
        if let Body::Files(scenario) = &mut self.body {
            scenario.trim(losses);
        }
    }

    /// The scenario as stored in a file.
    pub(crate) fn to_text(&self) -> ScenarioText {
        let run = Some(RunText { seed: self.seed.to_string(), fork: self.fork.clone() });
        match self.body.clone() {
            Body::Drive(scenario) => ScenarioText { run, drive: Some(*scenario), ..ScenarioText::default() },
            Body::Network(scenario) => ScenarioText { run, network: Some(*scenario), ..ScenarioText::default() },
            Body::Files(scenario) => ScenarioText { run, files: Some(*scenario), ..ScenarioText::default() },
            Body::Volumes(scenario) => ScenarioText { run, volumes: Some(*scenario), ..ScenarioText::default() },
            Body::Images(scenario) => ScenarioText { run, images: Some(*scenario), ..ScenarioText::default() },
            Body::Elastic(scenario) => ScenarioText { run, elastic: Some(*scenario), ..ScenarioText::default() },
            Body::Groups(scenario) => ScenarioText { run, groups: Some(*scenario), ..ScenarioText::default() },
        }
    }

    /// Parses and validates a scenario.
    ///
    /// # Errors
    /// A missing or superfluous table, or an error of [`Scenario::simulation`].
    pub(crate) fn of_text(text: ScenarioText) -> Result<Scenario, ConfigError> {
        let run = text.run.ok_or_else(|| ConfigError::new("missing table [run], which has the seed of the run"))?;
        let seed = run
            .seed
            .parse()
            .map_err(|_| ConfigError::new(format!("run.seed = \"{}\" is not an unsigned 64-bit integer", run.seed)))?;
        let bodies = [
            text.drive.map(|scenario| Body::Drive(Box::new(scenario))),
            text.network.map(|scenario| Body::Network(Box::new(scenario))),
            text.files.map(|scenario| Body::Files(Box::new(scenario))),
            text.volumes.map(|scenario| Body::Volumes(Box::new(scenario))),
            text.images.map(|scenario| Body::Images(Box::new(scenario))),
            text.elastic.map(|scenario| Body::Elastic(Box::new(scenario))),
            text.groups.map(|scenario| Body::Groups(Box::new(scenario))),
        ];
        let mut bodies = bodies.into_iter().flatten();
        let (Some(body), None) = (bodies.next(), bodies.next()) else {
            let message = "an entry must have exactly one of the tables [drive], [network], [files], [volumes], \
                           [images], [elastic] and [groups]";
            return Err(ConfigError::new(message));
        };
        let scenario = Scenario { seed, fork: run.fork, body };
        scenario.simulation()?;
        Ok(scenario)
    }
}

/// Parses a drive's profile.
fn profile(name: &str, text: &str) -> Result<Profile, ConfigError> {
    Profile::parse(text).map_err(|error| ConfigError::new(format!("{name}: {}", error.message)))
}

/// Checks that a number is not zero.
pub(crate) fn at_least_one(name: &str, number: u64) -> Result<(), ConfigError> {
    if number == 0 { Err(ConfigError::new(format!("{name} must be at least 1"))) } else { Ok(()) }
}

/// Checks an optional mean number of events.
fn every(name: &str, every: Option<u64>) -> Result<(), ConfigError> {
    every.map_or(Ok(()), |every| at_least_one(name, every))
}

#[cfg(test)]
mod tests;
