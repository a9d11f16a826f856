//! The guest's agent: a failed script must not affect the next one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use zonda_full_stack::{Guest, Job, guest_or_skip};

fn job(lines: &str) -> Job {
    Job::new("own.sh").variable("TARGET", "zonda").variable("EXTENT", "soak").file("own.sh", lines)
}

#[test]
#[ignore = "soak"]
fn soak_a_script_that_fails_leaves_nothing_for_the_next_one() {
    if !guest_or_skip("agent") {
        return;
    }
    let mut guest = Guest::boot(1024);
    let mut run = |lines: &str| guest.run("soak-agent", &job(lines), |request| panic!("unexpected request: {request}"));
    let fails = "mkdir /mnt/a\nmount -t tmpfs a /mnt/a\ntouch /tmp/left\nsleep 1000 &\nfalse\necho not reached";
    let failure = run(fails).expect_err("a command failed");
    assert!(failure.contains("FAILED at line 5 of own.sh: false"), "{failure}");
    assert!(!failure.contains("not reached"), "{failure}");

    let looks = "if [ -e /tmp/left ]; then fail file; fi\nif [ -e /mnt/a ]; then fail mount; fi\n\
                 if pgrep sleep; then fail process; fi\nsection result echo clean";
    let console = run(looks).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(console.section("result"), "clean");

    // If the guest exits, its script fails, with the end of the console.
    let ended = catch_unwind(AssertUnwindSafe(|| run("echo last words\nsync\nsleep 1\npoweroff -f\nsleep 100")));
    let words = ended.expect_err("the guest has exited");
    let words = words.downcast_ref::<String>().expect("a panic with a message");
    assert!(words.contains("the guest has exited") && words.contains("last words"), "{words}");
}
