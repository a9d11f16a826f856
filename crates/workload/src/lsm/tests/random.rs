//! A store under random operations, on existing, deleted and unknown keys, completing in any order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use zonda_zoned::{Duration, Instant, Prng};

use super::plan;
use super::stand_in::StandIn;
use super::workloads::small;
use crate::lsm::StoreWorkload;
use crate::lsm::effect::{Effect, Waker};
use crate::lsm::entry::Key;
use crate::lsm::files::{Ended, Files};
use crate::lsm::plan::TreeOptions;
use crate::lsm::store::{Answer, Store};

const CLIENTS: u32 = 4;
/// More than any run of this test takes.
const STEPS_MAX: u64 = 10_000_000;

struct Testbed {
    store: Store,
    files: StandIn,
    now: Instant,
    wakes: BinaryHeap<Reverse<(Instant, Waker)>>,
    /// Idle clients.
    idle: Vec<u32>,
    steps: u64,
}

impl Testbed {
    fn new(options: TreeOptions, latency: Duration) -> Testbed {
        let (wakes, idle) = (BinaryHeap::new(), (0..CLIENTS).collect());
        let store = Store::new(options, CLIENTS, true);
        Testbed { store, files: StandIn::new(latency), now: Instant::ZERO, wakes, idle, steps: 0 }
    }

    fn begin(&mut self, prng: &mut Prng, keys: u64) {
        let client = self.idle.swap_remove(prng.below(self.idle.len() as u64) as usize);
        let key = Key(prng.below(keys));
        let answer = match prng.below(100) {
            0..45 => self.store.write(self.now, client, key, true),
            45..75 => self.store.write(self.now, client, key, false),
            75..95 => self.store.get(client, key),
            _ => self.store.scan(client, key, 1 + prng.below(30) as u32),
        };
        self.idle.extend(answer.map(|_: Answer| client));
    }

    /// Executes the store's effects, and advances time to the next event.
    fn step(&mut self) {
        self.steps += 1;
        assert!(self.steps < STEPS_MAX, "the store waits forever");
        while let Some(effect) = self.store.poll_effect() {
            match effect {
                Effect::Wake { at, waker } => self.wakes.push(Reverse((at, waker))),
                effect => self.files.perform(effect).expect("the stand-in creates every file"),
            }
        }
        let wake = self.wakes.peek().map(|Reverse((at, _))| *at);
        let Some(at) = wake.into_iter().chain(self.files.next_timeout()).min() else { return };
        self.now = self.now.max(at);
        self.files.run_once(self.now);
        while let Some(ended) = self.files.poll() {
            if let Ended::Request(owner, result) = ended {
                result.expect("the stand-in fails no request");
                self.store.on_done(self.now, owner);
            }
        }
        while let Some(&Reverse((at, waker))) = self.wakes.peek()
            && at <= self.now
        {
            self.wakes.pop();
            self.store.on_wake(self.now, waker);
        }
        while let Some((client, _)) = self.store.poll_answer() {
            self.idle.push(client);
        }
    }
}

#[test]
fn random_operations_find_the_entries_of_a_plain_map() {
    let mut moves = 0;
    for seed in 0..40 {
        let mut prng = Prng::new(seed);
        let mut options = plan(small(StoreWorkload::Fillrandom, 0, 1)).tree;
        options.memtables_max = 1 + prng.below(5) as usize;
        options.compactions_max = 1 + prng.below(4) as usize;
        options.sizes.level0_trigger = 1 + prng.below(5) as usize;
        options.sizes.multiplier = 2 + prng.below(6);
        options.wal_sync = prng.chance(1, 4);
        options.write_buffer_bytes >>= prng.below(4);
        options.target_file_bytes >>= prng.below(4);
        let keys = [50, 1_000, 20_000][prng.below(3) as usize];
        let mut testbed = Testbed::new(options, Duration(1 + prng.below(50_000)));
        for _ in 0..15_000 {
            if testbed.idle.is_empty() || prng.chance(1, 3) {
                testbed.step();
            } else {
                testbed.begin(&mut prng, keys);
            }
        }
        while testbed.idle.len() < CLIENTS as usize || !testbed.store.is_quiescent() {
            testbed.step();
        }
        testbed.store.check_all();
        testbed.store.close();
        while !testbed.store.is_closed() {
            testbed.step();
        }
        assert_eq!(testbed.store.file_bytes(), testbed.files.usage_bytes());
        moves += testbed.store.take_counters().moves;
        testbed.store.delete_files();
        while !testbed.store.is_deleted() {
            testbed.step();
        }
        assert!(testbed.files.files.is_empty(), "seed {seed}: no file is left");
    }
    assert!(moves > 50, "{moves} tables were moved unchanged");
}
