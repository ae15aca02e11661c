//! The record that proves itself: append, chain, prove, redact, verify.
//!
//! The format is that of `docs/ledger-format.md`.
#![forbid(unsafe_code)]

mod body;
mod bytes;
mod digest;
mod entry;
mod event;
mod field;
mod frame;
mod log;
mod places;
mod random;
mod salts;

pub use body::{Body, Committing, Salt};
pub use digest::{Digest, DigestError};
pub use entry::{Actor, Entry, EntryError, MAX_ENTRY, Moment};
pub use event::*;
pub use field::{FieldError, Fields, Value};
pub use frame::{BatchError, HeaderError, LedgerId};
pub use log::LogError;
pub use places::Places;
