//! Rounds of owners: two servers with copies of one volume's directory, whose members other servers
//! export, are started, paused, killed, and take the volume over from each other, with a host at
//! each (docs/internals/volumes.md, "One owner").
//!
//! Once a takeover has returned, the old owner must not acknowledge any new command: no write,
//! flush or read, of any block. The new owner must return all acknowledged data, and nothing that
//! hosts write to the old one afterwards.

mod client;
mod site;
mod spare;

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use serde::Serialize;
use zonda_zoned::{Lba, Prng};

use crate::host::{Tally, open, read_all};
use crate::loss::{Loss, RunError};
use crate::oracle::{Floor, PlainHistory};
use crate::server::{Launcher, Server};
use crate::stamp::{BLOCK_BYTES, Contents, Stamper};
use crate::verify;
use client::{Client, Done, Task};
use site::Site;

const QUEUE_DEPTH_MAX: u64 = 16;
/// The latest time of an event after the start of a load.
const LOAD_MS_MAX: u64 = 600;
/// The longest pause of a server that keeps its volume: longer than a lease, shorter than the
/// timeout of hosts.
const PAUSE_MS_MAX: u64 = 3_000;
/// The latest time at which a takeover is killed.
const TAKEOVER_MS_MAX: u64 = 2_500;
/// Blocks that hosts write; those after them are never written.
const WRITTEN_BLOCKS: u64 = 2048;
/// Every n-th round uses two volumes with one spare instead.
const SPARE_EVERY: u32 = 6;
/// The error of a refused server about the owner of the members.
const REFUSED: &str = "another server of this volume";

/// The summary of a run of owners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OwnersSummary {
    /// Successful rounds.
    pub rounds: u32,
    /// Events, by kind.
    pub events: BTreeMap<&'static str, u32>,
    /// Takeovers that have returned.
    pub takeovers: u32,
    /// Commands refused by old owners after a takeover.
    pub fenced: u64,
    /// Commands from before a takeover whose acknowledgement by the old owner arrived after it.
    pub late: u64,
    /// Servers refused while another one owned the members.
    pub refusals: u32,
    /// Blocks whose contents were checked after a start.
    pub blocks_verified: u64,
    /// Commands of hosts while their server owned the volume.
    pub tally: Tally,
}

/// One run.
pub struct OwnersRun {
    launcher: Launcher,
    site: Site,
    seed: u64,
    prng: Prng,
    stamper: Stamper,
    history: PlainHistory,
    unwritten: (u64, u64),
    /// The side whose server was killed, and for which the members are still reserved.
    reserved_by: Option<usize>,
    loads: u32,
    summary: OwnersSummary,
}

/// The event that ends the ownership in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Stop,
    Kill,
    Pause,
    Refuse,
    RestartMembers,
    TakeOver { is_paused: bool, is_cut_short: bool, lacks_member: bool, wake: Wake },
}

/// When a paused old owner resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    AtOnce,
    OnceTheNewOneListens,
    UnderLoad,
    Never,
}

impl Wake {
    fn name(self) -> &'static str {
        match self {
            Wake::AtOnce => "at once",
            Wake::OnceTheNewOneListens => "when the new owner listens",
            Wake::UnderLoad => "under load",
            Wake::Never => "never",
        }
    }
}

impl OwnersRun {
    /// Creates a volume and its copy in the directory of the launcher.
    ///
    /// # Errors
    /// When that fails.
    pub fn new(launcher: Launcher, seed: u64) -> Result<OwnersRun, RunError> {
        let site = Site::create(&launcher)?;
        let status = site.sides[0].status()?;
        let bytes = status["volume_bytes"].as_u64().unwrap_or_default();
        let blocks = bytes / BLOCK_BYTES as u64;
        if blocks <= WRITTEN_BLOCKS {
            return Err(RunError::Failed(format!("a volume of {blocks} blocks: {status}")));
        }
        Ok(OwnersRun {
            launcher,
            site,
            seed,
            prng: Prng::new(seed).fork("owners"),
            stamper: Stamper::new(seed, "owned volume"),
            history: PlainHistory::new(WRITTEN_BLOCKS),
            unwritten: (WRITTEN_BLOCKS, blocks - WRITTEN_BLOCKS),
            reserved_by: None,
            loads: 0,
            summary: OwnersSummary::default(),
        })
    }

