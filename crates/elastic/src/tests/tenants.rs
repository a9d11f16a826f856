//! Namespaces as tenants of a scheduler below the pool.

use zonda_zoned::{NamespaceId, TenantId};

use super::rig::Rig;
use crate::{NamespaceConfig, Pool};

#[test]
fn each_namespace_is_a_tenant_with_its_weight_and_the_log_has_the_greatest() {
    let mut rig = Rig::tiny();
    let weights = |rig: &mut Rig| rig.device().pool().expect("it is open").weights();
    assert_eq!(weights(&mut rig), [(TenantId::DEFAULT, 1)]);
    let mut create = |name: &str, weight| {
        let config = NamespaceConfig { weight, ..NamespaceConfig::new(name, [weight as u8; 16], 2, 1) };
        let now = rig.now;
        let id = rig.device().create_namespace(now, &config).expect("the drive has space");
        rig.quiesce();
        id
    };
    let (a, b) = (create("a", 3), create("b", 2));
    assert_eq!((a, Pool::tenant_of(a)), (NamespaceId(1), TenantId(1)), "0 is left to the log");
    assert_eq!(weights(&mut rig), [(Pool::tenant_of(a), 3), (Pool::tenant_of(b), 2), (TenantId::DEFAULT, 3)]);
    let now = rig.now;
    rig.device().delete_namespace(now, a).expect("it exists");
    rig.quiesce();
    assert_eq!(weights(&mut rig), [(Pool::tenant_of(b), 2), (TenantId::DEFAULT, 2)]);
}
