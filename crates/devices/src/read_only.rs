//! [`ReadOnlyImage`]: an image that is served without writing to its directory.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use zonda_image::{FileCommand, FileCommandId, FileError, FileOperation, Image, ImageFile, RecoveryReport};
use zonda_ring::{Bytes, BytesMut, Client, Done, Operation, Outcome, Ring};
use zonda_ssd::allocation::ElementTracker;
use zonda_zoned::{
    Blocks, Command, Completion, CompletionQueue, Instant, Namespaces, Operation as HostOperation, QueueFull, Status,
    ZoneState, ZonedDevice,
};

use crate::copy_on_write::CopyOnWrite;
use crate::directory::{exposed_files, file_error};
use crate::drive::visit_table;
use crate::file_backed::facts_of;
use crate::{Drive, DriveError, DriveFacts, ImageDirectory, LoadedElements};

/// An image that is opened read-only. Crash recovery is done in memory, so the files may be on a
/// read-only or full file system, or belong to another user. Other programs can read the image at
/// the same time; none can open it for writing.
pub struct ReadOnlyImage {
    image: Image,
    namespaces: Namespaces,
    /// Present where the profile builds zones of storage elements.
    elements: Option<LoadedElements>,
    client: Client,
    /// Holds the lock.
    files: CopyOnWrite,
    /// Reads in flight: which bytes they read.
    reads: HashMap<FileCommandId, Place>,
    /// Completions of commands that are not submitted to the image.
    completions: VecDeque<Completion>,
    /// Commands were submitted since the last poll: some complete without a file operation.
    has_news: bool,
    is_closing: bool,
    media_errors: u64,
    /// Reads of files that failed since the last warning, and the error of the first one.
    warning: Option<(u64, FileError)>,
    /// Warnings from opening that were not taken yet.
    notes: VecDeque<String>,
}

/// A range of bytes of a file.
#[derive(Clone, Copy, Debug)]
struct Place {
    file: ImageFile,
    offset: u64,
    length: usize,
}

impl ReadOnlyImage {
    /// Opens an image that no other program has open for writing.
    ///
    /// # Errors
    /// When the image does not exist, another program has it open for writing, it is damaged beyond
    /// repair, or its recovery exceeds the memory limit.
    pub fn open(path: &Path, ring: &Ring) -> Result<(ReadOnlyImage, RecoveryReport), DriveError> {
        let (files, image, mut report) = CopyOnWrite::over(ImageDirectory::open_shared(path)?)?;
        // The files keep their format version.
        report.converted = false;
        let mut notes: VecDeque<String> = exposed_files(path).into_iter().collect();
        let elements = LoadedElements::inspect(path, image.spec(), image.zones()).unwrap_or_else(|why| {
            notes.push_back(why);
            None
        });
        let drive = ReadOnlyImage {
            namespaces: Namespaces::single(image.geometry().clone()),
            image,
            elements,
            client: ring.client(),
            files,
            reads: HashMap::new(),
            completions: VecDeque::new(),
            has_news: false,
            is_closing: false,
            media_errors: 0,
            warning: None,
            notes,
        };
        Ok((drive, report))
    }

    /// The image.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The storage elements, where the profile builds zones of them.
    #[must_use]
    pub fn elements(&self) -> Option<&ElementTracker> {
        self.elements.as_ref().map(|found| &found.tracker)
    }

    /// Why the storage elements are reported as new; `None`: they were loaded, or there are none.
    #[must_use]
    pub fn elements_reset_reason(&self) -> Option<&str> {
        self.elements.as_ref()?.reset_reason.as_deref()
    }

    /// The reservations saved in the image. This drive saves none itself.
    #[must_use]
    pub fn reservations(&self) -> Bytes {
        Bytes::copy_from_slice(self.image.reservations())
    }

