//! Executes a plan on a device.

use zonda_files::FileStore;
use zonda_zoned::{Duration, Instant, NamespaceId, Prng, ZonedDevice};

use super::files::DeviceFiles;
use super::plan::StorePlan;
use super::result::{StoreProgress, StoreResult};
use super::run::Run;

/// One run of one plan.
pub struct StoreRunner {
    plan: StorePlan,
    seed: u64,
    checks: bool,
}

impl StoreRunner {
    /// A run of a plan, with all random numbers derived from `seed`.
    #[must_use]
    pub fn new(plan: &StorePlan, seed: u64) -> StoreRunner {
        StoreRunner { plan: plan.clone(), seed, checks: false }
    }

    /// Compares the results of every get and scan, and all keys at the end, with a plain map, at a
    /// cost in time and memory.
    #[must_use]
    pub fn checked(self) -> StoreRunner {
        StoreRunner { checks: true, ..self }
    }

    /// Formats a file store on the device, runs from `start` on, and returns the device when it is
    /// idle.
    ///
    /// `observe` is called at each multiple of `sample`, with the device in its state at that time.
    /// A failed run ends with the reason in its result.
    ///
    /// # Panics
    /// When the device has another geometry than the plan was made for, or breaks its contract; and
    /// in a [checked](StoreRunner::checked) run when a read returns wrong data.
    pub fn run<D: ZonedDevice>(
        self,
        device: D,
        start: Instant,
        sample: Option<Duration>,
        observe: &mut dyn FnMut(&StoreProgress, &D),
    ) -> (StoreResult, D) {
        let StoreRunner { plan, seed, checks } = self;
        let geometry = device.geometry(NamespaceId::FIRST);
        assert!(*geometry == plan.geometry, "the plan was made for a device of another geometry");
        let mut identity = Prng::new(seed).fork("store/identity");
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&identity.next_u64().to_le_bytes());
        uuid[8..].copy_from_slice(&identity.next_u64().to_le_bytes());
        let files = FileStore::format(geometry, plan.files, uuid).expect("the plan has checked this");
        let mut run = Run::new(&plan, seed, checks, DeviceFiles::new(files, device), start, sample);
        run.carry_out(&mut |progress, files: &DeviceFiles<D>| observe(progress, files.device()));
        let (result, files) = run.result(seed);
        (result, files.into_device())
    }
}
