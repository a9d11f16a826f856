//! Pool scenarios: tenants on namespaces that come, grow and go, on a drive whose commands fail, that
//! loses power and its cache, and a program that is killed.
//!
//! [`zonda_elastic`] is the pool; below it are a scheduler or none, and the drive model, or an image in
//! files on a disk that fills up. Each tenant
//! knows what it has written ([`zonda_elastic::testing::TenantZone`]), and accepts no other data.

mod check;
mod describe;
mod drive;
mod host;
mod lives;
mod look;
mod media;
mod run;
mod simulation;

pub(crate) use describe::describe;
pub(crate) use run::ElasticRun;
pub(crate) use simulation::{DriveFaults, ElasticEvents, ElasticLoad, ElasticSimulation, FORK, PoolPlan, TenantMix};
pub(crate) use zonda_elastic::testing::SeededBug as ElasticBug;
