//! Metrics: figures of a run with their units.

use std::ops::Range;

use zonda_config::{ConfigError, Spanned, TimeSpan, did_you_mean_help};
use zonda_stack::ExperimentResult;
use zonda_workload::{JobResult, JobSample, KindResult, RequestKind};

use crate::figures::{
    DRIVE_FIGURES, Dimension, DriveFigure, ELASTIC_FIGURES, ElasticFigure, HOST_FIGURES, HostFigure, STORE_FIGURES,
    StoreFigure, VOLUME_FIGURES, VolumeFigure,
};
use crate::host::HostTimes;
use crate::spec::{MetricSpec, Terms};

/// A figure that every run of an experiment has, as a number in [`Metric::unit`].
#[derive(Clone, Debug)]
pub struct Metric {
    /// Name.
    pub name: String,
    /// Title.
    pub title: String,
    /// Unit; empty for plain numbers.
    pub unit: String,
    of: Vec<Term>,
    over: Option<Vec<Term>>,
    /// Size of the unit in nanoseconds, bytes per second, ...
    scale: f64,
    /// The part of the run that it covers, in nanoseconds from its start.
    during: Option<Range<u64>>,
}

/// A figure of one job, or of the drive, times a weight.
#[derive(Clone, Debug)]
struct Term {
    weight: f64,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Job { job: String, kind: Option<RequestKind>, figure: Figure },
    Drive(DriveFigure),
    Store(StoreFigure),
    Volume(VolumeFigure),
    Elastic { namespace: String, figure: ElasticFigure },
    Host(HostFigure),
}

type SampleFigure = fn(&JobSample) -> u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Bandwidth,
    Iops,
    Operations,
    Bytes,
    Elapsed,
    Mean,
    Min,
    P50,
    P95,
    P99,
    P99_9,
    P99_99,
    Max,
}

const FIGURES: [(&str, Figure); 13] = [
    ("bandwidth", Figure::Bandwidth),
    ("iops", Figure::Iops),
    ("operations", Figure::Operations),
    ("bytes", Figure::Bytes),
    ("elapsed", Figure::Elapsed),
    ("mean", Figure::Mean),
    ("min", Figure::Min),
    ("p50", Figure::P50),
    ("p95", Figure::P95),
    ("p99", Figure::P99),
    ("p99.9", Figure::P99_9),
    ("p99.99", Figure::P99_99),
    ("max", Figure::Max),
];

const UNITS: [(&str, Dimension, f64); 21] = [
    ("ns", Dimension::Time, 1.0),
    ("us", Dimension::Time, 1e3),
    ("ms", Dimension::Time, 1e6),
    ("s", Dimension::Time, 1e9),
    ("KiB/s", Dimension::Rate, 1024.0),
    ("MiB/s", Dimension::Rate, 1024.0 * 1024.0),
    ("GiB/s", Dimension::Rate, 1024.0 * 1024.0 * 1024.0),
    ("MB/s", Dimension::Rate, 1e6),
    ("GB/s", Dimension::Rate, 1e9),
    ("IOPS", Dimension::Operations, 1.0),
    ("kIOPS", Dimension::Operations, 1e3),
    ("B", Dimension::Bytes, 1.0),
    ("4 KiB pages", Dimension::Bytes, 4096.0),
    ("16 KiB pages", Dimension::Bytes, 16384.0),
    ("MiB", Dimension::Bytes, 1024.0 * 1024.0),
    ("GiB", Dimension::Bytes, 1024.0 * 1024.0 * 1024.0),
    ("", Dimension::Number, 1.0),
    ("ratio", Dimension::Number, 1.0),
    ("fraction", Dimension::Number, 1.0),
    ("times", Dimension::Number, 1.0),
    ("operations", Dimension::Number, 1.0),
];

