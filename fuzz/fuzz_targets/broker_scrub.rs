//! Fuzzes `belljar_fuzz::broker_scrub`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| belljar_fuzz::broker_scrub::check(bytes));
