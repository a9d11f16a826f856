//! `[volume]`: a redundant volume of several identical drives.

use serde::{Deserialize, Serialize};
use zonda_config::{ByteSize, ConfigError, Spanned, TimeSpan};
use zonda_layers::Null;
use zonda_raid::{
    Counters, Event, Level, MemberIndex, Scheme, StreamShape, Victim, Volume, VolumeConfig, VolumeDevice,
};
use zonda_workload::{Distribution, Places};
use zonda_zoned::{
    Blocks, Command, CommandId, CompletionQueue, Duration, Geometry, Instant, Lba, NamespaceId, Operation, Payload,
    PayloadKind, Prng, QueueFull, Status, ZoneIndex, ZoneState, ZonedDevice,
};

use crate::{Drive, Stack};

/// The table `[volume]` of a file. Every member is a drive as described by `[drive]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeSpec {
    /// RAID level.
    pub level: Spanned<LevelSpec>,
    /// Data chunks of a stripe, k.
    pub data: Spanned<u8>,
    /// Parity chunks or copies, m. Default by level: 0 for RAID 0, 1 for 1, 4, 5 and k+m, 2 for 6,
    /// as many as data for 01.
    pub parity: Option<Spanned<u8>>,
    /// Size of the volume. Default everything except the reserve.
    pub size: Option<Spanned<ByteSize>>,
    /// Space reserved for garbage collection, in percent. Default 12.
    pub reserve_percent: Option<Spanned<u8>>,
    /// Stripe unit of segments for small requests. Default one block.
    pub small_unit: Option<Spanned<ByteSize>>,
    /// Stripes per group in these segments, G: 1 uses Zone Write only. Default 256.
    pub small_group: Option<Spanned<GroupSpec>>,
    /// Segments open for small requests. Default 1.
    pub small_segments: Option<Spanned<u8>>,
    /// Stripe unit of segments for large requests. Default 64 KiB.
    pub large_unit: Option<Spanned<ByteSize>>,
    /// Segments open for large requests; 0 sends all to the small ones. Default 1.
    pub large_segments: Option<Spanned<u8>>,
    /// Minimum size of large requests. Default 64 KiB.
    pub large_from: Option<Spanned<ByteSize>>,
    /// Time after which a partial stripe is padded. Default 100 us.
    pub flush_interval: Option<Spanned<TimeSpan>>,
    /// CPU time of each command to a member, on a single CPU. Default zero.
    pub command_time: Option<Spanned<TimeSpan>>,
    /// Selection of the next segment for garbage collection. Default greedy.
    pub victim: Option<Spanned<VictimSpec>>,
    /// Size of the part of the volume that is written sequentially before the run, without being
    /// counted. Default zero.
    pub fill: Option<Spanned<ByteSize>>,
    /// Amount of data that is then overwritten block by block at random places before the run,
    /// without being counted. Default zero.
    pub overwrite: Option<Spanned<ByteSize>>,
    /// Distribution of these places. Default uniform.
    pub overwrite_distribution: Option<Spanned<Distribution>>,
    /// Members that have failed when the run begins.
    #[serde(default)]
    pub fail: Vec<Spanned<u8>>,
    /// Whether they are replaced by empty drives when the run begins. Without jobs the run ends
    /// with the rebuild.
    #[serde(default)]
    pub rebuild: bool,
}

/// `"raid0"` to `"raid6"`, `"raid01"`, `"k+m"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum LevelSpec {
    /// No redundancy.
    #[serde(rename = "raid0")]
    Raid0,
    /// Copies.
    #[serde(rename = "raid1")]
    Raid1,
    /// A mirrored stripe.
    #[serde(rename = "raid01")]
    Raid01,
    /// One parity member.
    #[serde(rename = "raid4")]
    Raid4,
    /// One rotated parity.
    #[serde(rename = "raid5")]
    Raid5,
    /// Two rotated parities.
    #[serde(rename = "raid6")]
    Raid6,
    /// Reed-Solomon.
    #[serde(rename = "k+m")]
    ReedSolomon,
}

/// A number of stripes, or the whole segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum GroupSpec {
    /// Number of stripes.
    Stripes(u32),
    /// `"segment"`: Zone Append only.
    Segment(SegmentWord),
}