    /// The summary so far.
    #[must_use]
    pub fn summary(&self) -> &OwnersSummary {
        &self.summary
    }

    /// Runs one round; passes a line about it to `print`.
    ///
    /// # Errors
    /// The losses, or why the round failed. The run cannot continue then.
    pub fn round(&mut self, round: u32, print: &mut dyn FnMut(&str)) -> Result<(), RunError> {
        let mut prng = self.prng.fork(&format!("round/{round}"));
        let mut log = Vec::new();
        let result = if (round + 1).is_multiple_of(SPARE_EVERY) {
            self.share_a_spare(round, &mut prng, &mut log)
        } else {
            self.own(&mut prng, &mut log)
        };
        print(&format!("round {round}: {}", log.join("; ")));
        result?;
        self.summary.rounds += 1;
        Ok(())
    }

    fn share_a_spare(&mut self, round: u32, prng: &mut Prng, log: &mut Vec<String>) -> Result<(), RunError> {
        self.count("two volumes with one spare", log);
        let verified = spare::round(&self.launcher, self.seed, round, prng, log)?;
        self.summary.blocks_verified += verified;
        Ok(())
    }

    fn own(&mut self, prng: &mut Prng, log: &mut Vec<String>) -> Result<(), RunError> {
        let owner = prng.below(2) as usize;
        log.push(format!("side {owner}"));
        let server = self.acquire(owner, prng, log)?;
        self.verify(owner, prng)?;
        let client = self.client(owner, prng)?;
        sleep(Duration::from_millis(prng.below(LOAD_MS_MAX)));
        let event = random_event(prng);
        let is_stopped = match event {
            Event::TakeOver { is_paused, is_cut_short, lacks_member, wake } => {
                let how = (is_paused, is_cut_short, lacks_member, wake);
                return self.take_over(owner, (server, client), how, prng, log);
            }
            Event::Stop => true,
            Event::Kill => false,
            Event::Pause => {
                self.count("pause", log);
                server.pause(Duration::from_millis(prng.below(PAUSE_MS_MAX)))?;
                prng.chance(1, 2)
            }
            Event::Refuse => {
                self.must_refuse(1 - owner, log)?;
                prng.chance(1, 2)
            }
            Event::RestartMembers => {
                self.count("server of members killed", log);
                let which = prng.below(self.site.drives.len() as u64) as usize;
                self.site.drives[which].restart(Duration::from_millis(prng.below(LOAD_MS_MAX)))?;
                sleep(Duration::from_millis(prng.below(LOAD_MS_MAX)));
                let is_stopped = prng.chance(1, 2);
                if is_stopped {
                    // A server that stops does not release members to which it is not connected.
                    self.site.sides[owner].wait_until("healthy")?;
                }
                is_stopped
            }
        };
        let done = self.end(owner, (server, client), is_stopped, log)?;
        self.history = done.history;
        Ok(())
    }

    /// Starts the server of a side, with a takeover if the volume is reserved for the other side.
    fn acquire(&mut self, side: usize, prng: &mut Prng, log: &mut Vec<String>) -> Result<Server, RunError> {
        if self.reserved_by == Some(1 - side) {
            self.must_refuse(side, log)?;
            if prng.chance(1, 3) {
                self.count("release", log);
                self.site.sides[1 - side].release()?;
                return self.must_start(side);
            }
            self.count("takeover of members reserved for the other side", log);
            self.taken_over(side)?;
        }
        self.must_start(side)
    }

    fn must_start(&self, side: usize) -> Result<Server, RunError> {
        let refused = |said| RunError::lost(Loss::new(format!("start of the owner, side {side}"), "a server", said));
        self.site.sides[side].serve()?.map_err(refused)
    }

    /// A server of the side that does not own the volume must be refused, with an error that names
    /// the owner.
    fn must_refuse(&mut self, side: usize, log: &mut Vec<String>) -> Result<(), RunError> {
        let found = match self.site.sides[side].serve()? {
            Ok(_) => "a server".to_owned(),
            Err(said) if said.contains(REFUSED) => {
                self.summary.refusals += 1;
                log.push("other side refused".to_owned());
                return Ok(());
            }
            Err(said) => said,
        };
        Err(RunError::lost(Loss::new(format!("start of the other server, side {side}"), REFUSED, found)))
    }

