//! `[[drive.layer]]`: layers around the drive.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Deserializer, de};
use zonda_config::{ConfigError, IndexSet, Spanned, TimeSpan, did_you_mean_help};
use zonda_layers::limits::TRACE_EVENTS_DEFAULT;
use zonda_layers::{DelayRule, FaultEffect, FaultRule, Matcher, OperationKind, OperationSet, SliceConfig, When};
use zonda_zoned::{Duration, Geometry, NamespaceId, PayloadKind, Status, ZoneIndex};

use crate::limits::TRACE_EVENTS_MAX;

/// The maximum delay, a year, so that no sum overflows.
const DELAY_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Denominator of probabilities.
const CHANCE_PARTS: u64 = 1_000_000_000;

/// A table `[[drive.layer]]` of a file. The supported keys depend on its kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerSpec {
    /// The kind of layer.
    pub kind: Spanned<LayerKind>,
    /// Delay, fault: the operations that match. Default all.
    pub operations: Option<Vec<Spanned<String>>>,
    /// Delay, fault: the zones that match, one range. Default all zones, and commands without a
    /// zone.
    pub zones: Option<Spanned<IndexSet>>,
    /// Delay, fault: which of the matching commands are affected. Default all.
    pub when: Option<Spanned<WhenSpec>>,
    /// Delay, fault: short form of `when = { chance = ... }`.
    pub chance: Option<Spanned<f64>>,
    /// Delay: the fixed delay of each command.
    pub fixed: Option<Spanned<TimeSpan>>,
    /// Delay: an additional random delay, uniform from zero to this.
    pub spread: Option<Spanned<TimeSpan>>,
    /// Fault: whether the command is executed. Default no.
    pub effect: Option<Spanned<FaultSpec>>,
    /// Fault: the status of the command, in words.
    pub status: Option<Spanned<String>>,
    /// Trace: the number of last events to keep.
    pub events: Option<Spanned<u32>>,
    /// Slice: the zone that becomes zone 0. Default 0.
    pub first: Option<Spanned<u32>>,
    /// Slice: the number of zones.
    pub count: Option<Spanned<u32>>,
    /// Slice: its share of the active zones. Default all.
    pub max_active_zones: Option<Spanned<u32>>,
    /// Slice: its share of the open zones. Default all.
    pub max_open_zones: Option<Spanned<u32>>,
    /// Slice: its share of the Zone Random Write Areas. Default all.
    pub zrwa_resources: Option<Spanned<u32>>,
}

/// The kinds of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerKind {
    /// Delays completions.
    Delay,
    /// Fails commands.
    Fault,
    /// Records commands and completions.
    Trace,
    /// Exposes a range of zones as a namespace.
    Slice,
}

/// Whether a failed command is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultSpec {
    /// The command does not reach the drive.
    Fail,
    /// The command is executed, and its completion is replaced with an error.
    FailAfter,
}

/// `"always"`, `"once"`, `{ every = 3 }`, `{ after = 100 }` or `{ chance = 0.01 }`; see [`When`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WhenSpec(pub When);

/// A validated layer.
#[derive(Clone, Debug)]
pub(crate) enum LayerPlan {
    Delay(DelayRule),
    Fault(FaultRule),
    Trace { events: usize },
    Slice(SliceConfig),
}

/// A key of a layer: its name, its span if present, and the kinds of layers that support it.
type Key<'a> = (&'a str, Option<Range<usize>>, &'a [LayerKind]);

impl LayerPlan {
    /// Validates a layer against the namespace below it, and changes `geometry` to that of the
    /// layer.
    pub(crate) fn new(
        place: &Spanned<LayerSpec>,
        geometry: &mut Geometry,
        keeps: PayloadKind,
    ) -> Result<LayerPlan, ConfigError> {
        let spec = place.get_ref();
        spec.check_keys()?;
        match spec.kind.get_ref() {
            LayerKind::Delay => Ok(LayerPlan::Delay(DelayRule {
                matches: spec.matcher(geometry)?,
                when: spec.when()?,
                fixed: spec.delay(&spec.fixed)?,
                spread: spec.spread_or_fixed(place)?,
            })),
            LayerKind::Fault => Ok(LayerPlan::Fault(FaultRule {
                matches: spec.matcher(geometry)?,
                when: spec.when()?,
                effect: spec.effect(place)?,
            })),
            LayerKind::Trace => {
                let events = spec.events.as_ref().map_or(TRACE_EVENTS_DEFAULT as u32, |events| *events.get_ref());
                match &spec.events {
                    Some(place) if events > TRACE_EVENTS_MAX => {
                        Err(ConfigError::at(place, format!("too many events: {events}"))
                            .help(format!("write 0 to {TRACE_EVENTS_MAX}")))
                    }
                    _ => Ok(LayerPlan::Trace { events: events as usize }),
                }
            }
            LayerKind::Slice => {
                let config = spec.slice(place, geometry, keeps)?;
                *geometry = config.geometry(geometry).map_err(|error| spec.slice_error(place, &error))?;
                Ok(LayerPlan::Slice(config))
            }
        }
    }
}

