//! Two tenants of a pool, while namespaces are created, resized and deleted, and its server is
//! killed.

use serde_json::Value;
use zonda_full_stack::{Extent, Namespace, Scene, Subsystem};

#[test]
fn tenants_of_a_pool_are_verified_while_namespaces_change_and_after_a_kill() {
    pools(Extent::Smoke);
}

#[test]
#[ignore = "soak"]
fn soak_tenants_of_a_pool_are_verified_while_namespaces_change_and_after_kills() {
    pools(Extent::Soak);
}

fn pools(extent: Extent) {
    let log = Subsystem::named("log").namespace(Namespace::pooled("log", 24, 2));
    let db = Subsystem::named("db").namespace(Namespace::pooled("db", 8, 2)).namespace(Namespace::pooled("old", 2, 1));
    let Some(mut stage) = Scene::new("pools", extent).subsystem(log).subsystem(db).open_or_skip() else { return };
    if !stage.is_zonda() {
        return println!("skipped: the kernel's target has no pools");
    }
    let console = stage.run("pools.sh");
    assert!(console.section("busy").parse::<u32>().expect("a number") >= 1, "both were verified meanwhile");
    assert!(!console.section("active").contains(":0x2"), "{}", console.section("active"));
    let [before, after] = stage.statuses() else { panic!("the script has asked twice") };
    let accepted = |status: &Value| status["traffic"]["connections_accepted"].clone();
    assert_eq!(accepted(before), accepted(after), "the hosts have not connected again");
    let ids = |status: &Value| -> Vec<u64> {
        let namespaces = status["subsystems"][1]["namespaces"].as_array().expect("a subsystem has namespaces");
        namespaces.iter().map(|namespace| namespace["id"].as_u64().expect("a number")).collect()
    };
    assert_eq!((ids(before), ids(after)), (vec![1, 2], vec![1, 3]));
}
