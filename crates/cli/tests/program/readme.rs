//! The session in README.md, held against the program.
//!
//! Each `$ zonda ...` of the section runs here, and prints what stands there. `ZONDA_UPDATE_GOLDEN=1` writes it anew.

use std::path::{Path, PathBuf};

use super::serve::with_default_ports;
use super::server::{Server, greeting_in};
use super::{output_in, root, scratch, without_numbers};

/// Where the section begins and where it ends.
const BEGIN: &str = "## Serve a drive\n";
const END: &str = "\n## ";
const URL: &str = "nvme-tcp://127.0.0.1:4420/nqn.2026-01.io.zonda:a";

/// The README, of which answers are held against the program, or replaced.
struct Readme {
    path: PathBuf,
    text: String,
    is_updated: bool,
}

impl Readme {
    fn open() -> Readme {
        let path = root().join("README.md");
        let text = std::fs::read_to_string(&path).expect("there is a README");
        Readme { path, text, is_updated: std::env::var_os("ZONDA_UPDATE_GOLDEN").is_some() }
    }

    /// Where the answer to a command stands: up to the next command, or the end of the block.
    fn answer(&self, command: &str) -> std::ops::Range<usize> {
        let section = self.text.find(BEGIN).expect("there is the section");
        let end =
            section + BEGIN.len() + self.text[section + BEGIN.len()..].find(END).expect("another section follows");
        let prompt = format!("$ {command}\n");
        let start =
            self.text[section..end].find(&prompt).unwrap_or_else(|| panic!("no \"$ {command}\" in the section"));
        let start = section + start + prompt.len();
        let stops = ["\n$ ", "\n```"].map(|stop| self.text[start - 1..].find(stop).map(|length| start + length));
        start..stops.into_iter().flatten().min().expect("a block ends")
    }

    /// Holds an answer against what the program says; measured numbers may differ.
    fn hold(&mut self, command: &str, said: &str, is_measured: bool) {
        let place = self.answer(command);
        if self.is_updated {
            self.text.replace_range(place, said);
            return;
        }
        let stands = &self.text[place];
        let shape = |text: &str| if is_measured { steady(&without_numbers(text)) } else { text.to_owned() };
        assert_eq!(shape(said), shape(stands), "{command}; ZONDA_UPDATE_GOLDEN=1 writes it anew");
    }

    fn close(self) {
        if self.is_updated {
            std::fs::write(&self.path, &self.text).expect("the README can be written");
        }
    }
}

/// What is the same on a slow machine and on a fast one: not lines about zones, of which a fast one fills more, nor which zones
/// had something in them.
fn steady(text: &str) -> String {
    let is_steady = |line: &&str| {
        let is_of_zones = ["zones #", "resources #", "reset", "life #"].iter().any(|start| line.starts_with(start));
        !is_of_zones && !line.contains(['█', '·', '▁', '▄', '▆']) && !line.contains(" reset ")
    };
    let without_zones = |line: &str| line.split_inclusive("are empty now:").next().unwrap_or(line).to_owned();
    text.lines().filter(is_steady).map(|line| without_zones(line) + "\n").collect()
}

fn words(command: &str) -> Vec<&str> {
    command.split(' ').skip(1).collect()
}

/// Runs a command of the session in `directory` on `server`, and holds what it says.
fn hold_on(readme: &mut Readme, directory: &Path, server: &Server, command: &str, is_measured: bool) {
    let listen = server.greeting["listen"][0].as_str().expect("it listens");
    let real = command.replace(URL, server.url(0)).replace("zonda status", &format!("zonda status {}", server.http()));
    let said = with_default_ports(&output_in(directory, &words(&real)), listen, Some(server.http()));
    readme.hold(command, &said, is_measured);
}

#[test]
fn the_session_in_the_readme_is_what_the_program_prints() {
    let directory = scratch("readme");
    std::fs::create_dir(directory.join("examples")).unwrap();
    std::fs::copy(root().join("examples/target.toml"), directory.join("examples/target.toml")).unwrap();
    let mut readme = Readme::open();
    let create = "zonda drive create drives/a --profile zn540 --zones 64 --zone-capacity 64MiB";
    readme.hold(create, &output_in(&directory, &words(create)), false);
    let (greeting, _) = greeting_in(&directory, &["drives/a"]);
    let listen = greeting.rsplit_once("listening on ").unwrap().1.split(' ').next().unwrap();
    let http = greeting.split_once("http://").unwrap().1.split('/').next().unwrap();
    readme.hold("zonda serve drives/a", &with_default_ports(&greeting, listen, Some(http)), false);
    let server = Server::start(&directory, &["drives/a"]);
    let on = |readme: &mut Readme, command: &str, is_measured: bool| {
        hold_on(readme, &directory, &server, command, is_measured);
    };
    on(&mut readme, &format!("zonda bench --target {URL} examples/target.toml --quiet"), true);
    server.wait_until_alone();
    on(&mut readme, "zonda status", true);
    on(&mut readme, &format!("zonda zone reset {URL} --all"), true);
    on(&mut readme, &format!("zonda zone finish {URL} 2"), false);
    on(&mut readme, &format!("zonda zone report {URL}"), false);
    server.stop();
    readme.close();
}
