//! A drive whose namespace changes its size while hosts and clients use it.

use zonda_target::{DeviceKey, Target};
use zonda_zoned::{Geometry, Instant};

use crate::drives::Drives;
use crate::events;
use crate::nbd::Nbd;

/// Passes the new geometry of a drive to the hosts of its namespaces and to the NBD server.
pub(crate) fn resize(
    now: Instant,
    target: &mut Target,
    nbd: Option<&mut Nbd>,
    drives: &Drives,
    device: DeviceKey,
    geometry: &Geometry,
) {
    let source = &drives.get(device).source;
    let of_subsystem = target.config().subsystems.iter().map(|subsystem| (&subsystem.nqn, &subsystem.namespaces));
    let all = of_subsystem.flat_map(|(nqn, namespaces)| namespaces.iter().map(move |namespace| (nqn, namespace)));
    let of_device = all.filter(|(_, namespace)| namespace.device == device);
    let names: Vec<_> = of_device.map(|(nqn, namespace)| (nqn.clone(), namespace.id)).collect();
    for (nqn, id) in names {
        match target.resize_namespace(now, &nqn, id, geometry.clone()) {
            Ok(()) => events::resized(source, &nqn, id, geometry),
            // Hosts keep the former size, and the drive fails commands beyond its end.
            Err(error) => events::warning(source, &format!("hosts do not see its new size: {error}")),
        }
    }
    if let Some(nbd) = nbd {
        nbd.resize(device, geometry.namespace_blocks().bytes(geometry.block_size_bytes));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use zonda_devices::{Drive, DriveFacts, MemoryDrive};
    use zonda_nvme::Nqn;
    use zonda_nvme::identify::NamespaceIdentity;
    use zonda_target::{HostAccess, NamespaceConfig, SubsystemConfig, TargetConfig};
    use zonda_zoned::{Blocks, Command, CompletionQueue, Duration, NamespaceId, Namespaces, QueueFull, ZonedDevice};

    use super::*;
    use crate::backing::Backing;
    use crate::config::NbdPlan;
    use crate::nbd::{Candidate, Table};
    use crate::served::Served;

    const DEVICE: DeviceKey = DeviceKey(0);

    /// A drive that has another number of zones after the next poll.
    struct Resized {
        memory: MemoryDrive,
        namespaces: Namespaces,
        next: Rc<Cell<Option<u32>>>,
    }

    fn geometry(zone_count: u32) -> Geometry {
        let zone = Blocks(64);
        Geometry {
            zone_size_blocks: zone,
            zone_capacity_blocks: zone,
            zone_count,
            conventional_zone_count: zone_count,
            max_transfer_blocks: zone,
            ..Geometry::tiny()
        }
    }

    impl ZonedDevice for Resized {
        fn namespaces(&self) -> &Namespaces {
            &self.namespaces
        }

        fn submit(&mut self, now: Instant, command: Command) -> Result<(), QueueFull> {
            self.memory.submit(now, command)
        }

        fn poll(&mut self, now: Instant, completions: &mut CompletionQueue) {
            if let Some(zone_count) = self.next.take() {
                self.namespaces.resize(NamespaceId::FIRST, geometry(zone_count));
            }
            self.memory.poll(now, completions);
        }

        fn next_timeout(&self) -> Option<Instant> {
            self.memory.next_timeout()
        }
    }

    impl Drive for Resized {
        fn facts(&self) -> DriveFacts {
            self.memory.facts()
        }

        fn media_errors(&self) -> u64 {
            0
        }

        fn close(&mut self, now: Instant) {
            self.memory.close(now);
        }

        fn is_closed(&self) -> bool {
            self.memory.is_closed()
        }
    }

    fn nqn() -> Nqn {
        "nqn.2026-01.io.zonda:resized".parse().expect("a name")
    }

    fn target() -> Target {
        let namespace = NamespaceConfig {
            id: NamespaceId(3),
            device: DEVICE,
            device_namespace: NamespaceId::FIRST,
            geometry: geometry(8),
            identity: NamespaceIdentity { uuid: Some([7; 16]), ..NamespaceIdentity::default() },
            volatile_write_cache: false,
        };
        let subsystem = SubsystemConfig {
            nqn: nqn(),
            serial: "1".to_owned(),
            model: "zonda".to_owned(),
            firmware: "1".to_owned(),
            namespaces: vec![namespace],
            allow: HostAccess::Any,
        };
        Target::new(TargetConfig::new(vec![subsystem], Vec::new(), [1; 32])).expect("it is valid")
    }

    fn nbd() -> Nbd {
        let candidate = Candidate {
            nqn: nqn(),
            namespace: NamespaceId(3),
            device: DEVICE,
            geometry: geometry(8),
            source: "disk".to_owned(),
            volatile_write_cache: false,
            read_only: false,
        };
        let plan = NbdPlan { listen: Vec::new(), read_only: false, tls: None, exports: None };
        let table = Table::build(&plan, &[candidate]).expect("it is conventional");
        let ring = crate::server::ring(true, Duration::ZERO, 0).expect("a ring");
        Nbd::new(&ring, 4, vec![table], Vec::new())
    }

    #[test]
    fn a_drive_that_grows_or_shrinks_does_so_for_hosts_and_for_new_nbd_clients() {
        let next = Rc::new(Cell::new(None));
        let drive = Resized {
            memory: MemoryDrive::new(geometry(16), u64::MAX),
            namespaces: Namespaces::single(geometry(8)),
            next: Rc::clone(&next),
        };
        let (mut drives, mut target, mut nbd) = (Drives::default(), target(), nbd());
        assert_eq!(drives.add(Served::new(Backing::Drive(Box::new(drive)), "disk".to_owned(), "none")), DEVICE);
        let mut poll = |next_zone_count: Option<u32>| {
            next.set(next_zone_count);
            let none = &mut |_, _, _| unreachable!("there are no commands");
            let moved = drives.poll(Instant::ZERO, &mut CompletionQueue::new(), none);
            let resized = drives.next_resized();
            assert_eq!((moved, drives.next_resized()), (resized.is_some(), None));
            if let Some((device, geometry)) = &resized {
                resize(Instant::ZERO, &mut target, Some(&mut nbd), &drives, *device, geometry);
            }
            let of_target = target.config().subsystems[0].namespaces[0].geometry.clone();
            assert_eq!(of_target, *drives.get(DEVICE).geometry(), "hosts see what the drive has");
            (resized.is_some(), of_target.zone_count, nbd.snapshot().exports[0].size_bytes)
        };
        let zone_bytes = geometry(1).zone_capacity_bytes();
        assert_eq!(poll(None), (false, 8, 8 * zone_bytes));
        assert_eq!(poll(Some(12)), (true, 12, 12 * zone_bytes));
        assert_eq!(poll(None), (false, 12, 12 * zone_bytes));
        assert_eq!(poll(Some(4)), (true, 4, 4 * zone_bytes));
        assert_eq!(poll(Some(4)), (false, 4, 4 * zone_bytes));
    }
}
