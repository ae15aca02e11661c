//! Fuzzes `belljar_fuzz::display_safe`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| belljar_fuzz::display_safe::check(bytes));