impl Metric {
    /// # Errors
    /// A term or unit that does not exist, or terms that cannot be added.
    pub(crate) fn new(spec: &MetricSpec) -> Result<Metric, ConfigError> {
        let of = terms(&spec.of)?;
        let over = spec.over.as_ref().map(terms).transpose()?;
        let during =
            spec.during.as_ref().map(|place| part_of_run(place, of.iter().chain(over.iter().flatten()))).transpose()?;
        let own = dimension(&of, &spec.of)?;
        let dimension = match (&over, &spec.over) {
            (Some(over), Some(place)) => {
                if dimension(over, place)? != own {
                    return Err(ConfigError::at(place, "numerator and denominator have different dimensions"));
                }
                Dimension::Number
            }
            _ => own,
        };
        let unit = spec.unit.get_ref();
        let found = UNITS.iter().find(|(name, of_unit, _)| name == unit && *of_unit == dimension);
        let Some((_, _, scale)) = found else {
            let fitting: Vec<&str> =
                UNITS.iter().filter(|(_, of_unit, _)| *of_unit == dimension).map(|(name, ..)| *name).collect();
            let error = ConfigError::at(&spec.unit, format!("\"{unit}\" is not a unit of this metric"));
            return Err(error.help(did_you_mean_help(unit, &fitting)));
        };
        Ok(Metric {
            name: spec.name.clone(),
            title: spec.title.clone().unwrap_or_else(|| spec.name.clone()),
            unit: unit.clone(),
            of,
            over,
            scale: *scale,
            during,
        })
    }

    /// The names of the jobs that it refers to.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = &str> {
        self.of.iter().chain(self.over.iter().flatten()).filter_map(|term| match &term.source {
            Source::Job { job, .. } if job != "*" => Some(job.as_str()),
            _ => None,
        })
    }

    /// Figures of the host that it needs.
    pub(crate) fn host_figures(&self) -> impl Iterator<Item = HostFigure> {
        self.of.iter().chain(self.over.iter().flatten()).filter_map(|term| match term.source {
            Source::Host(figure) => Some(figure),
            _ => None,
        })
    }

    /// Its value in a run; `None` if a job did not run or completed no such command while it was
    /// measured, or if it needs a clock and there was none.
    #[must_use]
    pub fn value(&self, result: &ExperimentResult, host: &HostTimes) -> Option<f64> {
        let during = self.during.as_ref();
        let of = sum(&self.of, result, host, during)?;
        let over = match &self.over {
            None => 1.0,
            Some(over) => sum(over, result, host, during)?,
        };
        let value = of / over / self.scale;
        value.is_finite().then_some(value)
    }
}

fn sum(terms: &[Term], result: &ExperimentResult, host: &HostTimes, during: Option<&Range<u64>>) -> Option<f64> {
    terms.iter().map(|term| Some(term.weight * term.source.value(result, host, during)?)).sum()
}

impl Source {
    fn value(&self, result: &ExperimentResult, host: &HostTimes, during: Option<&Range<u64>>) -> Option<f64> {
        match self {
            Source::Elastic { namespace, figure } => figure.value(result.elastic.as_ref()?, namespace, during),
            Source::Job { job, figure, .. } if during.is_some() => figure.of_series(result, job, during?),
            Source::Drive(figure) => Some(figure.value(result)),
            Source::Store(figure) => Some(figure.value(result.store.as_ref()?)),
            Source::Volume(figure) => figure.value(result.volume.as_ref()?),
            Source::Host(figure) => host.time_ns(*figure).map(|time_ns| time_ns as f64),
            Source::Job { job, kind, figure } if job == "*" => {
                result.run.jobs.iter().filter_map(|job| figure.of_job(job, *kind)).reduce(|sum, value| sum + value)
            }
            Source::Job { job, kind, figure } => {
                figure.of_job(result.run.jobs.iter().find(|candidate| candidate.name == *job)?, *kind)
            }
        }
    }

    fn dimension(&self) -> Dimension {
        match self {
            Source::Drive(figure) => figure.dimension(),
            Source::Store(figure) => figure.dimension(),
            Source::Volume(figure) => figure.dimension(),
            Source::Host(figure) => figure.dimension(),
            Source::Elastic { figure, .. } => figure.dimension(),
            Source::Job { figure, .. } => match figure {
                Figure::Bandwidth => Dimension::Rate,
                Figure::Iops => Dimension::Operations,
                Figure::Bytes => Dimension::Bytes,
                Figure::Operations => Dimension::Number,
                _ => Dimension::Time,
            },
        }
    }
}

