//! [`FileBacked`]: a drive on the files of an image.

mod gather;

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::fstatvfs;
use zonda_image::limits::RESERVATIONS_BYTES_MAX;
use zonda_image::{Counters, FileCommand, FileCommandId, FileError, FileOperation, Image, ImageFile, RecoveryReport};
use zonda_nvme::identify::NamespaceIdentity;
use zonda_nvme::reservation::SAVED_RESERVATIONS_BYTES_MAX;
use zonda_ring::{Bytes, BytesMut, Client, Done, File, Operation, Outcome, Ring};
use zonda_ssd::allocation::ElementTracker;
use zonda_zoned::{
    Blocks, Command, CompletionQueue, Geometry, Instant, Namespaces, Operation as HostOperation, QueueFull, ZoneIndex,
    ZoneState, ZoneTarget, ZonedDevice,
};

use crate::directory::{DirectoryParts, exposed_files, file_error};
use crate::drive::visit_table;
use crate::elements::ElementStore;
use crate::space::SpaceWatch;
use crate::{Drive, DriveError, DriveFacts, ImageDirectory, LifeCounters, SpaceFacts};
use gather::{FileWrite, Gathering};

/// An open and locked image, whose file operations run on a ring.
///
/// The image ([`zonda_image::Image`]) defines all rules and ordering; this only executes its file
/// operations.
pub struct FileBacked {
    image: Image,
    namespaces: Namespaces,
    /// The UUID of the image, which a copy of its files shares.
    identity: NamespaceIdentity,
    /// Present where the profile builds zones of storage elements.
    elements: Option<ElementStore>,
    client: Client,
    files: [Rc<File>; ImageFile::ALL.len()],
    /// Holds the lock.
    _directory: ImageDirectory,
    /// Bytes requested by each read in flight, by id; reads that return fewer have failed.
    reads: VecDeque<(FileCommandId, usize)>,
    /// Writes to be coalesced and submitted next.
    gathering: Gathering,
    /// The writes of each coalesced operation in flight, by the id of the first.
    gathered: HashMap<FileCommandId, Vec<FileWrite>>,
    /// Commands were submitted since the last poll: some complete without a file operation.
    has_news: bool,
    is_closing: bool,
    media_errors: u64,
    /// File operations that failed since the last warning, and the error of the first one.
    warning: Option<(u64, FileError)>,
    space: SpaceWatch,
    /// Writes of blocks in flight that were submitted while the file system was full.
    begun_while_full: HashSet<FileCommandId>,
    /// Syncs in flight.
    syncs: HashSet<FileCommandId>,
    /// Warnings from opening that were not taken yet.
    notes: VecDeque<String>,
}

/// An image that was opened and recovered, and is not attached to a ring yet. The ring may belong
/// to another thread.
pub(crate) struct PreparedImage {
    image: Image,
    report: RecoveryReport,
    directory: DirectoryParts,
}

impl PreparedImage {
    /// Opens an image, and recovers it after a crash. Blocks on the disk.
    pub(crate) fn open(path: &Path) -> Result<PreparedImage, DriveError> {
        let mut directory = ImageDirectory::lock(path)?;
        let (image, report) = zonda_image::open(&mut directory).map_err(|error| unusable_image(path, &error))?;
        let directory = directory.into_parts().map_err(|error| {
            DriveError::new(format!("cannot open the files of {}: {error}", path.display()), "check the directory")
        })?;
        Ok(PreparedImage { image, report, directory })
    }
}

impl FileBacked {
    /// Opens an image, and recovers it after a crash.
    ///
    /// # Errors
    /// When the image does not exist, is in use, or is damaged beyond repair.
    pub fn open(path: &Path, ring: &Ring) -> Result<(FileBacked, RecoveryReport), DriveError> {
        Ok(FileBacked::of(PreparedImage::open(path)?, [ring.client(), ring.client()]))
    }

    /// Attaches an image to a ring.
    pub(crate) fn of(prepared: PreparedImage, clients: [Client; 2]) -> (FileBacked, RecoveryReport) {
        let PreparedImage { image, report, directory } = prepared;
        let mut directory = ImageDirectory::from_parts(directory);
        let files = ImageFile::ALL.map(|file| directory.file(file).expect("it was opened with the others"));
        let [client, elements_client] = clients;
        let elements = ElementStore::open(directory.path(), image.spec(), image.zones(), elements_client);
        let mut notes: VecDeque<String> = exposed_files(directory.path()).into_iter().collect();
        let elements = elements.unwrap_or_else(|why| {
            notes.push_back(why);
            None
        });
        let identity = NamespaceIdentity { uuid: Some(image.spec().uuid), ..NamespaceIdentity::default() };
        let drive = FileBacked {
            namespaces: Namespaces::single(image.geometry().clone()),
            image,
            identity,
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
            warning: None,
            space: SpaceWatch::default(),
            begun_while_full: HashSet::new(),
            syncs: HashSet::new(),
            notes,
        };
        (drive, report)
    }

