//! Limits on open files.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::server::Server;
use super::volume::{create, make_volume};
use super::{output_in, wait_until, zonda_in};

/// The program with a limit on open files.
fn limited(directory: &Path, files: u32, arguments: &[&str]) -> (Option<i32>, String) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -n $0; exec \"$@\"", &files.to_string(), env!("CARGO_BIN_EXE_zonda")]);
    let ended = shell.args(arguments).current_dir(directory).output().expect("the program starts");
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn a_healthy_member_does_not_fail_for_want_of_open_files() {
    let directory = make_volume("few-files");
    create(&directory);
    let file = directory.join("vol/volume.toml");
    let before = fs::read_to_string(&file).expect("it exists");
    for files in [24, 32, 48, 100] {
        let (code, said) = limited(&directory, files, &["serve", "vol", "--http", "off", "--listen", "127.0.0.1:0"]);
        assert!(code == Some(2) && said.contains("open files") && said.contains("ulimit -n"), "{code:?} {said}");
    }
    assert_eq!(fs::read_to_string(&file).expect("it exists"), before);
    assert_eq!(zonda_in(&directory, &["volume", "check", "vol"]).code, Some(0));
}

#[test]
fn a_server_that_had_no_more_files_answers_again() {
    let directory = make_volume("no-files");
    create(&directory);
    let server = Server::start(&directory, &["vol"]);
    let pid = Pid::from_raw(server.child.id().cast_signed());
    let maximum = getrlimit(Resource::Nofile).maximum;
    let set = |current| prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).expect("it is of the same user");
    set(Some(1));
    let _waiting = TcpStream::connect(server.address()).expect("the system accepts it");
    assert_ne!(zonda_in(&directory, &["volume", "status", "vol"]).code, Some(0));
    set(maximum);
    wait_until("it answers", || zonda_in(&directory, &["volume", "status", "vol"]).code == Some(0));
    output_in(&directory, &["zone", "report", server.url(0)]);
    let log = server.stop();
    assert!(log.contains("cannot accept connections, which wait: Too many open files"), "{log}");
}
