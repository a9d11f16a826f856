//! The members of a volume, damaged in any way: a mount succeeds or fails. A mounted volume completes
//! every command and, if no more members were damaged than it tolerates, can be mounted again. No read
//! returns data that was never written to the block, and data written after the damage is kept.
//!
//! ```text
//! 0 mode: 0 plain damage, 1 with corrected checksums   1 which volume   2 missing members, as bits
//! 3 the number of changes, then the changes: member, block (2 bytes), kind, offset (2 bytes), value   then commands
//! ```

mod bases;
mod host;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use zonda_nvme::tcp::crc32c;
use zonda_raid::{MountOptions, Volume, VolumeDevice};
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{
    Blocks, Command, CommandId, Geometry, Lba, NamespaceId, Operation, Outcome, Payload, ZoneState, ZonedDevice,
};

use crate::Seed;
use crate::feed::Feed;
use bases::{BASES, base};
use host::Host;

/// Changes of one input.
const CHANGES_MAX: usize = 24;
const COMMANDS_MAX: usize = 24;

pub(crate) fn run(input: &[u8]) {
    let mut feed = Feed::new(input);
    let (fits, which, absent) = (feed.below(2) == 1, feed.below(BASES), feed.u8());
    let base = base(which);
    let mut members: Vec<Option<ReferenceDevice>> = base.members.iter().cloned().map(Some).collect();
    let mut impaired = BTreeSet::new();
    for _ in 0..feed.below(CHANGES_MAX + 1) {
        impaired.extend(damage(&mut members, &mut feed, fits));
    }
    for (at, member) in members.iter_mut().enumerate() {
        if absent >> at & 1 == 1 {
            *member = None;
            impaired.insert(at);
        }
    }
    let is_tolerated = impaired.len() <= base.tolerance;
    let Some(mut host) = mounted(members) else { return };
    let mut history = base.written.clone();
    if !fits {
        host.read_everything(&history, &BTreeMap::new());
    }
    let mut latest: BTreeMap<u64, Bytes> = BTreeMap::new();
    for _ in 0..COMMANDS_MAX {
        if feed.is_empty() {
            break;
        }
        host.command(&mut feed, &mut history, &mut latest);
    }
    let is_kept = host.flush() && !fits;
    let again = mounted(host.into_members());
    // Beyond the tolerance, damage that the first mount did not read may be what the second one refuses.
    assert!(again.is_some() || !is_kept || !is_tolerated, "a mounted volume can be mounted again");
    if let Some(mut again) = again.filter(|_| is_kept) {
        again.read_everything(&history, &latest);
    }
}

/// The volume on these members, if it can be mounted.
fn mounted(members: Vec<Option<ReferenceDevice>>) -> Option<Host> {
    let geometry = |member: &ReferenceDevice| member.geometry(NamespaceId::FIRST).clone();
    let geometries = members.iter().map(|member| member.as_ref().map(geometry)).collect();
    match Volume::mount(geometries, bases::tuning(), MountOptions::default()) {
        Ok(volume) => Host::until_ready(VolumeDevice::new(volume, members)),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// One change of one block, or of the state of its zone. Returns the member that it has changed.
fn damage(members: &mut [Option<ReferenceDevice>], feed: &mut Feed<'_>, fits: bool) -> Option<usize> {
    let which = feed.below(members.len());
    let (block, kind, place, value) = (feed.u16(), feed.u8(), usize::from(feed.u16()), feed.u8());
    let member = members[which].as_mut()?;
    let geometry = member.geometry(NamespaceId::FIRST).clone();
    let lba = Lba(u64::from(block) % geometry.namespace_blocks().0);
    let zone = geometry.zone_of(lba)?;
    if kind % 16 > 13 {
        let to = if kind % 16 == 14 { ZoneState::ReadOnly } else { ZoneState::Offline };
        if !matches!(member.image(zone).state, ZoneState::Offline | ZoneState::ReadOnly) {
            member.degrade(zone, to);
        }
        return Some(which);
    }
    let mut bytes = contents(member, &geometry, lba)?;
    let at = place % bytes.len();
    let data_bytes = geometry.block_size_bytes as usize;
    match kind % 16 {
        0..=5 => bytes[at] ^= value,
        6..=9 => bytes[at] = value,
        10 => bytes[..data_bytes].fill(0),
        11 => bytes.fill(0),
        _ => {
            // As if one block had been written to the address of another.
            let from = Lba((lba.0 + 1 + u64::from(value)) % geometry.namespace_blocks().0);
            bytes = contents(member, &geometry, from)?;
        }
    }
    let (data, metadata) = bytes.split_at_mut(data_bytes);
    if fits && data.starts_with(b"ZV") {
        let sum = crc32c(&data[8..]);
        data[4..8].copy_from_slice(&sum.to_le_bytes());
    }
    member.set_block_bytes(lba, data, metadata);
    Some(which)
}

/// The contents of a block, data and then metadata, if it can be read.
fn contents(member: &mut ReferenceDevice, geometry: &Geometry, lba: Lba) -> Option<Vec<u8>> {
    let zone = geometry.zone_of(lba)?;
    if lba >= geometry.zone_start(zone) + geometry.zone_capacity_blocks {
        return None;
    }
    let operation = Operation::Read { start: lba, blocks: Blocks(1) };
    let read = member.execute(&Command::new(CommandId(0), NamespaceId::FIRST, operation));
    match read.outcome {
        Outcome::Data(Payload::Bytes(buffer)) => Some([&buffer.data[..], &buffer.metadata[..]].concat()),
        _ => None,
    }
}

pub(crate) fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    let some_commands: Vec<u8> = (0..60u8).map(|byte| byte.wrapping_mul(37)).collect();
    for which in 0..BASES as u8 {
        seeds.push((format!("untouched-{which}"), [&[0, which, 0, 0], &some_commands[..]].concat()));
        seeds.push((format!("absent-{which}"), [&[0, which, 1, 0], &some_commands[..]].concat()));
        for how in [0, 1] {
            for zone in [0u16, 2, 3, 4] {
                // A superblock, or a header; a block of data; the last ones are footers.
                for (block, place) in [(0u16, 40u16), (1, 9), (9, 530), (bases::ZONE_BLOCKS as u16 - 1, 20)] {
                    let [a, b] = (zone * bases::ZONE_BLOCKS as u16 + block).to_le_bytes();
                    let [c, d] = place.to_le_bytes();
                    let change = [how, which, 0, 1, 1, a, b, 0, c, d, 0x41];
                    let name = format!("zone-{zone}-block-{block}-{which}-{how}");
                    seeds.push((name, [&change, &some_commands[..20]].concat()));
                }
            }
        }
    }
    seeds
}
