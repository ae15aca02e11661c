//! The processes that the engine starts: the embedding program itself, under another name.
//!
//! Every `main` of a program that embeds the engine first calls [`Role::parse`] with its own name, and
//! [`Role::run`] if that is a role.

use std::ffi::OsStr;
use std::sync::Arc;

use crate::clock::Clock;
use crate::error::EngineError;
use crate::host::HostEnv;
use crate::network::broker;
use crate::notice::Observer;
use crate::{cell, keeper, screen};

/// What a process of ours is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Broker,
    Screen,
    Cell,
    Keeper,
}

impl Role {
    /// The role that a program's first argument names, if it is one.
    pub fn parse(argv0: &OsStr) -> Option<Self> {
        let all = [
            (broker::ROLE, Self::Broker),
            (screen::ROLE, Self::Screen),
            (cell::ROLE, Self::Cell),
            (keeper::ROLE, Self::Keeper),
        ];
        all.into_iter().find(|(name, _)| argv0 == *name).map(|(_, role)| role)
    }

    /// Does the work of the role until it is over.
    pub fn run(
        self,
        host: HostEnv,
        clock: Clock,
        observer: Arc<dyn Observer>,
    ) -> Result<(), EngineError> {
        match self {
            Self::Broker => broker::role::main(clock),
            Self::Screen => screen::role::main(),
            Self::Cell => cell::role::main(host, clock, observer),
            Self::Keeper => keeper::role::main(host, clock, observer),
        }
    }
}
