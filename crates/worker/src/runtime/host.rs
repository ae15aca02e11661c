//! State that the native functions of the runtime share, and the connection to the host.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;

use rquickjs::{Object, Persistent, Value};

use belljar_wire::{self as wire, FromWorker, Stream};

use super::alive::KeepAlive;
use super::modules::Sources;
use super::strip::SourceMap;
use super::timers::Timers;

/// The state of the runtime that native functions share.
#[derive(Debug, Default)]
pub(super) struct Host {
    pub(super) alive: KeepAlive,
    pub(super) timers: RefCell<Timers>,
    pub(super) sources: RefCell<Sources>,
    /// The source maps of the program and of every imported module, by file name.
    pub(super) source_maps: RefCell<HashMap<String, SourceMap>>,
    /// The rejected promises without a handler, and their reasons.
    pub(super) rejected: RefCell<Vec<(PersistentValue, PersistentValue)>>,
    /// The JavaScript object that the prelude returned.
    pub(super) prelude: RefCell<Option<Persistent<Object<'static>>>>,
    /// The environment variables of the process, for `process.env`.
    pub(super) env: Vec<(String, String)>,
}

/// A JavaScript value that is stored outside the context.
pub(super) type PersistentValue = Persistent<Value<'static>>;

impl Host {
    pub(super) fn new(env: Vec<(String, String)>) -> Self {
        Self { env, ..Self::default() }
    }

    /// Sends a message of the worker to the host.
    pub(super) fn send(&self, message: &FromWorker) -> io::Result<()> {
        wire::write(&mut io::stdout().lock(), message)
    }

    /// Sends output of the program to the host, in several frames if it is long.
    pub(super) fn output(&self, stream: Stream, text: &str) -> io::Result<()> {
        const PART: usize = 1 << 20;
        let mut rest = text;
        while !rest.is_empty() {
            let (part, more) = rest.split_at(rest.floor_char_boundary(PART));
            self.send(&FromWorker::Output { stream, text: part.to_owned() })?;
            rest = more;
        }
        Ok(())
    }
}