    /// The image.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The storage elements, where the profile builds zones of them.
    #[must_use]
    pub fn elements(&self) -> Option<&ElementTracker> {
        self.elements.as_ref().map(ElementStore::tracker)
    }

    /// Why the storage elements were reset when the drive was opened; `None`: they were loaded, or
    /// there are none.
    #[must_use]
    pub fn elements_reset_reason(&self) -> Option<&str> {
        self.elements.as_ref()?.reset_reason()
    }

    /// Simulates a media failure: the zone becomes read only or offline, persistently.
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

    /// Submits the file operations of the image to the ring, and coalesces adjacent writes.
    fn carry_out(&mut self) {
        while let Some(FileCommand { id, operation }) = self.image.poll_effect() {
            let file = operation.file();
            let operation = match operation {
                FileOperation::Read { offset, length, .. } => {
                    self.reads.push_back((id, length));
                    Operation::Read { file: self.file(file), offset, buffer: BytesMut::with_capacity(length) }
                }
                FileOperation::Write { offset, pieces, .. } => {
                    self.gathering.add(FileWrite { id, file, offset, pieces });
                    continue;
                }
                FileOperation::Sync { .. } => {
                    self.syncs.insert(id);
                    Operation::Sync { file: self.file(file), data_only: true }
                }
                FileOperation::PunchHole { offset, length, .. } => {
                    Operation::PunchHole { file: self.file(file), offset, length }
                }
                FileOperation::Allocate { offset, length, .. } => {
                    Operation::Allocate { file: self.file(file), offset, length }
                }
            };
            self.client.submit(id.0, operation);
        }
        let mut gathering = std::mem::take(&mut self.gathering);
        for writes in gathering.drain() {
            let FileWrite { id, file, offset, .. } = writes[0];
            let pieces = writes.iter().flat_map(|write| write.pieces.iter().cloned()).collect();
            self.client.submit(id.0, Operation::Write { file: self.file(file), offset, pieces });
            // The blocks of state and journal are allocated at creation.
            if self.space.facts().is_full && matches!(file, ImageFile::Data | ImageFile::Tags) {
                self.begun_while_full.insert(id);
            }
            if writes.len() > 1 {
                self.gathered.insert(id, writes);
            }
        }
        self.gathering = gathering;
    }

    /// Continues to save the storage elements; saves them a last time once the image is quiescent.
    fn save_elements(&mut self, now: Instant) {
        let is_quiescent = self.is_quiescent();
        if let Some(elements) = &mut self.elements {
            elements.poll(now, self.image.zones());
            if is_quiescent {
                elements.end(now, self.image.zones());
            }
        }
    }

    /// Whether the drive is being closed, and its image is closed.
    fn is_quiescent(&self) -> bool {
        self.is_closing && self.image.is_idle() && self.client.outstanding() == 0
    }

    fn file(&self, file: ImageFile) -> Rc<File> {
        Rc::clone(&self.files[file as usize])
    }

    /// Passes the results of file operations to the image.
    fn collect(&mut self, now: Instant) {
        while let Some(Done { token, result, .. }) = self.client.next() {
            let id = FileCommandId(token);
            if self.begun_while_full.remove(&id) && result.is_ok() {
                self.space.succeeded();
            }
            if let Some(writes) = self.gathered.remove(&id) {
                self.end_gathered(writes, result.is_ok());
                continue;
            }
            let result = match result {
                Ok(Outcome::Read(buffer)) => self.whole(id, buffer),
                Ok(_) => Ok(Bytes::new()),
                Err(error) => {
                    self.forget_read(id);
                    Err(file_error(&error))
                }
            };
            // A sync that fails for lack of space loses acknowledged writes: it counts as a media
            // error.
            let is_sync = self.syncs.remove(&id);
            let is_full = result == Err(FileError::StorageFull);
            if is_full {
                self.space.failed(now, || free_bytes(&self.files));
            }
            if let Err(error) = &result
                && (is_sync || !is_full)
            {
                self.media_errors += 1;
                self.warning.get_or_insert_with(|| (0, error.clone())).0 += 1;
            }
            self.image.on_completion(id, result);
        }
    }

    /// A coalesced write has ended. If it failed, each of its writes is retried on its own, so that
    /// those that can succeed do.
    fn end_gathered(&mut self, writes: Vec<FileWrite>, succeeded: bool) {
        for FileWrite { id, file, offset, pieces } in writes {
            if succeeded {
                self.image.on_completion(id, Ok(Bytes::new()));
            } else {
                self.client.submit(id.0, Operation::Write { file: self.file(file), offset, pieces });
            }
        }
    }

    /// The bytes of a read, if they are as many as were requested.
    fn whole(&mut self, id: FileCommandId, buffer: BytesMut) -> Result<Bytes, FileError> {
        let wanted = self.forget_read(id).expect("a read that completes was submitted");
        if buffer.len() < wanted {
            return Err(FileError::Other("unexpected end of file".to_owned()));
        }
        let mut bytes = buffer.freeze();
        // A buffer may have more capacity than was requested.
        bytes.truncate(wanted);
        Ok(bytes)
    }

