//! Fuzzes `belljar_fuzz::risky_classify`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| belljar_fuzz::risky_classify::check(bytes));
