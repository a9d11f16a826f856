//! A pool whose drive is of a server that stops and starts.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zonda_elastic::{ElasticDevice, Goal};
use zonda_ring::{Bytes, Ring};
use zonda_zoned::{
    BlockBuffer, Blocks, Command, CommandId, Completion, CompletionQueue, Duration, Lba, NamespaceId, Operation,
    Outcome, Payload, PayloadKind, Status, ZoneAction, ZoneTarget, ZonedDevice,
};

use super::base::PoolBase;
use super::directory::PoolDirectory;
use super::drive::{not_mounted, started};
use super::look::read_on;
use super::{NamespaceSize, NewNamespace, NewPool, PoolDrive, PoolNamespace, PoolRequest};
use crate::probe::Probe;
use crate::volume::member_device::MemberDevice;
use crate::{Drive, Location, mock};

const BLOCK_BYTES: usize = 512;
const NGUID: [u8; 16] = [5; 16];
const LONG: Duration = Duration::from_secs(90);
const SHORT: Duration = Duration::from_secs(15);

struct Bench {
    tenant: Option<PoolNamespace>,
    pool: Option<PoolDrive>,
    drive: PathBuf,
    ring: Ring,
    next: u64,
    log: String,
    above: TempDir,
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Before the mock drive.
        (self.tenant, self.pool) = (None, None);
    }
}

impl Bench {
    fn new() -> Bench {
        Bench::over(mock::set_remote)
    }

    /// On a drive of this machine.
    fn of_device() -> Bench {
        Bench::over(|drive| mock::set_device(drive, NGUID))
    }

    fn over(prepare: impl FnOnce(&Path)) -> Bench {
        mock::begin();
        let above = TempDir::new().expect("there is space");
        let drive = above.path().join("d");
        mock::add(&drive, &mock::geometry(64));
        prepare(&drive);
        let ring = Ring::simulated().expect("there is an event loop");
        let new = NewPool::on(Location::Image(drive.clone()));
        let pool = PoolDrive::create(&above.path().join("pool"), &new, &ring).expect("the drive is suitable");
        let size = NamespaceSize::Zones(4);
        let tenant = NewNamespace { name: "tenant".to_owned(), size, max_active_zones: 2, weight: 1 };
        pool.manage(&PoolRequest::Create(tenant), &ring).expect("the drive has room");
        let tenant = pool.namespace("tenant").expect("it was created");
        Bench { tenant: Some(tenant), pool: Some(pool), drive, ring, next: 0, log: String::new(), above }
    }

    fn tenant(&mut self) -> &mut PoolNamespace {
        self.tenant.as_mut().expect("it is open")
    }

    fn pool(&self) -> &PoolDrive {
        self.pool.as_ref().expect("it is open")
    }

    fn submit(&mut self, operation: Operation) -> CommandId {
        self.next += 1;
        let (id, now) = (CommandId(self.next), self.ring.now());
        self.tenant().submit(now, Command::new(id, NamespaceId::FIRST, operation)).expect("there is a queue slot");
        id
    }

    /// The completions within this time.
    fn wait(&mut self, time: Duration) -> Vec<Completion> {
        let until = self.ring.now() + time;
        let mut completions = CompletionQueue::new();
        loop {
            let now = self.ring.now();
            self.tenant().poll(now, &mut completions);
            while let Some(warning) = self.tenant().take_warning() {
                let above = self.above.path().display().to_string();
                self.log += &(warning.replace(&above, "..") + "\n");
            }
            let next = self.tenant().next_timeout();
            if now >= until && next.is_none_or(|next| next > now) {
                return std::iter::from_fn(|| completions.pop()).collect();
            }
            self.ring.run_once(Some(next.map_or(until, |next| next.min(until)).max(now))).expect("the loop works");
        }
    }

    fn write(&mut self, lba: u64) -> CommandId {
        let data = vec![lba as u8; 8 * BLOCK_BYTES].into();
        let payload = Payload::Bytes(Box::new(BlockBuffer { data, metadata: vec![0; 8 * 64].into() }));
        self.submit(Operation::Write { start: Lba(lba), blocks: Blocks(8), payload })
    }

