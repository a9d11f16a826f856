//! Rounds of owners: two servers with copies of one volume's directory, whose members other servers have, are started, paused,
//! killed, and take the volume over from each other, with an honest host at each (docs/internals/volumes.md, "One owner").
//!
//! Of what is asked once a takeover has returned the old owner must acknowledge nothing: no write, flush or read, of whatever blocks.
//! What was acknowledged the new owner must return, and nothing that hosts write to the old one afterwards.

mod client;
mod site;
mod spare;

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use serde::Serialize;
use zonda_zoned::{Lba, Prng};

use crate::host::{Tally, open, read_all};
use crate::loss::{Loss, Trouble};
use crate::oracle::{Floor, PlainHistory};
use crate::server::{Launcher, Server};
use crate::stamp::{BLOCK_BYTES, Contents, Stamper};
use crate::verify;
use client::{Client, Done, Task};
use site::Site;

const QUEUE_DEPTH_MAX: u64 = 16;
/// The latest moment of an event after the begin of a load.
const LOAD_MS_MAX: u64 = 600;
/// The longest pause of a server whose volume stays its own: longer than a lease, shorter than hosts wait.
const PAUSE_MS_MAX: u64 = 3_000;
/// The latest moment at which a takeover is killed.
const TAKEOVER_MS_MAX: u64 = 2_500;
/// Blocks that hosts write; those behind them are never written.
const WRITTEN_BLOCKS: u64 = 2048;
/// Every so many rounds it is two volumes with one spare instead.
const SPARE_EVERY: u32 = 6;
/// What a refused server says of the one that has the members.
const REFUSED: &str = "another server of this volume";

/// What a run of owners has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OwnersSummary {
    /// Rounds that ended well.
    pub rounds: u32,
    /// What was done, by kind.
    pub events: BTreeMap<&'static str, u32>,
    /// Takeovers that have returned.
    pub takeovers: u32,
    /// Commands that old owners have refused after a takeover.
    pub fenced: u64,
    /// Commands from before a takeover that old owners have acknowledged after it: their acknowledgement was on its way.
    pub late: u64,
    /// Servers that were refused while another one had the members.
    pub refusals: u32,
    /// Blocks whose contents were checked after a start.
    pub blocks_verified: u64,
    /// What hosts did while their server owned the volume.
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
    /// The side whose server was killed, and has the members still.
    held_by: Option<usize>,
    loads: u32,
    summary: OwnersSummary,
}

/// How the owner of a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Stop,
    Kill,
    Pause,
    Refuse,
    RestartMembers,
    TakeOver { is_paused: bool, is_cut_short: bool, lacks_member: bool, wake: Wake },
}

/// When an old owner that was paused goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    AtOnce,
    OnceTheNewOneListens,
    UnderLoad,
    Never,
}

impl OwnersRun {
    /// Makes a volume and its copy in the directory of the launcher.
    ///
    /// # Errors
    /// When that does not succeed.
    pub fn new(launcher: Launcher, seed: u64) -> Result<OwnersRun, Trouble> {
        let site = Site::create(&launcher)?;
        let status = site.sides[0].status()?;
        let bytes = status["volume_bytes"].as_u64().unwrap_or_default();
        let blocks = bytes / BLOCK_BYTES as u64;
        if blocks <= WRITTEN_BLOCKS {
            return Err(Trouble::Stuck(format!("a volume of {blocks} blocks: {status}")));
        }
        Ok(OwnersRun {
            launcher,
            site,
            seed,
            prng: Prng::new(seed).fork("owners"),
            stamper: Stamper::new(seed, "owned volume"),
            history: PlainHistory::new(WRITTEN_BLOCKS),
            unwritten: (WRITTEN_BLOCKS, blocks - WRITTEN_BLOCKS),
            held_by: None,
            loads: 0,
            summary: OwnersSummary::default(),
        })
    }

    /// What has been done until now.
    #[must_use]
    pub fn summary(&self) -> &OwnersSummary {
        &self.summary
    }

    /// One round; `tell` hears of it in a line.
    ///
    /// # Errors
    /// What was lost, or what stood in the way. The run cannot go on then.
    pub fn round(&mut self, round: u32, tell: &mut dyn FnMut(&str)) -> Result<(), Trouble> {
        let mut prng = self.prng.fork(&format!("round/{round}"));
        let mut told = Vec::new();
        let result = if (round + 1).is_multiple_of(SPARE_EVERY) {
            self.share_a_spare(round, &mut prng, &mut told)
        } else {
            self.own(&mut prng, &mut told)
        };
        tell(&format!("round {round}: {}", told.join("; ")));
        result?;
        self.summary.rounds += 1;
        Ok(())
    }

    fn share_a_spare(&mut self, round: u32, prng: &mut Prng, told: &mut Vec<String>) -> Result<(), Trouble> {
        self.count("two volumes with one spare", told);
        let looked = spare::round(&self.launcher, self.seed, round, prng, told)?;
        self.summary.blocks_verified += looked;
        Ok(())
    }

