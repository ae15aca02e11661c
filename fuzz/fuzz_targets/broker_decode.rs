//! Fuzzes `belljar_fuzz::broker_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| belljar_fuzz::broker_decode::check(bytes));
