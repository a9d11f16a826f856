//! Zones that failed while nothing was in them: a scrub finds them.

use zonda_zoned::{Instant, Lba, ZoneState};

use super::failures::go_on;
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
        assert_eq!(script.volume.status().members[0].retired_zones, 0, "nobody knows");
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
    let mut world = written(RAID1, 64, 1);
    let (_, start) = zones(&mut world.drives[0])[0];
    let zone = world.drives[0].geometry().zone_of(start).expect("it is one").0;
    world.drives[0].degrade(zone, ZoneState::ReadOnly);
    for _ in 0..20 {
        // What the zone holds is overwritten, and its reset fails.
        world.fill().unwrap_or_else(|violation| panic!("{violation}"));
        go_on(&mut world, 1000);
    }
    assert_eq!(world.volume.status().members[0].retired_zones, 1);
    let now = world.time();
    world.volume.start_scrub(now);
    world.rest().unwrap_or_else(|violation| panic!("{violation}"));
    assert!(world.volume.status().scrub.is_none(), "the scrub has ended");
    world.crash();
    for copy in 0..u64::from(HEADER_COPIES) {
        world.drives[0].flip(Lba(start.0 + copy));
    }
    world.mount(0b10).unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(world.volume.status().members[0].retired_zones, 1);
    world.read_all().unwrap_or_else(|violation| panic!("{violation}"));
}
