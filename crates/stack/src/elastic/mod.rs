//! `[elastic]`: a pool on the drive, whose namespaces the jobs choose by their names.

mod joined;
mod spec;
mod summary;

use zonda_elastic::{AdminError, ElasticDevice, Goal, NamespaceConfig, Pool, PoolId, PoolOptions, StartError};
use zonda_layers::Null;
use zonda_workload::NamedNamespace;
use zonda_zoned::{CompletionQueue, Geometry, Instant, LiveClock, NamespaceId, PayloadKind, ZonedDevice};

use crate::Stack;
pub(crate) use joined::Joined;
pub use spec::{ElasticNamespaceSpec, ElasticSpec};
pub use summary::{ActiveZones, ElasticNamespace, ElasticSample, ElasticSummary, GroupCount};

/// The identity of the pool: nothing depends on it, because a run creates its pool.
const POOL: PoolId = PoolId([9; 16]);

/// A pool to create, checked against the drive.
#[derive(Clone, Debug)]
pub(crate) struct PoolPlan {
    options: PoolOptions,
    configs: Vec<NamespaceConfig>,
    /// The namespaces as jobs see them, in the order of `configs`.
    pub(crate) namespaces: Vec<NamedNamespace>,
    /// The only namespace that the load uses, by its index; all of them otherwise.
    pub(crate) used: Option<usize>,
}

impl PoolPlan {
    /// Creates the pool on a drive, in virtual time from zero. Schedulers of the drive divide its time
    /// by the weights of the namespaces. Returns the time at which all namespaces exist.
    pub(crate) fn create<D: ZonedDevice>(&self, drive: Stack<D>, keeps: PayloadKind) -> (Joined<Stack<D>>, Instant) {
        let started = start(drive, self.options, keeps);
        let (mut pool, mut now) = started.expect("the pool was created on this geometry when the file was parsed");
        let mut ids = Vec::new();
        for config in &self.configs {
            let id = create_namespace(&mut pool, &mut now, config);
            ids.push(id.expect("the namespace was created on this geometry when the file was parsed"));
        }
        let weights = pool.pool().expect("a pool with namespaces is open").weights();
        weights.into_iter().for_each(|(tenant, weight)| pool.drive_mut().set_weight(tenant, weight));
        let (parts, geometry) = match self.used {
            Some(used) => (vec![ids[used]], self.namespaces[used].geometry.clone()),
            None => (ids.clone(), NamedNamespace::joined(&self.namespaces)),
        };
        (Joined::new(pool, ids, &parts, geometry), now)
    }
}

/// A new pool, once its epoch is recorded.
fn start<D: ZonedDevice>(
    drive: D,
    options: PoolOptions,
    keeps: PayloadKind,
) -> Result<(ElasticDevice<D>, Instant), StartError> {
    let mut pool = ElasticDevice::new(drive, Goal::Create { id: POOL, options }, keeps);
    let is_over = |pool: &ElasticDevice<D>| pool.error().is_some() || pool.pool().is_some_and(Pool::is_started);
    let mut now = Instant::ZERO;
    advance_until(&mut pool, &mut now, is_over);
    match pool.error() {
        Some(error) => Err(error.clone()),
        None => Ok((pool, now)),
    }
}

/// Creates a namespace, and waits until hosts see it.
fn create_namespace<D: ZonedDevice>(
    pool: &mut ElasticDevice<D>,
    now: &mut Instant,
    config: &NamespaceConfig,
) -> Result<NamespaceId, AdminError> {
    let id = pool.create_namespace(*now, config)?;
    advance_until(pool, now, |pool| pool.namespaces().geometry(id).is_some());
    Ok(id)
}

fn advance_until<D: ZonedDevice>(
    pool: &mut ElasticDevice<D>,
    now: &mut Instant,
    is_over: impl Fn(&ElasticDevice<D>) -> bool,
) {
    let mut completions = CompletionQueue::new();
    loop {
        pool.poll(*now, &mut completions);
        if is_over(pool) {
            return;
        }
        *now = pool.next_timeout().expect("a pool that waits for its drive has commands in flight").max(*now);
    }
}

/// The geometries of the namespaces of a pool on a drive of this geometry.
///
/// # Errors
/// Why there can be no such pool, or the index of a namespace and why the pool cannot have it.
fn geometries(
    drive: &Geometry,
    options: PoolOptions,
    configs: &[NamespaceConfig],
) -> Result<Vec<Geometry>, (Option<usize>, String)> {
    let started = start(Null::new(drive.clone()), options, PayloadKind::None);
    let (mut pool, mut now) = started.map_err(|error| (None, error.to_string()))?;
    let created = configs.iter().enumerate().map(|(index, config)| {
        let created = create_namespace(&mut pool, &mut now, config);
        created.map_err(|error| (Some(index), error.to_string()))
    });
    let ids = created.collect::<Result<Vec<NamespaceId>, _>>()?;
    Ok(ids.into_iter().map(|id| pool.geometry(id).clone()).collect())
}

/// A clock that jumps to the next event.
pub(crate) struct VirtualClock(pub(crate) Instant);

impl LiveClock for VirtualClock {
    fn now(&mut self) -> Instant {
        self.0
    }

    fn wait(&mut self, until: Option<Instant>) {
        self.0 = self.0.max(until.expect("a device with commands in flight has a next event"));
    }
}
