//! Fuzzes `belljar_fuzz::dns_query`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| belljar_fuzz::dns_query::check(bytes));
