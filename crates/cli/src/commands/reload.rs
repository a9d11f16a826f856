//! `zonda reload`: lets a running server read its configuration file again.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};
use serde::Serialize;
use zonda_exports::snapshot::{ConfigurationSnapshot, ReloadSnapshot, Snapshot};
use zonda_exports::{HTTP_DEFAULT, started_ticks};

use crate::commands::serve::reload::TIMEOUT;
use crate::commands::status::fetch;
use crate::errors::Failure;
use crate::output::{print, print_json};

pub(crate) const LONG_ABOUT: &str = "Reload the configuration file of a running server.

Sends SIGHUP to the server, which must run on this machine as the same user, with --config FILE. Waits until the server has read \
the file, and prints what has changed: subsystems, namespaces, hosts and NBD exports come and go while others stay connected \
(docs/guide/serve.md). If the file is refused, nothing has changed, and the exit code is 1.";

const EXAMPLES: &str = "Examples:
  zonda reload
  zonda reload --http 127.0.0.1:9500 --json | jq .changes";

/// How long to wait for the result, in addition to the server's own timeout.
const MARGIN: Duration = Duration::from_secs(10);
/// Interval between two requests for the status.
const INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ReloadArgs {
    /// HTTP address of the server
    #[arg(long, value_name = "HOST:PORT", default_value_t = HTTP_DEFAULT.to_string())]
    http: String,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// The result as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    file: &'a str,
    ok: bool,
    #[serde(flatten)]
    result: &'a ReloadSnapshot,
}

pub(crate) fn run(args: &ReloadArgs) -> Result<(), Failure> {
    let before = fetch(&args.http)?;
    let Some(configuration) = &before.configuration else {
        return Err(Failure::input(
            format!("the server at {} was started without a configuration file, and cannot reload", args.http),
            "to export what its directories hold now, for example a new namespace of a pool, restart it; to change exports \
             while hosts are connected, list them in a file and start it with zonda serve --config FILE \
             (docs/guide/serve.md)",
        ));
    };
    let process = process_of(&before, &args.http)?;
    pidfd_send_signal(&process, Signal::HUP).map_err(|error| {
        Failure::broken(format!("cannot signal the server, process {}: {error}", before.pid), "is it still running?")
    })?;
    let after = wait(&before, configuration.reloads, &args.http)?;
    let result = after.last_reload.as_ref().expect("the server has reloaded its configuration");
    if args.json {
        print_json(&Report { file: &after.file, ok: result.error.is_none(), result })?;
    }
    match &result.error {
        Some(_) if args.json => Err(Failure::Run),
        Some(error) => {
            eprintln!("{error}");
            Err(Failure::broken(
                format!("{} is not reloaded: the server continues as before", after.file),
                "correct the file, and run zonda reload again",
            ))
        }
        None if args.json => Ok(()),
        None if result.changes.is_empty() => print(&format!("reloaded {}: no changes\n", after.file)),
        None => {
            let lines: String = result.changes.iter().map(|change| format!("  {change}\n")).collect();
            print(&format!("reloaded {}:\n{lines}", after.file))
        }
    }
}

/// The process of a server. It must be what it reports, on this machine and of this user: anything
/// could answer at the address, and process identifiers are reused.
fn process_of(snapshot: &Snapshot, address: &str) -> Result<OwnedFd, Failure> {
    let elsewhere = || {
        Failure::input(
            format!("the server at {address} is not a process of this machine, or has just stopped"),
            "run zonda reload on the machine of the server, and in its container if it has one",
        )
    };
    let pid = i32::try_from(snapshot.pid).ok().and_then(Pid::from_raw).ok_or_else(elsewhere)?;
    // From here on the identifier belongs to this process, or the signal reaches none.
    let process = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| elsewhere())?;
    let is_alive = |ticks: u64| ticks == snapshot.started_ticks && ticks > 0;
    if !started_ticks(snapshot.pid).is_ok_and(is_alive) {
        return Err(elsewhere());
    }
    let directory = format!("/proc/{}", snapshot.pid);
    let owner = fs::metadata(&directory).map_err(|_| elsewhere())?.uid();
    if owner != geteuid().as_raw() {
        return Err(Failure::input(
            format!("the server at {address} runs as another user, {owner}"),
            format!("run zonda reload as that user: sudo -u '#{owner}' zonda reload"),
        ));
    }
    let command = fs::read(format!("{directory}/cmdline")).map_err(|_| elsewhere())?;
    if is_server(&command) { Ok(process) } else { Err(elsewhere()) }
}

/// Whether a command line, whose arguments end in NUL, is that of a server with a configuration.
fn is_server(command: &[u8]) -> bool {
    let arguments: Vec<&[u8]> = command.split(|byte| *byte == 0).skip(1).collect();
    let has_config = arguments.iter().any(|it| *it == b"--config" || it.starts_with(b"--config="));
    has_config && arguments.contains(&&b"serve"[..])
}

/// Waits for the result of a reload after `reloads` others.
fn wait(before: &Snapshot, reloads: u64, address: &str) -> Result<ConfigurationSnapshot, Failure> {
    let deadline = Instant::now() + TIMEOUT + MARGIN;
    loop {
        // The server does not answer while it opens drives.
        let found = fetch(address).ok().filter(|now| now.pid == before.pid).and_then(|now| now.configuration);
        if let Some(configuration) = found.filter(|it| it.reloads > reloads) {
            return Ok(configuration);
        }
        if !started_ticks(before.pid).is_ok_and(|ticks| ticks == before.started_ticks) {
            return Err(Failure::broken("the server has stopped", "see its log"));
        }
        if Instant::now() >= deadline {
            return Err(Failure::broken("timeout: the server has not reloaded its configuration", "see its log"));
        }
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_with_a_configuration_are_signalled() {
        for (command, expected) in [
            ("/usr/bin/zonda\0serve\0--config\0zonda.toml\0", true),
            ("zonda\0serve\0--json\0--config=zonda.toml\0", true),
            ("zonda\0serve\0drives/a\0", false),
            ("vi\0--config\0zonda.toml\0", false),
            ("", false),
        ] {
            assert_eq!(is_server(command.as_bytes()), expected, "{command:?}");
        }
    }
}
