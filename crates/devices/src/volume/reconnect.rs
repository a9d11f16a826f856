//! Reconnects needed members whose connection is lost, or whose drive was unplugged: I/O is suspended
//! until then.
//!
//! A new connection is used only if its device is the same member in the same state. Until that is
//! verified, only its zones are reported and its superblocks read.

use zonda_raid::{MemberIndex, Membership};
use zonda_zoned::{Geometry, Instant};

use super::VolumeDrive;
use super::member_device::MemberDevice;
use super::names::Names;
use crate::DriveError;
use crate::probe::Probed;

impl VolumeDrive {
    /// Fails or awaits members whose connection is lost. Returns whether there were any.
    pub(super) fn look_for_lost_connections(&mut self, now: Instant) -> bool {
        let is_news = |device: &MemberDevice| device.is_cut_off() && !device.is_awaited();
        let lost = self.members().filter(|member| self.on.member(*member).is_some_and(is_news)).collect();
        let lost = self.ask_about_lost(now, lost);
        let moved = !lost.is_empty();
        for member in lost {
            self.on.volume_mut().on_disconnect(now, member);
            let is_needed = self.on.volume().suspended(member).is_some();
            if let Some(device) = self.on.member_mut(member) {
                // The volume does not wait for one that has failed or is not a member yet.
                if is_needed { device.set_awaited() } else { device.fail_held() }
            }
        }
        if moved {
            self.look_for_absent(now);
        }
        moved
    }

    /// Whether the volume waits for another connection to a member.
    pub(super) fn awaits_connection(&self, member: MemberIndex) -> bool {
        self.on.member(member).is_some_and(MemberDevice::is_awaited)
    }

    /// Verifies that the device behind a new connection is the member whose connection was lost,
    /// with all acknowledged writes.
    pub(super) fn must_be_as_left(
        &self,
        member: MemberIndex,
        device: &MemberDevice,
        probed: &Probed,
    ) -> Result<(), DriveError> {
        self.must_be_itself(member, probed)?;
        let refuse = |what: String| {
            let help = "restore the original drive, or restart the server: the volume is then mounted with the \
                        members that are present";
            Err(DriveError::new(what, help))
        };
        let shown = self.shown(member);
        let Some(before) = self.on.member(member).filter(|device| device.is_awaited()) else {
            return refuse(format!("the volume no longer waits for {shown}"));
        };
        self.must_have_identity(member, device)?;
        let (own, found) = (before.own_geometry(), device.own_geometry());
        if found.zone_count < own.zone_count {
            return refuse(format!("{shown} has {} of {} zones left", found.zone_count, own.zone_count));
        }
        // It may have grown; the volume does not use the new zones.
        if *own != (Geometry { zone_count: own.zone_count, ..found.clone() }) {
            return refuse(format!("{shown} is another device: its geometry differs"));
        }
        let Some(own) = probed.membership() else { return Ok(()) };
        if let Err(error) = self.on.volume().check_reconnected(member, own as &Membership) {
            return refuse(Names(&self.directory.file.member).describe(&error).message);
        }
        if let Some(zone) = before.lacking(&probed.zones, self.on.volume().full_zones(member)) {
            let zone = zone.0;
            return refuse(format!(
                "{shown} lacks blocks that it had acknowledged, in zone {zone}: it lost power, or is an older copy"
            ));
        }
        Ok(())
    }

    /// Resumes I/O over the new connection.
    pub(super) fn reconnect(&mut self, now: Instant, member: MemberIndex, new: MemberDevice) {
        let Some(device) = self.on.member_mut(member) else { return self.detach(new, now) };
        let before = device.reconnect(new);
        self.refused &= !(1 << member.0);
        self.forget_absent(member);
        self.detach(before, now);
        self.notify(false, format!("{} is reconnected", self.shown(member)));
        self.on.volume_mut().on_reconnect(now, member);
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use tempfile::TempDir;
    use zonda_raid::{Level, Scheme};
    use zonda_ring::Ring;
    use zonda_zoned::{
        BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Duration, Lba, NamespaceId, Operation,
        Outcome, Payload, ZonedDevice,
    };

    use super::*;
    use crate::volume::{NewVolume, VolumeState};
    use crate::{Drive, Location, mock};

    const BLOCK_BYTES: usize = 512;

    /// A volume whose drives are all of one server, or all of this machine.
    struct Bench {
        volume: Option<VolumeDrive>,
        drives: Vec<PathBuf>,
        ring: Ring,
        next: u64,
        log: String,
        above: TempDir,
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            // Before the mock drives.
            self.volume = None;
        }
    }

