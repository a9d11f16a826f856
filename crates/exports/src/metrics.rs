//! A snapshot in the format of Prometheus (OpenMetrics text, version 1.0).

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use zonda_devices::{VolumeReport, VolumeState};

use crate::LATENCY_BOUNDS_NS;
use crate::pool_metrics::pools;
use crate::snapshot::{CommandSnapshot, LifeSnapshot, NamespaceSnapshot, NbdRequestSnapshot, NbdSnapshot, Snapshot};

/// The media type of [`metrics_text`].
pub const METRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An exemplar has none.
type NoLabels = [(&'static str, &'static str); 0];
/// Names and values of labels.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Renders a snapshot in the text format of Prometheus.
#[must_use]
pub fn metrics_text(snapshot: &Snapshot) -> String {
    let mut registry = Registry::with_prefix("zonda");
    registry.register_collector(Box::new(SnapshotCollector(snapshot.clone())));
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string succeeds");
    text
}

#[derive(Debug)]
struct SnapshotCollector(Snapshot);

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let snapshot = &self.0;
        let to = &mut encoder;
        let uptime = snapshot.uptime_ns as f64 / 1e9;
        gauge(to, "uptime", "Time since the server started", Some(&Unit::Seconds), [(vec![], uptime)])?;
        gauge(to, "connections", "Open connections of hosts", None, [(vec![], snapshot.connections as f64)])?;
        let memory = &snapshot.memory;
        let bytes = Some(&Unit::Bytes);
        gauge(
            to,
            "memory_budget",
            "Memory budget for the data of all connections",
            bytes,
            [(vec![], memory.budget_bytes as f64)],
        )?;
        gauge(
            to,
            "memory_used",
            "Memory in use for the data of connections",
            bytes,
            [(vec![], memory.used_bytes as f64)],
        )?;
        let traffic = &snapshot.traffic;
        let counts = [
            ("connections_accepted", "Connections accepted", None, traffic.connections_accepted),
            ("connections_refused", "Connections refused", None, traffic.connections_refused),
            ("protocol_errors", "Connections closed for a protocol error", None, traffic.protocol_errors),
            ("authentication_failures", "Hosts that failed to authenticate", None, traffic.authentication_failures),
            ("memory_waits", "Requests that waited for memory", None, snapshot.memory.waits),
            ("received", "Bytes received from hosts", Some(&Unit::Bytes), traffic.received_bytes),
            ("sent", "Bytes sent to hosts", Some(&Unit::Bytes), traffic.sent_bytes),
        ];
        for (name, help, unit, count) in counts {
            counter(to, name, help, unit, [(vec![], count)])?;
        }
        let sessions = snapshot.subsystems.iter();
        let sessions = sessions.map(|subsystem| (vec![("nqn", &*subsystem.nqn)], subsystem.sessions.len() as f64));
        gauge(to, "sessions", "Controllers in use by hosts", None, sessions)?;
        namespaces(snapshot, to)?;
        volumes(snapshot, to)?;
        pools(snapshot, to)?;
        commands(snapshot, to)?;
        snapshot.nbd.as_ref().map_or(Ok(()), |nbd| exports(nbd, to))
    }
}

/// Each namespace with its labels.
fn each(snapshot: &Snapshot) -> Vec<(Labels<'_>, String, &NamespaceSnapshot)> {
    let namespaces = snapshot.subsystems.iter().flat_map(|subsystem| {
        let nqn = subsystem.nqn.as_str();
        subsystem.namespaces.iter().map(move |namespace| (vec![("nqn", nqn)], namespace.id.to_string(), namespace))
    });
    namespaces.collect()
}

fn with<'a>(labels: &Labels<'a>, namespace: &'a str, more: &[(&'static str, &'a str)]) -> Labels<'a> {
    let mut all = labels.clone();
    all.push(("namespace", namespace));
    all.extend_from_slice(more);
    all
}