/// The word for a whole segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SegmentWord {
    /// All stripes of a segment are one group.
    Segment,
}

/// Selection of the next segment for garbage collection; see [`Victim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VictimSpec {
    /// The one with the fewest live blocks.
    Greedy,
    /// The one with the best benefit for its cost.
    CostBenefit,
}

/// A validated volume.
#[derive(Clone, Debug)]
pub(crate) struct VolumePlan {
    config: VolumeConfig,
    pub(crate) geometry: Geometry,
    pub(crate) fill_blocks: u64,
    overwrite_blocks: u64,
    overwrite_distribution: Distribution,
    fail: Vec<MemberIndex>,
    command_time: Duration,
    pub(crate) rebuilds: bool,
}

/// Figures of a volume at the end of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumeSummary {
    /// Number of members.
    pub members: u32,
    /// Size of the volume.
    pub volume_bytes: u64,
    /// Blocks written by hosts.
    pub host_blocks: u64,
    /// Blocks written to members: data, parity, padding, metadata, moved blocks.
    pub member_blocks: u64,
    /// Blocks of padding.
    pub padding_blocks: u64,
    /// Blocks moved by garbage collection.
    pub relocated_blocks: u64,
    /// Blocks written by hosts and by garbage collection, divided by those written by hosts.
    pub write_amplification: f64,
    /// Segments reclaimed.
    pub collected_segments: u64,
    /// Blocks reconstructed from their stripes.
    pub reconstructed_blocks: u64,
    /// Size of the map of logical blocks.
    pub map_bytes: u64,
    /// Current size of the compact stripe table.
    pub stripe_table_bytes: u64,
    /// Its size if all zones of all members were in segments for small requests.
    pub stripe_table_max_bytes: u64,
    /// Time from the start of the run to the end of the rebuild.
    pub rebuild_ns: Option<u64>,
}

/// A volume with its drives.
pub(crate) type VolumeStack = VolumeDevice<Stack>;

