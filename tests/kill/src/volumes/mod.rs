//! Rounds of faults of a served volume: reads never return zeros or older blocks, and within the
//! tolerance of the level no error (docs/internals/volumes.md).
//!
//! Members are degraded from a fault until a rebuild and a scrub have completed: a run tracks them
//! itself, and only checks with the volume whether it is rebuilt.

mod damage;
mod disk;
mod level;
mod link;
mod refusal;
mod remote;
mod status;

pub use level::Level;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use zonda_zoned::Prng;

use crate::host::{self, Errors, Host, Tally};
use crate::load::PlainLoad;
use crate::loss::{Loss, RunError};
use crate::oracle::{Floor, PlainHistory};
use crate::server::{Launcher, Server, free_port};
use crate::stamp::Stamper;
use crate::verify;
use disk::{Disk, VOLUME};
use remote::RemoteAttack;

const QUEUE_DEPTH_MAX: u64 = 32;
/// The latest time of a kill after the start of a load.
const LOAD_MS_MAX: u64 = 500;
/// The latest time of a kill after the start of a server.
const START_MS_MAX: u64 = 60;
/// The latest time of a kill after the start of a rebuild.
const REBUILD_MS_MAX: u64 = 150;

/// The summary of a run of volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VolumesSummary {
    /// Successful rounds.
    pub rounds: u32,
    /// Volumes created: a new one after each that could not be restarted, beyond the tolerance of
    /// its level.
    pub volumes: u32,
    /// Faults by kind.
    pub attacks: BTreeMap<&'static str, u32>,
    /// Why some faults are not possible here.
    pub skipped: Option<String>,
    /// Blocks whose contents were checked after a start.
    pub blocks_verified: u64,
    /// Blocks whose read failed, beyond the tolerance of the level.
    pub errors_allowed: u64,
    /// Starts refused beyond the tolerance of the level, by kind.
    pub refusals: BTreeMap<&'static str, u32>,
    /// Volumes that started after missing members returned.
    pub starts_after_return: u32,
    /// Repairs: rebuild and scrub.
    pub repairs: u32,
    /// Errors injected into completions of a remote member.
    pub errors_injected: u32,
    /// Commands of hosts.
    pub tally: Tally,
}

/// One run.
pub struct VolumesRun {
    launcher: Launcher,
    level: Level,
    port: u16,
    nbd_port: u16,
    /// The seed of the network to the last member, if it is remote.
    remote: Option<u64>,
    disk: Disk,
    prng: Prng,
    stamper: Stamper,
    history: PlainHistory,
    /// Members with damage that no rebuild or scrub has repaired since.
    degraded: BTreeSet<usize>,
    /// More members were degraded at once than the level tolerates.
    is_beyond: bool,
    /// The writes that must be present: damage may have destroyed acknowledged blocks that were not
    /// flushed.
    floor: Floor,
    summary: VolumesSummary,
}

impl VolumesRun {
    /// Creates a volume in the directory of the launcher.
    ///
    /// # Errors
    /// When that fails.
    pub fn new(launcher: Launcher, level: Level, seed: u64) -> Result<VolumesRun, RunError> {
        let remote = Prng::new(seed).fork("remote").chance(1, 2).then_some(seed);
        let disk = Disk::create(&launcher, level, remote)?;
        let blocks = status::volume_bytes(&launcher)? / crate::stamp::BLOCK_BYTES as u64;
        let skipped = disk.skipped().map(str::to_owned);
        Ok(VolumesRun {
            launcher,
            level,
            port: free_port()?,
            nbd_port: free_port()?,
            remote,
            disk,
            prng: Prng::new(seed).fork("volumes"),
            stamper: Stamper::new(seed, "volume"),
            history: PlainHistory::new(blocks),
            degraded: BTreeSet::new(),
            is_beyond: false,
            floor: Floor::Acknowledged,
            summary: VolumesSummary { volumes: 1, skipped, ..VolumesSummary::default() },
        })
    }

    /// The summary so far.
    #[must_use]
    pub fn summary(&self) -> &VolumesSummary {
        &self.summary
    }

    /// Runs one round; passes a line about it to `print`.
    ///
    /// # Errors
    /// The losses, or why the round failed. The run cannot continue then.
    pub fn round(&mut self, round: u32, print: &mut dyn FnMut(&str)) -> Result<(), RunError> {
        let mut prng = self.prng.fork(&format!("round/{round}"));
        let mut log = Vec::new();
        let result = self.attack_and_verify(round, &mut prng, &mut log);
        let state = if self.is_beyond { "beyond" } else { "within" };
        let degraded: Vec<String> = self.degraded.iter().map(ToString::to_string).collect();
        let degraded = if degraded.is_empty() { "none".to_owned() } else { degraded.join(", ") };
        print(&format!("round {round}: {} ({state} tolerance, degraded members: {degraded})", log.join("; ")));
        if result.is_err() {
            self.disk.keep();
        }
        result?;
        self.summary.rounds += 1;
        Ok(())
    }