fn namespaces(snapshot: &Snapshot, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let all = each(snapshot);
    let states = all.iter().flat_map(|(labels, id, namespace)| {
        let states = namespace.zones_by_state.iter();
        states.map(|state| (with(labels, id, &[("state", &state.state)]), f64::from(state.zones)))
    });
    gauge(to, "zones", "Zones in each state", None, states)?;
    let states = all.iter().flat_map(|(labels, id, namespace)| {
        let states = namespace.elements.iter().flat_map(|elements| {
            elements.by_state().map(|(state, count)| (elements.policy.as_str(), state, count as f64))
        });
        states.map(|(policy, state, count)| (with(labels, id, &[("policy", policy), ("state", state)]), count))
    });
    gauge(to, "elements", "Storage elements in each state", None, states)?;
    type Figure = fn(&NamespaceSnapshot) -> Option<f64>;
    let gauges: [(&str, &str, Option<&Unit>, Figure); 14] = [
        ("active_zones", "Zones that hold an active resource", None, |n| Some(f64::from(n.active_zones))),
        ("active_zones_max", "Limit on active zones", None, |n| n.max_active_zones.map(f64::from)),
        ("open_zones", "Zones that hold an open resource", None, |n| Some(f64::from(n.open_zones))),
        ("written", "Bytes below write pointers", Some(&Unit::Bytes), |n| Some(n.written_bytes as f64)),
        ("outstanding_commands", "Commands outstanding at the drive", None, |n| Some(n.outstanding as f64)),
        ("no_space", "Whether the file system of the image is full: 1 or 0", None, |n| {
            Some(f64::from(u8::from(n.space?.is_full)))
        }),
        ("dlwa", "Device-level write amplification over the life of the drive", None, |n| Some(n.life.as_ref()?.dlwa)),
        ("zone_erases_min", "Erases of the zone with the fewest", None, |n| Some(wear_of_zones(n)?.erases_min as f64)),
        ("zone_erases_mean", "Mean erases of a zone", None, |n| Some(wear_of_zones(n)?.erases_mean)),
        ("zone_erases_max", "Erases of the zone with the most", None, |n| Some(wear_of_zones(n)?.erases_max as f64)),
        ("element_erases_min", "Erases of the storage element with the fewest", None, |n| {
            Some(wear_of_elements(n)?.erases_min as f64)
        }),
        ("element_erases_mean", "Mean erases of a storage element", None, |n| Some(wear_of_elements(n)?.erases_mean)),
        ("element_erases_max", "Erases of the storage element with the most", None, |n| {
            Some(wear_of_elements(n)?.erases_max as f64)
        }),
        ("element_mapping", "Size of the mapping from zones to storage elements", Some(&Unit::Bytes), |n| {
            Some(n.elements.as_ref()?.mapping_bytes as f64)
        }),
    ];
    for (name, help, unit, figure) in gauges {
        let points = all.iter().filter_map(|(labels, id, n)| Some((with(labels, id, &[]), figure(n)?)));
        gauge(to, name, help, unit, points)?;
    }
    type Count = fn(&NamespaceSnapshot) -> Option<u64>;
    let counts: [(&str, &str, Option<&Unit>, Count); 7] = [
        ("media_errors", "Media errors of the drive", None, |n| Some(n.media_errors)),
        ("no_space_errors", "File operations of an image that failed with no space left", None, |n| {
            Some(n.space?.failures)
        }),
        ("life_host_write", "Bytes written by hosts over the life of the drive", Some(&Unit::Bytes), |n| {
            Some(n.life.as_ref()?.host_write_bytes)
        }),
        ("life_device_write", "Bytes written by the drive itself over its life", Some(&Unit::Bytes), |n| {
            Some(n.life.as_ref()?.device_write_bytes)
        }),
        ("life_host_read", "Bytes read by hosts over the life of the drive", Some(&Unit::Bytes), |n| {
            Some(n.life.as_ref()?.host_read_bytes)
        }),
        ("life_zone_resets", "Zone resets over the life of the drive", None, |n| Some(n.life.as_ref()?.zone_resets)),
        ("life_element_erases", "Erases of all storage elements over the life of the drive", None, |n| {
            Some(n.elements.as_ref()?.erases_total)
        }),
    ];
    for (name, help, unit, count) in counts {
        let points = all.iter().filter_map(|(labels, id, n)| Some((with(labels, id, &[]), count(n)?)));
        counter(to, name, help, unit, points)?;
    }
    let errors = all.iter().flat_map(|(labels, id, namespace)| {
        let errors = namespace.errors.iter();
        errors.map(|error| (with(labels, id, &[("status", &error.status)]), error.count))
    });
    counter(to, "command_errors", "Commands that failed", None, errors)
}

