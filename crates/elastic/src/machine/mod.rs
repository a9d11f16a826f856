//! [`Pool`]: the namespaces of a drive, as a state machine.
//!
//! Commands of hosts in ([`Pool::submit`]), commands to the drive out ([`Pool::poll_command`]),
//! their completions in ([`Pool::on_completion`]), completions for hosts out
//! ([`Pool::take_completions`]). The tables of the namespaces decide at once what a command does; the
//! rest happens in the order of each v-zone's items.
//!
//! | file | what it does |
//! |---|---|
//! | `host` | takes commands of hosts apart |
//! | `pump` | the next item of a v-zone |
//! | `write`, `read` | blocks of items to zones, and back |
//! | `allocate` | the serial allocator: reserved zones, new groups |
//! | `ending` | groups that were written, finished or reset |
//! | `doubt` | commands to the drive that have failed, and zones that may be active |
//! | `repair` | rows that a power loss tore |
//! | `reclaim` | groups that are not written any more, copied into narrower ones |
//! | `admin` | namespaces are created, resized and deleted |
//! | `recording` | records to the log, and what goes on once they are durable |
//! | `tenants` | namespaces as tenants of a scheduler |
//! | `activity` | what the pool is doing, for operators |
//! | `by_number` | the table of namespaces |

mod activity;
mod admin;
mod allocate;
mod build;
mod by_number;
mod doubt;
mod ending;
mod host;
mod invariants;
mod metadata;
mod numbers;
mod pump;
mod read;
mod reclaim;
mod recording;
mod releases;
mod repair;
mod report;
mod tenants;
mod write;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use zonda_zoned::zones::ZoneTable;
use zonda_zoned::{
    Command, CommandId, Completion, CompletionQueue, Geometry, Instant, Key, Lba, NamespaceId, Namespaces, Operation,
    Origin, Outcome, PayloadKind, Slab, Status, StreamId, ZoneAction, ZoneIndex, ZoneTarget,
};

use crate::balloon::{Balloon, Share};
use crate::bug::Seeded;
use crate::format::{NamespaceRecord, Owner, PoolId, Record, Reservation};
use crate::group::{Group, Piece};
use crate::log::{Log, Ticket};
use crate::payload::{Assembly, BlockFormat};
use crate::shape::Shape;
use crate::vzone::{VZone, Write};
use crate::zones::{ZoneCounts, Zones};

pub use activity::{Activity, ReclaimProgress};
pub use admin::{AdminError, NamespaceConfig, PoolEvent};
pub(crate) use allocate::Granting;
pub(crate) use build::PoolParts;
use ending::ResetOf;
pub use report::ZoneRole;

/// A command of a host.
#[derive(Debug)]
pub(crate) struct Host {
    id: CommandId,
    /// Parts that have not ended.
    parts: u32,
    status: Status,
    result: HostResult,
}

#[derive(Debug)]
enum HostResult {
    Nothing,
    Outcome(Outcome),
    Read(Assembly),
}

/// A namespace, and its v-zones.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) record: NamespaceRecord,
    pub(crate) table: ZoneTable,
    pub(crate) vzones: Vec<VZone>,
    /// Writes that have not ended, by number.
    writes: numbers::Numbers,
    next_write: u64,
    releases: releases::Releases,
    /// V-zones that wait for these.
    waiting_for_releases: BTreeSet<u32>,
    /// Flushes that wait for the writes before them.
    flushes: VecDeque<(u64, Key<Host>)>,
    /// It is recorded, so hosts see it.
    is_listed: bool,
    /// It is being deleted.
    is_leaving: bool,
    /// That is recorded.
    is_deleted: bool,
    quiet: reclaim::Quiet,
}

