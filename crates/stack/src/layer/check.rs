//! Checks layers against the geometry of the device below them.

use std::ops::Range;

use zonda_config::{ConfigError, Spanned, TimeSpan, did_you_mean_help};
use zonda_layers::limits::TRACE_EVENTS_DEFAULT;
use zonda_layers::{
    DelayRule, FaultEffect, FaultRule, Matcher, OperationKind, OperationSet, SliceConfig, SliceError, When,
};
use zonda_sched::limits::{IN_FLIGHT_MAX, WAITING_MAX};
use zonda_sched::{EznsConfig, InterferenceConfig, MqDeadlineConfig, Policy, Within, ZoneGroups};
use zonda_zoned::{Duration, Geometry, NamespaceId, PayloadKind, Status, ZoneIndex};

use super::spec::{ZONES_NOTATION, chance_of};
use super::{
    DelaySpec, EffectSpec, FaultSpec, Layer, LayerSpec, PolicySpec, SchedulerSpec, SliceSpec, TraceSpec, WhenSpec,
    WithinSpec, ZonesSpec,
};
use crate::limits::TRACE_EVENTS_MAX;

/// The maximum delay, a year, so that no sum overflows.
const DELAY_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The keys that select the commands of a rule.
struct Selection<'a> {
    operations: &'a Option<Vec<Spanned<String>>>,
    zones: &'a Option<Spanned<ZonesSpec>>,
    when: &'a Option<Spanned<WhenSpec>>,
    chance: &'a Option<Spanned<f64>>,
}

impl LayerSpec {
    /// Checks a layer against the device below it: its geometry, and what it stores of written
    /// data.
    ///
    /// # Errors
    /// The first error, with its position.
    pub fn check(place: &Spanned<LayerSpec>, below: &Geometry, keeps: PayloadKind) -> Result<Layer, ConfigError> {
        match place.get_ref() {
            LayerSpec::Delay(spec) => spec.check(place, below),
            LayerSpec::Fault(spec) => spec.check(place, below),
            LayerSpec::Trace(spec) => spec.check(),
            LayerSpec::Slice(spec) => spec.check(place, below, keeps),
            LayerSpec::Scheduler(spec) => spec.check(place),
        }
    }
}

impl DelaySpec {
    fn check(&self, place: &Spanned<LayerSpec>, below: &Geometry) -> Result<Layer, ConfigError> {
        let DelaySpec { operations, zones, when, chance, fixed, spread } = self;
        let selection = Selection { operations, zones, when, chance };
        if fixed.is_none() && spread.is_none() {
            let error = ConfigError::at(place, "the layer has no delay");
            return Err(error.help("add a line like fixed = \"100 us\" or spread = \"50 us\""));
        }
        Ok(Layer::Delay(vec![DelayRule {
            matches: selection.matcher(below)?,
            when: selection.when()?,
            fixed: delay(fixed)?,
            spread: delay(spread)?,
        }]))
    }
}

impl FaultSpec {
    fn check(&self, place: &Spanned<LayerSpec>, below: &Geometry) -> Result<Layer, ConfigError> {
        let FaultSpec { operations, zones, when, chance, .. } = self;
        let selection = Selection { operations, zones, when, chance };
        Ok(Layer::Fault(vec![FaultRule {
            matches: selection.matcher(below)?,
            when: selection.when()?,
            effect: self.effect(place)?,
        }]))
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
            None | Some(EffectSpec::Fail) => FaultEffect::Fail(Status::ERRORS[at]),
            Some(EffectSpec::FailAfter) => FaultEffect::FailAfter(Status::ERRORS[at]),
        })
    }
}

impl TraceSpec {
    fn check(&self) -> Result<Layer, ConfigError> {
        let events = self.events.as_ref().map_or(TRACE_EVENTS_DEFAULT as u32, |events| *events.get_ref());
        match &self.events {
            Some(place) if events > TRACE_EVENTS_MAX => {
                Err(ConfigError::at(place, format!("too many events: {events}"))
                    .help(format!("write 0 to {TRACE_EVENTS_MAX}")))
            }
            _ => Ok(Layer::Trace { events: events as usize }),
        }
    }
}

