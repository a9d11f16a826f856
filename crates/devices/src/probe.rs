//! [`Probe`]: reads whether a device is empty, and which volume or pool uses it, before a program
//! writes to it.

mod remains;

use std::collections::VecDeque;
use std::fmt;

use zonda_elastic::limits::LOG_ZONES;
use zonda_elastic::{PoolId, pool_of_log_block};
use zonda_raid::limits::METADATA_ZONES;
use zonda_raid::{Identity, Membership, SUPERBLOCKS_BACK_MAX, identify};
use zonda_ring::Ring;
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Geometry, Instant, Lba, NamespaceId, Operation, Outcome,
    Payload, QueueFull, ReportFilter, ZoneDescriptor, ZoneIndex, ZoneState, ZonedDevice,
};

use crate::sequential_zones::conventional_zones_before;
use crate::volume::member_device::MemberDevice;
use crate::{Drive, DriveError, random};
use remains::Remains;

/// Zones requested in one report: more than fit in one transfer of any drive.
const REPORT_ZONES_MAX: u32 = 4096;
/// The longest wait before a member is asked whether it can still be read.
const MEMBER_WAIT_MAX: Duration = Duration::from_millis(100);

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probed {
    /// Whether all reported zones are empty.
    pub(crate) is_empty: bool,
    /// The newest readable superblock of the device.
    pub(crate) identity: Option<Identity>,
    /// The pool whose log the device has; not of a device with a superblock.
    pub(crate) pool: Option<PoolId>,
    /// Of a device without either: what damaged metadata shows.
    pub(crate) remains: Option<Remains>,
    /// Blocks that the probe has read.
    pub(crate) read_blocks: u64,
    /// The reported zones.
    pub(crate) zones: Vec<ZoneDescriptor>,
}

impl Probed {
    /// The volume or pool that uses the device.
    pub(crate) fn user(&self) -> Option<DriveUser> {
        let volume = self.identity.as_ref().map(|identity| DriveUser::Volume(describe(identity)));
        let pool = || self.pool.map(|pool| DriveUser::Pool(random::uuid_text(&pool.0)));
        volume.or_else(pool).or_else(|| {
            Some(match self.remains? {
                Remains::Volume(array) => DriveUser::DamagedVolume(array.map(|array| random::uuid_text(&array))),
                Remains::Pool(pool) => DriveUser::DamagedPool(pool.map(|pool| random::uuid_text(&pool))),
            })
        })
    }

    /// The membership that the superblock records, where it can be read.
    pub(crate) fn membership(&self) -> Option<&Membership> {
        match &self.identity {
            Some(Identity::Member(membership)) => Some(membership),
            _ => None,
        }
    }
}

/// Reports the zones of a device and reads its superblock, one command at a time. No other command
/// may be in flight on the device meanwhile. Conventional zones before sequential ones are left out:
/// volumes and pools do not use them.
#[derive(Debug)]
pub(crate) struct Probe {
    /// Where volumes and pools begin: the first sequential zone.
    first: u32,
    /// The number of zones to report.
    zones: u32,
    descriptors: Vec<ZoneDescriptor>,
    /// Blocks to read, of each metadata zone the newest first; `None` before the zones are
    /// reported.
    reads: Option<Vec<VecDeque<Lba>>>,
    /// The metadata zone of the read in flight.
    read_of: usize,
    identity: Option<Identity>,
    /// The first blocks of zones of a log; `None` before the superblocks are read.
    log_blocks: Option<VecDeque<Lba>>,
    pool: Option<PoolId>,
    /// Whether to look further where neither a superblock nor a log is found.
    is_thorough: bool,
    /// Blocks to read then; `None` before.
    other_blocks: Option<VecDeque<Lba>>,
    remains: Option<Remains>,
    is_in_flight: bool,
    /// Whether the command in flight is a report.
    is_reporting: bool,
    commands: u64,
    read_blocks: u64,
    completions: CompletionQueue,
}

impl Probe {
    /// Reports all zones.
    pub(crate) fn of_all(geometry: &Geometry) -> Probe {
        Probe::of_zones(geometry, u32::MAX)
    }

    /// Reads the superblock or the log of a pool, and what remains of a volume or a pool with damaged
    /// ones.
    pub(crate) fn of_user(geometry: &Geometry) -> Probe {
        Probe::of_superblock(geometry).thorough()
    }

    /// Looks for what remains of a volume or a pool, too.
    pub(crate) fn thorough(mut self) -> Probe {
        self.is_thorough = true;
        self
    }

    /// Reads the superblock or the log of a pool only.
    pub(crate) fn of_superblock(geometry: &Geometry) -> Probe {
        Probe::of_zones(geometry, METADATA_ZONES.max(LOG_ZONES))
    }

    fn of_zones(geometry: &Geometry, most: u32) -> Probe {
        let first = conventional_zones_before(geometry);
        Probe {
            first,
            zones: most.min(geometry.zone_count - first),
            descriptors: Vec::new(),
            reads: None,
            read_of: 0,
            identity: None,
            log_blocks: None,
            pool: None,
            is_thorough: false,
            other_blocks: None,
            remains: None,
            is_in_flight: false,
            is_reporting: false,
            commands: 0,
            read_blocks: 0,
            completions: CompletionQueue::new(),
        }
    }

