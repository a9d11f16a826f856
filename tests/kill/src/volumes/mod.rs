//! Rounds of attacks on a served volume: never zeros or older blocks, and within what the level tolerates no error either
//! (docs/internals/volumes.md).
//!
//! Members lack something from an attack on until a rebuild and a scrub have ended: a run counts them itself, and asks the
//! volume only whether it is rebuilt.

mod damage;
mod disk;
mod level;
mod link;
mod refusal;
mod remote;
mod space;
mod status;

pub use level::Level;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use zonda_zoned::Prng;

use crate::host::{self, Errors, Host, Tally};
use crate::load::PlainLoad;
use crate::loss::{Loss, Trouble};
use crate::oracle::{Floor, PlainHistory};
use crate::server::{Launcher, Server, free_port};
use crate::stamp::Stamper;
use crate::verify;
use disk::{Disk, VOLUME};
use remote::RemoteAttack;

const QUEUE_DEPTH_MAX: u64 = 32;
/// The latest moment of a kill after the begin of a load.
const LOAD_MS_MAX: u64 = 500;
/// The latest moment of a kill after the start of a server.
const START_MS_MAX: u64 = 60;
/// The latest moment of a kill after a rebuild began.
const REBUILD_MS_MAX: u64 = 150;

/// What a run of volumes has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VolumesSummary {
    /// Rounds that ended well.
    pub rounds: u32,
    /// Volumes made: a new one after each that could not be started again, beyond what its level tolerates.
    pub volumes: u32,
    /// Attacks by kind.
    pub attacks: BTreeMap<&'static str, u32>,
    /// Attacks that are not possible here, and why.
    pub skipped: Option<String>,
    /// Blocks whose contents were checked after a start.
    pub blocks_verified: u64,
    /// Blocks whose read ended with an error, beyond what the level tolerates.
    pub errors_allowed: u64,
    /// Starts refused beyond what the level tolerates, by kind.
    pub refusals: BTreeMap<&'static str, u32>,
    /// Volumes that started again once members that were away were back.
    pub starts_after_return: u32,
    /// Rebuilds and scrubs of all that was attacked.
    pub repairs: u32,
    /// Completions of a remote member that were turned into errors.
    pub errors_injected: u32,
    /// What hosts did.
    pub tally: Tally,
}

/// One run.
pub struct VolumesRun {
    launcher: Launcher,
    level: Level,
    port: u16,
    nbd_port: u16,
    /// The seed of the network to the last member, where that is remote.
    remote: Option<u64>,
    disk: Disk,
    prng: Prng,
    stamper: Stamper,
    history: PlainHistory,
    /// Members that an attack has damaged, and that no rebuild and no scrub has repaired since.
    lacking: BTreeSet<usize>,
    /// More were lacking at once than the level tolerates.
    is_beyond: bool,
    /// Damage that may have cost acknowledged blocks that were not flushed.
    floor: Floor,
    summary: VolumesSummary,
}

