//! The rounds: load, kill, restart, verify everything, continue.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use zonda_zoned::{Blocks, Geometry, Prng};

use crate::host::{self, Errors, Host, Tally};
use crate::images::{HOSTS, Images, PLAIN_BLOCKS, Shape, ZONE_BLOCKS, ZONES};
use crate::load::{PlainLoad, ZoneLoad};
use crate::loss::{Loss, RunError};
use crate::oracle::{PlainHistory, ZoneHistory};
use crate::server::{Launcher, Server};
use crate::stamp::Stamper;
use crate::verify;

/// The maximum of outstanding commands of one host.
const QUEUE_DEPTH_MAX: u64 = 32;
/// The latest time of a kill after the start of a load.
const LOAD_MS_MAX: u64 = 400;
/// The latest time of a kill after the start of a server.
const START_MS_MAX: u64 = 60;
/// Every n-th round the image is checked while no server uses it, and a load is ended with SIGTERM.
const CHECK_EVERY: u32 = 10;

/// The summary of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Successful rounds.
    pub rounds: u32,
    /// Servers killed under load.
    pub kills: u32,
    /// Servers killed while they started.
    pub kills_at_start: u32,
    /// Servers stopped with SIGTERM.
    pub stops: u32,
    /// Images checked and found undamaged.
    pub checks: u32,
    /// The servers' event loop.
    pub backend: String,
    /// Commands of hosts.
    pub tally: Tally,
}

/// How a load ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Kill,
    Stop,
}

/// One run.
pub struct Run {
    launcher: Launcher,
    images: Images,
    geometry: Geometry,
    prng: Prng,
    zone_stamper: Stamper,
    plain_stamper: Stamper,
    zones: Vec<ZoneHistory>,
    plain: PlainHistory,
    summary: Summary,
}

impl Run {
    /// Creates the images in the directory of the launcher.
    ///
    /// # Errors
    /// When that fails.
    pub fn new(launcher: Launcher, seed: u64) -> Result<Run, RunError> {
        let images = Images::create(&launcher)?;
        let geometry = Geometry {
            block_size_bytes: crate::stamp::BLOCK_BYTES as u32,
            zone_size_blocks: Blocks(ZONE_BLOCKS),
            zone_capacity_blocks: Blocks(ZONE_BLOCKS),
            zone_count: ZONES,
            ..Geometry::tiny()
        };
        Ok(Run {
            launcher,
            images,
            geometry,
            prng: Prng::new(seed),
            zone_stamper: Stamper::new(seed, "zoned"),
            plain_stamper: Stamper::new(seed, "plain"),
            zones: vec![ZoneHistory::new(ZONE_BLOCKS); ZONES as usize],
            plain: PlainHistory::new(PLAIN_BLOCKS),
            summary: Summary::default(),
        })
    }

    /// The summary so far.
    #[must_use]
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Runs one round; passes a line about it to `print`.
    ///
    /// # Errors
    /// The losses, or why the round failed. The run cannot continue then.
    pub fn round(&mut self, round: u32, print: &mut dyn FnMut(&str)) -> Result<(), RunError> {
        let shape = if round % 3 == 2 { Shape::Both } else { Shape::Zoned };
        // From the round before: whether it was stopped cleanly, and its shape.
        let server = self.start(shape)?;
        if round > 0 && !server.all_clean() {
            return Err(unclean_start(&server));
        }
        let mut prng = self.prng.fork(&format!("round/{round}"));
        let before = self.summary.tally;
        let load_ms = self.load(server, shape, Ending::Kill, 2 * round, &mut prng)?;
        if (round + 1).is_multiple_of(CHECK_EVERY) {
            self.check(shape)?;
        }
        if prng.chance(1, 4) {
            let after = Duration::from_millis(prng.below(START_MS_MAX));
            self.launcher.start_and_kill(&self.images.arguments(shape), after)?;
            self.summary.kills_at_start += 1;
        }
        let mut server = self.start(shape)?;
        let found = server.namespaces().collect::<Vec<_>>().join("; ");
        self.verify(shape)?;
        if (round + 1).is_multiple_of(CHECK_EVERY) {
            self.load(server, shape, Ending::Stop, 2 * round + 1, &mut prng)?;
            server = self.start(shape)?;
            if !server.all_clean() {
                return Err(unclean_start(&server));
            }
            self.verify(shape)?;
        }
        self.stop(server)?;
        self.summary.rounds += 1;
        let tally = self.summary.tally;
        let (writes, in_flight) = (tally.writes - before.writes, tally.in_flight - before.in_flight);
        print(&format!(
            "round {round}: {load_ms} ms, {writes} writes acknowledged, {in_flight} commands in flight; {found}"
        ));
        Ok(())
    }

    fn start(&mut self, shape: Shape) -> Result<Server, RunError> {
        let server = self.launcher.start(&self.images.arguments(shape))?;
        server.backend().clone_into(&mut self.summary.backend);
        Ok(server)
    }

