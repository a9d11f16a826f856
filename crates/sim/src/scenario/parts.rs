//! Serde descriptions of types of other crates: the names here are the keys of the bug base's
//! files.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use zonda_layers::{DelayRule, FaultEffect, FaultRule, Matcher, OperationKind, OperationSet, SliceConfig, When};
use zonda_stack::Layer;
use zonda_zoned::{Blocks, Duration, Geometry, Lba, NamespaceId, PayloadKind, Status, ZoneIndex, ZrwaGeometry};

#[derive(Serialize, Deserialize)]
#[serde(remote = "Blocks")]
pub(super) struct BlocksDef(u64);

#[derive(Serialize, Deserialize)]
#[serde(remote = "Duration")]
pub(crate) struct DurationDef(u64);

#[derive(Serialize, Deserialize)]
#[serde(remote = "ZoneIndex")]
pub(super) struct ZoneIndexDef(u32);

#[derive(Serialize, Deserialize)]
#[serde(remote = "NamespaceId")]
pub(super) struct NamespaceIdDef(u32);

#[derive(Serialize, Deserialize)]
#[serde(remote = "PayloadKind", rename_all = "kebab-case")]
pub(super) enum PayloadKindDef {
    None,
    Fingerprints,
    Bytes,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Geometry", deny_unknown_fields)]
pub(super) struct GeometryDef {
    block_size_bytes: u32,
    metadata_bytes: u16,
    #[serde(with = "BlocksDef")]
    zone_size_blocks: Blocks,
    #[serde(with = "BlocksDef")]
    zone_capacity_blocks: Blocks,
    zone_count: u32,
    conventional_zone_count: u32,
    max_active_zones: Option<u32>,
    max_open_zones: Option<u32>,
    #[serde(with = "BlocksDef")]
    max_transfer_blocks: Blocks,
    #[serde(with = "BlocksDef")]
    max_append_blocks: Blocks,
    read_across_zones: bool,
    descriptor_extension_bytes: u32,
    #[serde(default, with = "zrwa", skip_serializing_if = "Option::is_none")]
    zrwa: Option<ZrwaGeometry>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ZrwaGeometry", deny_unknown_fields)]
struct ZrwaGeometryDef {
    #[serde(with = "BlocksDef")]
    size_blocks: Blocks,
    #[serde(with = "BlocksDef")]
    flush_granularity_blocks: Blocks,
    resources: u32,
    explicit_flush: bool,
}

mod zrwa {
    use super::{Deserialize, Deserializer, Serialize, Serializer, ZrwaGeometry, ZrwaGeometryDef};

    #[derive(Serialize, Deserialize)]
    struct Item(#[serde(with = "ZrwaGeometryDef")] ZrwaGeometry);

    pub(super) fn serialize<S: Serializer>(zrwa: &Option<ZrwaGeometry>, to: S) -> Result<S::Ok, S::Error> {
        zrwa.map(Item).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ZrwaGeometry>, D::Error> {
        Ok(Option::<Item>::deserialize(from)?.map(|item| item.0))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "SliceConfig", deny_unknown_fields)]
pub(super) struct SliceConfigDef {
    #[serde(with = "NamespaceIdDef")]
    namespace: NamespaceId,
    #[serde(rename = "first_zone", with = "ZoneIndexDef")]
    first: ZoneIndex,
    #[serde(rename = "zones")]
    count: u32,
    max_active_zones: Option<u32>,
    max_open_zones: Option<u32>,
    zrwa_resources: u32,
    #[serde(rename = "payload", with = "PayloadKindDef")]
    keeps: PayloadKind,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Matcher", deny_unknown_fields)]
struct MatcherDef {
    #[serde(with = "NamespaceIdDef")]
    namespace: NamespaceId,
    #[serde(with = "operations")]
    operations: OperationSet,
    /// The first zone, and the one after the last (exclusive).
    #[serde(default, with = "zone_range", skip_serializing_if = "Option::is_none")]
    zones: Option<Range<ZoneIndex>>,
    /// The first block, and the one after the last (exclusive).
    #[serde(default, with = "lba_range", skip_serializing_if = "Option::is_none")]
    lbas: Option<Range<Lba>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "DelayRule", deny_unknown_fields)]
struct DelayRuleDef {
    #[serde(with = "when")]
    when: When,
    #[serde(rename = "fixed_ns", with = "DurationDef")]
    fixed: Duration,
    #[serde(rename = "spread_ns", with = "DurationDef")]
    spread: Duration,
    #[serde(with = "MatcherDef")]
    matches: Matcher,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "FaultRule", deny_unknown_fields)]
struct FaultRuleDef {
    #[serde(with = "when")]
    when: When,
    #[serde(with = "effect")]
    effect: FaultEffect,
    #[serde(with = "MatcherDef")]
    matches: Matcher,
}

/// A rule of a delay layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Delay(#[serde(with = "DelayRuleDef")] pub(super) DelayRule);

/// A rule of a fault layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Fault(#[serde(with = "FaultRuleDef")] pub(super) FaultRule);

/// A geometry in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Member(#[serde(with = "GeometryDef")] pub(super) Geometry);

/// A layer over a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum LayerText {
    Slice {
        #[serde(with = "SliceConfigDef")]
        slice: SliceConfig,
    },
    Delays {
        rules: Vec<Delay>,
    },
    Trace {},
    Faults {
        rules: Vec<Fault>,
    },
}

impl LayerText {
    pub(super) fn of(layer: &Layer) -> LayerText {
        match layer {
            Layer::Slice(slice) => LayerText::Slice { slice: *slice },
            Layer::Delay(rules) => LayerText::Delays { rules: rules.iter().cloned().map(Delay).collect() },
            Layer::Trace { .. } => LayerText::Trace {},
            Layer::Scheduler { .. } => unreachable!("no scheduler is generated: the oracle follows submissions"),
            Layer::Fault(rules) => LayerText::Faults { rules: rules.iter().cloned().map(Fault).collect() },
        }
    }

