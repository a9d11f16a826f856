//! A server, honest clients, and one attack after another.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::attack::{Attack, Victim};
use crate::honest::Honest;
use crate::latencies::Latencies;
use crate::process::Process;
use crate::server::{Server, status};

/// Warm-up time of honest clients, and of an attack, before the measurement.
const WARM_UP: Duration = Duration::from_millis(500);
/// The status of the server is requested at every n-th check of its memory.
const STATUS_LOOKS: u32 = 10;
/// How often the memory of the server is checked.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Memory that the server may use in addition to the budget and its initial memory: for connection
/// tables, and memory that the allocator has not returned.
const BESIDE_BYTES: u64 = 64 << 20;

/// The duration of each part of a run.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Of honest clients alone, and with busy processes instead of the attack. `None`: these parts
    /// are omitted.
    pub before: Option<Duration>,
    /// Of the attack.
    pub attack: Duration,
    /// The number of repetitions.
    pub rounds: u32,
}

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The program `zonda`.
    pub zonda: PathBuf,
    /// The program `attacks`: attackers are separate processes.
    pub own: PathBuf,
    /// `[server] memory`; `None` for a server that does not support this key.
    pub memory: Option<String>,
    /// Durations.
    pub times: Times,
}

/// Latencies of honest clients, in microseconds: medians of the rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Median and 99th percentile over NVMe/TCP.
    pub nvme: [u32; 2],
    /// The same over NBD.
    pub nbd: [u32; 2],
    /// The longest time from a new connection to the completion of its first read.
    pub connect_max: u32,
    /// Successful and attempted new connections.
    pub connects: [usize; 2],
    /// Requests and connections.
    pub requests: usize,
}

/// The result of one attack.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Its name.
    pub attack: &'static str,
    /// Honest clients alone.
    pub before: Figures,
    /// During the attack.
    pub during: Figures,
    /// With busy processes that use as much CPU time as the attack did.
    pub busy: Figures,
    /// CPUs that the attackers kept busy.
    pub attackers_processors: f64,
    /// Requests and connections of honest clients that failed or timed out.
    pub refusals: Vec<String>,
    /// Resident memory of the server before the attack, with its drives.
    pub resident_before: u64,
    /// The maximum during it.
    pub resident_max: u64,
    /// The budget, and its maximum use; zeros if the server has none.
    pub budget: [u64; 2],
    /// The last status of the server during the attack (`/status.json`).
    pub last_status: Value,
    /// If the server has exited, the end of its log.
    pub ended: Option<String>,
}

impl Outcome {
    /// Violations: honest clients refused, memory above the budget, exit of the server.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let mut failures: Vec<String> = self.refusals.iter().map(|refusal| format!("refused: {refusal}")).collect();
        let most = self.resident_before + self.budget[0] + BESIDE_BYTES;
        if self.budget[0] > 0 && self.resident_max > most {
            failures.push(format!("{} MiB resident exceed the limit of {} MiB", self.resident_max >> 20, most >> 20));
        }
        if self.budget[1] > self.budget[0] {
            failures.push(format!(
                "{} MiB used exceed the budget of {} MiB",
                self.budget[1] >> 20,
                self.budget[0] >> 20
            ));
        }
        if self.during.requests == 0 {
            failures.push("no request of honest clients was served".to_owned());
        }
        failures.extend(self.ended.iter().map(|log| format!("the server has exited\n{log}")));
        failures
    }

    /// The ratio of the 99th percentile during the attack to that with busy processes, or alone if
    /// that is longer.
    #[must_use]
    pub fn p99_ratio(&self) -> [f64; 2] {
        let ratio = |of: fn(&Figures) -> u32| {
            f64::from(of(&self.during)) / f64::from(of(&self.before).max(of(&self.busy)).max(1))
        };
        [ratio(|figures| figures.nvme[1]), ratio(|figures| figures.nbd[1])]
    }
}