    fn stop(&mut self, server: Server) -> Result<(), RunError> {
        stop(server)?;
        self.summary.stops += 1;
        Ok(())
    }

    /// Loads the server until it ends; returns the duration in milliseconds.
    fn load(
        &mut self,
        server: Server,
        shape: Shape,
        ending: Ending,
        number: u32,
        prng: &mut Prng,
    ) -> Result<u64, RunError> {
        let bound = if prng.chance(1, 3) { LOAD_MS_MAX / 10 } else { LOAD_MS_MAX };
        let load_ms = prng.below(bound);
        // With a conventional namespace one host fewer has zones, and its zones must not change.
        let owners: Vec<u32> = (0..HOSTS).filter(|&host| shape == Shape::Zoned || host != number / 2 % HOSTS).collect();
        let depths: Vec<usize> = (0..=HOSTS).map(|_| 1 + prng.below(QUEUE_DEPTH_MAX) as usize).collect();
        let mut zone_loads: Vec<ZoneLoad> =
            owners.iter().map(|&host| self.zone_load(host, owners.len(), number, prng)).collect();
        let mut plain_load = (shape == Shape::Both).then(|| {
            let history = std::mem::replace(&mut self.plain, PlainHistory::new(0));
            PlainLoad::new(history, &self.plain_stamper, prng.fork("host/plain"), (number, HOSTS))
        });
        let (zoned_url, plain_url) = (self.images.zoned_url(shape), self.images.plain_url());
        let mut hosts: Vec<Host<'_>> = Vec::new();
        for (load, &queue_depth) in zone_loads.iter_mut().zip(&depths) {
            hosts.push(Host {
                url: &zoned_url,
                queue_depth,
                stamper: &self.zone_stamper,
                load,
                errors: Errors::Never,
                pace: None,
            });
        }
        if let Some(load) = &mut plain_load {
            let queue_depth = depths[HOSTS as usize];
            hosts.push(Host {
                url: &plain_url,
                queue_depth,
                stamper: &self.plain_stamper,
                load,
                errors: Errors::Never,
                pace: None,
            });
        }
        let end = || match ending {
            Ending::Kill => server.kill(),
            Ending::Stop => stop(server),
        };
        self.summary.tally += host::run_all(hosts, || sleep(load_ms), end)?;
        match ending {
            Ending::Kill => self.summary.kills += 1,
            Ending::Stop => self.summary.stops += 1,
        }
        for load in zone_loads {
            for (zone, history) in load.zones {
                self.zones[zone as usize] = history;
            }
        }
        if let Some(load) = plain_load {
            self.plain = load.history;
        }
        Ok(load_ms)
    }

    /// A host has every third zone, and its share of the unused active zones.
    fn zone_load(&self, host: u32, hosts: usize, number: u32, prng: &Prng) -> ZoneLoad {
        let is_active = |history: &&ZoneHistory| history.pointer() > 0 && !history.is_full();
        let spare = self.images.active_max() - self.zones.iter().filter(is_active).count();
        let zones: BTreeMap<u32, ZoneHistory> = (0..)
            .zip(&self.zones)
            .filter(|(zone, _)| zone % HOSTS == host)
            .map(|(zone, history)| (zone, history.clone()))
            .collect();
        let prng = prng.fork(&format!("host/{host}"));
        ZoneLoad::new(&self.geometry, zones, spare / hosts, &self.zone_stamper, prng, (number, host))
    }

    fn verify(&mut self, shape: Shape) -> Result<(), RunError> {
        verify::zones(&self.images.zoned_url(shape), &self.zone_stamper, &mut self.zones)?;
        if shape == Shape::Both {
            verify::plain(&self.images.plain_url(), &self.plain_stamper, &mut self.plain)?;
        }
        Ok(())
    }

    /// Runs `zonda drive check` after a kill, before the image is recovered.
    fn check(&mut self, shape: Shape) -> Result<(), RunError> {
        for image in self.images.names(shape) {
            let words = self.launcher.run(&["drive", "check", "--quiet", image]);
            match words {
                Ok(words) if words.contains("no damage") => self.summary.checks += 1,
                Ok(words) => return Err(RunError::lost(Loss::new(format!("drive check {image}"), "no damage", words))),
                Err(RunError::Failed(words)) => {
                    return Err(RunError::lost(Loss::new(format!("drive check {image}"), "no damage", words)));
                }
                Err(lost) => return Err(lost),
            }
        }
        Ok(())
    }
}

fn sleep(ms: u64) -> Result<(), RunError> {
    std::thread::sleep(Duration::from_millis(ms));
    Ok(())
}

fn stop(server: Server) -> Result<(), RunError> {
    let status = server.stop()?;
    if status.success() {
        return Ok(());
    }
    Err(RunError::Failed(format!("the server failed to stop: {status}")))
}

fn unclean_start(server: &Server) -> RunError {
    let found: Vec<&str> = server.namespaces().collect();
    RunError::lost(Loss::new("start after a stop with SIGTERM", "nothing to recover", found.join("; ")))
}