impl LayerSpec {
    fn check_keys(&self) -> Result<(), ConfigError> {
        use LayerKind::{Delay, Fault, Slice, Trace};
        let operations = self.operations.as_ref().map(|operations| operations.first().map_or(0..0, Spanned::span));
        let keys: [Key<'_>; 14] = [
            ("operations", operations, &[Delay, Fault]),
            ("zones", span(&self.zones), &[Delay, Fault]),
            ("when", span(&self.when), &[Delay, Fault]),
            ("chance", span(&self.chance), &[Delay, Fault]),
            ("fixed", span(&self.fixed), &[Delay]),
            ("spread", span(&self.spread), &[Delay]),
            ("effect", span(&self.effect), &[Fault]),
            ("status", span(&self.status), &[Fault]),
            ("events", span(&self.events), &[Trace]),
            ("first", span(&self.first), &[Slice]),
            ("count", span(&self.count), &[Slice]),
            ("max_active_zones", span(&self.max_active_zones), &[Slice]),
            ("max_open_zones", span(&self.max_open_zones), &[Slice]),
            ("zrwa_resources", span(&self.zrwa_resources), &[Slice]),
        ];
        let kind = *self.kind.get_ref();
        for (key, span, users) in &keys {
            let Some(span) = span else { continue };
            if !users.contains(&kind) {
                let own: Vec<&str> =
                    keys.iter().filter(|(_, _, users)| users.contains(&kind)).map(|key| key.0).collect();
                return Err(ConfigError::new(format!("{key} is not supported for kind = \"{}\"", kind.name()))
                    .within(span.clone())
                    .help(format!("remove it; the keys of this kind are {}", own.join(", "))));
            }
        }
        Ok(())
    }

    fn matcher(&self, geometry: &Geometry) -> Result<Matcher, ConfigError> {
        Ok(Matcher {
            namespace: NamespaceId::FIRST,
            operations: self.operations()?,
            zones: self.zones(geometry)?,
            lbas: None,
        })
    }

    fn operations(&self) -> Result<OperationSet, ConfigError> {
        let Some(operations) = &self.operations else { return Ok(OperationSet::ALL) };
        let mut set = OperationSet::NONE;
        for place in operations {
            let name = place.get_ref().as_str();
            let kind = OperationKind::ALL.into_iter().find(|kind| kind.name() == name);
            set = set
                | match (kind, name) {
                    (Some(kind), _) => OperationSet::of(&[kind]),
                    (None, "writes") => OperationSet::WRITES,
                    (None, "management") => OperationSet::MANAGEMENT,
                    (None, _) => {
                        let names = OperationKind::ALL.map(OperationKind::name);
                        let names: Vec<&str> = names.into_iter().chain(["writes", "management"]).collect();
                        return Err(ConfigError::at(place, format!("unknown operation \"{name}\""))
                            .help(did_you_mean_help(name, &names)));
                    }
                };
        }
        Ok(set)
    }

    fn zones(&self, geometry: &Geometry) -> Result<Option<Range<ZoneIndex>>, ConfigError> {
        let Some(place) = &self.zones else { return Ok(None) };
        let zones: &[u32] = place.get_ref();
        let (first, last) = (zones[0], zones[zones.len() - 1]);
        if zones.iter().zip(first..).any(|(&zone, expected)| zone != expected) {
            let error = ConfigError::at(place, "the zones of a layer must be one range without gaps");
            return Err(error.help("write a range like \"0..16\", and add a layer for each range"));
        }
        if last >= geometry.zone_count {
            let message = format!("zone {last} does not exist: the namespace has {} zones", geometry.zone_count);
            return Err(ConfigError::at(place, message).help(format!("use zones of 0..{}", geometry.zone_count)));
        }
        Ok(Some(ZoneIndex(first)..ZoneIndex(last + 1)))
    }

    fn when(&self) -> Result<When, ConfigError> {
        match (&self.when, &self.chance) {
            (Some(_), Some(chance)) => Err(ConfigError::at(chance, "chance and when cannot be combined")
                .help("remove one of them: chance is the short form of when = { chance = ... }")),
            (Some(when), None) => Ok(when.get_ref().0),
            (None, Some(chance)) => chance_of(*chance.get_ref()).map_err(|error| error.within(chance.span())),
            (None, None) => Ok(When::Always),
        }
    }

