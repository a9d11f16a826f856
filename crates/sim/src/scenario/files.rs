//! Clients of a file store on a drive.

use serde::{Deserialize, Serialize};
use zonda_config::ConfigError;
use zonda_files::testing::Mix;
use zonda_files::{FileStore, FilesConfig, Migration};
use zonda_zoned::{Geometry, PayloadKind, Prng};

use super::parts::{Fault, LayerText, PayloadKindDef};
use crate::files::{ClientLoad, FilesSimulation, UUID};

/// A power loss or process kill is followed by at most two failed mounts and a successful one.
const MOUNTS_OF_A_LOSS: u64 = 3;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilesScenario {
    flushes: bool,
    queue_depth: usize,
    /// In events, as the three fields below.
    power_loss_every: Option<u64>,
    death_every: Option<u64>,
    degradation_every: Option<u64>,
    check_every: u64,
    /// The drive's profile.
    profile: String,
    load: ClientLoad,
    config: Config,
    /// The configuration of each mount, reused cyclically; if empty, every mount uses that of the
    /// format.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<Config>,
    /// Layers below the fault layer, the lowest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    layers: Vec<LayerText>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    faults: Vec<Fault>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Mix", deny_unknown_fields)]
pub(crate) struct MixDef {
    names: Vec<String>,
    append_bytes_max: u64,
    #[serde(with = "weights")]
    weights: [u64; Mix::KINDS.len()],
}

mod weights {
    use serde::{Deserializer, Serializer};

    use super::Mix;
    use crate::scenario::parts::{weights_from, weights_to};

    pub(super) fn serialize<S: Serializer>(weights: &[u64; 7], to: S) -> Result<S::Ok, S::Error> {
        weights_to(Mix::KINDS, weights, to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u64; 7], D::Error> {
        weights_from(Mix::KINDS, from)
    }
}

/// The configuration of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Config(#[serde(with = "FilesConfigDef")] FilesConfig);

#[derive(Serialize, Deserialize)]
#[serde(remote = "FilesConfig", deny_unknown_fields)]
struct FilesConfigDef {
    #[serde(rename = "payload", with = "PayloadKindDef")]
    keeps: PayloadKind,
    finish_threshold_percent: u8,
    write_unit_bytes: u32,
    file_buffer_bytes: u32,
    read_unit_bytes: u32,
    #[serde(default, with = "migration", skip_serializing_if = "Option::is_none")]
    migration: Option<Migration>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Migration", deny_unknown_fields)]
struct MigrationDef {
    start_empty_zones_percent: u8,
    garbage_percent: u8,
}

mod migration {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Migration, MigrationDef};

    #[derive(Serialize, Deserialize)]
    struct Item(#[serde(with = "MigrationDef")] Migration);

    pub(super) fn serialize<S: Serializer>(migration: &Option<Migration>, to: S) -> Result<S::Ok, S::Error> {
        migration.map(Item).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Migration>, D::Error> {
        Ok(Option::<Item>::deserialize(from)?.map(|item| item.0))
    }
}

impl FilesScenario {
    pub(super) fn of(simulation: &FilesSimulation) -> FilesScenario {
        FilesScenario {
            flushes: simulation.flushes,
            queue_depth: simulation.queue_depth,
            power_loss_every: simulation.power_loss_every,
            death_every: simulation.death_every,
            degradation_every: simulation.degradation_every,
            check_every: simulation.check_every,
            profile: simulation.profile_text.clone(),
            load: simulation.load.clone(),
            config: Config(simulation.config),
            mounts: simulation.mounts.iter().copied().map(Config).collect(),
            layers: simulation.layers.iter().map(LayerText::of).collect(),
            faults: simulation.faults.iter().cloned().map(Fault).collect(),
        }
    }

    pub(super) fn simulation(&self, root: Prng) -> Result<FilesSimulation, ConfigError> {
        let profile = super::profile("files.profile", &self.profile)?;
        let geometry = profile.geometry();
        suits("files.config", &geometry, self.config)?;
        for (place, config) in self.mounts.iter().enumerate() {
            suits(&format!("files.mounts[{place}]"), &geometry, *config)?;
        }
        let at_least_one = [
            ("files.check_every", self.check_every),
            ("files.queue_depth", self.queue_depth as u64),
            ("files.load.clients", self.load.clients as u64),
            ("files.load.mix.names", self.load.mix.names.len() as u64),
        ];
        for (name, number) in at_least_one {
            super::at_least_one(name, number)?;
        }
        super::every("files.power_loss_every", self.power_loss_every)?;
        super::every("files.death_every", self.death_every)?;
        super::every("files.degradation_every", self.degradation_every)?;
        Ok(FilesSimulation {
            root,
            profile_text: self.profile.clone(),
            profile: Box::new(profile),
            geometry,
            layers: self.layers.iter().map(LayerText::layer).collect(),
            faults: self.faults.iter().map(|fault| fault.0.clone()).collect(),
            config: self.config.0,
            mounts: self.mounts.iter().map(|config| config.0).collect(),
            flushes: self.flushes,
            queue_depth: self.queue_depth,
            load: self.load.clone(),
            power_loss_every: self.power_loss_every,
            death_every: self.death_every,
            degradation_every: self.degradation_every,
            check_every: self.check_every,
        })
    }

    /// Drops configurations of mounts that a run with this number of power losses and kills cannot
    /// reach.
    pub(super) fn trim(&mut self, losses: u64) {
        let reached = losses.saturating_mul(MOUNTS_OF_A_LOSS).max(1);
        self.mounts.truncate(usize::try_from(reached).unwrap_or(usize::MAX));
    }
}

fn suits(name: &str, geometry: &Geometry, config: Config) -> Result<(), ConfigError> {
    let store = FileStore::format(geometry, config.0, UUID);
    store.map(|_| ()).map_err(|error| ConfigError::new(format!("{name}: {error}")))
}
