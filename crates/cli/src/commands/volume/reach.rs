//! A volume, wherever it is: in the hands of a server on this machine, or opened here.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use zonda_devices::{
    CONTROL_SOCKET, Drive, DriveError, LostRange, NewVolume, Notice, VolumeDrive, VolumeOpenOptions, VolumeReport,
    VolumeRequest,
};
use zonda_ring::{Ring, RingOptions};
use zonda_zoned::{CompletionQueue, Duration as Span, ZonedDevice};

use crate::commands::connect;
use crate::commands::serve::control::Answer;
use crate::errors::Failure;

/// How long a server may take to answer. Opening a drive that is far away takes the longest.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long closing may take.
const CLOSE_MAX: Span = Span(60_000_000_000);

/// A volume that can be asked.
pub(super) enum Reached {
    /// A server has it.
    Served(PathBuf),
    /// It is open here.
    Own(Box<Own>),
}

/// A volume that is open here.
pub(super) struct Own {
    volume: VolumeDrive,
    /// Goes after the volume that uses it.
    ring: Ring,
}

impl Reached {
    /// Asks whoever has the volume, or opens it: a rebuild continues, and spares take the places of members that have failed.
    pub(super) fn open(directory: &Path) -> Result<Reached, Failure> {
        Reached::open_with(directory, &VolumeOpenOptions::default())
    }

    /// Asks whoever has the volume, or opens it; no rebuild is started but what is asked for.
    pub(super) fn open_as_it_is(directory: &Path) -> Result<Reached, Failure> {
        Reached::open_with(directory, &VolumeOpenOptions { keeps_members: true, ..VolumeOpenOptions::default() })
    }

    fn open_with(directory: &Path, options: &VolumeOpenOptions) -> Result<Reached, Failure> {
        if let Some(socket) = socket_of_server(directory)? {
            return Ok(Reached::Served(socket));
        }
        let ring = ring()?;
        let volume = VolumeDrive::open_with(directory, options, &ring).map_err(connect::failure)?;
        Ok(Reached::Own(Box::new(Own { volume, ring })))
    }

    /// Makes a volume.
    pub(super) fn create(directory: &Path, new: &NewVolume) -> Result<Reached, Failure> {
        let ring = ring()?;
        let volume = VolumeDrive::create(directory, new, &ring).map_err(connect::failure)?;
        Ok(Reached::Own(Box::new(Own { volume, ring })))
    }

    /// Whether a server has it, which goes on by itself.
    pub(super) fn is_served(&self) -> bool {
        matches!(self, Reached::Served(_))
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

    /// Asks something, and says how the volume is then.
    pub(super) fn ask(&mut self, request: &VolumeRequest) -> Result<VolumeReport, Failure> {
        match self {
            Reached::Served(socket) => ask(socket, request),
            Reached::Own(own) => {
                let report = own.volume.manage(request, &own.ring).map_err(connect::failure);
                own.turn(Duration::ZERO)?;
                report
            }
        }
    }

    /// Lets the volume work for a while, or waits as long; says how it is then.
    pub(super) fn wait(&mut self, time: Duration) -> Result<VolumeReport, Failure> {
        match self {
            Reached::Served(socket) => {
                std::thread::sleep(time);
                ask(socket, &VolumeRequest::Report)
            }
            Reached::Own(own) => {
                own.turn(time)?;
                Ok(own.volume.report())
            }
        }
    }

    /// What has happened, where nobody else says it.
    pub(super) fn notices(&mut self) -> Vec<Notice> {
        match self {
            // It stands in the server's log.
            Reached::Served(_) => Vec::new(),
            Reached::Own(own) => std::iter::from_fn(|| own.volume.take_notice()).collect(),
        }
    }

    /// Lets go of it; says how it is at last.
    pub(super) fn finish(mut self) -> Result<VolumeReport, Failure> {
        let report = self.ask(&VolumeRequest::Report)?;
        match self {
            Reached::Served(_) => Ok(report),
            Reached::Own(own) => own.close().map(|()| report),
        }
    }
}

impl Own {
    fn turn(&mut self, time: Duration) -> Result<(), Failure> {
        let mut completions = CompletionQueue::new();
        let until = self.ring.now() + Span(time.as_nanos() as u64);
        loop {
            self.volume.poll(self.ring.now(), &mut completions);
            if self.ring.now() >= until {
                return Ok(());
            }
            let next = self.volume.next_wakeup().map_or(until, |at| at.min(until));
            self.ring.turn(Some(next)).map_err(|error| broken(&error))?;
        }
    }

