//! Each attack for a moment: honest clients are served and memory stays within its budget.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use zonda_attacks::{Attack, Outcome, Run, Times};
use zonda_kill::program;

static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| program(None).expect("zonda exists or can be built"));

/// Attacks a server with a small budget. Latencies are not checked: the machine may be busy with
/// other tests.
fn withstands(attack: Attack) -> Outcome {
    withstands_for(Duration::from_secs(1), attack)
}

fn withstands_for(time: Duration, attack: Attack) -> Outcome {
    withstands_with(256 << 20, time, attack)
}

/// The same with another budget, which determines the number of connections.
fn withstands_with(memory_bytes: u64, time: Duration, attack: Attack) -> Outcome {
    let run = Run {
        zonda: PROGRAM.clone(),
        own: env!("CARGO_BIN_EXE_attacks").into(),
        memory: Some(format!("{} MiB", memory_bytes >> 20)),
        times: Times { before: None, attack: time, rounds: 1 },
    };
    let outcome = run.attack(attack).expect("a server and an attacker can be started");
    assert_eq!(outcome.failures(), [""; 0], "{outcome:?}");
    assert_eq!(outcome.budget[0], memory_bytes);
    outcome
}

fn count(number: &serde_json::Value) -> u64 {
    number.as_u64().expect("a number of the status")
}

/// Half of the budget is the pool, which many greedy clients use nearly completely.
fn fills_the_pool(attack: Attack) {
    let [_, used] = withstands(attack).budget;
    assert!(used > 64 << 20, "only {used} bytes are used: the attack is ineffective");
}

#[test]
fn open_discovery_controllers_lock_no_host_out() {
    let status = withstands(Attack::Discovery).last_status;
    assert!(count(&status["connections"]) >= 16, "{status}");
}

#[test]
fn large_key_exchanges_do_not_prevent_authentication_of_others() {
    // On a busy machine the first exchange may take longer than a second.
    let mut times = [1, 10, 60].map(Duration::from_secs).into_iter();
    loop {
        let time = times.next().expect("an exchange ends within a minute");
        let status = withstands_for(time, Attack::DiffieHellman).last_status;
        if count(&status["traffic"]["authentication_failures"]) > 0 {
            break;
        }
    }
}

#[test]
fn silent_nbd_clients_lock_no_other_out() {
    let status = withstands(Attack::IdleNbd).last_status;
    assert!(count(&status["nbd"]["connections"]) >= 64, "{status}");
}

#[test]
fn incomplete_http_requests_do_not_block_metrics() {
    withstands(Attack::HalfHttp);
}

#[test]
fn slow_initialize_pdus_lock_no_host_out() {
    let status = withstands(Attack::SlowPdu).last_status;
    assert!(count(&status["connections"]) >= 24, "{status}");
}

#[test]
fn opened_and_aborted_connections_leak_no_memory() {
    let status = withstands(Attack::Churn).last_status;
    let accepted = count(&status["traffic"]["connections_accepted"]) + count(&status["nbd"]["connections_accepted"]);
    assert!(accepted > 50, "{status}");
}

#[test]
fn nbd_clients_that_never_read_stay_within_the_budget() {
    fills_the_pool(Attack::UnreadNbd);
}

#[test]
fn nvme_hosts_that_never_read_stay_within_the_budget() {
    fills_the_pool(Attack::UnreadNvme);
}

#[test]
fn log_pages_that_are_never_read_stay_within_the_budget() {
    fills_the_pool(Attack::UnreadLogs);
}

#[test]
fn writes_whose_data_arrive_byte_by_byte_stay_within_the_budget() {
    fills_the_pool(Attack::SlowData);
}

#[test]
fn writes_without_an_end_and_options_of_gigabytes_stay_within_the_budget() {
    fills_the_pool(Attack::UnfinishedNbd);
}

#[test]
fn a_host_that_keeps_nine_queues_full_starves_no_other() {
    let outcome = withstands(Attack::Flood);
    let bytes = count(&outcome.last_status["traffic"]["received_bytes"]);
    assert!(bytes > 16 << 20, "only {bytes} bytes: the attack is ineffective");
}

#[test]
fn thousands_of_commands_starve_no_other_host() {
    let outcome = withstands(Attack::Commands);
    let bytes = count(&outcome.last_status["traffic"]["received_bytes"]);
    assert!(bytes > 1 << 20, "only {bytes} bytes: the attack is ineffective");
}

#[test]
fn incomplete_handshakes_lock_no_host_at_the_same_address_out() {
    let outcome = withstands(Attack::KnockSame);
    let accepted = count(&outcome.last_status["traffic"]["connections_accepted"]);
    assert!(accepted > 300, "only {accepted} connections: the attack is ineffective");
}

#[test]
fn handshakes_with_its_nqn_from_many_addresses_do_not_lock_a_host_out() {
    let outcome = withstands(Attack::KnockMany);
    let accepted = count(&outcome.last_status["traffic"]["connections_accepted"]);
    assert!(accepted > 300, "only {accepted} connections: the attack is ineffective");
}

#[test]
fn incomplete_authentications_from_many_addresses_lock_no_host_out() {
    let outcome = withstands_with(1 << 30, Duration::from_secs(1), Attack::KnockNegotiate);
    let accepted = count(&outcome.last_status["traffic"]["connections_accepted"]);
    assert!(accepted > 300, "only {accepted} connections: the attack is ineffective");
}

#[test]
fn silent_nbd_clients_from_many_addresses_lock_no_other_out() {
    let outcome = withstands(Attack::KnockNbd);
    let accepted = count(&outcome.last_status["nbd"]["connections_accepted"]);
    assert!(accepted > 300, "only {accepted} connections: the attack is ineffective");
}
