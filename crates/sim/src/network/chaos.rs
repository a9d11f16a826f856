//! What the world does to a network, all of it within the promise.

use zonda_initiator::QueueId;
use zonda_zoned::{Duration, Instant, Prng};

use super::host::Stage;
use super::link::Owner;
use super::run::{EVER, NetworkRun};
use super::stranger::Script;
use crate::drive::one_of;
use crate::options::{Options, Part};

/// The longest that anything is held back: as long as a command takes, as a connection takes to be made, or longer than
/// most keep alive timers.
const HOLD_NS_MAX: [u64; 4] = [2_000_000, 30_000_000, 400_000_000, 5_000_000_000];
/// How much later each side can hear of a connection that broke.
const RESET_NS_MAX: u64 = 100_000_000;
/// For so long after something was done, what it leads to is excused.
pub(super) const AFTERMATH: Duration = Duration::from_secs(2);

/// Something that the world does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChaosKind {
    /// A connection breaks.
    Reset,
    /// Somewhere between, all connections of a host are forgotten: the host hears of it soon, the target late, and of the
    /// bytes that were on their way late too.
    Amnesia,
    /// The target sees the end of a connection that its host still uses.
    HalfClose,
    /// A connection carries nothing for a time, in one direction or in both.
    Blackhole,
    /// All connections of a host carry nothing for a time.
    Isolation,
    /// A connection becomes slow.
    Throttle,
    /// A host's process dies: its kernel closes its connections.
    Death,
    /// A host's machine dies, without a word.
    SilentDeath,
    /// A host takes its leave and comes back.
    Farewell,
    /// A host does not read for a time.
    Stall,
    /// The server ends what is under way, and starts again.
    Drain,
    /// The server's process dies.
    Crash,
    /// The server dies, and its drives lose power.
    PowerLoss,
    /// Somebody connects who sends what makes no sense.
    Stranger,
}

impl ChaosKind {
    /// Every kind, with its name and the part of the world it belongs to.
    const ALL: [(&'static str, ChaosKind, Part); 14] = [
        ("resets", ChaosKind::Reset, Part::Cuts),
        ("amnesias", ChaosKind::Amnesia, Part::Cuts),
        ("half-closes", ChaosKind::HalfClose, Part::Cuts),
        ("blackholes", ChaosKind::Blackhole, Part::Blackholes),
        ("isolations", ChaosKind::Isolation, Part::Blackholes),
        ("throttles", ChaosKind::Throttle, Part::Blackholes),
        ("deaths", ChaosKind::Death, Part::Deaths),
        ("silent deaths", ChaosKind::SilentDeath, Part::Deaths),
        ("farewells", ChaosKind::Farewell, Part::Deaths),
        ("stalls", ChaosKind::Stall, Part::Stalls),
        ("drains", ChaosKind::Drain, Part::Crashes),
        ("crashes", ChaosKind::Crash, Part::Crashes),
        ("power losses", ChaosKind::PowerLoss, Part::PowerLoss),
        ("strangers", ChaosKind::Stranger, Part::Strangers),
    ];

    pub(crate) fn name(self) -> &'static str {
        let found = ChaosKind::ALL.iter().find(|(_, kind, _)| *kind == self);
        found.map(|(name, ..)| *name).expect("every kind is listed")
    }

    pub(crate) fn by_name(name: &str) -> Option<ChaosKind> {
        ChaosKind::ALL.iter().find(|(known, ..)| *known == name).map(|(_, kind, _)| *kind)
    }
}

/// Half of all kinds, or one alone.
pub(super) fn draw_kinds(prng: &mut Prng, options: &Options) -> Vec<ChaosKind> {
    let alone = prng.chance(1, 3).then(|| prng.below(ChaosKind::ALL.len() as u64) as usize);
    let drawn: Vec<bool> = ChaosKind::ALL.iter().map(|_| prng.chance(1, 2)).collect();
    let is_there = |place: usize| alone.map_or(drawn[place], |alone| alone == place);
    let kinds =
        ChaosKind::ALL.iter().enumerate().filter(|(place, (_, _, part))| is_there(*place) && options.has(*part));
    kinds.map(|(_, (_, kind, _))| *kind).collect()
}

