//! Empty zones that failed: a scrub finds them.

use zonda_zoned::{Instant, Lba, ZoneState};

use super::failures::run_steps;
use super::headers::zones;
use super::script::{Script, plain_config};
use super::sides::written;
use crate::format::HEADER_COPIES;
use crate::{Event, Level, Scheme};

const RAID1: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };

fn scrub(script: &mut Script) {
    script.volume.start_scrub(Instant::ZERO);
    script.run();
    assert!(script.events.iter().any(|event| matches!(event, Event::Scrubbed { .. })), "{:?}", script.events);
}

/// Blocks 0 to 5 are written, and the last zone of member 0, which is free, fails.
fn with_failed_zone(to: ZoneState) -> Script {
    let mut script = Script::create(plain_config(RAID1));
    for lba in 0..6 {
        let write = script.write(lba, 1, 1);
        assert!(script.has_ended(write));
    }
    script.degrade(0, script.last_zone(), to);
    script
}

#[test]
fn a_free_zone_that_went_offline_before_a_scrub_refuses_no_mount_without_other_members() {
    let mut script = with_failed_zone(ZoneState::Offline);
    scrub(&mut script);
    script.crash(&[]);
    script.mount(&[1]);
    assert!(script.volume.is_ready(), "{:?}", script.events);
    for lba in 0..6 {
        assert_eq!(script.version(lba), 1);
    }
}

#[test]
fn a_free_zone_that_has_failed_before_a_scrub_is_no_part_of_later_segments() {
    for to in [ZoneState::Offline, ZoneState::ReadOnly] {
        let mut script = with_failed_zone(to);
        assert_eq!(script.volume.status().members[0].retired_zones, 0, "it is not detected");
        scrub(&mut script);
        let member = &script.volume.status().members[0];
        assert_eq!((member.retired_zones, member.errors), (1, 0), "{to:?}");
        for round in 0..400 {
            script.write(round * 7 % 100, 1, round);
        }
        assert_eq!(script.volume.status().members[0].errors, 0, "{to:?}");
    }
}

#[test]
fn a_zone_that_was_read_only_and_unused_before_a_scrub_refuses_no_mount_without_other_members() {
    let mut simulation = written(RAID1, 64, 1);
    let (_, start) = zones(&mut simulation.drives[0])[0];
    let zone = simulation.drives[0].geometry().zone_of(start).expect("it is one").0;
    simulation.drives[0].degrade(zone, ZoneState::ReadOnly);
    for _ in 0..20 {
        // The contents of the zone are overwritten, and its reset fails.
        simulation.fill().unwrap_or_else(|violation| panic!("{violation}"));
        run_steps(&mut simulation, 1000);
    }
    assert_eq!(simulation.volume.status().members[0].retired_zones, 1);
    let now = simulation.time();
    simulation.volume.start_scrub(now);
    simulation.quiesce().unwrap_or_else(|violation| panic!("{violation}"));
    assert!(simulation.volume.status().scrub.is_none(), "the scrub has ended");
    simulation.crash();
    for copy in 0..u64::from(HEADER_COPIES) {
        simulation.drives[0].flip(Lba(start.0 + copy));
    }
    simulation.mount(0b10).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(simulation.volume.status().members[0].retired_zones, 1);
    simulation.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}
