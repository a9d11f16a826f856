//! The papers whose measurements are reproduced, and further sets of experiments.

/// A publication, or a set of experiments of zonda's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paper {
    /// Key used in experiments.
    pub key: &'static str,
    /// Short name.
    pub name: &'static str,
    /// Authors, title, venue and year.
    pub reference: &'static str,
    /// URL.
    pub link: &'static str,
    /// The drives measured, in a sentence or two.
    pub about: &'static str,
    /// Whether it was published. Results of other sets are compared with bounds and formulas that
    /// their experiments name.
    pub is_published: bool,
}

/// All of them, in the order of the page.
pub const PAPERS: [Paper; 9] = [
    Paper {
        key: "ezns",
        name: "eZNS",
        reference: "J. Min, C. Zhao, M. Liu, A. Krishnamurthy: eZNS: Elastic Zoned Namespace for Enhanced Performance \
                    Isolation and Device Utilization. ACM Transactions on Storage 20(3), 2024",
        link: "https://doi.org/10.1145/3653716",
        about: "A drive with 40,704 zones of 96 MiB, each on one of 128 dies, and a conventional drive of the same hardware.",
        is_published: true,
    },
    Paper {
        key: "study",
        name: "ZNS study",
        reference: "N. Tehrany, A. Trivedi: Understanding NVMe Zoned Namespace (ZNS) Flash SSD Storage Devices. \
                    arXiv:2206.01547, 2022",
        link: "https://arxiv.org/abs/2206.01547",
        about: "A Western Digital ZN540, a Samsung flash drive and an Optane drive.",
        is_published: true,
    },
    Paper {
        key: "confzns",
        name: "ConfZNS++",
        reference: "K. Doekemeijer, D. Maisenbacher, Z. Ren, N. Tehrany, M. Bj\u{f8}rling, A. Trivedi: Exploring I/O Management \
                    Performance in ZNS with ConfZNS++. SYSTOR 2024",
        link: "https://doi.org/10.1145/3688351.3689160",
        about: "A Western Digital ZN540: what reads, writes, appends, finishes and resets do to each other.",
        is_published: true,
    },
    Paper {
        key: "zapraid",
        name: "ZapRAID",
        reference: "Q. Wang, P. P. C. Lee: ZapRAID: Toward High-Performance RAID for ZNS SSDs via Zone Append. APSys 2023",
        link: "https://doi.org/10.1145/3609510.3609810",
        about: "A Western Digital ZN540 with 4 KiB blocks and 64 bytes of metadata per block.",
        is_published: true,
    },
    Paper {
        key: "silent",
        name: "SilentZNS",
        reference: "T. Bagashvili, T. I. Papon, S. Sarkar, M. Athanassoulis: Eliminating the Hidden Cost of Zone Management in \
                    ZNS SSDs (SilentZNS). PVLDB",
        link: "",
        about: "Two emulated drives: one after the ZN540, one with 16 LUNs for studies of zone geometry.",
        is_published: true,
    },
    Paper {
        key: "bae",
        name: "Bae et al.",
        reference: "H. Bae, J. Kim, M. Kwon, M. Jung: What You Can't Forget: Exploiting Parallelism for Zoned Namespaces. \
                    HotStorage 2022",
        link: "https://doi.org/10.1145/3538643.3539744",
        about: "Two drives of the same controller and flash: zones of 96 MB on one die, and zones of 2.18 GB over all dies.",
        is_published: true,
    },
    Paper {
        key: "volumes",
        name: "Volumes",
        reference: "Experiments of zonda's own with redundant volumes, which go beyond the published ones",
        link: "",
        about: "A Western Digital ZN540 as ZapRAID measured it, four of them in most cases, and the same with small zones.",
        is_published: false,
    },
    Paper {
        key: "conventional",
        name: "Conventional drives",
        reference: "Experiments of zonda's own with conventional drives, compared with formulas of garbage collection",
        link: "",
        about: "The conventional drive of the eZNS paper with two dies, so that it can be written over many times.",
        is_published: false,
    },
    Paper {
        key: "pools",
        name: "Pools",
        reference: "Experiments of zonda's own with namespaces of many tenants on one drive",
        link: "",
        about: "The drive of the eZNS paper, whose zones are on one die each, and a Western Digital ZN540, whose zones are on all.",
        is_published: false,
    },
];
