//! `[volume]`: a redundant volume of several identical drives.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use zonda_config::{ByteSize, ConfigError, Spanned, TimeSpan};
use zonda_raid::{Level, MemberIndex, Scheme, StreamShape, Victim, VolumeConfig, VolumeError};
use zonda_workload::Distribution;
use zonda_zoned::{Duration, Geometry, PayloadKind};

use crate::drive::DriveNode;
use crate::layer::LayerSpec;
use crate::prepare::Preparation;
use crate::{Drive, Node, VolumeNode};

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
    /// Layers over the volume, the innermost first.
    #[serde(default)]
    pub layer: Vec<Spanned<LayerSpec>>,
    /// Members with layers of their own.
    #[serde(default)]
    pub member: Vec<Spanned<MemberSpec>>,
    /// Members that have failed when the run begins.
    #[serde(default)]
    pub fail: Vec<Spanned<u8>>,
    /// Whether they are replaced by empty drives when the run begins. Without jobs the run ends
    /// with the rebuild.
    #[serde(default)]
    pub rebuild: bool,
}

/// A table `[[volume.member]]`: what distinguishes a member from the others.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberSpec {
    /// The member, counted from 0.
    pub index: Spanned<u8>,
    /// Layers over those of `[drive]`, the innermost first.
    #[serde(default)]
    pub layer: Vec<Spanned<LayerSpec>>,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupSpec {
    /// Number of stripes.
    Stripes(u32),
    /// `"segment"`: all stripes of a segment are one group. Zone Append only.
    Segment,
}

impl<'de> Deserialize<'de> for GroupSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GroupSpec, D::Error> {
        deserializer.deserialize_any(GroupVisitor)
    }
}

struct GroupVisitor;

impl Visitor<'_> for GroupVisitor {
    type Value = GroupSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of stripes, or \"segment\"")
    }

    fn visit_i64<E: de::Error>(self, stripes: i64) -> Result<GroupSpec, E> {
        let stripes = u32::try_from(stripes);
        stripes.map(GroupSpec::Stripes).map_err(|_| E::custom("\"small_group\" must be a number of stripes"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<GroupSpec, E> {
        if text == "segment" { Ok(GroupSpec::Segment) } else { Err(E::invalid_value(Unexpected::Str(text), &self)) }
    }
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
pub(crate) struct CheckedVolume {
    /// The volume below its layers.
    pub(crate) node: DriveNode,
    /// The geometry of the outermost layer.
    pub(crate) geometry: Geometry,
    pub(crate) preparation: Preparation,
}

impl VolumeSpec {
    /// Validates the table against the drive of each member.
    ///
    /// # Errors
    /// The first error.
    pub(crate) fn check(place: &Spanned<VolumeSpec>, drive: &Drive) -> Result<CheckedVolume, ConfigError> {
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
                Some(GroupSpec::Segment) => StreamShape::WHOLE_SEGMENT,
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
        let member_count = config.scheme.members();
        let (members, geometries) = spec.members(drive, member_count)?;
        // The volume reports invalid configurations.
        let refuse = |error: VolumeError| {
            ConfigError::at(place, error.to_string())
                .help("docs/guide/volumes.md describes levels, sizes and tuning of volumes")
        };
        let (mut geometry, tolerates) = config.preview(&geometries).map_err(refuse)?;
        let fill_blocks = blocks(&spec.fill, 0)?;
        if let Some(place) = spec.fill.as_ref().filter(|_| fill_blocks > geometry.namespace_blocks().0) {
            let has = geometry.namespace_blocks().0 * block_bytes;
            let error = ConfigError::at(place, format!("the volume has only {has} bytes"));
            return Err(error.help("reduce fill, or omit size"));
        }
        spec.fail.iter().try_for_each(|member| member_exists(member, member_count))?;
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
        let preparation = Preparation {
            fill_blocks,
            overwrite_blocks,
            overwrite_distribution,
            geometries,
            fail,
            command_time,
            rebuilds: spec.rebuild,
        };
        let node = Node::Volume(VolumeNode { config, members });
        let node = node.with_layers(&spec.layer, &mut geometry, drive.keeps())?;
        Ok(CheckedVolume { node, geometry, preparation })
    }

    /// The members with their layers, and their geometries.
    fn members(&self, drive: &Drive, count: usize) -> Result<(Vec<DriveNode>, Vec<Geometry>), ConfigError> {
        let mut members = vec![drive.node.clone(); count];
        let mut geometries = vec![drive.geometry().clone(); count];
        let mut indexes = BTreeSet::new();
        for table in &self.member {
            let MemberSpec { index, layer } = table.get_ref();
            member_exists(index, count)?;
            if !indexes.insert(index.get_ref()) {
                let error = ConfigError::at(index, format!("member {} has two tables", index.get_ref()));
                return Err(error.help("write all layers of a member into one [[volume.member]]"));
            }
            let place = usize::from(*index.get_ref());
            members[place] = members[place].clone().with_layers(layer, &mut geometries[place], drive.keeps())?;
        }
        Ok((members, geometries))
    }
}

fn member_exists(member: &Spanned<u8>, members: usize) -> Result<(), ConfigError> {
    if usize::from(*member.get_ref()) < members {
        return Ok(());
    }
    let error = ConfigError::at(member, format!("the volume has {members} members"));
    Err(error.help("members are numbered from 0"))
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
