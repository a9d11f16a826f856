//! Metrics: figures of a run with their units.

use zonda_config::{ConfigError, Spanned, did_you_mean_help};
use zonda_stack::ExperimentResult;
use zonda_workload::{JobResult, KindResult, RequestKind};

use crate::figures::{
    DRIVE_FIGURES, Dimension, DriveFigure, HOST_FIGURES, HostFigure, STORE_FIGURES, StoreFigure, VOLUME_FIGURES,
    VolumeFigure,
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
    Host(HostFigure),
}

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
        let of = sum(&self.of, result, host)?;
        let over = match &self.over {
            None => 1.0,
            Some(over) => sum(over, result, host)?,
        };
        let value = of / over / self.scale;
        value.is_finite().then_some(value)
    }
}

fn sum(terms: &[Term], result: &ExperimentResult, host: &HostTimes) -> Option<f64> {
    terms.iter().map(|term| Some(term.weight * term.source.value(result, host)?)).sum()
}

impl Source {
    fn value(&self, result: &ExperimentResult, host: &HostTimes) -> Option<f64> {
        match self {
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
                        volume.FIGURE; host.FIGURE; a number and a space before it is its weight";

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
