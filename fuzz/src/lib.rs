//! The checks of the fuzz targets. A check panics if an input violates a required property.
//!
//! The checks do not depend on libFuzzer, so that `crates/broker/tests/seeds.rs` can replay the seeds with
//! the toolchain of the project. That test includes this file as a module, so the modules here use `super`
//! instead of `crate`.

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

/// The name of a fuzz target and its check.
pub type Check = (&'static str, fn(&[u8]));

/// The checks of all fuzz targets.
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

/// Returns the longest prefix of the input that is valid UTF-8.
fn text(bytes: &[u8]) -> &str {
    let length = match std::str::from_utf8(bytes) {
        Ok(text) => text.len(),
        Err(error) => error.valid_up_to(),
    };
    std::str::from_utf8(&bytes[..length]).expect("the prefix is valid UTF-8")
}
