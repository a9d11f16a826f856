//! Threads that do file operations, because epoll cannot wait for a disk.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use crate::work::{FileWork, cancelled};
use crate::{Outcome, Waker};

/// A file operation that has ended.
pub(super) type Finished = (usize, FileWork, io::Result<Outcome>);

/// The pool. Its threads are made with the first operation, so that a ring without files has none.
pub(super) struct FilePool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    threads_max: usize,
}

struct Shared {
    state: Mutex<State>,
    has_work: Condvar,
    /// Signals the loop that an operation has finished.
    signal: Waker,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(usize, FileWork)>,
    finished: Vec<Finished>,
    idle: usize,
    is_closed: bool,
    /// A panic of a thread, which the loop resumes.
    panic: Option<Box<dyn Any + Send>>,
}

impl FilePool {
    pub(super) fn new(threads_max: usize) -> io::Result<FilePool> {
        let shared = Shared { state: Mutex::default(), has_work: Condvar::new(), signal: Waker::new()? };
        Ok(FilePool { shared: Arc::new(shared), threads: Vec::new(), threads_max })
    }

    /// Readable when an operation has finished.
    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.shared.signal.event()
    }

    pub(super) fn submit(&mut self, key: usize, work: FileWork) {
        let mut state = self.shared.lock();
        state.queue.push_back((key, work));
        let wants_thread = state.queue.len() > state.idle && self.threads.len() < self.threads_max;
        drop(state);
        if wants_thread {
            self.spawn();
        }
        self.shared.has_work.notify_one();
    }

    /// Ends an operation that no thread has begun.
    pub(super) fn cancel(&self, key: usize) {
        let mut state = self.shared.lock();
        let Some(position) = state.queue.iter().position(|(queued, _)| *queued == key) else { return };
        let (key, work) = state.queue.remove(position).expect("it was found there");
        state.finished.push((key, work, Err(cancelled())));
        drop(state);
        self.shared.signal.wake();
    }

    pub(super) fn reap(&self) -> Vec<Finished> {
        self.shared.signal.clear();
        let mut state = self.shared.lock();
        if let Some(panic) = state.panic.take() {
            drop(state);
            resume_unwind(panic);
        }
        std::mem::take(&mut state.finished)
    }

    /// Waits for operations in progress; those that no thread has begun are dropped.
    pub(super) fn close(&mut self) -> Vec<Finished> {
        let mut state = self.shared.lock();
        state.is_closed = true;
        state.queue.clear();
        drop(state);
        self.shared.has_work.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().expect("a thread of the pool catches its panics");
        }
        std::mem::take(&mut self.shared.lock().finished)
    }

    /// Spawns a thread. If that fails, the others do the work, or without any the calling thread
    /// does.
    fn spawn(&mut self) {
        let shared = Arc::clone(&self.shared);
        let builder = std::thread::Builder::new().name("zonda-files".to_owned());
        match builder.spawn(move || shared.serve()) {
            Ok(thread) => self.threads.push(thread),
            Err(_) if self.threads.is_empty() => self.shared.serve_all(),
            Err(_) => {}
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }

    fn serve(&self) {
        loop {
            let mut state = self.lock();
            state.idle += 1;
            while state.queue.is_empty() && !state.is_closed {
                state = self.has_work.wait(state).expect("no thread panics while it holds the lock");
            }
            state.idle -= 1;
            let Some((key, work)) = state.queue.pop_front() else { return };
            drop(state);
            self.run(key, work);
        }
    }

    fn serve_all(&self) {
        loop {
            let Some((key, work)) = self.lock().queue.pop_front() else { return };
            self.run(key, work);
        }
    }

    fn run(&self, key: usize, mut work: FileWork) {
        let result = catch_unwind(AssertUnwindSafe(|| work.run()));
        let mut state = self.lock();
        match result {
            Ok(result) => state.finished.push((key, work, result)),
            Err(panic) => state.panic = Some(panic),
        }
        drop(state);
        self.signal.wake();
    }
}
