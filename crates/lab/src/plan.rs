//! Plots, published curves and results, validated against metrics, curves and values.

use toml::Value;
use zonda_config::{ConfigError, Spanned, did_you_mean_help};

use crate::Metric;
use crate::expand::notation;
use crate::lab_file::XAxis;
use crate::spec::{AcrossSpec, KindSpec, PlotSpec, PublishedSpec, ResultSpec, ScaleSpec, SelectorSpec, TakeSpec};

/// The objects that names in a file can refer to.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) x: Option<&'a XAxis>,
    pub(crate) series: &'a [String],
    pub(crate) metrics: &'a [Metric],
}

/// A plot of the page.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotPlan {
    /// In words.
    pub title: String,
    /// Indices of its metrics.
    pub metrics: Vec<usize>,
    /// The horizontal axis.
    pub across: AcrossSpec,
    /// Scale of the vertical axis.
    pub scale: ScaleSpec,
    /// Indices of its curves.
    pub series: Vec<usize>,
    /// A note below.
    pub note: String,
}

/// Published points of a curve.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedCurve {
    /// Index of the metric.
    pub metric: usize,
    /// Index of the curve.
    pub series: usize,
    /// Values of x, which need not be among those that are run, and the published values.
    pub points: Vec<(f64, f64)>,
}

/// A published result, and how to compute it from the runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultPlan {
    /// Stable over time.
    pub id: String,
    /// What it is, in words.
    pub title: String,
    /// Of both numbers.
    pub unit: String,
    /// What was published.
    pub published: f64,
    /// Maximum relative error at which it is met.
    pub tolerance: f64,
    /// The kind of result.
    pub kind: KindSpec,
    /// Whether an unpublished parameter of the workload was chosen near this result.
    pub load_chosen: bool,
    /// The structure or the value of the model that was chosen with this result in view.
    pub model_chosen: Option<String>,
    /// Whether the published value is an upper bound: lower values are met.
    pub at_most: bool,
    /// Whether the published value is a lower bound.
    pub at_least: bool,
    /// Why it is not met, if it is not.
    pub miss: Option<String>,
    pub(crate) of: Selector,
    pub(crate) over: Option<Selector>,
    pub(crate) take: Option<TakeSpec>,
    pub(crate) affected: Option<f64>,
}

/// A number of the measured curves, or a whole curve.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Selector {
    pub(crate) metric: usize,
    pub(crate) series: usize,
    pub(crate) reduce: Reduce,
}

/// How a curve is reduced to a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reduce {
    /// At one value of x, by its place.
    At(usize),
    /// As one number.
    Take(TakeSpec),
    /// Point by point.
    Whole,
}

impl PlotPlan {
    pub(crate) fn new(spec: &PlotSpec, parts: Parts<'_>) -> Result<PlotPlan, ConfigError> {
        let at_metrics = |error: ConfigError| error.within(spec.metrics.span());
        let metrics: Vec<usize> = spec
            .metrics
            .get_ref()
            .iter()
            .map(|name| parts.metric(name))
            .collect::<Result<_, _>>()
            .map_err(at_metrics)?;
        if metrics.is_empty() {
            return Err(ConfigError::at(&spec.metrics, "a plot needs at least one metric"));
        }
        let unit = |metric: &usize| parts.metrics[*metric].unit.as_str();
        if let Some(other) = metrics.iter().find(|metric| unit(metric) != unit(&metrics[0])) {
            let message = format!("{} and {} cannot share an axis", unit(&metrics[0]), unit(other));
            return Err(ConfigError::at(&spec.metrics, message).help("use two plots, or the same unit"));
        }
        let series = match &spec.series {
            None => (0..parts.series.len()).collect(),
            Some(names) => {
                let found = names.get_ref().iter().map(|name| parts.one_series(name)).collect::<Result<_, _>>();
                found.map_err(|error: ConfigError| error.within(names.span()))?
            }
        };
        let (title, note) = (spec.title.clone(), spec.note.clone());
        Ok(PlotPlan { title, metrics, across: spec.across, scale: spec.scale, series, note })
    }
}

