//! A scene that is being served: guests that use it, and what they may ask of the machine outside.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::MutexGuard;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::console::Console;
use crate::guest::Guest;
use crate::job::Job;
use crate::scene::{Scene, image_name};
use crate::server::{Server, zonda};
use crate::shared::{LoanedGuest, boot};

/// The guest's name for the loopback of this machine.
const HOST_ADDRESS: &str = "10.0.2.2";
/// Connections of a crowd: more than a server should keep of hosts that say nothing.
const CROWD: usize = 500;
/// How long the server may take until it has hung up on the last of them.
const CROWD_PATIENCE: Duration = Duration::from_secs(60);

/// A scene that is being served.
#[derive(Debug)]
pub struct Stage {
    scene: Scene,
    guest: LoanedGuest,
    port: u16,
    http_port: u16,
    /// None: each guest serves itself.
    server: Option<Server>,
    /// Connections that say nothing.
    crowd: Vec<TcpStream>,
    /// What `zonda status` said, each time a guest asked for it.
    statuses: Vec<Value>,
    /// Images that a script took away.
    lost: Vec<String>,
    folder: TempDir,
    /// No other scene is on.
    _turn: MutexGuard<'static, ()>,
}

impl Stage {
    pub(crate) fn new(
        scene: Scene,
        guest: LoanedGuest,
        port: u16,
        http_port: u16,
        server: Option<Server>,
        folder: TempDir,
        turn: MutexGuard<'static, ()>,
    ) -> Stage {
        Stage {
            scene,
            guest,
            port,
            http_port,
            server,
            crowd: Vec::new(),
            statuses: Vec::new(),
            lost: Vec::new(),
            folder,
            _turn: turn,
        }
    }

    /// Whether zonda is what is tested, and not Linux's own target.
    #[must_use]
    pub fn is_zonda(&self) -> bool {
        self.server.is_some()
    }

    /// A script of `guest/`, that knows how to connect, and how much of it runs.
    #[must_use]
    pub fn job(&self, script: &str) -> Job {
        let extent = if self.scene.extent().is_soak() { "soak" } else { "smoke" };
        let job = Job::new(script).variable("EXTENT", extent).variable("PORT", &self.port.to_string());
        if self.is_zonda() {
            job.variable("TARGET", "zonda").variable("ADDRESS", HOST_ADDRESS)
        } else {
            let job = job.variable("TARGET", "kernel").variable("ADDRESS", "127.0.0.1");
            job.file("serve.sh", &self.scene.kernel_target())
        }
    }

    /// Runs a script in the guest.
    ///
    /// # Panics
    /// As [`run_with`](Stage::run_with).
    pub fn run(&mut self, script: &str) -> Console {
        self.run_with(script, &[])
    }