    pub(super) fn layer(&self) -> Layer {
        match self {
            LayerText::Slice { slice } => Layer::Slice(*slice),
            LayerText::Delays { rules } => Layer::Delay(rules.iter().map(|rule| rule.0.clone()).collect()),
            LayerText::Trace {} => Layer::Trace { events: 0 },
            LayerText::Faults { rules } => Layer::Fault(rules.iter().map(|rule| rule.0.clone()).collect()),
        }
    }
}

/// `always`, `once`, `every 3`, `after 3`, `1 of 20`.
mod when {
    use super::{Deserialize, Deserializer, Serializer, When, de};

    pub(super) fn serialize<S: Serializer>(when: &When, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&match when {
            When::Always => "always".to_owned(),
            When::Once => "once".to_owned(),
            When::EveryNth(nth) => format!("every {nth}"),
            When::After(first) => format!("after {first}"),
            When::Chance { numerator, denominator } => format!("{numerator} of {denominator}"),
        })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<When, D::Error> {
        let text = String::deserialize(from)?;
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().ok();
        let when = match words[..] {
            ["always"] => Some(When::Always),
            ["once"] => Some(When::Once),
            ["every", nth] => number(nth).filter(|nth| *nth > 0).map(When::EveryNth),
            ["after", first] => number(first).map(When::After),
            [numerator, "of", denominator] => number(numerator)
                .zip(number(denominator).filter(|of| *of > 0))
                .map(|(numerator, denominator)| When::Chance { numerator, denominator }),
            _ => None,
        };
        let allowed = "\"always\", \"once\", \"every 3\", \"after 3\" or \"1 of 20\"";
        when.ok_or_else(|| de::Error::custom(format!("when = \"{text}\" must be {allowed}")))
    }
}

/// `drop`, `drop after`, `corrupt read`, or `fail: STATUS`, `fail after: STATUS`.
mod effect {
    use super::{Deserialize, Deserializer, FaultEffect, Serializer, Status, de};

    pub(super) fn serialize<S: Serializer>(effect: &FaultEffect, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&match effect {
            FaultEffect::Fail(status) => format!("fail: {status}"),
            FaultEffect::FailAfter(status) => format!("fail after: {status}"),
            FaultEffect::CorruptRead => "corrupt read".to_owned(),
            FaultEffect::Drop => "drop".to_owned(),
            FaultEffect::DropAfter => "drop after".to_owned(),
        })
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<FaultEffect, D::Error> {
        let text = String::deserialize(from)?;
        let status = |name: &str| Status::ERRORS.into_iter().find(|status| status.to_string() == name);
        let effect = match text.split_once(": ") {
            Some(("fail", name)) => status(name).map(FaultEffect::Fail),
            Some(("fail after", name)) => status(name).map(FaultEffect::FailAfter),
            None if text == "corrupt read" => Some(FaultEffect::CorruptRead),
            None if text == "drop" => Some(FaultEffect::Drop),
            None if text == "drop after" => Some(FaultEffect::DropAfter),
            _ => None,
        };
        let allowed = "\"fail: STATUS\", \"fail after: STATUS\", \"corrupt read\", \"drop\" or \"drop after\"";
        effect.ok_or_else(|| de::Error::custom(format!("effect = \"{text}\" must be {allowed}")))
    }
}

/// Names of operations; `["all"]` is every one.
mod operations {
    use super::{Deserialize, Deserializer, OperationKind, OperationSet, Serialize, Serializer, de};

