//! Servers for tests: two snapshots each, a second apart.

use zonda_devices::{
    MemberSummary, PoolGroupCount, PoolNamespaceReport, PoolReport, Progress, VolumeReport, VolumeState,
};
use zonda_exports::LATENCY_BOUNDS_NS;
use zonda_exports::snapshot::{
    CommandSnapshot, GrantsSnapshot, GroupSnapshot, LifeSnapshot, MemorySnapshot, NamespaceSnapshot, PoolPartSnapshot,
    PoolSnapshot, SchedulerSnapshot, Snapshot, SubsystemSnapshot, TableSnapshot, ZoneMapSnapshot,
};

const MIB: u64 = 1 << 20;

fn server(namespaces: Vec<NamespaceSnapshot>, pools: Vec<PoolSnapshot>) -> Snapshot {
    let subsystem = |namespace: NamespaceSnapshot| SubsystemSnapshot {
        nqn: format!("nqn.2026-01.io.zonda:{}", namespace.source.rsplit('/').next().unwrap_or_default()),
        sessions: Vec::new(),
        namespaces: vec![namespace],
    };
    Snapshot {
        format: 1,
        version: "0.1.0".to_owned(),
        pid: 4711,
        started_ticks: 90,
        uptime_ns: 191_000_000_000,
        connections: 3,
        memory: MemorySnapshot { budget_bytes: 1024 * MIB, used_bytes: 12 * MIB, waits: 0 },
        subsystems: namespaces.into_iter().map(subsystem).collect(),
        pools,
        ..Snapshot::default()
    }
}

/// The server a second before, when it had executed nothing.
fn before(now: &Snapshot) -> Snapshot {
    let mut before = now.clone();
    before.uptime_ns -= 1_000_000_000;
    for subsystem in &mut before.subsystems {
        subsystem.namespaces.iter_mut().for_each(|namespace| namespace.commands.clear());
    }
    before
}

/// Commands of one kind, with so many in each of some latency classes.
fn command(kind: &str, bytes_each: u64, classes: &[(usize, u64)]) -> CommandSnapshot {
    let mut latency_counts = vec![0; LATENCY_BOUNDS_NS.len() + 1];
    classes.iter().for_each(|(class, count)| latency_counts[*class] = *count);
    let count = classes.iter().map(|(_, count)| count).sum();
    CommandSnapshot { kind: kind.to_owned(), count, bytes: count * bytes_each, latency_counts, ..Default::default() }
}

/// Two served namespaces of a pool and one that is not served; the first has a scheduler.
pub(super) fn pool() -> (Snapshot, Snapshot) {
    let part = |name: &str| PoolPartSnapshot { path: "/srv/pool".to_owned(), name: name.to_owned() };
    let namespace = |name: &str, commands| NamespaceSnapshot {
        id: 1,
        source: format!("pool:{name}"),
        zones: 64,
        zone_capacity_bytes: 64 * MIB,
        written_bytes: 1024 * MIB,
        active_zones: 3,
        max_active_zones: Some(16),
        open_zones: 2,
        max_open_zones: Some(16),
        outstanding: 24,
        commands,
        pool: Some(part(name)),
        zone_maps: vec![ZoneMapSnapshot {
            zones: 64,
            zones_per_cell: 1,
            states: "f".repeat(12) + "iicxe" + &"e".repeat(47),
            fill: "8".repeat(12) + "52310" + &"0".repeat(47),
            ..ZoneMapSnapshot::default()
        }],
        ..NamespaceSnapshot::default()
    };
    let mut db = namespace(
        "db",
        vec![command("read", 4096, &[(5, 9_000), (6, 990), (9, 10)]), command("write", 16384, &[(4, 2_000)])],
    );
    db.scheduler = Some(SchedulerSnapshot {
        groups: Vec::new(),
        table: None,
        name: "ezns".to_owned(),
        waiting: 6,
        in_flight: 18,
        grants: Some(GrantsSnapshot {
            streams: 5,
            reads_in_flight: 16,
            read_window: 20,
            writes_in_flight: 2,
            write_tokens_bytes: 393_216,
        }),
    });
    let log = namespace("log", vec![command("write", 262_144, &[(9, 900), (11, 100)])]);
    let own = |id: u32, name: &str, spares: [u32; 4], groups: &[(u32, u32)]| PoolNamespaceReport {
        id,
        name: name.to_owned(),
        zones: 64,
        size_bytes: 4096 * MIB,
        written_bytes: 1024 * MIB,
        active_zones: 3,
        max_active_zones: 16,
        weight: if id == 1 { 2 } else { 1 },
        essentials: 32 * if id == 1 { 2 } else { 1 },
        spares_own: spares[0],
        spares_lent: spares[1],
        spares_leased: spares[2],
        spares_used: spares[3],
        writable_groups: groups
            .iter()
            .map(|(width, groups)| PoolGroupCount { width: *width, groups: *groups })
            .collect(),
        ..PoolNamespaceReport::default()
    };
    let namespaces = vec![
        own(1, "db", [64, 0, 16, 24], &[(16, 2), (8, 1)]),
        own(2, "log", [32, 0, 16, 12], &[(16, 1)]),
        own(3, "backup", [32, 32, 0, 0], &[]),
    ];
    let report = PoolReport {
        drive: "../drives/a".to_owned(),
        zones_per_vzone: 16,
        essential_zones: 128,
        spare_zones: 128,
        width_max: 16,
        usable_zones: 2016,
        promised_zones: 1920,
        zones_in_groups: 256,
        namespaces,
        ..PoolReport::default()
    };
    let states = "l".repeat(6) + &"f".repeat(192) + &"i".repeat(48) + &"v".repeat(16) + "tu" + &"e".repeat(248);
    let owners = (0..512).map(|zone| match zone {
        6..102 => 1,
        102..198 => {
            if zone % 3 == 0 {
                3
            } else {
                2
            }
        }
        198..230 => 1,
        230..246 => 2,
        _ => 0,
    });
    let fill = states
        .chars()
        .map(|state| {
            if matches!(state, 'f') {
                '8'
            } else if state == 'i' {
                '3'
            } else {
                '0'
            }
        })
        .collect();
    let zone_map =
        ZoneMapSnapshot { member: None, zones: 512, zones_per_cell: 1, states, fill, owners: owners.collect() };
    let pool = PoolSnapshot { path: "/srv/pool".to_owned(), report, zone_map: Some(zone_map) };
    let now = server(vec![db, log], vec![pool]);
    (before(&now), now)
}

