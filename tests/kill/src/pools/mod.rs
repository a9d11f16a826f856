//! Rounds of kills of a server of a pool: two tenants and their guests, each with a subsystem and a
//! host of its own (docs/guide/pools.md).
//!
//! One tenant at a time writes alone, so that it overdrives; another one wakes, so that spares are
//! recalled; one pauses, so that the spares in its groups are reclaimed. Meanwhile an operator
//! creates, resizes and deletes namespaces. The server is killed in the middle, and some of its
//! successors while they mount the pool. Then every block of every namespace is read: all
//! acknowledged commands have taken effect, no namespace shows blocks of another one, and the pool
//! has the namespaces that it must have, and no others.

mod change;
mod course;
mod site;
mod tenant;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use zonda_zoned::Prng;

use crate::host::{self, Errors, Host, Tally, connect};
use crate::load::ZoneLoad;
use crate::loss::{Loss, RunError};
use crate::pace::Pace;
use crate::server::{Launcher, Server};
use change::{Change, Sizes, reconcile};
use course::{Aim, Course, Operator, Paces};
use site::{Kind, Site};
use tenant::{Owners, Tenant};

/// Those that exist for the whole run.
const TENANTS: [&str; 2] = ["a", "b"];
/// Those that are created and deleted.
const GUESTS: [&str; 3] = ["c", "d", "e"];
const QUEUE_DEPTH_MAX: u64 = 32;
/// The latest time of a kill after the start of a server.
const START_MS_MAX: u64 = 60;
/// Every n-th round the image is checked while no server uses it.
const CHECK_EVERY: u32 = 10;

/// The summary of a run of pools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolsSummary {
    /// Successful rounds, each with a kill under load.
    pub rounds: u32,
    /// What kills have interrupted, by kind, as the pool reported it last before: a kill may
    /// interrupt several things.
    pub interrupted: BTreeMap<&'static str, u32>,
    /// Kills that have interrupted nothing but hosts.
    pub plain_kills: u32,
    /// Servers killed while they started.
    pub kills_at_start: u32,
    /// Servers killed after everything was verified, without hosts.
    pub idle_kills: u32,
    /// Servers stopped with SIGTERM.
    pub stops: u32,
    /// Changes of namespaces that were answered, by kind.
    pub changes: BTreeMap<&'static str, u32>,
    /// Interrupted changes that had happened.
    pub changes_found: u32,
    /// Images checked and found undamaged.
    pub checks: u32,
    /// Rounds in which the file system below the drive was full.
    pub full: u32,
    /// Why there are none.
    pub skipped: Option<String>,
    /// Blocks whose contents were checked after a start.
    pub blocks_verified: u64,
    /// Commands of hosts.
    pub tally: Tally,
}

/// One run.
pub struct PoolsRun {
    launcher: Launcher,
    site: Site,
    seed: u64,
    prng: Prng,
    /// Zones of the namespaces that the pool must have.
    sizes: Sizes,
    tenants: BTreeMap<String, Tenant>,
    owners: Owners,
    /// How many namespaces have had a name.
    generations: BTreeMap<String, u32>,
    summary: PoolsSummary,
}

impl PoolsRun {
    /// Creates the pool in the directory of the launcher.
    ///
    /// # Errors
    /// When that fails.
    pub fn new(launcher: Launcher, seed: u64) -> Result<PoolsRun, RunError> {
        let site = Site::create(&launcher)?;
        let mut sizes = Sizes::new();
        for name in TENANTS {
            let arguments = Kind::Tenant.creation(name);
            launcher.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
            sizes.insert(name.to_owned(), Kind::Tenant.zones());
        }
        let skipped = site.skipped().map(str::to_owned);
        let mut run = PoolsRun {
            launcher,
            site,
            seed,
            prng: Prng::new(seed).fork("pools"),
            sizes,
            tenants: BTreeMap::new(),
            owners: Owners::default(),
            generations: BTreeMap::new(),
            summary: PoolsSummary { skipped, ..PoolsSummary::default() },
        };
        run.find_namespaces(None)?;
        Ok(run)
    }

    /// The summary so far.
    #[must_use]
    pub fn summary(&self) -> &PoolsSummary {
        &self.summary
    }

    /// Runs one round; passes a line about it to `print`.
    ///
    /// # Errors
    /// The losses, or why the round failed. The run cannot continue then.
    pub fn round(&mut self, round: u32, print: &mut dyn FnMut(&str)) -> Result<(), RunError> {
        let mut prng = self.prng.fork(&format!("round/{round}"));
        let mut log = Vec::new();
        let result = self.attack(round, &mut prng, &mut log);
        print(&format!("round {round}: {}", log.join("; ")));
        if result.is_err()
            && let Some(space) = self.site.space()
        {
            space.keep();
        }
        result?;
        self.summary.rounds += 1;
        Ok(())
    }