impl Figure {
    /// The figure of a sample that it is computed from, if there is one, and whether it is a rate.
    fn of_sample(self) -> Option<(SampleFigure, bool)> {
        match self {
            Figure::Bandwidth => Some((|sample| sample.bytes, true)),
            Figure::Iops => Some((|sample| sample.operations, true)),
            Figure::Bytes => Some((|sample| sample.bytes, false)),
            Figure::Operations => Some((|sample| sample.operations, false)),
            _ => None,
        }
    }

    /// Of a job, or all, in the samples of a part of the run.
    fn of_series(self, result: &ExperimentResult, job: &str, during: &Range<u64>) -> Option<f64> {
        let (of, is_rate) = self.of_sample()?;
        let run = &result.run;
        let places: Vec<usize> =
            (0..run.jobs.len()).filter(|place| job == "*" || run.jobs[*place].name == job).collect();
        let inside = run
            .series
            .iter()
            .filter(|sample| sample.start_ns >= during.start && sample.start_ns + sample.length_ns <= during.end);
        let (mut sum, mut length_ns) = (0, 0);
        for sample in inside {
            sum += places.iter().map(|place| of(&sample.jobs[*place])).sum::<u64>();
            length_ns += sample.length_ns;
        }
        if places.is_empty() || length_ns == 0 {
            return None;
        }
        Some(if is_rate { sum as f64 * 1e9 / length_ns as f64 } else { sum as f64 })
    }

    fn of_job(self, job: &JobResult, kind: Option<RequestKind>) -> Option<f64> {
        if self == Figure::Elapsed {
            return Some((job.ended_ns - job.started_ns) as f64);
        }
        let kinds: Vec<&KindResult> =
            job.kinds.iter().filter(|figures| kind.is_none_or(|kind| kind == figures.kind)).collect();
        let added =
            |of: fn(&KindResult) -> f64| kinds.iter().map(|figures| of(figures)).reduce(|sum, value| sum + value);
        // The latency of several kinds together is not recorded.
        let latency = || match kinds[..] {
            [figures] => Some(figures.latency),
            _ => None,
        };
        match self {
            Figure::Bandwidth => added(|figures| figures.bandwidth_bytes_per_second),
            Figure::Iops => added(|figures| figures.iops),
            Figure::Operations => added(|figures| figures.operations as f64),
            Figure::Bytes => added(|figures| figures.bytes as f64),
            Figure::Elapsed => None,
            Figure::Mean => latency().map(|latency| latency.mean_ns as f64),
            Figure::Min => latency().map(|latency| latency.min_ns as f64),
            Figure::P50 => latency().map(|latency| latency.p50_ns as f64),
            Figure::P95 => latency().map(|latency| latency.p95_ns as f64),
            Figure::P99 => latency().map(|latency| latency.p99_ns as f64),
            Figure::P99_9 => latency().map(|latency| latency.p99_9_ns as f64),
            Figure::P99_99 => latency().map(|latency| latency.p99_99_ns as f64),
            Figure::Max => latency().map(|latency| latency.max_ns as f64),
        }
    }
}

/// The part of a run that a metric of these terms covers.
fn part_of_run<'a>(
    place: &Spanned<(TimeSpan, TimeSpan)>,
    mut terms: impl Iterator<Item = &'a Term>,
) -> Result<Range<u64>, ConfigError> {
    let (TimeSpan(from), TimeSpan(until)) = *place.get_ref();
    if from >= until {
        let error = ConfigError::at(place, "the part of the run has no length");
        return Err(error.help("write two times after its start, like [\"30 s\", \"80 s\"]"));
    }
    let is_sampled = |term: &Term| match &term.source {
        Source::Job { kind, figure, .. } => kind.is_none() && figure.of_sample().is_some(),
        Source::Elastic { figure, .. } => figure.is_sampled(),
        _ => false,
    };
    if !terms.all(is_sampled) {
        let error = ConfigError::at(place, "a part of a run has no figure of this kind");
        return Err(error.help(
            "use JOB.*.bandwidth, JOB.*.iops, JOB.*.operations, JOB.*.bytes or elastic.NAMESPACE.FIGURE, or remove \"during\"",
        ));
    }
    Ok(from..until)
}