    /// Submits reads to the ring. Other file operations of the image change only memory.
    fn carry_out(&mut self) {
        while let Some(FileCommand { id, operation }) = self.image.poll_effect() {
            let FileOperation::Read { file, offset, length } = operation else {
                let result = self.files.carry_out(operation);
                self.image.on_completion(id, result);
                continue;
            };
            match self.files.file(file) {
                Ok(opened) => {
                    self.reads.insert(id, Place { file, offset, length });
                    let buffer = BytesMut::with_capacity(length);
                    self.client.submit(id.0, Operation::Read { file: opened, offset, buffer });
                }
                Err(error) => {
                    self.end_read(id, Err(error));
                    self.has_news = true;
                }
            }
        }
    }

    /// Passes the results of reads to the image.
    fn collect(&mut self) {
        while let Some(Done { token, result, .. }) = self.client.next() {
            let id = FileCommandId(token);
            let place = self.reads.remove(&id).expect("only reads are on the ring");
            let result = match result {
                Ok(Outcome::Read(buffer)) => self.with_changes(place, buffer),
                Ok(_) => unreachable!("a read has the outcome of a read"),
                Err(error) => Err(file_error(&error)),
            };
            self.end_read(id, result);
        }
    }

    /// The bytes of a file with the changes of recovery applied, if they are as many as were
    /// requested.
    fn with_changes(&self, Place { file, offset, length }: Place, mut buffer: BytesMut) -> Result<Bytes, FileError> {
        if buffer.len() < length {
            return Err(FileError::Other("unexpected end of file".to_owned()));
        }
        // A buffer may have more capacity than was requested.
        buffer.truncate(length);
        self.files.apply(file, offset, &mut buffer);
        Ok(buffer.freeze())
    }

    fn end_read(&mut self, id: FileCommandId, result: Result<Bytes, FileError>) {
        if let Err(error) = &result {
            self.media_errors += 1;
            self.warning.get_or_insert_with(|| (0, error.clone())).0 += 1;
        }
        self.image.on_completion(id, result);
    }
}

impl ZonedDevice for ReadOnlyImage {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// A flush succeeds at once. Commands that would change something fail as those to a write
    /// protected namespace; servers reject them before, with the status of their protocol.
    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        assert!(!self.is_closing, "a drive that is being closed takes no commands");
        let id = command.id;
        match command.operation {
            HostOperation::Read { .. } | HostOperation::ReportZones { .. } | HostOperation::ReadChangedZones => {
                self.image.submit(now, command)?;
            }
            HostOperation::Flush => self.completions.push_back(Completion::of(id, Status::Success)),
            HostOperation::Write { .. }
            | HostOperation::Append { .. }
            | HostOperation::WriteZeroes { .. }
            | HostOperation::Deallocate { .. }
            | HostOperation::ManageZones { .. } => {
                self.completions.push_back(Completion::of(id, Status::NamespaceWriteProtected));
            }
        }
        self.has_news = true;
        Ok(())
    }

    fn poll(&mut self, _now: Instant, completions: &mut CompletionQueue) {
        self.has_news = false;
        self.collect();
        self.completions.drain(..).for_each(|completion| completions.push(completion));
        self.image.poll(completions);
        self.carry_out();
    }

    fn next_timeout(&self) -> Option<Instant> {
        // The ring wakes the caller when a file operation completes.
        self.has_news.then_some(Instant::ZERO)
    }
}

impl Drive for ReadOnlyImage {
    fn facts(&self) -> DriveFacts {
        facts_of(&self.image, self.elements())
    }

    fn visit_zones(&self, visit: &mut dyn FnMut(ZoneState, Blocks)) {
        visit_table(self.image.zones(), visit);
    }

    fn forget_reads(&mut self, blocks: u64) {
        self.image.forget_reads(blocks);
    }

    fn media_errors(&self) -> u64 {
        self.media_errors
    }

    fn take_warning(&mut self) -> Option<String> {
        if let Some(note) = self.notes.pop_front() {
            return Some(note);
        }
        let (count, first) = self.warning.take()?;
        Some(match count {
            1 => format!("a read of a file failed: {first}"),
            _ => format!("{count} reads of files failed, the first with: {first}"),
        })
    }

    fn close(&mut self, _now: Instant) {
        self.is_closing = true;
    }

    fn is_closed(&self) -> bool {
        self.is_closing && self.image.is_idle() && self.client.outstanding() == 0
    }
}