    /// Completes the probe, waiting for the device.
    pub(crate) fn run(mut self, device: &mut dyn ZonedDevice, ring: &Ring) -> Result<Probed, DriveError> {
        loop {
            if let Some(result) = self.poll(device, ring.now()) {
                return result;
            }
            ring.run_once(device.next_timeout()).map_err(|error| broken(&error.to_string()))?;
        }
    }

    /// The same on a drive that this program has reserved, or will. Commands that fail because another host
    /// reserves it meanwhile do not complete, nor do some that are aborted with the connection.
    pub(crate) fn run_on_member(mut self, device: &mut MemberDevice, ring: &Ring) -> Result<Probed, DriveError> {
        loop {
            if let Some(result) = self.poll(device, ring.now()) {
                return result;
            }
            if let Some(error) = device.why_unreadable() {
                return Err(error);
            }
            let soon = ring.now() + MEMBER_WAIT_MAX;
            let next = device.next_timeout().map_or(soon, |at| at.min(soon));
            ring.run_once(Some(next)).map_err(|error| broken(&error.to_string()))?;
        }
    }

    /// Completes the probe of a device whose commands complete at once; `None` if it fails.
    pub(crate) fn run_at_once(mut self, device: &mut dyn ZonedDevice, now: Instant) -> Option<Probed> {
        self.poll(device, now)?.ok()
    }

    /// Makes progress without blocking. Returns the result once the probe is complete.
    pub(crate) fn poll(&mut self, device: &mut dyn ZonedDevice, now: Instant) -> Option<Result<Probed, DriveError>> {
        loop {
            device.poll(now, &mut self.completions);
            if let Some(completion) = self.completions.pop() {
                self.is_in_flight = false;
                if let Err(error) = self.on_outcome(completion.outcome, device.geometry(NamespaceId::FIRST)) {
                    return Some(Err(error));
                }
            }
            if self.is_in_flight {
                return None;
            }
            let Some(operation) = self.next_operation(device.geometry(NamespaceId::FIRST)) else {
                let is_empty = self.descriptors.iter().all(|zone| is_free(zone.state));
                return Some(Ok(Probed {
                    is_empty,
                    identity: self.identity.take(),
                    pool: self.pool,
                    remains: self.remains,
                    read_blocks: self.read_blocks,
                    zones: std::mem::take(&mut self.descriptors),
                }));
            };
            self.is_reporting = matches!(operation, Operation::ReportZones { .. });
            self.commands += 1;
            let command = Command::new(CommandId(self.commands), NamespaceId::FIRST, operation);
            if let Err(QueueFull(_)) = device.submit(now, command) {
                return Some(Err(broken("the queue is full")));
            }
            self.is_in_flight = true;
        }
    }

    fn next_operation(&mut self, geometry: &Geometry) -> Option<Operation> {
        let known = self.descriptors.len() as u32;
        if known < self.zones {
            return Some(report(geometry, self.first + known, self.zones - known));
        }
        let metadata_zones = &self.descriptors[..self.descriptors.len().min(METADATA_ZONES as usize)];
        let reads = self.reads.get_or_insert_with(|| metadata_zones.iter().map(superblock_places).collect());
        if let Some(zone) = reads.iter().position(|places| !places.is_empty()) {
            self.read_of = zone;
            return Some(Operation::Read { start: reads[zone].pop_front()?, blocks: Blocks(1) });
        }
        if self.identity.is_some() || self.pool.is_some() {
            return None;
        }
        let log_zones = &self.descriptors[..self.descriptors.len().min(LOG_ZONES as usize)];
        let log_blocks = self.log_blocks.get_or_insert_with(|| {
            log_zones.iter().filter(|zone| written_blocks(zone) > 0).map(|zone| zone.start).collect()
        });
        if let Some(start) = log_blocks.pop_front() {
            return Some(Operation::Read { start, blocks: Blocks(1) });
        }
        if !self.is_thorough || self.remains.is_some_and(Remains::is_named) {
            return None;
        }
        let all = geometry.zone_count - self.first;
        if self.other_blocks.is_none() && known < all && !remains::are_enough(&self.descriptors) {
            return Some(report(geometry, self.first + known, all - known));
        }
        let other_blocks = self.other_blocks.get_or_insert_with(|| remains::places(&self.descriptors));
        Some(Operation::Read { start: other_blocks.pop_front()?, blocks: Blocks(1) })
    }

