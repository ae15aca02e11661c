//! Fuzzes `belljar_fuzz::request_path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| belljar_fuzz::request_path::check(bytes));