    fn close(mut self) -> Result<(), Failure> {
        let mut completions = CompletionQueue::new();
        let until = self.ring.now() + CLOSE_MAX;
        self.volume.close(self.ring.now());
        loop {
            self.volume.poll(self.ring.now(), &mut completions);
            if self.volume.is_closed() {
                return Ok(());
            }
            if self.ring.now() >= until {
                let help = "nothing acknowledged is lost: it recovers when it is next opened";
                return Err(Failure::broken("the volume did not close in time", help));
            }
            let next = self.volume.next_wakeup().map_or(until, |at| at.min(until));
            self.ring.turn(Some(next)).map_err(|error| broken(&error))?;
        }
    }
}

/// How the volume is: its server says so; of one that no server has, its superblocks. Nothing is changed.
pub(super) fn look(directory: &Path) -> Result<VolumeReport, Failure> {
    match socket_of_server(directory)? {
        Some(socket) => ask(&socket, &VolumeRequest::Report),
        None => VolumeReport::look(directory).map_err(connect::failure),
    }
}

/// Blocks that are lost; a server must have the volume, since only a mount finds out.
pub(super) fn lost(directory: &Path) -> Result<Vec<LostRange>, Failure> {
    let Some(socket) = socket_of_server(directory)? else {
        let message = "only a mount finds out which blocks are lost, and no server has the volume";
        let help = "zonda volume check DIR lists them without writing anything; or serve the volume: zonda serve DIR";
        return Err(Failure::input(message, help));
    };
    Reached::Served(socket).lost()
}

/// Refuses a volume that a server has.
pub(super) fn must_not_be_served(directory: &Path) -> Result<(), Failure> {
    if socket_of_server(directory)?.is_none() {
        return Ok(());
    }
    let message = format!("the volume in {} is in use by a server", directory.display());
    Err(Failure::input(message, "zonda volume scrub checks it while it is served, and repairs it; or stop the server"))
}

/// Where the server listens that has the volume, if one has it.
fn socket_of_server(directory: &Path) -> Result<Option<PathBuf>, Failure> {
    let socket = directory.join(CONTROL_SOCKET);
    match UnixStream::connect(&socket) {
        Ok(_) => Ok(Some(socket)),
        // No server has it; or one that was killed has left the socket behind.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
        Err(error) => {
            let message = format!("{} cannot be spoken to: {error}", socket.display());
            Err(Failure::input(message, "see who runs the server: zonda must run as the same user"))
        }
    }
}

pub(super) fn ring() -> Result<Ring, Failure> {
    Ring::new(RingOptions::default()).map_err(|error| {
        Failure::broken(format!("there is no event loop to be had: {error}"), "see how many files may be open")
    })
}

fn broken(error: &io::Error) -> Failure {
    Failure::broken(format!("the event loop failed: {error}"), "")
}

/// One request, one answer, a line each.
fn ask(socket: &Path, request: &VolumeRequest) -> Result<VolumeReport, Failure> {
    let speak = || -> io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let text = serde_json::to_string(request).map_err(io::Error::other)?;
        stream.write_all((text + "\n").as_bytes())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        Ok(line)
    };
    let gone = |why: String| {
        let message = format!("the server that has the volume does not answer: {why}");
        Failure::broken(message, "see its log, and whether it still runs: zonda status")
    };
    let line = speak().map_err(|error| gone(error.to_string()))?;
    match serde_json::from_str::<Answer>(&line).map_err(|error| gone(error.to_string()))? {
        Answer::Report(report) => Ok(*report),
        Answer::Error { message, help } => Err(connect::failure(DriveError::new(message, help))),
    }
}
