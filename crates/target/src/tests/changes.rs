//! Changes of namespaces, subsystems and hosts while hosts are connected, and what hosts see of
//! them. The steps of other tests of changes are here too.

use std::collections::BTreeMap;

use bytes::Bytes;
use zonda_nvme::fabrics::{Configuration, Property};
use zonda_nvme::features::{AsyncEvent, notices};
use zonda_nvme::identify::{
    CommandSet, Controller, IndependentNamespace, NamespaceIdentity, NamespaceList, NvmNamespace, Structure,
    parse_descriptors,
};
use zonda_nvme::log::{ChangedNamespaceList, GetLogPage, LogPage};
use zonda_nvme::page::Page;
use zonda_nvme::tcp::Digests;
use zonda_nvme::{AdminOpcode, Nqn, StatusCode, SubmissionEntry};
use zonda_zoned::reference::ReferenceDevice;
use zonda_zoned::{Blocks, Geometry, NamespaceId, PayloadKind};

use super::admin::{identify, log};
use super::testbed::{HOST, SUBSYSTEM, Testbed, config, conventional, nqn, read, write, zoned};
use crate::limits::NAMESPACE_TABLE_MAX;
use crate::subsystems::is_zoned;
use crate::{
    ConnectionId, DeviceKey, HostAccess, HostEntry, NamespaceConfig, NamespaceOptions, SubsystemConfig, Target,
    TargetConfigError,
};

pub(super) const OTHER: &str = "nqn.2024-01.org.example:other";
const SUCCESS: StatusCode = StatusCode::SUCCESS;

pub(super) fn namespace(id: u32, device: DeviceKey, geometry: &Geometry) -> NamespaceConfig {
    NamespaceConfig {
        id: NamespaceId(id),
        device,
        device_namespace: NamespaceId::FIRST,
        geometry: geometry.clone(),
        identity: NamespaceIdentity { uuid: Some([id as u8 ^ 0x40; 16]), ..NamespaceIdentity::default() },
        volatile_write_cache: is_zoned(geometry),
    }
}

pub(super) fn subsystem(name: &str, namespaces: Vec<NamespaceConfig>, allow: HostAccess) -> SubsystemConfig {
    SubsystemConfig {
        nqn: nqn(name),
        serial: "2".to_owned(),
        model: "zonda".to_owned(),
        firmware: "1.0".to_owned(),
        namespaces,
        allow,
    }
}

pub(super) fn only(hosts: &[&str]) -> HostAccess {
    let entry = |host: &&str| HostEntry { nqn: nqn(host), secret: None, controller_secret: None };
    HostAccess::Hosts(hosts.iter().map(entry).collect())
}

impl Testbed {
    /// A new device.
    pub(super) fn device(&mut self, geometry: &Geometry) -> DeviceKey {
        self.devices.push(ReferenceDevice::new(geometry.clone(), PayloadKind::Bytes));
        DeviceKey(self.devices.len() as u32 - 1)
    }

    /// Changes the target, and carries out the effects.
    pub(super) fn change<T>(&mut self, change: impl FnOnce(&mut Target) -> T) -> T {
        let result = change(&mut self.target);
        self.target.check_invariants();
        self.run_until_idle();
        result
    }

    pub(super) fn add_with(
        &mut self,
        id: u32,
        geometry: &Geometry,
        options: NamespaceOptions,
    ) -> Result<DeviceKey, TargetConfigError> {
        let device = self.device(geometry);
        let (now, namespace) = (self.now, namespace(id, device, geometry));
        self.change(|target| target.add_namespace(now, &nqn(SUBSYSTEM), namespace, options)).map(|()| device)
    }

    /// Adds a namespace of a new device to the first subsystem.
    pub(super) fn add(&mut self, id: u32, geometry: &Geometry) -> DeviceKey {
        self.add_with(id, geometry, NamespaceOptions::default()).expect("a valid namespace")
    }

