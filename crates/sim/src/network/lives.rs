//! Kills and restarts of hosts and servers, and the end of all faults.

use zonda_zoned::{Duration, Instant};

use super::chaos::AFTERMATH;
use super::host::{Host, Stage};
use super::link::Owner;
use super::run::{FOREVER, NetworkRun};

/// Maximum time for which a server stays down.
const OUTAGE_NS_MAX: u64 = 3_000_000_000;

impl NetworkRun<'_> {
    /// Kills a host's process, or silently its machine.
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
        let how = if is_silent { "crashes" } else { "is killed" };
        self.trace.log(self.now, || format!("host {index} {how}, restart at {back_at}"));
    }

    /// Shuts a host down in order, and restarts it.
    pub(super) fn shut_down_host(&mut self, index: usize) {
        let now = self.now;
        if let Some(machine) = self.hosts[index].machine.as_mut() {
            machine.shutdown(now);
            self.host_effects(index);
        }
        self.kill_host(index, false, now + Duration(1));
    }

    /// Kills the server, or cuts the power of server and drives.
    pub(super) fn kill_server(&mut self, loses_power: bool, until: Instant) {
        let now = self.now;
        let up_at = Instant(until.0.min(now.0 + 1 + self.random_below(OUTAGE_NS_MAX)));
        self.server.kill(self.simulation, loses_power, up_at, &mut self.chaos_prng);
        // The kernel of a killed process resets its connections; a machine without power sends
        // nothing.
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
            // An idle host notices only when it sends the next command.
            host.disturb(Instant(up_at.0.max(now.0)) + AFTERMATH);
            if loses_power {
                host.note_power_loss();
            }
        }
        self.sharing_server_ends();
        let what = if loses_power { "power loss" } else { "the server is killed" };
        self.trace.log(now, || format!("{what}, restart at {up_at}"));
    }

    fn sharing_server_ends(&mut self) {
        if let Some(sharing) = &mut self.sharing {
            sharing.server_ends();
        }
        self.update_sharing_disturbance();
    }

    /// Drains the server: commands in flight complete, and every connection is closed.
    pub(super) fn drain_server(&mut self) {
        let now = self.now;
        let Some(target) = &mut self.server.target else { return };
        target.shutdown(now);
        self.server.is_draining = true;
        self.hosts.iter_mut().for_each(|host| host.disturb(FOREVER));
        self.trace.log(now, || "the server is draining".to_owned());
    }

    /// Restarts a drained server.
    pub(super) fn restart_drained(&mut self) {
        let Some(target) = self.server.target.as_ref().filter(|target| target.is_drained()) else { return };
        assert_eq!(target.statistics().connections, 0, "a drained server has closed every connection");
        let up_at = self.now + Duration(1 + self.random_below(OUTAGE_NS_MAX / 10));
        self.server.go_down(up_at);
        self.sharing_server_ends();
        for host in &mut self.hosts {
            host.disturbed_until = up_at + AFTERMATH;
        }
        self.trace.log(self.now, || format!("the server is drained, restart at {up_at}"));
    }

    /// Ends all faults.
    pub(super) fn end_faults(&mut self) {
        let now = self.now;
        self.faults_ended_at = Some(now);
        for link in self.links.values_mut() {
            link.up.end_faults(now);
            link.down.end_faults(now);
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
        self.close_rogue_clients(Instant(u64::MAX));
        self.update_sharing_disturbance();
        self.trace.log(now, || "all faults end".to_owned());
    }
}
