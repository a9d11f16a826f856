//! [`PoolBase`]: what a pool is on: its drive, and a scheduler before it where one is configured.

use zonda_ring::Ring;
use zonda_sched::{Policy, Scheduled};
use zonda_zoned::{Command, CompletionQueue, Instant, NamespaceId, Namespaces, QueueFull, TenantId, ZonedDevice};

use super::directory::PoolDirectory;
use super::drive::open_reserved;
use crate::volume::member_device::{MemberDevice, release};
use crate::{Access, Drive, DriveError, FileBacked, Location, Model, PacedDrive, SchedulerFacts};

/// How a pool uses its drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolOpenOptions {
    /// The order in which commands that wait are submitted to the drive. [`Policy::Ezns`] divides its
    /// time by the weights of the namespaces.
    pub scheduler: Policy,
    /// Whether the drive, which has to be an image, has the latencies of its profile.
    pub is_paced: bool,
}

/// Chooses the scheduler of a pool once its drive is open: a table of conflict groups must be of this
/// drive, and name its zones as the pool does.
pub type SchedulerOfDrive<'f> = dyn FnMut(&dyn Drive, &Location) -> Result<Policy, DriveError> + 'f;

/// The device of a pool. Requests to confirm a reservation, and everything else that is not a command
/// of the pool, do not wait for the scheduler: they use the [`member`](PoolBase::member).
pub(super) enum PoolBase {
    Drive(Box<MemberDevice>),
    Scheduled(Box<Scheduled<MemberDevice>>),
}

impl PoolBase {
    /// The drive alone.
    pub(super) fn of(drive: MemberDevice) -> PoolBase {
        PoolBase::Drive(Box::new(drive))
    }

    /// Opens and reserves the drive of a pool; returns it with its scheduler.
    pub(super) fn open(
        directory: &mut PoolDirectory,
        options: &PoolOpenOptions,
        scheduler: &mut SchedulerOfDrive<'_>,
        ring: &Ring,
    ) -> Result<(PoolBase, Policy), DriveError> {
        let access = directory.access()?;
        let open = |access: &Access| match &access.location {
            Location::Image(path) if options.is_paced => {
                let drive = FileBacked::open(path, ring)?.0;
                let model = Model::of_image(drive.image(), drive.elements())?;
                Ok(MemberDevice::of(Box::new(PacedDrive::new(Box::new(drive), model))))
            }
            Location::NvmeTcp(url) if options.is_paced => Err(DriveError::new(
                format!(
                    "timing = \"profile\" is not supported for a pool whose drive is a namespace of a server: {url}"
                ),
                "remove timing (--timing), and set it for that namespace on its server",
            )),
            _ => MemberDevice::open(access, ring),
        };
        let drive = open_reserved(directory, &access, open, ring)?;
        match scheduler(&*drive.drive, &access.location) {
            Ok(scheduler) => Ok((PoolBase::over(drive, &scheduler), scheduler)),
            Err(error) => {
                release(vec![drive], ring);
                Err(error)
            }
        }
    }

    /// A drive behind a scheduler.
    pub(super) fn over(drive: MemberDevice, scheduler: &Policy) -> PoolBase {
        match scheduler {
            Policy::None => PoolBase::of(drive),
            policy => {
                let scheduler = policy.scheduler(drive.geometry(NamespaceId::FIRST));
                PoolBase::Scheduled(Box::new(Scheduled::new(drive, scheduler)))
            }
        }
    }

    /// The drive.
    pub(super) fn member(&self) -> &MemberDevice {
        match self {
            PoolBase::Drive(drive) => drive,
            PoolBase::Scheduled(scheduled) => scheduled.inner(),
        }
    }

    /// The drive, for what is not a command of the pool.
    pub(super) fn member_mut(&mut self) -> &mut MemberDevice {
        match self {
            PoolBase::Drive(drive) => drive,
            PoolBase::Scheduled(scheduled) => scheduled.inner_mut(),
        }
    }

    /// The drive; commands that wait are lost.
    pub(super) fn into_member(self) -> MemberDevice {
        match self {
            PoolBase::Drive(drive) => *drive,
            PoolBase::Scheduled(scheduled) => scheduled.into_inner(),
        }
    }

    /// The name of the scheduler; `None` without one.
    pub(super) fn scheduler(&self) -> Option<&'static str> {
        match self {
            PoolBase::Drive(_) => None,
            PoolBase::Scheduled(scheduled) => Some(scheduled.scheduler_name()),
        }
    }

    /// What waits for the scheduler; `None` without one.
    pub(super) fn scheduler_facts(&self) -> Option<SchedulerFacts> {
        match self {
            PoolBase::Drive(_) => None,
            PoolBase::Scheduled(scheduled) => Some(SchedulerFacts::of(scheduled)),
        }
    }

    /// A scheduler divides the drive by the weights of these tenants, which are those of
    /// [`zonda_elastic::Pool::weights`].
    pub(super) fn set_weights(&mut self, weights: Vec<(TenantId, u32)>) {
        if let PoolBase::Scheduled(scheduled) = self {
            weights.into_iter().for_each(|(tenant, weight)| scheduled.set_weight(tenant, weight));
        }
    }

    fn device(&self) -> &dyn ZonedDevice {
        match self {
            PoolBase::Drive(drive) => &**drive,
            PoolBase::Scheduled(scheduled) => &**scheduled,
        }
    }

    fn device_mut(&mut self) -> &mut dyn ZonedDevice {
        match self {
            PoolBase::Drive(drive) => &mut **drive,
            PoolBase::Scheduled(scheduled) => &mut **scheduled,
        }
    }
}

impl ZonedDevice for PoolBase {
    fn namespaces(&self) -> &Namespaces {
        self.device().namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.device_mut().submit(now, command)
    }

    /// The pool does not see commands fail that were aborted with the connection: it is not known
    /// whether they have taken effect, and it is mounted again before it sends others.
    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        if !self.member().can_vanish() {
            return self.device_mut().poll(now, completions);
        }
        let mut ended = CompletionQueue::new();
        self.device_mut().poll(now, &mut ended);
        let is_lost = self.member().drive.is_disconnected();
        while let Some(completion) = ended.pop() {
            if !is_lost || completion.status.is_success() {
                completions.push(completion);
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.device().next_timeout()
    }
}