    /// Removes a namespace of the first subsystem.
    pub(super) fn remove(&mut self, id: u32) {
        let now = self.now;
        self.change(|target| target.remove_namespace(now, &nqn(SUBSYSTEM), NamespaceId(id))).expect("it exists");
    }

    pub(super) fn resize(&mut self, id: u32, geometry: &Geometry) -> Result<(), TargetConfigError> {
        let now = self.now;
        self.change(|target| target.resize_namespace(now, &nqn(SUBSYSTEM), NamespaceId(id), geometry.clone()))
    }

    pub(super) fn remove_subsystem(&mut self, name: &str) {
        let now = self.now;
        self.change(|target| target.remove_subsystem(now, &nqn(name))).expect("it exists");
    }

    pub(super) fn set_hosts(&mut self, allow: HostAccess) {
        let now = self.now;
        self.change(|target| target.set_hosts(now, &nqn(SUBSYSTEM), allow)).expect("a valid list");
    }

    /// A controller of the discovery service that wants its event.
    pub(super) fn discovery(&mut self, host: &str) -> ConnectionId {
        let id = self.open();
        self.initialize(id, Digests::NONE, 0);
        assert_eq!(self.connect_as(id, host, Nqn::DISCOVERY, 0, None, 0).status, SUCCESS);
        self.enable(id);
        self.want_events(id, notices::DISCOVERY_LOG_PAGE);
        id
    }

    pub(super) fn want_events(&mut self, admin: ConnectionId, events: u32) {
        let mut entry = SubmissionEntry::new(AdminOpcode::SetFeatures.code(), 0);
        (entry.cdw10, entry.cdw11) = (0x0b.into(), events.into());
        assert_eq!(self.execute(admin, entry, Bytes::new()).status, SUCCESS);
    }

    /// Sends an Asynchronous Event Request; returns its identifier.
    pub(super) fn request_event(&mut self, admin: ConnectionId) -> u16 {
        self.start(admin, SubmissionEntry::new(AdminOpcode::AsyncEventRequest.code(), 0), &Bytes::new())
    }

    /// The event that a request has returned; `None`: it is outstanding.
    pub(super) fn event(&mut self, admin: ConnectionId, request: u16) -> Option<AsyncEvent> {
        let has_ended = self.answered(admin, request);
        has_ended.then(|| AsyncEvent::decode(self.finish(admin, request, Bytes::new()).result))
    }

    /// Whether a command has a response that the host has not looked at.
    pub(super) fn answered(&mut self, id: ConnectionId, command: u16) -> bool {
        let is_it = |pdu: &zonda_nvme::tcp::Pdu| matches!(pdu, zonda_nvme::tcp::Pdu::Response(entry) if entry.command_id.get() == command);
        self.wire(id).pdus.iter().any(is_it)
    }

    pub(super) fn changed(&mut self, admin: ConnectionId) -> Vec<u32> {
        let page = log(self, admin, GetLogPage::of(LogPage::ChangedNamespaces, 4096), 0).data;
        let changed = ChangedNamespaceList::parse(&page).unwrap().changed().expect("few changes");
        changed.iter().map(|id| id.0).collect()
    }

    /// The generation counter of the discovery log page, and the subsystems in it.
    pub(super) fn discovered(&mut self, admin: ConnectionId) -> (u64, Vec<String>) {
        let page = log(self, admin, GetLogPage::of(LogPage::Discovery, 4096), 0).data;
        let (_, entries) = zonda_nvme::discovery::parse_log(&page).unwrap();
        let generation = u64::from_le_bytes(page[..8].try_into().unwrap());
        (generation, entries.iter().map(|entry| entry.subsystem_nqn()).collect())
    }

    fn listed(&mut self, admin: ConnectionId, structure: Structure, set: CommandSet) -> Vec<u32> {
        let page = identify(self, admin, structure, set, 0).data;
        NamespaceList::parse(&page).unwrap().iter().map(|id| id.0).collect()
    }