    const ALL: &str = "all";

    pub(super) fn serialize<S: Serializer>(set: &OperationSet, to: S) -> Result<S::Ok, S::Error> {
        if *set == OperationSet::ALL {
            return [ALL].serialize(to);
        }
        let names: Vec<&str> =
            OperationKind::ALL.into_iter().filter(|kind| set.contains(*kind)).map(OperationKind::name).collect();
        names.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<OperationSet, D::Error> {
        let mut set = OperationSet::NONE;
        for name in Vec::<String>::deserialize(from)? {
            let kind = OperationKind::ALL.into_iter().find(|kind| kind.name() == name);
            set = set
                | match kind {
                    Some(kind) => OperationSet::of(&[kind]),
                    None if name == ALL => OperationSet::ALL,
                    None => return Err(de::Error::custom(format!("\"{name}\" is not an operation"))),
                };
        }
        Ok(set)
    }
}

mod zone_range {
    use super::{Deserialize, Deserializer, Range, Serialize, Serializer, ZoneIndex};

    pub(super) fn serialize<S: Serializer>(range: &Option<Range<ZoneIndex>>, to: S) -> Result<S::Ok, S::Error> {
        range.as_ref().map(|range| [range.start.0, range.end.0]).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Range<ZoneIndex>>, D::Error> {
        let range = Option::<[u32; 2]>::deserialize(from)?;
        Ok(range.map(|[start, end]| ZoneIndex(start)..ZoneIndex(end)))
    }
}

mod lba_range {
    use super::{Deserialize, Deserializer, Lba, Range, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(range: &Option<Range<Lba>>, to: S) -> Result<S::Ok, S::Error> {
        range.as_ref().map(|range| [range.start.0, range.end.0]).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Range<Lba>>, D::Error> {
        let range = Option::<[u64; 2]>::deserialize(from)?;
        Ok(range.map(|[start, end]| Lba(start)..Lba(end)))
    }
}

/// Relative weight of each kind of operation.
pub(crate) mod operation_weights {
    use super::{Deserializer, OperationKind, Serializer, weights_from, weights_to};

    const COUNT: usize = OperationKind::ALL.len();

    pub(crate) fn serialize<S: Serializer>(weights: &[u64; COUNT], to: S) -> Result<S::Ok, S::Error> {
        weights_to(OperationKind::ALL.map(OperationKind::name), weights, to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u64; COUNT], D::Error> {
        weights_from(OperationKind::ALL.map(OperationKind::name), from)
    }
}

/// Weights by name. A missing name has weight 0, so that an old entry does not use operations that
/// are added later.
pub(super) fn weights_to<const N: usize, S: Serializer>(
    names: [&'static str; N],
    weights: &[u64; N],
    to: S,
) -> Result<S::Ok, S::Error> {
    let named: BTreeMap<&str, u64> = names.into_iter().zip(*weights).collect();
    named.serialize(to)
}

/// The inverse of [`weights_to`].
pub(super) fn weights_from<'de, const N: usize, D: Deserializer<'de>>(
    names: [&'static str; N],
    from: D,
) -> Result<[u64; N], D::Error> {
    let mut named = BTreeMap::<String, u64>::deserialize(from)?;
    let weights = names.map(|name| named.remove(name).unwrap_or(0));
    if let Some(name) = named.keys().next() {
        return Err(de::Error::custom(format!("\"{name}\" must be one of {}", names.join(", "))));
    }
    if weights.iter().all(|weight| *weight == 0) {
        return Err(de::Error::custom("at least one weight must be greater than 0"));
    }
    Ok(weights)
}

/// Thirty-two bytes as hexadecimal digits.
pub(super) mod hex {
    use super::{Deserialize, Deserializer, Serializer, de};

    pub(in crate::scenario) fn serialize<S: Serializer>(bytes: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        to.serialize_str(&digits)
    }

    pub(in crate::scenario) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let mut bytes = [0; 32];
        let byte = |place: usize| u8::from_str_radix(text.get(2 * place..2 * place + 2)?, 16).ok();
        for (place, to) in bytes.iter_mut().enumerate() {
            let digits = byte(place).filter(|_| text.len() == 64);
            *to = digits.ok_or_else(|| de::Error::custom(format!("\"{text}\" is not 64 hexadecimal digits")))?;
        }
        Ok(bytes)
    }
}

/// The default of a limit that is absent: TOML has no integer for `u64::MAX`.
pub(crate) fn unlimited() -> u64 {
    u64::MAX
}

pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

pub(crate) fn is_unlimited(number: &u64) -> bool {
    *number == u64::MAX
}