    fn own(&mut self, prng: &mut Prng, told: &mut Vec<String>) -> Result<(), Trouble> {
        let owner = prng.below(2) as usize;
        told.push(format!("side {owner}"));
        let server = self.acquire(owner, prng, told)?;
        self.verify(owner, prng)?;
        let client = self.client(owner, prng)?;
        sleep(Duration::from_millis(prng.below(LOAD_MS_MAX)));
        let event = draw_event(prng);
        let is_stopped = match event {
            Event::TakeOver { is_paused, is_cut_short, lacks_member, wake } => {
                let how = (is_paused, is_cut_short, lacks_member, wake);
                return self.take_over(owner, (server, client), how, prng, told);
            }
            Event::Stop => true,
            Event::Kill => false,
            Event::Pause => {
                self.count("pause", told);
                server.pause(Duration::from_millis(prng.below(PAUSE_MS_MAX)))?;
                prng.chance(1, 2)
            }
            Event::Refuse => {
                self.must_refuse(1 - owner, told)?;
                prng.chance(1, 2)
            }
            Event::RestartMembers => {
                self.count("server of members killed", told);
                let which = prng.below(self.site.drives.len() as u64) as usize;
                self.site.drives[which].restart(Duration::from_millis(prng.below(LOAD_MS_MAX)))?;
                sleep(Duration::from_millis(prng.below(LOAD_MS_MAX)));
                let is_stopped = prng.chance(1, 2);
                if is_stopped {
                    // A server that stops gives back no member that it is not connected to.
                    self.site.sides[owner].wait_until("well")?;
                }
                is_stopped
            }
        };
        let done = self.end(owner, (server, client), is_stopped, told)?;
        self.history = done.history;
        Ok(())
    }

    /// Starts the server of a side, which takes the volume over if the other one has left it reserved.
    fn acquire(&mut self, side: usize, prng: &mut Prng, told: &mut Vec<String>) -> Result<Server, Trouble> {
        if self.held_by == Some(1 - side) {
            self.must_refuse(side, told)?;
            if prng.chance(1, 3) {
                self.count("release", told);
                self.site.sides[1 - side].release()?;
                return self.must_start(side);
            }
            self.count("takeover of what the other side has left reserved", told);
            self.taken_over(side)?;
        }
        self.must_start(side)
    }

    fn must_start(&self, side: usize) -> Result<Server, Trouble> {
        let refused = |said| Trouble::lost(Loss::new(format!("start of the owner, side {side}"), "a server", said));
        self.site.sides[side].serve()?.map_err(refused)
    }

    /// A server of a side that has the volume not must be refused, and be told who has it.
    fn must_refuse(&mut self, side: usize, told: &mut Vec<String>) -> Result<(), Trouble> {
        let found = match self.site.sides[side].serve()? {
            Ok(_) => "a server".to_owned(),
            Err(said) if said.contains(REFUSED) => {
                self.summary.refusals += 1;
                told.push("the other one is refused".to_owned());
                return Ok(());
            }
            Err(said) => said,
        };
        Err(Trouble::lost(Loss::new(format!("start of the other server, side {side}"), REFUSED, found)))
    }

    fn taken_over(&mut self, side: usize) -> Result<(), Trouble> {
        let from = self.site.sides[side].take_over(None)?;
        self.check_takeover(&from)
    }

