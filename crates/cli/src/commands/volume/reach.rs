//! Access to a volume: through the control socket of a server on this machine, or opened in this
//! process.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zonda_devices::{
    Drive, DriveError, LostRange, NewVolume, Notice, VolumeDrive, VolumeOpenOptions, VolumeReport, VolumeRequest,
};
use zonda_ring::{Ring, RingOptions};
use zonda_zoned::{CompletionQueue, Duration as Span, ZonedDevice};

use crate::commands::serve::control::Answer;
use crate::commands::{connect, control_client};
use crate::errors::Failure;
use crate::remedies;

/// What the user can do with an image that was named instead of a volume.
pub(super) const OF_IMAGE: &str =
    "give the directory of the volume; for the image: zonda drive show DIR and zonda drive check DIR";
/// Timeout of a request to a server.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a request for which the server may connect to a remote drive, or write to members.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of closing a volume.
const CLOSE_MAX: Span = Span(60_000_000_000);

/// A volume that accepts requests.
pub(super) enum Reached {
    /// In use by a server, with the path of its control socket.
    Served(PathBuf),
    /// Open in this process.
    Own(Box<Own>),
}

/// A volume that is open in this process.
pub(super) struct Own {
    volume: VolumeDrive,
    /// Dropped after the volume that uses it.
    ring: Ring,
    is_closing: bool,
}

impl Reached {
    /// Connects to the server of the volume, or opens it: a rebuild continues, and spares replace
    /// failed members.
    pub(super) fn open(directory: &Path) -> Result<Reached, Failure> {
        Reached::open_with(directory, &VolumeOpenOptions::default())
    }

    /// Connects to the server of the volume, or opens it for this request, without starting
    /// rebuilds that are not requested. A request that is refused does not assemble the volume.
    pub(super) fn open_for(directory: &Path, request: &VolumeRequest, given: &[&str]) -> Result<Reached, Failure> {
        if !is_served(directory)? {
            request.must_be_possible(directory).map_err(|error| unsuitable(error, given, directory))?;
        }
        Reached::open_with(directory, &VolumeOpenOptions { keeps_members: true, ..VolumeOpenOptions::default() })
    }

    fn open_with(directory: &Path, options: &VolumeOpenOptions) -> Result<Reached, Failure> {
        if let Some(socket) = socket_of_server(directory)? {
            return Ok(Reached::Served(socket));
        }
        let ring = ring()?;
        let volume = VolumeDrive::open_with(directory, options, &ring).map_err(|error| refused(directory, error))?;
        Ok(Reached::Own(Box::new(Own { volume, ring, is_closing: false })))
    }

    /// Creates a volume.
    pub(super) fn create(directory: &Path, new: &NewVolume) -> Result<Reached, Failure> {
        let ring = ring()?;
        let mut volume = VolumeDrive::create(directory, new, &ring).map_err(|error| not_created(error, new))?;
        std::iter::from_fn(|| volume.take_warning()).for_each(|warning| connect::warn(&warning));
        Ok(Reached::Own(Box::new(Own { volume, ring, is_closing: false })))
    }

    /// All blocks that are lost.
    pub(super) fn lost(&mut self) -> Result<Vec<LostRange>, Failure> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let some = self.ask(&VolumeRequest::Lost { from })?.lost.unwrap_or_default();
            let Some(last) = some.last() else { return Ok(all) };
            from = last.lba + last.blocks;
            all.extend(some);
        }
    }

    /// Sends a request, and returns the state of the volume afterwards.
    pub(super) fn ask(&mut self, request: &VolumeRequest) -> Result<VolumeReport, Failure> {
        self.ask_with(request, &[])
    }

    /// The same for a request with these options of the command line.
    pub(super) fn ask_with(&mut self, request: &VolumeRequest, given: &[&str]) -> Result<VolumeReport, Failure> {
        match self {
            Reached::Served(socket) => ask(socket, request, given),
            Reached::Own(own) => {
                let report =
                    own.volume.manage(request, &own.ring).map_err(|error| unsuitable(error, given, own.volume.path()));
                own.run_for(Duration::ZERO)?;
                report
            }
        }
    }

    /// Runs the volume for this time, or waits as long; returns its state afterwards.
    pub(super) fn wait(&mut self, time: Duration) -> Result<VolumeReport, Failure> {
        match self {
            Reached::Served(socket) => {
                std::thread::sleep(time);
                ask(socket, &VolumeRequest::Report, &[])
            }
            Reached::Own(own) => {
                own.run_for(time)?;
                Ok(own.volume.report())
            }
        }
    }

    /// Events of a volume that is open in this process.
    pub(super) fn notices(&mut self) -> Vec<Notice> {
        match self {
            // The server logs them.
            Reached::Served(_) => Vec::new(),
            Reached::Own(own) => std::iter::from_fn(|| own.volume.take_notice()).collect(),
        }
    }

    /// Closes the volume; returns its last state.
    pub(super) fn finish(mut self) -> Result<VolumeReport, Failure> {
        let report = self.ask(&VolumeRequest::Report)?;
        match self {
            Reached::Served(_) => Ok(report),
            Reached::Own(mut own) => own.close().map(|()| report),
        }
    }
}

