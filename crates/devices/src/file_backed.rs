//! [`FileBacked`]: a drive whose media are files.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::fstatvfs;
use zonda_image::limits::RESERVATIONS_BYTES_MAX;
use zonda_image::{Counters, FileCommand, FileError, FileOperation, Image, ImageFile, RecoveryReport, Ticket};
use zonda_nvme::reservation::SAVED_RESERVATIONS_BYTES_MAX;
use zonda_ring::{Bytes, BytesMut, Client, Done, File, Operation, Outcome, Ring};
use zonda_ssd::allocation::ElementBook;
use zonda_zoned::{
    Blocks, Command, CompletionQueue, Geometry, Instant, NamespaceId, Operation as HostOperation, QueueFull, ZoneIndex,
    ZoneState, ZoneTarget, ZonedDevice,
};

use crate::directory::{DirectoryParts, exposed_files, file_error};
use crate::elements::ElementKeeper;
use crate::gather::{FileWrite, Gathering};
use crate::space::SpaceWatch;
use crate::{Drive, DriveError, DriveFacts, ImageDirectory, LifeCounters, SpaceFacts};

/// An image, opened and locked, its file operations on a ring.
///
/// All rules and all order are the image's ([`zonda_image::Image`]); this only carries out what it asks for.
pub struct FileBacked {
    image: Image,
    /// Where the profile builds zones of storage elements.
    elements: Option<ElementKeeper>,
    client: Client,
    files: [Rc<File>; ImageFile::ALL.len()],
    /// Holds the lock.
    _directory: ImageDirectory,
    /// Bytes that each read under way was asked for, by ticket; reads that bring fewer have failed.
    reads: VecDeque<(Ticket, usize)>,
    /// Writes for the next round of file operations.
    gathering: Gathering,
    /// The writes of each operation under way that has several, by the ticket of the first.
    gathered: HashMap<Ticket, Vec<FileWrite>>,
    /// Commands were taken since the last poll: some end without a file being touched.
    has_news: bool,
    is_closing: bool,
    media_errors: u64,
    /// Since somebody last asked: file operations that failed, and why the first of them did.
    trouble: Option<(u64, FileError)>,
    space: SpaceWatch,
    /// Writes of blocks under way that were begun while the file system was full.
    begun_while_full: HashSet<Ticket>,
    /// Syncs under way.
    syncs: HashSet<Ticket>,
    /// What opening has found and nobody was told yet.
    notes: VecDeque<String>,
}

/// An image that was opened and repaired, before it is put on a ring. That may be another thread's.
pub(crate) struct PreparedImage {
    image: Image,
    report: RecoveryReport,
    directory: DirectoryParts,
}

impl PreparedImage {
    /// Opens an image, and repairs what a crash has left. Waits for the disk.
    pub(crate) fn open(path: &Path) -> Result<PreparedImage, DriveError> {
        let mut directory = ImageDirectory::lock(path)?;
        let (image, report) = zonda_image::open(&mut directory).map_err(|error| unusable_image(path, &error))?;
        let directory = directory.into_parts().map_err(|error| {
            DriveError::new(format!("the files of {} cannot be opened: {error}", path.display()), "see the directory")
        })?;
        Ok(PreparedImage { image, report, directory })
    }
}

impl FileBacked {
    /// Opens an image, and repairs what a crash has left.
    ///
    /// # Errors
    /// When there is none, another program has it, or it is damaged beyond repair.
    pub fn open(path: &Path, ring: &Ring) -> Result<(FileBacked, RecoveryReport), DriveError> {
        Ok(FileBacked::of(PreparedImage::open(path)?, [ring.client(), ring.client()]))
    }