    fn manage(&mut self, action: ZoneAction) -> CommandId {
        self.submit(Operation::ManageZones { action, target: ZoneTarget::Zone(Lba(0)) })
    }

    fn read(&mut self, lba: u64) -> CommandId {
        self.submit(Operation::Read { start: Lba(lba), blocks: Blocks(8) })
    }

    /// Writes 8 blocks, which succeeds.
    fn written(&mut self, lba: u64) {
        self.write(lba);
        let ended = self.wait(Duration::from_secs(1));
        assert!(ended.len() == 1 && ended[0].status.is_success(), "block {lba}: {ended:?} {}", self.log);
    }

    fn expect(&mut self, lba: u64) {
        self.read(lba);
        let ended = self.wait(Duration::from_secs(1));
        assert_eq!(ended.len(), 1, "block {lba}: {}", self.log);
        expect_block(&ended[0], lba);
    }

    fn stop_server(&self) {
        mock::disconnect(&self.drive);
        mock::set_away(&self.drive, true);
    }

    fn start_server(&self) {
        mock::set_away(&self.drive, false);
    }
}

fn expect_block(completion: &Completion, lba: u64) {
    let Outcome::Data(Payload::Bytes(buffer)) = &completion.outcome else {
        panic!("block {lba}: {}", completion.status)
    };
    assert!(buffer.data.iter().all(|byte| *byte == lba as u8), "block {lba}");
}

#[test]
fn commands_wait_while_the_server_of_the_drive_is_down_and_continue_when_it_is_back() {
    let mut bench = Bench::new();
    bench.written(0);
    for round in 1..4 {
        bench.stop_server();
        assert_eq!(bench.wait(SHORT), [], "the loss is noticed while nothing happens");
        let (read, write, flush) = (bench.read(0), bench.write(8 * round), bench.submit(Operation::Flush));
        assert_eq!(bench.wait(LONG), [], "they wait: {}", bench.log);
        assert!(bench.pool().report().is_disconnected);
        bench.start_server();
        let ended = bench.wait(SHORT);
        assert_eq!(ended.len(), 3, "{}", bench.log);
        assert!(ended.iter().all(|completion| completion.status.is_success()), "{ended:?}");
        let of = |id: CommandId| ended.iter().find(|completion| completion.id == id).expect("it has ended");
        expect_block(of(read), 0);
        assert!(of(write).status.is_success() && of(flush).status.is_success());
        assert!(!bench.pool().report().is_disconnected);
        bench.expect(8 * round);
    }
    let lost = "the connection to the drive ../d of the pool is lost";
    assert_eq!(bench.log.matches(lost).count(), 3, "{}", bench.log);
    assert_eq!(bench.log.matches("the pool was opened again, and can be written").count(), 3, "{}", bench.log);
}

#[test]
fn commands_wait_while_the_drive_of_this_machine_is_unplugged_and_continue_when_it_is_back() {
    let mut bench = Bench::of_device();
    bench.written(0);
    for round in 1..4 {
        bench.stop_server();
        let lost = bench.read(0);
        let ended = bench.wait(SHORT);
        assert_eq!((ended.len(), ended[0].id), (1, lost), "the loss is noticed by a command that fails");
        let (read, write, flush) = (bench.read(0), bench.write(8 * round), bench.submit(Operation::Flush));
        assert_eq!(bench.wait(LONG), [], "they wait: {}", bench.log);
        assert!(bench.pool().report().is_disconnected);
        bench.start_server();
        let ended = bench.wait(SHORT);
        assert_eq!(ended.len(), 3, "{}", bench.log);
        let of = |id: CommandId| ended.iter().find(|completion| completion.id == id).expect("it has ended");
        expect_block(of(read), 0);
        assert!(of(write).status.is_success() && of(flush).status.is_success());
        bench.expect(8 * round);
    }
    let lost = "the drive ../d of the pool is missing: commands of its hosts wait until it is back";
    assert_eq!(bench.log.matches(lost).count(), 3, "{}", bench.log);
}

