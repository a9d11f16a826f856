//! A store on the model of a drive, in virtual time.

use std::collections::VecDeque;

use zonda_profiles::builtin_text;
use zonda_ssd::Ssd;
use zonda_ssd::profile::Profile;
use zonda_zoned::{Geometry, Instant, PayloadKind, Prng};

use super::Host;
use crate::{Event, FileError, FileStore, FileStoreDevice, FilesConfig};

/// A simulation of a store on a model drive.
pub(crate) struct SsdSimulation {
    profile: Profile,
    config: FilesConfig,
    /// Absent while the power is off.
    files: Option<FileStoreDevice<Ssd>>,
    media: Option<zonda_ssd::Media>,
    now: Instant,
    prng: Prng,
    events: VecDeque<Event>,
}

impl SsdSimulation {
    /// A freshly formatted store on a new drive of the smallest profile.
    pub(crate) fn format(prng: Prng, config: impl FnOnce(&Geometry) -> FilesConfig) -> SsdSimulation {
        let profile = Profile::parse(builtin_text("tiny").expect("a built-in profile")).expect("which is valid");
        let config = config(&profile.geometry());
        let store = FileStore::format(&profile.geometry(), config, [2; 16]).expect("they match");
        let drive = Ssd::new(&profile, PayloadKind::Bytes, &prng);
        let files = Some(FileStoreDevice::new(store, drive));
        let mut testbed =
            SsdSimulation { profile, config, files, media: None, now: Instant::ZERO, prng, events: VecDeque::new() };
        testbed.start().expect("a new drive can be formatted");
        testbed
    }

    fn start(&mut self) -> Result<(), FileError> {
        self.drain();
        match self.events.pop_front() {
            Some(Event::Ready) => Ok(()),
            Some(Event::Failed(error)) => Err(error),
            other => panic!("a store that starts becomes ready or fails: {other:?}"),
        }
    }

    /// Advances time to the next event of the drive.
    pub(crate) fn step(&mut self) {
        let files = self.files.as_mut().expect("the power is on");
        files.run_once(self.now);
        if let Some(next) = files.next_timeout() {
            self.now = next;
            files.run_once(next);
        }
        files.store().check_invariants();
        while let Some(event) = files.poll_event() {
            self.events.push_back(event);
        }
    }

    /// The power fails.
    pub(crate) fn power_loss(&mut self) {
        let (_, drive) = self.files.take().expect("the power is on").into_parts();
        self.media = Some(drive.power_loss(&mut self.prng));
        self.events.clear();
    }

    /// The power comes back, and the store is mounted.
    pub(crate) fn mount(&mut self) -> Result<(), FileError> {
        let media = self.media.take().expect("the power is off");
        let drive = Ssd::power_on(&self.profile, media, &self.prng);
        self.now = Instant::ZERO;
        let store = FileStore::mount(&self.profile.geometry(), self.config)?;
        self.files = Some(FileStoreDevice::new(store, drive));
        self.start()
    }
}

impl Host for SsdSimulation {
    fn store(&mut self) -> &mut FileStore {
        self.files.as_mut().expect("the power is on").store_mut()
    }

    fn prng(&mut self) -> &mut Prng {
        &mut self.prng
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.store().poll_event())
    }

    fn drain(&mut self) {
        for _ in 0..1_000_000 {
            self.step();
            if self.files.as_ref().is_some_and(|files| files.next_timeout().is_none()) {
                return;
            }
        }
        panic!("the store does not become idle");
    }
}
