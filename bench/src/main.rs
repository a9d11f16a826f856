//! Benchmarks of zonda, with baselines measured in the same run.
//!
//! `model`: requests simulated by the SSD model. `allocation`: the time of a zone allocation.
//! `sched`: what a scheduler adds to a command. `elastic`: what a pool adds to a command; `pool-mount`: the time to mount a pool after a crash.
//! `erasure`: encoding parity and recovering lost chunks. `raid`: a redundant volume; `mount`: the
//! time to mount a volume after a crash; `open`: the time to open an image after a crash. `serve`:
//! a drive over NVMe/TCP on loopback; `drive`: reads and writes of a drive of this machine. All of them without an argument; `--json` for scripts.
//! `docs/performance.md` has the figures and explains them, `docs/internals/zone-allocation.md`
//! those of `allocation`.

mod allocation;
mod elastic;
mod erasure;
mod host;
mod local_drive;
mod model;
mod mount;
mod opening;
mod pool_mount;
mod raid;
mod reference;
mod sched;
mod serve;

/// The benchmarks.
const NAMES: [&str; 11] =
    ["model", "allocation", "sched", "elastic", "pool-mount", "erasure", "raid", "mount", "open", "serve", "drive"];

/// The allocator of the `zonda` program.
#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let as_json = arguments.iter().any(|argument| argument == "--json");
    if let Some(load) = arguments.iter().find_map(|argument| argument.strip_prefix(raid::ONLY)) {
        return raid::run_one(load.parse().expect("the number of a load"));
    }
    if let Some(unknown) = arguments.iter().find(|argument| !is_known(argument)) {
        let asks_for_help = ["--help", "-h"].contains(&unknown.as_str());
        println!("usage: zonda-bench [--json] [NAME]...\nnames: {}; default: all", NAMES.join(", "));
        std::process::exit(if asks_for_help { 0 } else { 2 });
    }
    let wants = |what: &str| {
        let named: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
        named.is_empty() || named.iter().any(|argument| *argument == what)
    };
    if wants("model") {
        model::run_all(as_json);
    }
    if wants("allocation") {
        allocation::run_all(as_json);
    }
    if wants("sched") {
        sched::run_all(as_json);
    }
    if wants("elastic") {
        elastic::run_all(as_json);
    }
    if wants("pool-mount") {
        pool_mount::run_all(as_json);
    }
    if wants("erasure") {
        erasure::run_all(as_json);
    }
    if wants("raid") {
        raid::run_all(as_json);
    }
    if wants("mount") {
        mount::run_all(as_json);
    }
    if wants("open") {
        opening::run_all(as_json);
    }
    if wants("serve") {
        serve::run_all(as_json);
    }
    if wants("drive") {
        local_drive::run_all(as_json);
    }
}

fn is_known(argument: &str) -> bool {
    argument == "--json" || argument.starts_with(raid::ONLY) || NAMES.contains(&argument)
}
