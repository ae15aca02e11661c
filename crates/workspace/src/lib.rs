//! Reads, shows, applies and discards the changes of a box in its workspace.
//!
//! A box with an overlay workspace leaves an upper layer. No change reaches the user's directory by
//! itself: [`seal`] reads the upper layer once into [`Changes`], [`unified`] shows them, an
//! [`ApplySession`] inspects the user's directory, [`plan_apply`] decides, [`ApplySession::apply`]
//! executes the plan, and [`discard`] deletes the layer.
//!
//! **Invariants:** files of a box are opened by descriptor, beneath their directory and without
//! following links. No program is started. Every directory walk and every read is bounded. No file
//! of the user is unlinked: a replaced file is moved to the trash of the run. Every operation can
//! be killed at any moment, and repeating it completes it.
#![forbid(unsafe_code)]

mod apply;
mod at;
mod base;
mod change;
mod choice;
mod clock;
mod compare;
mod content;
mod copy;
mod diff;
mod discard;
mod host;
mod layers;
mod links;
mod lossless;
mod meta;
mod overlay;
mod path;
mod plan;
mod renames;
mod seal;
mod transfer;
mod tree;
mod usage;
mod walk;

pub use apply::{
    ApplyError, ApplyOutcome, ApplySession, EntryStatus, OutcomeEntry, Recovered, Step, Trashed,
    trashed,
};
pub use change::{
    Base, Caution, Change, ChangeKind, Changes, LinkTarget, ManifestError, Risk, Side, TooLong,
    Unsupported,
};
pub use choice::{Choice, Pattern, Pick};
pub use clock::{file_clock, file_clock_after};
pub use compare::{Difference, compare};
pub use content::{BadHash, Content, ContentHash};
pub use copy::{Copied, CopyError, copy_tree, take_upper};
pub use diff::{
    Colour, DiffReport, DiffReportEntry, FileHunk, FileHunks, HunkError, HunkLine, LineKind,
    choose_hunks, hunks, report, stat, stat_with_lines, three_way, unified, write_unified,
};
pub use discard::{DiscardError, Discarded, LAYER_IMAGE, discard, empty_trash, remove_tree};
pub use host::{ObserveError, Observed};
pub use layers::{Layers, OpenError, RunPaths};
pub use links::leads_out;
pub use lossless::BadEscape;
pub use meta::{FileKind, Identity, Timestamp};
pub use path::{MAX_PATH, PathError, RelPath};
pub use plan::{ApplyPlan, Conflict, ConflictReason, Draft, LeftOut, plan_apply, unapplied};
pub use seal::{LoadError, SealError, SealLimits, prepare_restart, read_changes, seal};
pub use transfer::{PACKED_NAME, TransferError, Transferred, UnpackLimits, Unpacked, pack, unpack};
pub use usage::{Usage, UsageCap, usage};
