//! What a command would destroy on a drive of this machine.

use std::ops::Range;

use zonda_devices::{Connection, Location, SIGNATURE_BYTES, signature_of};
use zonda_zoned::{Blocks, Lba, Operation, Outcome, Payload, ZoneState};

use super::check_zone;
use super::manage::Action;
use crate::commands::connect;
use crate::errors::Failure;
use crate::{units, zone_map};

/// Refuses to destroy data, and names what is on the drive.
pub(super) fn agree(
    connection: &mut Connection,
    location: &Location,
    zones: Option<Range<u32>>,
    action: Action,
) -> Result<(), Failure> {
    if action != Action::Reset {
        return Ok(());
    }
    let geometry = connection.geometry().clone();
    let zones = zones.unwrap_or(0..geometry.zone_count);
    check_zone(&geometry, zones.end - 1)?;
    let zones = connect::descriptors(connection, zones.start, zones.len() as u32)?;
    let holds_data = |state: ZoneState| state.is_active() || state == ZoneState::Full;
    let full = zones.iter().filter(|zone| holds_data(zone.state));
    let written: Vec<u64> = full.map(|zone| zone_map::written_blocks(zone).unwrap_or(0)).filter(|&n| n > 0).collect();
    if written.is_empty() {
        return Ok(());
    }
    let bytes = units::bytes(written.iter().sum::<u64>() * u64::from(geometry.block_size_bytes));
    let whose = match signature(connection) {
        Some(what) => format!("{location} holds {what}"),
        None => format!("{location} holds data"),
    };
    let zones = units::counted(written.len() as u64, "zone");
    Err(Failure::input(format!("{whose}: the reset destroys up to {bytes} in {zones}"), "add --yes to confirm"))
}

/// What the first bytes of the drive say about its contents; `None` if they cannot be read.
fn signature(connection: &mut Connection) -> Option<&'static str> {
    let geometry = connection.geometry().clone();
    let wanted = Blocks((SIGNATURE_BYTES as u64).div_ceil(u64::from(geometry.block_size_bytes)));
    let (mut start, mut bytes) = (Lba(0), Vec::new());
    while start.0 < wanted.0 {
        let blocks = geometry.max_transfer_blocks.min(Blocks(wanted.0 - start.0));
        match connection.execute(Operation::Read { start, blocks }).ok()?.outcome {
            Outcome::Data(Payload::Bytes(buffer)) => bytes.extend_from_slice(&buffer.data),
            // Zeros.
            Outcome::Data(Payload::None) => {
                bytes.resize(bytes.len() + blocks.bytes(geometry.block_size_bytes) as usize, 0);
            }
            _ => return None,
        }
        start = start + blocks;
    }
    signature_of(&bytes)
}
