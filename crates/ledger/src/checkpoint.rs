//! What a log says of itself at one moment: the checkpoint of <https://c2sp.org/tlog-checkpoint>.
//!
//! **Invariant:** each checkpoint has one text, and only that text parses to it; so a signature of
//! the text is a signature of the checkpoint.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::digest::Digest;
use crate::note::{Note, NoteError, SigningKey, VerifyingKey};

/// The size and the root of a log, and which log it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    origin: String,
    size: u64,
    root: Digest,
    extensions: Vec<String>,
}

/// Why a text is not a checkpoint of the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    #[error("the checkpoint is not properly signed")]
    Note(#[source] NoteError),
    #[error("the checkpoint is not lines of origin, size and root, each with a newline")]
    Lines,
    #[error("a line of the checkpoint is empty or has a control character")]
    Line,
    #[error("`{text}` is not the size of a log; it is a number without leading zeros")]
    Size { text: String },
    #[error("`{text}` is not the root of a log; it is base64 of 32 bytes")]
    Root { text: String },
    #[error("the checkpoint is of `{origin}`, and that log did not sign it")]
    Origin { origin: String },
}

impl Checkpoint {
    pub fn new(
        origin: impl Into<String>,
        size: u64,
        root: Digest,
    ) -> Result<Self, CheckpointError> {
        let origin = origin.into();
        check_line(&origin)?;
        Ok(Self { origin, size, root, extensions: Vec::new() })
    }

    /// This checkpoint with these further lines, which nobody but the caller understands.
    pub fn with_extensions(self, extensions: Vec<String>) -> Result<Self, CheckpointError> {
        extensions.iter().try_for_each(|line| check_line(line))?;
        Ok(Self { extensions, ..self })
    }

    /// Which log this is of.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// How many entries the log had.
    pub const fn size(&self) -> u64 {
        self.size
    }

    pub const fn root(&self) -> Digest {
        self.root
    }

    pub fn extensions(&self) -> &[String] {
        &self.extensions
    }

    /// The text of the note, with the newline at its end and without signatures.
    pub fn to_text(&self) -> String {
        let root = STANDARD.encode(self.root.as_bytes());
        let mut text = format!("{}\n{}\n{root}\n", self.origin, self.size);
        for line in &self.extensions {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// Reads the text of a note. Who wrote it is not looked at: that is what [`open`] is for.
    pub fn parse(text: &str) -> Result<Self, CheckpointError> {
        let mut lines = text.strip_suffix('\n').ok_or(CheckpointError::Lines)?.split('\n');
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next())
        else {
            return Err(CheckpointError::Lines);
        };
        let size =
            parse_size(size).ok_or_else(|| CheckpointError::Size { text: size.to_owned() })?;
        let root =
            parse_root(root).ok_or_else(|| CheckpointError::Root { text: root.to_owned() })?;
        Self::new(origin, size, root)?.with_extensions(lines.map(str::to_owned).collect())
    }

    /// The signed note: the text and one line for each key, in this order.
    pub fn sign(&self, keys: &[&SigningKey]) -> String {
        let text = self.to_text();
        let lines: String = keys.iter().map(|key| key.sign(&text)).collect();
        format!("{text}\n{lines}")
    }
}

/// Reads a signed checkpoint: one of `keys` must have signed it, under the name of its log.
///
/// Further signatures, of witnesses say, may be there. As in every note, one that claims to be by
/// one of `keys` and is not makes all of it bad.
pub fn open<'k>(
    text: &str,
    keys: &'k [VerifyingKey],
) -> Result<(Checkpoint, &'k VerifyingKey), CheckpointError> {
    let note = Note::parse(text).map_err(CheckpointError::Note)?;
    let signers = note.verified(keys).map_err(CheckpointError::Note)?;
    if signers.is_empty() {
        return Err(CheckpointError::Note(NoteError::NoKnownKey));
    }
    let checkpoint = Checkpoint::parse(note.text())?;
    match signers.into_iter().find(|key| key.name() == checkpoint.origin) {
        Some(key) => Ok((checkpoint, key)),
        None => Err(CheckpointError::Origin { origin: checkpoint.origin }),
    }
}

fn check_line(line: &str) -> Result<(), CheckpointError> {
    let legal = !line.is_empty() && !line.contains(char::is_control);
    if legal { Ok(()) } else { Err(CheckpointError::Line) }
}

fn parse_size(text: &str) -> Option<u64> {
    text.parse::<u64>().ok().filter(|size| size.to_string() == text)
}

fn parse_root(text: &str) -> Option<Digest> {
    let bytes = STANDARD.decode(text).ok()?;
    Some(Digest::new(bytes.try_into().ok()?))
}