impl Own {
    fn run_for(&mut self, time: Duration) -> Result<(), Failure> {
        let mut completions = CompletionQueue::new();
        let until = self.ring.now() + Span(time.as_nanos() as u64);
        loop {
            self.volume.poll(self.ring.now(), &mut completions);
            if self.ring.now() >= until {
                return Ok(());
            }
            let next = self.volume.next_timeout().map_or(until, |at| at.min(until));
            self.ring.run_once(Some(next)).map_err(|error| broken(&error))?;
        }
    }

    fn close(&mut self) -> Result<(), Failure> {
        self.is_closing = true;
        let mut completions = CompletionQueue::new();
        let until = self.ring.now() + CLOSE_MAX;
        self.volume.close(self.ring.now());
        loop {
            self.volume.poll(self.ring.now(), &mut completions);
            if self.volume.is_closed() {
                return Ok(());
            }
            if self.ring.now() >= until {
                let help = "no acknowledged data is lost: the volume is recovered when it is next opened";
                return Err(Failure::broken("timed out closing the volume", help));
            }
            let next = self.volume.next_timeout().map_or(until, |at| at.min(until));
            self.ring.run_once(Some(next)).map_err(|error| broken(&error))?;
        }
    }
}

impl Drop for Own {
    /// Closes a volume for which a request was refused, too: its images are marked clean, and
    /// reservations are released.
    fn drop(&mut self) {
        if !self.is_closing && !std::thread::panicking() {
            // The error of the request is reported.
            let _ = self.close();
        }
    }
}

/// The state of a volume, as its server or, if it is not in use, its superblocks report it. Nothing
/// is changed.
pub(super) fn inspect(directory: &Path) -> Result<VolumeReport, Failure> {
    match socket_of_server(directory)? {
        Some(socket) => ask(&socket, &VolumeRequest::Report, &[]),
        None => VolumeReport::inspect(directory).map_err(connect::failure),
    }
}

/// Lost blocks of a volume in use by a server: only an assembled volume can list them.
pub(super) fn lost(directory: &Path) -> Result<Vec<LostRange>, Failure> {
    let Some(socket) = socket_of_server(directory)? else {
        let message = "--lost lists blocks of volumes that are served, and this volume is not served";
        let help = "list them with zonda volume check DIR, which does not write; or serve the volume with zonda serve DIR, and \
                    repeat this command meanwhile";
        return Err(Failure::input(message, remedies::in_directory(help, directory)));
    };
    Reached::Served(socket).lost()
}

/// Refuses a volume in use by a server.
pub(super) fn must_not_be_served(directory: &Path) -> Result<(), Failure> {
    if socket_of_server(directory)?.is_none() {
        return Ok(());
    }
    let message = format!("the volume in {} is in use by a server", directory.display());
    let help =
        remedies::in_directory("verify and repair it with zonda volume scrub DIR, or stop the server", directory);
    Err(Failure::input(message, help))
}

/// The message of an error whose cause is in its remedy.
const INVALID: &str = "the configuration of the volume is invalid";

/// Why a volume cannot be created.
fn not_created(error: DriveError, new: &NewVolume) -> Failure {
    if error.message != INVALID {
        return refused_request(error, if new.may_wipe { &["--force"] } else { &[] });
    }
    let (why, remedy) = match (error.help.split_once("; "), new.size) {
        (Some(parts), _) => parts,
        (None, Some(_)) => (
            error.help.as_str(),
            "choose another --size, or omit it for the whole capacity; more or larger members, or a smaller --reserve, give \
             more space",
        ),
        (None, None) => (error.help.as_str(), "change the options, or name other members"),
    };
    let what = new.size.map_or_else(|| "the volume".to_owned(), |size| format!("a volume of {size}"));
    Failure::input(format!("cannot create {what}: {why}"), remedy)
}

