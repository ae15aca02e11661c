//! The processes that the engine starts: the embedding program itself, under another name.
//!
//! Every `main` of a program that embeds the engine first calls [`Role::parse`] with its own name, and
//! [`Role::run`] if that is a role.

use std::ffi::OsStr;
use std::sync::Arc;

use tracing::field::Empty;
use tracing::{Span, error_span};

use crate::clock::Clock;
use crate::error::EngineError;
use crate::host::HostEnv;
use crate::logging::RUN_VARIABLE;
use crate::network::broker;
use crate::notice::Observer;
use crate::{screen, supervisor};

/// What a process of ours is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Broker,
    Screen,
    Supervisor,
}

impl Role {
    /// The role that a program's first argument names, if it is one.
    pub fn parse(argv0: &OsStr) -> Option<Self> {
        let all = [
            (broker::ROLE, Self::Broker),
            (screen::ROLE, Self::Screen),
            (supervisor::ROLE, Self::Supervisor),
        ];
        all.into_iter().find(|(name, _)| argv0 == *name).map(|(_, role)| role)
    }

    /// The role in a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Screen => "screen",
            Self::Supervisor => "supervisor",
        }
    }

    /// Does the work of the role until it is over.
    pub fn run(
        self,
        host: HostEnv,
        clock: Clock,
        observer: Arc<dyn Observer>,
    ) -> Result<(), EngineError> {
        let span = self.span(&host);
        let _entered = span.enter();
        tracing::info!("role started");
        let done = self.work(host, clock, observer);
        match &done {
            Ok(()) => tracing::info!("role ended"),
            Err(error) => tracing::warn!(kind = ?error.kind(), "role failed"),
        }
        done
    }

    /// What every event of this process has: the run where the process serves one from its start.
    /// The others learn later what they are for.
    fn span(self, host: &HostEnv) -> Span {
        let run = host.variable(RUN_VARIABLE).and_then(OsStr::to_str);
        match self {
            Self::Broker => error_span!("broker", run),
            Self::Screen => error_span!("screen", run),
            Self::Supervisor => error_span!("supervisor", "box" = Empty),
        }
    }

    fn work(
        self,
        host: HostEnv,
        clock: Clock,
        observer: Arc<dyn Observer>,
    ) -> Result<(), EngineError> {
        match self {
            Self::Broker => broker::role::main(clock),
            Self::Screen => screen::role::main(),
            Self::Supervisor => supervisor::role::main(host, clock, observer),
        }
    }
}
