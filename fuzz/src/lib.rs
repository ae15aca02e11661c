//! What must hold for every input of each fuzz target. A check panics when that does not hold.
//!
//! Apart from libFuzzer, so that `crates/broker/tests/seeds.rs` replays the seeds with the toolchain of
//! the project: that test includes this file. So modules here name each other by `super`.

#![forbid(unsafe_code)]

pub mod broker_decode;
pub mod broker_scrub;
pub mod config_toml;
pub mod display_safe;
pub mod dns_query;
pub mod http1_head;
pub mod ledger_receipt;
pub mod ledger_verify;
pub mod request_path;
pub mod risky_classify;
pub mod tls_hello;

/// A check, by the name of its target.
pub type Check = (&'static str, fn(&[u8]));

/// Every check.
pub const CHECKS: [Check; 11] = [
    ("broker_decode", broker_decode::check),
    ("broker_scrub", broker_scrub::check),
    ("config_toml", config_toml::check),
    ("display_safe", display_safe::check),
    ("dns_query", dns_query::check),
    ("http1_head", http1_head::check),
    ("ledger_receipt", ledger_receipt::check),
    ("ledger_verify", ledger_verify::check),
    ("request_path", request_path::check),
    ("risky_classify", risky_classify::check),
    ("tls_hello", tls_hello::check),
];

/// The beginning of the input that is text.
fn text(bytes: &[u8]) -> &str {
    let length = match std::str::from_utf8(bytes) {
        Ok(text) => text.len(),
        Err(error) => error.valid_up_to(),
    };
    std::str::from_utf8(&bytes[..length]).expect("text up to there")
}
