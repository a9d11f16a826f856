//! A namespace with a link that a test controls.

use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;

use zonda_zoned::{CommandId, Payload, Status, ZoneReport, ZoneState, ZoneType};

use super::*;
use crate::caller_memory::CallerMemory;
use crate::command::UserData;
use crate::layout::Opcode;

/// State shared by the test and its link.
#[derive(Default)]
struct Device {
    /// Submitted, in order, until the device completes them.
    taken: Vec<(u64, Operation)>,
    ended: Vec<Completion>,
    is_full: bool,
    has_failed: bool,
}

#[derive(Clone, Default)]
struct Scripted(Rc<RefCell<Device>>);

impl Link for Scripted {
    fn check(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn submit(&mut self, token: u64, operation: Operation) -> Result<(), Operation> {
        let mut device = self.0.borrow_mut();
        if std::mem::take(&mut device.is_full) {
            return Err(operation);
        }
        device.taken.push((token, operation));
        Ok(())
    }

    fn kick(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    fn collect(&mut self, ended: &mut CompletionQueue) -> Result<(), Failure> {
        let mut device = self.0.borrow_mut();
        device.ended.drain(..).for_each(|completion| ended.push(completion));
        if device.has_failed { Err(Failure::new(Errno::IO, "gone", "")) } else { Ok(()) }
    }

    fn sleep(&mut self, _until: Option<Instant>, ended: &mut CompletionQueue) -> Result<(), Failure> {
        // A sleep completes everything outstanding, with the device's answers.
        let taken = std::mem::take(&mut self.0.borrow_mut().taken);
        for (token, operation) in taken {
            self.0.borrow_mut().ended.push(answer(token, &operation));
        }
        self.collect(ended)
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(())
    }
}

fn answer(token: u64, operation: &Operation) -> Completion {
    let outcome = match operation {
        Operation::Read { .. } => Outcome::Data(Payload::None),
        Operation::ReportZones { start, descriptors_max, .. } => {
            let first = start.0 / 16;
            let zones = (first..8).take(*descriptors_max as usize).map(|zone| descriptor(Lba(zone * 16)));
            Outcome::Report(Box::new(ZoneReport { matching_zones: 0, zones: zones.collect() }))
        }
        _ => Outcome::None,
    };
    Completion { id: CommandId(token), status: Status::Success, outcome }
}

fn descriptor(start: Lba) -> ZoneDescriptor {
    ZoneDescriptor {
        zone_type: ZoneType::SequentialWriteRequired,
        state: ZoneState::Empty,
        attributes: Default::default(),
        capacity_blocks: Blocks(12),
        start,
        write_pointer: Some(start),
        extension: None,
    }
}

/// A namespace with a queue of three commands.
fn namespace() -> (Namespace, Scripted) {
    let link = Scripted::default();
    let geometry = Geometry { metadata_bytes: 0, ..Geometry::tiny() };
    (Namespace::new(Box::new(link.clone()), geometry, 3), link)
}

/// A transfer of one block.
fn transfer(opcode: Opcode, block: &mut [u8; 512], user_data: usize) -> Request {
    let start = NonNull::from(&mut *block).cast();
    #[allow(unsafe_code)]
    // SAFETY: tests keep the block until its command has ended, and do not touch it before.
    let data = unsafe { CallerMemory::new(start, 512) };
    let user_data = UserData(user_data as *mut c_void);
    Request { blocks: Blocks(1), data: Some(data), user_data, ..Request::new(opcode) }
}

fn results(namespace: &mut Namespace, min: usize) -> Vec<usize> {
    let mut seen = Vec::new();
    namespace.wait(min, 9, Some(Instant::now()), |result| seen.push(result.user_data as usize)).unwrap();
    seen
}

#[test]
fn a_write_has_no_result_while_the_device_holds_its_data() {
    let (mut namespace, link) = namespace();
    let mut block = [7; 512];
    namespace.submit(transfer(Opcode::Write, &mut block, 5)).unwrap();
    let (token, operation) = link.0.borrow_mut().taken.pop().unwrap();
    link.0.borrow_mut().ended.push(answer(token, &operation));
    assert_eq!((results(&mut namespace, 0), namespace.outstanding()), (vec![], 1));
    drop(operation);
    assert_eq!((results(&mut namespace, 0), namespace.outstanding()), (vec![5], 0));
}

#[test]
fn a_read_fills_the_callers_memory() {
    let (mut namespace, _) = namespace();
    let mut block = [7; 512];
    let result = namespace.execute(transfer(Opcode::Read, &mut block, 5)).unwrap();
    assert_eq!((result.error, result.bytes, block), (0, 512, [0; 512]));
}

#[test]
fn a_slot_is_free_again_when_a_result_was_taken() {
    let (mut namespace, _) = namespace();
    for _ in 0..3 {
        namespace.submit(Request::new(Opcode::Flush)).unwrap();
    }
    assert_eq!(namespace.submit(Request::new(Opcode::Flush)).unwrap_err().errno, Errno::AGAIN);
    assert_eq!(results(&mut namespace, 3).len(), 3);
    namespace.submit(Request::new(Opcode::Flush)).unwrap();
}

#[test]
fn a_synchronous_call_leaves_the_results_of_others_alone() {
    let (mut namespace, link) = namespace();
    let mut block = [7; 512];
    namespace.submit(transfer(Opcode::Read, &mut block, 5)).unwrap();
    link.0.borrow_mut().is_full = true;
    assert_eq!(namespace.execute(Request::new(Opcode::Flush)).unwrap().error, 0);
    assert_eq!(results(&mut namespace, 1), [5]);
}

#[test]
fn a_report_longer_than_one_transfer_is_assembled() {
    let link = Scripted::default();
    // One transfer has a header and three descriptors; the namespace has eight zones.
    let geometry = Geometry { metadata_bytes: 0, max_transfer_blocks: Blocks(4), ..Geometry::tiny() };
    let small = Geometry { block_size_bytes: 64, ..geometry };
    let mut namespace = Namespace::new(Box::new(link), small, 3);
    let mut starts = Vec::new();
    let count = namespace.report(Lba(16), ReportFilter::All, 100, |zone| starts.push(zone.start.0)).unwrap();
    assert_eq!((count, starts), (7, (1..8).map(|zone| zone * 16).collect()));
    assert_eq!(namespace.report(Lba(16), ReportFilter::All, 2, |_| {}).unwrap(), 2);
}

#[test]
fn after_the_link_has_failed_only_closing_works() {
    let (mut namespace, link) = namespace();
    let mut block = [7; 512];
    namespace.submit(transfer(Opcode::Write, &mut block, 5)).unwrap();
    link.0.borrow_mut().has_failed = true;
    let first = namespace.wait(1, 1, None, |_| panic!("nothing has ended")).unwrap_err();
    assert_eq!((first.errno, first.message.as_str()), (Errno::IO, "gone"));
    assert_eq!(namespace.check().unwrap_err().message, "gone");
    namespace.drain().unwrap();
    assert_eq!(Rc::strong_count(&link.0), 1, "the link is dropped, and with it its references to the caller's memory");
    assert_eq!(namespace.close().unwrap_err().message, "gone");
}
