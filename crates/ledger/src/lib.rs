//! The ledger: an append-only, hash-chained log of events with proofs, redaction and verification.
//!
//! The format on disk is described in `docs/ledger-format.md`.
#![forbid(unsafe_code)]

mod anchor;
mod bodies;
mod body;
mod bytes;
mod checkpoint;
mod digest;
mod entry;
mod event;
mod field;
mod frame;
mod head;
mod index;
mod ledger;
mod log;
mod merkle;
mod note;
mod paths;
mod random;
mod reader;
mod receipt;
mod salts;
mod tile;
mod verify;

pub use anchor::{AnchorError, public_keys};
pub use bodies::{BodyError, Usage};
pub use body::{Body, Committing, Salt};
pub use checkpoint::{Checkpoint, CheckpointError, open as open_checkpoint};
pub use digest::{Digest, DigestError};
pub use entry::{Actor, Entry, EntryError, MAX_ENTRY, Moment};
pub use event::*;
pub use field::{FieldError, Fields, Value};
pub use frame::{BatchError, HeaderError, LedgerId};
pub use index::{BodyReference, IndexError, Query, ReadError, Row, RunHead};
pub use ledger::{
    Draft, Dropped, KeepError, Ledger, Mended, OpenError, Receipt, RecordError, Repair, mend,
};
pub use log::LogError;
pub use merkle::{
    Frontier, Hashes, ProofError, consistency, empty_root, inclusion, root_of, verify_consistency,
    verify_inclusion,
};
pub use note::{KeyError, MAX_NOTE, Note, NoteError, Signature, SigningKey, VerifyingKey};
pub use paths::LedgerPaths;
pub use reader::{DiskUsage, Inclusion, Reader, ReaderError};
pub use receipt::{
    Disclose, Disclosure, MAX_RECEIPT, PlanReceipt, ProvedTask, ReceiptError, RunReceipt, Verified,
    VerifiedPlan, is_plan_receipt, verify_plan_receipt, verify_receipt,
};
pub use tile::{TileError, TilePath, Tiles, bundle, entries_path, parse_path, tile_path, unbundle};
pub use verify::{
    BodyCounts, Code, Finding, Location, Severity, VerifyError, VerifyOptions, VerifyReport, verify,
};