    fn attack_and_verify(&mut self, round: u32, prng: &mut Prng, log: &mut Vec<String>) -> Result<(), RunError> {
        let Some(server) = self.start(log)? else { return self.renew(log) };
        self.load(server, round, prng, log)?;
        self.attack_files(prng, log)?;
        if prng.chance(1, 4) {
            self.launcher.start_and_kill(&self.arguments(), Duration::from_millis(prng.below(START_MS_MAX)))?;
            self.count("kill at start", log);
        }
        let Some(server) = self.start(log)? else { return self.renew(log) };
        self.verify(prng, log)?;
        if self.degraded.is_empty() || prng.chance(1, 2) {
            return server.kill();
        }
        self.repair(server, prng, log)
    }

    /// Starts the volume; `None` if it is refused permanently, beyond the tolerance of the level.
    fn start(&mut self, log: &mut Vec<String>) -> Result<Option<Server>, RunError> {
        let said = match self.launcher.start_or_refuse(&self.arguments())? {
            Ok(server) => return Ok(Some(server)),
            Err(said) => said,
        };
        self.check_refusal(&said, log)?;
        if self.disk.move_back()? == 0 {
            return Ok(None);
        }
        match self.launcher.start_or_refuse(&self.arguments())? {
            Ok(server) => {
                log.push("started after members returned".to_owned());
                self.summary.starts_after_return += 1;
                Ok(Some(server))
            }
            Err(said) => {
                self.check_refusal(&said, log)?;
                Ok(None)
            }
        }
    }

    /// A refusal must be documented, and is permitted only beyond the tolerance of the level.
    fn check_refusal(&mut self, said: &str, log: &mut Vec<String>) -> Result<(), RunError> {
        let missing: BTreeSet<usize> = self.degraded.union(self.disk.away()).copied().collect();
        if !self.is_beyond && self.level.tolerates(&missing) {
            return Err(RunError::lost(Loss::new("start within tolerance", "a volume that starts", said)));
        }
        let Some(kind) = refusal::kind(said) else {
            return Err(RunError::lost(Loss::new("start beyond tolerance", "a documented refusal", said)));
        };
        log.push(format!("refused: {kind}"));
        *self.summary.refusals.entry(kind).or_default() += 1;
        Ok(())
    }

