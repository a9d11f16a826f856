//! Devices with real I/O: files on a ring, and images behind NVMe/TCP.

use crate::support::real::{Live, file_backed, nvme_tcp};
use zonda_conformance::{TestBackend, conformance};
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
