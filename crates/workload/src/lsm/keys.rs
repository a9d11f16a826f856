//! The keys and operations of clients.

use zonda_zoned::Prng;

use super::entry::Key;
use super::plan::Load;
use super::spec::StoreWorkload;
use crate::Distribution;
use crate::distribution::{Scatter, Skew, Zipf};
use crate::limits::STORE_SCAN_KEYS_MAX;

/// YCSB's exponent (Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010).
const ZIPF_THETA: f64 = 0.99;
/// Keys that are generated in sequence are scattered over this many indices.
const PLACES: u64 = 1 << 62;
/// The distribution of the latest keys is recomputed when the number of keys has grown by one part
/// in this many.
const LATEST_STEP: u64 = 32;

/// The next operation of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Put(Key),
    Delete(Key),
    Get(Key),
    /// This many keys from this one on.
    Scan(Key, u32),
    /// A get, and then a put of the same key.
    ReadModifyWrite(Key),
}

/// Generates the random operations of one run of a workload.
#[derive(Debug)]
pub(super) struct Operations {
    workload: StoreWorkload,
    prng: Prng,
    /// Different keys of `db_bench`.
    keys: u64,
    /// Keys generated so far, for workloads that generate them in sequence.
    made: u64,
    /// The numbers of those that were not deleted, in any order: for a workload with deletes.
    live: Vec<u32>,
    /// Scatters the numbers of keys, or the order in which keys are preloaded.
    scatter: Scatter,
    skew: Option<Skew>,
    /// The distribution of the latest keys, and its number of keys.
    latest: Option<(Zipf, u64)>,
}

impl Operations {
    pub(super) fn new(load: &Load, prng: Prng) -> Operations {
        let workload = load.workload;
        let skew = match workload {
            StoreWorkload::YcsbA | StoreWorkload::YcsbB | StoreWorkload::YcsbC | StoreWorkload::YcsbF => {
                Skew::new(Distribution::Zipf(ZIPF_THETA), load.preload)
            }
            // As in YCSB: sized for future keys, which are chosen again until they exist.
            StoreWorkload::YcsbE => Skew::new(Distribution::Zipf(ZIPF_THETA), load.preload + load.operations / 10 + 1),
            _ => None,
        };
        let places = if workload.has_fixed_keys() { load.keys } else { PLACES };
        Operations {
            workload,
            prng,
            keys: load.keys,
            made: 0,
            live: Vec::new(),
            scatter: Scatter::new(places),
            skew,
            latest: None,
        }
    }

    /// The next key to preload.
    pub(super) fn preload(&mut self) -> Operation {
        Operation::Put(self.new_key())
    }

    /// The next operation of a client; client 0 writes while others read.
    pub(super) fn next(&mut self, client: u32) -> Operation {
        let workload = self.workload;
        match workload {
            StoreWorkload::KvbenchIi => self.kvbench(),
            StoreWorkload::Fillrandom | StoreWorkload::Overwrite => Operation::Put(self.random_key()),
            StoreWorkload::Readwhilewriting if client == 0 => Operation::Put(self.random_key()),
            StoreWorkload::Readrandom | StoreWorkload::Readwhilewriting => Operation::Get(self.random_key()),
            StoreWorkload::YcsbA => self.ycsb_update(50),
            StoreWorkload::YcsbB => self.ycsb_update(5),
            StoreWorkload::YcsbC => Operation::Get(self.zipfian()),
            StoreWorkload::YcsbD if self.percent(5) => Operation::Put(self.new_key()),
            StoreWorkload::YcsbD => Operation::Get(self.latest()),
            StoreWorkload::YcsbE if self.percent(5) => Operation::Put(self.new_key()),
            StoreWorkload::YcsbE => {
                let start = self.zipfian();
                Operation::Scan(start, 1 + self.prng.below(STORE_SCAN_KEYS_MAX) as u32)
            }
            StoreWorkload::YcsbF if self.percent(50) => Operation::ReadModifyWrite(self.zipfian()),
            StoreWorkload::YcsbF => Operation::Get(self.zipfian()),
        }
    }

