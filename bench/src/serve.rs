//! A drive over NVMe/TCP on loopback: one server thread, one thread with zonda's initiator, no
//! timing model.
//!
//! Two backends: memory, and an image on files (in `/dev/shm` if it exists, so that no disk is
//! measured). The baseline is the memory plugin of nbdkit, driven by the nbd engine of fio; a
//! missing program is reported. Cases and baseline alternate for several rounds, and the median is
//! reported.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::Serialize;
use zonda_config::ByteSize;
use zonda_devices::{Connection, Location, NamespaceOptions, NvmeTcpUrl, RingClock, create_image, sized};
use zonda_exports::{Running, ServerPlan, Source, start};
use zonda_profiles::BUILTIN;
use zonda_ssd::description::Profiles;
use zonda_workload::{LatencySummary, Plan, Runner, parse_jobs, prepare};
use zonda_zoned::{NamespaceId, PayloadKind};

use crate::host::{cpu_ns, cpu_of_others_ns, median};

/// The built-in profiles only, no files.
const PROFILES: Profiles<'static> = Profiles::without_files(BUILTIN);

/// Rounds of each case.
const ROUNDS: usize = 3;
/// Duration of each case in a round.
const SECONDS: u32 = 3;
/// 32 zones of 64 MiB: half of them are read, half are written.
const ZONES: u32 = 32;
const ZONE_CAPACITY: ByteSize = ByteSize(64 << 20);
const NQN: &str = "nqn.2026-01.io.zonda:bench";

/// A workload, and its fio pattern.
struct Case {
    name: &'static str,
    operation: &'static str,
    block: &'static str,
    depth: u32,
    fio: Option<&'static str>,
}

const CASES: [Case; 6] = [
    Case { name: "4 KiB random reads, QD32", operation: "randread", block: "4 KiB", depth: 32, fio: Some("randread") },
    Case { name: "4 KiB writes, QD32", operation: "write", block: "4 KiB", depth: 32, fio: Some("randwrite") },
    Case { name: "4 KiB random reads, QD1", operation: "randread", block: "4 KiB", depth: 1, fio: None },
    Case { name: "4 KiB writes, QD1", operation: "write", block: "4 KiB", depth: 1, fio: None },
    Case { name: "128 KiB random reads, QD8", operation: "randread", block: "128 KiB", depth: 8, fio: None },
    Case { name: "128 KiB writes, QD8", operation: "write", block: "128 KiB", depth: 8, fio: None },
];

/// The medians of one case on one backend.
#[derive(Serialize)]
struct Figures {
    case: &'static str,
    backend: &'static str,
    iops: f64,
    bytes_per_second: f64,
    p50_ns: f64,
    p99_ns: f64,
    /// CPU time of the server thread per command.
    server_cpu_ns: f64,
    client_cpu_ns: f64,
    /// IOPS of the baseline in the same rounds; absent if it is not run.
    nbdkit_iops: Option<f64>,
}

/// One round.
struct Round {
    iops: f64,
    bytes_per_second: f64,
    p50_ns: f64,
    p99_ns: f64,
    server_cpu_ns: f64,
    client_cpu_ns: f64,
}

/// Runs all cases and prints the results.
pub(crate) fn run_all(as_json: bool) {
    let nbdkit = Nbdkit::start();
    let mut figures = Vec::new();
    for backend in ["memory", "files"] {
        let served = Served::new(backend);
        for case in &CASES {
            let (mut rounds, mut baseline) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                rounds.push(served.run(case));
                baseline.extend(case.fio.and_then(|pattern| nbdkit.as_ref().ok()?.iops(pattern, case)));
            }
            figures.push(summary(case, backend, &rounds, baseline));
        }
        served.stop();
    }
    if as_json {
        println!("{}", serde_json::to_string_pretty(&figures).expect("figures are plain numbers"));
        return;
    }
    print_table(&figures);
    if let Err(reason) = &nbdkit {
        println!("no baseline: {reason}");
    }
}

fn summary(case: &Case, backend: &'static str, rounds: &[Round], baseline: Vec<f64>) -> Figures {
    let of = |value: fn(&Round) -> f64| median(rounds.iter().map(value).collect());
    Figures {
        case: case.name,
        backend,
        iops: of(|round| round.iops),
        bytes_per_second: of(|round| round.bytes_per_second),
        p50_ns: of(|round| round.p50_ns),
        p99_ns: of(|round| round.p99_ns),
        server_cpu_ns: of(|round| round.server_cpu_ns),
        client_cpu_ns: of(|round| round.client_cpu_ns),
        nbdkit_iops: (!baseline.is_empty()).then(|| median(baseline)),
    }
}

fn print_table(figures: &[Figures]) {
    println!(
        "{:<7} {:<26} {:>9} {:>7} {:>9} {:>9} {:>10} {:>10} {:>9} {:>6}",
        "backend",
        "NVMe/TCP on loopback",
        "IOPS",
        "GB/s",
        "p50 us",
        "p99 us",
        "server us",
        "client us",
        "nbdkit",
        "ratio"
    );
    for row in figures {
        let baseline = row.nbdkit_iops.map_or(String::new(), |iops| format!("{iops:.0}"));
        let ratio = row.nbdkit_iops.map_or(String::new(), |iops| format!("{:.2}", row.iops / iops));
        println!(
            "{:<7} {:<26} {:>9.0} {:>7.3} {:>9.1} {:>9.1} {:>10.2} {:>10.2} {:>9} {:>6}",
            row.backend,
            row.case,
            row.iops,
            row.bytes_per_second / 1e9,
            row.p50_ns / 1e3,
            row.p99_ns / 1e3,
            row.server_cpu_ns / 1e3,
            row.client_cpu_ns / 1e3,
            baseline,
            ratio
        );
    }
}

