//! [`InterferenceConfig`]: the parameters.

use std::sync::Arc;

use zonda_zoned::NamespaceId;

use crate::{EznsConfig, ZoneGroups};

/// The parameters of [`Interference`](super::Interference).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterferenceConfig {
    /// The conflict groups of zones. Without any, all requests are in one group.
    pub groups: Arc<ZoneGroups>,
    /// The namespace that they are about. Requests to others belong to no group.
    pub namespace: NamespaceId,
    /// The order inside a group.
    pub within: Within,
    /// Whether the table is checked against the latencies of reads.
    pub learns: bool,
}

/// The order of the requests of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Within {
    /// Tenants have equal turns, by their weights; requests of a tenant are released in the order of
    /// their arrival.
    #[default]
    Fair,
    /// As [`Ezns`](crate::Ezns): read windows and write tokens of each stream.
    Ezns(EznsConfig),
}

impl InterferenceConfig {
    /// The zones of the first namespace have these groups.
    #[must_use]
    pub fn new(groups: ZoneGroups) -> InterferenceConfig {
        InterferenceConfig {
            groups: Arc::new(groups),
            namespace: NamespaceId::FIRST,
            within: Within::Fair,
            learns: true,
        }
    }
}