    fn forget_read(&mut self, id: FileCommandId) -> Option<usize> {
        // Reads complete nearly in the order of submission.
        let place = self.reads.iter().position(|(known, _)| *known == id)?;
        self.reads.remove(place).map(|(_, length)| length)
    }
}

impl ZonedDevice for FileBacked {
    fn namespaces(&self) -> &Namespaces {
        &self.namespaces
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
        // It is submitted with the others of its batch.
        self.has_news = true;
        Ok(())
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.has_news = false;
        self.collect(now);
        self.space.look(now, || free_bytes(&self.files));
        self.image.poll(completions);
        self.carry_out();
        self.save_elements(now);
    }

    fn next_timeout(&self) -> Option<Instant> {
        // The ring wakes the caller when a file operation completes.
        let save_at = self.elements.as_ref().and_then(ElementStore::next_timeout);
        let wakeup = save_at.into_iter().chain(self.space.next_timeout()).min();
        if self.has_news { Some(Instant::ZERO) } else { wakeup }
    }
}

impl Drive for FileBacked {
    fn identity(&self) -> Option<&NamespaceIdentity> {
        Some(&self.identity)
    }

    fn image_profile(&self) -> Option<&str> {
        Some(&self.image.spec().profile)
    }

    fn forget_reads(&mut self, blocks: u64) {
        self.image.forget_reads(blocks);
    }

    fn facts(&self) -> DriveFacts {
        facts_of(&self.image, self.elements())
    }

    fn visit_zones(&self, visit: &mut dyn FnMut(ZoneState, Blocks)) {
        visit_table(self.image.zones(), visit);
    }

    fn media_errors(&self) -> u64 {
        self.media_errors
    }

    fn space(&self) -> Option<SpaceFacts> {
        Some(self.space.facts())
    }

    fn saved_reservations(&self) -> Option<Bytes> {
        Some(Bytes::copy_from_slice(self.image.reservations()))
    }

    fn save_reservations(&mut self, _now: Instant, bytes: Bytes) {
        self.image.save_reservations(bytes);
        // It is submitted with the next poll.
        self.has_news = true;
    }

    fn take_reservations_saved(&mut self) -> Option<bool> {
        self.image.take_reservations_saved()
    }

    fn take_warning(&mut self) -> Option<String> {
        let note = self.notes.pop_front().or_else(|| self.space.take_news());
        if let Some(note) = note.or_else(|| self.elements.as_mut()?.take_warning()) {
            return Some(note);
        }
        let (count, first) = self.warning.take()?;
        Some(match count {
            1 => format!("a file operation failed: {first}"),
            _ => format!("{count} file operations failed, the first with: {first}"),
        })
    }

    fn close(&mut self, now: Instant) {
        if !self.is_closing {
            self.is_closing = true;
            self.image.shutdown();
            self.carry_out();
            self.save_elements(now);
        }
    }

    fn close_error(&self) -> Option<String> {
        let error = self.image.shutdown_result()?.as_ref().err()?;
        Some(format!("the last flush failed: {error}"))
    }

    fn is_closed(&self) -> bool {
        self.is_quiescent() && self.elements.as_ref().is_none_or(ElementStore::has_ended)
    }
}

/// Free space for this user on the file system of an image; `None` where it is not known.
fn free_bytes(files: &[Rc<File>]) -> Option<u64> {
    let found = fstatvfs(&files[ImageFile::Data as usize]).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// An image has space for the reservations that a target saves.
const _: () = assert!(SAVED_RESERVATIONS_BYTES_MAX <= RESERVATIONS_BYTES_MAX);

/// Zones whose contents a command may change.
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
        // A command that starts in no zone fails.
        geometry.zone_of(*block).map_or(Touched::Nothing, Touched::Zone)
    }
}

/// The facts of an image, and of the elements of its zones.
pub(crate) fn facts_of(image: &Image, elements: Option<&ElementTracker>) -> DriveFacts {
    let wear = (0..image.geometry().zone_count).map(|zone| image.wear(ZoneIndex(zone)));
    let life = life_of(&image.counters(), image.geometry(), wear);
    let facts = DriveFacts::of_zones(image.zones());
    match elements {
        None => DriveFacts { life: Some(life), ..facts },
        Some(tracker) => {
            DriveFacts { life: Some(life.with_elements(tracker)), elements: Some(tracker.facts()), ..facts }
        }
    }
}

/// The counters of an image, in bytes, and the wear of its zones. For a drive with storage elements
/// see [`LifeCounters::with_elements`].
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
        life.wear_units += 1;
        life.erases_min = life.erases_min.min(erases);
        life.erases_max = life.erases_max.max(erases);
        life.erases_total += erases;
    }
    life
}

/// The error for an image that cannot be opened, with its remedy.
#[must_use]
pub fn unusable_image(path: &Path, error: &zonda_image::ImageError) -> DriveError {
    let help = error.remedy().unwrap_or("check the directory");
    let help = help.replace(" DIR ", &format!(" {} ", path.display()));
    DriveError::new(format!("cannot open the image in {}: {}", path.display(), error.message()), help)
}
