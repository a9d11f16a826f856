//! The end of a run: all hosts leave, and nothing of them may be left.

use zonda_zoned::{Instant, PayloadKind};

use super::run::NetworkRun;
use crate::check::quiet;
use crate::outcome::FailureKind;
use crate::survey::{Trouble, survey};

/// Events within which everything ends when all hosts have left.
const EVENTS_MAX: u64 = 200_000;

impl NetworkRun<'_> {
    pub(super) fn come_to_rest(&mut self) -> Result<(), Trouble> {
        self.server.is_ending = true;
        for host in 0..self.hosts.len() {
            if let Some(machine) = self.hosts[host].machine.as_mut() {
                machine.shut_down(self.now);
            }
            self.host_effects(host);
            self.hosts[host].machine = None;
        }
        self.dismiss_sharing()?;
        self.settle()?;
        let last = self.events + EVENTS_MAX;
        while self.advance()? {
            if self.events > last {
                return leak("something goes on for ever, though all hosts have left".to_owned());
            }
        }
        self.check_nothing_is_left()?;
        self.check_drives()?;
        self.teller.tell(self.now, || "all hosts have left, and everything is as it must be".to_owned());
        Ok(())
    }

    fn check_nothing_is_left(&mut self) -> Result<(), Trouble> {
        let target = self.server.target.as_ref().expect("it has come back");
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
            Some((what, count)) => leak(format!("{count} {what} are left, though all hosts have left")),
            None => Ok(()),
        }
    }

    /// Reads the drives without a network: what hosts were shown must be there.
    fn check_drives(&mut self) -> Result<(), Trouble> {
        for place in 0..self.world.drives.len() {
            let mut device = self.server.drives[place].device();
            let (seen, now): (Vec<_>, Instant) = survey(&mut device, self.now, PayloadKind::Bytes)?;
            self.now = now;
            for (host, shape) in self.hosts.iter().zip(&self.world.hosts).filter(|(_, shape)| shape.drive == place) {
                let first = shape.window.first.as_usize();
                let own = &seen[first..first + shape.window.count as usize];
                let Some(books) = &host.books else { continue };
                quiet::check(&books.oracle, own, PayloadKind::Bytes).map_err(|trouble| {
                    let message = format!("drive {place} itself: {}", trouble.message);
                    Trouble { message, ..trouble }.of_host(host.index)
                })?;
            }
        }
        Ok(())
    }
}

fn leak(message: String) -> Result<(), Trouble> {
    Err(Trouble::new(FailureKind::Leak, None, message))
}
