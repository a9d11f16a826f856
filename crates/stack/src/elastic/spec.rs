//! The table `[elastic]` of a file.

use serde::Deserialize;
use zonda_config::{ConfigError, Spanned};
use zonda_elastic::limits::NAMESPACES_MAX;
use zonda_elastic::{NamespaceConfig, PoolOptions};
use zonda_workload::NamedNamespace;

use super::{PoolPlan, geometries};
use crate::Drive;
use crate::layer::Layer;

/// The table `[elastic]` of a file: a pool on the drive of `[drive]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ElasticSpec {
    /// Physical zones of a v-zone, a power of two. Default by drive.
    pub zones_per_vzone: Option<Spanned<u32>>,
    /// Active zones that suffice for the drive's write bandwidth. Default half of the drive's.
    pub essential_zones: Option<Spanned<u32>>,
    /// The widest stripe group, a power of two. Default by drive.
    pub width_max: Option<Spanned<u32>>,
    /// The namespaces.
    #[serde(default)]
    pub namespace: Vec<Spanned<ElasticNamespaceSpec>>,
}

/// A table `[[elastic.namespace]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ElasticNamespaceSpec {
    /// Its name, by which jobs choose it.
    pub name: Spanned<String>,
    /// Number of v-zones.
    pub zones: Spanned<u32>,
    /// Active v-zones.
    pub active: Spanned<u32>,
    /// Its part of the drive's active zones. Default 1.
    pub weight: Option<Spanned<u32>>,
}

impl ElasticSpec {
    /// Validates the table against the drive.
    ///
    /// # Errors
    /// The first error.
    pub(crate) fn check(place: &Spanned<ElasticSpec>, drive: &Drive) -> Result<PoolPlan, ConfigError> {
        let spec = place.get_ref();
        if spec.namespace.is_empty() {
            let help = "add a table [[elastic.namespace]] with name = \"a\", zones = 8 and active = 4";
            return Err(ConfigError::at(place, "the pool has no namespace").help(help));
        }
        if let Some(excess) = spec.namespace.get(NAMESPACES_MAX) {
            let error = ConfigError::at(excess, format!("{} namespaces are too many", spec.namespace.len()));
            return Err(error.help(format!("at most {NAMESPACES_MAX} are allowed")));
        }
        if drive.node.layers().any(|layer| matches!(layer, Layer::Fault(_))) {
            let error = ConfigError::at(place, "a pool cannot be created over a fault layer");
            return Err(error.help("remove the layer of kind = \"fault\", or [elastic]"));
        }
        let value = |key: &Option<Spanned<u32>>| key.as_ref().map(|value| *value.get_ref());
        let options = PoolOptions {
            zones_per_vzone: value(&spec.zones_per_vzone),
            essential_zones: value(&spec.essential_zones),
            width_max: value(&spec.width_max),
        };
        let configs: Vec<NamespaceConfig> =
            spec.namespace.iter().enumerate().map(|(index, namespace)| namespace.get_ref().config(index)).collect();
        let geometries = geometries(drive.geometry(), options, &configs).map_err(|(index, why)| match index {
            None => ConfigError::at(place, format!("the drive cannot have this pool: {why}")),
            Some(index) => {
                let namespace = &spec.namespace[index];
                let name = namespace.get_ref().name.get_ref();
                ConfigError::at(namespace, format!("the namespace \"{name}\" cannot be created: {why}"))
            }
        })?;
        let named = configs.iter().zip(geometries);
        let namespaces =
            named.map(|(config, geometry)| NamedNamespace { name: config.name.clone(), geometry }).collect();
        Ok(PoolPlan { options, configs, namespaces, used: None })
    }
}

impl ElasticNamespaceSpec {
    fn config(&self, index: usize) -> NamespaceConfig {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&(index as u64 + 1).to_be_bytes());
        let mut config = NamespaceConfig::new(self.name.get_ref(), uuid, *self.zones.get_ref(), *self.active.get_ref());
        config.weight = self.weight.as_ref().map_or(1, |weight| *weight.get_ref());
        config
    }
}
