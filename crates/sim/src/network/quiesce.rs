//! The end of a run: all hosts disconnect, and the target must release all their resources.

use zonda_zoned::{Instant, PayloadKind};

use super::run::NetworkRun;
use crate::check::quiescent;
use crate::observe::{CheckError, observe};
use crate::outcome::FailureKind;

/// Maximum number of events until the network is idle after all hosts have disconnected.
const EVENTS_MAX: u64 = 200_000;

impl NetworkRun<'_> {
    pub(super) fn quiesce(&mut self) -> Result<(), CheckError> {
        self.server.is_ending = true;
        for host in 0..self.hosts.len() {
            if let Some(machine) = self.hosts[host].machine.as_mut() {
                machine.shutdown(self.now);
            }
            self.host_effects(host);
            self.hosts[host].machine = None;
        }
        self.close_sharing()?;
        self.run_effects()?;
        let last = self.events + EVENTS_MAX;
        while self.advance()? {
            if self.events > last {
                return leak("events never cease, though all hosts have disconnected".to_owned());
            }
        }
        self.check_leaks()?;
        self.check_drives()?;
        self.trace.log(self.now, || "all hosts have disconnected, the drives match the oracles".to_owned());
        Ok(())
    }

    fn check_leaks(&mut self) -> Result<(), CheckError> {
        let target = self.server.target.as_ref().expect("the server was restarted");
        target.check_invariants();
        let statistics = target.statistics();
        let counts = [
            ("connections", statistics.connections),
            ("connections without a queue", statistics.half_open),
            ("controllers", statistics.controllers),
            ("commands at devices", statistics.commands_at_devices),
            ("sessions", target.sessions().len()),
            ("timers", usize::from(target.next_timeout().is_some())),
            ("connections in the network", self.links.len()),
        ];
        match counts.into_iter().find(|(_, count)| *count > 0) {
            Some((what, count)) => leak(format!("{count} {what} remain, though all hosts have disconnected")),
            None => Ok(()),
        }
    }

    /// Reads the drives directly: their state must be what the hosts have verified.
    fn check_drives(&mut self) -> Result<(), CheckError> {
        for place in 0..self.simulation.drives.len() {
            let mut device = self.server.drives[place].device();
            let (seen, now): (Vec<_>, Instant) = observe(&mut device, self.now, PayloadKind::Bytes)?;
            self.now = now;
            for (host, shape) in self.hosts.iter().zip(&self.simulation.hosts).filter(|(_, shape)| shape.drive == place)
            {
                let first = shape.window.first.as_usize();
                let own = &seen[first..first + shape.window.count as usize];
                let Some(model) = &host.model else { continue };
                quiescent::check(&model.oracle, own, PayloadKind::Bytes).map_err(|error| {
                    let message = format!("drive {place}, read directly: {}", error.message);
                    CheckError { message, ..error }.of_host(host.index)
                })?;
            }
        }
        Ok(())
    }
}

fn leak(message: String) -> Result<(), CheckError> {
    Err(CheckError::new(FailureKind::Leak, None, message))
}