    /// Half new keys, a quarter updates, a tenth deletes, the rest gets. Without any key only new
    /// keys are put.
    fn kvbench(&mut self) -> Operation {
        let choice = self.prng.below(100);
        if choice < 50 || self.live.is_empty() {
            return Operation::Put(self.new_key());
        }
        let place = self.prng.below(self.live.len() as u64) as usize;
        match choice {
            50..75 => Operation::Put(self.key(u64::from(self.live[place]))),
            75..85 => {
                let number = self.live.swap_remove(place);
                Operation::Delete(self.key(u64::from(number)))
            }
            _ => Operation::Get(self.key(u64::from(self.live[place]))),
        }
    }

    fn ycsb_update(&mut self, percent: u64) -> Operation {
        let key = self.zipfian();
        if self.percent(percent) { Operation::Put(key) } else { Operation::Get(key) }
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.prng.chance(percent, 100)
    }

    /// A uniformly random key of `db_bench`.
    fn random_key(&mut self) -> Key {
        Key(self.prng.below(self.keys))
    }

    /// A zipfian key of those generated.
    fn zipfian(&mut self) -> Key {
        let skew = self.skew.as_ref().expect("the workload is zipfian");
        loop {
            let number = skew.sample(&mut self.prng);
            if number < self.made {
                return self.key(number);
            }
        }
    }

    /// One of the generated keys, preferring later ones.
    fn latest(&mut self) -> Key {
        let made = self.made;
        let is_stale = self.latest.is_none_or(|(_, count)| made >= count + count.div_ceil(LATEST_STEP));
        if is_stale {
            self.latest = Some((Zipf::new(ZIPF_THETA, made), made));
        }
        let (zipf, _) = self.latest.expect("it was just computed");
        let age = zipf.rank(&mut self.prng);
        self.key(made - 1 - age)
    }

    fn new_key(&mut self) -> Key {
        let number = self.made;
        self.made += 1;
        if self.workload == StoreWorkload::KvbenchIi {
            self.live.push(number as u32);
        }
        self.key(number)
    }

