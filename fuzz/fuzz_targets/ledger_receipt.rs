//! Fuzzes `belljar_fuzz::ledger_receipt`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| belljar_fuzz::ledger_receipt::check(bytes));
