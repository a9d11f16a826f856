//! `zonda serve`: serves drives to hosts on the network.

mod connections;
pub(crate) mod control;
mod greeting;
mod guard;
mod http;
mod log;
mod log_writer;
mod plan;
pub(crate) mod reload;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use tokio::sync::oneshot;
use zonda_config::ByteSize;
use zonda_exports::{NamespaceInfo, ServeError, ServerInfo};

use crate::commands::volume;
use crate::errors::Failure;
use crate::output::{Screen, print, print_json};
use crate::remedies;
use greeting::Greeting;
use guard::Names;
use http::{ControlPlane, Ended};

pub(crate) const LONG_ABOUT: &str =
    "Serve drives to NVMe/TCP hosts (Linux with nvme-cli, SPDK, zonda), and conventional drives over NBD.

Without arguments, serves a drive of 4 GiB in ./zonda-drive, which is created if it does not exist, on the loopback address. \
With directories, serves the images and volumes in them, each as a subsystem, and the namespaces of pools, each as a subsystem of \
its own; with device files, the zoned drives of this machine. A configuration file describes all other setups: several \
namespaces in a subsystem, drives in memory, allowed hosts and their secrets (docs/guide/serve.md). On SIGHUP the server reads \
this file again, and adds and removes subsystems, namespaces and hosts while others stay connected; zonda reload sends SIGHUP \
and shows the result.

Acknowledged writes survive a crash of the server. They survive a power loss after a Flush.";

const EXAMPLES: &str = "Examples:
  zonda serve                               serve a new drive on loopback
  zonda serve drives/a drives/b --listen 0.0.0.0:4420
  zonda serve --memory zn540 --zones 64 --zone-capacity 64MiB
  zonda serve /dev/nvme0n1                  serve a zoned drive of this machine
  zonda serve pool                          serve each namespace of a pool
  zonda serve --config zonda.toml
  zonda serve --timing profile              simulate the latency of the drive
  zonda serve --read-only archive/a         do not write to the image
  zonda serve drives/plain --nbd 127.0.0.1  export to qemu, nbdcopy, nbd-client
  zonda serve drives/a --listen 127.0.0.1:0 --http off --json
                                            use a free port, print the URL";

#[derive(Clone, Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Directories of images, volumes or pools; device files of zoned drives
    #[arg(value_name = "DIR|DEVICE")]
    images: Vec<PathBuf>,
    /// Configuration file, read again on SIGHUP
    #[arg(long, value_name = "FILE", conflicts_with_all = ["images", "memory", "listen", "timing"])]
    config: Option<String>,
    /// Serve a new drive in memory with this profile
    #[arg(long, value_name = "PROFILE")]
    memory: Option<String>,
    /// Number of zones of the drive in memory
    #[arg(long, value_name = "N", requires = "memory")]
    zones: Option<u32>,
    /// Zone capacity of the drive in memory
    #[arg(long, value_name = "SIZE", requires = "memory")]
    zone_capacity: Option<ByteSize>,
    /// Address for NVMe/TCP connections [default: 127.0.0.1:4420]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Export conventional namespaces over NBD on HOST (port 10809), HOST:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    nbd: Vec<String>,
    /// Address for metrics and status over HTTP, or off [default: 127.0.0.1:9420]
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Memory for the data of all connections, at least 128 MiB [default: a quarter of the physical
    /// memory, at most 4 GiB]
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<ByteSize>,
    /// Latency of commands [default: none]
    #[arg(long, value_enum)]
    timing: Option<TimingArg>,
    /// Serve images that are members of volumes or drives of pools; hosts can then destroy their data
    #[arg(long)]
    force: bool,
    /// Assemble a volume with an unknown set of lost blocks: any block may then have older contents
    /// than last written. Needed for one start only; later starts do not refuse the same losses
    #[arg(long)]
    accept_losses: bool,
    /// Assemble a volume although the present members, or a required one, are out of date: writes
    /// since then are lost. Needed for one start only
    #[arg(long)]
    accept_older: bool,
    /// Assemble a volume after a split brain (members that were written to without each other): keep
    /// the data of the side to which this member belongs. The members of the other side are failed,
    /// and writes to them alone are lost. Needed for one start only
    #[arg(long, value_name = "MEMBER", visible_alias = "accept-side")]
    keep_side: Option<String>,
    /// Serve write protected namespaces, and write nothing to the directories of the images, which
    /// can be on a read-only medium. Images that were not shut down cleanly are recovered in
    /// memory. Other processes can read the images, but not write to them. Of a pool, hosts cannot
    /// write, but the server writes to its drive
    #[arg(long, requires = "images", conflicts_with_all = ["config", "memory"])]
    read_only: bool,
    /// Use epoll even if io_uring is available
    #[arg(long, hide = true)]
    epoll: bool,
    /// Print addresses, subsystems, namespaces and their URLs as one JSON object
    #[arg(long)]
    json: bool,
    /// Log errors only
    #[arg(long, short)]
    quiet: bool,
}

