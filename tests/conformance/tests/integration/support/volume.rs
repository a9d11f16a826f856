//! Redundant volumes: of model drives in virtual time, and of images on a ring.

use std::path::Path;

use tempfile::TempDir;
use zonda_config::ByteSize;
use zonda_conformance::TestBackend;
use zonda_devices::{Location, NewVolume, VolumeDrive, create_image_of};
use zonda_image::ImageSpec;
use zonda_raid::{Level, MemberIndex, MountOptions, Scheme, Volume, VolumeConfig, VolumeDevice};
use zonda_ring::{Ring, RingOptions};
use zonda_ssd::Ssd;
use zonda_ssd::profile::Profile;
use zonda_stack::{Factory, Node, Stack, VolumeNode};
use zonda_zoned::{
    Blocks, Command, CompletionQueue, Geometry, Instant, NamespaceId, Namespaces, PayloadKind, Prng, QueueFull,
    ZonedDevice,
};

use super::real::Live;

pub const RAID5: Scheme = Scheme { level: Level::Raid5, data: 3, parity: 1 };
pub const RAID1: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };

/// Zones of a member, the superblocks' included.
const MEMBER_ZONES: u32 = 48;
/// The zones of a member that a volume of the requested size needs at most.
const MEMBER_ZONES_USED: u64 = 12;

/// Members that together hold a volume of this geometry.
fn member_geometry(volume: &Geometry, scheme: Scheme, metadata_bytes: u16) -> Geometry {
    let zone_blocks = volume.namespace_blocks().0.div_ceil(MEMBER_ZONES_USED * u64::from(scheme.data)).max(64);
    Geometry {
        block_size_bytes: volume.block_size_bytes,
        metadata_bytes,
        zone_size_blocks: Blocks(zone_blocks),
        zone_capacity_blocks: Blocks(zone_blocks),
        zone_count: MEMBER_ZONES,
        max_active_zones: Some(8),
        max_open_zones: Some(8),
        max_transfer_blocks: Blocks(64),
        max_append_blocks: Blocks(32),
        ..Geometry::tiny()
    }
}

/// Builds the model drives of a volume.
struct Drives {
    geometry: Geometry,
    profile: Option<Profile>,
}

impl Factory<()> for Drives {
    type Drive = Ssd;
    type Error = std::convert::Infallible;

    fn drive(&mut self, (): &(), _prng: &Prng) -> Result<Ssd, Self::Error> {
        let (drive, profile) = super::ssd(&self.geometry, PayloadKind::Bytes);
        self.profile = Some(profile);
        Ok(drive)
    }
}

/// A volume of model drives, in virtual time.
pub struct ModelVolume {
    /// Absent only during a power cycle.
    device: Option<VolumeDevice<Stack<Ssd>>>,
    profile: Profile,
    now: Instant,
}

/// A volume of this geometry, built as a device graph; `None` if no volume has such a geometry.
pub fn model_volume(geometry: &Geometry, scheme: Scheme, metadata_bytes: u16) -> Option<ModelVolume> {
    let mut config = VolumeConfig::new("volume", scheme);
    config.volume_blocks = Some(geometry.namespace_blocks().0);
    let member = member_geometry(geometry, scheme, metadata_bytes);
    let (own, _) = config.preview(&vec![member.clone(); scheme.members()]).ok()?;
    if own != *geometry {
        return None;
    }
    let mut drives = Drives { geometry: member, profile: None };
    let node = Node::Volume(VolumeNode { config, members: vec![Node::Drive(()); scheme.members()] });
    let Ok(stack) = node.build(&mut drives, &Prng::new(3));
    let Stack::Volume(device) = stack else { unreachable!("the graph is a volume") };
    let profile = drives.profile.expect("a volume has members");
    let mut volume = ModelVolume { device: Some(*device), profile, now: Instant::ZERO };
    volume.run_until_ready();
    Some(volume)
}

