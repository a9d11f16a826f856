//! Where steps of authentications are computed: two threads beside the loop, which serves others meanwhile.
//!
//! How many steps are here at the same time is the target's limit. They run at a lower priority than the loop, so that strangers who
//! have much computed take what is left over of the processor.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use zonda_ring::Waker;
use zonda_target::{AuthStep, AuthStepEnded};

const THREADS: usize = 2;
/// As `nice`: what takes long gives way.
const NICENESS: i32 = 10;

/// The threads end with it.
#[derive(Debug)]
pub(crate) struct AuthPool {
    steps: Sender<AuthStep>,
    ended: Receiver<AuthStepEnded>,
}

impl AuthPool {
    /// Threads that call the waker after each step.
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

    /// Has a step computed.
    pub(crate) fn begin(&self, step: AuthStep) {
        self.steps.send(step).expect("the threads end after the pool");
    }

    /// A step that was computed.
    pub(crate) fn next(&self) -> Option<AuthStepEnded> {
        self.ended.try_recv().ok()
    }
}

fn work(queue: &Mutex<Receiver<AuthStep>>, results: &Sender<AuthStepEnded>, waker: &Waker) {
    // Without the right to it the steps are computed all the same.
    let _ = rustix::process::nice(NICENESS);
    loop {
        // One waits for a step, the other one for its turn to wait.
        let step = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(step) = step else { return };
        if results.send(step.run()).is_err() {
            return;
        }
        waker.wake();
    }
}
