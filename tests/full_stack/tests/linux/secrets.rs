//! Access control: hosts by NQN, unidirectional and bidirectional DH-HMAC-CHAP.

use zonda_full_stack::{Extent, Namespace, Scene, Subsystem};

/// Generated for this test; nothing else uses them. The last belongs to no host.
const SECRETS: [(&str, &str); 6] = [
    ("SECRET_256", "DHHC-1:01:e9OuWEGMz8XUFUT6H7SpiVzSBmJaE/ZbY4oFtKnpaHPBOrO4:"),
    ("SECRET_384", "DHHC-1:02:NxKmz6V7F3PwR8owZyuTfqqU5CSgEjThYFKfNhaYeT5d28/ZrXLifNt16i6VQvinfF/aZQ==:"),
    (
        "SECRET_512",
        "DHHC-1:03:gcPp6LW5o8zwQrUYq8gRFFCDTMR6IAnHdK+MtfXnseDVVUYNvVkifL1f9b9GHk6lwvKffZsR1Yy0zM6reJBOqySTzsk=:",
    ),
    ("SECRET_BOTH", "DHHC-1:01:UYW/5HreD3sgbtoK+5fM7Tn09DL4sPKSfpDyv1bJnljEw0iT:"),
    ("SECRET_CONTROLLER", "DHHC-1:01:tDbcyLsCaeb1smeqOZVk7yQ1ApzY6mA+Sc/0Gyw8yUZwfBsA:"),
    ("SECRET_WRONG", "DHHC-1:01:sS5V/RW09c/T/9zYw8k5shy/e7DMRfld4n60EL2neYBXKhPK:"),
];

fn secret(name: &str) -> Option<&'static str> {
    SECRETS.iter().find(|(known, _)| *known == name).map(|(_, secret)| *secret)
}

/// The NQN of host `number` in guest/lib.sh.
fn host_nqn(number: u32) -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-{number:012}")
}

#[test]
fn wrong_secrets_are_refused_and_right_ones_accepted() {
    secrets(Extent::Smoke);
}

#[test]
#[ignore = "soak"]
fn soak_wrong_secrets_are_refused_and_right_ones_accepted() {
    secrets(Extent::Soak);
}

fn secrets(extent: Extent) {
    let mut guarded = Subsystem::named("guarded").namespace(Namespace::zoned(8, 8)).host(&host_nqn(1), None, None);
    for (number, name) in [(11, "SECRET_256"), (12, "SECRET_384"), (13, "SECRET_512")] {
        guarded = guarded.host(&host_nqn(number), secret(name), None);
    }
    guarded = guarded.host(&host_nqn(20), secret("SECRET_BOTH"), secret("SECRET_CONTROLLER"));
    let Some(mut stage) = Scene::new("secrets", extent).subsystem(guarded).open_or_skip() else { return };
    let console = stage.run_with("secrets.sh", &SECRETS);

    let kinds: &[&str] = if extent.is_soak() { &["256", "384", "512", "both"] } else { &["256", "both"] };
    for status in stage.statuses() {
        let sessions = &status["subsystems"][0]["sessions"];
        assert_eq!(sessions[0]["authenticated"], true, "{status}");
        assert_eq!(sessions[0]["host_nqn"], host_nqn(20), "{status}");
        let failures = status["traffic"]["authentication_failures"].as_u64();
        // A wrong secret for each kind of secret, and one of the controller.
        assert!(failures >= Some(1 + kinds.len() as u64), "{status}");
    }
    // The log of Linux's kernel for each, such as "hmac(sha256) dhgroup ffdhe2048".
    for kind in kinds {
        let method = console.section(&format!("method-{kind}"));
        assert!(method.contains("hmac(sha"), "secret of kind {kind}: {method}");
    }
    let of_group = if extent.is_soak() { "method-group" } else { "method-both" };
    assert!(console.section(of_group).contains("dhgroup ffdhe"), "a Diffie-Hellman group is used");
}