    impl Bench {
        fn new(scheme: Scheme) -> Bench {
            Bench::over(scheme, mock::set_remote)
        }

        /// Over drives of this machine.
        fn of_devices(scheme: Scheme) -> Bench {
            Bench::over(scheme, |drive| mock::set_device(drive, nguid(drive)))
        }

        fn over(scheme: Scheme, prepare: impl Fn(&Path)) -> Bench {
            mock::begin();
            let above = TempDir::new().expect("there is space");
            let geometry = mock::geometry(32);
            let drives: Vec<PathBuf> = (0..scheme.members()).map(|at| above.path().join(format!("d{at}"))).collect();
            for drive in &drives {
                mock::add(drive, &geometry);
                prepare(drive);
            }
            let new = NewVolume::over(drives.iter().cloned().map(Location::Image).collect(), scheme);
            let ring = Ring::simulated().expect("there is an event loop");
            let volume = VolumeDrive::create(&above.path().join("vol"), &new, &ring).expect("the members are suitable");
            Bench { volume: Some(volume), drives, ring, next: 0, log: String::new(), above }
        }

        fn volume(&mut self) -> &mut VolumeDrive {
            self.volume.as_mut().expect("it is open")
        }

        fn submit(&mut self, operation: Operation) -> CommandId {
            self.next += 1;
            let (id, now) = (CommandId(self.next), self.ring.now());
            let command = Command::new(id, NamespaceId::FIRST, operation);
            self.volume().submit(now, command).expect("there is a queue slot");
            id
        }

        /// The completions within this time.
        fn wait(&mut self, time: Duration) -> Vec<Completion> {
            let until = self.ring.now() + time;
            let mut completions = CompletionQueue::new();
            loop {
                let now = self.ring.now();
                self.volume().poll(now, &mut completions);
                while let Some(notice) = self.volume().take_notice() {
                    let above = self.above.path().display().to_string();
                    self.log += &(notice.text.replace(&above, "..") + "\n");
                }
                let next = self.volume().next_timeout();
                if now >= until && next.is_none_or(|next| next > now) {
                    return std::iter::from_fn(|| completions.pop()).collect();
                }
                self.ring.run_once(Some(next.map_or(until, |next| next.min(until)).max(now))).expect("the loop works");
            }
        }

