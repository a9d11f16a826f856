//! Losing power: the drive is pulled out from under the stack, comes back, and is looked at.

use zonda_ssd::Ssd;
use zonda_zoned::reference::{ReferenceDevice, ZoneImage};
use zonda_zoned::{BlockBuffer, Blocks, NamespaceId, ZERO_FINGERPRINT, ZoneIndex, ZoneState, ZoneType, ZonedDevice};

use crate::check::quiet::place;
use crate::check::{limits, survival};
use crate::ledger::{Ledger, Page, Shape};
use crate::run::{Machine, Run};
use crate::survey::{SeenZone, Trouble, survey};

/// Cuts the power, restores it after a while, checks what came back, and brings oracle and books to it.
pub(crate) fn lose(run: &mut Run<'_>) -> Result<(), Trouble> {
    run.power_losses += 1;
    let under_way = run.flights.len();
    run.teller.tell(run.now, || match under_way {
        0 => "the power goes, with nothing under way".to_owned(),
        1 => "the power goes, with 1 command under way".to_owned(),
        _ => format!("the power goes, with {under_way} commands under way"),
    });
    run.forget_flights();
    run.ledger.forget_commands();

    let Machine { drive, stack } = run.machine.take().expect("the power is on");
    drop(stack);
    let Ok(drive) = drive.take_inner() else { panic!("the stack is gone, and no other handle is left") };
    let media = drive.power_loss(&mut run.power_prng);
    let outage = run.draw_outage();
    run.now += outage;
    let life = run.power_losses;
    let drive = Ssd::power_on(&run.world.profile, media, &run.world.root.fork(&format!("life/{life}")));
    drive.check_invariants();
    run.machine = Some(Machine::new(run.world, drive, life));
    look(run)
}

/// Looks at the drive that came back, and believes what is allowed.
fn look(run: &mut Run<'_>) -> Result<(), Trouble> {
    let (now, keeps) = (run.now, run.world.keeps);
    let (seen, now) = survey(&mut run.machine().drive, now, keeps)?;
    run.now = now;
    for zone in &seen {
        run.hash.mix(u64::from(zone.state.code()) << 32 | zone.pointer.unwrap_or(u64::from(u32::MAX)));
        zone.prints.iter().for_each(|print| run.hash.mix(*print));
    }
    let whole = run.world.profile.geometry();
    limits::check(&whole, &seen)?;
    let host = run.world.host_zones();
    let mut shapes = Vec::new();
    for (index, seen) in seen.iter().enumerate() {
        let Some(zone) = index.checked_sub(host.start).filter(|_| host.contains(&index)) else {
            survival::check_untouched(ZoneIndex(index as u32), seen)?;
            continue;
        };
        let zone = ZoneIndex(zone as u32);
        let page = &run.ledger.pages[zone.as_usize()];
        let shape = survival::check(&run.ledger.geometry, zone, page, seen, survival::Halves::Possible)?;
        if !page.effects.is_empty() {
            run.teller.tell(now, || tell(zone, page, seen));
        }
        shapes.push(shape);
    }
    run.oracle.power_cycle();
    for (zone, (shape, seen)) in shapes.into_iter().zip(&seen[host]).enumerate() {
        believe(&mut run.oracle, &mut run.ledger, ZoneIndex(zone as u32), shape, seen);
    }
    Ok(())
}

fn tell(zone: ZoneIndex, page: &Page, seen: &SeenZone) -> String {
    let unsure = page.effects.iter().filter(|effect| !effect.is_acknowledged);
    let mut names: Vec<&str> = unsure.map(|effect| effect.what.name()).collect();
    names.dedup();
    format!(
        "  zone {zone} comes back {}; {} blocks were certain, {} asked for; unsure were {}",
        place(seen.state, seen.pointer),
        page.base.low,
        page.asked_for(),
        names.join(", ")
    )
}

/// Brings the oracle and the books to what was seen of a zone.
pub(crate) fn believe(
    oracle: &mut ReferenceDevice,
    ledger: &mut Ledger,
    zone: ZoneIndex,
    shape: Shape,
    seen: &SeenZone,
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
