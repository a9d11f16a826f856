//! The tables of layers in a file: the keys of each kind.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use zonda_config::{AnyTable, ByteSize, ConfigError, IndexSet, Spanned, TimeSpan, one_word};
use zonda_layers::When;

/// Denominator of probabilities.
const CHANCE_PARTS: u64 = 1_000_000_000;

/// A layer as a file describes it, such as a table `[[drive.layer]]`. The key `kind` selects the
/// variant, whose struct has the other keys.
#[derive(Clone, Debug)]
pub enum LayerSpec {
    /// Delays completions.
    Delay(DelaySpec),
    /// Fails commands.
    Fault(FaultSpec),
    /// Records commands and completions.
    Trace(TraceSpec),
    /// Exposes a range of zones as a namespace.
    Slice(SliceSpec),
    /// Reorders waiting commands.
    Scheduler(Box<SchedulerSpec>),
}

/// `kind = "delay"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelaySpec {
    /// The operations that match. Default all.
    pub operations: Option<Vec<Spanned<String>>>,
    /// The zones that match, one range. Default all zones, and commands without a zone.
    pub zones: Option<Spanned<ZonesSpec>>,
    /// Which of the matching commands are affected. Default all.
    pub when: Option<Spanned<WhenSpec>>,
    /// Short form of `when = { chance = ... }`.
    pub chance: Option<Spanned<f64>>,
    /// The fixed delay of each command.
    pub fixed: Option<Spanned<TimeSpan>>,
    /// An additional random delay, uniform from zero to this.
    pub spread: Option<Spanned<TimeSpan>>,
}

/// `kind = "fault"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSpec {
    /// The operations that match. Default all.
    pub operations: Option<Vec<Spanned<String>>>,
    /// The zones that match, one range. Default all zones, and commands without a zone.
    pub zones: Option<Spanned<ZonesSpec>>,
    /// Which of the matching commands are affected. Default all.
    pub when: Option<Spanned<WhenSpec>>,
    /// Short form of `when = { chance = ... }`.
    pub chance: Option<Spanned<f64>>,
    /// Whether the command is executed. Default no.
    pub effect: Option<Spanned<EffectSpec>>,
    /// The status of the command, in words.
    pub status: Option<Spanned<String>>,
}

/// `kind = "trace"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSpec {
    /// The number of last events to keep.
    pub events: Option<Spanned<u32>>,
}

/// `kind = "slice"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SliceSpec {
    /// The zone that becomes zone 0. Default 0.
    pub first: Option<Spanned<u32>>,
    /// The number of zones.
    pub count: Option<Spanned<u32>>,
    /// Its share of the active zones. Default all.
    pub max_active_zones: Option<Spanned<u32>>,
    /// Its share of the open zones. Default all.
    pub max_open_zones: Option<Spanned<u32>>,
    /// Its share of the Zone Random Write Areas. Default all.
    pub zrwa_resources: Option<Spanned<u32>>,
}

/// `kind = "scheduler"`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulerSpec {
    /// Which one.
    pub policy: Option<Spanned<PolicySpec>>,
    /// Commands in flight at the device below, at most. Default
    /// [`zonda_sched::limits::IN_FLIGHT_MAX`].
    pub in_flight: Option<Spanned<u32>>,
    /// mq-deadline: how long a read waits before it is preferred. Default 500 ms.
    pub read_expire: Option<Spanned<TimeSpan>>,
    /// mq-deadline: how long a write waits before it is preferred. Default 5 s.
    pub write_expire: Option<Spanned<TimeSpan>>,
    /// mq-deadline: batches of reads that may be preferred to waiting writes. Default 2.
    pub writes_starved: Option<Spanned<u32>>,
    /// mq-deadline: requests of a batch. Default 16.
    pub fifo_batch: Option<Spanned<u32>>,
    /// mq-deadline: whether writes that wait are merged, if they follow each other in a zone. Default
    /// no.
    pub merge: Option<Spanned<bool>>,
    /// mq-deadline: the time of the host's processor for each command, one after the other. Default 0.
    pub dispatch_time: Option<Spanned<TimeSpan>>,
    /// interference: the order inside a conflict group. Default fair.
    pub within: Option<Spanned<WithinSpec>>,
    /// ezns: the latency of a read above which its stream is congested. Default 500 us.
    pub read_latency_threshold: Option<Spanned<TimeSpan>>,
    /// ezns: the time in which a zone admits a block of 4 KiB, before a write has been measured.
    /// Default 100 us.
    pub block_latency: Option<Spanned<TimeSpan>>,
    /// ezns: tokens that a stream can collect for each zone. Default 128 KiB.
    pub token_capacity: Option<Spanned<ByteSize>>,
    /// ezns: the number of zones for which a zone counts. Default 1.
    pub zone_width: Option<Spanned<u8>>,
    /// ezns: how long the background waits for its next request while the foreground is busy.
    /// Default 10 ms.
    pub background_period: Option<Spanned<TimeSpan>>,
}

