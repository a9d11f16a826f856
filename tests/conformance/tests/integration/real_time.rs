//! Devices with real I/O: files on a ring, images behind NVMe/TCP, and volumes of images.

use crate::support::real::{Live, file_backed, nvme_tcp};
use crate::support::volume::{RAID1, RAID5, volume_of_images};
use zonda_conformance::{TestBackend, conformance, conformance_of_conventional};
use zonda_devices::NamespaceOptions;
use zonda_ring::{Backend, RingOptions};

fn boxed<D: zonda_devices::Drive + 'static>(live: Live<D>) -> Box<dyn TestBackend> {
    Box::new(live)
}

#[test]
fn an_image_on_files_conforms() {
    let summary = conformance("image", &mut |geometry| file_backed(geometry, RingOptions::default()).map(boxed));
    assert_eq!(summary.skipped, 1, "only the check that docs/internals/image-format.md excludes");
}

#[test]
fn an_image_on_files_conforms_without_io_uring() {
    let options = || RingOptions::on(Backend::Epoll);
    let summary = conformance("image over epoll", &mut |geometry| file_backed(geometry, options()).map(boxed));
    assert_eq!(summary.skipped, 1, "only the check that docs/internals/image-format.md excludes");
}

#[test]
fn an_image_behind_nvme_tcp_conforms() {
    let options = NamespaceOptions::default();
    let summary = conformance("nvme/tcp", &mut |geometry| nvme_tcp(geometry, &options).map(boxed));
    assert!(summary.passed > 60, "{} passed", summary.passed);
}

#[test]
fn an_image_behind_nvme_tcp_with_digests_and_four_queues_conforms() {
    let options = NamespaceOptions { digests: true, io_queues: 4, ..NamespaceOptions::default() };
    let summary =
        conformance("nvme/tcp, digests, four queues", &mut |geometry| nvme_tcp(geometry, &options).map(boxed));
    assert!(summary.passed > 60, "{} passed", summary.passed);
}

#[test]
fn a_raid5_volume_of_images_conforms() {
    let summary =
        conformance_of_conventional("raid5 of images", &mut |geometry| volume_of_images(geometry, RAID5).map(boxed));
    assert_eq!(summary.skipped, 0);
}

#[test]
fn a_raid1_volume_of_images_conforms() {
    let summary =
        conformance_of_conventional("raid1 of images", &mut |geometry| volume_of_images(geometry, RAID1).map(boxed));
    assert_eq!(summary.skipped, 0);
}
