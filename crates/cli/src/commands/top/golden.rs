//! Pictures of servers, as they are in `tests/golden`.

use std::path::Path;

use zonda_exports::snapshot::Snapshot;

use super::frame::Frame;
use super::view::{Action, View};
use super::{picture, samples};

fn view_of((before, now): &(Snapshot, Snapshot), server: &str) -> View {
    let mut view = View::new(server.to_owned());
    view.is_interactive = true;
    view.show(Frame::of(Some(before), now));
    view
}

/// Compares both sizes of a view with golden files, or writes these if `ZONDA_UPDATE_GOLDEN` is set.
fn check(name: &str, view: &View) {
    for (width, height) in [(80, 24), (140, 50)] {
        let text = picture(view, width, height);
        let file = format!("top_{name}_{width}x{height}.txt");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(&file);
        if std::env::var_os("ZONDA_UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &text).expect("the golden file can be written");
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, golden, "{file} differs; ZONDA_UPDATE_GOLDEN=1 rewrites it");
    }
}

#[test]
fn a_pool_with_three_namespaces() {
    let mut view = view_of(&samples::pool(), "127.0.0.1:9420");
    view.act(Action::Next);
    check("pool", &view);
    view.act(Action::Map);
    check("pool_namespace", &view);
}

#[test]
fn a_volume_that_is_rebuilt() {
    check("volume", &view_of(&samples::volume(), "vols/vol"));
}

#[test]
fn a_plain_drive() {
    check("drive", &view_of(&samples::drive(), "127.0.0.1:9420"));
}

#[test]
fn a_drive_with_conflict_groups() {
    check("groups", &view_of(&samples::conflict_groups(true), "127.0.0.1:9420"));
    check("groups_contradicted", &view_of(&samples::conflict_groups(false), "127.0.0.1:9420"));
}

#[test]
fn a_server_that_does_not_answer() {
    let mut view = view_of(&samples::pool(), "127.0.0.1:9420");
    view.lose("Connection refused (os error 111)".to_owned());
    view.set_times(12, None);
    check("lost", &view);
}

#[test]
fn the_help() {
    let mut view = view_of(&samples::drive(), "127.0.0.1:9420");
    view.act(Action::Help);
    check("help", &view);
}

#[test]
fn no_size_of_the_terminal_is_a_panic() {
    let servers = [samples::pool(), samples::volume(), samples::drive(), samples::conflict_groups(false)];
    for server in &servers {
        let mut view = view_of(server, "a-server-with-a-long-name.example.org:9420");
        for action in [Action::Close, Action::Map, Action::Help] {
            view.act(action);
            for width in [1, 40, 59, 60, 80, 99, 136, 200] {
                for height in (1..30).chain([60]) {
                    picture(&view, width, height);
                }
            }
        }
    }
    let mut empty = View::new("pool".to_owned());
    assert!(picture(&empty, 80, 24).contains("connecting"));
    empty.show(Frame::of(None, &Snapshot::default()));
    assert!(picture(&empty, 80, 24).contains("the server has no namespaces"));
    assert_eq!(picture(&empty, 30, 10), "30x10 is too small: zonda top\n  needs 80x12\n");
}