    fn taken_over(&mut self, side: usize) -> Result<(), RunError> {
        let from = self.site.sides[side].take_over(None)?;
        self.check_takeover(&from)
    }

    fn check_takeover(&mut self, from: &[Option<String>]) -> Result<(), RunError> {
        self.summary.takeovers += 1;
        // A killed takeover may have reserved some of the members for its side.
        if from.iter().flatten().any(|holder| !holder.contains(REFUSED) && holder != "this directory") {
            return Err(RunError::lost(Loss::new(
                "takeover",
                REFUSED,
                from.iter().flatten().cloned().collect::<Vec<_>>().join(", "),
            )));
        }
        Ok(())
    }

    /// The other side takes the volume over while the owner serves it.
    fn take_over(
        &mut self,
        old: usize,
        (old_server, old_client): (Server, Client),
        (is_paused, is_cut_short, lacks_member, wake): (bool, bool, bool, Wake),
        prng: &mut Prng,
        log: &mut Vec<String>,
    ) -> Result<(), RunError> {
        let new = 1 - old;
        if prng.chance(1, 2) {
            self.site.copy(old)?;
        }
        if is_paused {
            site::pause(&old_server)?;
        }
        old_client.contest();
        if is_cut_short {
            self.count("takeover killed", log);
            let after = Duration::from_millis(prng.below(TAKEOVER_MS_MAX));
            self.site.sides[new].take_over_and_kill(after)?;
        }
        self.count(if is_paused { "takeover from a paused owner" } else { "takeover from a running owner" }, log);
        if lacks_member {
            self.count("takeover without a member", log);
            let away = self.site.stop_member()?;
            let from = self.site.sides[new].take_over(Some(&away))?;
            self.check_takeover(&from)?;
        } else {
            self.taken_over(new)?;
        }
        let mut before = old_client.fence()?;
        self.history = before.clone();
        if is_paused {
            log.push(format!("old owner resumes {}", wake.name()));
        }
        let wake_if = |moment| if is_paused && wake == moment { site::wake(&old_server) } else { Ok(()) };
        wake_if(Wake::AtOnce)?;
        let mut server = self.must_start(new)?;
        wake_if(Wake::OnceTheNewOneListens)?;
        self.verify(new, prng)?;
        let found = self.history.clone();
        if prng.chance(1, 4) {
            self.count("new owner killed", log);
            server.kill()?;
            server = self.must_start(new)?;
            self.verify(new, prng)?;
        }
        let client = self.client(new, prng)?;
        sleep(Duration::from_millis(prng.below(LOAD_MS_MAX)));
        wake_if(Wake::UnderLoad)?;
        sleep(Duration::from_millis(prng.below(LOAD_MS_MAX)));
        let is_awake = !is_paused || wake != Wake::Never;
        if is_awake {
            self.site.sides[old].wait_until("taken over")?;
        }
        old_client.expect_end();
        if is_awake && prng.chance(1, 2) {
            must_stop(old_server)?;
        } else {
            old_server.kill()?;
        }
        let done = old_client.join()?;
        for &(write, first, blocks) in &done.late_writes {
            before.acknowledge(write, first, blocks);
        }
        if let Some(mismatch) = (0..WRITTEN_BLOCKS).find_map(|block| before.check(block, found.expected(block)).err()) {
            let place =
                format!("write of block {} by the old owner, acknowledged late", mismatch.block.unwrap_or_default());
            return Err(RunError::lost(Loss::new(place, mismatch.expected, mismatch.found)));
        }
        self.summary.fenced += done.fenced;
        self.summary.late += done.late;
        self.summary.tally += done.tally;
        log.push(format!("{} commands refused by the old owner, {} acknowledged late", done.fenced, done.late));
        let is_stopped = prng.chance(1, 2);
        let done = self.end(new, (server, client), is_stopped, log)?;
        self.history = done.history;
        if lacks_member { self.bring_back(new, prng, log) } else { Ok(()) }
    }

