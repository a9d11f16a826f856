//! A store on a device without latency, with one request at a time.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_layers::Memory;
use zonda_zoned::{
    Blocks, Command, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Namespaces, Operation, QueueFull,
    ZoneAction, ZoneTarget, ZonedDevice,
};

use crate::{
    Event, FileData, FileError, FileId, FileStore, FileStoreDevice, FilesConfig, Lifetime, Outcome, RequestId,
};

/// A device that records its commands.
pub(crate) struct CommandRecorder<D> {
    pub(crate) inner: D,
    pub(crate) seen: Vec<RecordedCommand>,
}

/// A command without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordedCommand {
    pub(crate) name: &'static str,
    pub(crate) zone: u64,
    pub(crate) first: u64,
    pub(crate) blocks: u64,
}

impl<D: ZonedDevice> ZonedDevice for CommandRecorder<D> {
    fn namespaces(&self) -> &Namespaces {
        self.inner.namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        let at = match &command.operation {
            Operation::Read { start, .. } | Operation::Write { start, .. } | Operation::ReportZones { start, .. } => {
                *start
            }
            Operation::ManageZones { target: ZoneTarget::Zone(start), .. } => *start,
            _ => Lba(0),
        };
        let zone_blocks = self.inner.geometry(NamespaceId::FIRST).zone_size_blocks.0;
        let (zone, first) = (at.0 / zone_blocks, at.0 % zone_blocks);
        self.seen.push(RecordedCommand {
            name: command.operation.name(),
            zone,
            first,
            blocks: command.operation.blocks().0,
        });
        self.inner.submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.inner.poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.inner.next_timeout()
    }
}

/// A store, its device, and the results of requests.
pub(crate) struct Harness<D> {
    pub(crate) files: FileStoreDevice<CommandRecorder<D>>,
    now: Instant,
    next_request: u64,
    done: BTreeMap<RequestId, Result<Outcome, FileError>>,
    pub(crate) failed: Option<FileError>,
}

/// `zones` zones of 16 blocks of 512 B, of which at most `active` may be active.
pub(crate) fn small(zones: u32, active: u32) -> Geometry {
    Geometry {
        zone_count: zones,
        zone_size_blocks: Blocks(16),
        zone_capacity_blocks: Blocks(16),
        max_active_zones: Some(active),
        max_open_zones: Some(active),
        ..Geometry::tiny()
    }
}

/// Writes and reads of two blocks, a buffer of eight.
pub(crate) fn units_of_two_blocks() -> FilesConfig {
    FilesConfig { write_unit_bytes: 1024, read_unit_bytes: 1024, file_buffer_bytes: 4096, ..FilesConfig::default() }
}

/// Bytes that differ at every offset of a file.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| ((seed + 1) * 31 + at + at / 251) as u8).collect()
}

/// Creates files until the metadata are completely full.
pub(crate) fn fill_metadata(store: &mut FileStore) {
    let name = |store: &FileStore, length: usize| format!("{:0length$}", store.names().count());
    let mut last = String::new();
    for length in (1..=255).rev() {
        loop {
            let name = name(store, length);
            if store.create(&name, Lifetime::Long).is_err() {
                break;
            }
            last = name;
        }
    }
    for length in (last.len()..=255).rev() {
        let longer = name(store, length);
        store.rename(RequestId(9000 + length as u64), &last, &longer);
        if store.lookup(&longer).is_some() {
            return;
        }
    }
}

impl Harness<Memory> {
    /// A formatted store on an empty drive in memory.
    pub(crate) fn new(geometry: Geometry, config: FilesConfig) -> Harness<Memory> {
        let store = FileStore::format(&geometry, config, [3; 16]).expect("configuration and geometry match");
        Harness::on(store, Memory::new(geometry, 1 << 30))
    }
}

impl<D: ZonedDevice> Harness<D> {
    pub(crate) fn format(geometry: &Geometry, config: FilesConfig, drive: D) -> Harness<D> {
        let store = FileStore::format(geometry, config, [3; 16]).expect("configuration and geometry match");
        Harness::on(store, drive)
    }

    /// Starts a store; it may fail to.
    pub(crate) fn on(store: FileStore, drive: D) -> Harness<D> {
        let mut harness = Harness {
            files: FileStoreDevice::new(store, CommandRecorder { inner: drive, seen: Vec::new() }),
            now: Instant::ZERO,
            next_request: 0,
            done: BTreeMap::new(),
            failed: None,
        };
        harness.run();
        harness.files.device_mut().seen.clear();
        harness
    }

    /// Drops the idle store, and mounts it again.
    pub(crate) fn remount(self, config: FilesConfig) -> Result<Harness<D>, FileError> {
        let drive = self.into_drive();
        let geometry = drive.geometry(NamespaceId::FIRST).clone();
        let harness = Harness::on(FileStore::mount(&geometry, config)?, drive);
        match &harness.failed {
            Some(error) => Err(error.clone()),
            None => Ok(harness),
        }
    }