/// Why a volume cannot be opened.
fn refused(directory: &Path, mut error: DriveError) -> Failure {
    error.help = fitting(directory, &error.help);
    connect::failure(error)
}

/// A remedy for a volume that is not in use. zonda serve --accept-older accepts members that are
/// out of date: it is no remedy for members that are missing, or if too few are present.
pub(crate) fn fitting(directory: &Path, help: &str) -> String {
    let older = "--accept-older";
    let help = if help.contains(older) && !older_members_suffice(directory) {
        remedies::without(help, &[older], "restore the missing members")
    } else {
        help.to_owned()
    };
    remedies::in_directory(&help, directory)
}

/// Whether members that are present may be out of date, and enough are present. `true` if that
/// cannot be determined.
fn older_members_suffice(directory: &Path) -> bool {
    let Ok(report) = VolumeReport::inspect(directory) else { return true };
    let present = || report.members.iter().filter(|member| member.epoch.is_some());
    let is_older = report.refusal.is_some() || present().any(|member| member.state == "failed");
    is_older && members_needed(&report.scheme).is_none_or(|needed| present().count() >= needed)
}

/// The minimum number of members of a scheme such as "RAID 5 (3+1)" or "RAID 0 (2)".
fn members_needed(scheme: &str) -> Option<usize> {
    let (_, numbers) = scheme.strip_suffix(')')?.rsplit_once('(')?;
    numbers.split('+').next()?.parse().ok()
}

/// Whether a server on this machine uses the volume.
pub(super) fn is_served(directory: &Path) -> Result<bool, Failure> {
    Ok(socket_of_server(directory)?.is_some())
}

/// The control socket of the server that uses the volume, if there is one. Refuses an image.
fn socket_of_server(directory: &Path) -> Result<Option<PathBuf>, Failure> {
    remedies::refuse_image(directory, OF_IMAGE)?;
    control_client::socket_of_server(directory)
}

pub(crate) fn ring() -> Result<Ring, Failure> {
    Ring::new(RingOptions::default()).map_err(|error| {
        Failure::broken(format!("cannot create the event loop: {error}"), "check the limit on open files (ulimit -n)")
    })
}

fn broken(error: &io::Error) -> Failure {
    let help = "check the limits of this process (ulimit -a), and run the command again; no acknowledged data is lost";
    Failure::broken(format!("the event loop failed: {error}"), help)
}

/// A request to the volume in a directory that was refused although these options were given.
fn unsuitable(mut error: DriveError, given: &[&str], directory: &Path) -> Failure {
    error.help = remedies::in_directory(&error.help, directory);
    refused_request(error, given)
}

fn refused_request(error: DriveError, given: &[&str]) -> Failure {
    if error.holder.is_some() {
        return Failure::input(error.message, remedies::RESERVED);
    }
    connect::failure_without(error, given, "name another drive")
}

fn timeout_of(request: &VolumeRequest) -> Duration {
    match request {
        VolumeRequest::Report | VolumeRequest::Lost { .. } => TIMEOUT,
        _ => CHANGE_TIMEOUT,
    }
}

/// Sends a request and reads the answer.
fn ask(socket: &Path, request: &VolumeRequest, given: &[&str]) -> Result<VolumeReport, Failure> {
    let answer = control_client::exchange(socket, request, timeout_of(request)).map_err(|why| {
        let message = format!("no answer from the server of the volume: {why}");
        let help = "the server is overloaded or paused, or was stopped: see its log, and try again; if it never responds, stop and \
                    restart it";
        Failure::broken(message, help)
    })?;
    match answer {
        Answer::Report(report) => Ok(*report),
        Answer::Error { message, help } => {
            Err(unsuitable(DriveError::new(message, help), given, socket.parent().unwrap_or(Path::new("."))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_that_a_scheme_needs_are_those_without_parity() {
        for (scheme, needed) in [
            ("RAID 5 (3+1)", Some(3)),
            ("RAID 1 (1+1)", Some(1)),
            ("RAID 0 (2)", Some(2)),
            ("of an unknown level", None),
        ] {
            assert_eq!(members_needed(scheme), needed, "{scheme}");
        }
    }
}
