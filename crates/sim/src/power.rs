//! Power loss of a drive: removes the stack, powers the drive on again, and checks its state.

use zonda_ssd::Ssd;
use zonda_zoned::reference::{ReferenceDevice, ZoneImage};
use zonda_zoned::{BlockBuffer, Blocks, NamespaceId, ZERO_FINGERPRINT, ZoneIndex, ZoneState, ZoneType, ZonedDevice};

use crate::check::quiescent::place;
use crate::check::{limits, survival};
use crate::ledger::{Ledger, Shape, ZoneEntry};
use crate::observe::{CheckError, ObservedZone, observe};
use crate::run::{Machine, Run};

/// Cuts power, restores it after a while, checks the state of the drive, and updates oracle and
/// ledger to it.
pub(crate) fn lose(run: &mut Run<'_>) -> Result<(), CheckError> {
    run.power_losses += 1;
    let in_flight = run.flights.len();
    run.trace.log(run.now, || match in_flight {
        0 => "power loss, no command in flight".to_owned(),
        1 => "power loss, 1 command in flight".to_owned(),
        _ => format!("power loss, {in_flight} commands in flight"),
    });
    run.forget_flights();
    run.ledger.forget_commands();

    let Machine { drive, stack } = run.machine.take().expect("power is on");
    drop(stack);
    let Ok(drive) = drive.take_inner() else { panic!("the stack was dropped, and held the only other handles") };
    let media = drive.power_loss(&mut run.power_prng);
    let outage = run.random_outage();
    run.now += outage;
    let life = run.power_losses;
    let drive = Ssd::power_on(&run.simulation.profile, media, &run.simulation.root.fork(&format!("life/{life}")));
    drive.check_invariants();
    run.machine = Some(Machine::new(run.simulation, drive, life));
    verify(run)
}

/// Reads the state of the drive after power-on, and accepts it if the ledger allows it.
fn verify(run: &mut Run<'_>) -> Result<(), CheckError> {
    let (now, keeps) = (run.now, run.simulation.keeps);
    let (seen, now) = observe(&mut run.machine().drive, now, keeps)?;
    run.now = now;
    for zone in &seen {
        run.hash.mix(u64::from(zone.state.code()) << 32 | zone.pointer.unwrap_or(u64::from(u32::MAX)));
        zone.prints.iter().for_each(|print| run.hash.mix(*print));
    }
    let whole = run.simulation.profile.geometry();
    limits::check(&whole, &seen)?;
    let host = run.simulation.host_zones();
    let mut shapes = Vec::new();
    for (index, seen) in seen.iter().enumerate() {
        let Some(zone) = index.checked_sub(host.start).filter(|_| host.contains(&index)) else {
            survival::check_untouched(ZoneIndex(index as u32), seen)?;
            continue;
        };
        let zone = ZoneIndex(zone as u32);
        let entry = &run.ledger.entries[zone.as_usize()];
        let shape = survival::check(&run.ledger.geometry, zone, entry, seen, survival::PartialExecution::Possible)?;
        if !entry.effects.is_empty() {
            run.trace.log(now, || describe_zone(zone, entry, seen));
        }
        shapes.push(shape);
    }
    run.oracle.power_cycle();
    for (zone, (shape, seen)) in shapes.into_iter().zip(&seen[host]).enumerate() {
        update_model(&mut run.oracle, &mut run.ledger, ZoneIndex(zone as u32), shape, seen);
    }
    Ok(())
}

fn describe_zone(zone: ZoneIndex, entry: &ZoneEntry, seen: &ObservedZone) -> String {
    let uncertain = entry.effects.iter().filter(|effect| !effect.is_acknowledged);
    let mut names: Vec<&str> = uncertain.map(|effect| effect.change.name()).collect();
    names.dedup();
    format!(
        "  zone {zone} is {}; {} blocks acknowledged, {} submitted; not acknowledged: {}",
        place(seen.state, seen.pointer),
        entry.base.low,
        entry.submitted_blocks(),
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    )
}

/// Updates the oracle and the ledger to the observed state of a zone.
pub(crate) fn update_model(
    oracle: &mut ReferenceDevice,
    ledger: &mut Ledger,
    zone: ZoneIndex,
    shape: Shape,
    seen: &ObservedZone,
) {
    let geometry = oracle.geometry(NamespaceId::FIRST);
    let (start, capacity) = (geometry.zone_start(zone), geometry.zone_capacity_blocks.0);
    if geometry.zone_type(zone) == ZoneType::SequentialWriteRequired {
        let image = ZoneImage {
            state: seen.state,
            write_pointer_blocks: Blocks(shape.low),
            zrwa: seen.zrwa,
            extension: seen.extension.clone(),
        };
        oracle.set_zone(zone, image);
    }
    if !matches!(seen.state, ZoneState::Empty | ZoneState::Offline) {
        for (block, print) in (0..capacity).zip(&seen.prints) {
            let lba = start + Blocks(block);
            match seen.bytes.get(block as usize) {
                Some(BlockBuffer { data, metadata }) if *print != ZERO_FINGERPRINT => {
                    oracle.set_block_bytes(lba, data, metadata);
                }
                _ => oracle.set_block(lba, *print),
            }
        }
    }
    ledger.set(zone, shape, &seen.prints);
}