    /// The member that was unreachable during a takeover is reachable again: it is taken over, too,
    /// and resynchronized.
    fn bring_back(&mut self, side: usize, prng: &mut Prng, log: &mut Vec<String>) -> Result<(), RunError> {
        self.site.start_member()?;
        self.taken_over(side)?;
        let server = self.must_start(side)?;
        self.verify(side, prng)?;
        let client = self.client(side, prng)?;
        self.site.sides[side].wait_until("healthy")?;
        self.verify_end(side, (server, client), prng, log)
    }

    fn verify_end(
        &mut self,
        side: usize,
        running: (Server, Client),
        prng: &mut Prng,
        log: &mut Vec<String>,
    ) -> Result<(), RunError> {
        let done = self.end(side, running, prng.chance(1, 2), log)?;
        self.history = done.history;
        let server = self.must_start(side)?;
        self.verify(side, prng)?;
        must_stop(server)?;
        self.reserved_by = self.site.sides[side].stays_reserved()?.then_some(side);
        Ok(())
    }

    /// Ends an owner under load.
    fn end(
        &mut self,
        side: usize,
        (server, client): (Server, Client),
        is_stopped: bool,
        log: &mut Vec<String>,
    ) -> Result<Done, RunError> {
        client.expect_end();
        if is_stopped {
            self.count("stop", log);
            must_stop(server)?;
            // Members of a volume that was taken over stay reserved for the new owner.
            self.reserved_by = self.site.sides[side].stays_reserved()?.then_some(side);
        } else {
            self.count("kill", log);
            server.kill()?;
            self.reserved_by = Some(side);
        }
        let done = client.join()?;
        self.summary.tally += done.tally;
        log.push(format!("{} writes acknowledged", done.tally.writes));
        Ok(done)
    }

    fn client(&mut self, side: usize, prng: &mut Prng) -> Result<Client, RunError> {
        self.loads += 1;
        Client::start(Task {
            url: self.site.sides[side].url(prng.chance(1, 2)),
            history: self.history.clone(),
            unwritten: self.unwritten,
            stamper: self.stamper.clone(),
            prng: prng.fork(&format!("host/{}", self.loads)),
            number: self.loads,
            queue_depth: 1 + prng.below(QUEUE_DEPTH_MAX) as usize,
        })
    }

    /// Verifies every block that hosts write, and some of the others.
    fn verify(&mut self, side: usize, prng: &mut Prng) -> Result<(), RunError> {
        const BLOCKS: u64 = 16;
        let url = self.site.sides[side].url(prng.chance(1, 2));
        let verified = verify::volume(&url, &self.stamper, &mut self.history, Floor::Acknowledged, false)?;
        self.summary.blocks_verified += verified.blocks;
        let (first, count) = self.unwritten;
        let starts = (0..4).map(|_| (Lba(first + prng.below(count - BLOCKS)), BLOCKS)).collect::<Vec<_>>();
        let mut channel = open(&url)?;
        let found = read_all(&mut channel, &self.stamper, &starts)?.concat();
        channel.close();
        match found.iter().find(|contents| **contents != Contents::Zeros) {
            None => Ok(()),
            Some(found) => Err(RunError::lost(Loss::new("blocks that were never written", Contents::Zeros, found))),
        }
    }

    fn count(&mut self, event: &'static str, log: &mut Vec<String>) {
        *self.summary.events.entry(event).or_default() += 1;
        log.push(event.to_owned());
    }
}

fn must_stop(server: Server) -> Result<(), RunError> {
    let status = server.stop()?;
    if status.success() {
        return Ok(());
    }
    Err(RunError::lost(Loss::new("stop of a server", "exit code 0", status)))
}

fn random_event(prng: &mut Prng) -> Event {
    match prng.below(12) {
        0 => Event::Stop,
        1 => Event::Kill,
        2 => Event::Pause,
        3 => Event::Refuse,
        4 => Event::RestartMembers,
        _ => {
            let wakes = [Wake::AtOnce, Wake::OnceTheNewOneListens, Wake::UnderLoad, Wake::Never];
            let wake = *prng.pick(&wakes).expect("not empty");
            let (is_paused, is_cut_short, lacks_member) = (prng.chance(2, 3), prng.chance(1, 4), prng.chance(1, 6));
            Event::TakeOver { is_paused, is_cut_short, lacks_member, wake }
        }
    }
}
