//! Fuzzes `belljar_fuzz::tls_hello`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| belljar_fuzz::tls_hello::check(bytes));
