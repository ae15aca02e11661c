//! The roles of the processes that the engine starts: broker, screen, supervisor and driver.
//!
//! The engine starts the embedding program itself, with the name of a role as `argv[0]`. The `main` of
//! the embedding program first calls [`Role::parse`] with `argv[0]`, and [`Role::run`] if it is a role.

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
use crate::runs::driver;
use crate::{screen, supervisor};

/// The role of a process that the engine starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Broker,
    Screen,
    Supervisor,
    /// The process that carries out the runs of plans.
    Driver,
}

impl Role {
    /// Returns the role that `argv[0]` names, or `None` if `argv[0]` is not the name of a role.
    pub fn parse(argv0: &OsStr) -> Option<Self> {
        let all = [
            (broker::ROLE, Self::Broker),
            (screen::ROLE, Self::Screen),
            (supervisor::ROLE, Self::Supervisor),
            (driver::ROLE, Self::Driver),
        ];
        all.into_iter().find(|(name, _)| argv0 == *name).map(|(_, role)| role)
    }

    /// Returns the name of the role: `broker`, `screen`, `supervisor` or `driver`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Screen => "screen",
            Self::Supervisor => "supervisor",
            Self::Driver => "driver",
        }
    }

    /// Runs the process of this role. Returns when the process should exit.
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

    /// Creates the span of all log events of this process.
    ///
    /// A broker or screen knows its run at the start. A supervisor adds the name of its box later.
    fn span(self, host: &HostEnv) -> Span {
        let run = host.variable(RUN_VARIABLE).and_then(OsStr::to_str);
        match self {
            Self::Broker => error_span!("broker", run),
            Self::Screen => error_span!("screen", run),
            Self::Supervisor => error_span!("supervisor", "box" = Empty),
            Self::Driver => error_span!("driver"),
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
            Self::Driver => driver::main(host, clock, observer),
        }
    }
}
