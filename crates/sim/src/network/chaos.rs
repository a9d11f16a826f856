//! Faults of a network. All are within what host and target must tolerate.

use zonda_initiator::QueueId;
use zonda_zoned::{Duration, Instant, Prng};

use super::host::Stage;
use super::link::Owner;
use super::rogue::Script;
use super::run::{FOREVER, NetworkRun};
use crate::drive::one_of;
use crate::options::{Options, Part};

/// Maximum durations of a fault: about the latency of a command, the time to connect, or longer
/// than most keep alive timeouts.
const HOLD_NS_MAX: [u64; 4] = [2_000_000, 30_000_000, 400_000_000, 5_000_000_000];
/// Maximum delay until each side is notified of a connection reset.
const RESET_NS_MAX: u64 = 100_000_000;
/// For this long after a fault has ended, its consequences are excused.
pub(super) const AFTERMATH: Duration = Duration::from_secs(2);

/// A kind of network fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChaosKind {
    /// A connection is reset.
    Reset,
    /// A middlebox loses the state of all connections of a host: the host is notified soon, the
    /// target late, and bytes in flight arrive late.
    ConnectionStateLoss,
    /// The target receives a FIN on a connection that the host still uses.
    HalfClose,
    /// A connection carries no data for a time, in one direction or both.
    Blackhole,
    /// All connections of a host carry no data for a time.
    Isolation,
    /// A connection becomes slow.
    Throttle,
    /// A host's process is killed: its kernel closes the connections.
    Death,
    /// A host's machine crashes: its connections are not closed.
    SilentDeath,
    /// A host shuts down its controller and connects again.
    Shutdown,
    /// A host does not read from its connections for a time.
    Stall,
    /// The server drains and restarts.
    Drain,
    /// The server's process is killed.
    Crash,
    /// The server and its drives lose power.
    PowerLoss,
    /// A rogue client connects and sends garbage.
    RogueClient,
}

impl ChaosKind {
    /// Every kind, with its name and the part of the scenario that it belongs to.
    const ALL: [(&'static str, ChaosKind, Part); 14] = [
        ("resets", ChaosKind::Reset, Part::Cuts),
        ("amnesias", ChaosKind::ConnectionStateLoss, Part::Cuts),
        ("half-closes", ChaosKind::HalfClose, Part::Cuts),
        ("blackholes", ChaosKind::Blackhole, Part::Blackholes),
        ("isolations", ChaosKind::Isolation, Part::Blackholes),
        ("throttles", ChaosKind::Throttle, Part::Blackholes),
        ("deaths", ChaosKind::Death, Part::Deaths),
        ("silent deaths", ChaosKind::SilentDeath, Part::Deaths),
        ("farewells", ChaosKind::Shutdown, Part::Deaths),
        ("stalls", ChaosKind::Stall, Part::Stalls),
        ("drains", ChaosKind::Drain, Part::Crashes),
        ("crashes", ChaosKind::Crash, Part::Crashes),
        ("power losses", ChaosKind::PowerLoss, Part::PowerLoss),
        ("strangers", ChaosKind::RogueClient, Part::RogueClients),
    ];

    pub(crate) fn name(self) -> &'static str {
        let found = ChaosKind::ALL.iter().find(|(_, kind, _)| *kind == self);
        found.map(|(name, ..)| *name).expect("every kind is listed")
    }

    pub(crate) fn by_name(name: &str) -> Option<ChaosKind> {
        ChaosKind::ALL.iter().find(|(known, ..)| *known == name).map(|(_, kind, _)| *kind)
    }
}

/// Half of all kinds, or a single one.
pub(super) fn generate_kinds(prng: &mut Prng, options: &Options) -> Vec<ChaosKind> {
    let single = prng.chance(1, 3).then(|| prng.below(ChaosKind::ALL.len() as u64) as usize);
    let selected: Vec<bool> = ChaosKind::ALL.iter().map(|_| prng.chance(1, 2)).collect();
    let is_selected = |place: usize| single.map_or(selected[place], |single| single == place);
    let kinds =
        ChaosKind::ALL.iter().enumerate().filter(|(place, (_, _, part))| is_selected(*place) && options.has(*part));
    kinds.map(|(_, (_, kind, _))| *kind).collect()
}