    fn on_outcome(&mut self, outcome: Outcome, geometry: &Geometry) -> Result<(), DriveError> {
        if self.is_reporting {
            return match outcome {
                Outcome::Report(report) if !report.zones.is_empty() => {
                    self.descriptors.extend(report.zones);
                    Ok(())
                }
                _ => Err(broken("the report failed or is empty")),
            };
        }
        let reads = self.reads.as_mut().expect("blocks are read after a report");
        // If a block cannot be read, an older superblock is tried.
        let Outcome::Data(Payload::Bytes(buffer)) = outcome else { return Ok(()) };
        self.read_blocks += 1;
        let block = buffer.data.get(..geometry.block_size_bytes as usize).unwrap_or(&buffer.data);
        if !self.remains.is_some_and(Remains::is_named) {
            self.remains = Remains::of_block(block).or(self.remains);
        }
        if self.log_blocks.is_some() {
            self.pool = pool_of_log_block(block);
            return Ok(());
        }
        let Some(found) = identify(block) else { return Ok(()) };
        reads[self.read_of].clear();
        let is_newer = match (&self.identity, &found) {
            (Some(Identity::Member(known)), Identity::Member(found)) => found.is_newer_than(known),
            (Some(Identity::Member(_)), Identity::OtherVersion(_)) => false,
            _ => true,
        };
        if is_newer {
            self.identity = Some(found);
        }
        Ok(())
    }
}

/// A report of zones from the one with this number on.
pub(crate) fn report(geometry: &Geometry, first: u32, zones: u32) -> Operation {
    Operation::ReportZones {
        start: geometry.zone_start(ZoneIndex(first)),
        filter: ReportFilter::All,
        extended: false,
        partial: true,
        descriptors_max: zones.min(REPORT_ZONES_MAX),
    }
}

/// The number of blocks of a zone that may be written.
pub(crate) fn written_blocks(zone: &ZoneDescriptor) -> u64 {
    match zone.state {
        ZoneState::Empty | ZoneState::Offline | ZoneState::NotWritePointer => 0,
        _ => zone.write_pointer.map_or(zone.capacity_blocks.0, |pointer| pointer.0 - zone.start.0),
    }
}

/// Where superblocks may be in a zone: at its end; in a finished one also at its start.
fn superblock_places(zone: &ZoneDescriptor) -> VecDeque<Lba> {
    let written = written_blocks(zone);
    let last = (0..written).rev().take(SUPERBLOCKS_BACK_MAX as usize);
    let first = (written > u64::from(SUPERBLOCKS_BACK_MAX)).then_some(0);
    last.chain(first).map(|offset| Lba(zone.start.0 + offset)).collect()
}

fn is_free(state: ZoneState) -> bool {
    matches!(state, ZoneState::Empty | ZoneState::Offline | ZoneState::ReadOnly)
}

fn broken(why: &str) -> DriveError {
    DriveError::new(format!("cannot report its zones: {why}"), "check whether the drive works")
}

/// The volume or pool that uses a drive: only its server may write to the drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveUser {
    /// The drive is a member; which member of which volume.
    Volume(String),
    /// The drive is that of the pool with this UUID.
    Pool(String),
    /// The drive is a member of a volume, with this UUID if that can be read; no superblock can.
    DamagedVolume(Option<String>),
    /// The drive is that of a pool, with this UUID if that can be read; its log cannot.
    DamagedPool(Option<String>),
}

impl DriveUser {
    /// `volume` or `pool`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            DriveUser::Volume(_) | DriveUser::DamagedVolume(_) => "volume",
            DriveUser::Pool(_) | DriveUser::DamagedPool(_) => "pool",
        }
    }

    /// Whether its metadata is damaged: the drive alone does not show how it is used.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        matches!(self, DriveUser::DamagedVolume(_) | DriveUser::DamagedPool(_))
    }
}

impl fmt::Display for DriveUser {
    /// As in "the drive is ...".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DriveUser::Volume(member) => f.write_str(member),
            DriveUser::Pool(uuid) => write!(f, "the drive of the pool {uuid}"),
            DriveUser::DamagedVolume(Some(uuid)) => {
                write!(f, "a member of the volume {uuid}, and its superblocks are damaged")
            }
            DriveUser::DamagedVolume(None) => f.write_str("a member of a volume, and its superblocks are damaged"),
            DriveUser::DamagedPool(Some(uuid)) => write!(f, "the drive of the pool {uuid}, and its log is damaged"),
            DriveUser::DamagedPool(None) => f.write_str("the drive of a pool, and its log is damaged"),
        }
    }
}

/// Describes a device that belongs to a volume.
pub(crate) fn describe(identity: &Identity) -> String {
    match identity {
        Identity::Member(membership) => {
            let Membership { name, member, array, .. } = &**membership;
            format!("member {member} of the volume \"{name}\" ({})", random::uuid_text(array))
        }
        Identity::OtherVersion(version) => format!("a member of a volume of format version {version}"),
    }
}

/// The volume or pool that uses an open drive on this ring. No command may be in flight.
///
/// # Errors
/// When its zones cannot be reported, or the event loop fails.
pub fn user_of_drive(drive: &mut dyn Drive, ring: &Ring) -> Result<Option<DriveUser>, DriveError> {
    let geometry = drive.geometry(NamespaceId::FIRST).clone();
    let probed = Probe::of_user(&geometry).run(drive, ring)?;
    drive.forget_reads(probed.read_blocks);
    Ok(probed.user())
}