/// A scheduler, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySpec {
    /// In the order of arrival.
    None,
    /// As the Linux scheduler of that name.
    MqDeadline,
    /// As the scheduler of eZNS.
    Ezns,
    /// By conflict groups of zones.
    Interference,
}

/// The order inside a conflict group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WithinSpec {
    /// Tenants take turns.
    Fair,
    /// As the scheduler of eZNS.
    Ezns,
}

/// Whether a failed command is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EffectSpec {
    /// The command does not reach the drive.
    Fail,
    /// The command is executed, and its completion is replaced with an error.
    FailAfter,
}

/// The zones of a layer: the notation of [`IndexSet`], which must be one range without gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonesSpec(pub IndexSet);

/// The remedy for zones that are not one range.
pub(super) const ZONES_NOTATION: &str = "write a range like \"0..16\", and add a layer for each range";

/// `"always"`, `"once"`, `{ every = 3 }`, `{ after = 100 }` or `{ chance = 0.01 }`; see [`When`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhenSpec(pub When);

impl<'de> Deserialize<'de> for LayerSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LayerSpec, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Kind {
            Delay,
            Fault,
            Trace,
            Slice,
            Scheduler,
        }
        let mut table = AnyTable::deserialize(deserializer)?;
        match table.take("kind")? {
            Kind::Delay => table.parse().map(LayerSpec::Delay),
            Kind::Fault => table.parse().map(LayerSpec::Fault),
            Kind::Trace => table.parse().map(LayerSpec::Trace),
            Kind::Slice => table.parse().map(LayerSpec::Slice),
            Kind::Scheduler => table.parse().map(|spec| LayerSpec::Scheduler(Box::new(spec))),
        }
    }
}

impl<'de> Deserialize<'de> for PolicySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PolicySpec, D::Error> {
        let words = [
            ("none", PolicySpec::None),
            ("mq-deadline", PolicySpec::MqDeadline),
            ("ezns", PolicySpec::Ezns),
            ("interference", PolicySpec::Interference),
        ];
        one_word(deserializer, &words)
    }
}

impl<'de> Deserialize<'de> for WithinSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WithinSpec, D::Error> {
        one_word(deserializer, &[("fair", WithinSpec::Fair), ("ezns", WithinSpec::Ezns)])
    }
}

impl<'de> Deserialize<'de> for ZonesSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ZonesSpec, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Other(IndexSet),
        }
        let zones = match Written::deserialize(deserializer) {
            Ok(Written::Other(zones)) => return Ok(ZonesSpec(zones)),
            Ok(Written::Text(text)) => text.parse::<IndexSet>().map_err(|error| error.message),
            Err(_) => Err("zones must be a range, a number, or a list of these".to_owned()),
        };
        zones.map(ZonesSpec).map_err(|message| ConfigError::new(message).help(ZONES_NOTATION).into_serde())
    }
}

impl<'de> Deserialize<'de> for WhenSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WhenSpec, D::Error> {
        deserializer.deserialize_any(WhenVisitor)
    }
}

struct WhenVisitor;

const WHEN_NOTATION: &str = "write \"always\", \"once\", { every = 3 }, { after = 100 } or { chance = 0.01 }";

impl<'de> de::Visitor<'de> for WhenVisitor {
    type Value = WhenSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"always\", \"once\", { every = 3 }, { after = 100 } or { chance = 0.01 }")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<WhenSpec, E> {
        match word {
            "always" => Ok(WhenSpec(When::Always)),
            "once" => Ok(WhenSpec(When::Once)),
            _ => Err(refuse(&format!("\"{word}\" is not a valid condition"))),
        }
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<WhenSpec, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Keys {
            every: Option<u64>,
            after: Option<u64>,
            chance: Option<f64>,
        }
        let keys = Keys::deserialize(de::value::MapAccessDeserializer::new(map))?;
        match (keys.every, keys.after, keys.chance) {
            (Some(0), None, None) => Err(refuse("every must not be 0")),
            (Some(every), None, None) => Ok(WhenSpec(When::EveryNth(every))),
            (None, Some(after), None) => Ok(WhenSpec(When::After(after))),
            (None, None, Some(chance)) => chance_of(chance).map(WhenSpec).map_err(ConfigError::into_serde),
            _ => Err(refuse("not a valid condition")),
        }
    }
}

fn refuse<E: de::Error>(message: &str) -> E {
    ConfigError::new(message).help(WHEN_NOTATION).into_serde()
}

/// # Errors
/// If it is not a probability.
pub(super) fn chance_of(chance: f64) -> Result<When, ConfigError> {
    if !(0.0..=1.0).contains(&chance) {
        return Err(ConfigError::new(format!("{chance} is not a probability")).help("write a number from 0.0 to 1.0"));
    }
    Ok(When::Chance { numerator: (chance * CHANCE_PARTS as f64).round() as u64, denominator: CHANCE_PARTS })
}