fn dimension(terms: &[Term], place: &Spanned<Terms>) -> Result<Dimension, ConfigError> {
    let first = terms.first().map(|term| term.source.dimension());
    let Some(first) = first else {
        return Err(ConfigError::at(place, "missing term").help(NOTATION));
    };
    if terms.iter().any(|term| term.source.dimension() != first) {
        return Err(ConfigError::at(place, "terms with different dimensions cannot be added"));
    }
    Ok(first)
}

const NOTATION: &str = "write JOB.KIND.FIGURE, like \"readers.read.p99\"; * for all jobs or kinds; drive.FIGURE; store.FIGURE; \
                        volume.FIGURE; elastic.NAMESPACE.FIGURE; host.FIGURE; a number and a space before it is its weight";

fn terms(terms: &Spanned<Terms>) -> Result<Vec<Term>, ConfigError> {
    let at = |error: ConfigError| ConfigError { span: Some(terms.span()), ..error };
    terms.get_ref().all().iter().map(|term| Term::parse(term).map_err(at)).collect()
}

impl Term {
    fn parse(text: &str) -> Result<Term, ConfigError> {
        let (weight, path) = match text.trim().split_once(' ') {
            Some((weight, path)) => {
                let weight: Option<f64> = weight.parse().ok().filter(|weight: &f64| weight.is_finite());
                let refuse = || ConfigError::new(format!("\"{text}\" does not begin with a number")).help(NOTATION);
                (weight.ok_or_else(refuse)?, path.trim())
            }
            None => (1.0, text.trim()),
        };
        if let Some(figure) = path.strip_prefix("drive.") {
            return Ok(Term { weight, source: Source::Drive(find(figure, &DRIVE_FIGURES)?) });
        }
        if let Some(figure) = path.strip_prefix("store.") {
            return Ok(Term { weight, source: Source::Store(find(figure, &STORE_FIGURES)?) });
        }
        if let Some(figure) = path.strip_prefix("volume.") {
            return Ok(Term { weight, source: Source::Volume(find(figure, &VOLUME_FIGURES)?) });
        }
        if let Some(path) = path.strip_prefix("elastic.") {
            let Some((namespace, figure)) = path.rsplit_once('.') else {
                let error = ConfigError::new(format!("\"{text}\" does not name a namespace"));
                return Err(error.help("write elastic.NAMESPACE.FIGURE, like \"elastic.db.spares_used\""));
            };
            let figure = find(figure, &ELASTIC_FIGURES)?;
            return Ok(Term { weight, source: Source::Elastic { namespace: namespace.to_owned(), figure } });
        }
        if let Some(figure) = path.strip_prefix("host.") {
            return Ok(Term { weight, source: Source::Host(find(figure, &HOST_FIGURES)?) });
        }
        let parts: Vec<&str> = path.splitn(3, '.').collect();
        let [job, kind, figure] = parts[..] else {
            return Err(ConfigError::new(format!("\"{text}\" is not a figure of a run")).help(NOTATION));
        };
        let kinds: Vec<(&str, RequestKind)> = RequestKind::ALL.map(|kind| (kind.name(), kind)).to_vec();
        let kind = if kind == "*" { None } else { Some(find(kind, &kinds)?) };
        let figure = find(figure, &FIGURES)?;
        let is_added = matches!(figure, Figure::Bandwidth | Figure::Iops | Figure::Operations | Figure::Bytes);
        if !is_added && job == "*" {
            let error = ConfigError::new(format!("\"{text}\": latencies of several jobs cannot be combined"));
            return Err(error.help("name one job; its workers are measured together"));
        }
        Ok(Term { weight, source: Source::Job { job: job.to_owned(), kind, figure } })
    }
}

fn find<T: Copy>(name: &str, all: &[(&str, T)]) -> Result<T, ConfigError> {
    let found = all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(known, _)| *known).collect();
        ConfigError::new(format!("unknown figure \"{name}\"")).help(did_you_mean_help(name, &names))
    })
}
