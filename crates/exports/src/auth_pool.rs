//! Computes authentication steps in two threads, while the loop serves other connections.
//!
//! The target limits how many steps are in progress. They run at a lower priority than the loop, so
//! that unauthenticated clients that cause many computations only get idle CPU time.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use zonda_ring::Waker;
use zonda_target::{AuthStep, CompletedAuthStep};

const THREADS: usize = 2;
/// The nice value of the threads.
const NICENESS: i32 = 10;

/// The pool; its threads exit when it is dropped.
#[derive(Debug)]
pub(crate) struct AuthPool {
    steps: Sender<AuthStep>,
    ended: Receiver<CompletedAuthStep>,
}

impl AuthPool {
    /// Starts threads that call the waker after each step.
    pub(crate) fn new(waker: &Waker) -> io::Result<AuthPool> {
        let (steps, queue) = channel::<AuthStep>();
        let queue = Arc::new(Mutex::new(queue));
        let (results, ended) = channel();
        for number in 0..THREADS {
            let (queue, results, waker) = (Arc::clone(&queue), results.clone(), waker.clone());
            thread::Builder::new().name(format!("auth {number}")).spawn(move || work(&queue, &results, &waker))?;
        }
        Ok(AuthPool { steps, ended })
    }

    /// Queues a step.
    pub(crate) fn begin(&self, step: AuthStep) {
        self.steps.send(step).expect("the threads outlive the pool");
    }

    /// The next completed step.
    pub(crate) fn next(&self) -> Option<CompletedAuthStep> {
        self.ended.try_recv().ok()
    }
}

fn work(queue: &Mutex<Receiver<AuthStep>>, results: &Sender<CompletedAuthStep>, waker: &Waker) {
    // If it is not permitted, the steps run at normal priority.
    let _ = rustix::process::nice(NICENESS);
    loop {
        // One thread waits for a step, the other one for the lock.
        let step = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(step) = step else { return };
        if results.send(step.run()).is_err() {
            return;
        }
        waker.wake();
    }
}