/// A command at the drive, or on its way.
#[derive(Debug)]
enum Op {
    Write {
        namespace: u32,
        vzone: u32,
        write: Key<Write>,
    },
    Read {
        host: Key<Host>,
        namespace: u32,
        vzone: u32,
        group: u32,
        piece: Piece,
        at: u64,
    },
    /// All of a read.
    DirectRead {
        id: CommandId,
        namespace: u32,
        vzone: u32,
    },
    Deallocate {
        host: Key<Host>,
        namespace: u32,
        vzone: u32,
    },
    HostFlush {
        host: Key<Host>,
    },
    Reserve {
        zone: u32,
    },
    /// Of the first blocks of reserved zones.
    ReserveFlush {
        number: u64,
        tries: u8,
    },
    /// The block that names the owner of a zone. If it fails, so do the writes behind it.
    Owner {
        namespace: u32,
        vzone: u32,
    },
    /// Of what a mount has read, if its first record failed.
    StartFlush {
        tries: u8,
    },
    /// `retry` is sent once more if it fails: a flush, or a reset of a zone.
    Log {
        copy: Option<usize>,
        retry: Option<LogRetry>,
        tries: u8,
    },
    EndFlush {
        ending: Key<Ending>,
        tries: u8,
    },
    EndFinish {
        ending: Key<Ending>,
        zone: u32,
        tries: u8,
    },
    ResetZone {
        zone: u32,
        of: ResetOf,
        tries: u8,
    },
    /// The reset of a retired zone.
    Release {
        zone: u32,
        tries: u8,
    },
    /// Asks whether a zone is active.
    State,
    ReclaimRead {
        piece: Piece,
    },
    /// An owner block, a piece or the flush of a copy.
    ReclaimWrite,
    RepairWrite {
        namespace: u32,
        vzone: u32,
    },
}

/// A command of the log that is sent again if it fails.
#[derive(Clone, Copy, Debug)]
enum LogRetry {
    Flush { number: u64 },
    Reset { zone: u32 },
}

/// A group whose zones are being finished.
#[derive(Debug)]
struct Ending {
    namespace: u32,
    vzone: u32,
    zones: Box<[u32]>,
    outstanding: u32,
}

/// Who waits for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiter {
    Nothing,
    Start,
    Group { namespace: u32, vzone: u32, generation: u64 },
    Finish { namespace: u32, vzone: u32 },
    Reset { namespace: u32, vzone: u32 },
    Change { namespace: u32, vzone: u32 },
    Fail { namespace: u32, vzone: u32 },
    Repair { namespace: u32, vzone: u32 },
    Reclaim { namespace: u32, vzone: u32 },
    Created { namespace: u32 },
    Resized { namespace: u32 },
    Deleted { namespace: u32 },
}

/// The namespaces of one drive.
#[derive(Debug)]
pub struct Pool {
    id: PoolId,
    drive: Geometry,
    drive_namespace: NamespaceId,
    shape: Shape,
    format: BlockFormat,
    kind: PayloadKind,
    epoch: u64,
    is_started: bool,
    namespaces: by_number::ByNumber<Namespace>,
    listed: Namespaces,
    zones: Zones,
    balloon: Balloon,
    log: Log,
    /// V-zones that wait for a group, in order.
    arbiter: VecDeque<(u32, u32)>,
    granting: Option<Granting>,
    /// Since when no zone is left for those.
    stuck_since: Option<Instant>,
    is_flushing_reserved: bool,
    /// The drive lacks space: zones are reserved from then on again.
    no_space_until: Option<Instant>,
    /// A write to a group has lacked space.
    lacks_space: bool,
    /// A write to the log has lacked space.
    log_lacks_space: bool,
    /// Commands of hosts are refused: the pool is about to be opened again.
    is_paused: bool,
    waiters: BTreeMap<Ticket, Waiter>,
    next_ticket: u64,
    /// Commands of hosts; not writes, and not reads that stand for themselves.
    hosts: Slab<Host>,
    /// Reads of one piece, each of which is a command to the drive and nothing else.
    direct_reads: usize,
    writes: Slab<Write>,
    endings: Slab<Ending>,
    repairs: BTreeMap<(u32, u32), repair::Repair>,
    /// Zones and resources of v-zones that are being reset, by namespace and v-zone.
    leaving_zones: BTreeMap<(u32, u32), Vec<u32>>,
    leaving_widths: BTreeMap<(u32, u32), u32>,
    /// Zones of no v-zone that a mount has found.
    to_reset: Vec<u32>,
    /// Of these, zones that are being reset.
    resetting_at_start: u32,
    /// Those that were active, until all are reset.
    active_to_reset: u32,
    /// Retired zones that a mount has found active.
    to_release: Vec<u32>,
    reclaim: Option<reclaim::Reclaim>,
    /// Zones of the group that a copy replaces, to be reset once that is recorded.
    to_reclaim: Vec<u32>,
    /// Active zones of copies that were abandoned, and of groups that were copied.
    leaving_copies: u32,
    reclaimed_groups: u64,
    ops: Slab<Op>,
    outbox: VecDeque<Command>,
    completions: CompletionQueue,
    events: VecDeque<PoolEvent>,
    now: Instant,
    /// No record can be written any more.
    is_read_only: bool,
    /// Reused.
    scratch: Vec<Piece>,
    bug: Seeded,
}

