//! Zone Management Send: the table of transitions, line by line.

use super::*;

const ZONE: ZoneIndex = ZoneIndex(0);

/// The state after an action and its effects, or the status that refused it.
type Outcome = Result<(ZoneState, Vec<ZoneEffect>), Status>;

/// What an action does to a zone in each of the seven states.
fn outcomes(action: &ZoneAction) -> Vec<(ZoneState, Outcome)> {
    ZoneState::SEQUENTIAL
        .map(|from| {
            let mut table = with_zrwa();
            bring(&mut table, 0, from);
            let before = table.clone();
            let result = attempt(&mut table, action, ZoneTarget::Zone(at(0, 0)));
            if result.as_ref().map_or(true, Vec::is_empty) {
                assert_eq!(table, before, "{from}: nothing happened, and something changed");
            }
            (from, result.map(|effects| (state(&table, 0), effects)))
        })
        .into()
}

/// Checks the line of the table for one action: from which states it does `effect`, from which
/// nothing, and that it is an invalid transition from all others.
#[track_caller]
fn line(action: &ZoneAction, from: &[ZoneState], to: ZoneState, effect: fn(ZoneState) -> ZoneEffect) {
    for (state, outcome) in outcomes(action) {
        let expected = if from.contains(&state) {
            Ok((to, vec![effect(state)]))
        } else if state == to {
            Ok((to, vec![]))
        } else {
            Err(Status::InvalidZoneStateTransition)
        };
        assert_eq!(outcome, expected, "{action:?} from {state}");
    }
}

#[test]
fn close_takes_open_zones_to_closed() {
    let from = [ZoneState::ImplicitlyOpened, ZoneState::ExplicitlyOpened];
    line(&ZoneAction::Close, &from, ZoneState::Closed, |_| ZoneEffect::Closed { zone: ZONE });
}

#[test]
fn finish_takes_empty_and_active_zones_to_full() {
    let from = [ZoneState::Empty, ZoneState::ImplicitlyOpened, ZoneState::ExplicitlyOpened, ZoneState::Closed];
    line(&ZoneAction::Finish, &from, ZoneState::Full, |from| ZoneEffect::Finished {
        zone: ZONE,
        written_blocks: Blocks(if from == ZoneState::Empty { 0 } else { 4 }),
    });
}

#[test]
fn open_takes_empty_closed_and_implicitly_opened_zones_to_explicitly_opened() {
    let from = [ZoneState::Empty, ZoneState::Closed, ZoneState::ImplicitlyOpened];
    line(&OPEN, &from, ZoneState::ExplicitlyOpened, |_| ZoneEffect::Opened { zone: ZONE });
}

#[test]
fn reset_takes_active_and_full_zones_to_empty() {
    let from = [ZoneState::ImplicitlyOpened, ZoneState::ExplicitlyOpened, ZoneState::Closed, ZoneState::Full];
    line(&ZoneAction::Reset, &from, ZoneState::Empty, |from| ZoneEffect::Reset {
        zone: ZONE,
        written_blocks: Blocks(4),
        was_full: from == ZoneState::Full,
        finished_by_host: from == ZoneState::Full,
    });
}

#[test]
fn offline_takes_read_only_zones_to_offline() {
    line(&ZoneAction::Offline, &[ZoneState::ReadOnly], ZoneState::Offline, |_| ZoneEffect::Offlined { zone: ZONE });
}

#[test]
fn a_descriptor_extension_takes_empty_zones_to_closed() {
    for (from, outcome) in outcomes(&set_extension(7, false)) {
        let expected = match from {
            ZoneState::Empty => Ok((ZoneState::Closed, vec![ZoneEffect::ExtensionSet { zone: ZONE }])),
            _ => Err(Status::InvalidZoneStateTransition),
        };
        assert_eq!(outcome, expected, "from {from}");
    }
}

#[test]
fn open_with_zrwa_takes_empty_zones_only() {
    for (from, outcome) in outcomes(&OPEN_WITH_ZRWA) {
        let expected = match from {
            ZoneState::Empty => Ok((ZoneState::ExplicitlyOpened, vec![ZoneEffect::Opened { zone: ZONE }])),
            ZoneState::ReadOnly | ZoneState::Offline => Err(Status::InvalidZoneStateTransition),
            _ => Err(Status::InvalidZoneOperation),
        };
        assert_eq!(outcome, expected, "from {from}");
    }
}

