//! [`View`]: what the terminal shows, and what keys do to it.

use super::frame::{Frame, Row};

/// Seconds for which a restart of the server is shown.
const RESTART_SHOWN_S: u64 = 10;

/// The state of the view. Drawing it needs nothing else.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// The server, as the user has named it.
    pub(super) server: String,
    /// The last figures.
    pub(super) frame: Option<Frame>,
    pub(super) connection: Connection,
    /// Seconds since a restart of the server was noticed.
    pub(super) restarted_s: Option<u64>,
    selected: Option<Key>,
    pub(super) sort: Sort,
    pub(super) map: Map,
    pub(super) is_help: bool,
    pub(super) has_colours: bool,
    /// Whether there are keys to press: not in a single picture.
    pub(super) is_interactive: bool,
}

/// The connection to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Connection {
    /// No answer yet.
    Connecting,
    Connected,
    /// The server does not answer: why, and for how many seconds.
    Lost {
        reason: String,
        seconds: u64,
    },
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// As the server has them.
    #[default]
    Configured,
    Bandwidth,
    Iops,
    /// p99.9.
    Latency,
}

/// Which zones are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Map {
    /// Those of the drive: of a pool the physical ones, with the namespaces that have them.
    #[default]
    Drive,
    /// Those that hosts of the selected namespace see.
    Namespace,
}

/// What the user asks for with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Next,
    Previous,
    Sort,
    Map,
    Help,
    Close,
}

/// What identifies a row from frame to frame: subsystem, number, source and name.
type Key = (Option<String>, Option<u32>, String, String);

impl Sort {
    /// In words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Configured => "configuration",
            Sort::Bandwidth => "bandwidth",
            Sort::Iops => "IOPS",
            Sort::Latency => "p99.9",
        }
    }

    fn next(self) -> Sort {
        match self {
            Sort::Configured => Sort::Bandwidth,
            Sort::Bandwidth => Sort::Iops,
            Sort::Iops => Sort::Latency,
            Sort::Latency => Sort::Configured,
        }
    }

    /// What is sorted by, the greatest first.
    fn value(self, row: &Row) -> f64 {
        let Some(rates) = &row.rates else { return -1.0 };
        match self {
            Sort::Configured => 0.0,
            Sort::Bandwidth => rates.bytes_per_s(),
            Sort::Iops => rates.iops,
            Sort::Latency => rates.p99_9_ns.unwrap_or(0) as f64,
        }
    }
}

impl View {
    pub(super) fn new(server: String) -> View {
        View {
            server,
            frame: None,
            connection: Connection::Connecting,
            restarted_s: None,
            selected: None,
            sort: Sort::default(),
            map: Map::default(),
            is_help: false,
            has_colours: false,
            is_interactive: false,
        }
    }

    /// New figures.
    pub(super) fn show(&mut self, frame: Frame) {
        let is_other = |old: &Frame| old.server.process != frame.server.process;
        if self.frame.as_ref().is_some_and(is_other) {
            self.restarted_s = Some(0);
        }
        (self.frame, self.connection) = (Some(frame), Connection::Connected);
    }

    /// The server does not answer.
    pub(super) fn lose(&mut self, reason: String) {
        let seconds = if let Connection::Lost { seconds, .. } = self.connection { seconds } else { 0 };
        self.connection = Connection::Lost { reason, seconds };
    }

    /// Times since the events that are shown.
    pub(super) fn set_times(&mut self, lost_s: u64, restarted_s: Option<u64>) {
        if let Connection::Lost { seconds, .. } = &mut self.connection {
            *seconds = lost_s;
        }
        self.restarted_s = restarted_s.filter(|seconds| *seconds < RESTART_SHOWN_S);
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Next => self.select(1),
            Action::Previous => self.select(-1),
            Action::Sort => self.sort = self.sort.next(),
            Action::Map => self.map = if self.map == Map::Drive { Map::Namespace } else { Map::Drive },
            Action::Help => self.is_help = !self.is_help,
            Action::Close => self.is_help = false,
        }
    }

    /// The rows in their order, and the place of the selected one; rows with the same value are in the
    /// order of the server.
    pub(super) fn rows(&self) -> (Vec<&Row>, usize) {
        let mut rows: Vec<&Row> = self.frame.iter().flat_map(|frame| &frame.rows).collect();
        rows.sort_by(|left, right| self.sort.value(right).total_cmp(&self.sort.value(left)));
        if self.sort == Sort::Configured {
            rows = self.frame.iter().flat_map(|frame| &frame.rows).collect();
        }
        let is_selected = |row: &&Row| self.selected.as_ref().is_some_and(|selected| key_of(row) == *selected);
        let selected = rows.iter().position(is_selected).unwrap_or(0);
        (rows, selected)
    }

    /// Selects the row that is so many rows further down, around the end.
    fn select(&mut self, rows_down: isize) {
        let (rows, selected) = self.rows();
        if !rows.is_empty() {
            let next = (selected as isize + rows_down).rem_euclid(rows.len() as isize) as usize;
            self.selected = Some(key_of(rows[next]));
        }
    }
}

fn key_of(row: &Row) -> Key {
    let (nqn, namespace, source, name) = row.key();
    (nqn.map(str::to_owned), namespace, source.to_owned(), name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn names(view: &View) -> Vec<&str> {
        view.rows().0.iter().map(|row| row.name.as_str()).collect()
    }

    fn selected(view: &View) -> &str {
        let (rows, selected) = view.rows();
        &rows[selected].name
    }

    #[test]
    fn the_selection_follows_its_namespace_through_any_order() {
        let (before, now) = samples::pool();
        let mut view = View::new("pool".to_owned());
        view.act(Action::Next);
        view.show(Frame::of(Some(&before), &now));
        assert_eq!((names(&view), selected(&view)), (vec!["db", "log", "backup"], "db"));
        view.act(Action::Next);
        assert_eq!(selected(&view), "log");
        view.act(Action::Sort);
        assert_eq!((view.sort, names(&view), selected(&view)), (Sort::Bandwidth, vec!["log", "db", "backup"], "log"));
        view.act(Action::Previous);
        assert_eq!(selected(&view), "backup", "around the end");
        (0..3).for_each(|_| view.act(Action::Sort));
        assert_eq!((view.sort, names(&view)), (Sort::Configured, vec!["db", "log", "backup"]));
    }

    #[test]
    fn figures_stay_while_the_server_is_lost_and_a_restart_is_shown() {
        let (before, now) = samples::pool();
        let mut view = View::new("pool".to_owned());
        view.show(Frame::of(Some(&before), &now));
        view.lose("connection refused".to_owned());
        view.set_times(7, None);
        view.lose("no response".to_owned());
        assert_eq!(view.connection, Connection::Lost { reason: "no response".to_owned(), seconds: 7 });
        assert_eq!((names(&view).len(), view.restarted_s), (3, None));
        let restarted = zonda_exports::snapshot::Snapshot { pid: now.pid + 1, ..now };
        view.show(Frame::of(Some(&before), &restarted));
        assert_eq!((&view.connection, view.restarted_s), (&Connection::Connected, Some(0)));
        view.set_times(0, Some(RESTART_SHOWN_S));
        assert_eq!(view.restarted_s, None);
    }
}
