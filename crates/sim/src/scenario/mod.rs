//! A scenario as data: everything that a seed generates before a run.
//!
//! An entry of the bugbase keeps its scenario, so that it replays without the generator: a change of the generator rewrites no
//! entry. What a run draws while it runs (which event is next, contents) comes from forks of [`Scenario::seed`], by label.
//!
//! Types of other crates are described for serde here (`parts`, and each kind beside it). A field that is added to one of them
//! needs a default here: the value with which entries that lack it were recorded.

mod drive;
mod files;
mod images;
mod network;
mod parts;
mod volumes;

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;
use zonda_ssd::profile::Profile;
use zonda_zoned::Prng;

use crate::options::{Options, WorldKind};
use crate::simulate::AnyWorld;
pub(crate) use drive::DriveScenario;
pub(crate) use files::{FilesScenario, MixDef};
pub(crate) use images::ImagesScenario;
pub(crate) use network::NetworkScenario;
pub(crate) use parts::{DurationDef, is_unlimited, operation_weights, unlimited};
pub(crate) use volumes::VolumesScenario;

/// Everything that a seed generates before a run, as an entry of the bugbase keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// What a run draws while it runs comes from this seed.
    seed: u64,
    /// The fork of the seed from which all of that comes; the seed itself if absent.
    fork: Option<String>,
    body: Body,
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Body {
    Drive(Box<DriveScenario>),
    Network(Box<NetworkScenario>),
    Files(Box<FilesScenario>),
    Volumes(Box<VolumesScenario>),
    Images(Box<ImagesScenario>),
}

/// A scenario as it stands in the file of an entry: one table for the randomness of the run, and one for what is simulated.
#[derive(Default, Serialize)]
pub(crate) struct ScenarioText {
    pub(crate) run: Option<RunText>,
    pub(crate) drive: Option<DriveScenario>,
    pub(crate) network: Option<NetworkScenario>,
    pub(crate) files: Option<FilesScenario>,
    pub(crate) volumes: Option<VolumesScenario>,
    pub(crate) images: Option<ImagesScenario>,
}

/// Where the randomness of a run comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunText {
    /// As text, because a TOML integer has one bit less.
    seed: String,
    fork: Option<String>,
}

impl Scenario {
    /// The scenario that a seed generates.
    #[must_use]
    pub fn generate(seed: u64, options: &Options) -> Scenario {
        let (fork, body) = match AnyWorld::new(seed, options) {
            AnyWorld::Drive(world) => (None, Body::Drive(Box::new(DriveScenario::of(&world)))),
            AnyWorld::Network(world) => {
                (Some(crate::network::FORK), Body::Network(Box::new(NetworkScenario::of(&world))))
            }
            AnyWorld::Files(world) => (Some(crate::files::FORK), Body::Files(Box::new(FilesScenario::of(&world)))),
            AnyWorld::Volumes(world) => (None, Body::Volumes(Box::new(VolumesScenario::of(&world)))),
            AnyWorld::Images(world) => (Some(crate::images::FORK), Body::Images(Box::new(ImagesScenario::of(&world)))),
        };
        Scenario { seed, fork: fork.map(str::to_owned), body }
    }

    /// What is simulated.
    #[must_use]
    pub fn kind(&self) -> WorldKind {
        match self.body {
            Body::Drive(_) => WorldKind::Drive,
            Body::Network(_) => WorldKind::Network,
            Body::Files(_) => WorldKind::Files,
            Body::Volumes(_) => WorldKind::Volumes,
            Body::Images(_) => WorldKind::Images,
        }
    }

    /// The scenario, ready to run.
    ///
    /// # Errors
    /// What in it cannot be: a profile with a mistake, parts that do not suit each other.
    pub(crate) fn world(&self) -> Result<AnyWorld, ConfigError> {
        let root = Prng::new(self.seed);
        let root = self.fork.as_ref().map_or(root.clone(), |label| root.fork(label));
        Ok(match &self.body {
            Body::Drive(scenario) => AnyWorld::Drive(Box::new(scenario.world(root)?)),
            Body::Network(scenario) => AnyWorld::Network(Box::new(scenario.world(root)?)),
            Body::Files(scenario) => AnyWorld::Files(Box::new(scenario.world(root)?)),
            Body::Images(scenario) => AnyWorld::Images(Box::new(scenario.world(root)?)),
            Body::Volumes(scenario) if self.fork.is_none() => AnyWorld::Volumes(Box::new(scenario.world(self.seed)?)),
            Body::Volumes(_) => {
                return Err(ConfigError::new("run.fork: the run of a volume draws from the seed itself"));
            }
        })
    }

    /// Leaves out what a run with so many losses of power and deaths cannot reach.
    pub(crate) fn trim(&mut self, losses: u64) {
        if let Body::Files(scenario) = &mut self.body {
            scenario.trim(losses);
        }
    }

    /// The scenario as it stands in a file.
    pub(crate) fn to_text(&self) -> ScenarioText {
        let run = Some(RunText { seed: self.seed.to_string(), fork: self.fork.clone() });
        match self.body.clone() {
            Body::Drive(scenario) => ScenarioText { run, drive: Some(*scenario), ..ScenarioText::default() },
            Body::Network(scenario) => ScenarioText { run, network: Some(*scenario), ..ScenarioText::default() },
            Body::Files(scenario) => ScenarioText { run, files: Some(*scenario), ..ScenarioText::default() },
            Body::Volumes(scenario) => ScenarioText { run, volumes: Some(*scenario), ..ScenarioText::default() },
            Body::Images(scenario) => ScenarioText { run, images: Some(*scenario), ..ScenarioText::default() },
        }
    }

    /// Reads a scenario back, and checks that it can run.
    ///
    /// # Errors
    /// A table that is missing or too many, or what [`Scenario::world`] refuses.
    pub(crate) fn of_text(text: ScenarioText) -> Result<Scenario, ConfigError> {
        let run = text
            .run
            .ok_or_else(|| ConfigError::new("missing table [run], which says where the randomness comes from"))?;
        let seed =
            run.seed.parse().map_err(|_| ConfigError::new(format!("run.seed = \"{}\" is not a number", run.seed)))?;
        let bodies = [
            text.drive.map(|scenario| Body::Drive(Box::new(scenario))),
            text.network.map(|scenario| Body::Network(Box::new(scenario))),
            text.files.map(|scenario| Body::Files(Box::new(scenario))),
            text.volumes.map(|scenario| Body::Volumes(Box::new(scenario))),
            text.images.map(|scenario| Body::Images(Box::new(scenario))),
        ];
        let mut bodies = bodies.into_iter().flatten();
        let (Some(body), None) = (bodies.next(), bodies.next()) else {
            let message = "an entry has exactly one of the tables [drive], [network], [files], [volumes] and [images]";
            return Err(ConfigError::new(message));
        };
        let scenario = Scenario { seed, fork: run.fork, body };
        scenario.world()?;
        Ok(scenario)
    }
}

/// A drive's profile.
fn profile(name: &str, text: &str) -> Result<Profile, ConfigError> {
    Profile::parse(text).map_err(|error| ConfigError::new(format!("{name}: {}", error.message)))
}

/// A number that nothing works without.
pub(crate) fn at_least_one(name: &str, number: u64) -> Result<(), ConfigError> {
    if number == 0 { Err(ConfigError::new(format!("{name} must be at least 1"))) } else { Ok(()) }
}

/// What happens about every so many events.
fn every(name: &str, every: Option<u64>) -> Result<(), ConfigError> {
    every.map_or(Ok(()), |every| at_least_one(name, every))
}

#[cfg(test)]
mod tests;
