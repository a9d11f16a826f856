//! The attacks. Each attack runs until its process is killed, and reopens connections that the
//! server closes.

mod flood;
mod handshakes;
mod hold;
mod knock;
mod trickle;

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::thread;
use std::time::Duration;

/// The address of attackers.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Delay after a failed attempt.
const PAUSE: Duration = Duration::from_millis(20);
/// Threads that maintain many connections: enough for a loopback.
const KEEPERS: usize = 2;

/// The addresses of a server.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    /// NVMe/TCP.
    pub nvme: SocketAddr,
    /// NBD.
    pub nbd: SocketAddr,
    /// Metrics and status.
    pub http: SocketAddr,
}

/// An attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// 300 discovery controllers are held open.
    Discovery,
    /// Eight connections with a known host NQN make the server compute 8192-bit key exchanges.
    DiffieHellman,
    /// 200 NBD clients choose the export and are silent.
    IdleNbd,
    /// 60 NBD clients request many large reads, and never receive.
    UnreadNbd,
    /// 80 NVMe queues do the same.
    UnreadNvme,
    /// 200 HTTP requests are half sent.
    HalfHttp,
    /// 200 NVMe connections send their first PDU byte by byte.
    SlowPdu,
    /// 80 NVMe queues submit writes, and send their data byte by byte.
    SlowData,
    /// 60 NBD clients send 32 MiB writes without the last byte, and options of gigabytes.
    UnfinishedNbd,
    /// Connections are opened, used for large reads and aborted, as fast as possible.
    Churn,
    /// 60 admin queues request log pages of 1 MiB, and never receive.
    UnreadLogs,
    /// Nine NVMe queues have 127 reads or writes of 128 KiB each outstanding, all the time.
    Flood,
    /// 32 admin queues send Keep Alives by the thousand.
    Commands,
    /// Handshakes are started from the address of the honest host, and never complete.
    KnockSame,
    /// The same from 500 addresses, with the NQN of the honest host.
    KnockMany,
    /// The same from 250 addresses, and each starts to authenticate.
    KnockNegotiate,
    /// Silent NBD clients connect from 500 addresses.
    KnockNbd,
}

impl Attack {
    /// All attacks.
    pub const ALL: [Attack; 17] = [
        Attack::Discovery,
        Attack::DiffieHellman,
        Attack::IdleNbd,
        Attack::UnreadNbd,
        Attack::UnreadNvme,
        Attack::HalfHttp,
        Attack::SlowPdu,
        Attack::SlowData,
        Attack::UnfinishedNbd,
        Attack::Churn,
        Attack::UnreadLogs,
        Attack::Flood,
        Attack::Commands,
        Attack::KnockSame,
        Attack::KnockMany,
        Attack::KnockNegotiate,
        Attack::KnockNbd,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Attack::Discovery => "discovery",
            Attack::DiffieHellman => "diffie-hellman",
            Attack::IdleNbd => "idle-nbd",
            Attack::UnreadNbd => "unread-nbd",
            Attack::UnreadNvme => "unread-nvme",
            Attack::HalfHttp => "half-http",
            Attack::SlowPdu => "slow-pdu",
            Attack::SlowData => "slow-data",
            Attack::UnfinishedNbd => "unfinished-nbd",
            Attack::Churn => "churn",
            Attack::UnreadLogs => "unread-logs",
            Attack::Flood => "flood",
            Attack::Commands => "commands",
            Attack::KnockSame => "knock-same",
            Attack::KnockMany => "knock-many",
            Attack::KnockNegotiate => "knock-negotiate",
            Attack::KnockNbd => "knock-nbd",
        }
    }

    /// Attacks until the process is killed.
    pub fn run(self, victim: Victim) -> ! {
        match self {
            Attack::Discovery => crowd(300, move || hold::discovery(&victim), hold::keep_open),
            Attack::DiffieHellman => handshakes::diffie_hellman(victim),
            Attack::IdleNbd => crowd(200, move || hold::idle_nbd(&victim), hold::keep_open),
            Attack::UnreadNbd => crowd(60, move || hold::unread_nbd(&victim), hold::keep_open),
            Attack::UnreadNvme => crowd(80, move || hold::unread_nvme(&victim), hold::keep_open),
            Attack::HalfHttp => crowd(200, move || hold::half_http(&victim), hold::keep_open),
            Attack::SlowPdu => crowd(200, move || trickle::slow_pdu(&victim), trickle::next_byte),
            Attack::SlowData => crowd(80, move || trickle::slow_data(&victim), trickle::next_byte),
            Attack::UnfinishedNbd => crowd(60, move || trickle::unfinished_nbd(&victim), hold::keep_open),
            Attack::Churn => handshakes::churn(victim),
            Attack::Flood => flood::flood(victim),
            Attack::Commands => flood::commands(victim),
            Attack::KnockSame => knock::same_address(victim),
            Attack::KnockMany => knock::many_addresses(victim),
            Attack::KnockNegotiate => knock::negotiations(victim),
            Attack::KnockNbd => knock::silent_nbd(victim),
            Attack::UnreadLogs => crowd(60, move || hold::unread_logs(&victim), hold::keep_open),
        }
    }
}

impl FromStr for Attack {
    type Err = String;

    fn from_str(text: &str) -> Result<Attack, String> {
        let names = Attack::ALL.map(Attack::name).join(", ");
        Attack::ALL
            .into_iter()
            .find(|attack| attack.name() == text)
            .ok_or(format!("unknown attack; expected one of {names}"))
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Maintains this many connections: opens missing ones, lets each act now and then, and reopens
/// failed ones.
fn crowd<C: Send + 'static>(
    count: usize,
    make: impl Fn() -> io::Result<C> + Clone + Send + 'static,
    step: fn(&mut C) -> io::Result<()>,
) -> ! {
    for _ in 0..KEEPERS {
        let make = make.clone();
        thread::spawn(move || {
            let mut connections: Vec<C> = Vec::new();
            loop {
                connections.retain_mut(|connection| step(connection).is_ok());
                while connections.len() < count / KEEPERS {
                    match make() {
                        Ok(connection) => connections.push(connection),
                        Err(_) => break,
                    }
                }
                thread::sleep(PAUSE);
            }
        });
    }
    loop {
        thread::park();
    }
}
