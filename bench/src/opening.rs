//! Time to open an image after a crash, by its contents, and the amount of data read.
//!
//! The image is made, written to and dropped as a program that dies. Its files are on tmpfs where
//! there is one, so that no disk is measured. Beside it stands a check, which reads every block
//! that was written, with its tag.

use std::path::Path;

use bytes::Bytes;
use serde::Serialize;
use zonda_image::{FileCommand, FileError, FileOperation, Files, Image, ImageFile, ImageSpec, check, create, open};
use zonda_ring::{File, FileOptions};
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, CompletionQueue, Geometry, Instant, Lba, LbaRange, NamespaceId, Operation,
    Payload,
};

use crate::host::{cpu_ns, median};

const ROUNDS: usize = 5;
const BLOCK_BYTES: u32 = 4096;

/// The contents of an image at the crash.
struct Case {
    name: &'static str,
    zones: u32,
    zone_blocks: u64,
    conventional: bool,
    fill: fn(&mut Drive),
}

const CASES: [Case; 4] = [
    Case {
        name: "4,096 zones of 4 MiB, written with zeros",
        zones: 4096,
        zone_blocks: 1024,
        conventional: false,
        fill: |drive| drive.for_each_zone(|start| Operation::WriteZeroes { start, blocks: Blocks(1024) }),
    },
    Case {
        name: "40,704 zones of 96 MiB, empty",
        zones: 40_704,
        zone_blocks: 24_576,
        conventional: false,
        fill: |_| {},
    },
    Case {
        name: "40,704 zones of 96 MiB, a block in each",
        zones: 40_704,
        zone_blocks: 24_576,
        conventional: false,
        fill: |drive| drive.for_each_zone(|start| Operation::Write { start, blocks: Blocks(1), payload: one_block() }),
    },
    Case {
        name: "7,680 deallocations of 256 MiB each",
        zones: 4,
        zone_blocks: 1 << 16,
        conventional: true,
        fill: |drive| {
            for _ in 0..30 {
                let range = LbaRange { start: Lba(0), blocks: Blocks(1 << 16) };
                drive.run(Operation::Deallocate { ranges: vec![range; 256].into() });
            }
        },
    },
];

/// One figure.
#[derive(Serialize)]
struct Figure {
    case: &'static str,
    /// CPU time, medians of the rounds.
    open_ms: f64,
    check_ms: f64,
    /// Bytes read when opening.
    read_bytes: u64,
    found_blocks: u64,
}

fn one_block() -> Payload {
    let data: Bytes = vec![7; BLOCK_BYTES as usize].into();
    Payload::Bytes(Box::new(BlockBuffer { data, metadata: Bytes::new() }))
}

/// The five files of an image, and the number of bytes read.
struct Directory {
    files: [File; 5],
    read_bytes: u64,
}

impl Directory {
    fn make(path: &Path) -> Directory {
        let files = ImageFile::ALL
            .map(|file| File::open(&path.join(file.name()), FileOptions::create_new()).expect("the directory is new"));
        Directory { files, read_bytes: 0 }
    }

    fn file(&self, file: ImageFile) -> &File {
        &self.files[file as usize]
    }

    fn carry_out(&mut self, operation: FileOperation) -> Result<Bytes, FileError> {
        match operation {
            FileOperation::Read { file, offset, length } => {
                let mut buffer = vec![0; length];
                self.read_at(file, offset, &mut buffer).map(|_| buffer.into())
            }
            FileOperation::Write { file, mut offset, pieces } => {
                for piece in pieces {
                    self.write_at(file, offset, &piece)?;
                    offset += piece.len() as u64;
                }
                Ok(Bytes::new())
            }
            FileOperation::PunchHole { file, offset, length } => {
                self.punch_hole(file, offset, length).map(|()| Bytes::new())
            }
            FileOperation::Sync { .. } | FileOperation::Allocate { .. } => Ok(Bytes::new()),
        }
    }
}

fn failed(error: &std::io::Error) -> FileError {
    FileError::Other(error.to_string())
}

impl Files for Directory {
    fn read_at(&mut self, file: ImageFile, offset: u64, buffer: &mut [u8]) -> Result<usize, FileError> {
        let found = self.file(file).read_at(buffer, offset).map_err(|error| failed(&error))?;
        self.read_bytes += found as u64;
        Ok(found)
    }

    fn write_at(&mut self, file: ImageFile, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.file(file).write_at(bytes, offset).map_err(|error| failed(&error))
    }