    /// Puts an image on a ring.
    pub(crate) fn of(prepared: PreparedImage, clients: [Client; 2]) -> (FileBacked, RecoveryReport) {
        let PreparedImage { image, report, directory } = prepared;
        let mut directory = ImageDirectory::from_parts(directory);
        let files = ImageFile::ALL.map(|file| directory.file(file).expect("it was opened with the others"));
        let [client, elements_client] = clients;
        let elements = ElementKeeper::open(directory.path(), image.spec(), image.zones(), elements_client);
        let mut notes: VecDeque<String> = exposed_files(directory.path()).into_iter().collect();
        let elements = elements.unwrap_or_else(|why| {
            notes.push_back(why);
            None
        });
        let drive = FileBacked {
            image,
            elements,
            client,
            files,
            _directory: directory,
            reads: VecDeque::new(),
            gathering: Gathering::default(),
            gathered: HashMap::new(),
            has_news: false,
            is_closing: false,
            media_errors: 0,
            trouble: None,
            space: SpaceWatch::default(),
            begun_while_full: HashSet::new(),
            syncs: HashSet::new(),
            notes,
        };
        (drive, report)
    }

    /// The image behind it.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Its storage elements, where the profile builds zones of them.
    #[must_use]
    pub fn elements(&self) -> Option<&ElementBook> {
        self.elements.as_ref().map(ElementKeeper::book)
    }

    /// Why the storage elements began anew when the drive was opened, in words; `None`: they were found, or there are none.
    #[must_use]
    pub fn elements_began_anew(&self) -> Option<&str> {
        self.elements.as_ref()?.anew()
    }

    /// What the world does: the medium of a zone gives up, and the zone becomes read only or offline. It is so after a
    /// restart, too.
    ///
    /// # Panics
    /// For a conventional zone, and for a state other than read only and offline.
    pub fn degrade(&mut self, zone: ZoneIndex, to: ZoneState) {
        self.image.degrade(zone, to);
        if let Some(elements) = &mut self.elements {
            elements.on_zone(zone, self.image.zones());
        }
        self.carry_out();
    }

    /// Hands what the image wants to the ring, neighbouring writes as one.
    fn carry_out(&mut self) {
        while let Some(FileCommand { ticket, operation }) = self.image.poll_effect() {
            let file = operation.file();
            let operation = match operation {
                FileOperation::Read { offset, length, .. } => {
                    self.reads.push_back((ticket, length));
                    Operation::Read { file: self.file(file), offset, buffer: BytesMut::with_capacity(length) }
                }
                FileOperation::Write { offset, pieces, .. } => {
                    self.gathering.add(FileWrite { ticket, file, offset, pieces });
                    continue;
                }
                FileOperation::Sync { .. } => {
                    self.syncs.insert(ticket);
                    Operation::Sync { file: self.file(file), data_only: true }
                }
                FileOperation::PunchHole { offset, length, .. } => {
                    Operation::PunchHole { file: self.file(file), offset, length }
                }
                FileOperation::Allocate { offset, length, .. } => {
                    Operation::Allocate { file: self.file(file), offset, length }
                }
            };
            self.client.submit(ticket.0, operation);
        }
        let mut gathering = std::mem::take(&mut self.gathering);
        for writes in gathering.drain() {
            let FileWrite { ticket, file, offset, .. } = writes[0];
            let pieces = writes.iter().flat_map(|write| write.pieces.iter().cloned()).collect();
            self.client.submit(ticket.0, Operation::Write { file: self.file(file), offset, pieces });
            // State and journal have their blocks from the start.
            if self.space.facts().is_full && matches!(file, ImageFile::Data | ImageFile::Tags) {
                self.begun_while_full.insert(ticket);
            }
            if writes.len() > 1 {
                self.gathered.insert(ticket, writes);
            }
        }
        self.gathering = gathering;
    }

    /// The elements go on with being saved; when all else is at rest they come to an end.
    fn keep_elements(&mut self, now: Instant) {
        let is_at_rest = self.is_at_rest();
        if let Some(elements) = &mut self.elements {
            elements.poll(now, self.image.zones());
            if is_at_rest {
                elements.end(now, self.image.zones());
            }
        }
    }

    /// Whether the drive is being closed, and its image is at the end of that.
    fn is_at_rest(&self) -> bool {
        self.is_closing && self.image.is_idle() && self.client.outstanding() == 0
    }

    fn file(&self, file: ImageFile) -> Rc<File> {
        Rc::clone(&self.files[file as usize])
    }

