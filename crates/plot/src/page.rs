//! A self-contained page: no scripts, and nothing loaded from other servers.

use crate::text::escape;
use crate::{PAGE_CSS, PLOT_CSS};

/// An HTML page with the style that all pages of zonda share.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// Plain text.
    pub title: &'a str,
    /// Additional style of this page.
    pub css: &'a str,
    /// HTML: headers and sections.
    pub main: &'a str,
    /// HTML of the footer.
    pub footer: &'a str,
}

impl Page<'_> {
    /// The page as a file.
    #[must_use]
    pub fn html(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"zonda {version}\">\n\
             <title>{title}</title>\n<style>\n{PLOT_CSS}{PAGE_CSS}{css}</style>\n</head>\n<body>\n<main>\n{main}\
             </main>\n<footer>{footer}</footer>\n</body>\n</html>\n",
            version = env!("CARGO_PKG_VERSION"),
            title = escape(self.title),
            css = self.css,
            main = self.main,
            footer = self.footer,
        )
    }
}