#[test]
fn a_pool_does_not_continue_on_another_drive_in_place_of_the_one_that_was_unplugged() {
    let mut bench = Bench::of_device();
    bench.written(0);
    bench.stop_server();
    bench.read(0);
    bench.wait(SHORT);
    let read = bench.read(0);
    mock::set_device(&bench.drive, [6; 16]);
    let before = mock::changes(&bench.drive);
    bench.start_server();
    assert_eq!(bench.wait(LONG), [], "{}", bench.log);
    assert_eq!(bench.log.matches("it is another drive: its identifiers").count(), 1, "{}", bench.log);
    assert_eq!(mock::changes(&bench.drive), before, "nothing is written to it");
    mock::set_device(&bench.drive, NGUID);
    let ended = bench.wait(SHORT);
    assert_eq!((ended.len(), ended[0].id), (1, read), "{}", bench.log);
    bench.written(8);
}

#[test]
fn a_drive_that_lacks_acknowledged_blocks_of_a_tenant_is_not_used() {
    let mut bench = Bench::new();
    bench.written(0);
    mock::copy(&bench.drive);
    bench.written(8);
    bench.stop_server();
    bench.wait(SHORT);
    mock::swap_with_copy(&bench.drive);
    bench.start_server();
    bench.read(0);
    assert_eq!(bench.wait(LONG), [], "{}", bench.log);
    let lacks = "zone 0 of namespace 1 lacks blocks that were acknowledged";
    assert_eq!(bench.log.matches(lacks).count(), 1, "it is logged once: {}", bench.log);
    assert!(bench.pool().report().is_drive_refused);
    mock::swap_with_copy(&bench.drive);
    let ended = bench.wait(SHORT);
    assert_eq!(ended.len(), 1, "{}", bench.log);
    expect_block(&ended[0], 0);
    bench.expect(8);
    bench.written(16);
    assert!(!bench.pool().report().is_drive_refused);
}

/// Puts an earlier copy of the drive in its place: the pool does not continue on it for this reason, and
/// continues on the right one.
fn refuses_the_copy(bench: &mut Bench, why: &str) {
    bench.stop_server();
    bench.wait(SHORT);
    mock::swap_with_copy(&bench.drive);
    bench.start_server();
    let read = bench.read(0);
    assert_eq!(bench.wait(LONG), [], "{}", bench.log);
    assert!(bench.log.contains(why), "{}", bench.log);
    mock::swap_with_copy(&bench.drive);
    let ended = bench.wait(SHORT);
    assert!(ended.len() == 1 && ended[0].id == read, "{}", bench.log);
    expect_block(&ended[0], 0);
}

const RECORDS_MISSING: &str = "the log of the pool ends with block";

#[test]
fn a_copy_of_the_drive_from_before_an_acknowledged_finish_is_not_used() {
    let mut bench = Bench::new();
    bench.written(0);
    mock::copy(&bench.drive);
    bench.manage(ZoneAction::Finish);
    assert!(bench.wait(SHORT)[0].status.is_success());
    refuses_the_copy(&mut bench, RECORDS_MISSING);
}

/// Also if the pool has written nothing since it was opened again, it knows what was durable before.
#[test]
fn a_copy_of_the_drive_is_not_used_either_if_the_connection_is_lost_again_at_once() {
    for commands in 1..24 {
        let mut bench = Bench::new();
        bench.written(0);
        mock::copy(&bench.drive);
        bench.manage(ZoneAction::Finish);
        assert!(bench.wait(SHORT)[0].status.is_success());
        bench.stop_server();
        bench.wait(SHORT);
        mock::cut_off_after(0, commands, vec![bench.drive.clone()]);
        bench.start_server();
        bench.wait(SHORT);
        mock::cancel_cut_off(0);
        mock::set_cut_off(0, &bench.drive, false);
        refuses_the_copy(&mut bench, "the pool does not continue");
    }
}