fn left(progress: Option<zonda_devices::Progress>) -> Option<f64> {
    progress.map(|progress| f64::from(progress.all.saturating_sub(progress.done)))
}

/// Redundant volumes.
fn volumes(snapshot: &Snapshot, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let all = each(snapshot);
    let members = all.iter().flat_map(|(labels, id, namespace)| {
        let members = namespace.volume.iter().flat_map(|volume| &volume.members);
        members.map(|member| (with(labels, id, &[("at", &member.at), ("state", &member.state)]), 1.0))
    });
    gauge(to, "volume_member", "Members of volumes, with their states: always 1", None, members)?;
    type Figure = fn(&VolumeReport) -> Option<f64>;
    let gauges: [(&str, &str, Option<&Unit>, Figure); 10] = [
        ("volume_can_lose", "Members that the volume can currently lose without data loss", None, |v| {
            Some(f64::from(v.can_lose))
        }),
        ("volume_size", "Size of the volume", Some(&Unit::Bytes), |v| Some(v.volume_bytes as f64)),
        ("volume_room", "Usable capacity of the members", Some(&Unit::Bytes), |v| Some(v.room_bytes as f64)),
        ("volume_live", "Live data", Some(&Unit::Bytes), |v| Some(v.live_bytes as f64)),
        ("volume_free_segments", "Free segments", None, |v| Some(f64::from(v.free_segments))),
        ("volume_degraded_segments", "Segments with a missing member", None, |v| Some(f64::from(v.degraded_segments))),
        ("volume_lost_blocks", "Lost blocks, whose reads fail", None, |v| Some(v.lost_blocks as f64)),
        ("volume_suspended", "Whether I/O is suspended until a member returns: 1 or 0", None, |v| {
            let waits = v.members.iter().any(|member| member.suspended.is_some());
            Some(f64::from(u8::from(waits || v.state == VolumeState::Suspended)))
        }),
        ("volume_rebuild_segments_left", "Segments left to rebuild", None, |v| left(v.rebuild)),
        ("volume_scrub_segments_left", "Segments left to scrub", None, |v| left(v.scrub)),
    ];
    for (name, help, unit, figure) in gauges {
        let points =
            all.iter().filter_map(|(labels, id, n)| Some((with(labels, id, &[]), figure(n.volume.as_ref()?)?)));
        gauge(to, name, help, unit, points)?;
    }
    type Count = fn(&VolumeReport) -> u64;
    let counts: [(&str, &str, Option<&Unit>, Count); 5] = [
        ("volume_host_write", "Bytes written by hosts", Some(&Unit::Bytes), |v| v.host_write_bytes),
        ("volume_member_write", "Bytes written to members", Some(&Unit::Bytes), |v| v.member_write_bytes),
        ("volume_relocated", "Bytes relocated by garbage collection", Some(&Unit::Bytes), |v| v.relocated_bytes),
        ("volume_reconstructed_blocks", "Blocks reconstructed from the rest of their stripe", None, |v| {
            v.reconstructed_blocks
        }),
        ("volume_repaired_blocks", "Damaged blocks of members that were repaired", None, |v| v.repaired_blocks),
    ];
    for (name, help, unit, count) in counts {
        let points = all.iter().filter_map(|(labels, id, n)| Some((with(labels, id, &[]), count(n.volume.as_ref()?))));
        counter(to, name, help, unit, points)?;
    }
    Ok(())
}

/// Counters of a drive that counts erases per zone.
fn wear_of_zones(namespace: &NamespaceSnapshot) -> Option<&LifeSnapshot> {
    namespace.life.as_ref().filter(|_| namespace.elements.is_none())
}

