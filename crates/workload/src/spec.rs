//! The contents of job files: runs and jobs, deserialized from TOML. Meaning and defaults are in
//! `docs/guide/job-files.md`; [`crate::Plan::new`] checks them against a drive.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};
use zonda_config::{ByteSize, ConfigError, IndexSet, Rate, Spanned, TimeSpan, did_you_mean_help, parse_with, unplaced};

/// The table `[run]`: settings for all jobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSpec {
    /// The seed of all random numbers. Default 1.
    pub seed: u64,
    /// Time from the start of the run before which completions are not measured. Default 0.
    pub ramp: Option<Spanned<TimeSpan>>,
    /// When the run ends, counted from its start, ramp included. Default: when all jobs have ended
    /// by themselves.
    pub time: Option<Spanned<TimeSpan>>,
    /// Interval of the time series. Default: a hundredth of `time`, or 10 ms without `time`.
    pub sample: Option<Spanned<TimeSpan>>,
    /// Whether reads are verified. Default false.
    pub verify: Option<Spanned<bool>>,
}

/// One table `[[job]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    /// Default `job1`, `job2`, ... by the place in the file.
    pub name: Option<Spanned<String>>,
    /// The namespace, by its name; required on a device with several.
    pub namespace: Option<Spanned<String>>,
    /// What to do.
    pub operation: Spanned<JobOperation>,
    /// Weights of operations, only for [`JobOperation::Mix`].
    pub mix: Option<Spanned<Mix>>,
    /// Bytes of a request. Default 4 KiB, or the drive's block if that is larger.
    pub block_size: Option<Spanned<ByteSize>>,
    /// Requests that each worker keeps outstanding. Default 1.
    pub queue_depth: Option<Spanned<u32>>,
    /// Whether a worker refills its queue only when it is empty. Default false.
    pub batch: Option<Spanned<bool>>,
    /// The tenant of the commands, for schedulers that distinguish tenants. Default: that of all jobs
    /// without one.
    pub tenant: Option<Spanned<TenantSpec>>,
    /// Copies of the job, each with its own queue, position in the zones and random numbers.
    /// Default 1.
    pub workers: Option<Spanned<u32>>,
    /// The zones. Default: all that support the operation.
    pub zones: Option<Spanned<IndexSet>>,
    /// The order in which zones are visited. Default: random for random operations, round-robin
    /// with `stripe`, else sequential.
    pub zone_order: Option<Spanned<ZoneOrder>>,
    /// How workers share the zones. Default: all for reads and randwrite, else split.
    pub share: Option<Spanned<Share>>,
    /// Bytes of the commands into which a request is split. Default: one command.
    pub stripe: Option<Spanned<ByteSize>>,
    /// The maximum rate of all workers of the job together. Default: no limit.
    pub rate: Option<Spanned<Rate>>,
    /// Pause of a queue slot after each completion. Default 0.
    pub think_time: Option<Spanned<TimeSpan>>,
    /// When the job ends, counted from its start.
    pub time: Option<Spanned<TimeSpan>>,
    /// Bytes after which the job ends, rounded up to whole requests.
    pub bytes: Option<Spanned<ByteSize>>,
    /// Requests after which the job ends.
    pub operations: Option<Spanned<u64>>,
    /// When the job starts, counted from the start of the run. Default 0.
    pub start: Option<Spanned<TimeSpan>>,
    /// The distribution of random addresses. Default uniform.
    pub distribution: Option<Spanned<Distribution>>,
    /// The action of a writer at a full zone. Default next.
    pub on_full: Option<Spanned<OnFull>>,
    /// The share of its capacity at which a writer finishes a zone. Default: never.
    pub finish_at: Option<Spanned<Fraction>>,
    /// How full the zones are before the run. Default 1 for reads and reset, else 0.
    pub prefill: Option<Spanned<Prefill>>,
}

/// The operation of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobOperation {
    /// Reads each zone sequentially.
    Read,
    /// Reads at random addresses.
    Randread,
    /// Writes each zone sequentially from its write pointer.
    Write,
    /// Writes at random addresses of conventional zones.
    Randwrite,
    /// Appends to zones; the drive chooses the address.
    Append,
    /// Resets each zone once.
    Reset,
    /// Finishes each zone once.
    Finish,
    /// Opens each zone once.
    Open,
    /// Closes each zone once.
    Close,
    /// Chooses each operation at random by weight.
    Mix,
}