impl SliceSpec {
    fn check(&self, place: &Spanned<LayerSpec>, below: &Geometry, keeps: PayloadKind) -> Result<Layer, ConfigError> {
        let Some(count) = &self.count else {
            let error = ConfigError::at(place, "the layer has no number of zones");
            return Err(error.help("add a line like count = 16"));
        };
        let given = |value: &Option<Spanned<u32>>| value.as_ref().map(|value| *value.get_ref());
        let max_active_zones = given(&self.max_active_zones).or(below.max_active_zones);
        // A limit on active zones below the limit on open zones limits these, too.
        let open_default = below.max_open_zones.map(|open| max_active_zones.map_or(open, |active| active.min(open)));
        let config = SliceConfig {
            namespace: NamespaceId::FIRST,
            first: ZoneIndex(given(&self.first).unwrap_or(0)),
            count: *count.get_ref(),
            max_active_zones,
            max_open_zones: given(&self.max_open_zones).or(open_default),
            zrwa_resources: given(&self.zrwa_resources).unwrap_or_else(|| below.zrwa.map_or(0, |zrwa| zrwa.resources)),
            keeps,
        };
        config.geometry(below).map_err(|error| self.error(place, &error))?;
        Ok(Layer::Slice(config))
    }

    fn error(&self, place: &Spanned<LayerSpec>, error: &SliceError) -> ConfigError {
        let key = match error.field {
            "count" => &self.count,
            "max_active_zones" => &self.max_active_zones,
            "max_open_zones" => &self.max_open_zones,
            "zrwa_resources" => &self.zrwa_resources,
            _ => &None,
        };
        ConfigError::new(format!("invalid slice: {}", error.message))
            .within(key.as_ref().map_or_else(|| place.span(), Spanned::span))
            .help(format!("{}; docs/guide/stacks.md describes slices", error.remedy))
    }
}

impl SchedulerSpec {
    fn check(&self, place: &Spanned<LayerSpec>) -> Result<Layer, ConfigError> {
        let Some(policy) = &self.policy else {
            let error = ConfigError::at(place, "the layer has no policy");
            return Err(error.help("add a line policy = \"mq-deadline\", policy = \"ezns\", policy = \"interference\" or policy = \"none\""));
        };
        self.check_keys(*policy.get_ref())?;
        let policy = match policy.get_ref() {
            PolicySpec::None => Policy::None,
            PolicySpec::MqDeadline => Policy::MqDeadline(self.deadline()?),
            PolicySpec::Ezns => Policy::Ezns(self.ezns()?),
            // The groups are measured when the device is built.
            PolicySpec::Interference => {
                let within = if self.has_ezns_within() { Within::Ezns(self.ezns()?) } else { Within::Fair };
                Policy::Interference(InterferenceConfig { within, ..InterferenceConfig::new(ZoneGroups::default()) })
            }
        };
        let in_flight_max = positive("in_flight", &self.in_flight)?.map_or(IN_FLIGHT_MAX, |most| most as usize);
        if let Some(place) = self.in_flight.as_ref().filter(|_| in_flight_max > WAITING_MAX) {
            let error = ConfigError::at(place, "too many commands in flight");
            return Err(error.help(format!("write at most {WAITING_MAX}")));
        }
        let merges = self.merge.as_ref().is_some_and(|merge| *merge.get_ref());
        Ok(Layer::Scheduler { policy, in_flight_max, merges, dispatch_time: delay(&self.dispatch_time)? })
    }

    fn has_ezns_within(&self) -> bool {
        self.within.as_ref().is_some_and(|within| *within.get_ref() == WithinSpec::Ezns)
    }

    /// Refuses the parameters of another policy.
    fn check_keys(&self, policy: PolicySpec) -> Result<(), ConfigError> {
        fn span<T>(value: &Option<Spanned<T>>) -> Option<Range<usize>> {
            value.as_ref().map(Spanned::span)
        }
        let of_deadline = [
            span(&self.read_expire),
            span(&self.write_expire),
            span(&self.writes_starved),
            span(&self.fifo_batch),
            span(&self.merge),
            span(&self.dispatch_time),
        ];
        let of_ezns = [
            span(&self.read_latency_threshold),
            span(&self.block_latency),
            span(&self.token_capacity),
            span(&self.zone_width),
            span(&self.background_period),
        ];
        let parameters = [
            (PolicySpec::MqDeadline, "mq-deadline", of_deadline.into_iter().flatten().next()),
            (PolicySpec::Ezns, "ezns", of_ezns.into_iter().flatten().next()),
            (PolicySpec::Interference, "interference", span(&self.within)),
        ];
        // Inside groups the parameters of ezns have a meaning.
        let is_own = |owner: PolicySpec| owner == policy || owner == PolicySpec::Ezns && self.has_ezns_within();
        let foreign = parameters.into_iter().find(|(owner, _, key)| !is_own(*owner) && key.is_some());
        let Some((_, owner, Some(key))) = foreign else { return Ok(()) };
        let message = match policy {
            PolicySpec::None => "policy = \"none\" has no parameters".to_owned(),
            _ => format!("this is a parameter of policy = \"{owner}\""),
        };
        Err(ConfigError::new(message).within(key).help(format!("remove this line, or write policy = \"{owner}\"")))
    }

