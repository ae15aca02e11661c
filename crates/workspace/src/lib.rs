//! What a box changed in its workspace: sealed, shown, taken over or thrown away.
//!
//! A box with an overlay workspace leaves an upper layer; nothing of it reaches the user's directory
//! by itself. [`seal`] reads it once into [`Changes`], [`unified`] shows them, a [`Takeover`] looks at
//! the user's directory, [`plan_apply`] decides, [`Takeover::apply`] does what was decided, and
//! [`discard`] throws the rest away.
//!
//! **Invariants:** everything that a box wrote is reached by descriptor, beneath its directory and
//! through no link; no program is ever started; every walk and every read has an end; nothing that
//! the user had is unlinked, it is moved to the run's trash; and whatever is killed at whatever
//! moment, doing it again finishes it.
#![forbid(unsafe_code)]

mod apply;
mod at;
mod base;
mod change;
mod choice;
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
mod tree;
mod usage;
mod walk;

pub use apply::{
    ApplyError, Outcome, OutcomeEntry, Recovered, Step, Taken, Takeover, Trashed, trashed,
};
pub use change::{
    Base, Caution, Change, Changes, Kind, ManifestError, Risk, Side, Target, TooLong, Unsupported,
};
pub use choice::{Choice, Pattern, Pick};
pub use compare::{Difference, compare};
pub use content::{BadHash, Content, ContentHash};
pub use copy::{Copied, CopyError, copy_tree};
pub use diff::{
    Colour, Report, ReportEntry, report, stat, stat_with_lines, three_way, unified, write_unified,
};
pub use discard::{DiscardError, Discarded, discard, empty_trash, remove_tree};
pub use host::{ObserveError, Observed};
pub use layers::{Layers, OpenError, Places};
pub use links::leads_out;
pub use lossless::BadEscape;
pub use meta::{FileKind, Identity, Moment};
pub use path::{MAX_PATH, PathError, RelPath};
pub use plan::{ApplyPlan, Conflict, ConflictReason, Draft, LeftOut, plan_apply, unapplied};
pub use seal::{Caps, LoadError, SealError, go_on, look, seal};
pub use usage::{Usage, UsageCap, usage};

/// The clock by which the kernel stamps files that change: what is stamped before it was read is older.
pub fn file_clock() -> belljar_model::Clock {
    let coarse = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    belljar_model::Clock { secs: coarse.tv_sec, nanos: u32::try_from(coarse.tv_nsec).unwrap_or(0) }
}