/// Weights of the operations of a mix. A weight of zero, the default, excludes the operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mix {
    /// Random reads of written blocks in the job's zones.
    pub read: u32,
    /// Writes, as of [`JobOperation::Write`].
    pub write: u32,
    /// Appends, as of [`JobOperation::Append`].
    pub append: u32,
}

/// In which order a worker visits its zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneOrder {
    /// The next operation goes to the next zone.
    RoundRobin,
    /// The next zone comes when this one is done.
    Sequential,
    /// Each operation picks a zone.
    Random,
}

/// How the workers of a job share its zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Share {
    /// Round-robin: worker 0 of 2 has the first, the third, ...
    Split,
    /// In ranges: worker 0 of 2 has the first half.
    Ranges,
    /// Each worker has all zones.
    All,
}

/// The tenant of a job's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantSpec {
    /// This one.
    Number(u16),
    /// Each worker is a tenant of its own: worker 0 is tenant 1.
    EachWorker,
}

/// The action of a writer at a full zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFull {
    /// Resets it, by a command that is measured, and rewrites it.
    Reset,
    /// Skips it; ends when no zone is left.
    Next,
    /// Ends.
    Stop,
}

/// How random addresses are distributed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Each as likely as any other.
    Uniform,
    /// The `k`-th most popular with a probability in proportion to `1 / k^theta`; theta between 0
    /// and 1. Popular ones are scattered.
    Zipf(f64),
    /// A share `hot` of the addresses, scattered, gets a share `of` of the requests.
    Hot {
        /// Share of the addresses, between 0 and 1.
        hot: f64,
        /// Share of the requests, 0 to 1.
        of: f64,
    },
}

/// A number from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fraction(pub f64);

/// How full zones are before the run, from 0 to 1; in a file also `true` for 1 and `false` for 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prefill(pub f64);

/// Parses a file that contains only a run and its jobs.
///
/// # Errors
/// Errors in the text, with their position. Whether a drive supports the jobs is not checked.
pub fn parse_jobs(text: &str) -> Result<(RunSpec, Vec<Spanned<JobSpec>>), ConfigError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct JobFile {
        #[serde(default)]
        run: RunSpec,
        #[serde(default)]
        job: Vec<Spanned<JobSpec>>,
    }

    let must_contain = "a job file needs at least one table [[job]] with a line like operation = \"randread\"";
    let file: JobFile = parse_with(text, must_contain)?;
    Ok((file.run, file.job))
}

impl Default for RunSpec {
    fn default() -> RunSpec {
        RunSpec { seed: 1, ramp: None, time: None, sample: None, verify: None }
    }
}

impl JobSpec {
    /// A job with defaults for everything except its operation, for programs that build jobs
    /// themselves.
    #[must_use]
    pub fn new(operation: JobOperation) -> JobSpec {
        JobSpec {
            name: None,
            namespace: None,
            operation: unplaced(operation),
            mix: None,
            block_size: None,
            queue_depth: None,
            batch: None,
            tenant: None,
            workers: None,
            zones: None,
            zone_order: None,
            share: None,
            stripe: None,
            rate: None,
            think_time: None,
            time: None,
            bytes: None,
            operations: None,
            start: None,
            distribution: None,
            on_full: None,
            finish_at: None,
            prefill: None,
        }
    }
}

impl JobOperation {
    /// The name in a file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            JobOperation::Read => "read",
            JobOperation::Randread => "randread",
            JobOperation::Write => "write",
            JobOperation::Randwrite => "randwrite",
            JobOperation::Append => "append",
            JobOperation::Reset => "reset",
            JobOperation::Finish => "finish",
            JobOperation::Open => "open",
            JobOperation::Close => "close",
            JobOperation::Mix => "mix",
        }
    }

    /// Whether the job manages zones and transfers no data.
    #[must_use]
    pub fn is_management(self) -> bool {
        matches!(self, JobOperation::Reset | JobOperation::Finish | JobOperation::Open | JobOperation::Close)
    }
}

