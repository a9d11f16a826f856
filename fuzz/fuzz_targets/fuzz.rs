//! All fuzz targets in one program, so that it is linked once: `ZONDA_FUZZ_TARGET` selects the
//! target.
#![no_main]

use std::sync::OnceLock;

/// The target of this run.
static NAME: OnceLock<String> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: {
        let name = std::env::var("ZONDA_FUZZ_TARGET").unwrap_or_default();
        if !zonda_fuzz_bodies::BODIES.iter().any(|body| body.name == name) {
            eprintln!(
                "unknown fuzz target \"{name}\" in ZONDA_FUZZ_TARGET: see fuzz/targets (scripts/fuzz sets the variable)"
            );
            std::process::exit(2);
        }
        NAME.get_or_init(|| name);
    },
    |input: &[u8]| {
        zonda_fuzz_bodies::run(NAME.get().expect("init has run"), input);
    }
);