    fn delay(&self, value: &Option<Spanned<TimeSpan>>) -> Result<Duration, ConfigError> {
        let Some(place) = value else { return Ok(Duration::ZERO) };
        let span = Duration(place.get_ref().0);
        if span > DELAY_MAX {
            return Err(ConfigError::at(place, "the delay is longer than a year").help("write at most \"8760 h\""));
        }
        Ok(span)
    }

    fn spread_or_fixed(&self, place: &Spanned<LayerSpec>) -> Result<Duration, ConfigError> {
        if self.fixed.is_none() && self.spread.is_none() {
            let error = ConfigError::at(place, "the layer has no delay");
            return Err(error.help("add a line like fixed = \"100 us\" or spread = \"50 us\""));
        }
        self.delay(&self.spread)
    }

    fn effect(&self, place: &Spanned<LayerSpec>) -> Result<FaultEffect, ConfigError> {
        // A Vec, because LLVM unrolls the code for an array of this many strings, which takes
        // minutes.
        let names: Vec<String> = Status::ERRORS.iter().map(Status::to_string).collect();
        let Some(status) = &self.status else {
            let error = ConfigError::at(place, "the layer has no status for failed commands");
            return Err(
                error.help(format!("add a line like status = \"write fault\"; allowed are {}", names.join(", ")))
            );
        };
        let Some(at) = names.iter().position(|known| known == status.get_ref()) else {
            let message = format!("unknown status \"{}\"", status.get_ref());
            return Err(ConfigError::at(status, message).help(did_you_mean_help(status.get_ref(), &names)));
        };
        Ok(match self.effect.as_ref().map(|effect| *effect.get_ref()) {
            None | Some(FaultSpec::Fail) => FaultEffect::Fail(Status::ERRORS[at]),
            Some(FaultSpec::FailAfter) => FaultEffect::FailAfter(Status::ERRORS[at]),
        })
    }

    fn slice(
        &self,
        place: &Spanned<LayerSpec>,
        geometry: &Geometry,
        keeps: PayloadKind,
    ) -> Result<SliceConfig, ConfigError> {
        let Some(count) = &self.count else {
            let error = ConfigError::at(place, "the layer has no number of zones");
            return Err(error.help("add a line like count = 16"));
        };
        let given = |value: &Option<Spanned<u32>>| value.as_ref().map(|value| *value.get_ref());
        let max_active_zones = given(&self.max_active_zones).or(geometry.max_active_zones);
        // A limit on active zones below the limit on open zones limits these, too.
        let open_default = geometry.max_open_zones.map(|open| max_active_zones.map_or(open, |active| active.min(open)));
        Ok(SliceConfig {
            namespace: NamespaceId::FIRST,
            first: ZoneIndex(given(&self.first).unwrap_or(0)),
            count: *count.get_ref(),
            max_active_zones,
            max_open_zones: given(&self.max_open_zones).or(open_default),
            zrwa_resources: given(&self.zrwa_resources)
                .unwrap_or_else(|| geometry.zrwa.map_or(0, |zrwa| zrwa.resources)),
            keeps,
        })
    }

    fn slice_error(&self, place: &Spanned<LayerSpec>, error: &zonda_layers::SliceError) -> ConfigError {
        let key = match error.field {
            "count" => span(&self.count),
            "max_active_zones" => span(&self.max_active_zones),
            "max_open_zones" => span(&self.max_open_zones),
            "zrwa_resources" => span(&self.zrwa_resources),
            _ => None,
        };
        ConfigError::new(format!("invalid slice: {} {}", error.field, error.remedy))
            .within(key.unwrap_or_else(|| place.span()))
    }
}

impl LayerKind {
    /// The value of `kind` in a file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LayerKind::Delay => "delay",
            LayerKind::Fault => "fault",
            LayerKind::Trace => "trace",
            LayerKind::Slice => "slice",
        }
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

fn chance_of(chance: f64) -> Result<When, ConfigError> {
    if !(0.0..=1.0).contains(&chance) {
        return Err(ConfigError::new(format!("{chance} is not a probability")).help("write a number from 0.0 to 1.0"));
    }
    Ok(When::Chance { numerator: (chance * CHANCE_PARTS as f64).round() as u64, denominator: CHANCE_PARTS })
}

fn span<T>(value: &Option<Spanned<T>>) -> Option<Range<usize>> {
    value.as_ref().map(Spanned::span)
}
