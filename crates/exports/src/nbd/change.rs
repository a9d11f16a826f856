//! Exports that come and go while clients use others.

use std::rc::Rc;

use zonda_nbd::Stage;
use zonda_ring::Address;
use zonda_target::DeviceKey;

use super::listen::{Listener, listen};
use super::service::{Nbd, Place};
use super::table::{Candidate, Table};
use crate::config::{NbdPlan, ServerPlan};
use crate::start::ServeError;

const RESTART: &str = "undo the change, or restart the server";

/// The `[[nbd]]` tables of a new plan, with everything that can fail done.
pub(crate) struct NbdChange {
    tables: Vec<NewTable>,
}

struct NewTable {
    /// The index of the table with these addresses in the old plan.
    from: Option<usize>,
    table: Table,
    /// Of a table with new addresses.
    listeners: Vec<Listener>,
    addresses: String,
}

/// For each table of the new plan, the one in the old plan with the same addresses.
///
/// # Errors
/// If an address would have to be closed and opened again.
pub(crate) fn compare(old: &ServerPlan, new: &ServerPlan) -> Result<Vec<Option<usize>>, ServeError> {
    if old.nbd.is_empty() && !new.nbd.is_empty() {
        return Err(ServeError::new(
            "[[nbd]] cannot be added to a server that was started without it: its memory budget has no share for NBD clients",
            RESTART,
        ));
    }
    let mut from: Vec<Option<usize>> = Vec::new();
    for table in &new.nbd {
        let is_same = |at: &usize| old.nbd[*at].listen == table.listen && !from.contains(&Some(*at));
        from.push((0..old.nbd.len()).find(is_same));
    }
    let is_removed = |at: &usize| !from.contains(&Some(*at));
    let mut removed = (0..old.nbd.len()).filter(is_removed).flat_map(|at| &old.nbd[at].listen);
    let added = || new.nbd.iter().zip(&from).filter(|(_, from)| from.is_none()).flat_map(|(table, _)| &table.listen);
    match removed.find(|address| added().any(|other| other == *address)) {
        None => Ok(from),
        Some(address) => Err(ServeError::new(
            format!("[[nbd]] listen: {address} cannot move to another table while the server runs"),
            RESTART,
        )),
    }
}

impl NbdChange {
    /// Builds the tables, and listens on new addresses.
    ///
    /// # Errors
    /// Of an export, or an address.
    pub(crate) fn prepare(
        plans: &[NbdPlan],
        from: &[Option<usize>],
        candidates: &[Candidate],
    ) -> Result<NbdChange, ServeError> {
        let mut tables = Vec::new();
        for (plan, from) in plans.iter().zip(from) {
            let table = Table::build(plan, candidates)?;
            let addresses: &[Address] = if from.is_none() { &plan.listen } else { &[] };
            let listeners = addresses.iter().map(listen).collect::<Result<_, _>>()?;
            let addresses: Vec<String> = plan.listen.iter().map(ToString::to_string).collect();
            tables.push(NewTable { from: *from, table, listeners, addresses: addresses.join(", ") });
        }
        Ok(NbdChange { tables })
    }
}

impl Nbd {
    /// Replaces the tables. Clients of removed exports get the replies to their requests in flight,
    /// and are disconnected. Returns the changes as text.
    pub(crate) fn change(&mut self, change: NbdChange) -> Vec<String> {
        let mut lines = Vec::new();
        let mut note = |verb: &str, names: Vec<String>, place: &str| {
            lines.extend(names.into_iter().map(|name| format!("NBD export {name:?} {verb} ({place})")));
        };
        let mut before: Vec<Option<Place>> = std::mem::take(&mut self.places).into_iter().map(Some).collect();
        let mut next_id = before.iter().flatten().map(|place| place.id + 1).max().unwrap_or(0).max(self.next_place());
        for NewTable { from, mut table, listeners, addresses } in change.tables {
            let earlier = from.and_then(|at| before[at].take());
            let id = match &earlier {
                Some(place) => {
                    let (added, removed) = table.succeed(&place.table);
                    note("removed", removed, &addresses);
                    note("added", added, &addresses);
                    place.id
                }
                None => {
                    note("added", table.names().cloned().collect(), &addresses);
                    next_id += 1;
                    next_id - 1
                }
            };
            listeners.into_iter().for_each(|listener| self.add_listener(id, listener));
            self.add_devices(&table);
            self.places.push(Place { id, table: Rc::new(table) });
        }
        for gone in before.into_iter().flatten() {
            let addresses = self.remove_listeners(gone.id);
            note("removed", gone.table.remove(), &addresses);
        }
        self.end_removed();
        // New exports have no access before it is determined.
        self.admission.reset();
        lines
    }

    /// The identifier of the next table: greater than those of all portals so far.
    fn next_place(&self) -> u32 {
        self.portals.iter().flatten().map(|portal| portal.place + 1).max().unwrap_or(0)
    }

    /// Closes the addresses of a table. Returns them.
    fn remove_listeners(&mut self, place: u32) -> String {
        let mut addresses = Vec::new();
        for (at, portal) in self.portals.iter_mut().enumerate() {
            if let Some(portal) = portal.take_if(|portal| portal.place == place) {
                self.sockets.remove_listener(at);
                addresses.push(portal.address.to_string());
            }
        }
        addresses.join(", ")
    }

    /// Ends the clients of removed exports and tables after their requests.
    fn end_removed(&mut self) {
        for (id, client) in &mut self.clients {
            let is_removed = match client.export() {
                Some(export) => export.is_removed.get(),
                None => {
                    let has_place = self.places.iter().any(|place| place.id == client.place);
                    client.machine.stage() == Stage::Handshake && !has_place
                }
            };
            if is_removed {
                client.machine.shutdown();
                self.dirty.push(*id);
            }
        }
    }

    /// Whether a client or a command in flight uses a drive.
    pub(crate) fn uses(&self, device: DeviceKey) -> bool {
        let uses = |client: &super::service::Client| client.export().is_some_and(|export| export.device == device);
        self.clients.values().any(uses) || self.work.uses(device)
    }

    /// A drive is closed: another one may get its key.
    pub(crate) fn forget(&mut self, device: DeviceKey) {
        self.work.remove_device(device);
        self.admission.forget(device);
    }
}
