//! The index page: key figures, all results as a chart and a table, papers, drives, and the method.

use std::collections::BTreeSet;

use zonda_plot::text::{count, counted, escape};

use super::entry::{Entry, Found, Group, Site};
use super::names::link;
use super::{drives, made, overview, page, paper, results};
use crate::{Basis, KindSpec, PAPERS, builtin_ids, builtin_text, uncovered_results};

const TITLE: &str = "Published measurements of zoned drives, reproduced on the model";

/// The page.
pub(super) fn html(site: &Site<'_>) -> String {
    let published = site.published();
    let device: Vec<Found<'_>> =
        published.iter().copied().filter(|(_, row)| row.kind == KindSpec::Device.name()).collect();
    let mut main = format!(
        "<header>\n<p class=\"kind\">zonda lab</p>\n<h1>{TITLE}</h1>\n\
         <p class=\"lead\">The workloads of published measurements of zoned SSDs, run on models of these drives, and a \
         comparison of the results.</p>\n</header>\n{}{}",
        cards(site, &device),
        unmeasured(site),
    );
    if !device.is_empty() {
        main += &section("glance", "All results at a glance", &overview::html(site, &device));
    }
    let listed = |is_published: bool| -> String {
        let groups = site.groups.iter().filter(|group| group.is_published() == is_published);
        groups.filter_map(|group| paper_item(site, group)).collect()
    };
    for (id, title, items) in [("papers", "Papers", listed(true)), ("beyond", "Beyond the papers", listed(false))] {
        if !items.is_empty() {
            main += &section(id, title, &format!("<ul class=\"papers\">\n{items}</ul>\n"));
        }
    }
    let own: String =
        site.groups.iter().filter(|group| group.paper.is_none()).map(|group| own_item(site, group)).collect();
    if !own.is_empty() {
        main += &section("own", "Your experiments", &format!("<ul class=\"papers\">\n{own}</ul>\n"));
    }
    if published.iter().any(|(_, row)| !row.met) {
        main += &section("missed", "Missed and fragile results, and their reasons", &results::misses(&published));
    }
    if !published.is_empty() {
        let groups = site.groups.iter().filter(|group| group.is_published());
        let by_paper = groups.filter_map(|group| Some((group.paper?.name, site.results(group).collect())));
        main += &section("results", "All results", &results::of_all(by_paper));
    }
    let uncovered = uncovered_results();
    if !published.is_empty() && !uncovered.is_empty() {
        main += &section("uncovered", "Published results without an experiment", &results::uncovered(&uncovered));
    }
    main += &section("drives", "The drives", &drives::html(site));
    main += &section("made", "Method", &made::html());
    page(TITLE, &main)
}

fn section(id: &str, title: &str, html: &str) -> String {
    format!("<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{title}</h2>\n{html}</section>\n")
}

/// The key figures.
fn cards(site: &Site<'_>, device: &[Found<'_>]) -> String {
    let card = |name: &str, value: &str, note: &str| {
        format!("<div class=\"card\"><dt>{name}</dt><dd><b>{value}</b><small>{note}</small></dd></div>\n")
    };
    let met_of = |basis: Option<Basis>| {
        let of_basis = device.iter().filter(|(_, row)| basis.is_none_or(|basis| row.basis == basis));
        let (met, all) = of_basis.fold((0, 0), |(met, all), (_, row)| (met + u64::from(row.met), all + 1));
        format!("{met} of {all}")
    };
    let of_papers: Vec<&Entry<'_>> =
        site.entries.iter().filter(|entry| entry.paper.is_some_and(|paper| paper.is_published)).collect();
    let points: usize = of_papers.iter().map(|entry| entry.experiment.points.len()).sum();
    let runs: usize =
        of_papers.iter().map(|entry| entry.experiment.points.len() * entry.experiment.seeds as usize).sum();
    let drives: BTreeSet<&str> = of_papers.iter().flat_map(|entry| entry.experiment.profiles()).collect();
    let places = format!(
        "on {}; {}, {}",
        counted(drives.len() as u64, "drive"),
        counted(points as u64, "point"),
        counted(runs as u64, "run")
    );
    [
        "<dl class=\"cards\">\n".to_owned(),
        card("Device results met", &met_of(None), "within the allowed error of each, with all seeds and loads"),
        card("Predicted, met", &met_of(Some(Basis::Predicted)), "nothing was set with them or their figure in view"),
        card("Chosen, met", &met_of(Some(Basis::Chosen)), "a load or a structure was chosen near them"),
        card("Same figure, met", &met_of(Some(Basis::SameFigure)), "a value of the model depends on their figure"),
        card("Derived, met", &met_of(Some(Basis::Derived)), "a value of the model was computed from them"),
        card("Fitted, met", &met_of(Some(Basis::Fitted)), "a value of the model was chosen to meet them"),
        card("Experiments", &count(of_papers.len() as u64), &places),
        "</dl>\n".to_owned(),
    ]
    .concat()
}

/// Built-in experiments without measurements.
fn unmeasured(site: &Site<'_>) -> String {
    let is_here = |id: &&str| site.entries.iter().any(|entry| entry.experiment.id == **id);
    let missing: Vec<&str> = builtin_ids().filter(|id| !is_here(id)).collect();
    let results: usize = missing.iter().filter_map(|id| builtin_text(id)).map(device_results).sum();
    match missing.len() {
        0 => String::new(),
        experiments => format!(
            "<p class=\"flag\"><b>Incomplete.</b> Not measured yet: {} with {}. Run them with \
             <code>zonda lab run --all</code>.</p>\n",
            counted(experiments as u64, "experiment"),
            counted(results as u64, "device result")
        ),
    }
}

/// The number of results about the drive in the file of an experiment.
fn device_results(text: &str) -> usize {
    let table: toml::Table = text.parse().unwrap_or_default();
    let results = table.get("result").and_then(toml::Value::as_array).into_iter().flatten();
    let kind = |result: &toml::Value| result.get("kind").and_then(toml::Value::as_str).map(str::to_owned);
    results.filter(|result| kind(result).is_none_or(|kind| kind == KindSpec::Device.name())).count()
}

fn paper_item(site: &Site<'_>, group: &Group) -> Option<String> {
    let paper = PAPERS.iter().find(|paper| group.paper.is_some_and(|its| its.key == paper.key))?;
    let (met, all) = site.results(group).fold((0, 0), |(met, all), (_, row)| (met + usize::from(row.met), all + 1));
    Some(format!(
        "<li><h3><a href=\"{}\">{}</a></h3>\n<p class=\"score\">{} in {}: {met} met</p>\n<p>{}</p>\n\
         <p class=\"reference\">{}.{}</p></li>\n",
        link(&group.page),
        escape(paper.name),
        counted(all, "result"),
        counted(group.entries.len() as u64, "experiment"),
        escape(paper.about),
        escape(paper.reference),
        paper::reference_link(paper),
    ))
}

fn own_item(site: &Site<'_>, group: &Group) -> String {
    let items = site.of(group).map(|entry| {
        let (address, title) = (link(&entry.page), escape(&entry.experiment.title));
        let file = escape(&format!("{}.toml", entry.experiment.id));
        format!(
            "<li><h3><a href=\"{address}\">{title}</a></h3>\n<p class=\"score\">{file}: {}</p></li>\n",
            paper::score(entry)
        )
    });
    items.collect()
}
