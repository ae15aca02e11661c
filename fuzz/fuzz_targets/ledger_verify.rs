//! Fuzzes `belljar_fuzz::ledger_verify`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| belljar_fuzz::ledger_verify::check(bytes));
