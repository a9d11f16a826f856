//! A real server, real sockets, and NBD clients.

mod client;
mod data;
mod holes;
mod limits;
mod reloads;
mod sessions;
mod space;
mod tls;
mod traffic;

use std::net::SocketAddr;
use std::path::Path;

use zonda_config::ByteSize;
use zonda_devices::sized;
use zonda_exports::{NbdPlan, Running, ServerPlan, Source, start};
use zonda_ring::Address;
use zonda_ssd::description::DrivePlan;

use crate::PROFILES;

const NQN: &str = "nqn.2026-01.io.zonda:nbd";
/// Bytes of the drives here.
const SIZE: u64 = 64 << 20;
const BLOCK: u64 = 4096;

/// A drive of 64 MiB, all of it conventional.
fn drive() -> DrivePlan {
    let spec = sized("conventional", Some(16), Some(ByteSize(SIZE / 16)), &PROFILES).expect("a built-in profile");
    spec.plan(&PROFILES).expect("a valid size")
}

/// A plan of one drive in memory, exported as `memory` on a port that the kernel chooses.
fn plan() -> ServerPlan {
    plan_of(Source::Memory(Box::new(drive())))
}

fn plan_of(source: Source) -> ServerPlan {
    let mut plan = ServerPlan::on_loopback(NQN.parse().expect("a name"), source);
    plan.nbd = vec![NbdPlan {
        listen: vec![Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))],
        read_only: false,
        tls: None,
        exports: None,
    }];
    plan
}

/// A plan of one drive in memory, exported on a Unix socket.
fn plan_on(path: &Path) -> ServerPlan {
    let mut plan = plan();
    plan.nbd[0].listen = vec![Address::Unix(path.to_owned())];
    plan
}

fn serve(plan: ServerPlan) -> Running {
    start(plan, false).expect("it starts")
}

/// The TCP address of the first export.
fn address(server: &Running) -> String {
    let url = &server.info().nbd[0].urls[0];
    let rest = url.strip_prefix("nbd://").expect("an export on TCP");
    rest.split('/').next().expect("an address").to_owned()
}

fn stop(server: Running) {
    server.handle().stop();
    server.wait().expect("it stops cleanly");
}