#[test]
fn flushing_a_zrwa_needs_one() {
    for (from, outcome) in outcomes(&ZoneAction::FlushZrwa) {
        let expected = match from {
            ZoneState::Full => Status::ZoneIsFull,
            ZoneState::ReadOnly => Status::ZoneIsReadOnly,
            ZoneState::Offline => Status::ZoneIsOffline,
            _ => Status::InvalidZoneOperation,
        };
        assert_eq!(outcome, Err(expected), "from {from}");
    }
}

fn every_action() -> [ZoneAction; 8] {
    [
        ZoneAction::Close,
        ZoneAction::Finish,
        OPEN,
        OPEN_WITH_ZRWA,
        ZoneAction::Reset,
        ZoneAction::Offline,
        ZoneAction::SetDescriptorExtension { extension: Box::new([]), zrwa: true },
        ZoneAction::FlushZrwa,
    ]
}

#[test]
fn the_target_is_checked_before_all_else() {
    let mut table = with_conventional();
    for action in every_action() {
        let mut refused = |target| refusal(&mut table, |table| attempt(table, &action, ZoneTarget::Zone(target)));
        assert_eq!(refused(Lba(128)), Status::LbaOutOfRange, "{action:?}");
        assert_eq!(refused(Lba(u64::MAX)), Status::LbaOutOfRange, "{action:?}");
        assert_eq!(refused(at(1, 0)), Status::InvalidField, "{action:?} of a conventional zone");
        assert_eq!(refused(at(3, 1)), Status::InvalidField, "{action:?} within a zone");
    }
}

#[test]
fn an_empty_zone_opened_and_closed_by_the_host_stays_active() {
    let mut table = tiny();
    manage(&mut table, &OPEN, 0);
    manage(&mut table, &ZoneAction::Close, 0);
    assert_eq!((state(&table, 0), table.active_zones(), table.open_zones()), (ZoneState::Closed, 1, 0));
    assert_eq!(write_pointer(&table, 0), 0);
}

#[test]
fn a_finished_zone_keeps_the_place_of_its_write_pointer_until_reset() {
    let mut table = tiny();
    bring(&mut table, 0, ZoneState::Full);
    assert_eq!((write_pointer(&table, 0), written(&table, 0)), (4, 4));
    manage(&mut table, &ZoneAction::Reset, 0);
    assert_eq!((write_pointer(&table, 0), written(&table, 0)), (0, 0));
}

#[test]
fn a_reset_distinguishes_a_zone_written_full_from_a_finished_one() {
    let mut table = tiny();
    fill(&mut table, 0);
    let reset = ZoneEffect::Reset { zone: ZONE, written_blocks: Blocks(12), was_full: true, finished_by_host: false };
    assert_eq!(manage(&mut table, &ZoneAction::Reset, 0), [reset]);
    write(&mut table, 0, 0, 2);
    assert_eq!(
        manage(&mut table, &ZoneAction::Reset, 0),
        [ZoneEffect::Reset { zone: ZONE, written_blocks: Blocks(2), was_full: false, finished_by_host: false }]
    );
}

#[test]
fn a_descriptor_extension_is_of_the_length_that_the_namespace_has() {
    let mut table = tiny();
    let extension =
        |length: usize| ZoneAction::SetDescriptorExtension { extension: vec![0; length].into(), zrwa: false };
    assert_eq!(refused(&mut table, &extension(63), 0), Status::InvalidField);
    assert_eq!(refused(&mut table, &extension(128), 0), Status::InvalidField);
    bring(&mut table, 1, ZoneState::Full);
    assert_eq!(refused(&mut table, &extension(63), 1), Status::InvalidField, "the length comes before the state");
    assert_eq!(refused(&mut table, &set_extension(1, true), 0), Status::InvalidField, "no ZRWA in the namespace");
    manage(&mut table, &extension(64), 0);
    let mut without = super::table(|geometry| geometry.descriptor_extension_bytes = 0);
    assert_eq!(refused(&mut without, &extension(0), 0), Status::InvalidField);
}

#[test]
fn a_descriptor_extension_needs_an_active_resource_and_no_open_one() {
    let mut table = with_zrwa();
    manage(&mut table, &OPEN_WITH_ZRWA, 0);
    manage(&mut table, &OPEN_WITH_ZRWA, 1);
    assert_eq!(refused(&mut table, &set_extension(1, true), 2), Status::ZrwaResourcesUnavailable);
    manage(&mut table, &set_extension(1, false), 2);
    assert_eq!((table.open_zones(), table.active_zones()), (2, 3));
    assert_eq!(refused(&mut table, &set_extension(1, true), 3), Status::TooManyActiveZones);
}