#[test]
fn a_copy_of_the_drive_from_before_a_namespace_was_replaced_is_not_used() {
    let mut bench = Bench::new();
    bench.written(0);
    let create = |bench: &Bench, name: &str| {
        let size = NamespaceSize::Zones(1);
        let new = NewNamespace { name: name.to_owned(), size, max_active_zones: 1, weight: 1 };
        bench.pool().manage(&PoolRequest::Create(new), &bench.ring).expect("the drive has room");
    };
    create(&bench, "x");
    mock::copy(&bench.drive);
    bench.pool().manage(&PoolRequest::Delete { name: "x".to_owned() }, &bench.ring).expect("it exists");
    create(&bench, "y");
    refuses_the_copy(&mut bench, RECORDS_MISSING);
}

#[test]
fn blocks_of_a_zone_that_was_being_finished_or_reset_must_be_on_the_drive() {
    for action in [ZoneAction::Finish, ZoneAction::Reset] {
        let mut bench = Bench::new();
        bench.written(0);
        mock::copy(&bench.drive);
        bench.written(8);
        mock::cut_off_after(0, 1, vec![bench.drive.clone()]);
        bench.manage(action.clone());
        let ended = bench.wait(SHORT);
        mock::cancel_cut_off(0);
        assert!(ended.len() == 1 && !ended[0].status.is_success(), "it was in flight: {ended:?}");
        mock::swap_with_copy(&bench.drive);
        mock::set_cut_off(0, &bench.drive, false);
        bench.read(0);
        assert_eq!(bench.wait(LONG), [], "{}", bench.log);
        let lacks = "zone 0 of namespace 1 lacks blocks that were acknowledged";
        assert!(bench.log.contains(lacks), "{action:?}: {}", bench.log);
        mock::swap_with_copy(&bench.drive);
        assert_eq!(bench.wait(SHORT).len(), 1, "{}", bench.log);
    }
}

#[test]
fn a_pool_that_another_owner_has_taken_meanwhile_is_not_taken_back() {
    let mut bench = Bench::new();
    bench.written(0);
    bench.stop_server();
    bench.wait(SHORT);
    let write = bench.write(8);
    mock::seize(&bench.drive);
    bench.start_server();
    let ended = bench.wait(SHORT);
    assert_eq!((ended.len(), ended[0].id, ended[0].status), (1, write, Status::InternalError), "{}", bench.log);
    assert!(bench.log.contains("has been taken over"), "{}", bench.log);
    assert!(mock::holder(&bench.drive).is_some_and(|holder| holder.host.0 == [0xee; 16]), "it keeps the drive");
}

#[test]
fn a_pool_closes_while_its_drive_is_disconnected_and_reports_it() {
    let mut bench = Bench::new();
    bench.written(0);
    assert!(!bench.tenant().ends_commands_at_close());
    bench.stop_server();
    bench.wait(SHORT);
    let write = bench.write(8);
    assert!(bench.tenant().ends_commands_at_close(), "a server does not wait for it");
    let now = bench.ring.now();
    bench.tenant().close(now);
    let ended = bench.wait(SHORT);
    assert_eq!((ended.len(), ended[0].id, ended[0].status), (1, write, Status::NamespaceNotReady));
    assert!(bench.tenant().is_closed(), "{}", bench.log);
    let error = bench.tenant().close_error().expect("the drive could not flush");
    assert!(error.contains("/d of the pool is lost"), "{error}");
}

#[test]
fn no_namespace_is_changed_while_the_drive_is_disconnected() {
    let mut bench = Bench::new();
    bench.stop_server();
    bench.wait(SHORT);
    let delete = PoolRequest::Delete { name: "tenant".to_owned() };
    let error = bench.pool().manage(&delete, &bench.ring).expect_err("nothing can be recorded");
    assert!(error.to_string().contains("is lost"), "{error}");
    bench.start_server();
    bench.wait(SHORT);
    let other =
        NewNamespace { name: "other".to_owned(), size: NamespaceSize::Zones(1), max_active_zones: 1, weight: 1 };
    bench.pool().manage(&PoolRequest::Create(other), &bench.ring).expect("it is connected again");
    bench.written(0);
}