impl PublishedCurve {
    pub(crate) fn new(spec: &Spanned<PublishedSpec>, parts: Parts<'_>) -> Result<PublishedCurve, ConfigError> {
        let place = spec;
        let spec = spec.get_ref();
        let metric = parts.metric(spec.metric.get_ref()).map_err(|error| error.within(spec.metric.span()))?;
        let series = parts.series_or_only(spec.series.as_ref(), place)?;
        let mut points = Vec::with_capacity(spec.points.get_ref().len());
        for (at, value) in spec.points.get_ref() {
            let number = match (parts.x, at) {
                (Some(x), at) if x.scale == ScaleSpec::Names => x.place(at).map(|place| place as f64),
                (_, Value::Integer(number)) => Some(*number as f64),
                (_, Value::Float(number)) => Some(*number),
                _ => None,
            };
            let Some(number) = number else {
                let message = format!("{} is not a value of x", notation(at));
                return Err(ConfigError::at(&spec.points, message));
            };
            if let Some(x) = parts.x
                && !x.reaches(number)
            {
                let message = format!("{} is outside of the range of x", notation(at));
                return Err(ConfigError::at(&spec.points, message).help(format!("they are {}", x.labels.join(", "))));
            }
            if !value.is_finite() {
                return Err(ConfigError::at(&spec.points, format!("{value} cannot be plotted")));
            }
            points.push((number, *value));
        }
        Ok(PublishedCurve { metric, series, points })
    }
}

impl ResultPlan {
    pub(crate) fn new(place: &Spanned<ResultSpec>, parts: Parts<'_>) -> Result<ResultPlan, ConfigError> {
        let spec = place.get_ref();
        if !(spec.published.is_finite() && spec.published != 0.0 && spec.tolerance.is_finite() && spec.tolerance >= 0.0)
        {
            let error = ConfigError::at(place, format!("{}: no relative error can be computed", spec.id));
            return Err(error.help("write a published number that is not zero, and a tolerance that is not negative"));
        }
        if spec.id.trim().is_empty() {
            return Err(ConfigError::at(place, "the result has no id").help("write id = \"a-word-for-it\""));
        }
        let of = Selector::new(&spec.of, parts)?;
        let over = spec.over.as_ref().map(|over| Selector::new(over, parts)).transpose()?;
        let whole = [Some(&of), over.as_ref()].into_iter().flatten().filter(|one| one.reduce == Reduce::Whole).count();
        let selectors = 1 + usize::from(over.is_some());
        let is_fine = match spec.take {
            Some(_) => whole == selectors,
            None => whole == 0,
        };
        if !is_fine {
            let error = ConfigError::at(place, format!("{} is a curve, not a number", spec.id));
            return Err(error.help(
                "add at = VALUE-OF-X, or take = \"max\", \"min\", \"mean\" or { saturates = 0.95 }, in \"of\" and \
                 \"over\", or next to them for their ratio point by point",
            ));
        }
        let take = spec.take.as_ref().map(|take| *take.get_ref());
        let affected = spec.affected.as_ref().map(|share| *share.get_ref());
        if let Some(place) = spec.affected.as_ref()
            && !(over.is_some() && affected.is_some_and(|share| share > 0.0 && share <= 1.0))
        {
            let error = ConfigError::at(place, "\"affected\" is a share of the requests of a ratio");
            return Err(error.help("write a number above 0, at most 1, and add \"over\""));
        }
        check_unit(place, &of, take, parts)?;
        Ok(ResultPlan {
            id: spec.id.clone(),
            title: spec.title.clone(),
            unit: spec.unit.clone(),
            published: spec.published,
            tolerance: spec.tolerance,
            kind: spec.kind,
            load_chosen: spec.load_chosen,
            model_chosen: spec.model_chosen.clone(),
            at_most: spec.at_most,
            at_least: spec.at_least,
            miss: spec.miss.clone(),
            of,
            over,
            take,
            affected,
        })
    }
}

impl ResultPlan {
    /// Whether it needs the measurements of the curve `series` at the value of x with index `x`.
    pub(crate) fn needs(&self, series: usize, x: usize) -> bool {
        let selectors = [Some(&self.of), self.over.as_ref()].into_iter().flatten();
        let mut of_series = selectors.filter(|selector| selector.series == series);
        of_series.any(|selector| !matches!(selector.reduce, Reduce::At(at) if at != x))
    }

    /// The indices of its metrics.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = usize> {
        [Some(&self.of), self.over.as_ref()].into_iter().flatten().map(|selector| selector.metric)
    }
}

