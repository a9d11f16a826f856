//! Checks one job against the drive.

use std::ops::Range;

use zonda_config::{ByteSize, ConfigError, IndexSet, Rate, Spanned};
use zonda_zoned::{Duration, Geometry, TenantId, ZoneIndex, ZoneType};

use super::{JobPlan, Place, positive_time, time};
use crate::limits::{QUEUE_DEPTH_MAX, STRIPE_PARTS_MAX, WORKERS_MAX};
use crate::{Distribution, JobOperation, JobSpec, Mix, OnFull, Share, TenantSpec, ZoneOrder};

/// Default size of a request in bytes.
const BLOCK_SIZE_DEFAULT_BYTES: u64 = 4096;

/// The position of a value in the file, if it is present.
type Span = Option<Range<usize>>;

/// A job and its position in the file.
struct Check<'a> {
    place: &'a Spanned<JobSpec>,
    spec: &'a JobSpec,
    operation: JobOperation,
    weights: Mix,
    geometry: &'a Geometry,
    /// What has this geometry: "drive" or "namespace".
    noun: &'static str,
}

/// Fills in the defaults of the `index`-th job and checks it.
pub(super) fn job(
    place: &Spanned<JobSpec>,
    index: usize,
    run_time: Option<Duration>,
    own: &Place<'_>,
) -> Result<JobPlan, ConfigError> {
    let spec = place.get_ref();
    let operation = *spec.operation.get_ref();
    let check = Check { place, spec, operation, weights: Mix::default(), geometry: own.geometry, noun: own.noun };
    check.no_key_is_out_of_place()?;
    let check = Check { weights: check.weights()?, ..check };

    let zones = check.zones()?;
    let (request_blocks, part_blocks) = check.sizes(zones.len() as u64)?;
    let zone_order = check.zone_order()?;
    let workers = check.workers(&zones, zone_order)?;
    check.stripes_fit(&workers, request_blocks, part_blocks)?;
    let (start, end) = check.times(run_time)?;
    let plan = JobPlan {
        name: spec.name.as_ref().map_or_else(|| format!("job{}", index + 1), |name| name.get_ref().clone()),
        operation,
        weights: check.weights,
        request_blocks,
        parts: request_blocks / part_blocks,
        part_blocks,
        queue_depth: check.count(&spec.queue_depth, QUEUE_DEPTH_MAX)?,
        is_batch: spec.batch.as_ref().is_some_and(|batch| *batch.get_ref()),
        tenant: spec.tenant.as_ref().map_or(TenantSpec::Number(TenantId::DEFAULT.0), |tenant| *tenant.get_ref()),
        workers: workers.into_iter().map(|zones| zones.into_iter().map(|zone| own.zone(zone)).collect()).collect(),
        zone_order,
        rate: spec.rate.as_ref().map(|rate| *rate.get_ref()),
        think_time: time(&spec.think_time)?.unwrap_or(Duration::ZERO),
        start,
        end,
        bytes: limit(&spec.bytes, |bytes| bytes.0)?,
        operations: limit(&spec.operations, |operations| *operations)?,
        one_pass: operation == JobOperation::Read && end.is_none() && spec.bytes.is_none() && spec.operations.is_none(),
        distribution: spec.distribution.as_ref().map_or(Distribution::Uniform, |place| *place.get_ref()),
        on_full: spec.on_full.as_ref().map_or(OnFull::Next, |place| *place.get_ref()),
        finish_at_blocks: check.finish_at(&zones)?,
    };
    if plan.end.is_none() && !plan.ends_without_time() {
        return Err(ConfigError::at(place, format!("the job \"{}\" never ends", plan.name))
            .help("write time = \"10 s\" under [run], or give the job time, bytes or operations"));
    }
    Ok(plan)
}