    fn check_takeover(&mut self, from: &[Option<String>]) -> Result<(), Trouble> {
        self.summary.takeovers += 1;
        // A takeover that was killed has left some of the members to its own side.
        if from.iter().flatten().any(|holder| !holder.contains(REFUSED) && holder != "this directory") {
            return Err(Trouble::lost(Loss::new("takeover", REFUSED, format!("{from:?}"))));
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
        told: &mut Vec<String>,
    ) -> Result<(), Trouble> {
        let new = 1 - old;
        if prng.chance(1, 2) {
            self.site.copy(old)?;
        }
        if is_paused {
            site::pause(&old_server)?;
        }
        old_client.contest();
        if is_cut_short {
            self.count("takeover killed", told);
            let after = Duration::from_millis(prng.below(TAKEOVER_MS_MAX));
            self.site.sides[new].take_over_and_kill(after)?;
        }
        self.count(if is_paused { "takeover from a paused owner" } else { "takeover from a running owner" }, told);
        if lacks_member {
            self.count("takeover without a member", told);
            let away = self.site.stop_member()?;
            let from = self.site.sides[new].take_over(Some(&away))?;
            self.check_takeover(&from)?;
        } else {
            self.taken_over(new)?;
        }
        let mut before = old_client.fence()?;
        self.history = before.clone();
        if is_paused {
            told.push(format!("wakes: {wake:?}"));
        }
        let wake_if = |moment| if is_paused && wake == moment { site::wake(&old_server) } else { Ok(()) };
        wake_if(Wake::AtOnce)?;
        let mut server = self.must_start(new)?;
        wake_if(Wake::OnceTheNewOneListens)?;
        self.verify(new, prng)?;
        let found = self.history.clone();
        if prng.chance(1, 4) {
            self.count("new owner killed", told);
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
            let place = format!("write of block {:?} by the old owner, acknowledged late", mismatch.block);
            return Err(Trouble::lost(Loss::new(place, mismatch.expected, mismatch.found)));
        }
        self.summary.fenced += done.fenced;
        self.summary.late += done.late;
        self.summary.tally += done.tally;
        told.push(format!("{} commands refused by the old owner, {} acknowledged late", done.fenced, done.late));
        let is_stopped = prng.chance(1, 2);
        let done = self.end(new, (server, client), is_stopped, told)?;
        self.history = done.history;
        if lacks_member { self.bring_back(new, prng, told) } else { Ok(()) }
    }

    /// The member that a takeover did not reach can be reached again: it is taken over, too, and caught up.
    fn bring_back(&mut self, side: usize, prng: &mut Prng, told: &mut Vec<String>) -> Result<(), Trouble> {
        self.site.start_member()?;
        self.taken_over(side)?;
        let server = self.must_start(side)?;
        self.verify(side, prng)?;
        let client = self.client(side, prng)?;
        self.site.sides[side].wait_until("well")?;
        self.verify_end(side, (server, client), prng, told)
    }

    fn verify_end(
        &mut self,
        side: usize,
        running: (Server, Client),
        prng: &mut Prng,
        told: &mut Vec<String>,
    ) -> Result<(), Trouble> {
        let done = self.end(side, running, prng.chance(1, 2), told)?;
        self.history = done.history;
        let server = self.must_start(side)?;
        self.verify(side, prng)?;
        must_stop(server)?;
        self.held_by = self.site.sides[side].stays_reserved()?.then_some(side);
        Ok(())
    }

    /// Ends an owner under load.
    fn end(
        &mut self,
        side: usize,
        (server, client): (Server, Client),
        is_stopped: bool,
        told: &mut Vec<String>,
    ) -> Result<Done, Trouble> {
        client.expect_end();
        if is_stopped {
            self.count("stop", told);
            must_stop(server)?;
            // Members of a volume that was taken over stay reserved for who took it.
            self.held_by = self.site.sides[side].stays_reserved()?.then_some(side);
        } else {
            self.count("kill", told);
            server.kill()?;
            self.held_by = Some(side);
        }
        let done = client.join()?;
        self.summary.tally += done.tally;
        told.push(format!("{} writes acknowledged", done.tally.writes));
        Ok(done)
    }

    fn client(&mut self, side: usize, prng: &mut Prng) -> Result<Client, Trouble> {
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

    /// Reads every block that hosts write, and some of the others.
    fn verify(&mut self, side: usize, prng: &mut Prng) -> Result<(), Trouble> {
        const BLOCKS: u64 = 16;
        let url = self.site.sides[side].url(prng.chance(1, 2));
        let looked = verify::volume(&url, &self.stamper, &mut self.history, Floor::Acknowledged, false)?;
        self.summary.blocks_verified += looked.verified;
        let (first, count) = self.unwritten;
        let starts = (0..4).map(|_| (Lba(first + prng.below(count - BLOCKS)), BLOCKS)).collect::<Vec<_>>();
        let mut channel = open(&url)?;
        let found = read_all(&mut channel, &self.stamper, &starts)?.concat();
        channel.close();
        match found.iter().find(|contents| **contents != Contents::Zeros) {
            None => Ok(()),
            Some(found) => Err(Trouble::lost(Loss::new("blocks that were never written", Contents::Zeros, found))),
        }
    }

    fn count(&mut self, event: &'static str, told: &mut Vec<String>) {
        *self.summary.events.entry(event).or_default() += 1;
        told.push(event.to_owned());
    }
}

fn must_stop(server: Server) -> Result<(), Trouble> {
    let status = server.stop()?;
    if status.success() {
        return Ok(());
    }
    Err(Trouble::lost(Loss::new("a server that was asked to stop", "exit code 0", status)))
}

fn draw_event(prng: &mut Prng) -> Event {
    match prng.below(12) {
        0 => Event::Stop,
        1 => Event::Kill,
        2 => Event::Pause,
        3 => Event::Refuse,
        4 => Event::RestartMembers,
        _ => {
            let wakes = [Wake::AtOnce, Wake::OnceTheNewOneListens, Wake::UnderLoad, Wake::Never];
            let wake = *prng.pick(&wakes).expect("there are moments");
            let (is_paused, is_cut_short, lacks_member) = (prng.chance(2, 3), prng.chance(1, 4), prng.chance(1, 6));
            Event::TakeOver { is_paused, is_cut_short, lacks_member, wake }
        }
    }
}
