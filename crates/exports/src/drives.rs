//! The drives of one server, and the commands that wait for room in them.

use std::collections::VecDeque;

use zonda_devices::{Drive, RequestId};
use zonda_ring::Bytes;
use zonda_target::{DeviceHealth, DeviceKey, Target};
use zonda_zoned::{Command, CommandId, Completion, CompletionQueue, Geometry, Instant, NamespaceId, QueueFull, Status};

use crate::control::Answerer;
use crate::events;
use crate::meter::Meter;

/// Who gives a drive commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitter {
    /// The NVMe/TCP target.
    Target,
    /// The NBD server.
    Nbd,
}

/// A drive and what is known of it.
pub(crate) struct Served {
    drive: Box<dyn Drive>,
    /// The namespace within the drive.
    namespace: NamespaceId,
    geometry: Geometry,
    /// Commands for which the drive had no room, the oldest first. As many as queues of hosts and requests of NBD clients hold.
    waiting: VecDeque<(Submitter, Command)>,
    /// Commands that came when the drive was to be closed, or waited then: they fail.
    refused: Vec<(Submitter, CommandId)>,
    /// The drive is keeping reservations.
    is_keeping: bool,
    end: End,
    pub(crate) meter: Meter,
    /// Where its blocks are, in words.
    pub(crate) source: String,
    /// `none` or `profile`.
    pub(crate) timing: &'static str,
}

/// How far a drive is on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It takes commands.
    NotYet,
    /// It takes no commands any more, and ends those that it has.
    Draining,
    /// It was told to close.
    Closing,
}

/// All drives; a [`DeviceKey`] is a place in the list.
#[derive(Default)]
pub(crate) struct Drives {
    served: Vec<Served>,
    /// Requests to volumes that wait for a device: the volume's place, and who asked.
    pub(crate) asked: Vec<(usize, RequestId, Answerer)>,
    /// Whether drives have kept what they were asked to, where the target has not heard of it.
    kept: VecDeque<(DeviceKey, bool)>,
}

impl Served {
    pub(crate) fn new(drive: Box<dyn Drive>, source: String, timing: &'static str) -> Served {
        let namespace = NamespaceId::FIRST;
        let geometry = drive.geometry(namespace).clone();
        let (waiting, refused, meter) = (VecDeque::new(), Vec::new(), Meter::default());
        let is_keeping = false;
        Served { drive, namespace, geometry, waiting, refused, is_keeping, end: End::NotYet, meter, source, timing }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn drive(&self) -> &dyn Drive {
        &*self.drive
    }

    /// Commands in the drive, and those that wait for it.
    pub(crate) fn outstanding(&self) -> usize {
        self.meter.outstanding() + self.waiting.len()
    }

    fn submit(&mut self, now: Instant, submitter: Submitter, mut command: Command) {
        if self.end != End::NotYet {
            self.refused.push((submitter, command.id));
            return;
        }
        command.namespace = self.namespace;
        // The oldest goes first: a zone's writes must not overtake one another.
        self.waiting.push_back((submitter, command));
        if self.waiting.len() == 1 {
            self.submit_waiting(now);
        }
    }

    fn submit_waiting(&mut self, now: Instant) {
        while let Some((submitter, mut command)) = self.waiting.pop_front() {
            let id = command.id;
            let given = self.meter.started(now, submitter, &command, self.geometry.block_size_bytes);
            command.id = given;
            if let Err(QueueFull(mut command)) = self.drive.submit(now, command) {
                self.meter.refused(given);
                command.id = id;
                self.waiting.push_front((submitter, command));
                return;
            }
        }
    }

    /// Goes on with closing. Commands that a volume holds for members that are away end with it; any other drive ends its own first.
    fn close_on(&mut self, now: Instant) {
        if self.end == End::NotYet {
            self.end = End::Draining;
            self.refused.extend(self.waiting.drain(..).map(|(submitter, command)| (submitter, command.id)));
        }
        let is_at_rest = self.meter.outstanding() == 0 && !self.is_keeping;
        if self.end == End::Draining && (is_at_rest || self.drive.as_volume().is_some()) {
            self.end = End::Closing;
            self.drive.close(now);
        }
    }
}

impl Drives {
    /// Adds a drive.
    pub(crate) fn add(&mut self, served: Served) -> DeviceKey {
        self.served.push(served);
        DeviceKey(self.served.len() as u32 - 1)
    }

    pub(crate) fn each_drive(&mut self) -> impl Iterator<Item = &mut (dyn Drive + 'static)> {
        self.served.iter_mut().map(|served| &mut *served.drive)
    }

    pub(crate) fn get(&self, key: DeviceKey) -> &Served {
        &self.served[key.0 as usize]
    }

    /// A command goes to its drive, now or when there is room.
    pub(crate) fn submit(&mut self, now: Instant, key: DeviceKey, submitter: Submitter, command: Command) {
        self.served[key.0 as usize].submit(now, submitter, command);
    }

    /// A drive keeps what hosts have reserved of it; [`next_kept`](Drives::next_kept) tells the end.
    pub(crate) fn keep_reservations(&mut self, now: Instant, key: DeviceKey, bytes: Bytes) {
        let served = &mut self.served[key.0 as usize];
        if served.end == End::NotYet {
            served.is_keeping = true;
            served.drive.keep_reservations(now, bytes);
        } else {
            self.kept.push_back((key, false));
        }
    }

    /// A drive that has kept what it was asked to, or could not.
    pub(crate) fn next_kept(&mut self) -> Option<(DeviceKey, bool)> {
        self.kept.pop_front()
    }

