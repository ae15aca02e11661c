//! The data types of Belljar: ids, sizes, layers, templates, `belljar.toml`, risky files and results.
//!
//! This crate does no I/O and reads neither the clock nor the environment. It parses text into checked
//! values once; all other crates work on these values.
#![forbid(unsafe_code)]

pub mod agent;
pub mod answer;
pub mod boxes;
pub mod caller;
mod choice;
pub mod code;
mod config;
mod cpus;
pub mod display;
mod env;
pub mod glob;
mod id;
mod layer;
mod limits;
mod mount;
pub mod net;
pub mod oidc;
pub mod outcome;
pub mod permission;
pub mod plain;
pub mod plan;
pub mod policy_test;
mod purpose;
pub mod quota;
mod record;
mod repo;
pub mod risky;
pub mod role;
pub mod schedule;
pub mod serve;
mod size;
pub mod spec;
mod template;
pub mod tenant;
mod text;
mod time;
mod unicode;

pub use caller::Caller;
pub use choice::{Access, AccessError, Mode, ModeError, Net, NetError, Record, RecordError};
pub use config::{
    AllowList, Config, ConfigError, Fault, LoosensTemplate, OperatorKey, PolicyError, Scope,
    TENANT_SECTIONS,
};
pub use cpus::{Cpus, CpusError};
pub use env::{EnvError, EnvVar};
pub use id::{NameError, RunId, RunIdError, RunName};
pub use layer::{Layer, LayerError, Requirement, RequirementError};
pub use limits::{LimitError, Limits};
pub use mount::{Mount, MountError, anchor};
pub use outcome::{CpuTime, InForce, LayerState, OutputBytes, Reason, RunResult};
pub use purpose::{Purpose, PurposeError};
pub use record::{Clock, Review, RunRecord, RunState, WorkspaceAt};
pub use repo::{Identity, IdentityError, RepoAt};
pub use size::{ByteSize, SizeError};
pub use template::{DEFAULT_TEMPLATE, Overrides, Template, TemplateError};
pub use time::{AskTimeout, AskTimeoutError, Timeout, TimeoutError};
