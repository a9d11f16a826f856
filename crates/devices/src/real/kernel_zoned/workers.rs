//! Threads for the requests of zone management, which the kernel carries out synchronously.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use zonda_ring::{File, Waker, ZoneRequest};

use super::report::{ReportedZone, report};
use crate::real::RequestId;

/// Requests of zone management that are outstanding on the drive together.
const THREADS_MAX: usize = 4;

/// Work for a thread. Positions are in sectors.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    Change { request: ZoneRequest, sector: u64, sectors: u64 },
    Report { sector: u64 },
}

/// A job that has ended; of a report the zone.
pub(super) type Ended = (RequestId, io::Result<Option<ReportedZone>>);

/// The threads, which start with the first jobs.
pub(super) struct Workers {
    file: Arc<File>,
    waker: Waker,
    /// Dropped first, which ends the threads.
    jobs: Option<Sender<(RequestId, Job)>>,
    queue: Arc<Mutex<Receiver<(RequestId, Job)>>>,
    ended: Receiver<Ended>,
    ended_sender: Sender<Ended>,
    threads: Vec<JoinHandle<()>>,
    outstanding: usize,
}

impl Workers {
    pub(super) fn new(file: File, waker: Waker) -> Workers {
        let (jobs, queue) = mpsc::channel();
        let (ended_sender, ended) = mpsc::channel();
        Workers {
            file: Arc::new(file),
            waker,
            jobs: Some(jobs),
            queue: Arc::new(Mutex::new(queue)),
            ended,
            ended_sender,
            threads: Vec::new(),
            outstanding: 0,
        }
    }

    pub(super) fn submit(&mut self, id: RequestId, job: Job) {
        self.outstanding += 1;
        if self.outstanding > self.threads.len() && self.threads.len() < THREADS_MAX {
            self.spawn();
        }
        if self.threads.is_empty() {
            let error = io::Error::new(io::ErrorKind::WouldBlock, "no thread can be started for zone management");
            let _ = self.ended_sender.send((id, Err(error)));
            self.waker.wake();
            return;
        }
        self.jobs.as_ref().expect("it is dropped last").send((id, job)).expect("the queue has a receiver here");
    }

    pub(super) fn next(&mut self) -> Option<Ended> {
        let ended = self.ended.try_recv().ok()?;
        self.outstanding -= 1;
        Some(ended)
    }

    /// Starts a thread. If that fails, the others do the work.
    fn spawn(&mut self) {
        let (file, queue) = (Arc::clone(&self.file), Arc::clone(&self.queue));
        let (ended, waker) = (self.ended_sender.clone(), self.waker.clone());
        let work = move || loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok((id, job)) = next else { return };
            let result = carry_out(&file, job);
            // The drive may have been dropped.
            let _ = ended.send((id, result));
            waker.wake();
        };
        if let Ok(thread) = thread::Builder::new().name("zonda-zones".to_owned()).spawn(work) {
            self.threads.push(thread);
        }
    }
}

impl Drop for Workers {
    /// Waits for the threads: the device is released when this returns.
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A thread that has panicked has ended.
            let _ = thread.join();
        }
    }
}

fn carry_out(file: &File, job: Job) -> io::Result<Option<ReportedZone>> {
    match job {
        Job::Change { request, sector, sectors } => file.change_zones(request, sector, sectors).map(|()| None),
        Job::Report { sector } => {
            let found = report(file, sector, 1)?.into_iter().next().filter(|zone| zone.start == sector);
            let missing = || io::Error::new(io::ErrorKind::InvalidData, "the zone is not reported");
            found.map(Some).ok_or_else(missing)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zonda_ring::{FileOptions, Ring, RingOptions};

    #[test]
    fn the_errors_of_the_kernel_arrive_with_their_requests_and_wake_the_loop() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let file = File::open(path.path(), FileOptions::read_write()).unwrap();
        let ring = Ring::new(RingOptions::default()).unwrap();
        let mut workers = Workers::new(file, ring.waker());
        for id in 0..20 {
            let job = match id % 2 {
                0 => Job::Report { sector: id },
                _ => Job::Change { request: ZoneRequest::Reset, sector: id, sectors: 8 },
            };
            workers.submit(RequestId(id), job);
        }
        let mut ended = Vec::new();
        while ended.len() < 20 {
            ring.run_once(None).unwrap();
            ended.extend(std::iter::from_fn(|| workers.next()));
        }
        ended.sort_by_key(|(id, _)| *id);
        for (id, (ended, result)) in ended.iter().enumerate() {
            // A regular file has no zones.
            let errno = result.as_ref().err().and_then(io::Error::raw_os_error);
            assert_eq!((ended.0, errno), (id as u64, Some(25)));
        }
        assert!(workers.threads.len() <= THREADS_MAX);
    }
}