    /// Tells `completed` of everything that has ended. Returns whether anything has.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        completions: &mut CompletionQueue,
        completed: &mut dyn FnMut(DeviceKey, Submitter, Completion),
    ) -> bool {
        let mut moved = false;
        for (index, served) in self.served.iter_mut().enumerate() {
            served.drive.poll(now, completions);
            if let Some(kept) = served.drive.take_reservations_kept() {
                moved = true;
                served.is_keeping = false;
                self.kept.push_back((DeviceKey(index as u32), kept));
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
            served.submit_waiting(now);
        }
        moved
    }

    /// The earliest instant at which a drive may have news without the ring's help.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.served.iter().filter_map(|served| served.drive.next_wakeup()).min()
    }

    /// Whether no command is under way.
    pub(crate) fn is_idle(&self) -> bool {
        let is_idle = |it: &Served| it.waiting.is_empty() && it.meter.outstanding() == 0 && !it.is_keeping;
        self.served.iter().all(is_idle)
    }

    /// Goes on with closing: commands fail from now on, also those that have waited for room.
    pub(crate) fn close_on(&mut self, now: Instant) {
        self.served.iter_mut().for_each(|served| served.close_on(now));
    }

    pub(crate) fn are_closed(&self) -> bool {
        self.served.iter().all(|served| served.end == End::Closing && served.drive.is_closed())
    }

    /// After [`are_closed`](Drives::are_closed): what could not be made durable. Each is told to the log.
    pub(crate) fn tell_close_errors(&mut self) -> Option<String> {
        let mut sources = Vec::new();
        for served in &mut self.served {
            if let Some(trouble) = served.drive.take_trouble() {
                events::trouble(&served.source, &trouble);
            }
            if let Some(error) = served.drive.close_error() {
                events::trouble(&served.source, &error);
                sources.push(served.source.as_str());
            }
        }
        (!sources.is_empty()).then(|| sources.join(", "))
    }

    /// The target hears of failures inside the drives, for SMART, and the log of those since it was last told.
    pub(crate) fn tell_health(&mut self, now: Instant, target: &mut Target) {
        for (index, served) in self.served.iter_mut().enumerate() {
            if let Some(trouble) = served.drive.take_trouble() {
                events::trouble(&served.source, &trouble);
            }
            let health = DeviceHealth { degraded: served.drive.media_errors() > 0, ..DeviceHealth::default() };
            target.set_health(now, DeviceKey(index as u32), health);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use zonda_devices::{DriveFacts, MemoryDrive};
    use zonda_zoned::ZonedDevice;

    use super::*;

    /// A drive that closes, and could not make everything durable if it has an error; it keeps reservations when it is told to.
    struct Closed {
        memory: MemoryDrive,
        error: Option<&'static str>,
        /// What it was asked to keep, and whether it has.
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
        fn geometry(&self, namespace: NamespaceId) -> &Geometry {
            self.memory.geometry(namespace)
        }

        fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
            self.memory.submit(now, command)
        }

        fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
            self.memory.poll(now, completions);
        }

        fn next_wakeup(&self) -> Option<Instant> {
            self.memory.next_wakeup()
        }
    }

    impl Drive for Closed {
        fn facts(&self) -> DriveFacts {
            self.memory.facts()
        }

        fn media_errors(&self) -> u64 {
            0
        }

        fn keep_reservations(&mut self, _now: Instant, bytes: Bytes) {
            assert!(!self.is_closed, "a drive that is being closed keeps nothing");
            self.asked.borrow_mut().0.push(bytes);
        }

        fn take_reservations_kept(&mut self) -> Option<bool> {
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

    #[test]
    fn a_drive_is_closed_when_it_has_kept_what_it_was_asked_to_and_keeps_nothing_more() {
        let (drive, now, bytes) = (Closed::with(None), Instant::ZERO, Bytes::from_static(b"reserved"));
        let asked = Rc::clone(&drive.asked);
        let mut drives = Drives::default();
        let key = drives.add(Served::new(Box::new(drive), "a".to_owned(), "none"));
        let poll = |drives: &mut Drives| {
            drives.poll(now, &mut CompletionQueue::new(), &mut |_, _, _| unreachable!("there are no commands"))
        };
        drives.keep_reservations(now, key, bytes.clone());
        assert!(!poll(&mut drives) && drives.next_kept().is_none() && !drives.is_idle());
        drives.close_on(now);
        assert!(!drives.are_closed(), "it keeps something");
        asked.borrow_mut().1 = Some(true);
        assert!(poll(&mut drives), "the loop goes round again");
        assert_eq!((drives.next_kept(), drives.next_kept()), (Some((key, true)), None));
        assert!(drives.is_idle());
        drives.keep_reservations(now, key, bytes.clone());
        assert_eq!(drives.next_kept(), Some((key, false)), "it takes no more");
        drives.close_on(now);
        assert!(drives.are_closed());
        assert_eq!(asked.borrow().0, [bytes]);
    }

    #[test]
    fn the_end_of_a_server_names_the_drives_that_are_not_durable() {
        let mut drives = Drives::default();
        for (source, error) in [("a", None), ("b", Some("the last flush failed: I/O error")), ("c", None)] {
            let drive = Closed::with(error);
            drives.add(Served::new(Box::new(drive), source.to_owned(), "none"));
        }
        drives.close_on(Instant::ZERO);
        assert!(drives.are_closed());
        assert_eq!(drives.tell_close_errors().as_deref(), Some("b"));
        drives.served.remove(1);
        assert_eq!(drives.tell_close_errors(), None);
    }
}
