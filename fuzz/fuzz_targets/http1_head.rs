//! Fuzzes `belljar_fuzz::http1_head`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| belljar_fuzz::http1_head::check(bytes));