    pub(crate) fn into_drive(self) -> D {
        self.files.into_parts().1.inner
    }

    /// Runs until no progress is possible.
    pub(crate) fn run(&mut self) {
        loop {
            self.files.run_once(self.now);
            self.files.store().check_invariants();
            while let Some(event) = self.files.poll_event() {
                match event {
                    Event::Done { request, result } => {
                        assert!(self.done.insert(request, result).is_none(), "a request ends once");
                    }
                    Event::Failed(error) => self.failed = Some(error),
                    Event::Ready => assert!(self.files.store().is_ready()),
                }
            }
            match self.files.next_timeout() {
                Some(next) => self.now = next,
                None => return,
            }
        }
    }

    pub(crate) fn store(&mut self) -> &mut FileStore {
        self.files.store_mut()
    }

    /// Commands since the last call.
    pub(crate) fn take_commands(&mut self) -> Vec<RecordedCommand> {
        std::mem::take(&mut self.files.device_mut().seen)
    }

    /// Zones written since the last call, in order, without consecutive repetitions.
    pub(crate) fn zones_written(&mut self) -> Vec<u64> {
        let mut zones: Vec<u64> =
            self.take_commands().iter().filter(|seen| seen.name == "write").map(|seen| seen.zone).collect();
        zones.retain(|&zone| zone >= 2);
        zones.dedup();
        zones
    }

    pub(crate) fn create(&mut self, name: &str, lifetime: Lifetime) -> FileId {
        self.store().create(name, lifetime).expect("the name is free")
    }

    fn request(&mut self, ask: impl FnOnce(&mut FileStore, RequestId)) -> RequestId {
        self.next_request += 1;
        let request = RequestId(self.next_request);
        ask(self.files.store_mut(), request);
        self.run();
        request
    }

    pub(crate) fn append(&mut self, file: FileId, data: &[u8]) -> RequestId {
        let data = FileData::Bytes(Bytes::copy_from_slice(data));
        self.request(|store, request| store.append(request, file, data))
    }

    pub(crate) fn sync(&mut self, file: FileId) -> RequestId {
        self.request(|store, request| store.sync(request, file))
    }

    pub(crate) fn close(&mut self, file: FileId) -> RequestId {
        self.request(|store, request| store.close(request, file))
    }

    pub(crate) fn read(&mut self, file: FileId, offset: u64, bytes: u32) -> RequestId {
        self.request(|store, request| store.read(request, file, offset, bytes))
    }

    pub(crate) fn delete(&mut self, name: &str) -> RequestId {
        self.request(|store, request| store.delete(request, name))
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) -> RequestId {
        self.request(|store, request| store.rename(request, from, to))
    }

    /// The result of a request, if it has ended.
    pub(crate) fn result(&self, request: RequestId) -> Option<&Result<Outcome, FileError>> {
        self.done.get(&request)
    }

    /// Asserts that a request has succeeded.
    #[track_caller]
    pub(crate) fn expect(&self, request: RequestId) {
        assert!(matches!(self.result(request), Some(Ok(_))), "{:?}", self.result(request));
    }

    /// The error that a request has ended with.
    #[track_caller]
    pub(crate) fn error(&self, request: RequestId) -> FileError {
        self.result(request).expect("it has ended").clone().expect_err("it has failed")
    }

    /// A closed file with this pattern.
    #[track_caller]
    pub(crate) fn write_file(&mut self, name: &str, lifetime: Lifetime, length: usize) -> FileId {
        let file = self.create(name, lifetime);
        let append = self.append(file, &pattern(file.0, length));
        self.expect(append);
        let close = self.close(file);
        self.expect(close);
        file
    }

    /// The contents of a file.
    #[track_caller]
    pub(crate) fn contents(&mut self, file: FileId) -> Vec<u8> {
        let length = self.store().len_bytes(file).expect("the file exists");
        let read = self.read(file, 0, length as u32);
        match self.result(read) {
            Some(Ok(Outcome::Data(data))) => data.to_vec(),
            other => panic!("a read ended with {other:?}"),
        }
    }

    /// Manages a zone of the drive without the store.
    pub(crate) fn manage(&mut self, zone: u64, action: ZoneAction) {
        let drive = &mut self.files.device_mut().inner;
        let start = Lba(zone * drive.geometry(NamespaceId::FIRST).zone_size_blocks.0);
        let operation = Operation::ManageZones { action, target: ZoneTarget::Zone(start) };
        let command = Command::new(zonda_zoned::CommandId(u64::MAX), NamespaceId::FIRST, operation);
        drive.submit(self.now, command).expect("the drive's queue has space");
        let mut completions = CompletionQueue::new();
        drive.poll(self.now, &mut completions);
        assert!(completions.pop().expect("it has ended").status.is_success());
    }
}