impl VolumeSpec {
    /// Validates the table against the drive of each member.
    ///
    /// # Errors
    /// The first error.
    pub(crate) fn check(place: &Spanned<VolumeSpec>, drive: &Drive) -> Result<VolumePlan, ConfigError> {
        let spec = place.get_ref();
        if drive.keeps() == PayloadKind::Fingerprints {
            let error = ConfigError::at(place, "a volume needs data or no payload to compute parity, not fingerprints");
            return Err(error.help("write payload = \"bytes\" or payload = \"none\" in [drive]"));
        }
        let data = *spec.data.get_ref();
        let default = match spec.level.get_ref() {
            LevelSpec::Raid0 => 0,
            LevelSpec::Raid01 => data,
            LevelSpec::Raid6 => 2,
            _ => 1,
        };
        let parity = spec.parity.as_ref().map_or(default, |parity| *parity.get_ref());
        let block_bytes = u64::from(drive.geometry().block_size_bytes);
        let blocks = |size: &Option<Spanned<ByteSize>>, default: u64| match size {
            None => Ok(default),
            Some(place) if place.get_ref().0.is_multiple_of(block_bytes) => Ok(place.get_ref().0 / block_bytes),
            Some(place) => {
                let error = ConfigError::at(place, "the size is not a multiple of the block size");
                Err(error.help(format!("the block size is {block_bytes} bytes")))
            }
        };
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let mut config = VolumeConfig::new("volume", Scheme { level: spec.level.get_ref().level(), data, parity });
        config.volume_blocks = match &spec.size {
            Some(_) => Some(blocks(&spec.size, 0)?),
            None => None,
        };
        config.small = StreamShape {
            unit_blocks: small(blocks(&spec.small_unit, 1)?),
            group_stripes: match spec.small_group.as_ref().map(|group| *group.get_ref()) {
                None => 256,
                Some(GroupSpec::Stripes(stripes)) => stripes,
                Some(GroupSpec::Segment(SegmentWord::Segment)) => StreamShape::WHOLE_SEGMENT,
            },
        };
        config.large =
            StreamShape { unit_blocks: small(blocks(&spec.large_unit, 65_536 / block_bytes)?), group_stripes: 1 };
        let tuning = &mut config.tuning;
        let number =
            |value: &Option<Spanned<u8>>, default: u8| value.as_ref().map_or(default, |value| *value.get_ref());
        tuning.reserve_percent = number(&spec.reserve_percent, tuning.reserve_percent);
        tuning.small_segments = number(&spec.small_segments, tuning.small_segments);
        tuning.large_segments = number(&spec.large_segments, tuning.large_segments);
        tuning.large_from_blocks = small(blocks(&spec.large_from, (65_536 / block_bytes).max(1))?);
        if let Some(interval) = &spec.flush_interval {
            tuning.flush_interval = Duration(interval.get_ref().0);
        }
        if let Some(VictimSpec::CostBenefit) = spec.victim.as_ref().map(|victim| *victim.get_ref()) {
            tuning.victim = Victim::CostBenefit;
        }
        tuning.has_contents = drive.keeps() == PayloadKind::Bytes;
        // The volume reports invalid configurations.
        let refuse = |error: zonda_raid::VolumeError| ConfigError::at(place, error.to_string());
        let members = vec![drive.geometry().clone(); config.scheme.members()];
        let (geometry, tolerates) = config.preview(&members).map_err(refuse)?;
        let fill_blocks = blocks(&spec.fill, 0)?;
        if let Some(place) = spec.fill.as_ref().filter(|_| fill_blocks > geometry.namespace_blocks().0) {
            let has = geometry.namespace_blocks().0 * block_bytes;
            let error = ConfigError::at(place, format!("the volume has only {has} bytes"));
            return Err(error.help("reduce fill, or omit size"));
        }
        if let Some(place) = spec.fail.iter().find(|member| usize::from(*member.get_ref()) >= config.scheme.members()) {
            let error = ConfigError::at(place, format!("the volume has {} members", config.scheme.members()));
            return Err(error.help("members are numbered from 0"));
        }
        if spec.fail.len() > tolerates {
            let error = ConfigError::at(&spec.fail[0], format!("the volume cannot lose {} members", spec.fail.len()));
            return Err(error.help(format!("fail at most {tolerates}")));
        }
        if spec.rebuild && spec.fail.len() != 1 {
            let error = ConfigError::at(place, "a rebuild needs exactly one failed member");
            return Err(error.help("name one member in fail, like fail = [0]"));
        }
        let overwrite_blocks = blocks(&spec.overwrite, 0)?;
        if let Some(place) = spec.overwrite.as_ref().filter(|_| fill_blocks == 0 && overwrite_blocks > 0) {
            let error = ConfigError::at(place, "overwrite needs a filled volume");
            return Err(error.help("set fill to the size of the part that is written first"));
        }
        let overwrite_distribution =
            spec.overwrite_distribution.as_ref().map_or(Distribution::Uniform, |place| *place.get_ref());
        let fail = spec.fail.iter().map(|member| MemberIndex(*member.get_ref())).collect();
        let command_time = Duration(spec.command_time.as_ref().map_or(0, |time| time.get_ref().0));
        Ok(VolumePlan {
            config,
            geometry,
            fill_blocks,
            overwrite_blocks,
            overwrite_distribution,
            fail,
            command_time,
            rebuilds: spec.rebuild,
        })
    }
}

impl LevelSpec {
    fn level(self) -> Level {
        match self {
            LevelSpec::Raid0 => Level::Raid0,
            LevelSpec::Raid1 => Level::Raid1,
            LevelSpec::Raid01 => Level::Raid01,
            LevelSpec::Raid4 => Level::Raid4,
            LevelSpec::Raid5 => Level::Raid5,
            LevelSpec::Raid6 => Level::Raid6,
            LevelSpec::ReedSolomon => Level::ReedSolomon,
        }
    }
}

fn create(config: &VolumeConfig, member: &Geometry) -> Result<Volume, zonda_raid::VolumeError> {
    let members = config.scheme.members();
    let ids: Vec<[u8; 16]> = (0..members as u8).map(|member| [member + 1; 16]).collect();
    Volume::create(config.clone(), vec![member.clone(); members], [7; 16], &ids, true)
}

impl VolumePlan {
    /// Stripes per group of segments for small requests.
    pub(crate) fn group_stripes(&self) -> u32 {
        self.config.small.group_stripes
    }