    /// Loads the server, injects faults meanwhile, and kills it.
    fn load(&mut self, server: Server, round: u32, prng: &mut Prng, log: &mut Vec<String>) -> Result<(), RunError> {
        let url = self.url(prng);
        let bound = if prng.chance(1, 3) { LOAD_MS_MAX / 10 } else { LOAD_MS_MAX };
        let load_ms = prng.below(bound);
        let pause_ms = prng.chance(1, 4).then(|| prng.below(2_500));
        let queue_depth = 1 + prng.below(QUEUE_DEPTH_MAX) as usize;
        // The volume has failed members that were missing at the start.
        let degraded: BTreeSet<usize> = self.degraded.union(self.disk.away()).copied().collect();
        let victim = prng.below(self.level.members() as u64) as usize;
        let with_victim: BTreeSet<usize> = degraded.iter().copied().chain([victim]).collect();
        let fails = prng.chance(1, 4) && !degraded.contains(&victim) && self.level.tolerates(&with_victim);
        let replaced = fails && prng.chance(3, 4);
        let rebuild_ms = prng.below(REBUILD_MS_MAX);
        let image = if replaced { Some(self.disk.create_image(&self.launcher)?) } else { None };
        let wants_space = prng.chance(1, 6) && !fails && self.disk.space().is_some();
        let remote = self.random_remote_attack(prng, &degraded, fails.then_some(victim));
        // A command that fails on a member which the volume needs fails for the host, too.
        let may_fail =
            matches!(remote, Some((member, RemoteAttack::Errors(_), _)) if self.is_needed(member, &degraded));
        let attacked = remote.map(|(member, ..)| member).filter(|&member| !self.is_needed(member, self.disk.away()));
        let errors = match () {
            () if self.is_beyond || may_fail || !self.history.unreadable().is_empty() => Errors::Any,
            () if wants_space => Errors::Space,
            () => Errors::Never,
        };
        log.push(format!("{load_ms} ms of load over {}", url.split("://").next().unwrap_or_default()));
        let (mut attacks, mut injected) = (Vec::new(), 0);
        let history = std::mem::replace(&mut self.history, PlainHistory::new(0));
        let mut load = PlainLoad::new(history, &self.stamper, prng.fork("host"), (round, 0));
        let hosts = vec![Host { url: &url, queue_depth, stamper: &self.stamper, load: &mut load, errors, pace: None }];
        let launcher = &self.launcher;
        let disk = &mut self.disk;
        let sleep = |ms| std::thread::sleep(Duration::from_millis(ms));
        let during = || {
            sleep(load_ms / 2);
            if let Some(space) = disk.space().filter(|_| wants_space) {
                space.fill();
                attacks.push("full file system");
                sleep(load_ms / 2);
                if load_ms.is_multiple_of(2) {
                    space.free();
                }
            }
            if let (Some((_, attack, time)), Some(remote)) = (remote, disk.remote_mut()) {
                remote.apply(attack, time)?;
                injected = remote.take_injected();
                attacks.push(attack.name());
            }
            if let Some(ms) = pause_ms {
                server.pause(Duration::from_millis(ms))?;
                attacks.push("pause");
            }
            if fails {
                launcher.run(&["member", "fail", VOLUME, &victim.to_string()])?;
                attacks.push("member failed");
            }
            if let Some(image) = &image {
                status::replace(launcher, victim, image)?;
                attacks.push("kill during a rebuild");
                sleep(rebuild_ms);
            }
            sleep(load_ms / 2);
            Ok(())
        };
        let end = || server.kill_at_once();
        let tally = host::run_all(hosts, during, end);
        drop(server);
        if let Some(space) = self.disk.space() {
            space.free();
        }
        self.history = load.history;
        if fails {
            self.mark_degraded(victim);
        }
        if let Some(member) = attacked {
            self.mark_degraded(member);
        }
        attacks.push("kill");
        self.summary.errors_injected += injected;
        for attack in attacks {
            self.count(attack, log);
        }
        self.disk.refresh()?;
        let tally = tally?;
        log.push(format!("{} writes acknowledged", tally.writes));
        self.summary.tally += tally;
        Ok(())
    }

    /// A random fault of the remote member during a load, if any: another member that fails
    /// meanwhile may be too many.
    fn random_remote_attack(
        &self,
        prng: &Prng,
        degraded: &BTreeSet<usize>,
        failing: Option<usize>,
    ) -> Option<(usize, RemoteAttack, Duration)> {
        let member = self.disk.remote().filter(|member| !self.disk.away().contains(member))?;
        let mut prng = prng.fork("remote");
        let with_both: BTreeSet<usize> = degraded.iter().copied().chain(failing).chain([member]).collect();
        let is_possible = failing.is_none() || (failing != Some(member) && self.level.tolerates(&with_both));
        // Some degraded members may already be repaired by the volume; then it is unknown whether
        // it fails this one.
        let is_doubtful =
            self.is_needed(member, degraded) && !self.is_needed(member, self.disk.away()) && !self.is_beyond;
        if !is_possible || is_doubtful || !prng.chance(1, 2) {
            return None;
        }
        let (attack, time) = RemoteAttack::random(&mut prng);
        Some((member, attack, time))
    }

    /// Whether a volume with these degraded members needs this one.
    fn is_needed(&self, member: usize, degraded: &BTreeSet<usize>) -> bool {
        !self.level.tolerates(&degraded.iter().copied().chain([member]).collect())
    }

    /// Moves members away and back, and flips bytes, while no program uses the volume.
    fn attack_files(&mut self, prng: &mut Prng, log: &mut Vec<String>) -> Result<(), RunError> {
        let members = self.level.members() as u64;
        if !self.disk.away().is_empty() && prng.chance(1, 2) {
            self.disk.move_back()?;
            log.push("members moved back".to_owned());
        }
        if prng.chance(1, 3) {
            let count = if prng.chance(1, 3) { 1 + prng.below(members) } else { 1 };
            for _ in 0..count {
                let member = prng.below(members) as usize;
                if self.disk.move_away(member)? {
                    self.count("member moved away", log);
                    log.push(format!("member {member}"));
                }
            }
            if prng.chance(1, 4) {
                self.disk.move_back()?;
                log.push("moved back before the start".to_owned());
            }
        }
        if !prng.chance(2, 5) {
            return Ok(());
        }
        let missing: BTreeSet<usize> = self.degraded.union(self.disk.away()).copied().collect();
        let beyond = prng.chance(1, 5);
        let count = if beyond { 2 + prng.below(members) } else { 1 };
        for number in 0..count {
            let member = prng.below(members) as usize;
            let with: BTreeSet<usize> = missing.iter().copied().chain([member]).collect();
            if !beyond && !self.is_beyond && !self.level.tolerates(&with) {
                continue;
            }
            let mut flips = prng.fork(&format!("flip/{number}"));
            let flipped = self.disk.with_files(member, |path| damage::flip(path, &mut flips))?;
            let places = flipped.map_err(|error| RunError::Failed(format!("member {member}: {error}")))?;
            if !places.is_empty() {
                self.count("bytes flipped", log);
                log.push(format!("member {member}: {}", places.join(", ")));
                self.mark_degraded(member);
                if self.is_beyond {
                    // An image that is damaged after its last flush may lose writes acknowledged
                    // since.
                    self.floor = Floor::Flushed;
                }
            }
        }
        Ok(())
    }