    fn ezns(&self) -> Result<EznsConfig, ConfigError> {
        let default = EznsConfig::default();
        let token_capacity_bytes = self.token_capacity.as_ref().map(|size| size.get_ref().0);
        if let Some(place) = self.zone_width.as_ref().filter(|width| *width.get_ref() == 0) {
            return Err(ConfigError::at(place, "zone_width must not be 0").help("write at least zone_width = 1"));
        }
        Ok(EznsConfig {
            read_latency_threshold: delay_or(&self.read_latency_threshold, default.read_latency_threshold)?,
            block_latency: delay_or(&self.block_latency, default.block_latency)?,
            token_capacity_bytes: token_capacity_bytes.unwrap_or(default.token_capacity_bytes),
            zone_width: self.zone_width.as_ref().map(|width| *width.get_ref()),
            background_period: delay_or(&self.background_period, default.background_period)?,
            ..default
        })
    }

    fn deadline(&self) -> Result<MqDeadlineConfig, ConfigError> {
        let default = MqDeadlineConfig::default();
        Ok(MqDeadlineConfig {
            read_expire: delay_or(&self.read_expire, default.read_expire)?,
            write_expire: delay_or(&self.write_expire, default.write_expire)?,
            writes_starved: self.writes_starved.as_ref().map_or(default.writes_starved, |most| *most.get_ref()),
            fifo_batch: positive("fifo_batch", &self.fifo_batch)?.unwrap_or(default.fifo_batch),
            aging: default.aging,
        })
    }
}

fn positive(key: &str, value: &Option<Spanned<u32>>) -> Result<Option<u32>, ConfigError> {
    match value {
        Some(place) if *place.get_ref() == 0 => {
            Err(ConfigError::at(place, format!("{key} must not be 0")).help(format!("write at least {key} = 1")))
        }
        value => Ok(value.as_ref().map(|value| *value.get_ref())),
    }
}

fn delay_or(value: &Option<Spanned<TimeSpan>>, default: Duration) -> Result<Duration, ConfigError> {
    if value.is_some() { delay(value) } else { Ok(default) }
}

fn delay(value: &Option<Spanned<TimeSpan>>) -> Result<Duration, ConfigError> {
    let Some(place) = value else { return Ok(Duration::ZERO) };
    let span = Duration(place.get_ref().0);
    if span > DELAY_MAX {
        return Err(ConfigError::at(place, "the delay is longer than a year").help("write at most \"8760 h\""));
    }
    Ok(span)
}

impl Selection<'_> {
    fn matcher(&self, below: &Geometry) -> Result<Matcher, ConfigError> {
        Ok(Matcher {
            namespace: NamespaceId::FIRST,
            operations: self.operations()?,
            zones: self.zones(below)?,
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

    fn zones(&self, below: &Geometry) -> Result<Option<Range<ZoneIndex>>, ConfigError> {
        let Some(place) = &self.zones else { return Ok(None) };
        let zones: &[u32] = &place.get_ref().0;
        let (first, last) = (zones[0], zones[zones.len() - 1]);
        if zones.iter().zip(first..).any(|(&zone, expected)| zone != expected) {
            let error = ConfigError::at(place, "the zones of a layer must be one range without gaps");
            return Err(error.help(ZONES_NOTATION));
        }
        if last >= below.zone_count {
            let message = format!("zone {last} does not exist: the namespace has {} zones", below.zone_count);
            return Err(ConfigError::at(place, message).help(format!("use zones of 0..{}", below.zone_count)));
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
}