    /// The volume on new drives, filled and with its failed members, and the time at which the run
    /// starts. Filling with contents takes time.
    pub(crate) fn power_on(&self, drive: &Drive, prng: &Prng) -> (VolumeStack, Instant) {
        let members = self.config.scheme.members();
        let seeds: Vec<Prng> = (0..members).map(|member| prng.fork(&format!("member/{member}"))).collect();
        let volume = create(&self.config, drive.geometry()).expect("validated when the file was parsed");
        if self.config.tuning.has_contents {
            // Contents must be on the drives themselves.
            let stacks = seeds.iter().map(|seed| Some(stack(drive, seed, &[]))).collect();
            let mut volume = VolumeDevice::new(volume, stacks);
            let start = self.fill(&mut volume, prng, None);
            self.fail(&mut volume, drive, &seeds, start);
            return (volume.with_command_time(self.command_time), start);
        }
        // Without contents only write pointers matter: devices without latency are filled, and
        // replaced by drives with the same write pointers.
        let nulls = (0..members).map(|_| Some(Null::new(drive.geometry().clone()))).collect();
        let mut volume = VolumeDevice::new(volume, nulls);
        // Ages of segments matter only with overwrites; otherwise no time passes.
        let block_time = if self.overwrite_blocks > 0 { BLOCK_TIME } else { Duration(0) };
        let start = self.fill(&mut volume, prng, Some(block_time));
        let start = if block_time.0 > 0 { start } else { Instant::ZERO };
        let (volume, nulls) = volume.into_parts();
        let stacks =
            nulls.iter().flatten().zip(&seeds).map(|(null, seed)| Some(stack(drive, seed, &written(null)))).collect();
        let mut volume = VolumeDevice::new(volume, stacks);
        self.fail(&mut volume, drive, &seeds, start);
        (volume.with_command_time(self.command_time), start)
    }

    /// Writes the initial contents, with as many outstanding writes as the volume accepts; returns
    /// when they are durable.
    fn fill<D: ZonedDevice>(&self, volume: &mut VolumeDevice<D>, prng: &Prng, block_time: Option<Duration>) -> Instant {
        let mut filler = Filler::new(volume, block_time);
        let most = self.geometry.max_transfer_blocks.0;
        let mut at = 0;
        while at < self.fill_blocks {
            let count = most.min(self.fill_blocks - at);
            filler.write(at, count);
            at += count;
        }
        if self.overwrite_blocks > 0 {
            let places = Places::new(self.overwrite_distribution, self.fill_blocks);
            let mut prng = prng.fork("overwrite");
            for _ in 0..self.overwrite_blocks {
                filler.write(places.sample(&mut prng), 1);
            }
            // The run begins with garbage collection under load; a quiescent volume would have more
            // free segments.
            return filler.flush();
        }
        filler.quiesce()
    }

    fn fail(&self, volume: &mut VolumeStack, drive: &Drive, seeds: &[Prng], now: Instant) {
        for &member in &self.fail {
            volume.volume_mut().fail_member(now, member);
            volume.replace(member, None);
            if self.rebuilds {
                let replacement = stack(drive, &seeds[usize::from(member.0)].fork("replacement"), &[]);
                volume.replace(member, Some(replacement));
                let replaced =
                    volume.volume_mut().replace_member(now, member, drive.geometry().clone(), [member.0 + 101; 16]);
                replaced.expect("an identical drive is accepted");
            }
        }
    }

    /// Advances time until the rebuild completes; returns the time since the start.
    pub(crate) fn finish_rebuild(volume: &mut VolumeStack, start: Instant, from: Instant) -> Option<u64> {
        let mut now = from;
        loop {
            volume.process(now);
            while let Some(event) = volume.volume_mut().poll_event() {
                if matches!(event, Event::Rebuilt { .. }) {
                    return Some(now.since(start).as_nanos());
                }
            }
            now = volume.next_wakeup()?.max(now);
        }
    }
}