/// A server of one drive.
struct Served {
    server: Running,
    _directory: Option<tempfile::TempDir>,
}

impl Served {
    fn new(backend: &str) -> Served {
        let spec = sized("zn540", Some(ZONES), Some(ZONE_CAPACITY), &PROFILES).expect("a built-in profile");
        let drive = spec.plan(&PROFILES).expect("the size is valid");
        let (source, directory) = if backend == "memory" {
            (Source::Memory(Box::new(drive)), None)
        } else {
            let shared = Path::new("/dev/shm");
            let parent = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
            let directory = tempfile::tempdir_in(parent).expect("a temporary directory can be created");
            let image = directory.path().join("image");
            create_image(&image, &drive).expect("an image can be created");
            (Source::Image(image), Some(directory))
        };
        let plan = ServerPlan::on_loopback(NQN.parse().expect("a name"), source);
        Served { server: start(plan, false).expect("the server starts"), _directory: directory }
    }

    /// One case, once.
    fn run(&self, case: &Case) -> Round {
        let url = NvmeTcpUrl {
            host: "127.0.0.1".to_owned(),
            port: self.server.info().listen[0].port(),
            subsystem: NQN.parse().expect("a name"),
            namespace: NamespaceId::FIRST,
        };
        let options = NamespaceOptions::default();
        let mut connection =
            Connection::open(&Location::NvmeTcp(url), &options).expect("the server accepts connections");
        let zones = if case.operation == "write" { "16..32" } else { "0..16" };
        let text = format!(
            "[run]\ntime = \"{SECONDS} s\"\n[[job]]\noperation = \"{}\"\nblock_size = \"{}\"\nqueue_depth = {}\nzones = \
             \"{zones}\"\n{}",
            case.operation,
            case.block,
            case.depth,
            if case.operation == "write" { "on_full = \"reset\"\n" } else { "" },
        );
        let (run, jobs) = parse_jobs(&text).expect("the job is valid");
        let plan = Plan::new(&run, &jobs, connection.geometry()).expect("the drive supports it");
        let (device, ring) = connection.parts();
        let mut clock = RingClock(ring);
        prepare(&plan, PayloadKind::Bytes, NamespaceId::FIRST, device, &mut clock, &mut |_| {}).expect("it prepares");
        let (own, others) = (cpu_ns(), cpu_of_others_ns());
        let runner = Runner::new(plan, PayloadKind::Bytes, NamespaceId::FIRST);
        let result = runner.run_live(device, &mut clock, &mut |_| {});
        let (own, others) = (cpu_ns() - own, cpu_of_others_ns() - others);
        connection.close().expect("the connection ends well");
        let job = &result.jobs[0];
        assert!(job.errors.is_empty(), "the load runs without errors: {:?}", job.errors);
        let kind = job.kinds.iter().max_by_key(|kind| kind.operations).expect("something was done");
        let LatencySummary { p50_ns, p99_ns, .. } = kind.latency;
        let seconds = job.measured_ns as f64 / 1e9;
        let operations = kind.operations as f64;
        Round {
            iops: operations / seconds,
            bytes_per_second: kind.bytes as f64 / seconds,
            p50_ns: p50_ns as f64,
            p99_ns: p99_ns as f64,
            server_cpu_ns: others as f64 / operations,
            client_cpu_ns: own as f64 / operations,
        }
    }

    fn stop(self) {
        self.server.handle().stop();
        self.server.wait().expect("the server stops well");
    }
}

/// The memory plugin of nbdkit, served over TCP on loopback, as our drive.
struct Nbdkit {
    process: Child,
    port: u16,
}

impl Nbdkit {
    fn start() -> Result<Nbdkit, String> {
        if !has_nbd_engine() {
            return Err("fio with its nbd engine is not installed (apt-get install fio)".to_owned());
        }
        // Free a moment ago, and most likely still free.
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let port = port.map_err(|error| error.to_string())?.port();
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--exit-with-parent", "--ipaddr", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["memory", "1G"]).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().map_err(|error| format!("nbdkit: {error} (apt-get install nbdkit)"))?;
        std::thread::sleep(Duration::from_millis(500));
        Ok(Nbdkit { process, port })
    }

    fn iops(&self, pattern: &str, case: &Case) -> Option<f64> {
        let output = Command::new("fio")
            .args(["--name=baseline", "--ioengine=nbd", "--output-format=json", "--time_based", "--size=1G"])
            .args(["--bs=4k", &format!("--runtime={SECONDS}"), &format!("--rw={pattern}")])
            .args([&format!("--iodepth={}", case.depth), &format!("--uri=nbd://127.0.0.1:{}", self.port)])
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let value: serde_json::Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
        let kind = if pattern.ends_with("read") { "read" } else { "write" };
        value["jobs"][0][kind]["iops"].as_f64().filter(|iops| *iops > 0.0)
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        // It also ends with this process.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn has_nbd_engine() -> bool {
    let help = Command::new("fio").arg("--enghelp").output();
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).split_whitespace().any(|engine| engine == "nbd"))
}
