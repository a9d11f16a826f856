//! `zonda serve`: drives for hosts on the network.

mod connections;
pub(crate) mod control;
mod greeting;
mod guard;
mod http;
mod log;
mod plan;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::oneshot;
use zonda_config::ByteSize;
use zonda_exports::ServeError;

use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use greeting::Greeting;
use guard::Names;
use http::{Attendant, Ended};

pub(crate) const LONG_ABOUT: &str =
    "Serves drives over NVMe/TCP, to any host that speaks it: Linux with nvme-cli, SPDK, zonda itself; and conventional \
     ones over NBD too.

Without arguments, a drive of 4 GiB is made in ./zonda-drive if it is not there, and served on this machine only. With \
directories, the images in them are served, each as a subsystem of its own. zonda.toml says everything else: several \
namespaces, drives in memory, who may connect and with which secret (docs/guide/serve.md).

What a host was told is written is on its way to the disk when the server dies, and on the disk after a Flush.";

const EXAMPLES: &str = "Examples:
  zonda serve                                       a drive to play with, on loopback
  zonda serve drives/a drives/b --listen 0.0.0.0:4420
  zonda serve --memory zn540 --zones 64 --zone-capacity 64MiB
  zonda serve --config zonda.toml
  zonda serve --timing profile                      as slow as the real drive
  zonda serve --read-only archive/a                 nothing is written to its directory
  zonda serve drives/plain --nbd 127.0.0.1          NBD for qemu, nbdcopy, nbd-client
  zonda serve drives/a --listen 127.0.0.1:0 --http off --json
                                a port that is free; the URL is in the JSON";

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Directories of images, as zonda drive create makes them
    #[arg(value_name = "DIR")]
    images: Vec<PathBuf>,
    /// A file that says what to serve
    #[arg(long, value_name = "FILE", conflicts_with_all = ["images", "memory", "listen", "timing"])]
    config: Option<String>,
    /// Serves a new drive of this profile in memory
    #[arg(long, value_name = "PROFILE")]
    memory: Option<String>,
    /// Zones of the drive in memory
    #[arg(long, value_name = "N", requires = "memory")]
    zones: Option<u32>,
    /// What can be written to each of its zones
    #[arg(long, value_name = "SIZE", requires = "memory")]
    zone_capacity: Option<ByteSize>,
    /// Where hosts connect
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Where conventional namespaces are exported over NBD: HOST, HOST:PORT or unix:PATH (not at all, if not given)
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<String>,
    /// Where metrics and status are read, or off
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Memory for the data of all connections, at least 128 MiB; default a quarter of the machine's, at most 4 GiB
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<ByteSize>,
    /// How long commands take
    #[arg(long, value_enum)]
    timing: Option<TimingArg>,
    /// Serves an image though it is a member of a volume: hosts can then overwrite what the volume needs
    #[arg(long)]
    force: bool,
    /// Mounts a volume although blocks are lost and it is not known which: any block may then be older than when it was last written.
    /// For one start, and so no key of zonda.toml: later starts do not refuse for the same losses
    #[arg(long)]
    accept_losses: bool,
    /// Mounts a volume although the members that are present, or one that it needs, are older than it was: what was written since is lost.
    /// For one start
    #[arg(long)]
    accept_older: bool,
    /// Mounts a volume whose members were written to without each other: keeps the side of this member, and treats the members of the
    /// other side as failed: what was written to them alone is lost. For one start
    #[arg(long, value_name = "MEMBER")]
    accept_side: Option<String>,
    /// Writes nothing to the directories of the images, and shows hosts write protected namespaces. A read-only medium is enough; an
    /// image that was not shut down in order is recovered in memory. Others may read an image meanwhile, and none may write to it
    #[arg(long, requires = "images", conflicts_with_all = ["config", "memory"])]
    read_only: bool,
    /// Uses epoll even where io_uring is to be had
    #[arg(long, hide = true)]
    epoll: bool,
    /// Greets with one JSON object: addresses, subsystems, namespaces and their URLs
    #[arg(long)]
    json: bool,
    /// Says nothing of what goes on once it serves
    #[arg(long, short)]
    quiet: bool,
}

/// How long commands take.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TimingArg {
    /// As fast as this machine is
    None,
    /// As long as on the drive that the profile describes
    Profile,
}

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let plan = plan::of(args)?;
    log::start(args.quiet);
    raise_file_limit();
    let listener = plan.http.map(http_listener).transpose()?;
    let names = Names::with_machine(&plan.http_names);
    let volumes: Vec<PathBuf> = plan.volumes().map(Path::to_owned).collect();
    let running = zonda_exports::start(plan, args.epoll).map_err(failure)?;
    // Whoever reads the greeting may send a signal at once.
    let attendant = Attendant::new(&volumes, running.handle()).map_err(|error| unattended(&error))?;
    if args.json {
        print_json(&Greeting::of(running.info(), listener.as_ref()))?;
    } else {
        print(&greeting::text(running.info(), listener.as_ref(), Screen::of_stdout()))?;
    }
    let handle = running.handle().clone();
    let (tell, ended) = oneshot::channel();
    let waiter = std::thread::spawn(move || {
        let result = running.wait();
        // The other side only stops listening when it has been told, or has given up.
        let _ = tell.send(());
        result
    });
    let on_signal = || {
        tracing::info!("stopping: what is under way is brought to an end (another signal stops at once)");
    };
    if attendant.attend(listener, names, &handle, ended, on_signal).map_err(|error| unattended(&error))?
        == Ended::Patience
    {
        let help = "nothing acknowledged is lost: the drives recover when they are next opened";
        return Err(Failure::broken("stopped at once: what was under way was not brought to an end", help));
    }
    waiter.join().expect("the thread only waits").map_err(|error| Failure::broken(error.message, error.help))?;
    tracing::info!("stopped: everything is on the disk");
    Ok(())
}

/// Shells often start programs with 1024 open files at most, though the system allows more, and each connection is one.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // Without it a server takes fewer connections at a time; others wait until one has ended.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

fn unattended(error: &io::Error) -> Failure {
    Failure::broken(format!("signals and HTTP cannot be attended to: {error}"), "see how many files may be open")
}

fn http_listener(address: SocketAddr) -> Result<TcpListener, Failure> {
    http::listen(address).map_err(|error| {
        let help = match error.kind() {
            io::ErrorKind::AddrInUse => "another server has it: choose another with --http HOST:PORT, or --http off",
            _ => "choose another with --http HOST:PORT, or --http off",
        };
        Failure::input(format!("metrics cannot be served on {address}: {error}"), help)
    })
}

fn failure(error: ServeError) -> Failure {
    Failure::input(error.message, error.help)
}