#[test]
fn no_reservation_of_a_host_is_acknowledged_while_another_server_may_have_the_pool() {
    let mut bench = Bench::new();
    let save = |bench: &mut Bench| {
        let now = bench.ring.now();
        bench.tenant().save_reservations(now, Bytes::from_static(b"reservations"));
        bench.tenant().take_reservations_saved()
    };
    bench.wait(SHORT);
    assert_eq!(save(&mut bench), Some(true));
    bench.stop_server();
    bench.wait(SHORT);
    assert_eq!(save(&mut bench), Some(false), "the drive is not connected");
    bench.start_server();
    bench.wait(SHORT);
    assert_eq!(save(&mut bench), Some(true), "{}", bench.log);
    mock::seize(&bench.drive);
    bench.wait(SHORT);
    assert_eq!(save(&mut bench), Some(false), "the drive is taken");
}

/// A pool that is closed: its directory, and its drive, which is reserved for it.
fn with_device() -> (Bench, PoolDirectory, MemberDevice) {
    let mut bench = Bench::new();
    let path = bench.pool().path();
    (bench.tenant, bench.pool) = (None, None);
    let directory = PoolDirectory::open(&path).expect("no program uses it");
    let access = directory.access().expect("the path is valid");
    let device = MemberDevice::open(&access, &bench.ring).expect("it can be reserved");
    (bench, directory, device)
}

/// Commands that the drive refuses do not complete, so a wait for them would have no end.
#[test]
fn reading_a_pool_ends_when_another_host_reserves_the_drive_meanwhile() {
    let (bench, directory, mut device) = with_device();
    mock::seize(&bench.drive);
    let error = read_on(&directory, &mut device, &bench.ring).expect_err("it is not ours any more");
    assert!(error.to_string().contains("another host has reserved the drive"), "{error}");
}

/// A command that the drive refuses does not complete: the volume or pool decides what becomes of it.
#[test]
fn a_probe_ends_when_another_host_reserves_the_drive_meanwhile() {
    let (bench, _directory, mut device) = with_device();
    mock::seize(&bench.drive);
    let geometry = device.own_geometry().clone();
    let error = Probe::of_user(&geometry).run_on_member(&mut device, &bench.ring).expect_err("it is refused");
    assert!(error.message.contains("another host has reserved the drive"), "{error}");
}

/// Commands that were aborted with the connection do not complete, so a wait for them would have no end.
#[test]
fn a_mount_ends_when_the_connection_to_the_drive_is_lost_meanwhile() {
    let (bench, directory, device) = with_device();
    mock::disconnect(&bench.drive);
    let goal = Goal::Mount { id: Some(directory.id()), epoch_min: directory.epoch() };
    let mut device = ElasticDevice::new(PoolBase::of(device), goal, PayloadKind::Bytes);
    let error = started(&mut device, &bench.ring).expect_err("its server does not answer");
    let error = not_mounted(&error, &directory);
    assert!(error.message.contains("the connection to the drive is lost"), "{error}");
    assert!(error.help.contains("resume it if it is paused"), "{error}");
}

#[test]
fn a_change_of_a_pool_whose_drive_has_no_space_names_that_and_the_remedy() {
    let bench = Bench::new();
    mock::set_out_of_space(&bench.drive, true);
    let name = || "tenant".to_owned();
    let size = NamespaceSize::Zones(5);
    let new = NewNamespace { name: "other".to_owned(), size, max_active_zones: 1, weight: 1 };
    // The first cannot be recorded, and the others are refused.
    for request in [
        PoolRequest::Resize { name: name(), size },
        PoolRequest::Create(new),
        PoolRequest::Resize { name: name(), size: NamespaceSize::Zones(6) },
    ] {
        let error = bench.pool().manage(&request, &bench.ring).expect_err("the drive has no space");
        assert!(
            error.message.contains("the file system of the drive") && error.message.contains(" is full"),
            "{error}"
        );
        assert!(error.help.contains("free space on the file system of"), "{error}");
    }
}
