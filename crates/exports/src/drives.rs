//! The drives of one server.

use std::collections::VecDeque;
use std::path::PathBuf;

use zonda_devices::{PoolDrive, PoolRequestId, RequestId, VolumeDrive};
use zonda_ring::Bytes;
use zonda_target::{DeviceHealth, DeviceKey, Flow, Target};
use zonda_zoned::{Command, Completion, CompletionQueue, Geometry, Instant, Status};

use crate::control::{PoolReplySender, ReplySender};
use crate::events;
use crate::served::{ClosePhase, Served, Submitter};

/// All drives; a [`DeviceKey`] is an index in the list, where drives that were removed leave a free
/// place.
#[derive(Default)]
pub(crate) struct Drives {
    served: Vec<Option<Served>>,
    /// Pools of which namespaces are served. Each is closed with the last of these.
    pub(crate) pools: Vec<(PathBuf, PoolDrive)>,
    /// Outstanding pool requests: the directory, the request and the channel for the reply.
    pub(crate) asked_pools: Vec<(PathBuf, PoolRequestId, PoolReplySender)>,
    /// Outstanding volume requests: the volume's index, the request and the channel for the reply.
    pub(crate) asked: Vec<(usize, RequestId, ReplySender)>,
    /// Results of saving reservations that were not passed to the target yet.
    saved: VecDeque<(DeviceKey, bool)>,
    /// Drives with another geometry that was not passed on yet.
    resized: VecDeque<(DeviceKey, Geometry)>,
}

impl Drives {
    /// Adds a drive.
    pub(crate) fn add(&mut self, served: Served) -> DeviceKey {
        let free = self.served.iter().position(Option::is_none).unwrap_or(self.served.len());
        if free == self.served.len() {
            self.served.push(None);
        }
        self.served[free] = Some(served);
        DeviceKey(free as u32)
    }

    /// Each volume with its index.
    pub(crate) fn each_volume(&mut self) -> impl Iterator<Item = (usize, &mut VolumeDrive)> {
        self.each_mut().filter_map(|(index, served)| Some((index, served.volume_mut()?)))
    }

    fn each(&self) -> impl Iterator<Item = &Served> {
        self.served.iter().flatten()
    }

    fn each_mut(&mut self) -> impl Iterator<Item = (usize, &mut Served)> {
        self.served.iter_mut().enumerate().filter_map(|(index, served)| Some((index, served.as_mut()?)))
    }

    /// # Panics
    /// If the drive was removed, which is a bug of the caller.
    pub(crate) fn get(&self, key: DeviceKey) -> &Served {
        self.served[key.0 as usize].as_ref().expect("a removed drive is not used")
    }

    fn get_mut(&mut self, key: DeviceKey) -> &mut Served {
        self.served[key.0 as usize].as_mut().expect("a removed drive is not used")
    }

    /// Closes a drive that serves no namespace any more, and then removes it.
    pub(crate) fn retire(&mut self, key: DeviceKey) {
        self.get_mut(key).is_retired = true;
    }

    /// Continues to close the drives that are to be removed.
    pub(crate) fn advance_retired(&mut self, now: Instant) {
        for place in &mut self.served {
            let Some(served) = place.as_mut().filter(|served| served.is_retired) else { continue };
            served.advance_close(now);
            if served.is_closed() {
                served.log_close_error();
                *place = None;
            }
        }
        self.forget_unused_pools();
    }

    /// Shows so many zones of a drive; the next poll reports its new geometry.
    pub(crate) fn show_zones(&mut self, key: DeviceKey, zone_count: u32) {
        self.get_mut(key).drive_mut().show_zones(zone_count);
    }

    /// Starts an iteration of the loop, with an allowance for all drives together.
    pub(crate) fn begin_iteration(&mut self, allowance: u64) {
        let busy = self.each().filter(|served| served.is_waiting()).count();
        let allowance = allowance / busy.max(1) as u64;
        self.each_mut().for_each(|(_, served)| served.allowance = allowance);
    }

    /// Submits a command to its drive, or queues it.
    pub(crate) fn submit(&mut self, now: Instant, key: DeviceKey, submitter: Submitter, flow: Flow, command: Command) {
        self.get_mut(key).submit(now, submitter, flow, command);
    }

    /// Fails the queued commands of a closed connection.
    pub(crate) fn abandon(&mut self, flow: Flow) {
        self.each_mut().for_each(|(_, served)| served.abandon(flow));
    }