impl ModelVolume {
    /// The volume without one of its members: every read of its blocks is reconstructed.
    #[must_use]
    pub fn degraded(mut self, member: MemberIndex) -> ModelVolume {
        let now = self.now;
        self.device_mut().volume_mut().fail_member(now, member);
        self.device_mut().process(now);
        assert!(self.device().volume().is_degraded(), "a member has failed");
        self
    }

    fn run_until_ready(&mut self) {
        let mut completions = CompletionQueue::new();
        while !self.device().volume().is_ready() {
            assert_eq!(self.device().volume().failure(), None, "the volume has all its members");
            self.wait();
            let now = self.now;
            self.device_mut().poll(now, &mut completions);
        }
        assert!(completions.is_empty(), "no host has submitted anything yet");
    }

    fn device(&self) -> &VolumeDevice<Stack<Ssd>> {
        self.device.as_ref().expect("the power is on")
    }

    fn device_mut(&mut self) -> &mut VolumeDevice<Stack<Ssd>> {
        self.device.as_mut().expect("the power is on")
    }
}

impl ZonedDevice for ModelVolume {
    fn namespaces(&self) -> &Namespaces {
        self.device().namespaces()
    }

    fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
        self.device_mut().submit(now, command)
    }

    fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
        self.device_mut().poll(now, completions);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.device().next_timeout()
    }
}

impl TestBackend for ModelVolume {
    fn now(&mut self) -> Instant {
        self.now
    }

    fn wait(&mut self) {
        self.now = self.now.max(self.device().next_timeout().unwrap_or(self.now));
    }

    fn random_commands(&self) -> u64 {
        500
    }

    /// All members lose their power, and the volume is mounted again.
    fn power_cycle(&mut self) -> bool {
        let (volume, members) = self.device.take().expect("the power is on").into_parts();
        let tuning = volume.tuning().clone();
        let options = MountOptions { newest_epoch: Some(volume.epoch()), ..MountOptions::of(volume.array()) };
        let cycled = |member: Stack<Ssd>| {
            let Stack::Drive(drive) = member else { unreachable!("members have no layers") };
            Stack::Drive(Box::new(super::cycle(*drive, &self.profile)))
        };
        let members: Vec<Option<Stack<Ssd>>> = members.into_iter().map(|member| member.map(cycled)).collect();
        let geometry = |member: &Option<Stack<Ssd>>| Some(member.as_ref()?.geometry(NamespaceId::FIRST).clone());
        let volume = Volume::mount(members.iter().map(geometry).collect(), tuning, options);
        self.device = Some(VolumeDevice::new(volume.expect("it is a volume"), members));
        self.run_until_ready();
        true
    }

    fn check_invariants(&mut self) {
        self.device().volume().check_invariants();
    }
}

/// A volume of images, on a ring, as a server opens it.
pub fn volume_of_images(geometry: &Geometry, scheme: Scheme) -> Option<Live<VolumeDrive>> {
    let directory = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a directory can be created");
    let member = member_geometry(geometry, scheme, 64);
    let create = |number: u8| {
        let path = directory.path().join(format!("member{number}"));
        let spec = ImageSpec::new(member.clone(), String::new(), [number + 1; 16]);
        create_image_of(&path, &spec).expect("the directory is writable");
        Location::Image(path)
    };
    let locations = (0..scheme.members() as u8).map(create).collect();
    let bytes = geometry.namespace_blocks().bytes(geometry.block_size_bytes);
    let new = NewVolume { size: Some(ByteSize(bytes)), ..NewVolume::over(locations, scheme) };
    let ring = Ring::new(RingOptions::default()).expect("the event loop can be created");
    let volume = VolumeDrive::create(&directory.path().join("volume"), &new, &ring).expect("the members are empty");
    if volume.geometry(NamespaceId::FIRST) != geometry {
        return None;
    }
    let reopen = |path: &Path, ring: &Ring| VolumeDrive::open(&path.join("volume"), ring).ok();
    Some(Live::local(volume, ring, directory, reopen))
}