impl Pool {
    /// The identity of the pool.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.id
    }

    /// Counts the programs that have opened it.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Its numbers.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Physical zones by their use.
    #[must_use]
    pub fn zone_counts(&self) -> ZoneCounts {
        self.zones.counts()
    }

    /// Whether no change can be recorded any more: both copies of the log have failed.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Whether its epoch is recorded, so that it can be changed and written.
    #[inline]
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.is_started
    }

    /// Copies of the log that can be written, of two.
    #[must_use]
    pub fn log_copies(&self) -> usize {
        self.log.working_copies()
    }

    /// The namespaces that hosts see.
    #[must_use]
    pub fn namespaces(&self) -> &Namespaces {
        &self.listed
    }

    /// The zone table of a namespace.
    #[must_use]
    pub fn table(&self, namespace: NamespaceId) -> Option<&ZoneTable> {
        self.namespaces.get(&namespace.0).map(|found| &found.table)
    }

    /// Active zones of a namespace: its own and what it has lent and leased.
    #[must_use]
    pub fn share(&self, namespace: NamespaceId) -> Option<Share> {
        self.namespaces.contains_key(&namespace.0).then(|| self.balloon.share(namespace.0))
    }

    /// The next command to the drive.
    #[inline]
    pub fn poll_command(&mut self, now: Instant) -> Option<Command> {
        self.advance(now);
        if self.outbox.is_empty() {
            self.pump_log();
        }
        self.outbox.pop_front()
    }

    /// The drive has refused a command: it is the next one again.
    pub fn on_queue_full(&mut self, command: Command) {
        self.outbox.push_front(command);
    }

    /// Whether commands to the drive are waiting, after a completion or another event.
    #[inline]
    pub(crate) fn has_commands(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Moves the completions for hosts into a queue.
    #[inline]
    pub fn take_completions(&mut self, completions: &mut CompletionQueue) {
        completions.append(&mut self.completions);
    }

    /// Whether completions for hosts are waiting.
    #[inline]
    #[must_use]
    pub fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// What has happened to the pool.
    pub fn poll_event(&mut self) -> Option<PoolEvent> {
        self.events.pop_front()
    }

    /// When [`on_timeout`](Pool::on_timeout) is to be called.
    #[inline]
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let has_groups = self.zones.active_in_groups() > 0 || self.granting.is_some() || !self.arbiter.is_empty();
        let is_busy = has_groups || self.commands() > 0;
        let at = is_busy.then(|| self.balloon.next_timeout());
        match self.no_space_until {
            Some(until) => Some(at.map_or(until, |at| at.min(until))),
            None => at,
        }
    }

    /// The time of [`next_timeout`](Pool::next_timeout) has come.
    pub fn on_timeout(&mut self, now: Instant) {
        self.advance(now);
        self.redistribute_if_due();
        self.reserve_if_due();
        self.refuse_if_stuck();
    }

    #[inline]
    fn advance(&mut self, now: Instant) {
        assert!(now >= self.now, "time does not go back");
        self.now = now;
    }

    /// A command to the drive has ended.
    pub fn on_completion(&mut self, now: Instant, completion: Completion) {
        self.advance(now);
        let key = Key::of_command(completion.id).expect("the drive returns identifiers that it was given");
        let (status, outcome) = (completion.status, completion.outcome);
        // Nearly all are these two, whose few bytes are read where they are.
        match self.ops[key] {
            Op::Write { namespace, vzone, write } => {
                self.ops.discard(key);
                self.on_piece_written(namespace, vzone, write, status);
            }
            Op::DirectRead { id, namespace, vzone } => {
                self.ops.discard(key);
                self.on_direct_read(id, namespace, vzone, status, outcome);
            }
            _ => self.on_other_completion(key, status, outcome),
        }
        self.pump_log();
    }

    /// A command to the drive has ended that is not a part of a write, and not all of a read.
    fn on_other_completion(&mut self, key: Key<Op>, status: Status, outcome: Outcome) {
        match self.ops.remove(key) {
            Op::Write { .. } | Op::DirectRead { .. } => unreachable!("these end where they are"),
            Op::Read { host, namespace, vzone, group, piece, at } => {
                self.on_piece_read(host, (namespace, vzone, group as usize), &piece, at, status, outcome);
            }
            Op::Deallocate { host, namespace, vzone } => self.on_read_ended(host, namespace, vzone, status),
            Op::HostFlush { host } => self.end_part(host, status),
            Op::Reserve { zone } => self.on_reserved(zone, status),
            Op::ReserveFlush { number, tries } => self.on_reserved_flushed(number, tries, status),
            Op::Owner { namespace, vzone } => self.on_owner_written(namespace, vzone, status),
            Op::StartFlush { tries } => self.on_start_flushed(tries, status),
            Op::Log { copy, retry, tries } => self.on_log_effect(copy, retry, tries, status),
            Op::EndFlush { ending, tries } => self.on_end_flushed(ending, tries, status),
            Op::EndFinish { ending, zone, tries } => self.on_end_finished(ending, zone, tries, status),
            Op::ResetZone { zone, of, tries } => self.on_zone_reset(zone, of, tries, status),
            Op::Release { zone, tries } => self.on_release(zone, tries, status),
            Op::State => self.on_state(&outcome),
            Op::ReclaimRead { piece } => self.on_reclaim_read(&piece, status, outcome),
            Op::ReclaimWrite => self.on_reclaim_written(status),
            Op::RepairWrite { namespace, vzone } => self.on_repair_written(namespace, vzone, status),
        }
    }

    /// Sends an operation to the drive.
    fn issue(&mut self, op: Op, operation: Operation, origin: Origin) {
        let key = self.ops.insert(op);
        self.outbox.push_back(Command::new(key.into(), self.drive_namespace, operation).with_origin(origin));
    }

    fn zone_lba(&self, zone: u32, zone_block: u64) -> Lba {
        Lba(self.drive.zone_start(ZoneIndex(zone)).0 + zone_block)
    }

    fn manage_zone(&self, zone: u32, action: ZoneAction) -> Operation {
        Operation::ManageZones { action, target: ZoneTarget::Zone(self.zone_lba(zone, 0)) }
    }

    /// Who sends the commands of a group.
    fn origin_of(namespace: u32, group: &Group) -> Origin {
        Origin {
            tenant: Pool::tenant_of(NamespaceId(namespace)),
            stream_width: group.width() as u8,
            stream: StreamId(group.zones()[0]),
            ..Origin::default()
        }
    }

    fn write_of_block(&self, zone: u32, zone_block: u64, block: Vec<u8>) -> Operation {
        let metadata = vec![0; self.format.metadata_bytes];
        let buffer = zonda_zoned::BlockBuffer { data: block.into(), metadata: metadata.into() };
        let payload = match self.kind {
            PayloadKind::Bytes => zonda_zoned::Payload::Bytes(Box::new(buffer)),
            PayloadKind::Fingerprints => {
                let print = zonda_zoned::fingerprint(&buffer.data, &buffer.metadata);
                zonda_zoned::Payload::Fingerprints([print].into())
            }
            PayloadKind::None => zonda_zoned::Payload::None,
        };
        let start = self.zone_lba(zone, zone_block);
        Operation::Write { start, blocks: zonda_zoned::Blocks(1), payload }
    }

    fn reservation_of(&self, zone: u32) -> Reservation {
        Reservation { zone, number: self.zones.reservation(zone) }
    }

    fn owner_of(&self, namespace: u32, vzone: u32, group: usize, place: usize) -> Owner {
        let own = &self.namespaces[&namespace].vzones[vzone as usize];
        Owner {
            reservation: self.reservation_of(own.groups[group].zones()[place]),
            namespace,
            vzone,
            generation: own.generation,
            group: group as u8,
            place: place as u8,
        }
    }

    #[inline]
    fn vzone(&mut self, namespace: u32, vzone: u32) -> &mut VZone {
        let found = self.namespaces.get_mut(&namespace).expect("a namespace stays while its v-zones are in use");
        &mut found.vzones[vzone as usize]
    }
}