    /// Saves the reservations of a drive; [`next_saved`](Drives::next_saved) returns the result.
    pub(crate) fn save_reservations(&mut self, now: Instant, key: DeviceKey, bytes: Bytes) {
        let served = self.get_mut(key);
        if served.close_phase == ClosePhase::Open {
            served.is_saving = true;
            served.drive_mut().save_reservations(now, bytes);
        } else {
            self.saved.push_back((key, false));
        }
    }

    /// The next drive that has saved its reservations, or failed to.
    pub(crate) fn next_saved(&mut self) -> Option<(DeviceKey, bool)> {
        self.saved.pop_front()
    }

    /// The next drive whose geometry has changed, and the new one.
    pub(crate) fn next_resized(&mut self) -> Option<(DeviceKey, Geometry)> {
        self.resized.pop_front()
    }

    /// Passes completions to `completed`. Returns whether there were any.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        completions: &mut CompletionQueue,
        completed: &mut dyn FnMut(DeviceKey, Submitter, Completion),
    ) -> bool {
        let mut moved = false;
        for (index, served) in self.served.iter_mut().enumerate() {
            let Some(served) = served else { continue };
            moved |= served.submit_waiting(now);
            served.drive_mut().poll(now, completions);
            if let Some(geometry) = served.take_resized() {
                moved = true;
                self.resized.push_back((DeviceKey(index as u32), geometry.clone()));
            }
            if let Some(saved) = served.drive_mut().take_reservations_saved() {
                moved = true;
                served.is_saving = false;
                self.saved.push_back((DeviceKey(index as u32), saved));
            }
            while let Some(mut completion) = completions.pop() {
                moved = true;
                let (submitter, id) = served.meter.ended(now, &completion);
                completion.id = id;
                completed(DeviceKey(index as u32), submitter, completion);
            }
            for (submitter, id) in std::mem::take(&mut served.refused) {
                moved = true;
                completed(DeviceKey(index as u32), submitter, Completion::of(id, Status::NamespaceNotReady));
            }
            // They take the slots of completed commands.
            moved |= served.submit_waiting(now);
        }
        moved
    }

    /// The earliest instant at which a drive may have an event without the ring.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.each().filter_map(|served| served.drive().next_timeout()).min()
    }

    /// Whether no command is outstanding.
    pub(crate) fn is_idle(&self) -> bool {
        let is_idle = |it: &Served| !it.is_waiting() && it.meter.outstanding() == 0 && !it.is_saving;
        self.each().all(is_idle)
    }

    /// Continues closing: commands fail from now on, including queued ones.
    pub(crate) fn advance_close(&mut self, now: Instant) {
        self.each_mut().for_each(|(_, served)| served.advance_close(now));
    }

    pub(crate) fn are_closed(&self) -> bool {
        self.each().all(Served::is_closed)
    }

    /// After [`are_closed`](Drives::are_closed): logs each drive whose data could not be made
    /// durable, and returns their names.
    pub(crate) fn log_close_errors(&mut self) -> Option<String> {
        let mut sources = Vec::new();
        for (_, served) in self.each_mut() {
            if served.log_close_error() {
                sources.push(served.source.as_str());
            }
        }
        (!sources.is_empty()).then(|| sources.join(", "))
    }

    /// Reports media errors of the drives to the target, for SMART, and logs new ones.
    pub(crate) fn report_health(&mut self, now: Instant, target: &mut Target) {
        for (index, served) in self.each_mut() {
            while let Some(warning) = served.drive_mut().take_warning() {
                events::warning(&served.source, &warning);
            }
            served.log_table_change();
            let health = DeviceHealth { degraded: served.drive().media_errors() > 0, ..DeviceHealth::default() };
            target.set_health(now, DeviceKey(index as u32), health);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use zonda_devices::{Drive, DriveFacts, MemoryDrive};
    use zonda_zoned::{
        BlockBuffer, Blocks, CommandId, Lba, NamespaceId, Namespaces, Operation, Payload, QueueFull, ZonedDevice,
    };

    use super::*;
    use crate::backing::Backing;
    use crate::served::ITERATION_COST_MAX;

    /// A drive that can fail to close, and saves reservations on request.
    struct Closed {
        memory: MemoryDrive,
        error: Option<&'static str>,
        /// The reservations to save, and whether they were saved.
        asked: Rc<RefCell<(Vec<Bytes>, Option<bool>)>>,
        is_closed: bool,
    }

    impl Closed {
        fn with(error: Option<&'static str>) -> Closed {
            let memory = MemoryDrive::new(Geometry::tiny(), u64::MAX);
            Closed { memory, error, asked: Rc::default(), is_closed: false }
        }
    }

    impl ZonedDevice for Closed {
        fn namespaces(&self) -> &Namespaces {
            self.memory.namespaces()
        }

        fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
            self.memory.submit(now, command)
        }

        fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
            self.memory.poll(now, completions);
        }

        fn next_timeout(&self) -> Option<Instant> {
            self.memory.next_timeout()
        }
    }

    impl Drive for Closed {
        fn facts(&self) -> DriveFacts {
            self.memory.facts()
        }

        fn media_errors(&self) -> u64 {
            0
        }

        fn save_reservations(&mut self, _now: Instant, bytes: Bytes) {
            assert!(!self.is_closed, "a closing drive saves nothing");
            self.asked.borrow_mut().0.push(bytes);
        }

        fn take_reservations_saved(&mut self) -> Option<bool> {
            self.asked.borrow_mut().1.take()
        }

        fn close(&mut self, _now: Instant) {
            self.is_closed = true;
        }

        fn is_closed(&self) -> bool {
            self.is_closed
        }

        fn close_error(&self) -> Option<String> {
            self.error.map(str::to_owned)
        }
    }

    const BLOCK: u32 = 4096;

    /// A drive of zeros.
    fn large() -> Drives {
        let zone = Blocks(1 << 16);
        let geometry = Geometry {
            block_size_bytes: BLOCK,
            metadata_bytes: 0,
            zone_size_blocks: zone,
            zone_capacity_blocks: zone,
            max_transfer_blocks: Blocks(256),
            ..Geometry::tiny()
        };
        let mut drives = Drives::default();
        let drive = MemoryDrive::new(geometry, u64::MAX);
        drives.add(Served::new(Backing::Drive(Box::new(drive)), "a".to_owned(), "none"));
        drives
    }

    fn read(drives: &mut Drives, flow: Flow, id: u64, blocks: u64) {
        let operation = Operation::Read { start: Lba(0), blocks: Blocks(blocks) };
        let command = Command::new(CommandId(id), NamespaceId::FIRST, operation);
        drives.submit(Instant::ZERO, DeviceKey(0), Submitter::Target, flow, command);
    }

    /// Completions of one iteration of the loop.
    fn iteration(drives: &mut Drives) -> Vec<(u64, Status)> {
        let mut ended = Vec::new();
        drives.poll(Instant::ZERO, &mut CompletionQueue::new(), &mut |_, _, completion| {
            ended.push((completion.id.0, completion.status));
        });
        drives.begin_iteration(ITERATION_COST_MAX);
        ended
    }

    #[test]
    fn a_greedy_host_delays_another_by_a_few_commands_and_an_iteration_is_bounded() {
        let mut drives = large();
        for number in 0..1024 {
            // 128 KiB, on eight queues.
            read(&mut drives, Flow { group: 1, queue: number % 8 }, number, 32);
        }
        let mut ended = iteration(&mut drives).len();
        for small in 5000..5020 {
            read(&mut drives, Flow { group: 2, queue: 0 }, small, 1);
            let all = iteration(&mut drives);
            let delay = all.iter().position(|(id, _)| *id == small).expect("it completes in the next iteration");
            assert!(delay <= 4 && all.len() <= 6, "{small}: {delay} of {}", all.len());
            ended += all.len() - 1;
        }
        while ended < 1024 {
            ended += iteration(&mut drives).len();
        }
        assert!(drives.is_idle() && iteration(&mut drives).is_empty());
    }

    /// A drive that refuses writes, as one does whose buffers are full.
    struct ReadsOnly(Closed, Rc<RefCell<bool>>);

    impl ZonedDevice for ReadsOnly {
        fn namespaces(&self) -> &Namespaces {
            self.0.namespaces()
        }

        fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
            if *self.1.borrow() && !matches!(command.operation, Operation::Read { .. }) {
                return Err(QueueFull(command));
            }
            self.0.submit(now, command)
        }

        fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
            self.0.poll(now, completions);
        }

        fn next_timeout(&self) -> Option<Instant> {
            self.0.next_timeout()
        }
    }

    impl Drive for ReadsOnly {
        fn facts(&self) -> DriveFacts {
            self.0.facts()
        }

        fn media_errors(&self) -> u64 {
            0
        }

        fn close(&mut self, now: Instant) {
            self.0.close(now);
        }

        fn is_closed(&self) -> bool {
            self.0.is_closed()
        }
    }

    #[test]
    fn a_refused_write_holds_up_writes_behind_it_and_no_reads() {
        let is_full = Rc::new(RefCell::new(true));
        let mut drives = Drives::default();
        let drive = ReadsOnly(Closed::with(None), Rc::clone(&is_full));
        drives.add(Served::new(Backing::Drive(Box::new(drive)), "a".to_owned(), "none"));
        let (one, other) = (Flow { group: 1, queue: 0 }, Flow { group: 2, queue: 0 });
        let write = |drives: &mut Drives, flow, id| {
            let data = BlockBuffer { data: vec![1; 512].into(), metadata: vec![0; 8].into() };
            let payload = Payload::Bytes(Box::new(data));
            let operation = Operation::Write { start: Lba(id - 1), blocks: Blocks(1), payload };
            let command = Command::new(CommandId(id), NamespaceId::FIRST, operation);
            drives.submit(Instant::ZERO, DeviceKey(0), Submitter::Target, flow, command);
        };
        write(&mut drives, one, 1);
        write(&mut drives, one, 2);
        read(&mut drives, one, 10, 1);
        read(&mut drives, other, 11, 1);
        let done = |ids: &[u64]| ids.iter().map(|id| (*id, Status::Success)).collect::<Vec<_>>();
        assert_eq!(iteration(&mut drives), done(&[11, 10]), "the first address has had a turn");
        write(&mut drives, other, 3);
        assert_eq!(iteration(&mut drives), []);
        *is_full.borrow_mut() = false;
        let mut ended = iteration(&mut drives);
        ended.extend(iteration(&mut drives));
        assert_eq!(ended, done(&[1, 2, 3]), "in their order: each is at the write pointer");
        assert!(drives.is_idle());
    }

    #[test]
    fn queued_commands_of_a_closed_connection_fail() {
        let mut drives = large();
        let (closed, other) = (Flow { group: 1, queue: 1 }, Flow { group: 1, queue: 2 });
        (0..8).for_each(|number| read(&mut drives, if number < 6 { closed } else { other }, number, 32));
        drives.abandon(closed);
        let mut all: Vec<_> = (0..3).flat_map(|_| iteration(&mut drives)).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        let failed: Vec<u64> = all.iter().filter(|(_, status)| !status.is_success()).map(|(id, _)| *id).collect();
        assert_eq!((all.len(), failed), (8, vec![4, 5]));
    }

    #[test]
    fn a_drive_is_closed_after_its_reservations_are_saved_and_saves_no_more() {
        let (drive, now, bytes) = (Closed::with(None), Instant::ZERO, Bytes::from_static(b"reserved"));
        let asked = Rc::clone(&drive.asked);
        let mut drives = Drives::default();
        let key = drives.add(Served::new(Backing::Drive(Box::new(drive)), "a".to_owned(), "none"));
        let poll = |drives: &mut Drives| {
            drives.poll(now, &mut CompletionQueue::new(), &mut |_, _, _| unreachable!("there are no commands"))
        };
        drives.save_reservations(now, key, bytes.clone());
        assert!(!poll(&mut drives) && drives.next_saved().is_none() && !drives.is_idle());
        drives.advance_close(now);
        assert!(!drives.are_closed(), "it is still saving");
        asked.borrow_mut().1 = Some(true);
        assert!(poll(&mut drives), "the loop iterates again");
        assert_eq!((drives.next_saved(), drives.next_saved()), (Some((key, true)), None));
        assert!(drives.is_idle());
        drives.save_reservations(now, key, bytes.clone());
        assert_eq!(drives.next_saved(), Some((key, false)), "it takes no more");
        drives.advance_close(now);
        assert!(drives.are_closed());
        assert_eq!(asked.borrow().0, [bytes]);
    }

    #[test]
    fn closing_names_the_drives_whose_data_are_not_durable() {
        let mut drives = Drives::default();
        for (source, error) in [("a", None), ("b", Some("the last flush failed: I/O error")), ("c", None)] {
            let drive = Closed::with(error);
            drives.add(Served::new(Backing::Drive(Box::new(drive)), source.to_owned(), "none"));
        }
        drives.advance_close(Instant::ZERO);
        assert!(drives.are_closed());
        assert_eq!(drives.log_close_errors().as_deref(), Some("b"));
        drives.served[1] = None;
        assert_eq!(drives.log_close_errors(), None);
    }
}