impl VolumesRun {
    /// Makes a volume in the directory of the launcher.
    ///
    /// # Errors
    /// When that does not succeed.
    pub fn new(launcher: Launcher, level: Level, seed: u64) -> Result<VolumesRun, Trouble> {
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
            lacking: BTreeSet::new(),
            is_beyond: false,
            floor: Floor::Acknowledged,
            summary: VolumesSummary { volumes: 1, skipped, ..VolumesSummary::default() },
        })
    }

    /// What has been done until now.
    #[must_use]
    pub fn summary(&self) -> &VolumesSummary {
        &self.summary
    }

    /// One round; `tell` hears of it in a line.
    ///
    /// # Errors
    /// What was lost, or what stood in the way. The run cannot go on then.
    pub fn round(&mut self, round: u32, tell: &mut dyn FnMut(&str)) -> Result<(), Trouble> {
        let mut prng = self.prng.fork(&format!("round/{round}"));
        let mut told = Vec::new();
        let result = self.attack_and_verify(round, &mut prng, &mut told);
        let state = if self.is_beyond { "beyond" } else { "within" };
        tell(&format!("round {round}: {} ({state} tolerance, lacking {:?})", told.join("; "), self.lacking));
        if result.is_err() {
            self.disk.keep();
        }
        result?;
        self.summary.rounds += 1;
        Ok(())
    }

    fn attack_and_verify(&mut self, round: u32, prng: &mut Prng, told: &mut Vec<String>) -> Result<(), Trouble> {
        let Some(server) = self.start(told)? else { return self.renew(told) };
        self.load(server, round, prng, told)?;
        self.attack_files(prng, told)?;
        if prng.chance(1, 4) {
            self.launcher.start_and_kill(&self.arguments(), Duration::from_millis(prng.below(START_MS_MAX)))?;
            self.count("kill at start", told);
        }
        let Some(server) = self.start(told)? else { return self.renew(told) };
        self.verify(prng, told)?;
        if self.lacking.is_empty() || prng.chance(1, 2) {
            return server.kill();
        }
        self.repair(server, prng, told)
    }

    /// Starts the volume; `None` if it is refused for good, beyond what the level tolerates.
    fn start(&mut self, told: &mut Vec<String>) -> Result<Option<Server>, Trouble> {
        let said = match self.launcher.start_or_refuse(&self.arguments())? {
            Ok(server) => return Ok(Some(server)),
            Err(said) => said,
        };
        self.check_refusal(&said, told)?;
        if self.disk.move_back()? == 0 {
            return Ok(None);
        }
        match self.launcher.start_or_refuse(&self.arguments())? {
            Ok(server) => {
                told.push("started once they were back".to_owned());
                self.summary.starts_after_return += 1;
                Ok(Some(server))
            }
            Err(said) => {
                self.check_refusal(&said, told)?;
                Ok(None)
            }
        }
    }

    /// A refusal must be documented, and is for volumes that lack more than their level tolerates.
    fn check_refusal(&mut self, said: &str, told: &mut Vec<String>) -> Result<(), Trouble> {
        let missing: BTreeSet<usize> = self.lacking.union(self.disk.away()).copied().collect();
        if !self.is_beyond && self.level.tolerates(&missing) {
            return Err(Trouble::lost(Loss::new("start within tolerance", "a volume that starts", said)));
        }
        let Some(kind) = refusal::kind(said) else {
            return Err(Trouble::lost(Loss::new("start beyond tolerance", "a documented refusal", said)));
        };
        told.push(format!("refused: {kind}"));
        *self.summary.refusals.entry(kind).or_default() += 1;
        Ok(())
    }

    /// Loads the server, attacks it meanwhile, and kills it.
    fn load(&mut self, server: Server, round: u32, prng: &mut Prng, told: &mut Vec<String>) -> Result<(), Trouble> {
        let url = self.url(prng);
        let bound = if prng.chance(1, 3) { LOAD_MS_MAX / 10 } else { LOAD_MS_MAX };
        let load_ms = prng.below(bound);
        let pause_ms = prng.chance(1, 4).then(|| prng.below(2_500));
        let queue_depth = 1 + prng.below(QUEUE_DEPTH_MAX) as usize;
        // Members that started away are known as failed by the volume.
        let lacking: BTreeSet<usize> = self.lacking.union(self.disk.away()).copied().collect();
        let victim = prng.below(self.level.members() as u64) as usize;
        let with_victim: BTreeSet<usize> = lacking.iter().copied().chain([victim]).collect();
        let fails = prng.chance(1, 4) && !lacking.contains(&victim) && self.level.tolerates(&with_victim);
        let replaced = fails && prng.chance(3, 4);
        let rebuild_ms = prng.below(REBUILD_MS_MAX);
        let image = if replaced { Some(self.disk.create_image(&self.launcher)?) } else { None };
        let wants_space = prng.chance(1, 6) && !fails && self.disk.space().is_some();
        let remote = self.draw_remote_attack(prng, &lacking, fails.then_some(victim));
        // A command that fails on a member which the volume cannot do without fails for the host, too.
        let may_fail = matches!(remote, Some((member, RemoteAttack::Errors(_), _)) if self.is_needed(member, &lacking));
        let attacked = remote.map(|(member, ..)| member).filter(|&member| !self.is_needed(member, self.disk.away()));
        let errors = match () {
            () if self.is_beyond || may_fail || !self.history.unreadable().is_empty() => Errors::Any,
            () if wants_space => Errors::Space,
            () => Errors::Never,
        };
        told.push(format!("{load_ms} ms of load over {}", url.split("://").next().unwrap_or_default()));
        let (mut attacks, mut injected) = (Vec::new(), 0);
        let history = std::mem::replace(&mut self.history, PlainHistory::new(0));
        let mut load = PlainLoad::new(history, &self.stamper, prng.fork("host"), (round, 0));
        let hosts = vec![Host { url: &url, queue_depth, stamper: &self.stamper, load: &mut load, errors }];
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
                remote.suffer(attack, time)?;
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
                attacks.push("kill in a rebuild");
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
            self.lack(victim);
        }
        if let Some(member) = attacked {
            self.lack(member);
        }
        attacks.push("kill");
        self.summary.errors_injected += injected;
        for attack in attacks {
            self.count(attack, told);
        }
        self.disk.refresh()?;
        let tally = tally?;
        told.push(format!("{} writes acknowledged", tally.writes));
        self.summary.tally += tally;
        Ok(())
    }

    /// What is done to the remote member during a load, if anything: one that fails meanwhile may be too many.
    fn draw_remote_attack(
        &self,
        prng: &Prng,
        lacking: &BTreeSet<usize>,
        failing: Option<usize>,
    ) -> Option<(usize, RemoteAttack, Duration)> {
        let member = self.disk.remote().filter(|member| !self.disk.away().contains(member))?;
        let mut prng = prng.fork("remote");
        let with_both: BTreeSet<usize> = lacking.iter().copied().chain(failing).chain([member]).collect();
        let is_possible = failing.is_none() || (failing != Some(member) && self.level.tolerates(&with_both));
        // Of members that lack something some may be whole again for the volume: then nobody here knows whether it fails this one.
        let is_doubtful =
            self.is_needed(member, lacking) && !self.is_needed(member, self.disk.away()) && !self.is_beyond;
        if !is_possible || is_doubtful || !prng.chance(1, 2) {
            return None;
        }
        let (attack, time) = RemoteAttack::draw(&mut prng);
        Some((member, attack, time))
    }

    /// Whether a volume that lacks these members cannot do without this one.
    fn is_needed(&self, member: usize, lacking: &BTreeSet<usize>) -> bool {
        !self.level.tolerates(&lacking.iter().copied().chain([member]).collect())
    }

    /// Moves members away and back, and flips bytes, while no program uses the volume.
    fn attack_files(&mut self, prng: &mut Prng, told: &mut Vec<String>) -> Result<(), Trouble> {
        let members = self.level.members() as u64;
        if !self.disk.away().is_empty() && prng.chance(1, 2) {
            self.disk.move_back()?;
            told.push("members moved back".to_owned());
        }
        if prng.chance(1, 3) {
            let count = if prng.chance(1, 3) { 1 + prng.below(members) } else { 1 };
            for _ in 0..count {
                let member = prng.below(members) as usize;
                if self.disk.move_away(member)? {
                    self.count("member moved away", told);
                    told.push(format!("member {member}"));
                }
            }
            if prng.chance(1, 4) {
                self.disk.move_back()?;
                told.push("and back before the start".to_owned());
            }
        }
        if !prng.chance(2, 5) {
            return Ok(());
        }
        let missing: BTreeSet<usize> = self.lacking.union(self.disk.away()).copied().collect();
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
            let places = flipped.map_err(|error| Trouble::Stuck(format!("member {member}: {error}")))?;
            if !places.is_empty() {
                self.count("bytes flipped", told);
                told.push(format!("member {member}: {}", places.join(", ")));
                self.lack(member);
                if self.is_beyond {
                    // An image that is damaged behind its last flush may lose what it acknowledged since.
                    self.floor = Floor::Flushed;
                }
            }
        }
        Ok(())
    }

    /// Reads every block.
    fn verify(&mut self, prng: &Prng, told: &mut Vec<String>) -> Result<(), Trouble> {
        // A volume that has started without a member counts it as failed.
        for member in self.disk.away().clone() {
            self.lack(member);
        }
        let looked = verify::volume(
            &self.url(&prng.fork("verify")),
            &self.stamper,
            &mut self.history,
            self.floor,
            self.is_beyond,
        )?;
        self.floor = Floor::Acknowledged;
        self.summary.blocks_verified += looked.verified;
        self.summary.errors_allowed += looked.errors;
        if looked.errors > 0 {
            told.push(format!("{} blocks cannot be read", looked.errors));
        }
        Ok(())
    }

    /// Brings all members back, replaces those that failed, and scrubs: nothing is lacking from then on but what is lost for good.
    fn repair(&mut self, server: Server, prng: &Prng, told: &mut Vec<String>) -> Result<(), Trouble> {
        server.kill()?;
        self.disk.move_back()?;
        let Some(server) = self.start(told)? else { return self.renew(told) };
        let repaired = status::rebuild(&self.launcher, &mut self.disk).and_then(|()| status::scrub(&self.launcher));
        let is_whole = match repaired {
            Ok(is_whole) => is_whole,
            Err(trouble) if self.is_beyond => {
                told.push(format!("cannot be repaired: {trouble:?}"));
                drop(server);
                return self.renew(told);
            }
            Err(trouble) => return Err(trouble),
        };
        if !is_whole && !self.is_beyond && self.history.unreadable().is_empty() {
            return Err(Trouble::lost(Loss::new("scrub within tolerance", "no block lost", "lost blocks")));
        }
        self.verify(&prng.fork("repaired"), told)?;
        told.push(if is_whole { "repaired" } else { "repaired but for lost blocks" }.to_owned());
        self.lacking.clear();
        self.is_beyond = false;
        self.summary.repairs += 1;
        server.kill()
    }

    /// A new volume instead of one that cannot be used any more.
    fn renew(&mut self, told: &mut Vec<String>) -> Result<(), Trouble> {
        let launcher = self.launcher.clone();
        // The old file system is unmounted before the new one is mounted in its place.
        let empty = Disk::empty(&launcher.directory);
        std::mem::replace(&mut self.disk, empty).remove()?;
        self.disk = Disk::create(&launcher, self.level, self.remote)?;
        self.history = PlainHistory::new(status::volume_bytes(&launcher)? / crate::stamp::BLOCK_BYTES as u64);
        self.lacking.clear();
        (self.is_beyond, self.floor) = (false, Floor::Acknowledged);
        self.summary.volumes += 1;
        told.push("a new volume".to_owned());
        Ok(())
    }

    fn lack(&mut self, member: usize) {
        self.lacking.insert(member);
        self.is_beyond |= !self.level.tolerates(&self.lacking);
    }

    fn count(&mut self, attack: &'static str, told: &mut Vec<String>) {
        *self.summary.attacks.entry(attack).or_default() += 1;
        told.push(attack.to_owned());
    }

    fn arguments(&self) -> Vec<String> {
        let [nvme, nbd] = [self.port, self.nbd_port].map(|port| format!("127.0.0.1:{port}"));
        vec![VOLUME.to_owned(), "--listen".to_owned(), nvme, "--nbd".to_owned(), nbd]
    }

    /// Where a host finds the volume, over NVMe/TCP or NBD.
    fn url(&self, prng: &Prng) -> String {
        if prng.fork("protocol").chance(1, 2) {
            format!("nbd://127.0.0.1:{}/{VOLUME}", self.nbd_port)
        } else {
            format!("nvme-tcp://127.0.0.1:{}/nqn.2026-01.io.zonda:{VOLUME}", self.port)
        }
    }
}