impl Selector {
    fn new(place: &Spanned<SelectorSpec>, parts: Parts<'_>) -> Result<Selector, ConfigError> {
        let spec = place.get_ref();
        let metric = parts.metric(spec.metric.get_ref()).map_err(|error| error.within(spec.metric.span()))?;
        let series = parts.series_or_only(spec.series.as_ref(), place)?;
        let reduce = match (&spec.at, &spec.take, parts.x) {
            (Some(_), Some(take), _) => {
                return Err(ConfigError::at(take, "\"at\" and \"take\" cannot be combined").help("remove one of them"));
            }
            (Some(at), None, Some(x)) => {
                let Some(place) = x.place(at.get_ref()) else {
                    let message = format!("{} is not among the values of x", notation(at.get_ref()));
                    return Err(ConfigError::at(at, message).help(format!("they are {}", x.labels.join(", "))));
                };
                Reduce::At(place)
            }
            (Some(at), None, None) => return Err(ConfigError::at(at, "\"at\" needs a table [x]")),
            (None, _, None) => Reduce::At(0),
            (None, Some(take), Some(_)) => Reduce::Take(*take.get_ref()),
            (None, None, Some(_)) => Reduce::Whole,
        };
        Ok(Selector { metric, series, reduce })
    }
}

/// Checks the unit of a result: that of the metric, that of x for a value of x, none for a ratio.
fn check_unit(
    place: &Spanned<ResultSpec>,
    of: &Selector,
    take: Option<TakeSpec>,
    parts: Parts<'_>,
) -> Result<(), ConfigError> {
    const NONE: [&str; 4] = ["", "ratio", "fraction", "times"];
    let unit = place.get_ref().unit.as_str();
    let is_place = [take, if let Reduce::Take(take) = of.reduce { Some(take) } else { None }]
        .iter()
        .any(|take| matches!(take, Some(TakeSpec::Saturates(_))));
    let expected = match (is_place, &place.get_ref().over) {
        (true, _) => parts.x.map_or("", |x| x.unit.as_str()),
        (false, Some(_)) => "ratio",
        (false, None) => parts.metrics[of.metric].unit.as_str(),
    };
    // A result may use a more specific unit than x.
    let fits =
        unit == expected || (NONE.contains(&unit) && NONE.contains(&expected)) || (is_place && expected.is_empty());
    if fits {
        return Ok(());
    }
    let message = format!("{} has the unit \"{unit}\", but its values have \"{expected}\"", place.get_ref().id);
    Err(ConfigError::at(place, message).help("use the same unit for both"))
}

impl Parts<'_> {
    fn metric(&self, name: &str) -> Result<usize, ConfigError> {
        let found = self.metrics.iter().position(|metric| metric.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.metrics.iter().map(|metric| metric.name.as_str()).collect();
            ConfigError::new(format!("unknown metric \"{name}\"")).help(did_you_mean_help(name, &names))
        })
    }

    fn one_series(&self, name: &str) -> Result<usize, ConfigError> {
        let found = self.series.iter().position(|known| known == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.series.iter().map(String::as_str).collect();
            ConfigError::new(format!("unknown series \"{name}\"")).help(did_you_mean_help(name, &names))
        })
    }

    fn series_or_only<T>(&self, name: Option<&Spanned<String>>, place: &Spanned<T>) -> Result<usize, ConfigError> {
        match name {
            Some(name) => self.one_series(name.get_ref()).map_err(|error| error.within(name.span())),
            None if self.series.len() == 1 => Ok(0),
            None => {
                let error = ConfigError::at(place, "missing series");
                Err(error.help(format!("add series = one of {}", self.series.join(", "))))
            }
        }
    }
}

impl XAxis {
    /// Whether a number is between the least and the greatest value.
    fn reaches(&self, number: f64) -> bool {
        let least = self.values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (least..=most).contains(&number)
    }

    /// The index of a value.
    pub(crate) fn place(&self, value: &Value) -> Option<usize> {
        let label = notation(value);
        let number = match value {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        };
        let same_number = |place: &usize| self.scale != ScaleSpec::Names && Some(self.values[*place]) == number;
        (0..self.labels.len()).find(|place| self.labels[*place] == label || same_number(place))
    }
}
