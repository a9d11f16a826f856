//! Namespaces as tenants of a scheduler below the pool.

use zonda_zoned::{NamespaceId, TenantId};

use super::Pool;

impl Pool {
    /// The tenant that sends the commands of a namespace to the drive. The pool's own commands, those
    /// of its log, are from [`TenantId::DEFAULT`]: no namespace has the number 0.
    #[must_use]
    pub fn tenant_of(namespace: NamespaceId) -> TenantId {
        // There are at most `NAMESPACES_MAX` namespaces, and the least free number is used.
        TenantId(namespace.0 as u16)
    }

    /// The tenants of the pool, and what part of the time of the drive each has, relative to that of
    /// others: for a scheduler below the pool. The log has as much as the greatest of the namespaces,
    /// because they wait for it.
    #[must_use]
    pub fn weights(&self) -> Vec<(TenantId, u32)> {
        let namespaces = self.namespaces.iter().map(|(id, own)| (NamespaceId(*id), own.record.weight));
        let mut weights: Vec<(TenantId, u32)> = namespaces.map(|(id, weight)| (Pool::tenant_of(id), weight)).collect();
        let most = weights.iter().map(|(_, weight)| *weight).max();
        weights.push((TenantId::DEFAULT, most.unwrap_or(1)));
        weights
    }
}
