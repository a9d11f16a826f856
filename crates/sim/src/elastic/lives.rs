//! Transitions between lives of a pool: its creation, crashes, mounts, and what tenants find then.

use zonda_elastic::testing::{BlockTag, Content, Crash, ZoneFound, with_bug};
use zonda_elastic::{Goal, Pool};
use zonda_layers::Shared;
use zonda_sched::{EznsConfig, MqDeadlineConfig, Policy, Scheduled};
use zonda_ssd::Ssd;
use zonda_zoned::{
    Blocks, Completion, CompletionQueue, Duration, Lba, NamespaceId, Operation, Outcome, Payload, PayloadKind,
    ReportFilter, ZoneDescriptor, ZoneState, ZonedDevice,
};

use super::drive::Drive;
use super::host::{Flight, Stage};
use super::media::{FileBacked, Media};
use super::run::{Device, ElasticRun, ID, crash_name};
use super::simulation::SchedulerKind;
use crate::observe::CheckError;
use crate::outcome::FailureKind;

/// Steps in which a pool must be open.
const STEPS_OF_MOUNT_MAX: u64 = 1_000_000;
/// Steps after which a mount is interrupted, at most.
const STEPS_OF_CUT_MAX: u64 = 300;

impl ElasticRun<'_> {
    /// Makes a pool on an empty drive, and its first namespace.
    pub(super) fn create(&mut self) -> Result<(), CheckError> {
        let simulation = self.simulation;
        let of_drive = simulation.root.fork("drive");
        let media = if simulation.pool.is_file_backed {
            Media::Files(Box::new(FileBacked::create(&simulation.geometry, &of_drive)))
        } else {
            Media::Model(Box::new(Ssd::new(&simulation.profile, PayloadKind::Bytes, &of_drive)))
        };
        let faults = simulation.faults;
        let delay = Duration(faults.delay_ns);
        let prng = simulation.root.fork("strikes");
        let drive = Drive::new(media, simulation.geometry.zone_count, faults, faults.depth, delay, prng);
        self.drive = Some(Shared::new(drive));
        self.start(Goal::Create { id: ID, options: simulation.options() });
        if !self.run_mount(STEPS_OF_MOUNT_MAX)? {
            return Err(refused("the pool is not created".to_owned()));
        }
        self.epoch = self.pool().epoch();
        self.is_mounted = true;
        for _ in 0..self.simulation.load.tenants {
            self.create_namespace()?;
        }
        // A run without namespaces tests nothing.
        if self.tenants.is_empty() {
            self.create_smallest_namespace()?;
        }
        self.quiesce()
    }

    /// Builds what is above the drive.
    fn start(&mut self, goal: Goal) {
        let handle: Box<dyn ZonedDevice> = Box::new(self.drive().clone());
        let plan = &self.simulation.pool;
        let policy = match plan.scheduler {
            SchedulerKind::Absent => None,
            SchedulerKind::Fifo => Some(Policy::None),
            SchedulerKind::MqDeadline => Some(Policy::MqDeadline(MqDeadlineConfig::default())),
            // Narrow windows, which bind.
            SchedulerKind::Ezns => Some(Policy::Ezns(EznsConfig { zone_width: Some(1), ..EznsConfig::default() })),
        };
        let below: Box<dyn ZonedDevice> = match policy {
            None => handle,
            Some(policy) => {
                let scheduler = policy.scheduler(handle.geometry(NamespaceId::FIRST));
                Box::new(Scheduled::new(handle, scheduler).with_in_flight_max(plan.released_max))
            }
        };
        self.device = Some(with_bug(below, goal, PayloadKind::Bytes, self.bug));
        (self.is_read_only, self.lacked_space, self.is_mounted) = (false, false, false);
    }

    /// Steps until the pool is open. Returns false if it is not after so many.
    fn run_mount(&mut self, steps: u64) -> Result<bool, CheckError> {
        for _ in 0..steps {
            if self.device.as_ref().and_then(Device::pool).is_some_and(Pool::is_started) {
                return Ok(true);
            }
            if self.device().error().is_some() {
                return Ok(false);
            }
            // A new pool has submitted nothing before it is polled.
            if !self.step()? && self.device().next_timeout().is_none() && self.device().error().is_none() {
                return Err(refused("a mount does not end".to_owned()));
            }
        }
        Ok(false)
    }

    /// Ends the life of the pool, mounts it, and checks what it finds.
    pub(super) fn crash_and_mount(&mut self) -> Result<(), CheckError> {
        let mut worst = self.crash()?;
        loop {
            let are_on = self.prng.chance(1, 2);
            self.set_faults(are_on);
            let goal = Goal::Mount { id: Some(ID), epoch_min: self.epoch };
            self.start(goal);
            if self.prng.chance(self.simulation.events.cut_mounts_percent, 100) {
                let steps = 1 + self.prng.below(STEPS_OF_CUT_MAX);
                self.run_mount(steps)?;
                self.trace.log(self.now, || "the mount is interrupted".to_owned());
                let crash = self.crash()?;
                worst = if severity(crash) > severity(worst) { crash } else { worst };
                continue;
            }
            if self.run_mount(STEPS_OF_MOUNT_MAX)? {
                break;
            }
            let error = self.device().error().map_or_else(|| "it does not end".to_owned(), ToString::to_string);
            if !are_on {
                return Err(refused(format!("the pool cannot be mounted: {error}")));
            }
            self.trace.log(self.now, || format!("a mount fails: {error}"));
            // Reads that failed may succeed the next time.
            self.set_faults(false);
            self.start(goal);
            if !self.run_mount(STEPS_OF_MOUNT_MAX)? {
                let error = self.device().error().map_or_else(|| "it does not end".to_owned(), ToString::to_string);
                return Err(refused(format!("the pool cannot be mounted without faults: {error}")));
            }
            break;
        }
        self.set_faults(false);
        let epoch = self.pool().epoch();
        self.epoch = if self.is_read_only { self.epoch } else { epoch };
        self.is_mounted = true;
        self.trace.log(self.now, || format!("mounted, epoch {epoch}"));
        self.check_namespaces()?;
        self.verify(Some(worst))
    }

    /// Kills the program, or cuts the power.
    fn crash(&mut self) -> Result<Crash, CheckError> {
        let events = &self.simulation.events;
        let (kills, losses) = (events.kills, events.power_losses);
        let crash = if kills + losses > 0 && self.prng.below(kills + losses) >= kills {
            match (self.simulation.pool.is_volatile, self.simulation.pool.is_file_backed) {
                (true, _) => Crash::CacheLoss,
                (false, true) => Crash::Kill,
                (false, false) => Crash::PowerLoss,
            }
        } else {
            Crash::Kill
        };
        if kills + losses == 0 && self.flights.is_empty() {
            // Left out: the pool is closed, and mounted again.
            self.trace.log(self.now, || "the program ends".to_owned());
        } else {
            self.crashes += u64::from(kills + losses > 0);
            self.trace.log(self.now, || crash_name(crash).to_owned());
        }
        self.take_seen()?;
        for id in self.flights.keys() {
            self.trace.command_ended(zonda_zoned::CommandId(*id), crate::event_trace::End::Lost);
        }
        self.flights.clear();
        self.stalled.clear();
        self.device = None;
        let is_file_backed = self.simulation.pool.is_file_backed;
        if crash == Crash::Kill && !is_file_backed {
            self.drain_drive();
        } else {
            let Ok(drive) = self.drive.take().expect("the drive has power").take_inner() else {
                panic!("the pool held the only other handle")
            };
            let (profile, is_volatile) = (&self.simulation.profile, self.simulation.pool.is_volatile);
            let drive = match is_file_backed {
                true => drive.kill(crash != Crash::Kill),
                false => drive.lose_power(profile, is_volatile, &mut self.prng),
            };
            self.drive = Some(Shared::new(drive));
        }
        self.take_seen()?;
        Ok(crash)
    }

    /// Commands that the drive has go on when the program is killed.
    fn drain_drive(&mut self) {
        let mut drive = self.drive().clone();
        while drive.with_inner(Drive::outstanding) > 0 {
            let wakeup = drive.with_inner(|inner| inner.next_timeout());
            self.now = wakeup.expect("a drive with commands in flight has a next wakeup").max(self.now);
            drive.poll(self.now, &mut CompletionQueue::new());
        }
    }

    /// Namespaces that were acknowledged exist, and those that were deleted do not, unless the log is old.
    fn check_namespaces(&mut self) -> Result<(), CheckError> {
        let listed: Vec<(NamespaceId, u32)> =
            self.pool().namespaces().iter().map(|(id, geometry)| (id, geometry.zone_count)).collect();
        let mut error = None;
        self.tenants.retain_mut(|tenant| {
            let found = listed.iter().find(|(id, _)| *id == tenant.id).map(|(_, zones)| *zones);
            match found {
                None if matches!(tenant.stage, Stage::Live | Stage::Draining) => {
                    error.get_or_insert_with(|| format!("namespace {} was created, and does not exist", tenant.id));
                    false
                }
                None => false,
                Some(zones) => {
                    let is_possible = zones == tenant.zones.len() as u32 || tenant.resized_from == Some(zones);
                    if !is_possible {
                        let own = tenant.zones.len();
                        error.get_or_insert_with(|| {
                            format!("namespace {} has {zones} zones; {own} were acknowledged", tenant.id)
                        });
                    }
                    tenant.zones.resize_with(zones as usize, Default::default);
                    (tenant.stage, tenant.resized_from) = (Stage::Live, None);
                    true
                }
            }
        });
        let unknown = listed.iter().find(|(id, _)| !self.tenants.iter().any(|tenant| tenant.id == *id));
        if let Some((id, _)) = unknown {
            error.get_or_insert_with(|| format!("namespace {id} was deleted, and exists"));
        }
        let log_is_old = self.log_is_old();
        error
            .filter(|_| !log_is_old)
            .map_or(Ok(()), |message| Err(CheckError::new(FailureKind::LostWrite, None, message)))
    }

    /// Reads everything that tenants have, and compares it with what they know. After a crash, they go
    /// on from there.
    pub(super) fn verify(&mut self, crash: Option<Crash>) -> Result<(), CheckError> {
        for tenant in 0..self.tenants.len() {
            let id = self.tenants[tenant].id;
            // A creation that was not recorded, or a deletion.
            if crash.is_none() && self.device().namespaces().geometry(id).is_none() {
                continue;
            }
            let found = self.observe(id)?;
            let tag = self.tenants[tenant].tag;
            for (zone, found) in found.into_iter().enumerate() {
                self.hash.mix(found.state as u64);
                self.hash.mix(found.pointer.unwrap_or(u64::MAX));
                let is_excused = self.is_excused(tenant, zone);
                let own = &mut self.tenants[tenant].zones[zone];
                let mut copy = own.clone();
                let is_running = crash.is_none();
                if is_running && (own.is_suspended || own.has_failed) {
                    continue;
                }
                let adopted = copy.adopt(&found, crash.unwrap_or(Crash::Kill), tag, zone as u64, is_excused);
                if let Err(message) = adopted {
                    let kind = if message.starts_with("block") {
                        FailureKind::WrongContents
                    } else if matches!(found.state, ZoneState::Offline | ZoneState::ReadOnly) {
                        FailureKind::ImpossibleZone
                    } else {
                        FailureKind::LostWrite
                    };
                    let zone = zonda_zoned::ZoneIndex(zone as u32);
                    return Err(CheckError::new(kind, zone, format!("namespace {id}, zone {zone}: {message}")));
                }
                if !is_running {
                    *own = copy;
                }
            }
        }
        Ok(())
    }

    /// The zones of a namespace, as its host finds them.
    pub(super) fn observe(&mut self, id: NamespaceId) -> Result<Vec<ZoneFound>, CheckError> {
        let geometry = self.device().geometry(id).clone();
        let report = Operation::ReportZones {
            start: Lba(0),
            filter: ReportFilter::All,
            extended: geometry.descriptor_extension_bytes > 0,
            partial: false,
            descriptors_max: u32::MAX,
        };
        let ended = self.execute_all(vec![(id, report)])?;
        let Some(Completion { outcome: Outcome::Report(report), .. }) = ended.into_iter().next() else {
            return Err(CheckError::new(FailureKind::WrongAnswer, None, "Report Zones returned no report".to_owned()));
        };
        let (capacity, most) = (geometry.zone_capacity_blocks.0, geometry.max_transfer_blocks.0);
        let mut reads = Vec::new();
        for descriptor in report.zones.iter().filter(|zone| zone.state != ZoneState::Offline) {
            for at in (0..capacity).step_by(most as usize) {
                let blocks = Blocks(most.min(capacity - at));
                reads.push((id, Operation::Read { start: Lba(descriptor.start.0 + at), blocks }));
            }
        }
        let per_zone = capacity.div_ceil(most) as usize;
        let ended = self.execute_all(reads)?;
        let mut chunks = ended.chunks(per_zone);
        let sizes = (geometry.block_size_bytes as usize, usize::from(geometry.metadata_bytes));
        let mut found = Vec::new();
        for descriptor in &report.zones {
            let reads = if descriptor.state == ZoneState::Offline { &[][..] } else { chunks.next().unwrap_or(&[]) };
            let mut blocks: Vec<Content> = Vec::new();
            for (index, read) in reads.iter().enumerate() {
                let length = most.min(capacity - index as u64 * most);
                blocks.extend(contents_of(read, length, sizes));
            }
            found.push(ZoneFound {
                state: descriptor.state,
                pointer: descriptor.write_pointer.map(|pointer| (pointer - descriptor.start).0),
                extension: extension_of(descriptor),
                blocks,
            });
        }
        // Reads fail where zones below have failed; then their blocks are unknown, one by one.
        for (zone, own) in found.iter().enumerate() {
            let is_unreadable = own.blocks.contains(&Content::Unreadable);
            let tenant = self.tenants.iter().position(|tenant| tenant.id == id).expect("it is a tenant's");
            if is_unreadable && !self.is_excused(tenant, zone) {
                let message = format!("namespace {id}: blocks of zone {zone} cannot be read");
                return Err(CheckError::new(FailureKind::WrongAnswer, zonda_zoned::ZoneIndex(zone as u32), message));
            }
        }
        Ok(found)
    }

    /// A completion of a check.
    pub(super) fn on_probe(&mut self, completion: Completion) {
        self.probed.insert(completion.id.0, completion);
    }

    /// Whether a command of a tenant is in flight.
    pub(super) fn has_flights(&self, id: NamespaceId) -> bool {
        self.flights.values().any(|flight| flight.namespace() == Some(id) && !matches!(flight, Flight::Probe))
    }
}

fn severity(crash: Crash) -> u8 {
    match crash {
        Crash::Kill => 0,
        Crash::PowerLoss => 1,
        Crash::CacheLoss => 2,
    }
}

fn extension_of(descriptor: &ZoneDescriptor) -> Option<u8> {
    let extension = descriptor.extension.as_ref().filter(|_| descriptor.attributes.extension_valid);
    extension.and_then(|bytes| bytes.first().copied())
}

/// The blocks that a read returned.
pub(super) fn contents_of(read: &Completion, blocks: u64, (data, metadata): (usize, usize)) -> Vec<Content> {
    match &read.outcome {
        Outcome::Data(Payload::Bytes(buffer)) if read.status.is_success() => (0..blocks as usize)
            .map(|block| {
                let own = buffer.metadata.get(block * metadata..(block + 1) * metadata).unwrap_or(&[]);
                BlockTag::of_block(&buffer.data[block * data..(block + 1) * data], own)
            })
            .collect(),
        _ => vec![Content::Unreadable; blocks as usize],
    }
}

fn refused(message: String) -> CheckError {
    CheckError::new(FailureKind::MountFailed, None, message)
}