/// A volume of four members that is being rebuilt.
pub(super) fn volume() -> (Snapshot, Snapshot) {
    let member = |number: u8, state: &str| MemberSummary {
        member: number,
        at: format!("../drives/{}", char::from(b'a' + number)),
        state: state.to_owned(),
        free_zones: 40,
        ..MemberSummary::default()
    };
    let volume = VolumeReport {
        mounted: true,
        name: "vol".to_owned(),
        scheme: "RAID 5 (3+1)".to_owned(),
        state: VolumeState::Rebuilding,
        can_lose: 0,
        members: vec![member(0, "active"), member(1, "active"), member(2, "rebuilding"), member(3, "active")],
        segments: 20,
        free_segments: 40,
        rebuild: Some(Progress { done: 5, all: 20 }),
        ..VolumeReport::default()
    };
    let map = |number| ZoneMapSnapshot {
        member: Some(number),
        zones: 64,
        zones_per_cell: 1,
        states: "f".repeat(18) + "ic" + &"e".repeat(44),
        fill: "8".repeat(18) + "42" + &"0".repeat(44),
        owners: Vec::new(),
    };
    let namespace = NamespaceSnapshot {
        id: 1,
        source: "vols/vol".to_owned(),
        zones: 48,
        zone_capacity_bytes: 64 * MIB,
        written_bytes: 900 * MIB,
        outstanding: 3,
        commands: vec![command("read", 65536, &[(9, 1_200)]), command("write", 4096, &[(10, 3_000), (13, 7)])],
        volume: Some(volume),
        zone_maps: [0, 1, 3].map(map).into(),
        ..NamespaceSnapshot::default()
    };
    let now = server(vec![namespace], Vec::new());
    (before(&now), now)
}

/// A plain drive.
pub(super) fn drive() -> (Snapshot, Snapshot) {
    let namespace = NamespaceSnapshot {
        id: 1,
        source: "drives/a".to_owned(),
        zones: 904,
        zone_capacity_bytes: 1077 * MIB,
        written_bytes: 220 * 1077 * MIB,
        active_zones: 4,
        max_active_zones: Some(14),
        open_zones: 3,
        max_open_zones: Some(14),
        outstanding: 64,
        commands: vec![command("append", 131_072, &[(8, 7_000), (9, 400)])],
        life: Some(LifeSnapshot { dlwa: 1.04, ..LifeSnapshot::default() }),
        zone_maps: vec![ZoneMapSnapshot {
            member: None,
            zones: 904,
            zones_per_cell: 1,
            states: "f".repeat(218) + "iiixc" + "or" + &"e".repeat(679),
            fill: "8".repeat(218) + "71325" + "00" + &"0".repeat(679),
            owners: Vec::new(),
        }],
        ..NamespaceSnapshot::default()
    };
    let now = server(vec![namespace], Vec::new());
    (before(&now), now)
}

/// A drive with the scheduler `interference`, whose table of 128 conflict groups is used or not.
pub(super) fn conflict_groups(is_used: bool) -> (Snapshot, Snapshot) {
    let (_, mut now) = drive();
    let namespace = &mut now.subsystems[0].namespaces[0];
    // A hot group, and a queue on each third one.
    let group = |number| GroupSnapshot {
        group: Some(number),
        waiting: if number == 21 { 17 } else { 0 },
        in_flight: if number == 21 { 8 } else { 1 + number % 4 },
    };
    let mut groups: Vec<GroupSnapshot> = (0..128).step_by(3).map(group).collect();
    groups.push(GroupSnapshot { group: None, waiting: 2, in_flight: 5 });
    namespace.scheduler = Some(SchedulerSnapshot {
        name: "interference".to_owned(),
        waiting: groups.iter().map(|group| u64::from(group.waiting)).sum(),
        in_flight: groups.iter().map(|group| u64::from(group.in_flight)).sum(),
        grants: None,
        groups,
        table: Some(TableSnapshot { groups: 128, is_used, rejected: u64::from(!is_used), restored: 0 }),
    });
    (before(&now), now)
}