    /// Tells the image what has ended.
    fn collect(&mut self, now: Instant) {
        while let Some(Done { token, result, .. }) = self.client.next() {
            let ticket = Ticket(token);
            if self.begun_while_full.remove(&ticket) && result.is_ok() {
                self.space.succeeded();
            }
            if let Some(writes) = self.gathered.remove(&ticket) {
                self.end_gathered(writes, result.is_ok());
                continue;
            }
            let result = match result {
                Ok(Outcome::Read(buffer)) => self.whole(ticket, buffer),
                Ok(_) => Ok(Bytes::new()),
                Err(error) => {
                    self.forget_read(ticket);
                    Err(file_error(&error))
                }
            };
            // Room that is missed only when a sync looks for it has cost what was acknowledged: that is trouble like any other.
            let is_sync = self.syncs.remove(&ticket);
            let is_full = result == Err(FileError::StorageFull);
            if is_full {
                self.space.failed(now, || free_bytes(&self.files));
            }
            if let Err(error) = &result
                && (is_sync || !is_full)
            {
                self.media_errors += 1;
                self.trouble.get_or_insert_with(|| (0, error.clone())).0 += 1;
            }
            self.image.on_file_done(ticket, result);
        }
    }

    /// Several writes have ended as one. Where that failed, each is made again by itself: those that can succeed shall.
    fn end_gathered(&mut self, writes: Vec<FileWrite>, is_well: bool) {
        for FileWrite { ticket, file, offset, pieces } in writes {
            if is_well {
                self.image.on_file_done(ticket, Ok(Bytes::new()));
            } else {
                self.client.submit(ticket.0, Operation::Write { file: self.file(file), offset, pieces });
            }
        }
    }

    /// A read's bytes, if they are as many as were asked for.
    fn whole(&mut self, ticket: Ticket, buffer: BytesMut) -> Result<Bytes, FileError> {
        let wanted = self.forget_read(ticket).expect("a read that ends was begun");
        if buffer.len() < wanted {
            return Err(FileError::Other("the file ends too early".to_owned()));
        }
        let mut bytes = buffer.freeze();
        // A buffer may have more room than was asked for.
        bytes.truncate(wanted);
        Ok(bytes)
    }

    fn forget_read(&mut self, ticket: Ticket) -> Option<usize> {
        // Reads end nearly in the order of their beginning.
        let place = self.reads.iter().position(|(known, _)| *known == ticket)?;
        self.reads.remove(place).map(|(_, length)| length)
    }
}

impl ZonedDevice for FileBacked {
    fn geometry(&self, namespace: NamespaceId) -> &Geometry {
        assert_eq!(namespace, NamespaceId::FIRST, "an image has one namespace");
        self.image.geometry()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        assert!(!self.is_closing, "a drive that is being closed takes no commands");
        let touched = self.elements.is_some().then(|| Touched::by(&command.operation, self.image.geometry()));
        self.image.submit(now, command)?;
        if let (Some(elements), Some(touched)) = (&mut self.elements, touched) {
            match touched {
                Touched::Nothing => {}
                Touched::Zone(zone) => elements.on_zone(zone, self.image.zones()),
                Touched::All => elements.on_zones(self.image.zones()),
            }
        }
        // It is carried out with the others of its batch.
        self.has_news = true;
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.has_news = false;
        self.collect(now);
        self.space.look(now, || free_bytes(&self.files));
        self.image.poll(completions);
        self.carry_out();
        self.keep_elements(now);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        // The ring wakes whoever waits for a file.
        let save_at = self.elements.as_ref().and_then(ElementKeeper::next_wakeup);
        let wakeup = save_at.into_iter().chain(self.space.next_wakeup()).min();
        if self.has_news { Some(Instant::ZERO) } else { wakeup }
    }
}

impl Drive for FileBacked {
    fn forget_reads(&mut self, blocks: u64) {
        self.image.forget_reads(blocks);
    }

    fn facts(&self) -> DriveFacts {
        facts_of(&self.image, self.elements())
    }

    fn media_errors(&self) -> u64 {
        self.media_errors
    }

    fn space(&self) -> Option<SpaceFacts> {
        Some(self.space.facts())
    }

