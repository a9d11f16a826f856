//! docs/guide/first-steps.md and README.md, compared with the program.
//!
//! Runs each `$ zonda ...` of the section on serving and compares its output with the guide.
//! `ZONDA_UPDATE_GOLDEN=1` rewrites it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::serve::with_default_ports;
use super::server::{Server, greeting_in};
use super::{file, json_in, output_in, root, scratch, without_numbers, zonda};

/// Start and end of the section.
const BEGIN: &str = "## Serve a drive\n";
const END: &str = "\n## ";
const URL: &str = "nvme-tcp://127.0.0.1:4420/nqn.2026-01.io.zonda:a";

/// The guide, whose transcript is compared with the program, or rewritten.
struct Guide {
    path: PathBuf,
    text: String,
    is_updated: bool,
}

impl Guide {
    fn open() -> Guide {
        let path = root().join("docs/guide/first-steps.md");
        let text = std::fs::read_to_string(&path).expect("the guide can be read");
        Guide { path, text, is_updated: std::env::var_os("ZONDA_UPDATE_GOLDEN").is_some() }
    }

    /// The range of the output of a command in the text: up to the next command, or the end of the
    /// block.
    fn answer(&self, command: &str) -> std::ops::Range<usize> {
        let section = self.text.find(BEGIN).expect("the guide has the section");
        let end =
            section + BEGIN.len() + self.text[section + BEGIN.len()..].find(END).expect("another section follows");
        let prompt = format!("$ {command}\n");
        let start =
            self.text[section..end].find(&prompt).unwrap_or_else(|| panic!("no \"$ {command}\" in the section"));
        let start = section + start + prompt.len();
        let stops = ["\n$ ", "\n```"].map(|stop| self.text[start - 1..].find(stop).map(|length| start + length));
        start..stops.into_iter().flatten().min().expect("a block ends")
    }

    /// Compares what the program prints with the transcript; measured numbers may differ.
    fn compare(&mut self, command: &str, printed: &str, is_measured: bool) {
        let place = self.answer(command);
        if self.is_updated {
            self.text.replace_range(place, printed);
            return;
        }
        let expected = &self.text[place];
        let shape = |text: &str| if is_measured { steady(&without_numbers(text)) } else { text.to_owned() };
        assert_eq!(shape(printed), shape(expected), "{command}; ZONDA_UPDATE_GOLDEN=1 rewrites it");
    }

    fn close(self) {
        if self.is_updated {
            std::fs::write(&self.path, &self.text).expect("the guide can be written");
        }
    }
}

/// The lines that do not depend on the speed of the machine: without lines about zones, of which a
/// fast machine fills more.
fn steady(text: &str) -> String {
    let is_steady = |line: &&str| {
        let is_of_zones = ["zones #", "resources #", "reset", "wear #"].iter().any(|start| line.starts_with(start));
        !is_of_zones && !line.contains(['█', '·', '▁', '▄', '▆']) && !line.contains(" reset ")
    };
    let without_zones = |line: &str| line.split_inclusive("are now empty:").next().unwrap_or(line).to_owned();
    text.lines().filter(is_steady).map(|line| without_zones(line) + "\n").collect()
}

/// The status of a server without its Flush for the one host that has connected. A host sends its shutdown and
/// closes its connections: the server flushes the drive only if it reads the shutdown before it ends the controller
/// because an I/O connection is closed.
fn without_shutdown(status: &str) -> String {
    let is_flush = |line: &&str| line.trim_start().starts_with("flush ");
    let flushes: Vec<&str> = status.lines().filter(is_flush).collect();
    let counts: Vec<&str> = flushes.iter().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert!(counts.is_empty() || counts == ["1"], "one host has shut down: {status}");
    status.lines().filter(|line| !is_flush(line)).map(|line| line.to_owned() + "\n").collect()
}

fn words(command: &str) -> Vec<&str> {
    command.split(' ').skip(1).collect()
}