impl Run {
    /// Starts a server, and attacks it.
    ///
    /// # Errors
    /// When the server or an attacker cannot be started.
    pub fn attack(&self, attack: Attack) -> io::Result<Outcome> {
        let mut seen = Seen { server: Server::start(&self.zonda, self.memory.as_deref())?, refusals: BTreeSet::new() };
        seen.measure(WARM_UP, &mut |_| Ok(()));
        let (resident_before, mut resident_max, mut budget) = (seen.server.process.resident_bytes(), 0, [0; 2]);
        let (mut before, mut during, mut busy) = (Vec::new(), Vec::new(), Vec::new());
        let (mut processors, mut last_status) = (Vec::new(), Value::Null);
        for _ in 0..self.times.rounds {
            before.extend(self.times.before.map(|time| seen.measure(time, &mut |_| Ok(()))));
            let attacker = self.attacker(attack, seen.server.victim)?;
            thread::sleep(WARM_UP);
            let (begin, taken) = (Instant::now(), attacker.cpu_seconds());
            let mut looks = 0;
            during.push(seen.measure(self.times.attack, &mut |server| {
                resident_max = resident_max.max(server.process.resident_bytes());
                looks += 1;
                // The status must be available to operators during an attack.
                if looks % STATUS_LOOKS == 0 {
                    last_status = status(server.victim.http)?;
                    let bytes = |key: &str| last_status["memory"][key].as_u64().unwrap_or(0);
                    budget = [bytes("budget_bytes"), bytes("used_bytes").max(budget[1])];
                }
                Ok(())
            }));
            processors.push((attacker.cpu_seconds() - taken) / begin.elapsed().as_secs_f64());
            drop(attacker);
            if let Some(time) = self.times.before {
                let burners = self.burners(processors.last().copied().unwrap_or(0.0))?;
                busy.push(seen.measure(time, &mut |_| Ok(())));
                drop(burners);
            }
        }
        let ended = (!seen.server.process.is_running()).then(|| seen.server.last_of_log());
        Ok(Outcome {
            attack: attack.name(),
            before: Figures::median(&before),
            during: Figures::median(&during),
            busy: Figures::median(&busy),
            attackers_processors: processors.iter().sum::<f64>() / processors.len().max(1) as f64,
            refusals: seen.refusals.into_iter().collect(),
            resident_before,
            resident_max,
            budget,
            last_status,
            ended,
        })
    }

    fn attacker(&self, attack: Attack, victim: Victim) -> io::Result<Process> {
        let place = |address: SocketAddr| address.to_string();
        let arguments = ["attack", attack.name(), &place(victim.nvme), &place(victim.nbd), &place(victim.http)];
        Process::of(&self.own, &arguments.map(str::to_owned))
    }

    /// Processes that keep this many CPUs busy.
    fn burners(&self, processors: f64) -> io::Result<Vec<Process>> {
        let count = processors.ceil().max(1.0);
        let arguments = ["burn".to_owned(), (processors / count).to_string()];
        (0..count as usize).map(|_| Process::of(&self.own, &arguments)).collect()
    }
}

/// A server, and errors of honest clients.
struct Seen {
    server: Server,
    refusals: BTreeSet<String>,
}

impl Seen {
    /// Runs honest clients for a while, and checks the server periodically.
    fn measure(&mut self, time: Duration, look: &mut dyn FnMut(&Server) -> io::Result<()>) -> Figures {
        let honest = Honest::start(self.server.victim, &self.server.secret);
        let begin = Instant::now();
        while begin.elapsed() < time {
            thread::sleep(LOOK_EVERY);
            if let Err(error) = look(&self.server) {
                self.refusals.insert(format!("status: {error}"));
            }
        }
        let mut found = honest.stop();
        self.refusals.extend(found.refusals);
        let both = |latencies: &mut Latencies| [0.5, 0.99].map(|share| latencies.quantile(share));
        Figures {
            nvme: both(&mut found.nvme),
            nbd: both(&mut found.nbd),
            connect_max: found.connects.quantile(1.0),
            connects: [found.connects.count(), found.connects_tried],
            requests: found.nvme.count() + found.nbd.count() + found.connects.count(),
        }
    }
}

impl Figures {
    /// The median of each figure; the maximum for new connections.
    fn median(rounds: &[Figures]) -> Figures {
        let of = |figure: &dyn Fn(&Figures) -> u32| {
            let mut all: Vec<u32> = rounds.iter().map(figure).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or(0)
        };
        Figures {
            nvme: [0, 1].map(|place| of(&|figures| figures.nvme[place])),
            nbd: [0, 1].map(|place| of(&|figures| figures.nbd[place])),
            connect_max: rounds.iter().map(|figures| figures.connect_max).max().unwrap_or(0),
            connects: [0, 1].map(|place| rounds.iter().map(|figures| figures.connects[place]).sum()),
            requests: rounds.iter().map(|figures| figures.requests).sum(),
        }
    }
}
