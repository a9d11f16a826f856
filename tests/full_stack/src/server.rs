//! The program `zonda` as a process: a server that can be started, killed and restarted.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{fs, io::BufRead, io::BufReader, io::Read, thread};

/// How long a server may take until it listens (it opens its drives first), and until it has
/// exited.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running `zonda serve`. Dropped, it is killed.
#[derive(Debug)]
pub struct Server {
    launch: Launch,
    child: Child,
    /// Everything it has printed since the first start.
    printed: Arc<Mutex<String>>,
}

/// The command line of a server.
#[derive(Clone, Debug)]
struct Launch {
    config: PathBuf,
    options: Vec<String>,
}

/// The program, built if its sources have changed.
///
/// # Panics
/// If it cannot be found or built.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| zonda_kill::program(None).unwrap_or_else(|failure| panic!("{failure}")))
}

/// Runs `zonda` to completion.
///
/// # Panics
/// If it fails.
pub fn zonda(arguments: &[&str]) -> String {
    text_of(arguments, output_of(arguments))
}

/// Runs `zonda` to completion, again while it fails with these words because an image or a namespace
/// is in use: a server closes one that was removed from its configuration after the last command.
///
/// # Panics
/// If it fails otherwise.
pub(crate) fn zonda_when_released(arguments: &[&str], in_use: &str) -> String {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let output = output_of(arguments);
        let is_released = output.status.success() || !String::from_utf8_lossy(&output.stderr).contains(in_use);
        if is_released || Instant::now() >= deadline {
            return text_of(arguments, output);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn output_of(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).output().expect("the program starts")
}

/// What it printed; it must have succeeded.
fn text_of(arguments: &[&str], output: Output) -> String {
    let Output { status, stdout, stderr } = output;
    let words = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "zonda {}: {status}\n{words}{}", arguments.join(" "), String::from_utf8_lossy(&stdout));
    String::from_utf8(stdout).expect("output is UTF-8")
}

/// Creates an image.
///
/// # Panics
/// If that fails.
pub fn create_drive(folder: &Path, profile: &str, zones: u32, zone_capacity_mib: u32) {
    let folder = folder.to_str().expect("temporary folders have names in UTF-8");
    let (zones, capacity) = (zones.to_string(), format!("{zone_capacity_mib}MiB"));
    zonda(&["drive", "create", folder, "--profile", profile, "--zones", &zones, "--zone-capacity", &capacity]);
}

/// Free TCP ports of the loopback.
pub(crate) fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    // All at the same time, so that they differ.
    let listeners = [(); COUNT].map(|()| TcpListener::bind(("127.0.0.1", 0)).expect("the loopback has a free port"));
    listeners.map(|listener| listener.local_addr().expect("a bound socket has an address").port())
}

impl Server {
    /// Serves this configuration, with additional options, and waits until hosts can connect.
    ///
    /// # Panics
    /// If it exits, or does not listen in time.
    #[must_use]
    pub fn start(config: &Path, options: &[String]) -> Server {
        let launch = Launch { config: config.to_owned(), options: options.to_vec() };
        let printed = Arc::default();
        let child = launch.start(&printed);
        Server { launch, child, printed }
    }

    /// Kills it with SIGKILL.
    ///
    /// # Panics
    /// If it had exited by itself.
    pub fn kill(&mut self) {
        let ended = self.child.try_wait().expect("a child can be waited for");
        assert!(ended.is_none(), "the server had exited by itself: {ended:?}\n{}", self.printed());
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
    }

    /// Stops it with SIGTERM, and waits until it has exited.
    ///
    /// # Panics
    /// If it does not, or had exited by itself.
    pub fn stop(&mut self) -> ExitStatus {
        let ended = self.child.try_wait().expect("a child can be waited for");
        assert!(ended.is_none(), "the server had exited by itself: {ended:?}\n{}", self.printed());
        let asked = Command::new("kill").arg(self.child.id().to_string()).status().expect("kill starts");
        assert!(asked.success(), "kill: {asked}");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "timeout: the server did not stop\n{}", self.printed());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Restarts it, with the same drives on the same port, after [`kill`](Server::kill) or
    /// [`stop`](Server::stop).
    ///
    /// # Panics
    /// If it exits, or does not listen in time.
    pub fn start_again(&mut self) {
        self.child = self.launch.start(&self.printed);
    }

    /// Its output, including errors.
    #[must_use]
    pub fn printed(&self) -> String {
        self.printed.lock().map_or_else(|text| text.into_inner().clone(), |text| text.clone())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Launch {
    fn start(&self, printed: &Arc<Mutex<String>>) -> Child {
        assert!(fs::exists(&self.config).unwrap_or(false), "no {}", self.config.display());
        let mut child = Command::new(program())
            .arg("serve")
            .args(&self.options)
            .arg("--config")
            .arg(&self.config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let listens = watch(&mut child, printed);
        if listens.recv_timeout(TIMEOUT).is_err() {
            let _ = child.kill();
            let status = child.wait();
            let text = printed.lock().map(|text| text.clone()).unwrap_or_default();
            panic!("the server does not listen ({status:?})\n{text}");
        }
        child
    }
}

/// Collects the output of the server; the channel signals its line "listening", or is disconnected
/// without it.
fn watch(child: &mut Child, printed: &Arc<Mutex<String>>) -> Receiver<()> {
    let (sender, listens) = channel();
    let outputs: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|output| Box::new(output) as Box<dyn Read + Send>),
        child.stderr.take().map(|output| Box::new(output) as Box<dyn Read + Send>),
    ];
    for output in outputs.into_iter().flatten() {
        let (sender, printed) = (sender.clone(), Arc::clone(printed));
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Ok(mut text) = printed.lock() {
                    *text += &line;
                    text.push('\n');
                }
                if line.starts_with("listening") {
                    // The receiver is dropped after the first time.
                    let _ = sender.send(());
                }
            }
        });
    }
    listens
}