        fn write(&mut self, lba: u64, salt: u8) -> CommandId {
            let data = vec![lba as u8 ^ salt; 8 * BLOCK_BYTES].into();
            let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata: Vec::new().into() }));
            self.submit(Operation::Write { start: Lba(lba), blocks: Blocks(8), payload })
        }

        fn write_all(&mut self, salt: u8) {
            for lba in (0..160).step_by(8) {
                self.write(lba, salt);
            }
            let ended = self.wait(Duration::from_secs(1));
            assert!(ended.len() == 20 && ended.iter().all(|completion| completion.status.is_success()), "{ended:?}");
        }

        fn read(&mut self, lba: u64) -> CommandId {
            self.submit(Operation::Read { start: Lba(lba), blocks: Blocks(8) })
        }

        fn expect_all(&mut self, salt: u8) {
            for lba in (0..160).step_by(8) {
                self.read(lba);
                let ended = self.wait(Duration::from_secs(1));
                assert_eq!(ended.len(), 1, "block {lba}: {}", self.log);
                expect_block(&ended[0], lba, salt);
            }
        }

        /// The server stops: its connections are lost, and no other can be made.
        fn stop_server(&mut self) {
            self.drives.iter().for_each(|drive| take_away(drive));
        }

        fn start_server(&mut self) {
            self.drives.clone().iter().for_each(|drive| mock::set_away(drive, false));
        }
    }

    /// A drive's connection is lost, and no other one can be made.
    fn take_away(drive: &Path) {
        mock::disconnect(drive);
        mock::set_away(drive, true);
    }

    fn expect_block(completion: &Completion, lba: u64, salt: u8) {
        let Outcome::Data(Payload::Bytes(buffer)) = &completion.outcome else {
            panic!("block {lba}: {}", completion.status)
        };
        assert!(buffer.data.iter().all(|byte| *byte == lba as u8 ^ salt), "block {lba}");
    }

    /// The NGUID of a drive, by the number in its name.
    fn nguid(drive: &Path) -> [u8; 16] {
        [drive.as_os_str().as_encoded_bytes().last().copied().unwrap_or_default(); 16]
    }

    const SINGLE: Scheme = Scheme { level: Level::Raid0, data: 1, parity: 0 };
    const MIRROR: Scheme = Scheme { level: Level::Raid1, data: 1, parity: 1 };
    const LONG: Duration = Duration::from_secs(90);
    const SHORT: Duration = Duration::from_secs(15);

    #[test]
    fn reads_and_writes_wait_while_the_server_of_a_needed_member_is_down_and_continue_when_it_is_back() {
        for scheme in [SINGLE, MIRROR, Scheme::raid5(2)] {
            let mut bench = Bench::new(scheme);
            bench.write_all(1);
            let in_flight = [bench.read(16), bench.write(0, 2)];
            bench.stop_server();
            let later = [bench.read(24), bench.write(8, 2)];
            let flush = bench.submit(Operation::Flush);
            assert_eq!(bench.wait(LONG), [], "{scheme}: they wait");
            assert_eq!(bench.volume().report().state, VolumeState::Suspended, "{scheme}: {}", bench.log);
            bench.start_server();
            let ended = bench.wait(SHORT);
            assert_eq!(ended.len(), 5, "{scheme}: {}", bench.log);
            assert!(ended.iter().all(|completion| completion.status.is_success()), "{scheme}: {ended:?}");
            let of = |id: CommandId| ended.iter().find(|completion| completion.id == id).expect("it has ended");
            expect_block(of(in_flight[0]), 16, 1);
            expect_block(of(later[0]), 24, 1);
            assert!(of(flush).status.is_success());
            assert!(bench.log.contains("is reconnected") && bench.log.contains("I/O is resumed"), "{}", bench.log);
            bench.write_all(3);
            bench.wait(SHORT);
            assert_eq!(bench.volume().report().state, VolumeState::Healthy, "{scheme}: {}", bench.log);
            bench.expect_all(3);
        }
    }

    #[test]
    fn reads_and_writes_wait_while_a_needed_drive_of_this_machine_is_unplugged_and_continue_when_it_is_back() {
        for scheme in [SINGLE, MIRROR, Scheme::raid5(2)] {
            let mut bench = Bench::of_devices(scheme);
            bench.write_all(1);
            for salt in 2..4 {
                bench.stop_server();
                let (read, write) = (bench.read(24), bench.write(8, salt));
                let flush = bench.submit(Operation::Flush);
                assert_eq!(bench.wait(LONG), [], "{scheme}: they wait");
                assert_eq!(bench.volume().report().state, VolumeState::Suspended, "{scheme}: {}", bench.log);
                bench.start_server();
                let ended = bench.wait(SHORT);
                assert_eq!(ended.len(), 3, "{scheme}: {}", bench.log);
                assert!(ended.iter().all(|completion| completion.status.is_success()), "{scheme}: {ended:?}");
                let of = |id: CommandId| ended.iter().find(|completion| completion.id == id).expect("it has ended");
                expect_block(of(read), 24, salt - 1);
                assert!(of(write).status.is_success() && of(flush).status.is_success());
                bench.write_all(salt);
            }
            bench.expect_all(3);
            bench.wait(LONG);
            assert_eq!(bench.volume().report().state, VolumeState::Healthy, "{scheme}: {}", bench.log);
        }
    }

    #[test]
    fn a_redundant_drive_of_this_machine_that_is_unplugged_for_a_while_is_readded_automatically() {
        let mut bench = Bench::of_devices(MIRROR);
        bench.write_all(1);
        let away = bench.drives[1].clone();
        take_away(&away);
        bench.write_all(2);
        assert_eq!(bench.volume().report().state, VolumeState::Degraded, "{}", bench.log);
        mock::set_away(&away, false);
        bench.wait(SHORT);
        assert_eq!(bench.volume().report().state, VolumeState::Healthy, "{}", bench.log);
        assert!(bench.log.contains("is back: resynchronizing what it missed"), "{}", bench.log);
        take_away(&bench.drives[0].clone());
        bench.expect_all(2);
    }

    #[test]
    fn another_drive_in_place_of_one_that_was_unplugged_is_not_used_even_if_it_is_a_copy() {
        for (scheme, state) in [(SINGLE, VolumeState::Suspended), (MIRROR, VolumeState::Degraded)] {
            let mut bench = Bench::of_devices(scheme);
            bench.write_all(1);
            let drive = bench.drives.last().expect("there are drives").clone();
            take_away(&drive);
            let write = bench.write(0, 1);
            bench.wait(SHORT);
            mock::set_device(&drive, [6; 16]);
            let before = mock::changes(&drive);
            mock::set_away(&drive, false);
            bench.wait(LONG);
            assert_eq!(bench.volume().report().state, state, "{scheme}: {}", bench.log);
            assert_eq!(bench.log.matches("is another drive than before").count(), 1, "{scheme}: {}", bench.log);
            assert_eq!(mock::changes(&drive), before, "{scheme}: nothing is written to it");
            mock::set_device(&drive, nguid(&drive));
            let ended = bench.wait(SHORT);
            assert!(scheme != SINGLE || (ended.len() == 1 && ended[0].id == write), "{}", bench.log);
            bench.expect_all(1);
            assert_eq!(bench.volume().report().state, VolumeState::Healthy, "{scheme}: {}", bench.log);
        }
    }

    #[test]
    fn a_drive_of_this_machine_that_lost_acknowledged_writes_when_it_was_unplugged_is_not_written_to() {
        let mut bench = Bench::of_devices(SINGLE);
        let drive = bench.drives[0].clone();
        bench.write_all(1);
        mock::copy(&drive);
        bench.write_all(2);
        bench.stop_server();
        let read = bench.read(0);
        bench.wait(SHORT);
        mock::swap_with_copy(&drive);
        bench.start_server();
        assert_eq!(bench.wait(LONG), []);
        assert!(bench.log.contains("lacks blocks that it had acknowledged"), "{}", bench.log);
        mock::swap_with_copy(&drive);
        let ended = bench.wait(SHORT);
        assert!(ended.len() == 1 && ended[0].id == read, "{}", bench.log);
        bench.expect_all(2);
    }

    #[test]
    fn a_connection_that_is_lost_while_idle_is_reestablished() {
        let mut bench = Bench::new(SINGLE);
        bench.write_all(1);
        for _ in 0..3 {
            bench.stop_server();
            bench.wait(LONG);
            assert_eq!(bench.volume().report().state, VolumeState::Suspended);
            bench.start_server();
            bench.wait(SHORT);
            assert_eq!(bench.volume().report().state, VolumeState::Healthy, "{}", bench.log);
        }
        bench.expect_all(1);
    }

    #[test]
    fn a_volume_closes_while_a_needed_member_is_disconnected_and_reports_it() {
        let mut bench = Bench::new(SINGLE);
        bench.write_all(1);
        bench.stop_server();
        bench.write(0, 2);
        bench.wait(LONG);
        assert_eq!(bench.volume().report().state, VolumeState::Suspended);
        let now = bench.ring.now();
        bench.volume().close(now);
        bench.wait(SHORT);
        assert!(bench.volume().is_closed(), "{}", bench.log);
        assert_eq!(bench.volume().next_timeout(), None, "no work is left");
        let error = bench.volume().close_error().expect("the member could not flush");
        assert!(error.starts_with("member 0") && error.contains("is not connected"), "{error}");
    }

    #[test]
    fn a_redundant_member_fails_with_its_connection_and_is_readded_automatically() {
        let mut bench = Bench::new(MIRROR);
        bench.write_all(1);
        bench.read(0);
        let away = bench.drives[1].clone();
        take_away(&away);
        assert_eq!(bench.wait(Duration::from_secs(1)).len(), 1);
        bench.write_all(2);
        assert_eq!(bench.volume().report().state, VolumeState::Degraded, "{}", bench.log);
        mock::set_away(&away, false);
        bench.wait(SHORT);
        assert_eq!(bench.volume().report().state, VolumeState::Healthy, "{}", bench.log);
        let other = bench.drives[0].clone();
        take_away(&other);
        bench.expect_all(2);
    }

    #[test]
    fn a_device_that_lacks_acknowledged_writes_of_the_member_is_not_written_to() {
        let mut bench = Bench::new(SINGLE);
        let drive = bench.drives[0].clone();
        bench.write_all(1);
        mock::copy(&drive);
        bench.write_all(2);
        bench.stop_server();
        bench.wait(SHORT);
        // The server comes back with an older copy of the drive.
        mock::swap_with_copy(&drive);
        bench.start_server();
        let read = bench.read(0);
        assert_eq!(bench.wait(LONG), []);
        let log = "I/O stays suspended: member 0 (../d0) lacks blocks that it had acknowledged";
        assert_eq!(bench.log.matches(log).count(), 1, "it is logged once: {}", bench.log);
        mock::swap_with_copy(&drive);
        let ended = bench.wait(SHORT);
        assert!(ended.len() == 1 && ended[0].id == read, "{}", bench.log);
        expect_block(&ended[0], 0, 2);
        bench.expect_all(2);
    }

    #[test]
    fn a_member_that_shrinks_is_not_used_any_more_until_it_has_its_size_again() {
        let mut bench = Bench::new(SINGLE);
        let drive = bench.drives[0].clone();
        bench.write_all(1);
        mock::resize(&drive, 40);
        bench.expect_all(1);
        assert_eq!(bench.volume().take_warning(), None, "a member may grow");
        mock::resize(&drive, 20);
        bench.wait(SHORT);
        let warning = bench.volume().take_warning().expect("a warning");
        let shown = drive.display();
        assert_eq!(
            warning,
            format!(
                "member 0 ({shown}): the drive has 20 of 32 zones left, and is not used any more: restore its size"
            )
        );
        let read = bench.read(0);
        assert_eq!(bench.wait(LONG), []);
        assert_eq!(bench.log.matches("I/O stays suspended: member 0 (../d0) has 20 of 32 zones left").count(), 1);
        mock::resize(&drive, 32);
        let ended = bench.wait(SHORT);
        assert!(ended.len() == 1 && ended[0].id == read, "{}", bench.log);
        bench.expect_all(1);
    }

    #[test]
    fn a_redundant_volume_continues_without_a_member_that_shrinks() {
        let mut bench = Bench::new(MIRROR);
        bench.write_all(1);
        let drive = bench.drives[1].clone();
        mock::resize(&drive, 31);
        bench.wait(SHORT);
        bench.expect_all(1);
        bench.write_all(2);
        bench.expect_all(2);
        assert_eq!(bench.volume().report().state, VolumeState::Degraded, "{}", bench.log);
    }

    #[test]
    fn a_copy_from_before_a_change_of_members_is_detected_by_its_epoch() {
        let mut bench = Bench::new(MIRROR);
        let drive = bench.drives[0].clone();
        mock::copy(&drive);
        let (now, member) = (bench.ring.now(), MemberIndex(1));
        bench.volume().on.volume_mut().fail_member(now, member);
        bench.wait(SHORT);
        bench.stop_server();
        mock::swap_with_copy(&drive);
        bench.start_server();
        bench.wait(LONG);
        assert!(bench.log.contains("it is an older copy: its epoch is"), "{}", bench.log);
        assert_eq!(bench.volume().report().state, VolumeState::Suspended);
    }

    #[test]
    fn a_volume_with_outstanding_commands_closes_while_a_member_is_disconnected() {
        let mut bench = Bench::new(SINGLE);
        bench.write_all(1);
        bench.stop_server();
        bench.write(0, 2);
        bench.read(8);
        bench.wait(SHORT);
        let now = bench.ring.now();
        bench.volume().close(now);
        bench.wait(SHORT);
        assert!(bench.volume().is_closed());
    }
}