    fn attack(&mut self, round: u32, prng: &mut Prng, log: &mut Vec<String>) -> Result<(), RunError> {
        let aim = Aim::random(prng, self.site.space().is_some());
        let writes = self.summary.tally.writes;
        let unanswered = self.load(aim, round, prng, log)?;
        log.push(format!("{} writes acknowledged", self.summary.tally.writes - writes));
        if (round + 1).is_multiple_of(CHECK_EVERY) {
            if let Some(damage) = self.site.damage() {
                return Err(RunError::lost(Loss::new("image of the pool's drive", "no damage", damage)));
            }
            self.summary.checks += 1;
        }
        // Which of the others exist is not known before the pool was mounted.
        while prng.chance(1, 3) {
            let arguments = self.site.export(TENANTS.into_iter())?;
            self.launcher.start_and_kill(&arguments, Duration::from_millis(prng.below(START_MS_MAX)))?;
            self.summary.kills_at_start += 1;
            log.push("killed while starting".to_owned());
        }
        // Without space, all that was acknowledged can be read.
        let is_freed = prng.chance(1, 2);
        if is_freed {
            self.site.free();
        }
        self.find_namespaces(unanswered.as_ref())?;
        let server = self.start(&TENANTS.into_iter().chain(GUESTS).collect::<Vec<_>>())?;
        for tenant in self.tenants.values_mut() {
            self.summary.blocks_verified += tenant.verify(&self.site.url(&tenant.name), &self.owners)?;
        }
        self.site.free();
        if prng.chance(1, 2) {
            self.summary.stops += 1;
            let status = server.stop()?;
            if !status.success() {
                return Err(RunError::Failed(format!("the server failed to stop: {status}")));
            }
        } else {
            self.summary.idle_kills += 1;
            server.kill()?;
        }
        Ok(())
    }

    /// Starts a server of those of these namespaces that exist.
    fn start(&self, names: &[&str]) -> Result<Server, RunError> {
        let existing = names.iter().copied().filter(|name| self.tenants.contains_key(*name));
        self.launcher.start_logging(&self.site.export(existing)?)
    }

    /// Loads the server until it is killed. Returns the change of namespaces that was not answered.
    fn load(
        &mut self,
        aim: Aim,
        number: u32,
        prng: &mut Prng,
        log: &mut Vec<String>,
    ) -> Result<Option<Change>, RunError> {
        // A namespace that is served cannot be deleted.
        let guests: &[&str] = if aim == Aim::Change { &[] } else { &GUESTS };
        let names: Vec<&str> = TENANTS.iter().chain(guests).copied().collect();
        let server = self.start(&names)?;
        let served: Vec<&Tenant> = names.iter().filter_map(|name| self.tenants.get(*name)).collect();
        let urls: Vec<String> = served.iter().map(|tenant| self.site.url(&tenant.name)).collect();
        let paces: Paces = served.iter().map(|tenant| (tenant.name.clone(), Pace::paused())).collect();
        let mut loads: Vec<ZoneLoad> = Vec::new();
        for ((host, tenant), url) in (0..).zip(&served).zip(&urls) {
            let connection = connect(url)?;
            let geometry = connection.geometry().clone();
            host::Channel::Nvme(Box::new(connection)).close();
            let load = tenant.load(&geometry, prng.fork(&format!("host/{}", tenant.name)), (number, host));
            loads.push(if aim == Aim::Fill { load.without_space() } else { load });
        }
        let hosts = served.iter().zip(&urls).zip(&mut loads).map(|((tenant, url), load)| Host {
            url,
            queue_depth: 1 + prng.below(QUEUE_DEPTH_MAX) as usize,
            stamper: &tenant.stamper,
            load,
            errors: if aim == Aim::Fill { Errors::ZoneSpace } else { Errors::Never },
            pace: Some(&paces[&tenant.name]),
        });
        let hosts = hosts.collect();
        let (sizes, changes) = (&mut self.sizes, std::mem::take(&mut self.summary.changes));
        let mut operator = Operator { sizes, guests: &GUESTS, renewed: Vec::new(), changes };
        let [first, second] = TENANTS;
        let roles = if prng.chance(1, 2) { (first, second) } else { (second, first) };
        let mut course = Course::new(&self.launcher, &self.site, &paces, prng);
        let mut interrupted = Vec::new();
        let during = || {
            course.run(aim, roles, &mut operator)?;
            interrupted = course.interrupted();
            Ok(())
        };
        let loaded = host::run_all(hosts, during, || server.kill());
        let unanswered = course.end(&mut operator)?;
        self.summary.changes = std::mem::take(&mut operator.changes);
        let renewed = operator.renewed;
        self.summary.tally += loaded?;
        let names: Vec<String> = served.iter().map(|tenant| tenant.name.clone()).collect();
        for (name, load) in names.into_iter().zip(loads) {
            self.tenants.get_mut(&name).expect("it was served").take(load);
        }
        for name in renewed {
            self.tenants.remove(&name);
        }
        log.push(format!("{aim:?}").to_lowercase());
        self.summary.full += u32::from(aim == Aim::Fill);
        if interrupted.is_empty() {
            self.summary.plain_kills += 1;
        } else {
            log.push(format!("interrupted: {}", interrupted.join(", ")));
        }
        for kind in interrupted {
            *self.summary.interrupted.entry(kind).or_default() += 1;
        }
        Ok(unanswered)
    }

    /// Compares the namespaces of the pool, which no server uses, with those that it must have, and
    /// continues with those that it has.
    fn find_namespaces(&mut self, unanswered: Option<&Change>) -> Result<(), RunError> {
        let found = self.site.list()?;
        let sizes = reconcile(&self.sizes, unanswered, &found)?;
        if unanswered.is_some() && sizes != self.sizes {
            self.summary.changes_found += 1;
        }
        self.sizes = sizes;
        self.tenants.retain(|name, _| self.sizes.contains_key(name));
        for report in &found {
            if let Some(tenant) = self.tenants.get_mut(&report.name) {
                tenant.resize(report.zones);
                continue;
            }
            let generation = self.generations.entry(report.name.clone()).or_default();
            let kind = if TENANTS.contains(&&*report.name) { Kind::Tenant } else { Kind::Guest };
            let tenant = Tenant::new(kind, self.seed, *generation, report);
            *generation += 1;
            self.owners.add(&tenant);
            self.tenants.insert(report.name.clone(), tenant);
        }
        Ok(())
    }
}