impl NetworkRun<'_> {
    /// Injects one fault.
    pub(super) fn inject_fault(&mut self) {
        let Some(&kind) = self.chaos_prng.pick(&self.simulation.chaos) else { return };
        let now = self.now;
        let name = kind.name();
        self.faults += 1;
        self.hash.mix(kind as u64 + 1);
        let host = self.chaos_prng.below(self.hosts.len() as u64) as usize;
        let most = one_of(&mut self.chaos_prng, &HOLD_NS_MAX);
        let until = now + Duration(self.random_below(most));
        match kind {
            ChaosKind::Reset | ChaosKind::HalfClose | ChaosKind::Blackhole | ChaosKind::Throttle => {
                self.inject_link_fault(kind, until);
            }
            ChaosKind::Isolation => {
                for link in self.links.values_mut() {
                    if matches!(link.owner, Owner::Host { host: of, .. } if of == host) {
                        link.up.hold_until(until);
                        link.down.hold_until(until);
                    }
                }
                self.hosts[host].disturb(until + AFTERMATH);
                self.trace.log(now, || format!("host {host} is isolated until {until}"));
            }
            ChaosKind::ConnectionStateLoss => {
                // Prefer a host with commands in flight.
                let works = |host: &usize| matches!(self.hosts[*host].stage, Stage::Working);
                let working: Vec<usize> = (0..self.hosts.len()).filter(works).collect();
                let host = self.chaos_prng.pick(&working).copied().unwrap_or(host);
                // The target is notified when the host may have reconnected long ago; bytes that
                // the host sends before it is notified arrive late, too.
                let left = 200_000_000 + self.random_below(HOLD_NS_MAX[3]);
                let until = now + Duration(left);
                let notified = Duration(self.chaos_prng.below(30_000_000));
                for link in self.links.values_mut() {
                    if let Owner::Host { host: of, queue, .. } = link.owner
                        && of == host
                    {
                        // Once the admin queue is closed, the target would discard the bytes of the
                        // others.
                        let late = Duration(notified.0 + self.chaos_prng.below(left - notified.0 + 1));
                        link.up.hold_until(if queue == QueueId::ADMIN { until } else { now + late });
                        link.is_mute = true;
                        link.reset(now + notified, until);
                    }
                }
                self.hosts[host].disturb(until + AFTERMATH);
                self.trace
                    .log(now, || format!("connection state of host {host} is lost, the target is notified at {until}"));
            }
            ChaosKind::Death | ChaosKind::SilentDeath => {
                // Without a keep alive timeout, the target would never notice.
                let is_silent =
                    kind == ChaosKind::SilentDeath && self.simulation.hosts[host].config.keep_alive.is_some();
                self.kill_host(host, is_silent, until);
            }
            ChaosKind::Shutdown => self.shut_down_host(host),
            ChaosKind::Stall => {
                // Some do not read again until all faults end.
                let until = if self.chaos_prng.chance(1, 3) { FOREVER } else { until };
                self.hosts[host].stalled_until = until;
                self.hosts[host].disturb(until + AFTERMATH);
                self.trace.log(now, || format!("host {host} stops reading until {until}"));
            }
            ChaosKind::Drain => self.drain_server(),
            ChaosKind::Crash | ChaosKind::PowerLoss => self.kill_server(kind == ChaosKind::PowerLoss, until),
            ChaosKind::RogueClient => {
                let script = Script::generate(&mut self.chaos_prng, &self.captured);
                self.trace.log(now, || "a rogue client connects".to_owned());
                self.open_rogue_clients(&script, until);
            }
        }
        self.trace.log(now, || format!("  ({name})"));
    }

    fn inject_link_fault(&mut self, kind: ChaosKind, until: Instant) {
        let links: Vec<u64> = self.links.iter().filter(|(_, link)| link.host_end).map(|(id, _)| *id).collect();
        let Some(&id) = self.chaos_prng.pick(&links) else { return };
        let now = self.now;
        let (one, other) = (self.random_below(RESET_NS_MAX), self.random_below(RESET_NS_MAX));
        let direction = self.chaos_prng.below(3);
        let rate = 20_000 + self.random_below(500_000);
        let link = self.links.get_mut(&id).expect("it was chosen from the existing links");
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
                // Until all faults end, or the connection is closed.
                excused_until = FOREVER;
                link.up.throttle(rate);
                link.down.throttle(rate);
            }
        }
        if let Owner::Host { host, queue, .. } = link.owner {
            self.hosts[host].disturb(excused_until);
            self.trace.log(now, || format!("{queue} of host {host} is affected"));
        }
    }

    pub(super) fn random_below(&mut self, most: u64) -> u64 {
        self.chaos_prng.below(most)
    }
}