/// Counters of a drive that counts erases per storage element.
fn wear_of_elements(namespace: &NamespaceSnapshot) -> Option<&LifeSnapshot> {
    namespace.life.as_ref().filter(|_| namespace.elements.is_some())
}

fn commands(snapshot: &Snapshot, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let all = each(snapshot);
    let by_kind = || {
        all.iter().flat_map(|(labels, id, namespace)| {
            let commands = namespace.commands.iter();
            commands.map(|command| (with(labels, id, &[("kind", &command.kind)]), command))
        })
    };
    let counts = by_kind().map(|(labels, command)| (labels, command.count));
    counter(to, "commands", "Commands that succeeded", None, counts)?;
    let bytes = by_kind().map(|(labels, command)| (labels, command.bytes));
    counter(to, "command", "Bytes transferred by commands", Some(&Unit::Bytes), bytes)?;
    let help = "Latency of commands, from submission to the drive to completion";
    let mut family = to.encode_descriptor("command_latency", help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for (labels, command) in by_kind() {
        let buckets = buckets(command);
        let mut metric = family.encode_family(&labels)?;
        metric.encode_histogram::<NoLabels>(command.latency_sum_ns as f64 / 1e9, command.count, &buckets, None)?;
    }
    Ok(())
}

fn exports(nbd: &NbdSnapshot, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
    gauge(to, "nbd_connections", "Open connections of NBD clients", None, [(vec![], nbd.connections as f64)])?;
    let counts = [
        ("nbd_connections_accepted", "NBD connections accepted", None, nbd.connections_accepted),
        ("nbd_connections_refused", "NBD connections refused", None, nbd.connections_refused),
        ("nbd_handshake_timeouts", "NBD connections whose handshake timed out", None, nbd.handshake_timeouts),
        ("nbd_stalled", "NBD connections closed because the client received nothing", None, nbd.stalled),
        ("nbd_protocol_errors", "NBD connections closed for a protocol error", None, nbd.protocol_errors),
        ("nbd_tls_failures", "NBD connections whose TLS failed", None, nbd.tls_failures),
        ("nbd_received", "Bytes received from NBD clients", Some(&Unit::Bytes), nbd.received_bytes),
        ("nbd_sent", "Bytes sent to NBD clients", Some(&Unit::Bytes), nbd.sent_bytes),
    ];
    for (name, help, unit, count) in counts {
        counter(to, name, help, unit, [(vec![], count)])?;
    }
    let tables: Vec<String> = nbd.exports.iter().map(|export| export.table.to_string()).collect();
    let each = || {
        nbd.exports
            .iter()
            .zip(&tables)
            .map(|(export, table)| (vec![("table", &**table), ("export", &*export.name)], export))
    };
    let users = each().map(|(labels, export)| (labels, export.connections as f64));
    gauge(to, "nbd_export_connections", "Clients connected to an export", None, users)?;
    type Count = fn(&NbdRequestSnapshot) -> u64;
    let counts: [(&str, &str, Option<&Unit>, Count); 3] = [
        ("nbd_requests", "Requests completed", None, |request| request.count),
        ("nbd_request_errors", "Requests completed with an error", None, |request| request.errors),
        ("nbd_request", "Bytes covered by successful requests", Some(&Unit::Bytes), |request| request.bytes),
    ];
    for (name, help, unit, count) in counts {
        let points = each().flat_map(|(labels, export)| {
            let kinds = export.requests.iter();
            kinds.map(move |request| ([&labels[..], &[("kind", &*request.kind)]].concat(), count(request)))
        });
        counter(to, name, help, unit, points)?;
    }
    Ok(())
}

/// Upper bounds in seconds, and the count of each bucket alone: the encoder accumulates them.
fn buckets(command: &CommandSnapshot) -> Vec<(f64, u64)> {
    let bounds = LATENCY_BOUNDS_NS.iter().map(|bound| *bound as f64 / 1e9).chain([f64::INFINITY]);
    bounds.zip(command.latency_counts.iter().copied()).collect()
}

pub(crate) fn gauge<'a>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    points: impl IntoIterator<Item = (Labels<'a>, f64)>,
) -> fmt::Result {
    let mut family = to.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    for (labels, value) in points {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

pub(crate) fn counter<'a>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    points: impl IntoIterator<Item = (Labels<'a>, u64)>,
) -> fmt::Result {
    let mut family = to.encode_descriptor(name, help, unit, MetricType::Counter)?;
    for (labels, value) in points {
        ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use zonda_devices::MemberSummary;

    use super::*;
    use crate::snapshot::{ElementsSnapshot, NbdExportSnapshot, SpaceSnapshot, SubsystemSnapshot, Traffic};

    fn text_of(namespace: NamespaceSnapshot) -> String {
        let subsystem = SubsystemSnapshot { nqn: "nqn.a".to_owned(), sessions: vec![], namespaces: vec![namespace] };
        metrics_text(&Snapshot { subsystems: vec![subsystem], ..Default::default() })
    }

    #[test]
    fn erases_are_those_of_zones_or_of_their_storage_elements() {
        let life = LifeSnapshot { erases_min: 2, erases_max: 5, erases_mean: 3.5, ..Default::default() };
        let fixed = NamespaceSnapshot { id: 1, life: Some(life), ..Default::default() };
        let elements = ElementsSnapshot {
            policy: "block".to_owned(),
            count: 8,
            invalid: 3,
            erases_total: 28,
            ..Default::default()
        };
        let flexible = NamespaceSnapshot { elements: Some(elements), ..fixed.clone() };
        let labels = "nqn=\"nqn.a\",namespace=\"1\"";
        let (fixed, flexible) = (text_of(fixed), text_of(flexible));
        assert!(fixed.contains(&format!("zonda_zone_erases_max{{{labels}}} 5.0\n")), "{fixed}");
        assert!(!fixed.contains("zonda_element_erases_max{") && !fixed.contains("zonda_elements{"), "{fixed}");
        for line in [
            format!("zonda_elements{{{labels},policy=\"block\",state=\"invalid\"}} 3.0\n"),
            format!("zonda_element_erases_min{{{labels}}} 2.0\n"),
            format!("zonda_element_erases_mean{{{labels}}} 3.5\n"),
            format!("zonda_life_element_erases_total{{{labels}}} 28\n"),
        ] {
            assert!(flexible.contains(&line), "no {line} in\n{flexible}");
        }
        assert!(!flexible.contains("zonda_zone_erases_max{"), "{flexible}");
    }

    #[test]
    fn a_full_file_system_is_a_gauge_and_failed_operations_are_a_counter() {
        let image = |is_full| {
            let space = Some(SpaceSnapshot { is_full, failures: 17 });
            text_of(NamespaceSnapshot { id: 1, space, media_errors: 3, ..Default::default() })
        };
        let labels = "nqn=\"nqn.a\",namespace=\"1\"";
        for (is_full, value) in [(true, "1.0"), (false, "0.0")] {
            let text = image(is_full);
            for line in [
                format!("zonda_no_space{{{labels}}} {value}\n"),
                format!("zonda_no_space_errors_total{{{labels}}} 17\n"),
                format!("zonda_media_errors_total{{{labels}}} 3\n"),
            ] {
                assert!(text.contains(&line), "no {line} in\n{text}");
            }
        }
        let memory = text_of(NamespaceSnapshot { id: 1, ..Default::default() });
        assert!(!memory.contains("zonda_no_space{"), "a drive in memory has none: {memory}");
    }

    #[test]
    fn losses_and_suspended_io_of_volumes_are_gauges() {
        let volume = |lost_blocks, reason: Option<&str>| {
            let member = MemberSummary { suspended: reason.map(str::to_owned), ..Default::default() };
            let volume = VolumeReport { lost_blocks, members: vec![member], ..Default::default() };
            text_of(NamespaceSnapshot { id: 1, volume: Some(volume), ..Default::default() })
        };
        let (healthy, bad) = (volume(0, None), volume(7, Some("does not respond")));
        let labels = "nqn=\"nqn.a\",namespace=\"1\"";
        for (text, lost, suspended) in [(&healthy, "0.0", "0.0"), (&bad, "7.0", "1.0")] {
            assert!(text.contains(&format!("zonda_volume_lost_blocks{{{labels}}} {lost}\n")), "{text}");
            assert!(text.contains(&format!("zonda_volume_suspended{{{labels}}} {suspended}\n")), "{text}");
        }
        assert!(healthy.contains("# TYPE zonda_volume_lost_blocks gauge\n"), "{healthy}");
    }

    #[test]
    fn exports_are_identified_by_table_and_name() {
        let export = |table, count| NbdExportSnapshot {
            table,
            name: "a".to_owned(),
            requests: vec![NbdRequestSnapshot { kind: "read".to_owned(), count, errors: 1, bytes: 4096 }],
            ..Default::default()
        };
        let nbd = NbdSnapshot { connections: 2, exports: vec![export(0, 5), export(1, 7)], ..Default::default() };
        let text = metrics_text(&Snapshot { nbd: Some(nbd), ..Default::default() });
        for line in [
            "zonda_nbd_connections{} 2.0\n",
            "zonda_nbd_requests_total{table=\"0\",export=\"a\",kind=\"read\"} 5\n",
            "zonda_nbd_requests_total{table=\"1\",export=\"a\",kind=\"read\"} 7\n",
            "zonda_nbd_request_bytes_total{table=\"1\",export=\"a\",kind=\"read\"} 4096\n",
        ] {
            assert!(text.contains(line), "no {line} in\n{text}");
        }
        assert!(!metrics_text(&Snapshot::default()).contains("nbd"), "no metrics without exports");
    }

    #[test]
    fn each_counter_of_connections_and_bytes_has_its_own_value() {
        let traffic = Traffic {
            connections_accepted: 11,
            connections_refused: 12,
            protocol_errors: 13,
            authentication_failures: 14,
            received_bytes: 15,
            sent_bytes: 16,
        };
        let nbd = NbdSnapshot {
            connections_accepted: 21,
            connections_refused: 22,
            handshake_timeouts: 23,
            stalled: 24,
            protocol_errors: 25,
            tls_failures: 26,
            received_bytes: 27,
            sent_bytes: 28,
            ..Default::default()
        };
        let text = metrics_text(&Snapshot { traffic, nbd: Some(nbd), ..Default::default() });
        for line in [
            "zonda_connections_accepted_total 11\n",
            "zonda_connections_refused_total 12\n",
            "zonda_protocol_errors_total 13\n",
            "zonda_authentication_failures_total 14\n",
            "zonda_received_bytes_total 15\n",
            "zonda_sent_bytes_total 16\n",
            "zonda_nbd_connections_accepted_total 21\n",
            "zonda_nbd_connections_refused_total 22\n",
            "zonda_nbd_handshake_timeouts_total 23\n",
            "zonda_nbd_stalled_total 24\n",
            "zonda_nbd_protocol_errors_total 25\n",
            "zonda_nbd_tls_failures_total 26\n",
            "zonda_nbd_received_bytes_total 27\n",
            "zonda_nbd_sent_bytes_total 28\n",
        ] {
            assert!(text.contains(line) || text.contains(&line.replace(' ', "{} ")), "no {line} in\n{text}");
        }
    }

    #[test]
    fn latency_buckets_are_cumulative() {
        let mut counts = vec![0; LATENCY_BOUNDS_NS.len() + 1];
        (counts[1], counts[22]) = (3, 2);
        let read = CommandSnapshot { kind: "read".to_owned(), count: 5, latency_counts: counts, ..Default::default() };
        let namespace = NamespaceSnapshot { id: 1, commands: vec![read], ..Default::default() };
        let text = text_of(namespace);
        let labels = "nqn=\"nqn.a\",namespace=\"1\",kind=\"read\"";
        for (bound, count) in [("0.000001", 0), ("0.000002", 3), ("10.0", 3), ("+Inf", 5)] {
            let line = format!("zonda_command_latency_seconds_bucket{{le=\"{bound}\",{labels}}} {count}\n");
            assert!(text.contains(&line), "no {line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