    /// Checks what a host sees of the first subsystem against the configuration.
    pub(super) fn assert_view(&mut self, admin: ConnectionId) {
        self.assert_view_of(admin, 0);
    }

    /// The same for any subsystem.
    pub(super) fn assert_view_of(&mut self, admin: ConnectionId, subsystem: usize) {
        let held = std::mem::replace(&mut self.hold, false);
        let config = self.target.config().subsystems[subsystem].clone();
        // A host that has not enabled all command sets sees no zoned namespaces.
        let has_zones =
            Configuration(self.get(admin, Property::Configuration) as u32).command_set() == Configuration::CSS_ALL;
        let sees = |it: &&NamespaceConfig| has_zones || !is_zoned(&it.geometry);
        let geometries = || config.namespaces.iter().map(|it| &it.geometry);
        let page = identify(self, admin, Structure::Controller, CommandSet::Nvm, 0).data;
        let page = Controller::parse(&page).unwrap();
        let greatest = config.namespaces.iter().map(|it| it.id.0).max().unwrap_or(0);
        let capacity = geometries().map(|it| u128::from(it.zone_capacity_bytes()) * u128::from(it.zone_count));
        assert_eq!(page.namespaces_max.get(), greatest.max(1));
        assert_eq!(page.total_capacity_bytes.get(), capacity.sum::<u128>());
        assert_eq!(page.write_cache & 1 == 1, config.namespaces.iter().any(|it| it.volatile_write_cache));
        assert_ne!(page.async_events.get() & notices::NAMESPACE_ATTRIBUTE, 0);
        let mut ids: Vec<u32> = config.namespaces.iter().filter(sees).map(|it| it.id.0).collect();
        ids.sort_unstable();
        assert_eq!(self.listed(admin, Structure::ActiveNamespaces, CommandSet::Nvm), ids);
        for (set, zoned) in [(CommandSet::Nvm, false), (CommandSet::Zoned, true)] {
            if zoned && !(has_zones && geometries().any(is_zoned)) {
                continue;
            }
            let of_set = config.namespaces.iter().filter(|it| is_zoned(&it.geometry) == zoned);
            let mut ids: Vec<u32> = of_set.map(|it| it.id.0).collect();
            ids.sort_unstable();
            assert_eq!(self.listed(admin, Structure::CommandSetActiveNamespaces, set), ids);
        }
        for id in 1..=greatest + 1 {
            self.assert_namespace(admin, id, greatest, config.namespaces.iter().filter(sees).find(|it| it.id.0 == id));
        }
        self.hold = held;
    }

    fn assert_namespace(&mut self, admin: ConnectionId, id: u32, greatest: u32, config: Option<&NamespaceConfig>) {
        let nvm = identify(self, admin, Structure::Namespace, CommandSet::Nvm, id);
        let independent = identify(self, admin, Structure::IndependentNamespace, CommandSet::Nvm, id);
        let descriptors = identify(self, admin, Structure::NamespaceDescriptors, CommandSet::Nvm, id);
        let Some(config) = config else {
            assert_eq!(descriptors.status, StatusCode::INVALID_NAMESPACE);
            let expected = if id <= greatest { SUCCESS } else { StatusCode::INVALID_NAMESPACE };
            assert_eq!((nvm.status, independent.status), (expected, expected));
            assert!(nvm.data.iter().chain(&independent.data).all(|&byte| byte == 0), "inactive");
            return;
        };
        let nvm = NvmNamespace::parse(&nvm.data).unwrap();
        assert_eq!(nvm.size_blocks.get(), config.geometry.namespace_blocks().0);
        assert!(IndependentNamespace::parse(&independent.data).unwrap().is_ready());
        assert_eq!(parse_descriptors(&descriptors.data).unwrap().0, config.identity);
        if is_zoned(&config.geometry) {
            let page = identify(self, admin, Structure::CommandSetNamespace, CommandSet::Zoned, id);
            assert_eq!(page.status, SUCCESS);
        }
        let smart = log(self, admin, GetLogPage::of(LogPage::Smart, 512), id);
        assert_eq!(smart.status, SUCCESS);
    }
}