    fn sync(&mut self, file: ImageFile) -> Result<(), FileError> {
        self.file(file).sync().map_err(|error| failed(&error))
    }

    fn set_length(&mut self, file: ImageFile, length: u64) -> Result<(), FileError> {
        self.file(file).set_length(length).map_err(|error| failed(&error))
    }

    fn length(&mut self, file: ImageFile) -> Result<u64, FileError> {
        self.file(file).length().map_err(|error| failed(&error))
    }

    fn punch_hole(&mut self, file: ImageFile, offset: u64, length: u64) -> Result<(), FileError> {
        self.file(file).punch_hole(offset, length).map_err(|error| failed(&error))
    }

    fn next_data(&mut self, file: ImageFile, offset: u64) -> Result<Option<u64>, FileError> {
        self.file(file).next_data(offset).map_err(|error| failed(&error))
    }
}

/// An open image whose file operations are executed synchronously.
struct Drive {
    image: Image,
    directory: Directory,
    ended: CompletionQueue,
}

impl Drive {
    fn run(&mut self, operation: Operation) {
        let command = Command::new(CommandId(0), NamespaceId::FIRST, operation);
        self.image.submit(Instant::ZERO, command).expect("an idle drive takes a command");
        while let Some(FileCommand { id, operation }) = self.image.poll_effect() {
            let result = self.directory.carry_out(operation);
            self.image.on_completion(id, result);
        }
        self.image.poll(&mut self.ended);
        while let Some(completion) = self.ended.pop() {
            assert!(completion.status.is_success(), "{completion:?}");
        }
    }

    fn for_each_zone(&mut self, operation: impl Fn(Lba) -> Operation) {
        let (zones, size) = (self.image.geometry().zone_count, self.image.geometry().zone_size_blocks.0);
        (0..u64::from(zones)).for_each(|zone| self.run(operation(Lba(zone * size))));
    }
}

/// Runs all cases and prints the results.
pub(crate) fn run_all(as_json: bool) {
    let figures: Vec<Figure> = CASES.iter().map(measure).collect();
    if as_json {
        println!("{}", serde_json::to_string_pretty(&figures).expect("figures are plain numbers"));
        return;
    }
    println!("{:<42} {:>10} {:>10} {:>10}", "image after a crash", "open ms", "reads MiB", "check ms");
    for Figure { case, open_ms, check_ms, read_bytes, .. } in figures {
        println!("{case:<42} {open_ms:>10.0} {:>10.1} {check_ms:>10.0}", read_bytes as f64 / f64::from(1 << 20));
    }
}

fn measure(case: &Case) -> Figure {
    let geometry = Geometry {
        block_size_bytes: BLOCK_BYTES,
        metadata_bytes: if case.conventional { 8 } else { 0 },
        zone_count: case.zones,
        conventional_zone_count: if case.conventional { case.zones } else { 0 },
        zone_size_blocks: Blocks(case.zone_blocks),
        zone_capacity_blocks: Blocks(case.zone_blocks),
        max_transfer_blocks: Blocks(case.zone_blocks),
        max_active_zones: None,
        max_open_zones: None,
        zrwa: None,
        ..Geometry::tiny()
    };
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    let place = place.expect("there is a place for temporary files");
    let (mut opens, mut checks) = (Vec::new(), Vec::new());
    let (mut read_bytes, mut found_blocks) = (0, 0);
    for round in 0..ROUNDS {
        let path = place.path().join(round.to_string());
        std::fs::create_dir(&path).expect("the directory is new");
        let mut directory = Directory::make(&path);
        create(&ImageSpec::new(geometry.clone(), String::new(), [7; 16]), &mut directory).expect("the disk has space");
        let (image, _) = open(&mut directory).expect("the image is new");
        let mut drive = Drive { image, directory, ended: CompletionQueue::new() };
        (case.fill)(&mut drive);
        // The program dies.
        let mut directory = drive.directory;
        let begun = cpu_ns();
        check(&mut directory, &mut |_| {}).expect("nothing is damaged");
        checks.push((cpu_ns() - begun) as f64 / 1e6);
        directory.read_bytes = 0;
        let begun = cpu_ns();
        let (_, report) = open(&mut directory).expect("nothing is damaged");
        opens.push((cpu_ns() - begun) as f64 / 1e6);
        (read_bytes, found_blocks) = (directory.read_bytes, report.found_blocks);
        std::fs::remove_dir_all(&path).expect("it is there");
    }
    Figure { case: case.name, open_ms: median(opens), check_ms: median(checks), read_bytes, found_blocks }
}