/// Latency of commands.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TimingArg {
    /// As fast as possible
    None,
    /// The simulated latency of the drive that the profile describes
    Profile,
}

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let plan = plan::of(args)?;
    let _log = log::start(args.quiet).map_err(|error| {
        Failure::broken(
            format!("cannot start a thread: {error}"),
            "raise the limits on threads and memory (ulimit -u, -v)",
        )
    })?;
    let listener = plan.http.map(http_listener).transpose()?;
    let names = Names::with_machine(&plan.http_names);
    let volumes: Vec<PathBuf> = plan.volumes().map(Path::to_owned).collect();
    let pools: Vec<PathBuf> = plan.pools().into_iter().map(Path::to_owned).collect();
    let new_drive = plan::new_default_drive(args)?;
    let create = move || new_drive.as_ref().map_or(Ok(()), plan::create_default);
    let running =
        zonda_exports::start_with(plan, args.epoll, create).map_err(|error| failure(error, args, &volumes))?;
    // Signals may arrive as soon as the greeting is printed.
    let reload = reload::start(args, running.handle());
    let control_plane = match ControlPlane::new(&volumes, &pools, running.handle(), reload) {
        Ok(control_plane) => control_plane,
        Err(error) => {
            running.handle().stop();
            // The drives are closed; the first error is reported.
            let _ = running.wait();
            return Err(control_plane_failure(&error));
        }
    };
    if args.json {
        print_json(&Greeting::of(running.info(), listener.as_ref()))?;
    } else {
        print(&greeting::text(running.info(), listener.as_ref(), Screen::of_stdout()))?;
    }
    let stopped_message = stopped_message(running.info());
    let handle = running.handle().clone();
    let (sender, stopped) = oneshot::channel();
    let waiter = std::thread::spawn(move || {
        let result = running.wait();
        // The receiver is dropped early only after a second signal.
        let _ = sender.send(());
        result
    });
    let on_signal = || {
        tracing::info!("stopping: waiting for outstanding commands (a second signal stops immediately)");
    };
    if control_plane.run(listener, names, &handle, stopped, on_signal).map_err(|error| control_plane_failure(&error))?
        == Ended::SecondSignal
    {
        let help = "no acknowledged data is lost: the drives are recovered when they are next opened";
        return Err(Failure::broken("stopped immediately: outstanding commands were not completed", help));
    }
    waiter.join().expect("the thread only waits").map_err(|error| Failure::broken(error.message, error.help))?;
    tracing::info!("{stopped_message}");
    Ok(())
}

/// The last line of the log after a clean shutdown.
fn stopped_message(info: &ServerInfo) -> &'static str {
    let namespaces = || info.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
    let is_in_memory = |namespace: &NamespaceInfo| namespace.source == "memory";
    if namespaces().all(is_in_memory) {
        "stopped: the data of drives in memory is lost"
    } else if namespaces().any(is_in_memory) {
        "stopped: all data is on stable storage, except that of drives in memory, which is lost"
    } else if namespaces().all(|namespace| namespace.read_only) {
        "stopped"
    } else {
        "stopped: all data is on stable storage"
    }
}

fn control_plane_failure(error: &io::Error) -> Failure {
    let help = "check the limit on open files (ulimit -n), and that this user may write to the directories of volumes and pools";
    Failure::broken(format!("cannot handle signals, HTTP and control sockets: {error}"), help)
}

fn http_listener(address: SocketAddr) -> Result<TcpListener, Failure> {
    http::listen(address).map_err(|error| {
        let help = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "stop the other server, or choose another address with --http HOST:PORT, or --http off"
            }
            _ => "choose another address with --http HOST:PORT, or --http off",
        };
        Failure::input(format!("cannot serve metrics on {address}: {error}"), help)
    })
}

/// Why the server does not start. The remedy does not name options that were given.
fn failure(error: ServeError, args: &ServeArgs, volumes: &[PathBuf]) -> Failure {
    let given = [
        ("--accept-losses", args.accept_losses),
        ("--accept-older", args.accept_older),
        ("--keep-side", args.keep_side.is_some()),
        ("--force", args.force),
        // They use a drive of a server, and this command is to be the server.
        ("zonda zone and zonda bench", true),
    ];
    let given: Vec<&str> = given.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option).collect();
    let help = remedies::without(&error.help, &given, "restore the missing drives");
    let help = match volumes {
        [volume] => volume::reach::fitting(volume, &help),
        _ => help,
    };
    Failure::input(error.message, help)
}