impl VolumeSummary {
    pub(crate) fn of(volume: &VolumeStack, before: Counters, rebuild_ns: Option<u64>) -> VolumeSummary {
        let counters = volume.volume().counters();
        let status = volume.volume().status();
        let host_blocks = counters.host_blocks - before.host_blocks;
        let relocated_blocks = counters.relocated_blocks - before.relocated_blocks;
        let block_bytes = u64::from(volume.volume().geometry().block_size_bytes);
        VolumeSummary {
            members: status.members.len() as u32,
            volume_bytes: status.volume_blocks * block_bytes,
            host_blocks,
            member_blocks: counters.member_blocks - before.member_blocks,
            padding_blocks: counters.padding_blocks - before.padding_blocks,
            relocated_blocks,
            write_amplification: (host_blocks + relocated_blocks) as f64 / host_blocks.max(1) as f64,
            collected_segments: counters.collected_segments - before.collected_segments,
            reconstructed_blocks: counters.reconstructed_blocks - before.reconstructed_blocks,
            map_bytes: status.map_bytes,
            stripe_table_bytes: status.stripe_table_bytes,
            stripe_table_max_bytes: status.stripe_table_max_bytes,
            rebuild_ns,
        }
    }
}

fn stack(drive: &Drive, prng: &Prng, prefill: &[(ZoneIndex, Blocks)]) -> Stack {
    let ssd = drive.power_on(prng, prefill).expect("a volume respects the limit on active zones");
    drive.stack(ssd, prng)
}

/// Written blocks of each zone.
fn written(null: &Null) -> Vec<(ZoneIndex, Blocks)> {
    let geometry = null.geometry(NamespaceId::FIRST);
    (0..geometry.zone_count)
        .map(ZoneIndex)
        .filter_map(|zone| {
            let blocks = match null.zones().zone(zone).state {
                ZoneState::Empty => return None,
                ZoneState::Full => geometry.zone_capacity_blocks,
                _ => null.zones().readable_blocks(zone),
            };
            Some((zone, blocks))
        })
        .collect()
}

/// Time per block written to devices without latency, so that ages of segments differ.
const BLOCK_TIME: Duration = Duration::from_micros(4);

/// Writes to a volume before the run.
struct Filler<'a, D> {
    volume: &'a mut VolumeDevice<D>,
    completions: CompletionQueue,
    now: Instant,
    /// Time per block; by default, time advances as the devices require.
    block_time: Option<Duration>,
    submitted: u64,
    ended: u64,
}

impl<'a, D: ZonedDevice> Filler<'a, D> {
    /// Waits until the volume is created.
    fn new(volume: &'a mut VolumeDevice<D>, block_time: Option<Duration>) -> Filler<'a, D> {
        let mut filler = Filler {
            volume,
            completions: CompletionQueue::new(),
            now: Instant::ZERO,
            block_time,
            submitted: 0,
            ended: 0,
        };
        filler.poll();
        while !filler.volume.volume().is_ready() {
            assert!(filler.advance(), "a volume that is being created waits for its members");
        }
        filler
    }

    fn write(&mut self, start: u64, blocks: u64) {
        self.submit(Operation::Write { start: Lba(start), blocks: Blocks(blocks), payload: Payload::None });
        match self.block_time {
            Some(block_time) => {
                self.now += Duration(block_time.0 * blocks);
                self.poll();
            }
            None => {
                self.advance();
            }
        }
    }

    fn submit(&mut self, operation: Operation) {
        let mut command = Command::new(CommandId(self.submitted), NamespaceId::FIRST, operation);
        self.submitted += 1;
        while let Err(QueueFull(refused)) = self.volume.submit(self.now, command) {
            command = refused;
            assert!(self.advance(), "a volume whose queue is full has outstanding requests");
        }
    }

    /// Waits until all writes are durable.
    fn flush(mut self) -> Instant {
        self.submit(Operation::Flush);
        while self.ended < self.submitted {
            assert!(self.advance(), "a flush ends");
        }
        self.now
    }

    /// Waits until the volume is quiescent.
    fn quiesce(mut self) -> Instant {
        while self.advance() {}
        self.now
    }

    /// Advances time to the next event; false if there is none.
    fn advance(&mut self) -> bool {
        let Some(next) = self.volume.next_wakeup() else { return false };
        self.now = next.max(self.now);
        self.poll();
        true
    }

    fn poll(&mut self) {
        self.volume.poll(self.now, &mut self.completions);
        while let Some(completion) = self.completions.pop() {
            assert_eq!(completion.status, Status::Success, "a volume on new drives can be written");
            self.ended += 1;
        }
    }
}