    /// Runs a script in the guest, with variables. The script may ask for:
    /// - `kill-server MS`: SIGKILL; the images are checked; the server starts again after so many milliseconds.
    /// - `stop-server MS`: the same with SIGTERM, after which every image must be shut down in order.
    /// - `crowd`: 500 connections that send nothing, or half a header; they stay. `disperse` waits until the server has hung
    ///   up on each of them.
    /// - `fail-member VOLUME MEMBER`: the member is evicted, and the spare rebuilt, slowly; `lose-drive IMAGE`: the server is killed,
    ///   the image removed, and the server started again; `rebuild VOLUME`: fast, and to its end; `scrub VOLUME`: nothing may be wrong.
    /// - `status`: what `zonda status` reports now is kept for [`statuses`](Stage::statuses).
    ///
    /// # Panics
    /// If the script fails, or the server does not do what it should.
    pub fn run_with(&mut self, script: &str, variables: &[(&str, &str)]) -> Console {
        let job = variables.iter().fold(self.job(script), |job, (name, value)| job.variable(name, value));
        let name = self.scene.log_name();
        let mut guest = self.take_guest();
        let result = guest.with(|guest| guest.run(&name, &job, |request| self.on_request(request)));
        self.guest = guest;
        result.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Runs two scripts at once, each in a guest of its own. They may not ask for anything.
    ///
    /// # Panics
    /// If a script fails.
    pub fn run_both(&mut self, jobs: [&Job; 2]) -> [Console; 2] {
        let name = self.scene.log_name();
        let run = |guest: &mut Guest, number: usize| {
            let no_request = |request: &str| panic!("the guest asks for {request}");
            guest.run(&format!("{name}-{number}"), jobs[number - 1], no_request)
        };
        let (mut first, mut second) = (self.take_guest(), boot(self.is_zonda()));
        let results = thread::scope(|scope| {
            let second = scope.spawn(|| run(&mut second, 2));
            [first.with(|guest| run(guest, 1)), second.join().expect("the second script ends")]
        });
        self.guest = first;
        results.map(|result| result.unwrap_or_else(|failure| panic!("{failure}")))
    }

    fn take_guest(&mut self) -> LoanedGuest {
        let none = LoanedGuest::none(self.is_zonda());
        std::mem::replace(&mut self.guest, none)
    }

    /// What `zonda status --json` said, each time a script asked for it.
    #[must_use]
    pub fn statuses(&self) -> &[Value] {
        &self.statuses
    }

    /// Stops the server and returns what `zonda drive show --json` says of a namespace's image; nothing where the guest
    /// served itself.
    ///
    /// # Panics
    /// If the server does not stop in order, or an image is damaged.
    pub fn stop_and_show(&mut self, subsystem: &str, id: u32) -> Option<Value> {
        self.server.as_ref()?;
        self.stop_server();
        Some(json_of(&["drive", "show", &self.image(&image_name(subsystem, id)), "--json"]))
    }

    fn on_request(&mut self, request: &str) {
        assert!(self.is_zonda(), "the guest, which serves itself, asks for {request}");
        let words: Vec<&str> = request.split(' ').collect();
        match words[..] {
            ["kill-server", absence_ms] => {
                self.server().kill();
                self.check_images();
                self.start_server_again(absence_ms);
            }
            ["stop-server", absence_ms] => {
                self.stop_server();
                self.start_server_again(absence_ms);
            }
            ["crowd"] => self.crowd = (0..CROWD).map(|number| self.silent_client(number)).collect(),
            ["disperse"] => self.disperse(),
            ["status"] => {
                let address = format!("127.0.0.1:{}", self.http_port);
                self.statuses.push(json_of(&["status", &address, "--json"]));
            }
            _ => self.on_volume_request(&words),
        }
    }

    fn on_volume_request(&mut self, words: &[&str]) {
        match *words {
            ["fail-member", volume, member] => {
                let report = json_of(&["member", "fail", &self.image(volume), member, "--json"]);
                assert!(report["state"] != "well" && report["can_lose"] == 0, "{report}");
            }
            ["is-rebuilding", volume] => {
                let report = json_of(&["volume", "status", &self.image(volume), "--json"]);
                assert_eq!(report["state"], "rebuilding", "{report}");
            }
            ["rebuild", volume] => {
                zonda(&["volume", "rates", &self.image(volume), "--json"]);
                let report = json_of(&["volume", "status", &self.image(volume), "--wait", "--mount", "--json"]);
                assert_eq!((&report["state"], &report["lost_blocks"]), (&"well".into(), &0.into()), "{report}");
            }
            ["scrub", volume] => {
                zonda(&["volume", "rates", &self.image(volume), "--scrub", "10GiB/s", "--json"]);
                let scrub = &json_of(&["volume", "scrub", &self.image(volume), "--json"])["last_scrub"];
                assert_eq!((&scrub["mended"], &scrub["lost"]), (&0.into(), &0.into()), "{scrub}");
                assert!(scrub["blocks"].as_u64() > Some(0), "{scrub}");
            }
            ["lose-drive", image] => {
                self.server().kill();
                fs::remove_dir_all(self.image(image)).expect("the image was there");
                self.lost.push(image.to_owned());
                self.start_server_again("1000");
            }
            _ => panic!("the guest asks for {}, which is not known", words.join(" ")),
        }
    }

    fn server(&mut self) -> &mut Server {
        self.server.as_mut().expect("zonda serves")
    }

    fn stop_server(&mut self) {
        let status = self.server().stop();
        assert!(status.success(), "the server stopped with {status}\n{}", self.server().printed());
        self.check_images();
        for image in self.images_left() {
            let sheet = json_of(&["drive", "show", &self.image(&image), "--json"]);
            assert_eq!(sheet["clean"], true, "the server stopped in order, and {image} was not: {sheet}");
        }
    }

    fn start_server_again(&mut self, absence_ms: &str) {
        // Nothing happens in this time but that hosts try to connect.
        thread::sleep(Duration::from_millis(absence_ms.parse().expect("milliseconds")));
        self.server().start_again();
    }

    /// Every block below a write pointer has its checksum.
    fn check_images(&self) {
        for image in self.images_left() {
            let verdict = json_of(&["drive", "check", &self.image(&image), "--json", "--quiet"]);
            assert_eq!(verdict["is_well"], true, "{verdict}");
        }
    }

    fn images_left(&self) -> Vec<String> {
        self.scene.images().into_iter().filter(|image| !self.lost.contains(image)).collect()
    }

    fn image(&self, name: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        path.into_os_string().into_string().expect("temporary folders have names in UTF-8")
    }

    fn silent_client(&self, number: usize) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server takes connections");
        stream.set_nonblocking(true).expect("a socket can be made non-blocking");
        if number % 2 == 1 {
            // The first half of the common header of an Initialize Connection Request. Who was hung up on already cannot
            // send it.
            let _ = stream.write_all(&[0, 0, 128, 0]);
        }
        stream
    }

    fn disperse(&mut self) {
        let deadline = Instant::now() + CROWD_PATIENCE;
        while !self.crowd.is_empty() {
            self.crowd.retain_mut(|stream| {
                let read = stream.read(&mut [0; 1]).map_err(|error| error.kind());
                matches!(read, Err(ErrorKind::WouldBlock | ErrorKind::Interrupted))
            });
            assert!(Instant::now() < deadline, "the server keeps {} of {CROWD} silent hosts", self.crowd.len());
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn json_of(arguments: &[&str]) -> Value {
    let text = zonda(arguments);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("zonda {}: {error}\n{text}", arguments.join(" ")))
}
