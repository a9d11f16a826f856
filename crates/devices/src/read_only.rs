//! [`ReadOnlyImage`]: an image that is served without a byte of its directory being written.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use zonda_image::{FileCommand, FileError, FileOperation, Image, ImageFile, RecoveryReport, Ticket};
use zonda_ring::{Bytes, BytesMut, Client, Done, Operation, Outcome, Ring};
use zonda_ssd::allocation::ElementBook;
use zonda_zoned::{
    Command, Completion, CompletionQueue, Geometry, Instant, NamespaceId, Operation as HostOperation, QueueFull,
    Status, ZonedDevice,
};

use crate::copy_on_write::CopyOnWrite;
use crate::directory::{exposed_files, file_error};
use crate::file_backed::facts_of;
use crate::{Drive, DriveError, DriveFacts, FoundElements, ImageDirectory};

/// An image as a server would find it that opened it for writing, of which everything is read and nothing changes. What a crash has
/// left is repaired in memory alone, so the files may be on a medium that is read-only, or belong to another user, or fill their
/// file system. Others may read the image at the same time; none may open it for writing.
pub struct ReadOnlyImage {
    image: Image,
    /// Where the profile builds zones of storage elements.
    elements: Option<FoundElements>,
    client: Client,
    /// Holds the lock.
    files: CopyOnWrite,
    /// Reads in flight: where they are.
    reads: HashMap<Ticket, Place>,
    /// Of commands that the image need not see.
    completions: VecDeque<Completion>,
    /// Commands were taken since the last poll: some end without a file being touched.
    has_news: bool,
    is_closing: bool,
    media_errors: u64,
    /// Since this was last asked: reads of files that failed, and why the first of them did.
    trouble: Option<(u64, FileError)>,
    /// What opening has found and was not reported yet.
    notes: VecDeque<String>,
}

/// Bytes of a file.
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
    /// When there is none, another program writes to it, it is damaged beyond repair, or its repair would take too much memory.
    pub fn open(path: &Path, ring: &Ring) -> Result<(ReadOnlyImage, RecoveryReport), DriveError> {
        let (files, image, mut report) = CopyOnWrite::over(ImageDirectory::look_alone(path)?)?;
        // The files stay of the version that they are.
        report.converted = false;
        let mut notes: VecDeque<String> = exposed_files(path).into_iter().collect();
        let elements = FoundElements::look(path, image.spec(), image.zones()).unwrap_or_else(|why| {
            notes.push_back(why);
            None
        });
        let drive = ReadOnlyImage {
            image,
            elements,
            client: ring.client(),
            files,
            reads: HashMap::new(),
            completions: VecDeque::new(),
            has_news: false,
            is_closing: false,
            media_errors: 0,
            trouble: None,
            notes,
        };
        Ok((drive, report))
    }

    /// The image behind it.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Its storage elements, where the profile builds zones of them.
    #[must_use]
    pub fn elements(&self) -> Option<&ElementBook> {
        self.elements.as_ref().map(|found| &found.book)
    }

    /// Why the storage elements are shown as new, in words; `None`: they were found, or there are none.
    #[must_use]
    pub fn elements_began_anew(&self) -> Option<&str> {
        self.elements.as_ref()?.anew.as_deref()
    }

    /// What the image has kept of reservations. This drive keeps none itself.
    #[must_use]
    pub fn reservations(&self) -> Bytes {
        Bytes::copy_from_slice(self.image.reservations())
    }

    /// Hands reads to the ring. What else the image may ask for changes nothing but memory.
    fn carry_out(&mut self) {
        while let Some(FileCommand { ticket, operation }) = self.image.poll_effect() {
            let FileOperation::Read { file, offset, length } = operation else {
                let result = self.files.carry_out(operation);
                self.image.on_file_done(ticket, result);
                continue;
            };
            match self.files.file(file) {
                Ok(opened) => {
                    self.reads.insert(ticket, Place { file, offset, length });
                    let buffer = BytesMut::with_capacity(length);
                    self.client.submit(ticket.0, Operation::Read { file: opened, offset, buffer });
                }
                Err(error) => {
                    self.end_read(ticket, Err(error));
                    self.has_news = true;
                }
            }
        }
    }

    /// Passes on what has been read.
    fn collect(&mut self) {
        while let Some(Done { token, result, .. }) = self.client.next() {
            let ticket = Ticket(token);
            let place = self.reads.remove(&ticket).expect("only reads are on the ring");
            let result = match result {
                Ok(Outcome::Read(buffer)) => self.with_changes(place, buffer),
                Ok(_) => unreachable!("a read ends as one"),
                Err(error) => Err(file_error(&error)),
            };
            self.end_read(ticket, result);
        }
    }

    /// The bytes of a file with what recovery has changed of them, if they are as many as were asked for.
    fn with_changes(&self, Place { file, offset, length }: Place, mut buffer: BytesMut) -> Result<Bytes, FileError> {
        if buffer.len() < length {
            return Err(FileError::Other("the file ends too early".to_owned()));
        }
        // A buffer may have more room than was asked for.
        buffer.truncate(length);
        self.files.apply(file, offset, &mut buffer);
        Ok(buffer.freeze())
    }

    fn end_read(&mut self, ticket: Ticket, result: Result<Bytes, FileError>) {
        if let Err(error) = &result {
            self.media_errors += 1;
            self.trouble.get_or_insert_with(|| (0, error.clone())).0 += 1;
        }
        self.image.on_file_done(ticket, result);
    }
}

impl ZonedDevice for ReadOnlyImage {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        assert_eq!(namespace, NamespaceId::FIRST, "an image has one namespace");
        self.image.geometry()
    }

    /// A flush has nothing to do. What would change something ends with Write Fault; servers refuse it before, with the status of
    /// their protocol.
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
                self.completions.push_back(Completion::of(id, Status::WriteFault));
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

    fn next_wakeup(&self) -> Option<Instant> {
        // The ring wakes whoever waits for a file.
        self.has_news.then_some(Instant::ZERO)
    }
}

impl Drive for ReadOnlyImage {
    fn facts(&self) -> DriveFacts {
        facts_of(&self.image, self.elements())
    }

    fn forget_reads(&mut self, blocks: u64) {
        self.image.forget_reads(blocks);
    }

    fn media_errors(&self) -> u64 {
        self.media_errors
    }

    fn take_trouble(&mut self) -> Option<String> {
        if let Some(note) = self.notes.pop_front() {
            return Some(note);
        }
        let (count, first) = self.trouble.take()?;
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