    /// The key with a number: consecutive numbers are scattered.
    fn key(&self, number: u64) -> Key {
        Key(self.scatter.place(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use zonda_zoned::Duration;

    fn load(workload: StoreWorkload, preload: u64, operations: u64) -> Load {
        let keys = if preload > 0 { preload } else { operations };
        Load { workload, operations, preload, keys, repeat: 1, clients: 1, operation_cpu: Duration::ZERO }
    }

    /// The preloaded keys, and the operations after them.
    fn generated(workload: StoreWorkload, preload: u64, operations: u64) -> (Vec<Key>, Vec<Operation>) {
        let mut source = Operations::new(&load(workload, preload, operations), Prng::new(8));
        let preloaded = (0..preload).map(|_| match source.preload() {
            Operation::Put(key) => key,
            other => panic!("{other:?} is not a preload operation"),
        });
        let preloaded = preloaded.collect();
        (preloaded, (0..operations).map(|_| source.next(1)).collect())
    }

    /// The share of each kind of operation, in percent.
    fn shares(operations: &[Operation]) -> BTreeMap<&'static str, f64> {
        let mut shares = BTreeMap::new();
        for operation in operations {
            let name = match operation {
                Operation::Put(_) => "put",
                Operation::Delete(_) => "delete",
                Operation::Get(_) => "get",
                Operation::Scan(..) => "scan",
                Operation::ReadModifyWrite(_) => "modify",
            };
            *shares.entry(name).or_default() += 100.0 / operations.len() as f64;
        }
        shares
    }

    #[test]
    fn kvbench_ii_has_its_mix_and_uses_only_existing_keys() {
        let (_, operations) = generated(StoreWorkload::KvbenchIi, 0, 100_000);
        let shares = shares(&operations);
        assert!((shares["put"] - 75.0).abs() < 0.5 && (shares["delete"] - 10.0).abs() < 0.5, "{shares:?}");
        assert!((shares["get"] - 15.0).abs() < 0.5, "{shares:?}");
        let (mut live, mut inserts) = (BTreeSet::new(), 0);
        for operation in operations {
            match operation {
                Operation::Put(key) => inserts += u32::from(live.insert(key)),
                Operation::Delete(key) => assert!(live.remove(&key)),
                Operation::Get(key) => assert!(live.contains(&key)),
                other => panic!("{other:?} is not of KVBench-II"),
            }
        }
        assert!((inserts as f64 / 1000.0 - 50.0).abs() < 0.5, "{inserts} inserts");
    }

    #[test]
    fn ycsb_has_its_mixes() {
        use StoreWorkload::{YcsbA, YcsbB, YcsbC, YcsbD, YcsbE, YcsbF};
        let mixes: [(_, &[(&str, f64)]); 6] = [
            (YcsbA, &[("get", 50.0), ("put", 50.0)]),
            (YcsbB, &[("get", 95.0), ("put", 5.0)]),
            (YcsbC, &[("get", 100.0)]),
            (YcsbD, &[("get", 95.0), ("put", 5.0)]),
            (YcsbE, &[("put", 5.0), ("scan", 95.0)]),
            (YcsbF, &[("get", 50.0), ("modify", 50.0)]),
        ];
        for (workload, expected) in mixes {
            let shares = shares(&generated(workload, 1_000, 50_000).1);
            assert_eq!(shares.len(), expected.len(), "{workload}");
            for (name, share) in expected {
                assert!((shares[name] - share).abs() < 1.0, "{workload}: {shares:?}");
            }
        }
    }

    #[test]
    fn preloading_puts_every_key_once_and_in_no_order() {
        for workload in [StoreWorkload::Overwrite, StoreWorkload::YcsbA] {
            let (keys, _) = generated(workload, 1_000, 1);
            assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 1_000);
            let rises = keys.windows(2).filter(|pair| pair[0] < pair[1]).count();
            assert!((350..650).contains(&rises), "{rises} of 999 rise");
            if workload == StoreWorkload::Overwrite {
                assert_eq!(keys.iter().max(), Some(&Key(999)));
            }
        }
    }

    #[test]
    fn few_keys_get_most_of_a_zipfian_load() {
        let (keys, operations) = generated(StoreWorkload::YcsbC, 10_000, 100_000);
        let mut counts: BTreeMap<Key, u32> = keys.iter().map(|&key| (key, 0)).collect();
        for operation in operations {
            let Operation::Get(key) = operation else { panic!("YCSB C only reads") };
            *counts.get_mut(&key).expect("an existing key") += 1;
        }
        let mut counts: Vec<u32> = counts.into_values().collect();
        counts.sort_unstable_by_key(|&count| std::cmp::Reverse(count));
        // The sum of 1/k^0.99 to 100 is 5.23 and to 10,000 is 10.23.
        let top: u32 = counts[..100].iter().sum();
        assert!((49_000..54_000).contains(&top), "{top}");
    }

    #[test]
    fn the_latest_keys_are_read_most_and_future_keys_never() {
        let mut source = Operations::new(&load(StoreWorkload::YcsbD, 1_000, 50_000), Prng::new(8));
        let mut keys: Vec<Key> = Vec::new();
        for _ in 0..1_000 {
            let Operation::Put(key) = source.preload() else { panic!("preloading puts") };
            keys.push(key);
        }
        let (mut recent, mut gets) = (0, 0);
        for _ in 0..50_000 {
            match source.next(0) {
                Operation::Put(key) => keys.push(key),
                Operation::Get(key) => {
                    let age = keys.iter().rev().position(|&other| other == key).expect("an existing key");
                    recent += u32::from(age < 10);
                    gets += 1;
                }
                other => panic!("{other:?} is not of YCSB D"),
            }
        }
        // The sum of 1/k^0.99 to 10 is 2.96, to 1,000 keys 7.73 and to 3,500 keys 9.07.
        assert!((0.32..0.39).contains(&(f64::from(recent) / f64::from(gets))), "{recent} of {gets}");
    }

    #[test]
    fn scans_start_at_existing_keys_and_have_every_length() {
        let (mut existing, operations) = generated(StoreWorkload::YcsbE, 500, 20_000);
        let mut lengths = BTreeSet::new();
        for operation in operations {
            match operation {
                Operation::Put(key) => existing.push(key),
                Operation::Scan(key, length) => {
                    assert!(existing.contains(&key));
                    lengths.insert(length);
                }
                other => panic!("{other:?} is not of YCSB E"),
            }
        }
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), (1..=100).collect::<Vec<_>>());
    }

    #[test]
    fn the_writer_writes_while_the_others_read() {
        let mut source = Operations::new(&load(StoreWorkload::Readwhilewriting, 100, 100), Prng::new(8));
        assert!(matches!(source.next(0), Operation::Put(_)) && matches!(source.next(1), Operation::Get(_)));
    }
}
