//! The page of a paper, or of an experiment without a paper.

use zonda_plot::text::{counted, escape};

use super::entry::{Entry, Group, Site};
use super::names::link;
use super::{experiment, page};
use crate::Paper;

/// The page of this group.
pub(super) fn html(site: &Site<'_>, group: &Group) -> String {
    let sections: String = site.of(group).map(|entry| experiment::section(site, entry)).collect();
    let (title, header) = match group.paper {
        Some(paper) if paper.is_published => {
            (format!("{}: published and reproduced", paper.name), of_paper(site, group, paper))
        }
        Some(paper) => (format!("{}: beyond published results", paper.name), of_paper(site, group, paper)),
        None => ("Your experiment".to_owned(), of_own()),
    };
    let back = "<nav class=\"back\"><a href=\"index.html\">All papers and results</a></nav>\n";
    page(&title, &format!("{back}{header}{sections}"))
}

fn of_own() -> String {
    "<header>\n<p class=\"kind\">zonda lab</p>\n<h1>Your experiment</h1>\n\
     <p class=\"lead\">Your own experiment, run on a drive model. It does not count in figures about papers.</p>\n</header>\n"
        .to_owned()
}

fn of_paper(site: &Site<'_>, group: &Group, paper: &Paper) -> String {
    let items: String = site.of(group).map(item).collect();
    let others: String = site
        .groups
        .iter()
        .filter_map(|other| other.paper.filter(|its| its.key != paper.key).map(|its| (other, its)))
        .map(|(other, its)| format!("<li><a href=\"{}\">{}</a></li>\n", link(&other.page), escape(its.name)))
        .collect();
    let others = if others.is_empty() { others } else { format!("<ul class=\"others\">\n{others}</ul>\n") };
    let (kind, hollow) = if paper.is_published {
        ("a paper, reproduced on the model", "published values")
    } else {
        (
            "experiments of zonda's own, on the model",
            "values of a published formula. The published value of a result is that of a \
          formula, or a bound set by zonda, as its experiment states",
        )
    };
    format!(
        "<header>\n<p class=\"kind\">zonda lab: {kind}</p>\n<h1>{}</h1>\n<p class=\"reference\">{}.{}</p>\n\
         <p class=\"lead\">Measured on: {}</p>\n\
         <p>Filled markers and bars are results of the model. Hollow markers, and ticks across bars, are {hollow}.</p>\n\
         </header>\n<nav aria-labelledby=\"contents\">\n<h2 id=\"contents\">Experiments</h2>\n<ol class=\"contents\">\n{items}</ol>\n\
         {others}</nav>\n",
        escape(paper.name),
        escape(paper.reference),
        reference_link(paper),
        escape(&lower_first_article(paper.about)),
    )
}

/// A link to the paper; empty if it has no URL.
pub(super) fn reference_link(paper: &Paper) -> String {
    match paper.link {
        "" => String::new(),
        address => format!(" <a href=\"{address}\">{}</a>", escape(address)),
    }
}

/// A sentence in lower case, to follow a colon.
fn lower_first_article(text: &str) -> String {
    match text
        .strip_prefix("A ")
        .map(|rest| ("a", rest))
        .or_else(|| text.strip_prefix("Two ").map(|rest| ("two", rest)))
    {
        Some((article, rest)) => format!("{article} {rest}"),
        None => text.to_owned(),
    }
}

fn item(entry: &Entry<'_>) -> String {
    let place = entry.experiment.place.as_deref().unwrap_or_default();
    format!(
        "<li><span class=\"place\">{}</span><a href=\"#{}\">{}</a><span class=\"score\">{}</span></li>\n",
        escape(place),
        entry.anchor(),
        escape(&entry.experiment.title),
        score(entry)
    )
}

/// The number of results met.
pub(super) fn score(entry: &Entry<'_>) -> String {
    let met = entry.rows.iter().filter(|row| row.met).count();
    match entry.rows.len() {
        0 => "no published result".to_owned(),
        all if met == all => format!("{} met", counted(all as u64, "result")),
        all => format!("{met} of {all} results met"),
    }
}