    /// Reads every block.
    fn verify(&mut self, prng: &Prng, log: &mut Vec<String>) -> Result<(), RunError> {
        // A volume that has started without a member marks it as failed.
        for member in self.disk.away().clone() {
            self.mark_degraded(member);
        }
        let verified = verify::volume(
            &self.url(&prng.fork("verify")),
            &self.stamper,
            &mut self.history,
            self.floor,
            self.is_beyond,
        )?;
        self.floor = Floor::Acknowledged;
        self.summary.blocks_verified += verified.blocks;
        self.summary.errors_allowed += verified.errors;
        if verified.errors > 0 {
            log.push(format!("unreadable blocks: {}", verified.errors));
        }
        Ok(())
    }

    /// Returns all members, replaces failed ones, and scrubs: after that only permanently lost
    /// blocks are missing.
    fn repair(&mut self, server: Server, prng: &Prng, log: &mut Vec<String>) -> Result<(), RunError> {
        server.kill()?;
        self.disk.move_back()?;
        let Some(server) = self.start(log)? else { return self.renew(log) };
        let repaired = status::rebuild(&self.launcher, &mut self.disk).and_then(|()| status::scrub(&self.launcher));
        let is_whole = match repaired {
            Ok(is_whole) => is_whole,
            Err(failure) if self.is_beyond => {
                log.push(format!("cannot be repaired: {failure}"));
                drop(server);
                return self.renew(log);
            }
            Err(failure) => return Err(failure),
        };
        if !is_whole && !self.is_beyond && self.history.unreadable().is_empty() {
            return Err(RunError::lost(Loss::new("scrub within tolerance", "no block lost", "lost blocks")));
        }
        self.verify(&prng.fork("repaired"), log)?;
        log.push(if is_whole { "repaired" } else { "repaired except for lost blocks" }.to_owned());
        self.degraded.clear();
        self.is_beyond = false;
        self.summary.repairs += 1;
        server.kill()
    }

    /// Replaces an unusable volume by a new one.
    fn renew(&mut self, log: &mut Vec<String>) -> Result<(), RunError> {
        let launcher = self.launcher.clone();
        // The old file system is unmounted before the new one is mounted in its place.
        let empty = Disk::empty(&launcher.directory);
        std::mem::replace(&mut self.disk, empty).remove()?;
        self.disk = Disk::create(&launcher, self.level, self.remote)?;
        self.history = PlainHistory::new(status::volume_bytes(&launcher)? / crate::stamp::BLOCK_BYTES as u64);
        self.degraded.clear();
        (self.is_beyond, self.floor) = (false, Floor::Acknowledged);
        self.summary.volumes += 1;
        log.push("new volume".to_owned());
        Ok(())
    }

    fn mark_degraded(&mut self, member: usize) {
        self.degraded.insert(member);
        self.is_beyond |= !self.level.tolerates(&self.degraded);
    }

    fn count(&mut self, attack: &'static str, log: &mut Vec<String>) {
        *self.summary.attacks.entry(attack).or_default() += 1;
        log.push(attack.to_owned());
    }

    fn arguments(&self) -> Vec<String> {
        let [nvme, nbd] = [self.port, self.nbd_port].map(|port| format!("127.0.0.1:{port}"));
        vec![VOLUME.to_owned(), "--listen".to_owned(), nvme, "--nbd".to_owned(), nbd]
    }

    /// The URL of the volume, over NVMe/TCP or NBD.
    fn url(&self, prng: &Prng) -> String {
        if prng.fork("protocol").chance(1, 2) {
            format!("nbd://127.0.0.1:{}/{VOLUME}", self.nbd_port)
        } else {
            format!("nvme-tcp://127.0.0.1:{}/nqn.2026-01.io.zonda:{VOLUME}", self.port)
        }
    }
}