impl fmt::Display for JobOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

fn fraction<E: de::Error>(number: f64) -> Result<f64, E> {
    if (0.0..=1.0).contains(&number) {
        return Ok(number);
    }
    Err(ConfigError::new(format!("{number} is not a fraction")).help("write a number from 0.0 to 1.0").into_serde())
}

/// Reads a fraction from a number, and where `bool_allowed` from `true` and `false`.
struct FractionVisitor {
    bool_allowed: bool,
}

impl de::Visitor<'_> for FractionVisitor {
    type Value = f64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.bool_allowed {
            "true, false, or a number from 0.0 to 1.0"
        } else {
            "a number from 0.0 to 1.0"
        })
    }

    fn visit_bool<E: de::Error>(self, whole: bool) -> Result<f64, E> {
        if self.bool_allowed {
            return Ok(if whole { 1.0 } else { 0.0 });
        }
        Err(E::invalid_type(de::Unexpected::Bool(whole), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<f64, E> {
        fraction(number as f64)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<f64, E> {
        fraction(number)
    }
}

impl<'de> Deserialize<'de> for Fraction {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fraction, D::Error> {
        deserializer.deserialize_any(FractionVisitor { bool_allowed: false }).map(Fraction)
    }
}

impl<'de> Deserialize<'de> for Prefill {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Prefill, D::Error> {
        deserializer.deserialize_any(FractionVisitor { bool_allowed: true }).map(Prefill)
    }
}

impl<'de> Deserialize<'de> for TenantSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TenantSpec, D::Error> {
        deserializer.deserialize_any(TenantVisitor)
    }
}

struct TenantVisitor;

impl de::Visitor<'_> for TenantVisitor {
    type Value = TenantSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number from 0 to 65535, or \"worker\"")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<TenantSpec, E> {
        u16::try_from(number).map(TenantSpec::Number).map_err(|_| {
            let error = ConfigError::new(format!("{number} is not the number of a tenant"));
            error.help("write a number from 0 to 65535").into_serde()
        })
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<TenantSpec, E> {
        match word {
            "worker" => Ok(TenantSpec::EachWorker),
            _ => Err(E::invalid_value(de::Unexpected::Str(word), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Distribution, D::Error> {
        deserializer.deserialize_any(DistributionVisitor)
    }
}

struct DistributionVisitor;

impl<'de> de::Visitor<'de> for DistributionVisitor {
    type Value = Distribution;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"uniform\", { zipf = 0.99 } or { hot = 0.2, of = 0.8 }")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Distribution, E> {
        let help = match name {
            "uniform" => return Ok(Distribution::Uniform),
            "zipf" | "zipfian" => "write { zipf = 0.99 }".to_owned(),
            "hot" => "write { hot = 0.2, of = 0.8 }".to_owned(),
            _ => did_you_mean_help(name, &["uniform", "{ zipf = 0.99 }", "{ hot = 0.2, of = 0.8 }"]),
        };
        Err(ConfigError::new(format!("\"{name}\" is not a distribution")).help(help).into_serde())
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Distribution, A::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, default)]
        #[derive(Default)]
        struct Table {
            zipf: Option<f64>,
            hot: Option<Fraction>,
            of: Option<Fraction>,
        }

        let table = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
        let refuse = |message: &str, help: &str| Err(ConfigError::new(message).help(help).into_serde());
        match (table.zipf, table.hot, table.of) {
            (Some(theta), None, None) if theta > 0.0 && theta < 1.0 => Ok(Distribution::Zipf(theta)),
            (Some(theta), None, None) => {
                refuse(&format!("zipf = {theta} is out of range"), "write a number above 0.0 and below 1.0, like 0.99")
            }
            (None, Some(Fraction(hot)), Some(Fraction(of))) if hot > 0.0 && hot < 1.0 => {
                Ok(Distribution::Hot { hot, of })
            }
            (None, Some(_), Some(_)) => {
                refuse("hot is out of range", "write a number above 0.0 and below 1.0, like 0.2")
            }
            _ => refuse("this is not a distribution", "write { zipf = 0.99 } or { hot = 0.2, of = 0.8 }"),
        }
    }
}
