#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| zonda_fuzz_bodies::run("volume", input));
