//! [`Joined`]: the namespaces of a pool as one, for the load generator.

use std::collections::BTreeMap;

use zonda_elastic::{ElasticDevice, Pool};
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Namespaces, Operation, Outcome,
    QueueFull, ZoneTarget, ZonedDevice,
};

/// The namespaces of a pool as one namespace, which has their zones one behind the other: all of a
/// run's jobs share one queue, one clock and one record of the zones. Commands concern one zone. A store
/// has one of the namespaces to itself, with any command.
pub(crate) struct Joined<D> {
    pool: ElasticDevice<D>,
    namespaces: Namespaces,
    /// All namespaces of the pool.
    ids: Vec<NamespaceId>,
    parts: Vec<Part>,
    /// By which appends in flight are shifted.
    appends: BTreeMap<CommandId, Blocks>,
}

/// A namespace of the pool.
struct Part {
    id: NamespaceId,
    /// Its first block in the joined namespace.
    first: Lba,
}

impl<D: ZonedDevice> Joined<D> {
    /// These of the pool's namespaces `ids`, which have this geometry together.
    ///
    /// # Panics
    /// If there is no such namespace.
    pub(crate) fn new(
        pool: ElasticDevice<D>,
        ids: Vec<NamespaceId>,
        joined: &[NamespaceId],
        geometry: Geometry,
    ) -> Joined<D> {
        let mut first = Lba(0);
        let mut parts = Vec::new();
        for &id in joined {
            parts.push(Part { id, first });
            first = first + pool.geometry(id).namespace_blocks();
        }
        Joined { namespaces: Namespaces::single(geometry), pool, ids, parts, appends: BTreeMap::new() }
    }

    /// The pool.
    pub(crate) fn pool(&self) -> &Pool {
        self.pool.pool().expect("a pool with namespaces is open")
    }

    /// The device below the pool.
    pub(crate) fn drive(&self) -> &D {
        self.pool.drive()
    }

    /// The identifiers of all namespaces of the pool.
    pub(crate) fn ids(&self) -> impl Iterator<Item = NamespaceId> {
        self.ids.iter().copied()
    }

    fn part_of(&self, at: Lba) -> &Part {
        self.parts.iter().rfind(|part| part.first <= at).expect("the first namespace begins at block 0")
    }
}

/// The address that determines the namespace of a command.
fn address(operation: &mut Operation) -> &mut Lba {
    match operation {
        Operation::Read { start, .. }
        | Operation::Write { start, .. }
        | Operation::Append { zone_start: start, .. }
        | Operation::ManageZones { target: ZoneTarget::Zone(start), .. } => start,
        other => panic!("the load generator does not submit {} to a pool", other.name()),
    }
}

impl<D: ZonedDevice> ZonedDevice for Joined<D> {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    fn submit(&mut self, now: Instant, mut command: Command) -> Result<(), QueueFull> {
        if let [only] = &self.parts[..] {
            let own = std::mem::replace(&mut command.namespace, only.id);
            return self.pool.submit(now, command).map_err(|QueueFull(mut command)| {
                command.namespace = own;
                QueueFull(command)
            });
        }
        let at = address(&mut command.operation);
        let (namespace, first) = {
            let part = self.part_of(*at);
            (part.id, part.first)
        };
        *at = Lba(at.0 - first.0);
        let joined = std::mem::replace(&mut command.namespace, namespace);
        let (id, is_append) = (command.id, matches!(command.operation, Operation::Append { .. }));
        self.pool.submit(now, command).map_err(|QueueFull(mut command)| {
            let at = address(&mut command.operation);
            *at = Lba(at.0 + first.0);
            command.namespace = joined;
            QueueFull(command)
        })?;
        if is_append && first > Lba(0) {
            self.appends.insert(id, Blocks(first.0));
        }
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        let mut own = CompletionQueue::new();
        self.pool.poll(now, &mut own);
        while let Some(mut completion) = own.pop() {
            let shift = if self.appends.is_empty() { None } else { self.appends.remove(&completion.id) };
            if let (Some(shift), Outcome::Appended(at)) = (shift, &mut completion.outcome) {
                *at = *at + shift;
            }
            completions.push(completion);
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.pool.next_timeout()
    }
}
