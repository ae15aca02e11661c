//! Fuzzes `belljar_fuzz::config_toml`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| belljar_fuzz::config_toml::check(bytes));
