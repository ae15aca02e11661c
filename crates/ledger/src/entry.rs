//! One event as the bytes that are hashed, chained and proved.

use std::fmt;
use std::str::FromStr;

use belljar_model::RunId;

use crate::bytes::{Cursor, put_str8};
use crate::digest::Digest;
use crate::field::{self, FieldError, Fields, Raw};

/// Who acted. Nothing inside a box is ever an actor: only observers on the host write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Actor {
    /// A person, or their script, at the command line.
    Operator,
    /// The process that supervises a box.
    Supervisor,
    /// The only way out of a box.
    Broker,
    /// What runs tasks and plans.
    Engine,
    /// What was brought in from another system's record.
    Importer,
}

/// When something was recorded. For people: order comes from places, never from clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since 1970 by the host's clock.
    pub time: u64,
    /// Nanoseconds since the host booted.
    pub uptime: u64,
    pub boot: [u8; 16],
}

/// One event, read whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: String,
    /// `None`: the ledger's own.
    pub run: Option<RunId>,
    pub sequence: u64,
    /// The hash of the run's event before this one.
    pub previous: Option<Digest>,
    pub actor: Actor,
    /// The index of the event that caused this one.
    pub cause: Option<u64>,
    pub moment: Moment,
    pub fields: Fields,
}

/// An event that still lies in its bytes; checked to be canonical.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryView<'a> {
    pub(crate) kind: &'a str,
    /// Sixteen characters, or none.
    pub(crate) run: &'a str,
    pub(crate) sequence: u64,
    pub(crate) previous: Digest,
    pub(crate) actor: Actor,
    pub(crate) cause: Option<u64>,
    pub(crate) moment: Moment,
    fields: Cursor<'a>,
}

/// Why bytes are not an event of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("its version is {0}, and this Belljar knows only 1")]
    Version(u8),
    #[error("it is cut short")]
    Short,
    #[error("it is longer than 65,535 bytes")]
    Long,
    #[error("its kind is not of a-z, 0-9, `.` and `_`")]
    Kind,
    #[error("its run is not a run id")]
    Run,
    #[error("its first event has a previous hash, or a later one has none")]
    Previous,
    #[error("its actor is not known")]
    Actor,
    #[error("the byte before its cause is neither 0 nor 1")]
    Cause,
    #[error(transparent)]
    Fields(#[from] FieldError),
    #[error("bytes are left over behind its last field")]
    LeftOver,
}

/// As long as an entry of a C2SP tile bundle can be.
pub const MAX_ENTRY: usize = u16::MAX as usize;

const VERSION: u8 = 1;
const NONE: [u8; Digest::LENGTH] = [0; Digest::LENGTH];

impl Entry {
    pub fn encode(&self) -> Result<Vec<u8>, EntryError> {
        let mut out = Vec::with_capacity(256);
        self.put(&mut out).ok_or(EntryError::Long)?;
        if out.len() > MAX_ENTRY {
            return Err(EntryError::Long);
        }
        Ok(out)
    }

    /// `None` when something is longer than the format can say.
    fn put(&self, out: &mut Vec<u8>) -> Option<()> {
        out.push(VERSION);
        put_str8(out, &self.kind)?;
        put_str8(out, &self.run.map(|run| run.to_string()).unwrap_or_default())?;
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(self.previous.map_or(NONE, |hash| *hash.as_bytes()).as_slice());
        put_str8(out, self.actor.name())?;
        match self.cause {
            Some(index) => {
                out.push(1);
                out.extend_from_slice(&index.to_be_bytes());
            }
            None => out.push(0),
        }
        out.extend_from_slice(&self.moment.time.to_be_bytes());
        out.extend_from_slice(&self.moment.uptime.to_be_bytes());
        out.extend_from_slice(&self.moment.boot);
        self.fields.encode(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, EntryError> {
        let view = EntryView::parse(bytes)?;
        let run = (!view.run.is_empty()).then(|| view.run.parse()).transpose();
        Ok(Self {
            kind: view.kind.to_owned(),
            run: run.map_err(|_| EntryError::Run)?,
            sequence: view.sequence,
            previous: (view.sequence > 0).then_some(view.previous),
            actor: view.actor,
            cause: view.cause,
            moment: view.moment,
            fields: Fields::decode(&mut { view.fields })?,
        })
    }
}

impl<'a> EntryView<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, EntryError> {
        if bytes.len() > MAX_ENTRY {
            return Err(EntryError::Long);
        }
        let mut cursor = Cursor::new(bytes);
        match cursor.u8().ok_or(EntryError::Short)? {
            VERSION => {}
            other => return Err(EntryError::Version(other)),
        }
        let kind = cursor.str8().ok_or(EntryError::Short)?;
        let run = cursor.str8().ok_or(EntryError::Short)?;
        let sequence = cursor.u64().ok_or(EntryError::Short)?;
        let previous = cursor.array().ok_or(EntryError::Short)?;
        let actor = cursor.str8().ok_or(EntryError::Short)?;
        let cause = match cursor.u8().ok_or(EntryError::Short)? {
            0 => None,
            1 => Some(cursor.u64().ok_or(EntryError::Short)?),
            _ => return Err(EntryError::Cause),
        };
        let time = cursor.u64().ok_or(EntryError::Short)?;
        let uptime = cursor.u64().ok_or(EntryError::Short)?;
        let boot = cursor.array().ok_or(EntryError::Short)?;
        let fields = cursor;
        field::walk(&mut cursor, |_, _| {})?;
        if !cursor.is_empty() {
            return Err(EntryError::LeftOver);
        }
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.');
        if kind.is_empty() || !kind.bytes().all(plain) {
            return Err(EntryError::Kind);
        }
        if !run.is_empty() && RunId::from_str(run).is_err() {
            return Err(EntryError::Run);
        }
        if (sequence == 0) != (previous == NONE) {
            return Err(EntryError::Previous);
        }
        Ok(Self {
            kind,
            run,
            sequence,
            previous: Digest::new(previous),
            actor: actor.parse()?,
            cause,
            moment: Moment { time, uptime, boot },
            fields,
        })
    }

    /// Shows each field. The fields were checked when the event was parsed.
    pub(crate) fn walk(&self, show: impl FnMut(&'a str, Raw<'a>)) {
        let checked = field::walk(&mut { self.fields }, show);
        debug_assert!(checked.is_ok(), "fields are checked by `parse`");
    }
}

impl Actor {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Supervisor => "supervisor",
            Self::Broker => "broker",
            Self::Engine => "engine",
            Self::Importer => "importer",
        }
    }
}

impl FromStr for Actor {
    type Err = EntryError;

    fn from_str(text: &str) -> Result<Self, EntryError> {
        let all = [Self::Operator, Self::Supervisor, Self::Broker, Self::Engine, Self::Importer];
        all.into_iter().find(|actor| actor.name() == text).ok_or(EntryError::Actor)
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
