//! One file per command.

pub(crate) mod agent;
pub(crate) mod api;
pub(crate) mod apply;
pub(crate) mod approve;
pub(crate) mod boxes;
pub(crate) mod bridge;
pub(crate) mod code;
pub(crate) mod completions;
pub(crate) mod diff;
pub(crate) mod discard;
pub(crate) mod doctor;
pub(crate) mod gc;
pub(crate) mod ledger;
pub(crate) mod lives;
pub(crate) mod mcp;
pub(crate) mod net;
pub(crate) mod network;
pub(crate) mod policy;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod secret;
pub(crate) mod skill;
pub(crate) mod template;
pub(crate) mod up;
