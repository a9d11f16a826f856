//! Executes the store's effects on a file store.

use zonda_files::{Event, FileData, FileError, FileId, FileStore, FileStoreDevice, RequestId, Usage};
use zonda_zoned::{Instant, ZonedDevice};

use super::effect::{Effect, FileKind, Owner};
use super::entry::FileNumber;
use super::meter::{HostBytes, Meter};

/// The files of the store: a file store on a device, or a stand-in for tests.
pub(super) trait Files {
    /// Begins an effect, which is not a wake.
    fn perform(&mut self, effect: Effect) -> Result<(), FileError>;
    /// Makes all progress that is possible at `now`.
    fn run_once(&mut self, now: Instant);
    /// The next request that has ended.
    fn poll(&mut self) -> Option<Ended>;
    /// When to call `run_once` again.
    fn next_timeout(&self) -> Option<Instant>;
    /// Commands on the drive that have not completed.
    fn in_flight(&self) -> usize;
    fn usage(&self) -> Usage;
    /// Bytes transferred to and from the drive so far.
    fn host_bytes(&self) -> HostBytes;
}

/// An event of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The file store accepts requests.
    Ready,
    /// The file store failed to start, or has failed.
    Failed(FileError),
    /// A request has ended.
    Request(Owner, Result<(), FileError>),
}

/// A file store on a device.
pub(super) struct DeviceFiles<D> {
    files: FileStoreDevice<Meter<D>>,
    /// By number.
    open: Vec<Option<OpenFile>>,
}

#[derive(Clone, Copy, Debug)]
struct OpenFile {
    id: FileId,
    kind: FileKind,
}

/// The kind of an owner is in the upper half of a request's number.
const OWNER_SHIFT: u32 = 32;

impl<D: ZonedDevice> DeviceFiles<D> {
    pub(super) fn new(files: FileStore, device: D) -> DeviceFiles<D> {
        DeviceFiles { files: FileStoreDevice::new(files, Meter::new(device)), open: Vec::new() }
    }

    pub(super) fn device(&self) -> &D {
        self.files.device().inner()
    }

    pub(super) fn into_device(self) -> D {
        self.files.into_parts().1.into_inner()
    }

    fn id(&self, file: FileNumber) -> FileId {
        let open = self.open.get(file.0 as usize).and_then(Option::as_ref);
        open.expect("the store refers only to files that it has created").id
    }
}

impl<D: ZonedDevice> Files for DeviceFiles<D> {
    fn perform(&mut self, effect: Effect) -> Result<(), FileError> {
        match effect {
            Effect::Create { file, kind, lifetime } => {
                let id = self.files.store_mut().create(&kind.name(file), lifetime)?;
                let place = file.0 as usize;
                self.open.resize(self.open.len().max(place + 1), None);
                self.open[place] = Some(OpenFile { id, kind });
            }
            Effect::Append { owner, file, bytes } => {
                let id = self.id(file);
                self.files.store_mut().append(request_of(owner), id, FileData::Length(bytes));
            }
            Effect::Sync { owner, file } => {
                let id = self.id(file);
                self.files.store_mut().sync(request_of(owner), id);
            }
            Effect::Close { owner, file } => {
                let id = self.id(file);
                self.files.store_mut().close(request_of(owner), id);
            }
            Effect::Read { owner, file, offset_bytes, bytes } => {
                let id = self.id(file);
                self.files.store_mut().read(request_of(owner), id, offset_bytes, bytes);
            }
            Effect::Delete { owner, file } => {
                let open = self.open[file.0 as usize].take().expect("a file is deleted once");
                self.files.store_mut().delete(request_of(owner), &open.kind.name(file));
            }
            Effect::Wake { .. } => unreachable!("the files have no timers"),
        }
        Ok(())
    }

    fn run_once(&mut self, now: Instant) {
        self.files.run_once(now);
    }

    fn poll(&mut self) -> Option<Ended> {
        Some(match self.files.poll_event()? {
            Event::Ready => Ended::Ready,
            Event::Failed(error) => Ended::Failed(error),
            Event::Done { request, result } => Ended::Request(owner_of(request), result.map(|_| ())),
        })
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.files.next_timeout()
    }

    fn in_flight(&self) -> usize {
        self.files.device().in_flight
    }

    fn usage(&self) -> Usage {
        self.files.store().usage()
    }

    fn host_bytes(&self) -> HostBytes {
        self.files.device().bytes
    }
}

fn request_of(owner: Owner) -> RequestId {
    let (kind, number) = match owner {
        Owner::Client(client) => (0, client),
        Owner::Log(file) => (1, file.0),
        Owner::Manifest => (2, 0),
        Owner::Job(job) => (3, job),
        Owner::Deleted(file) => (4, file.0),
    };
    RequestId(kind << OWNER_SHIFT | u64::from(number))
}

fn owner_of(request: RequestId) -> Owner {
    let number = request.0 as u32;
    match request.0 >> OWNER_SHIFT {
        0 => Owner::Client(number),
        1 => Owner::Log(FileNumber(number)),
        2 => Owner::Manifest,
        3 => Owner::Job(number),
        4 => Owner::Deleted(FileNumber(number)),
        kind => unreachable!("no request has kind {kind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_identifies_its_owner() {
        for owner in [
            Owner::Client(7),
            Owner::Log(FileNumber(u32::MAX)),
            Owner::Manifest,
            Owner::Job(0),
            Owner::Deleted(FileNumber(3)),
        ] {
            assert_eq!(owner_of(request_of(owner)), owner);
        }
    }
}
