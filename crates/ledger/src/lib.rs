//! The record that proves itself: append, chain, prove, redact, verify.
#![forbid(unsafe_code)]

mod digest;

pub use digest::{Digest, DigestError};
