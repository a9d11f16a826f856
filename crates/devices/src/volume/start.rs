//! Starts the state machine of a volume on its members, and waits until it is ready.

use std::collections::VecDeque;

use zonda_config::Rate;
use zonda_isal::Isal;
use zonda_raid::{Event, MemberIndex, Tuning, Volume, VolumeDevice};
use zonda_ring::Ring;
use zonda_zoned::{CompletionQueue, Duration, ZonedDevice};

use super::directory::VolumeRates;
use super::drive::Notice;
use super::member_device::MemberDevice;
use super::names::Names;
use crate::DriveError;

/// Interval of progress reports of a long mount.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// Why a volume is not ready, and those of its members whose reservations have to be released.
pub(super) type NotStarted = (DriveError, Vec<Option<MemberDevice>>);

/// Waits until the volume is ready. Returns the events of the mount, too.
pub(super) fn started(
    mut volume: Volume,
    member_devices: Vec<Option<MemberDevice>>,
    names: &Names<'_>,
    ring: &Ring,
    watch: &mut dyn FnMut(Notice),
) -> Result<(VolumeDevice<MemberDevice>, VecDeque<Event>), NotStarted> {
    if let Some(isal) = Isal::new() {
        volume.set_engine(Box::new(isal));
    }
    let mut on = VolumeDevice::new(volume, member_devices);
    let (mut completions, mut events) = (CompletionQueue::new(), VecDeque::new());
    let began = ring.now();
    let mut reported_at = began;
    loop {
        on.poll(ring.now(), &mut completions);
        while let Some(event) = on.volume_mut().poll_event() {
            if let Event::OutOfSpace { member } = &event {
                let text = format!(
                    "assembly waits: no space is left for {}: free space on its file system",
                    names.shown(*member)
                );
                watch(Notice { is_warning: true, text });
            }
            events.push_back(event);
        }
        if on.volume().is_ready() {
            return Ok((on, events));
        }
        if let Some(error) = on.volume().failure() {
            let error = names.describe(error);
            return Err((error, on.into_parts().1));
        }
        let is_refused = |member: &MemberIndex| on.member(*member).is_some_and(MemberDevice::is_refused);
        if let Some(member) = (0..names.0.len() as u8).map(MemberIndex).find(is_refused) {
            let what = format!("{} was taken over during assembly", names.shown(member));
            return Err((DriveError::new(what, "stop the other server of the volume"), Vec::new()));
        }
        let now = ring.now();
        if let Some(step) = on.volume().starting().filter(|_| now >= reported_at + WATCH_INTERVAL) {
            reported_at = now;
            let seconds = now.since(began).0 / 1_000_000_000;
            watch(Notice { is_warning: false, text: format!("assembling for {seconds} s: {step}") });
        }
        let until = on.next_timeout().map_or(reported_at + WATCH_INTERVAL, |at| at.min(reported_at + WATCH_INTERVAL));
        if let Err(error) = ring.run_once(Some(until)) {
            return Err((DriveError::new(format!("the event loop failed: {error}"), ""), Vec::new()));
        }
    }
}

pub(super) fn blocks_per_second(rate: Rate, block_bytes: u32) -> u64 {
    match rate {
        Rate::BytesPerSecond(bytes) => (bytes / u64::from(block_bytes)).max(1),
        Rate::OperationsPerSecond(blocks) => blocks,
    }
}

pub(super) fn tuning(reserve_percent: u8, rates: VolumeRates, block_bytes: u32) -> Tuning {
    let usual = Tuning::default();
    let scrub = rates.scrub.map(|rate| blocks_per_second(rate, block_bytes));
    Tuning {
        reserve_percent,
        rebuild_blocks_per_second: rates.rebuild.map(|rate| blocks_per_second(rate, block_bytes)),
        scrub_blocks_per_second: scrub.or(usual.scrub_blocks_per_second),
        // Acknowledged writes to images survive a crash of the program, and a loss of power after a
        // Flush; of remote namespaces it is not known.
        is_cache_volatile: true,
        ..usual
    }
}
