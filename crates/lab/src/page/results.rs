//! Tables of published results and those of the model. On narrow screens each row becomes a block
//! of lines.

use super::entry::Found;
use super::names::result_anchor;
use super::words;
use crate::{KindSpec, PublishedResult, Row};
use zonda_plot::text::{NOTHING, escape};

/// The head of every table.
const HEAD: &str = "<thead><tr><th scope=\"col\">Result</th><th scope=\"col\">Published</th><th scope=\"col\">Model</th>\
                    <th scope=\"col\">Error</th><th scope=\"col\">Allowed</th><th scope=\"col\">Spread</th>\
                    <th scope=\"col\" class=\"words\">Met?</th>\
                    <th scope=\"col\" class=\"words\">Basis</th>";

/// The reason of a missed result.
pub(super) fn reason(row: &Row) -> String {
    if row.note.trim().is_empty() { "The reason is unknown.".to_owned() } else { words::line(&row.note) }
}

/// The title, with the kind of result if it is not about the drive.
pub(super) fn title(row: &Row) -> String {
    let about = match row.kind {
        kind if kind == KindSpec::Device.name() => "",
        kind if kind == KindSpec::Shape.name() => " <small>an order or a trend</small>",
        _ => " <small>a gain of a system</small>",
    };
    format!("{}{about}", escape(&words::capitalized(&row.title)))
}

/// The cells after the title.
fn cells(row: &Row) -> String {
    let ours = row.ours.map_or_else(|| NOTHING.to_owned(), |ours| words::with_unit(&words::rounded(ours), &row.unit));
    let spread = row.runs.map(words::spread).filter(|spread| !spread.is_empty());
    let spread = spread.map_or_else(String::new, |spread| format!("<small>{spread}</small>"));
    let error = row.error.map_or_else(|| NOTHING.to_owned(), words::error);
    let wide = row.spread.as_ref().map_or_else(|| NOTHING.to_owned(), words::wide_spread);
    format!(
        "<td data-name=\"Published\">{}</td><td data-name=\"Model\">{ours}{spread}</td><td data-name=\"Error\">{error}</td>\
         <td data-name=\"Allowed\">{}</td><td data-name=\"Spread\">{wide}</td><td data-name=\"\" class=\"words\">{}</td>\
         <td data-name=\"\" class=\"words\">{}</td>",
        words::with_unit(&words::exact(row.published), &row.unit),
        words::tolerance(row.tolerance),
        words::verdict(row.verdict),
        words::basis(row.basis),
    )
}

/// The table of one experiment, with reasons below missed results.
pub(super) fn of_experiment(rows: &[Row]) -> String {
    let mut body = String::new();
    for row in rows {
        body += &format!(
            "<tr id=\"{}\"><th scope=\"row\">{}</th>{}</tr>\n",
            result_anchor(&row.id),
            title(row),
            cells(row)
        );
        if !row.met {
            body += &format!("<tr class=\"why\"><td colspan=\"8\"><b>Reason:</b> {}</td></tr>\n", reason(row));
        }
    }
    format!("<table class=\"numbers results\">{HEAD}</tr></thead>\n<tbody>\n{body}</tbody></table>\n")
}

/// The table of many experiments, with a head for each paper, and links to sections and to reasons.
pub(super) fn of_all<'a>(papers: impl Iterator<Item = (&'a str, Vec<Found<'a>>)>) -> String {
    let mut bodies = String::new();
    for (paper, results) in papers.filter(|(_, results)| !results.is_empty()) {
        let met = results.iter().filter(|(_, row)| row.met).count();
        bodies += &format!(
            "<tbody>\n<tr class=\"group\"><th scope=\"rowgroup\" colspan=\"9\">{} <small>{met} of {} met</small></th></tr>\n",
            escape(paper),
            results.len()
        );
        for (entry, row) in results {
            let why = match row.met {
                true => "<td class=\"words none\"></td>".to_owned(),
                false => {
                    format!(
                        "<td data-name=\"Reason\" class=\"words\"><a href=\"#{}\">reason</a></td>",
                        miss_anchor(row)
                    )
                }
            };
            bodies += &format!(
                "<tr><th scope=\"row\"><a href=\"{}\">{}</a> <small>{}</small></th>{}{why}</tr>\n",
                entry.link(),
                title(row),
                escape(entry.place()),
                cells(row)
            );
        }
        bodies += "</tbody>\n";
    }
    format!(
        "<table class=\"numbers results\">{HEAD}<th scope=\"col\" class=\"words\">Reason</th></tr></thead>\n{bodies}</table>\n"
    )
}

/// The published results that no experiment reproduces.
pub(super) fn uncovered(results: &[&PublishedResult]) -> String {
    let items = results.iter().map(|result| {
        let subject = escape(&words::capitalized(&result.subject));
        format!("<li>{subject} <small>{}, {}</small></li>\n", escape(&result.id), escape(&result.place))
    });
    format!("<ul class=\"uncovered\">\n{}</ul>\n", items.collect::<String>())
}

/// The missed and fragile results, each with its reason.
pub(super) fn misses(results: &[Found<'_>]) -> String {
    let mut items = String::new();
    for (entry, row) in results.iter().filter(|(_, row)| !row.met) {
        let ours = match (row.ours, row.error) {
            (Some(ours), Some(error)) => format!(
                "Model: {} ({}), error {}, allowed {}.",
                words::with_unit(&words::rounded(ours), &row.unit),
                row.basis.name(),
                words::error(error),
                words::tolerance(row.tolerance)
            ),
            _ => "Model: no value.".to_owned(),
        };
        items += &format!(
            "<li id=\"{}\"><h3><a href=\"{}\">{}</a> <small>{}, {}</small></h3>\n\
             <p>Published: {}. {ours}</p>\n<p>{}</p></li>\n",
            miss_anchor(row),
            entry.result_link(row),
            title(row),
            escape(entry.paper.map_or("your experiment", |paper| paper.name)),
            escape(entry.place()),
            words::with_unit(&words::exact(row.published), &row.unit),
            reason(row)
        );
    }
    format!("<ul class=\"misses\">\n{items}</ul>\n")
}

/// The `id` of a reason.
fn miss_anchor(row: &Row) -> String {
    format!("missed-{}", super::names::anchor(&row.id))
}