    fn kept_reservations(&self) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(self.image.reservations()))
    }

    fn keep_reservations(&mut self, _now: Instant, bytes: Bytes) {
        self.image.keep_reservations(bytes);
        // It is carried out with the next poll.
        self.has_news = true;
    }

    fn take_reservations_kept(&mut self) -> Option<bool> {
        self.image.take_reservations_kept()
    }

    fn take_trouble(&mut self) -> Option<String> {
        let note = self.notes.pop_front().or_else(|| self.space.take_news());
        if let Some(note) = note.or_else(|| self.elements.as_mut()?.take_trouble()) {
            return Some(note);
        }
        let (count, first) = self.trouble.take()?;
        Some(match count {
            1 => format!("a file operation failed: {first}"),
            _ => format!("{count} file operations failed, the first with: {first}"),
        })
    }

    fn close(&mut self, now: Instant) {
        if !self.is_closing {
            self.is_closing = true;
            self.image.close();
            self.carry_out();
            self.keep_elements(now);
        }
    }

    fn close_error(&self) -> Option<String> {
        let error = self.image.closed()?.as_ref().err()?;
        Some(format!("the last flush failed: {error}"))
    }

    fn is_closed(&self) -> bool {
        self.is_at_rest() && self.elements.as_ref().is_none_or(ElementKeeper::has_ended)
    }
}

/// What the file system of an image has left for this user; `None` where it does not say.
fn free_bytes(files: &[Rc<File>]) -> Option<u64> {
    let found = fstatvfs(&files[ImageFile::Data as usize]).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// An image has room for whatever a target wants kept.
const _: () = assert!(SAVED_RESERVATIONS_BYTES_MAX <= RESERVATIONS_BYTES_MAX);

/// Zones of which a command may change what they hold.
enum Touched {
    Nothing,
    Zone(ZoneIndex),
    All,
}

impl Touched {
    fn by(operation: &HostOperation, geometry: &Geometry) -> Touched {
        let (HostOperation::Write { start: block, .. }
        | HostOperation::WriteZeroes { start: block, .. }
        | HostOperation::Append { zone_start: block, .. }
        | HostOperation::ManageZones { target: ZoneTarget::Zone(block), .. }) = operation
        else {
            let is_of_all = matches!(operation, HostOperation::ManageZones { target: ZoneTarget::All, .. });
            return if is_of_all { Touched::All } else { Touched::Nothing };
        };
        // What starts in no zone is refused.
        geometry.zone_of(*block).map_or(Touched::Nothing, Touched::Zone)
    }
}

/// An image as it stands, and the elements of its zones.
pub(crate) fn facts_of(image: &Image, elements: Option<&ElementBook>) -> DriveFacts {
    let wear = (0..image.geometry().zone_count).map(|zone| image.wear(ZoneIndex(zone)));
    let life = life_of(&image.counters(), image.geometry(), wear);
    let facts = DriveFacts::of_zones(image.zones());
    match elements {
        None => DriveFacts { life: Some(life), ..facts },
        Some(book) => DriveFacts { life: Some(life.with_elements(book)), elements: Some(book.facts()), ..facts },
    }
}

/// What an image has counted, in bytes, and the wear of its zones. For a drive with storage elements see
/// [`LifeCounters::with_elements`].
#[must_use]
pub fn life_of(counters: &Counters, geometry: &Geometry, wear: impl Iterator<Item = u32>) -> LifeCounters {
    let bytes = |blocks: u64| Blocks(blocks).bytes(geometry.block_size_bytes);
    let mut life = LifeCounters {
        host_write_bytes: bytes(counters.host_written_blocks),
        device_write_bytes: bytes(counters.padding_blocks),
        host_read_bytes: bytes(counters.host_read_blocks),
        zone_resets: counters.erases,
        erases_min: u64::MAX,
        ..LifeCounters::default()
    };
    for erases in wear.map(u64::from) {
        life.worn_units += 1;
        life.erases_min = life.erases_min.min(erases);
        life.erases_max = life.erases_max.max(erases);
        life.erases_total += erases;
    }
    life
}

/// Why an image was refused, with what to do.
#[must_use]
pub fn unusable_image(path: &Path, error: &zonda_image::ImageError) -> DriveError {
    let help = error.remedy().unwrap_or("see the directory");
    let help = help.replace(" DIR ", &format!(" {} ", path.display()));
    DriveError::new(format!("the image in {} cannot be opened: {}", path.display(), error.message()), help)
}