impl Check<'_> {
    /// Checks that the operation uses all keys of the job.
    fn no_key_is_out_of_place(&self) -> Result<(), ConfigError> {
        use JobOperation::{Append, Mix, Randread, Randwrite, Read, Write};
        const DATA: &[JobOperation] = &[Read, Randread, Write, Randwrite, Append, Mix];
        let spec = self.spec;
        let keys: [(&str, Span, &[JobOperation]); 8] = [
            ("mix", span(&spec.mix), &[Mix]),
            ("block_size", span(&spec.block_size), DATA),
            ("stripe", span(&spec.stripe), &[Read, Randread, Write, Append]),
            ("bytes", span(&spec.bytes), DATA),
            ("distribution", span(&spec.distribution), &[Randread, Randwrite, Mix]),
            ("on_full", span(&spec.on_full), &[Write, Append, Mix]),
            ("finish_at", span(&spec.finish_at), &[Write, Append, Mix]),
            ("rate", span(&spec.rate).filter(|_| self.rate_is_in_bytes()), DATA),
        ];
        for (key, span, users) in keys {
            if let Some(span) = span
                && !users.contains(&self.operation)
            {
                let users: Vec<&str> = users.iter().map(|user| user.name()).collect();
                let kind = if key == "rate" { "a rate in bytes" } else { key };
                return Err(ConfigError::new(format!("{kind} does not apply to operation = \"{}\"", self.operation))
                    .within(span)
                    .help(format!("remove it; it applies to {}", users.join(", "))));
            }
        }
        Ok(())
    }

    fn rate_is_in_bytes(&self) -> bool {
        self.spec.rate.as_ref().is_some_and(|rate| matches!(rate.get_ref(), Rate::BytesPerSecond(_)))
    }

    /// The weights of the job; for a plain writer its one operation.
    fn weights(&self) -> Result<Mix, ConfigError> {
        match (self.operation, &self.spec.mix) {
            (JobOperation::Mix, Some(mix)) if *mix.get_ref() == Mix::default() => {
                Err(ConfigError::at(mix, "the mix is empty").help("write weights, like { read = 70, append = 30 }"))
            }
            (JobOperation::Mix, Some(mix)) => Ok(*mix.get_ref()),
            (JobOperation::Mix, None) => {
                Err(ConfigError::at(&self.spec.operation, "a mix needs the weights of its operations")
                    .help("add a line like mix = { read = 70, append = 30 }"))
            }
            (JobOperation::Write, _) => Ok(Mix { write: 1, ..Mix::default() }),
            (JobOperation::Append, _) => Ok(Mix { append: 1, ..Mix::default() }),
            _ => Ok(Mix::default()),
        }
    }

    /// Which types of zones support the operation: conventional, sequential.
    fn takes(&self) -> (bool, bool) {
        match self.operation {
            JobOperation::Read | JobOperation::Randread | JobOperation::Write => (true, true),
            JobOperation::Randwrite => (true, false),
            JobOperation::Mix => (self.weights.append == 0, true),
            _ => (false, true),
        }
    }

    fn zones(&self) -> Result<Vec<ZoneIndex>, ConfigError> {
        let geometry = self.geometry;
        let (conventional, sequential) = self.takes();
        let takes = |zone: ZoneIndex| match geometry.zone_type(zone) {
            ZoneType::Conventional => conventional,
            ZoneType::SequentialWriteRequired => sequential,
        };
        let allowed = match (conventional, sequential) {
            (true, true) => 0..geometry.zone_count,
            (true, false) => 0..geometry.conventional_zone_count,
            (false, _) => geometry.conventional_zone_count..geometry.zone_count,
        };
        if allowed.is_empty() {
            let (what, help) = if conventional {
                ("no conventional zones", "sequential write required zones support write and append, not randwrite")
            } else {
                ("only conventional zones", "conventional zones support read, randread, write and randwrite")
            };
            let message = format!("operation = \"{}\" is not possible: this drive has {what}", self.operation);
            return Err(ConfigError::at(&self.spec.operation, message).help(help));
        }
        let Some(place) = &self.spec.zones else {
            // Writers use sequential zones if there are any; readers use all zones.
            let writes = self.weights.write > 0 && geometry.conventional_zone_count < geometry.zone_count;
            let first = if writes { geometry.conventional_zone_count } else { allowed.start };
            return Ok((first..allowed.end).map(ZoneIndex).collect());
        };
        let zones: &IndexSet = place.get_ref();
        let help = format!("write zones within \"{}..{}\" (the end is exclusive)", allowed.start, allowed.end);
        if let Some(zone) = zones.iter().find(|&&zone| zone >= geometry.zone_count) {
            if geometry.zone_count == 1 && geometry.conventional_zone_count == 1 {
                // A volume, or another namespace of the NVM command set: one conventional zone.
                let message = format!("zone {zone} does not exist: the namespace is conventional and has no zones");
                return Err(ConfigError::at(place, message).help("remove zones"));
            }
            let zones =
                if geometry.zone_count == 1 { "1 zone".to_owned() } else { format!("{} zones", geometry.zone_count) };
            let message = format!("zone {zone} does not exist: the {} has {zones}", self.noun);
            return Err(ConfigError::at(place, message).help(help));
        }
        if let Some(zone) = zones.iter().find(|&&zone| !takes(ZoneIndex(zone))) {
            let kind = if conventional { "must be written sequentially" } else { "is conventional" };
            let message = format!("zone {zone} {kind}: it does not support {}", self.operation);
            return Err(ConfigError::at(place, message).help(help));
        }
        Ok(zones.iter().copied().map(ZoneIndex).collect())
    }

    /// Blocks of a request and of its commands, in a job on this many zones.
    fn sizes(&self, zones: u64) -> Result<(u64, u64), ConfigError> {
        let block = u64::from(self.geometry.block_size_bytes);
        if self.operation.is_management() {
            return Ok((1, 1));
        }
        let size = self.spec.block_size.as_ref().map_or(BLOCK_SIZE_DEFAULT_BYTES.max(block), |size| size.get_ref().0);
        if size == 0 || !size.is_multiple_of(block) {
            let message = format!("a request of {} is not a multiple of the block size", ByteSize(size));
            let help = format!("write a multiple of the drive's block size, \"{}\"", ByteSize(block));
            return Err(self.at_block_size(message).help(help));
        }
        let (limit, what) = if self.weights.append > 0 {
            (self.geometry.max_append_blocks, "an append")
        } else {
            (self.geometry.max_transfer_blocks, "a command")
        };
        let limit = limit.min(self.geometry.zone_capacity_blocks).bytes(self.geometry.block_size_bytes);
        let Some(place) = &self.spec.stripe else {
            if size > limit {
                let message =
                    format!("{what} to this drive transfers at most {}, not {}", ByteSize(limit), ByteSize(size));
                let smaller = format!("write block_size = \"{}\" or less", ByteSize(limit));
                let help = match self.stripe_for(size, limit, zones) {
                    Some(stripe) => format!("{smaller}, or split the request with stripe = \"{}\"", ByteSize(stripe)),
                    None => smaller,
                };
                return Err(self.at_block_size(message).help(help));
            }
            return Ok((size / block, size / block));
        };
        let part = place.get_ref().0;
        let refuse = |message: String| Err(ConfigError::at(place, message));
        if part == 0 || !part.is_multiple_of(block) {
            return refuse(format!("a stripe of {} is not a multiple of the block size", ByteSize(part))).map_err(
                |error| error.help(format!("write a multiple of the drive's block size, \"{}\"", ByteSize(block))),
            );
        }
        if part > limit {
            return refuse(format!("{what} to this drive transfers at most {}", ByteSize(limit)))
                .map_err(|error| error.help(format!("write stripe = \"{}\" or less", ByteSize(limit))));
        }
        if !size.is_multiple_of(part) {
            return refuse(format!(
                "a request of {} is not a multiple of the stripe of {}",
                ByteSize(size),
                ByteSize(part)
            ))
            .map_err(|error| error.help("write a stripe that divides block_size"));
        }
        if size / part > STRIPE_PARTS_MAX {
            let smaller = ByteSize(part * STRIPE_PARTS_MAX);
            let help = match self.stripe_for(size, limit, zones) {
                Some(stripe) => {
                    format!("write stripe = \"{}\", or block_size = \"{smaller}\" or less", ByteSize(stripe))
                }
                None => format!("write block_size = \"{smaller}\" or less"),
            };
            let message =
                format!("this splits a request into {} commands, and the maximum is {STRIPE_PARTS_MAX}", size / part);
            return refuse(message).map_err(|error| error.help(help));
        }
        Ok((size / block, part / block))
    }

    /// The largest stripe that the other checks of this job accept, for a request of this size.
    fn stripe_for(&self, size: u64, limit: u64, zones: u64) -> Option<u64> {
        use JobOperation::{Append, Randread, Read, Write};
        let block = u64::from(self.geometry.block_size_bytes);
        let zone_bytes = self.geometry.zone_capacity_bytes();
        // A striped writer has all of its zones active.
        let zones = match self.geometry.max_active_zones {
            Some(active) if self.weights.write + self.weights.append > 0 => zones.min(u64::from(active)),
            _ => zones,
        };
        if !matches!(self.operation, Read | Randread | Write | Append) {
            return None;
        }
        let stripes = (size.div_ceil(limit)..=STRIPE_PARTS_MAX).map(|parts| (parts, size / parts));
        let mut valid = stripes.filter(|(parts, stripe)| stripe * parts == size && stripe.is_multiple_of(block));
        let (parts, stripe) = valid.next().filter(|(_, stripe)| *stripe > 0)?;
        (zone_bytes / stripe * zones >= parts).then_some(stripe)
    }

    fn at_block_size(&self, message: String) -> ConfigError {
        match &self.spec.block_size {
            Some(place) => ConfigError::at(place, message),
            None => ConfigError::at(self.place, message),
        }
    }

    fn zone_order(&self) -> Result<ZoneOrder, ConfigError> {
        let is_random = matches!(self.operation, JobOperation::Randread | JobOperation::Randwrite);
        let is_skewed = self.spec.distribution.as_ref().is_some_and(|place| *place.get_ref() != Distribution::Uniform);
        let Some(place) = &self.spec.zone_order else {
            return Ok(match (is_random, &self.spec.stripe) {
                (_, Some(_)) => ZoneOrder::RoundRobin,
                (true, None) => ZoneOrder::Random,
                (false, None) => ZoneOrder::Sequential,
            });
        };
        let order = *place.get_ref();
        let refuse = |message: &str, help: &str| Err(ConfigError::at(place, message).help(help));
        if self.spec.stripe.is_some() && order != ZoneOrder::RoundRobin {
            return refuse(
                "a striped job visits its zones round-robin",
                "write zone_order = \"round-robin\", or remove it",
            );
        }
        if is_random && order == ZoneOrder::Sequential {
            return refuse("a random job never completes a zone", "write zone_order = \"random\" or \"round-robin\"");
        }
        if is_random && is_skewed && order != ZoneOrder::Random {
            return refuse("the distribution also selects the zone", "write zone_order = \"random\", or remove it");
        }
        Ok(order)
    }

    /// The zones of each worker.
    fn workers(&self, zones: &[ZoneIndex], order: ZoneOrder) -> Result<Vec<Vec<ZoneIndex>>, ConfigError> {
        let count = self.count(&self.spec.workers, WORKERS_MAX)?;
        let reads = matches!(self.operation, JobOperation::Read | JobOperation::Randread | JobOperation::Randwrite);
        let default = if reads { Share::All } else { Share::Split };
        let share = self.spec.share.as_ref().map_or(default, |place| *place.get_ref());
        if let Some(place) = &self.spec.share
            && share == Share::All
            && count > 1
            && self.weights.write > 0
        {
            return Err(ConfigError::at(place, "several workers cannot share a zone with plain writes")
                .help("write share = \"split\", or use operation = \"append\""));
        }
        if let Some(place) = &self.spec.workers
            && share != Share::All
            && count as usize > zones.len()
        {
            let message = format!("{count} workers cannot split {} zones", zones.len());
            let help = format!("write workers = {} or less, or share = \"all\" where zones can be shared", zones.len());
            return Err(ConfigError::at(place, message).help(help));
        }
        self.active_zones_suffice(zones, order, if share == Share::All { 1 } else { count })?;
        let count = count as usize;
        let of_worker = |worker: usize| match share {
            Share::All => zones.to_vec(),
            Share::Split => zones.iter().copied().skip(worker).step_by(count).collect(),
            // The first ranges are longer if they cannot be equal.
            Share::Ranges => {
                let start = |worker: usize| worker * (zones.len() / count) + worker.min(zones.len() % count);
                zones[start(worker)..start(worker + 1)].to_vec()
            }
        };
        Ok((0..count).map(of_worker).collect())
    }

    /// Checks that a writer does not need more active zones than the drive supports.
    fn active_zones_suffice(&self, zones: &[ZoneIndex], order: ZoneOrder, at_a_time: u32) -> Result<(), ConfigError> {
        let Some(max) = self.geometry.max_active_zones else { return Ok(()) };
        if self.weights.write == 0 && self.weights.append == 0 {
            return Ok(());
        }
        let is_sequential = |zone: &&ZoneIndex| self.geometry.zone_type(**zone) == ZoneType::SequentialWriteRequired;
        let zone_count = zones.iter().filter(is_sequential).count();
        let active = if order == ZoneOrder::Sequential { zone_count.min(at_a_time as usize) } else { zone_count };
        if active <= max as usize {
            return Ok(());
        }
        let noun = self.noun;
        let message = format!("this writes {active} zones at a time, and the {noun} allows {max} active zones");
        let first = self.geometry.conventional_zone_count;
        let (error, help) = match (&self.spec.zones, &self.spec.zone_order, &self.spec.workers) {
            (_, _, Some(place)) if order == ZoneOrder::Sequential => {
                (ConfigError::at(place, message), format!("write workers = {max} or less"))
            }
            (Some(place), ..) => (ConfigError::at(place, message), format!("use at most {max} zones")),
            (None, Some(place), _) => (ConfigError::at(place, message), String::new()),
            _ => (ConfigError::at(self.place, message), String::new()),
        };
        if !help.is_empty() {
            return Err(error.help(help));
        }
        let fewer = format!("add zones = \"{first}..{}\" or fewer", first + max);
        // A striped job always visits its zones round-robin.
        let is_striped = self.spec.stripe.is_some();
        Err(error.help(if is_striped { fewer } else { format!("{fewer}, or write zone_order = \"sequential\"") }))
    }

    /// Checks that the zones of a striped reader are at least as large as one request.
    fn stripes_fit(&self, workers: &[Vec<ZoneIndex>], request: u64, part: u64) -> Result<(), ConfigError> {
        let Some(place) = &self.spec.stripe else { return Ok(()) };
        let parts_in_zone = self.geometry.zone_capacity_blocks.0 / part;
        let fewest = workers.iter().map(Vec::len).min().unwrap_or(0) as u64;
        if parts_in_zone * fewest < request / part {
            return Err(ConfigError::at(place, "the zones of a worker are smaller than one request")
                .help("write a smaller block_size, or use more zones"));
        }
        Ok(())
    }

    /// Start and end from the start of the run.
    fn times(&self, run_time: Option<Duration>) -> Result<(Duration, Option<Duration>), ConfigError> {
        let start = time(&self.spec.start)?.unwrap_or(Duration::ZERO);
        if let (Some(place), Some(limit)) = (&self.spec.start, run_time)
            && start >= limit
        {
            return Err(ConfigError::at(place, format!("the job would start after the run of {limit} has ended"))
                .help("write a start before the time of [run]"));
        }
        let own = positive_time(&self.spec.time)?.map(|time| start + time);
        Ok((start, own.into_iter().chain(run_time).min()))
    }

    fn finish_at(&self, zones: &[ZoneIndex]) -> Result<Option<u64>, ConfigError> {
        let Some(place) = &self.spec.finish_at else { return Ok(None) };
        if zones.iter().any(|&zone| self.geometry.zone_type(zone) == ZoneType::Conventional) {
            return Err(ConfigError::at(place, "a conventional zone cannot be finished")
                .help("remove finish_at, or use only sequential zones"));
        }
        let capacity = self.geometry.zone_capacity_blocks.0;
        let blocks = (place.get_ref().0 * capacity as f64) as u64;
        if blocks == 0 {
            return Err(ConfigError::at(place, "nothing would be written before the zone is finished")
                .help("write a larger fraction, or use operation = \"finish\" for empty zones"));
        }
        Ok(Some(blocks).filter(|&blocks| blocks < capacity))
    }

    /// A count of at least one.
    fn count(&self, value: &Option<Spanned<u32>>, max: u32) -> Result<u32, ConfigError> {
        let Some(place) = value else { return Ok(1) };
        let count = *place.get_ref();
        if (1..=max).contains(&count) {
            return Ok(count);
        }
        Err(ConfigError::at(place, format!("{count} is out of range")).help(format!("write 1 to {max}")))
    }
}

fn span<T>(value: &Option<Spanned<T>>) -> Span {
    value.as_ref().map(Spanned::span)
}

/// A limit above zero.
fn limit<T>(value: &Option<Spanned<T>>, number: impl Fn(&T) -> u64) -> Result<Option<u64>, ConfigError> {
    match value {
        Some(place) if number(place.get_ref()) == 0 => {
            Err(ConfigError::at(place, "the job would have nothing to do")
                .help("write a number above zero, or remove it"))
        }
        value => Ok(value.as_ref().map(|place| number(place.get_ref()))),
    }
}