impl NetworkRun<'_> {
    /// Does one thing.
    pub(super) fn strike(&mut self) {
        let Some(&kind) = self.chaos_prng.pick(&self.world.chaos) else { return };
        let now = self.now;
        let name = kind.name();
        self.faults += 1;
        self.hash.mix(kind as u64 + 1);
        let host = self.chaos_prng.below(self.hosts.len() as u64) as usize;
        let most = one_of(&mut self.chaos_prng, &HOLD_NS_MAX);
        let until = now + Duration(self.draw_below(most));
        match kind {
            ChaosKind::Reset | ChaosKind::HalfClose | ChaosKind::Blackhole | ChaosKind::Throttle => {
                self.strike_link(kind, until);
            }
            ChaosKind::Isolation => {
                for link in self.links.values_mut() {
                    if matches!(link.owner, Owner::Host { host: of, .. } if of == host) {
                        link.up.hold_until(until);
                        link.down.hold_until(until);
                    }
                }
                self.hosts[host].disturb(until + AFTERMATH);
                self.teller.tell(now, || format!("host {host} is cut off until {until}"));
            }
            ChaosKind::Amnesia => {
                // Of a host that is at work, which has something on its way.
                let works = |host: &usize| matches!(self.hosts[*host].stage, Stage::Working);
                let working: Vec<usize> = (0..self.hosts.len()).filter(works).collect();
                let host = self.chaos_prng.pick(&working).copied().unwrap_or(host);
                // The target hears of it when the host may have long been connected again; what the host sends until it hears
                // of it comes late, too.
                let left = 200_000_000 + self.draw_below(HOLD_NS_MAX[3]);
                let until = now + Duration(left);
                let heard = Duration(self.chaos_prng.below(30_000_000));
                for link in self.links.values_mut() {
                    if let Owner::Host { host: of, queue, .. } = link.owner
                        && of == host
                    {
                        // With the end of the admin queue, nothing of the others would be taken.
                        let late = Duration(heard.0 + self.chaos_prng.below(left - heard.0 + 1));
                        link.up.hold_until(if queue == QueueId::ADMIN { until } else { now + late });
                        link.is_mute = true;
                        link.reset(now + heard, until);
                    }
                }
                self.hosts[host].disturb(until + AFTERMATH);
                self.teller.tell(now, || format!("host {host} is forgotten, which the target hears at {until}"));
            }
            ChaosKind::Death | ChaosKind::SilentDeath => {
                // Without keep alive, nobody would ever notice.
                let is_silent = kind == ChaosKind::SilentDeath && self.world.hosts[host].config.keep_alive.is_some();
                self.kill_host(host, is_silent, until);
            }
            ChaosKind::Farewell => self.dismiss_host(host),
            ChaosKind::Stall => {
                // Some never read again, until everything is healed.
                let until = if self.chaos_prng.chance(1, 3) { EVER } else { until };
                self.hosts[host].stalled_until = until;
                self.hosts[host].disturb(until + AFTERMATH);
                self.teller.tell(now, || format!("host {host} does not read until {until}"));
            }
            ChaosKind::Drain => self.drain_server(),
            ChaosKind::Crash | ChaosKind::PowerLoss => self.kill_server(kind == ChaosKind::PowerLoss, until),
            ChaosKind::Stranger => {
                let script = Script::draw(&mut self.chaos_prng, &self.captured);
                self.teller.tell(now, || "a stranger connects".to_owned());
                self.open_stranger(&script, until);
            }
        }
        self.teller.tell(now, || format!("  ({name})"));
    }

    fn strike_link(&mut self, kind: ChaosKind, until: Instant) {
        let links: Vec<u64> = self.links.iter().filter(|(_, link)| link.host_end).map(|(id, _)| *id).collect();
        let Some(&id) = self.chaos_prng.pick(&links) else { return };
        let now = self.now;
        let (one, other) = (self.draw_below(RESET_NS_MAX), self.draw_below(RESET_NS_MAX));
        let direction = self.chaos_prng.below(3);
        let rate = 20_000 + self.draw_below(500_000);
        let link = self.links.get_mut(&id).expect("it was chosen of those there are");
        let mut excused_until = now + AFTERMATH;
        match kind {
            ChaosKind::Reset => link.reset(now + Duration(one), now + Duration(other)),
            ChaosKind::HalfClose => {
                link.up.forget_waiting();
                link.up.close();
            }
            ChaosKind::Blackhole => {
                excused_until = until + AFTERMATH;
                if direction != 0 {
                    link.up.hold_until(until);
                }
                if direction != 1 {
                    link.down.hold_until(until);
                }
            }
            _ => {
                // Until it is healed, or the connection ends.
                excused_until = EVER;
                link.up.throttle(rate);
                link.down.throttle(rate);
            }
        }
        if let Owner::Host { host, queue, .. } = link.owner {
            self.hosts[host].disturb(excused_until);
            self.teller.tell(now, || format!("{queue} of host {host} is struck"));
        }
    }

    pub(super) fn draw_below(&mut self, most: u64) -> u64 {
        self.chaos_prng.below(most)
    }
}
