//! Pools in the format of Prometheus: their state, and what each namespace has of the drive.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use zonda_devices::{PoolNamespaceReport, PoolReport};

use crate::metrics::{counter, gauge};
use crate::snapshot::Snapshot;

type Figure = fn(&PoolReport) -> f64;
type NamespaceFigure = fn(&PoolNamespaceReport) -> u32;

/// What is wrong with a pool, 0 or 1 each.
const STATES: [(&str, &str, Figure); 5] = [
    ("pool_disconnected", "Whether the connection to the drive is lost", |pool| is(pool.is_disconnected)),
    ("pool_taken_over", "Whether another server has taken the pool over", |pool| is(pool.is_taken_over)),
    ("pool_read_only", "Whether no change can be recorded any more", |pool| is(pool.is_read_only)),
    ("pool_no_space", "Whether writes fail because the drive has no space", |pool| is(pool.lacks_space)),
    ("pool_reopening", "Whether hosts wait until the pool is opened again", |pool| is(pool.is_reopening)),
];
const ZONES: [(&str, &str, Figure); 9] = [
    ("pool_log_copies", "Copies of the log that can be written, of two", |pool| pool.log_copies.into()),
    ("pool_essential_zones", "Active zones that suffice for the write bandwidth", |pool| pool.essential_zones.into()),
    ("pool_spare_zones", "Active zones beyond these", |pool| pool.spare_zones.into()),
    ("pool_usable_zones", "Zones of the drive that namespaces can have", |pool| pool.usable_zones as f64),
    ("pool_promised_zones", "Zones of the drive that namespaces are promised", |pool| pool.promised_zones as f64),
    ("pool_zones_in_groups", "Zones of the drive in stripe groups", |pool| pool.zones_in_groups.into()),
    ("pool_active_left", "Active zones that stripe groups could have at once", |pool| pool.active_left.into()),
    ("pool_zones_retired", "Zones of the drive that have failed", |pool| pool.zones_retired.into()),
    ("pool_zones_doubtful", "Zones that may be active after failed commands", |pool| pool.zones_doubtful.into()),
];
const OF_NAMESPACES: [(&str, &str, NamespaceFigure); 7] = [
    ("pool_essentials", "Active zones of the drive that are always there for a namespace", |own| own.essentials),
    ("pool_spares_own", "Spares of a namespace, with those that it has lent", |own| own.spares_own),
    ("pool_spares_lent", "Spares of a namespace that others have", |own| own.spares_lent),
    ("pool_spares_leased", "Spares of others that a namespace has", |own| own.spares_leased),
    ("pool_spares_used", "Spares in stripe groups of a namespace", |own| own.spares_used),
    ("pool_active_zones", "Active zones of a namespace", |own| own.active_zones),
    ("pool_waiting_zones", "Zones of a namespace whose writes wait for a stripe group", |own| own.waiting_zones),
];

fn is(applies: bool) -> f64 {
    f64::from(u8::from(applies))
}

/// The pools of a server, by their directories, and the namespaces of each, served or not.
pub(crate) fn pools(snapshot: &Snapshot, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let all = &snapshot.pools;
    for (name, help, figure) in STATES.into_iter().chain(ZONES) {
        gauge(to, name, help, None, all.iter().map(|pool| (vec![("pool", &*pool.path)], figure(&pool.report))))?;
    }
    let reclaimed = all.iter().map(|pool| (vec![("pool", &*pool.path)], pool.report.reclaimed_groups));
    counter(to, "pool_reclaimed_groups", "Stripe groups copied into narrower ones", None, reclaimed)?;
    let labelled = || {
        all.iter().flat_map(|pool| {
            let namespaces = pool.report.namespaces.iter();
            namespaces.map(|own| (vec![("pool", &*pool.path), ("name", &*own.name)], own))
        })
    };
    for (name, help, figure) in OF_NAMESPACES {
        gauge(to, name, help, None, labelled().map(|(labels, own)| (labels, figure(own).into())))?;
    }
    let written = labelled().map(|(labels, own)| (labels, own.written_bytes as f64));
    gauge(to, "pool_written", "Bytes below the write pointers of a namespace", Some(&Unit::Bytes), written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics_text;
    use crate::snapshot::PoolSnapshot;

    #[test]
    fn a_pool_has_its_state_and_the_shares_of_its_namespaces() {
        let own = PoolNamespaceReport { name: "db".to_owned(), spares_leased: 7, ..PoolNamespaceReport::default() };
        let report =
            PoolReport { is_disconnected: true, log_copies: 2, namespaces: vec![own], ..PoolReport::default() };
        let pool = PoolSnapshot { path: "pools/a".to_owned(), report, ..PoolSnapshot::default() };
        let text = metrics_text(&Snapshot { pools: vec![pool], ..Snapshot::default() });
        for line in [
            "zonda_pool_disconnected{pool=\"pools/a\"} 1.0\n",
            "zonda_pool_read_only{pool=\"pools/a\"} 0.0\n",
            "zonda_pool_log_copies{pool=\"pools/a\"} 2.0\n",
            "zonda_pool_reclaimed_groups_total{pool=\"pools/a\"} 0\n",
            "zonda_pool_spares_leased{pool=\"pools/a\",name=\"db\"} 7.0\n",
        ] {
            assert!(text.contains(line), "no {line} in\n{text}");
        }
    }
}