#[test]
fn a_namespace_that_is_added_can_be_used_at_once_and_hosts_see_it() {
    let mut testbed = Testbed::new();
    let (admin, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    testbed.assert_view(admin);
    assert_eq!(testbed.operate(io, 1, &write(0, 8, 1)).status, SUCCESS);
    let (mut entry, data) = testbed.encoded(1, &write(0, 8, 2));
    entry.namespace = 7.into();
    assert_eq!(testbed.execute(io, entry, data).status, StatusCode::INVALID_NAMESPACE);
    testbed.add(7, &conventional());
    testbed.add(3, &zoned());
    testbed.assert_view(admin);
    assert_eq!(testbed.operate(io, 7, &write(100, 8, 2)).status, SUCCESS);
    assert_eq!(testbed.operate(io, 3, &write(0, 8, 3)).status, SUCCESS);
    assert_eq!(testbed.operate(io, 7, &read(100, 8)).data, super::testbed::pattern(8, 512, 2));
    let counts = |testbed: &Testbed, id| testbed.target.namespace_statistics(0, NamespaceId(id)).cloned();
    assert_eq!(counts(&testbed, 7).map(|it| (it.reads, it.writes)), Some((1, 1)));
    assert_eq!(counts(&testbed, 2), None);
}

#[test]
fn a_namespace_that_is_removed_is_inactive_and_the_data_units_of_the_controller_do_not_decrease() {
    let mut testbed = Testbed::of(config(&[zoned(), conventional()], HostAccess::Any));
    let (admin, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    assert_eq!(testbed.operate(io, 2, &write(0, 8, 1)).status, SUCCESS);
    let host_writes = |testbed: &mut Testbed| {
        let page = log(testbed, admin, GetLogPage::of(LogPage::Smart, 512), 0).data;
        page[80..96].to_vec()
    };
    let before = host_writes(&mut testbed);
    assert_eq!(before[0], 1);
    testbed.remove(2);
    testbed.assert_view(admin);
    assert_eq!(host_writes(&mut testbed), before);
    assert_eq!(testbed.removed, [(DeviceKey(1), NamespaceId::FIRST)]);
    assert_eq!(testbed.target.namespace_statistics(0, NamespaceId(2)), None);
    let smart = log(&mut testbed, admin, GetLogPage::of(LogPage::Smart, 512), 2);
    assert_eq!(smart.status, StatusCode::INVALID_NAMESPACE);
    testbed.remove(1);
    testbed.assert_view(admin);
    assert!(testbed.target.config().subsystems[0].namespaces.is_empty());
}

#[test]
fn a_change_is_reported_once_until_its_log_page_is_read_and_only_to_hosts_that_want_it() {
    let mut testbed = Testbed::new();
    let ((admin, _), (quiet, _)) = (testbed.admin(), testbed.admin());
    testbed.want_events(admin, notices::NAMESPACE_ATTRIBUTE);
    let [first, second, silent] = [admin, admin, quiet].map(|admin| testbed.request_event(admin));
    testbed.add(2, &conventional());
    assert_eq!(testbed.event(admin, first), Some(AsyncEvent::namespace_attribute_changed()));
    testbed.remove(2);
    testbed.resize(1, &Geometry { zone_count: 6, ..zoned() }).unwrap();
    assert_eq!(testbed.event(admin, second), None, "masked until the page is read");
    assert_eq!(testbed.changed(admin), [1, 2]);
    assert_eq!(testbed.event(admin, second), None, "the page had all changes");
    assert_eq!(testbed.changed(admin), [0; 0]);
    testbed.add(2, &conventional());
    assert_eq!(testbed.event(admin, second), Some(AsyncEvent::namespace_attribute_changed()));
    assert_eq!(testbed.event(quiet, silent), None, "not enabled");
    assert_eq!(testbed.changed(quiet), [1, 2], "the page is kept all the same");
}

#[test]
fn a_resized_namespace_has_its_new_size_and_the_device_refuses_what_is_beyond() {
    let mut testbed = Testbed::of(config(&[zoned(), conventional()], HostAccess::Any));
    let (admin, controller) = testbed.admin();
    let io = testbed.io_with(controller, 1, Digests::NONE, 0);
    let grown = Geometry { zone_count: 12, ..zoned() };
    testbed.devices[0] = ReferenceDevice::new(grown.clone(), PayloadKind::Bytes);
    testbed.resize(1, &grown).unwrap();
    testbed.assert_view(admin);
    assert_eq!(testbed.operate(io, 1, &write(64 * 11, 8, 1)).status, SUCCESS);
    assert_eq!(testbed.operate(io, 1, &read(64 * 12, 1)).status, StatusCode::LBA_OUT_OF_RANGE);
    testbed.resize(2, &Geometry { zone_count: 3, conventional_zone_count: 3, ..conventional() }).unwrap();
    testbed.assert_view(admin);
    testbed.resize(2, &Geometry { zone_count: 3, conventional_zone_count: 3, ..conventional() }).unwrap();
    assert_eq!(testbed.changed(admin), [1, 2]);
}

#[test]
fn a_change_with_an_error_changes_nothing() {
    let mut testbed = Testbed::new();
    let (admin, _) = testbed.admin();
    let now = testbed.now;
    let before = format!("{:?}", testbed.target.config());
    let refused = |testbed: &mut Testbed, change: &dyn Fn(&mut Target) -> Result<(), TargetConfigError>| {
        let error = testbed.change(change).expect_err("an invalid change");
        assert_eq!(format!("{:?}", testbed.target.config()), before, "{error}");
        error.to_string()
    };
    let (first, none) = (nqn(SUBSYSTEM), NamespaceOptions::default());
    let add = |config: NamespaceConfig, options: NamespaceOptions| {
        let first = first.clone();
        move |target: &mut Target| target.add_namespace(now, &first, config.clone(), options.clone())
    };
    let fresh = DeviceKey(9);
    let plain = namespace(2, fresh, &conventional());
    let mixed = Geometry { conventional_zone_count: 3, ..conventional() };
    let nameless = NamespaceConfig { identity: NamespaceIdentity::default(), ..plain.clone() };
    let saves = NamespaceOptions { saved_reservations: Some(Bytes::new()), ..none.clone() };
    let garbled = NamespaceOptions { saved_reservations: Some(Bytes::from_static(b"?")), ..none.clone() };
    let protected = NamespaceOptions { is_write_protected: true, ..none.clone() };
    for (config, options, why) in [
        (namespace(1, fresh, &zoned()), none.clone(), "twice"),
        (namespace(0, fresh, &zoned()), none.clone(), "1 to 1024"),
        (namespace(1025, fresh, &zoned()), none.clone(), "1 to 1024"),
        (namespace(2, fresh, &mixed), none.clone(), "both kinds"),
        (nameless, none.clone(), "identity"),
        (namespace(2, DeviceKey(0), &zoned()), saves, "exactly one namespace"),
        (plain.clone(), garbled, "saved reservations"),
        (namespace(2, DeviceKey(0), &zoned()), protected, "write protection"),
    ] {
        let error = refused(&mut testbed, &add(config, options));
        assert!(error.contains(why), "{error}");
    }
    let small = Geometry { max_transfer_blocks: Blocks(16), ..conventional() };
    let error = refused(&mut testbed, &add(namespace(2, fresh, &small), none.clone()));
    assert!(error.contains("MDTS") && error.contains("restart the server"), "{error}");
    let unknown = nqn(OTHER);
    for change in [
        &|target: &mut Target| target.remove_namespace(now, &first, NamespaceId(2)) as Result<(), _>,
        &|target: &mut Target| target.remove_namespace(now, &unknown, NamespaceId(1)),
        &|target: &mut Target| target.add_namespace(now, &unknown, plain.clone(), none.clone()),
        &|target: &mut Target| target.resize_namespace(now, &first, NamespaceId(2), zoned()),
        &|target: &mut Target| target.resize_namespace(now, &first, NamespaceId(1), conventional()),
        &|target: &mut Target| {
            target.resize_namespace(now, &first, NamespaceId(1), Geometry { zone_count: 0, ..zoned() })
        },
        &|target: &mut Target| target.pause_namespace(now, &first, NamespaceId(2)),
        &|target: &mut Target| target.resume_namespace(now, &unknown, NamespaceId(1)),
        &|target: &mut Target| target.remove_subsystem(now, &unknown),
        &|target: &mut Target| target.set_hosts(now, &unknown, HostAccess::Any),
        &|target: &mut Target| target.set_hosts(now, &first, only(&[HOST, HOST])),
        &|target: &mut Target| {
            target.add_subsystem(now, subsystem(SUBSYSTEM, vec![], HostAccess::Any), BTreeMap::new())
        },
        &|target: &mut Target| {
            target.add_subsystem(now, subsystem(Nqn::DISCOVERY, vec![], HostAccess::Any), BTreeMap::new())
        },
        &|target: &mut Target| {
            let options = BTreeMap::from([(NamespaceId(3), NamespaceOptions::default())]);
            target.add_subsystem(now, subsystem(OTHER, vec![plain.clone()], HostAccess::Any), options)
        },
        &|target: &mut Target| {
            let both = vec![namespace(1, fresh, &zoned()), namespace(2, fresh, &zoned())];
            let saves = NamespaceOptions { saved_reservations: Some(Bytes::new()), ..NamespaceOptions::default() };
            let options = BTreeMap::from([(NamespaceId(1), saves)]);
            target.add_subsystem(now, subsystem(OTHER, both, HostAccess::Any), options)
        },
    ] as [&dyn Fn(&mut Target) -> Result<(), TargetConfigError>; 15]
    {
        refused(&mut testbed, change);
    }
    assert!(!testbed.target.is_quiescent(&unknown, NamespaceId(1)));
    testbed.assert_view(admin);
    assert_eq!(testbed.changed(admin), [0; 0]);
}

#[test]
fn limits_that_hosts_have_read_hold_until_the_last_controller_is_removed() {
    let small = Geometry { max_transfer_blocks: Blocks(16), ..conventional() };
    let short = Geometry { max_append_blocks: Blocks(16), ..zoned() };
    let long = Geometry { max_append_blocks: Blocks(32), ..zoned() };
    let mut testbed = Testbed::of(config(&[long, small.clone()], HostAccess::Any));
    let (admin, _) = testbed.admin();
    let exponent = |testbed: &mut Testbed, admin| {
        let page = identify(testbed, admin, Structure::Controller, CommandSet::Nvm, 0).data;
        Controller::parse(&page).unwrap().max_transfer_exponent
    };
    assert_eq!(exponent(&mut testbed, admin), 1);
    testbed.remove(2);
    let (other, _) = testbed.admin();
    assert_eq!(exponent(&mut testbed, other), 1, "another controller reports the same");
    testbed.add(2, &small);
    testbed.remove(2);
    testbed.close_socket(admin);
    testbed.close_socket(other);
    let (admin, _) = testbed.admin();
    assert_eq!(exponent(&mut testbed, admin), 2);
    let error = testbed.add_with(2, &small, NamespaceOptions::default()).unwrap_err();
    assert!(error.subject.contains("MDTS"), "{error}");
    let error = testbed.add_with(2, &short, NamespaceOptions::default()).unwrap_err();
    assert!(error.subject.contains("ZASL"), "{error}");
    testbed.close_socket(admin);
    testbed.add(2, &short);
    testbed.add(3, &small);
}

#[test]
fn a_full_table_of_namespaces_accepts_no_other() {
    let mut testbed = Testbed::new();
    let now = testbed.now;
    let add = |target: &mut Target, name: &str, count: usize| {
        let ids = 1..=count as u32;
        let namespaces = ids.map(|id| namespace(id, DeviceKey(1), &conventional())).collect();
        target.add_subsystem(now, subsystem(name, namespaces, HostAccess::Any), BTreeMap::new())
    };
    for number in 0..3 {
        add(&mut testbed.target, &format!("{OTHER}-{number}"), 1024).unwrap();
    }
    assert!(add(&mut testbed.target, OTHER, 1024).unwrap_err().to_string().contains("full"));
    add(&mut testbed.target, OTHER, NAMESPACE_TABLE_MAX - 3 * 1024 - 1).unwrap();
    let error = testbed.add_with(2, &zoned(), NamespaceOptions::default()).unwrap_err();
    assert!(error.to_string().contains("full"), "{error}");
    testbed.remove_subsystem(OTHER);
    testbed.add(2, &zoned());
}

#[test]
fn a_subsystem_comes_and_goes_and_discovery_controllers_are_notified() {
    let mut testbed = Testbed::new();
    let (concerned, other) = (testbed.discovery(HOST), testbed.discovery("nqn.2024-01.org.example:unlisted"));
    let requests = [concerned, concerned, other].map(|admin| testbed.request_event(admin));
    let (now, device) = (testbed.now, testbed.device(&conventional()));
    let (generation, _) = testbed.discovered(concerned);
    let config = subsystem(OTHER, vec![namespace(5, device, &conventional())], only(&[HOST]));
    let protected = NamespaceOptions { is_write_protected: true, ..NamespaceOptions::default() };
    let options = BTreeMap::from([(NamespaceId(5), protected)]);
    testbed.change(|target| target.add_subsystem(now, config, options)).unwrap();
    assert_eq!(testbed.event(concerned, requests[0]), Some(AsyncEvent::discovery_log_changed()));
    assert_eq!(testbed.event(other, requests[2]), None, "its page has the same subsystems");
    let (next, found) = testbed.discovered(concerned);
    assert!(next > generation);
    assert_eq!(found, [SUBSYSTEM, OTHER]);
    assert_eq!(testbed.discovered(other).1, [SUBSYSTEM]);

    let admin = testbed.open();
    testbed.initialize(admin, Digests::NONE, 0);
    let controller = testbed.connect_as(admin, HOST, OTHER, 0, None, 0).result as u16;
    testbed.enable(admin);
    let io = testbed.open();
    testbed.initialize(io, Digests::NONE, 0);
    testbed.connect_as(io, HOST, OTHER, 1, Some(controller), 0);
    let (mut entry, data) = testbed.encoded(1, &write(0, 1, 1));
    entry.namespace = 5.into();
    assert_eq!(testbed.execute(io, entry, data).status, StatusCode::NAMESPACE_WRITE_PROTECTED);
    testbed.remove_subsystem(SUBSYSTEM);
    assert_eq!(testbed.event(concerned, requests[1]), Some(AsyncEvent::discovery_log_changed()));
    assert_eq!(testbed.discovered(other).1, [""; 0]);
    let sessions = testbed.target.sessions();
    assert!(sessions.iter().any(|it| it.subsystem == Some(nqn(OTHER)) && it.io_queues == 1));
    testbed.assert_view(admin);
    testbed.remove_subsystem(OTHER);
    assert!(testbed.closed.contains_key(&admin) && testbed.closed.contains_key(&io));
    let id = testbed.open();
    testbed.initialize(id, Digests::NONE, 0);
    let refused = testbed.connect_as(id, HOST, OTHER, 0, None, 0).status;
    assert_eq!(refused, StatusCode::CONNECT_INVALID_PARAMETERS);
    assert_eq!(testbed.target.config().subsystems.len(), 0);
    assert!(testbed.target.config().write_protected.is_empty());
}