#[test]
fn a_descriptor_extension_is_kept_until_the_zone_is_empty_or_offline() {
    let has_extension = |table: &ZoneTable| table.zone(ZONE).attributes.extension_valid;
    for last in [ZoneState::Empty, ZoneState::Offline] {
        let mut table = tiny();
        manage(&mut table, &set_extension(9, false), 0);
        write(&mut table, 0, 0, 1);
        manage(&mut table, &ZoneAction::Finish, 0);
        assert!(has_extension(&table));
        if last == ZoneState::Empty {
            manage(&mut table, &ZoneAction::Reset, 0);
        } else {
            table.degrade(ZONE, ZoneState::ReadOnly);
            assert!(has_extension(&table));
            manage(&mut table, &ZoneAction::Offline, 0);
        }
        assert!(!has_extension(&table), "{last}");
    }
}

fn states(table: &ZoneTable) -> Vec<ZoneState> {
    (0..7).map(|zone| state(table, zone)).collect()
}

#[test]
fn select_all_takes_each_action_to_the_zones_it_concerns() {
    use ZoneState::{Closed, Empty, ExplicitlyOpened, Full, ImplicitlyOpened, Offline, ReadOnly};
    let cases = [
        (ZoneAction::Close, [Empty, Closed, Closed, Closed, ReadOnly, Full, Offline], 2),
        (ZoneAction::Finish, [Empty, Full, Full, Full, ReadOnly, Full, Offline], 3),
        (ZoneAction::Reset, [Empty, Empty, Empty, Empty, ReadOnly, Empty, Offline], 4),
        (ZoneAction::Offline, [Empty, ImplicitlyOpened, ExplicitlyOpened, Closed, Offline, Full, Offline], 1),
    ];
    for (action, after, changes) in cases {
        let mut table = one_zone_in_each_state();
        let effects = manage_all(&mut table, &action);
        assert_eq!((states(&table), effects.len()), (after.to_vec(), changes), "{action:?}");
        assert_eq!(manage_all(&mut table, &action), [], "{action:?} finds no zone any more");
    }
}

#[test]
fn select_all_has_its_effects_in_the_order_of_the_zones() {
    let mut table = tiny();
    write(&mut table, 6, 0, 3);
    write(&mut table, 2, 0, 1);
    let effects = manage_all(&mut table, &ZoneAction::Finish);
    let finished = |zone, blocks| ZoneEffect::Finished { zone: ZoneIndex(zone), written_blocks: Blocks(blocks) };
    assert_eq!(effects, [finished(2, 1), finished(6, 3)]);
}

#[test]
fn opening_all_takes_every_closed_zone_or_none() {
    let mut table = one_zone_in_each_state();
    let all = |table: &mut ZoneTable| attempt(table, &OPEN, ZoneTarget::All);
    assert_eq!(refusal(&mut table, all), Status::TooManyOpenZones, "an implicitly opened zone is not closed for it");
    manage(&mut table, &ZoneAction::Finish, 1);
    assert_eq!(manage_all(&mut table, &OPEN), [ZoneEffect::Opened { zone: ZoneIndex(3) }]);
    assert_eq!(state(&table, 3), ZoneState::ExplicitlyOpened);
    assert_eq!(manage_all(&mut table, &OPEN), []);
}

#[test]
fn opening_all_leaves_implicitly_opened_zones_as_they_are() {
    let mut table = tiny();
    write(&mut table, 0, 0, 1);
    bring(&mut table, 1, ZoneState::Closed);
    manage_all(&mut table, &OPEN);
    assert_eq!((state(&table, 0), state(&table, 1)), (ZoneState::ImplicitlyOpened, ZoneState::ExplicitlyOpened));
}

#[test]
fn select_all_sets_no_extension_and_touches_no_zrwa() {
    let mut table = with_zrwa();
    for action in [OPEN_WITH_ZRWA, set_extension(1, false), ZoneAction::FlushZrwa] {
        let all = |table: &mut ZoneTable| attempt(table, &action, ZoneTarget::All);
        assert_eq!(refusal(&mut table, all), Status::InvalidField, "{action:?}");
    }
}

#[test]
fn select_all_passes_over_conventional_zones() {
    let mut table = with_conventional();
    write(&mut table, 0, 0, 8);
    for action in [ZoneAction::Close, ZoneAction::Finish, ZoneAction::Reset, ZoneAction::Offline, OPEN] {
        assert_eq!(manage_all(&mut table, &action), [], "{action:?}");
    }
    assert_eq!(written(&table, 0), 8);
}