/// Runs a command of the transcript in `directory` on `server`, and compares what it prints.
fn compare_on(guide: &mut Guide, directory: &Path, server: &Server, command: &str, is_measured: bool) {
    let listen = server.greeting["listen"][0].as_str().expect("it listens");
    let real = command.replace(URL, server.url(0)).replace("zonda status", &format!("zonda status {}", server.http()));
    let printed = with_default_ports(&output_in(directory, &words(&real)), listen, Some(server.http()));
    let printed = if command == "zonda status" { without_shutdown(&printed) } else { printed };
    guide.compare(command, &printed, is_measured);
}

#[test]
fn the_transcript_in_the_first_steps_matches_the_output() {
    let directory = scratch("first-steps");
    std::fs::create_dir(directory.join("examples")).unwrap();
    std::fs::copy(root().join("examples/target.toml"), directory.join("examples/target.toml")).unwrap();
    let mut guide = Guide::open();
    let create = "zonda drive create drives/a --profile zn540 --zones 64 --zone-capacity 64MiB";
    guide.compare(create, &output_in(&directory, &words(create)), false);
    let (greeting, _) = greeting_in(&directory, &["drives/a"]);
    let listen = greeting.rsplit_once("listening on ").unwrap().1.split(' ').next().unwrap();
    let http = greeting.split_once("http://").unwrap().1.split('/').next().unwrap();
    guide.compare("zonda serve drives/a", &with_default_ports(&greeting, listen, Some(http)), false);
    let server = Server::start(&directory, &["drives/a"]);
    let on = |guide: &mut Guide, command: &str, is_measured: bool| {
        compare_on(guide, &directory, &server, command, is_measured);
    };
    on(&mut guide, &format!("zonda bench --target {URL} examples/target.toml --quiet"), true);
    server.wait_until_alone();
    on(&mut guide, "zonda status", true);
    on(&mut guide, &format!("zonda zone reset {URL} --all"), true);
    on(&mut guide, &format!("zonda zone finish {URL} 2"), false);
    on(&mut guide, &format!("zonda zone report {URL}"), false);
    server.stop();
    guide.close();
}

#[test]
fn the_workloads_in_the_first_steps_have_the_stated_dlwa() {
    let directory = scratch("first-steps-loads");
    let text = Guide::open().text;
    let blocks: Vec<&str> = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let [load, allocation] = blocks[..] else { panic!("{} files", blocks.len()) };
    let dlwa = |text: &str| {
        let job = file(&directory, "job.toml", text);
        let result = json_in(&directory, &["bench", &job, "--json", "--quiet"]);
        format!("{:.2}", result["drive"]["dlwa"].as_f64().expect("a number"))
    };
    assert_eq!(dlwa(load), "1.00");
    assert_eq!(dlwa(allocation), "1.36");
    assert_eq!(dlwa(&allocation.replace("\"superblock\"", "\"fixed\"")), "10.00");
}

/// The commands of a document, without `zonda`: in its blocks of code, and in backticks elsewhere.
fn commands_in(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            let line = line.trim_start_matches("$ ").trim_start();
            let command = line.strip_prefix("zonda ").or_else(|| Some(line.split_once("do zonda ")?.1));
            commands.extend(command);
        } else {
            commands.extend(line.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("zonda ")));
        }
    }
    commands
}

#[test]
fn every_command_in_the_readme_and_the_first_steps_exists() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect(path);
    let texts = ["README.md", "docs/guide/first-steps.md"].map(read);
    let is_word =
        |word: &&str| !word.is_empty() && word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-');
    let mut subcommands = BTreeSet::new();
    for command in texts.iter().flat_map(|text| commands_in(text)) {
        let words: Vec<&str> = command.split(' ').take_while(is_word).collect();
        let has_subcommands = ["drive", "zone", "volume", "member", "pool", "namespace", "lab"]
            .iter()
            .any(|group| words.first() == Some(group));
        let length = if has_subcommands { 2 } else { 1 };
        subcommands.insert(words.into_iter().take(length).collect::<Vec<_>>());
    }
    assert!(subcommands.len() >= 20, "{subcommands:?}");
    for subcommand in subcommands {
        let ran = zonda(&[&subcommand[..], &["--help"]].concat());
        assert_eq!(ran.code, Some(0), "zonda {}: {}", subcommand.join(" "), ran.stderr);
    }
}
