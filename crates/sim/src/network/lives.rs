//! Hosts and servers that die and come back, and the end of all that.

use zonda_zoned::{Duration, Instant};

use super::chaos::AFTERMATH;
use super::host::{Host, Stage};
use super::link::Owner;
use super::run::{EVER, NetworkRun};

/// The longest that a server stays down.
const OUTAGE_NS_MAX: u64 = 3_000_000_000;

impl NetworkRun<'_> {
    /// A host's process ends, or its machine.
    pub(super) fn kill_host(&mut self, index: usize, is_silent: bool, back_at: Instant) {
        self.with_host(index, Host::forget_connections);
        let host = &mut self.hosts[index];
        host.machine = None;
        host.stage = Stage::Down;
        host.wake_at = Some(back_at);
        host.disturb(self.now + AFTERMATH);
        for link in self.links.values_mut() {
            if matches!(link.owner, Owner::Host { host, .. } if host == index) && link.host_end {
                link.up.forget_waiting();
                if is_silent {
                    link.host_dies();
                } else {
                    link.host_closes();
                }
            }
        }
        let how = if is_silent { " without a word" } else { "" };
        self.teller.tell(self.now, || format!("host {index} dies{how}, until {back_at}"));
    }

    /// A host takes its leave, and a new one comes.
    pub(super) fn dismiss_host(&mut self, index: usize) {
        let now = self.now;
        if let Some(machine) = self.hosts[index].machine.as_mut() {
            machine.shut_down(now);
            self.host_effects(index);
        }
        self.kill_host(index, false, now + Duration(1));
    }

    /// The server dies, with its drives' power or without.
    pub(super) fn kill_server(&mut self, loses_power: bool, until: Instant) {
        let now = self.now;
        let up_at = Instant(until.0.min(now.0 + 1 + self.draw_below(OUTAGE_NS_MAX)));
        self.server.die(self.world, loses_power, up_at, &mut self.chaos_prng);
        // A process that dies takes its connections along at once; of a machine nobody hears.
        let is_silent = loses_power && self.chaos_prng.chance(1, 2);
        for link in self.links.values_mut() {
            link.connection = None;
            link.is_paused = false;
            link.target_reset_at = None;
            link.down.forget_waiting();
            if !is_silent {
                let late = self.chaos_prng.below(50_000_000);
                link.reset(now + Duration(late), now);
            } else {
                link.down.clear();
            }
        }
        for host in &mut self.hosts {
            // Who has nothing to say notices only when he does.
            host.disturb(Instant(up_at.0.max(now.0)) + AFTERMATH);
            if loses_power {
                host.power_is_lost();
            }
        }
        self.sharing_server_ends();
        let what = if loses_power { "the power goes" } else { "the server dies" };
        self.teller.tell(now, || format!("{what}, until {up_at}"));
    }

    fn sharing_server_ends(&mut self) {
        if let Some(sharing) = &mut self.sharing {
            sharing.server_ends();
        }
        self.calm_sharing();
    }

    /// The server ends what is under way, closes every connection, and starts again.
    pub(super) fn drain_server(&mut self) {
        let now = self.now;
        let Some(target) = &mut self.server.target else { return };
        target.drain(now);
        self.server.is_draining = true;
        self.hosts.iter_mut().for_each(|host| host.disturb(EVER));
        self.teller.tell(now, || "the server drains".to_owned());
    }

    /// A server that has drained starts again.
    pub(super) fn restart_drained(&mut self) {
        let Some(target) = self.server.target.as_ref().filter(|target| target.is_drained()) else { return };
        assert_eq!(target.statistics().connections, 0, "a server that has drained has closed every connection");
        let up_at = self.now + Duration(1 + self.draw_below(OUTAGE_NS_MAX / 10));
        self.server.go_down(up_at);
        self.sharing_server_ends();
        for host in &mut self.hosts {
            host.disturbed_until = up_at + AFTERMATH;
        }
        self.teller.tell(self.now, || format!("the server has drained, and starts again at {up_at}"));
    }

    /// The world stops doing things, and takes back what it holds.
    pub(super) fn heal(&mut self) {
        let now = self.now;
        self.healed_at = Some(now);
        for link in self.links.values_mut() {
            link.up.heal(now);
            link.down.heal(now);
        }
        for host in &mut self.hosts {
            host.stalled_until = host.stalled_until.min(now);
            if !self.server.is_draining {
                host.disturbed_until = host.disturbed_until.min(now + AFTERMATH);
            }
            if matches!(host.stage, Stage::Down) {
                host.wake_at = host.wake_at.map(|at| at.min(now));
            }
        }
        if let Some(at) = &mut self.server.up_at {
            *at = (*at).min(now);
        }
        self.close_strangers(Instant(u64::MAX));
        self.calm_sharing();
        self.teller.tell(now, || "everything is healed".to_owned());
    }
}
