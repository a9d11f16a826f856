//! A scene that is being served: its guests, and their requests to the host machine.

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
use crate::pool;
use crate::scene::{CONFIG, Scene, image_name};
use crate::server::{Server, create_drive, zonda, zonda_when_released};
use crate::shared::{GuestLease, boot};

/// The address of this machine's loopback in the guest.
const HOST_ADDRESS: &str = "10.0.2.2";
/// Silent connections: more than a server should keep.
const CROWD: usize = 500;
/// How long the server may take to close the last of them.
const CROWD_TIMEOUT: Duration = Duration::from_secs(60);

/// A scene that is being served.
#[derive(Debug)]
pub struct Stage {
    scene: Scene,
    guest: GuestLease,
    port: u16,
    http_port: u16,
    /// `None`: each guest has its own target.
    server: Option<Server>,
    /// Silent connections.
    crowd: Vec<TcpStream>,
    /// Outputs of `zonda status`, requested by guests.
    statuses: Vec<Value>,
    /// Images removed by a script.
    lost: Vec<String>,
    folder: TempDir,
    /// The configuration of the scene.
    config: String,
    /// Ensures that no other scene runs.
    _lock: MutexGuard<'static, ()>,
}

impl Stage {
    pub(crate) fn new(
        scene: Scene,
        guest: GuestLease,
        port: u16,
        http_port: u16,
        server: Option<Server>,
        folder: TempDir,
        lock: MutexGuard<'static, ()>,
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
            config: fs::read_to_string(folder.path().join(CONFIG)).unwrap_or_default(),
            folder,
            _lock: lock,
        }
    }

    /// Whether zonda is tested, and not Linux's own target.
    #[must_use]
    pub fn is_zonda(&self) -> bool {
        self.server.is_some()
    }

    /// A script of `guest/`, with the variables for connecting and its extent.
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

    /// Runs a script in the guest, with variables. Requests of the script:
    /// - `kill-server MS`: SIGKILL; the images are checked; the server restarts after this many
    ///   milliseconds.
    /// - `stop-server MS`: the same with SIGTERM, after which every image must have been shut down
    ///   cleanly.
    /// - `crowd`: 500 connections that send nothing, or half a header; they stay open. `disperse`
    ///   waits until the server has closed all of them.
    /// - `fail-member VOLUME MEMBER`: the member is failed, and the spare rebuilt, slowly;
    ///   `lose-drive IMAGE`: the server is killed, the image removed, and the server restarted;
    ///   `rebuild VOLUME`: fast, to completion; `scrub VOLUME`: it must find no error.
    /// - `namespace ID ZONES`: the last subsystem has a namespace with so many zones of an image of
    ///   eight, which is created first if necessary; 0: it has none. The server reloads its
    ///   configuration; the image is checked after its removal.
    /// - `pool-create NAME ZONES ID`: a namespace of the pool is created, and the last subsystem has
    ///   it; `pool-delete NAME ID`: the last subsystem has it no more, and it is deleted;
    ///   `pool-resize NAME ZONES`. The pool has these namespaces, and no others: `pool-has NAME...`.
    ///   `pool-until overdrive|recall|reclaim NAME`: returns when the pool reports that the namespace
    ///   has spares of others in its groups, has lent spares, or has fewer spares in its groups than
    ///   at the request.
    /// - `status`: the output of `zonda status` is recorded for [`statuses`](Stage::statuses).
    ///
    /// # Panics
    /// If the script fails, or the server misbehaves.
    pub fn run_with(&mut self, script: &str, variables: &[(&str, &str)]) -> Console {
        let job = variables.iter().fold(self.job(script), |job, (name, value)| job.variable(name, value));
        let name = self.scene.log_name();
        let mut guest = self.take_guest();
        let result = guest.with(|guest| guest.run(&name, &job, |request| self.on_request(request)));
        self.guest = guest;
        result.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Runs two scripts concurrently, each in its own guest. They may not send requests.
    ///
    /// # Panics
    /// If a script fails.
    pub fn run_both(&mut self, jobs: [&Job; 2]) -> [Console; 2] {
        let name = self.scene.log_name();
        let run = |guest: &mut Guest, number: usize| {
            let no_request = |request: &str| panic!("unexpected request of the guest: {request}");
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

    fn take_guest(&mut self) -> GuestLease {
        let none = GuestLease::none(self.is_zonda());
        std::mem::replace(&mut self.guest, none)
    }

    /// Outputs of `zonda status --json`, requested by scripts.
    #[must_use]
    pub fn statuses(&self) -> &[Value] {
        &self.statuses
    }

    /// Stops the server and returns the output of `zonda drive show --json` for a namespace's
    /// image; `None` if the guest has its own target.
    ///
    /// # Panics
    /// If the server does not stop cleanly, or an image is damaged.
    pub fn stop_and_show(&mut self, subsystem: &str, id: u32) -> Option<Value> {
        self.server.as_ref()?;
        self.stop_server();
        Some(json_of(&["drive", "show", &self.image(&image_name(subsystem, id)), "--json"]))
    }

    fn on_request(&mut self, request: &str) {
        assert!(self.is_zonda(), "unexpected request of a guest with its own target: {request}");
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
            ["namespace", id, zones] => self.change_namespace(id, zones),
            ["crowd"] => self.crowd = (0..CROWD).map(|number| self.silent_client(number)).collect(),
            ["disperse"] => self.disperse(),
            ["status"] => {
                let address = format!("127.0.0.1:{}", self.http_port);
                self.statuses.push(json_of(&["status", &address, "--json"]));
            }
            _ if request.starts_with("pool-") => self.on_pool_request(&words),
            _ => self.on_volume_request(&words),
        }
    }

    fn on_pool_request(&mut self, words: &[&str]) {
        match *words {
            ["pool-create", name, zones, id] => {
                pool::create_namespace(self.folder.path(), name, zones.parse().expect("a number"), 1);
                self.config += &pool::table(id.parse().expect("a number"), name);
                self.reload();
            }
            ["pool-delete", name, id] => {
                let table = pool::table(id.parse().expect("a number"), name);
                assert!(self.config.contains(&table), "{name} is served");
                self.config = self.config.replace(&table, "");
                self.reload();
                pool::delete_namespace(self.folder.path(), name);
            }
            ["pool-resize", name, zones] => pool::resize_namespace(self.folder.path(), name, zones),
            ["pool-has", ..] => assert_eq!(pool::names(self.folder.path()), &words[1..]),
            ["pool-until", state, name] => pool::wait_until(self.folder.path(), state, name),
            _ => panic!("unknown request of the guest: {}", words.join(" ")),
        }
    }

    fn on_volume_request(&mut self, words: &[&str]) {
        match *words {
            ["fail-member", volume, member] => {
                let report = json_of(&["member", "fail", &self.image(volume), member, "--json"]);
                assert!(report["state"] != "healthy" && report["can_lose"] == 0, "{report}");
            }
            ["is-rebuilding", volume] => {
                let report = json_of(&["volume", "status", &self.image(volume), "--json"]);
                assert_eq!(report["state"], "rebuilding", "{report}");
            }
            ["rebuild", volume] => {
                zonda(&["volume", "rates", &self.image(volume), "--json"]);
                let report = json_of(&["volume", "status", &self.image(volume), "--wait", "--mount", "--json"]);
                assert_eq!((&report["state"], &report["lost_blocks"]), (&"healthy".into(), &0.into()), "{report}");
            }
            ["scrub", volume] => {
                zonda(&["volume", "rates", &self.image(volume), "--scrub", "10GiB/s", "--json"]);
                let scrub = &json_of(&["volume", "scrub", &self.image(volume), "--json"])["last_scrub"];
                assert_eq!((&scrub["repaired"], &scrub["lost"]), (&0.into(), &0.into()), "{scrub}");
                assert!(scrub["blocks"].as_u64() > Some(0), "{scrub}");
            }
            ["lose-drive", image] => {
                self.server().kill();
                fs::remove_dir_all(self.image(image)).expect("the image exists");
                self.lost.push(image.to_owned());
                self.start_server_again("1000");
            }
            _ => panic!("unknown request of the guest: {}", words.join(" ")),
        }
    }

    fn change_namespace(&mut self, id: &str, zones: &str) {
        let image = format!("changed-{id}");
        let place = self.folder.path().join(&image);
        if !place.exists() {
            create_drive(&place, "zn540", 8, 8);
        }
        let namespace = format!("\n  [[subsystem.namespace]]\n  id = {id}\n  image = \"{image}\"\n  zones = {zones}\n");
        let config = self.config.clone();
        if zones != "0" {
            self.config += &namespace;
        }
        self.reload();
        self.config = config;
        if zones == "0" {
            let verdict = json_of_released(&["drive", "check", &self.image(&image), "--json", "--quiet"]);
            assert_eq!(verdict["is_healthy"], true, "{verdict}");
            fs::remove_dir_all(place).expect("the image exists");
        }
    }

    /// Reloads the configuration, which has one change.
    fn reload(&self) {
        let path = self.folder.path().join(CONFIG);
        fs::write(path, &self.config).expect("a temporary file can be written");
        let address = format!("127.0.0.1:{}", self.http_port);
        let report = json_of(&["reload", "--http", &address, "--json"]);
        assert!(report["ok"] == true && report["changes"].as_array().map(Vec::len) == Some(1), "{report}");
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
            assert_eq!(
                sheet["clean"], true,
                "the server stopped cleanly, but {image} was not shut down cleanly: {sheet}"
            );
        }
    }

    fn start_server_again(&mut self, absence_ms: &str) {
        // Meanwhile hosts only try to connect.
        thread::sleep(Duration::from_millis(absence_ms.parse().expect("milliseconds")));
        self.server().start_again();
    }

    /// Verifies the checksums of all blocks below write pointers.
    fn check_images(&self) {
        for image in self.images_left() {
            let verdict = json_of(&["drive", "check", &self.image(&image), "--json", "--quiet"]);
            assert_eq!(verdict["is_healthy"], true, "{verdict}");
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
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the server accepts connections");
        stream.set_nonblocking(true).expect("a socket can be made non-blocking");
        if number % 2 == 1 {
            // The first half of the common header of an Initialize Connection Request. The send
            // fails if the server has already closed the connection.
            let _ = stream.write_all(&[0, 0, 128, 0]);
        }
        stream
    }

    fn disperse(&mut self) {
        let deadline = Instant::now() + CROWD_TIMEOUT;
        while !self.crowd.is_empty() {
            self.crowd.retain_mut(|stream| {
                let read = stream.read(&mut [0; 1]).map_err(|error| error.kind());
                matches!(read, Err(ErrorKind::WouldBlock | ErrorKind::Interrupted))
            });
            assert!(Instant::now() < deadline, "the server keeps {} of {CROWD} silent connections", self.crowd.len());
            thread::sleep(Duration::from_millis(50));
        }
    }
}

pub(crate) fn json_of(arguments: &[&str]) -> Value {
    parsed(arguments, &zonda(arguments))
}

/// The same, when no other program uses the image any more.
fn json_of_released(arguments: &[&str]) -> Value {
    parsed(arguments, &zonda_when_released(arguments, "in use"))
}

fn parsed(arguments: &[&str], text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("zonda {}: {error}\n{text}", arguments.join(" ")))
}
