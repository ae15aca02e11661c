//! A signed summary of a log at one size: the checkpoint of <https://c2sp.org/tlog-checkpoint>.
//!
//! **Invariant:** each checkpoint has exactly one text, so a signature of the text is a signature
//! of the checkpoint.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::digest::Digest;
use crate::note::{Note, NoteError, SigningKey, VerifyingKey};

/// The origin, size and root hash of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    origin: String,
    size: u64,
    root: Digest,
    extensions: Vec<String>,
}

/// Why a text is not a valid checkpoint of the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    #[error("the checkpoint has no valid signature")]
    Note(#[source] NoteError),
    #[error("the checkpoint does not consist of lines for origin, size and root")]
    Lines,
    #[error("a line of the checkpoint is empty or has a control character")]
    Line,
    #[error("`{text}` is not the size of a log; use a number without leading zeros")]
    Size { text: String },
    #[error("`{text}` is not the root of a log; use 32 bytes in base64")]
    Root { text: String },
    #[error("the checkpoint of `{origin}` is not signed by that log")]
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

    /// Returns the checkpoint with additional lines, which only the caller interprets.
    pub fn with_extensions(self, extensions: Vec<String>) -> Result<Self, CheckpointError> {
        extensions.iter().try_for_each(|line| check_line(line))?;
        Ok(Self { extensions, ..self })
    }

    /// Returns the origin, which is the unique name of the log.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the number of entries of the log.
    pub const fn size(&self) -> u64 {
        self.size
    }

    pub const fn root(&self) -> Digest {
        self.root
    }

    pub fn extensions(&self) -> &[String] {
        &self.extensions
    }

    /// Returns the text of the note, with its final newline and without signatures.
    pub fn to_text(&self) -> String {
        let root = STANDARD.encode(self.root.as_bytes());
        let mut text = format!("{}\n{}\n{root}\n", self.origin, self.size);
        for line in &self.extensions {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// Parses the text of a note without checking signatures; [`open`] checks them.
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

    /// Returns the signed note: the text and one signature line for each key, in this order.
    pub fn sign(&self, keys: &[&SigningKey]) -> String {
        let text = self.to_text();
        let lines: String = keys.iter().map(|key| key.sign(&text)).collect();
        format!("{text}\n{lines}")
    }
}

/// Parses a signed checkpoint, which one of `keys` must have signed under the name of its log.
///
/// Other signatures, for example of witnesses, are allowed. As in every note, an invalid signature
/// in the name of one of `keys` makes the whole note invalid.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // The example of https://c2sp.org/tlog-checkpoint; its key is not published.
    const SOFA: &str = "example.com/behind-the-sofa\n20852163\n\
        CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n";
    // The checkpoint of the Go checksum database of 2024-09-23, and its key.
    const GO: &str = "go.sum database tree\n30055305\nmXfgRcJ0bG0j3CPdKwgGWtUzBUbX67saZGRmFuJGGsM=\n\n\
        — sum.golang.org Az3grpgEild5qw7+5dtV13Kf1C2Xurm8q4fhdxvcsDHnqNTaxL2AFjBY+2TyGKevucFcAAlWFJJ\
        Yle3EJlDCrQ+y3A8=\n";
    const GO_KEY: &str = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8";

    fn secret(name: &str, seed: u8) -> SigningKey {
        SigningKey::generate(name, [seed; 32]).unwrap()
    }

    fn sofa() -> Checkpoint {
        Checkpoint::parse(SOFA).unwrap()
    }

    #[test]
    fn checkpoint_of_the_specification_parses_and_prints() {
        let checkpoint = sofa();
        assert_eq!(checkpoint.origin(), "example.com/behind-the-sofa");
        assert_eq!(checkpoint.size(), 20_852_163);
        let root = "0ac5186a91863e8e1d90c808014aa89bf5da8e3ee1d9f07630f0378f68f1ab62";
        assert_eq!(checkpoint.root().to_string(), root);
        assert!(checkpoint.extensions().is_empty());
        assert_eq!(checkpoint.to_text(), SOFA);
    }

    #[test]
    fn checkpoint_of_the_go_log_is_refused_because_its_key_has_another_name() {
        let keys = [GO_KEY.parse().unwrap()];
        assert_eq!(Note::parse(GO).unwrap().verified_by(&keys), Ok(&keys[0]));
        let origin = "go.sum database tree".to_owned();
        assert_eq!(open(GO, &keys), Err(CheckpointError::Origin { origin }));
        let changed = GO.replace("30055305", "30055306");
        let error = NoteError::BadSignature { name: "sum.golang.org".to_owned() };
        assert_eq!(open(&changed, &keys), Err(CheckpointError::Note(error)));
    }

    #[test]
    fn open_accepts_only_a_signature_of_the_log_itself() {
        let (log, witness) = (secret("example.com/behind-the-sofa", 1), secret("witness", 2));
        let keys = [witness.verifying(), log.verifying()];
        let signed = sofa().sign(&[&witness, &log]);
        assert_eq!(open(&signed, &keys), Ok((sofa(), &keys[1])));
        assert_eq!(open(&signed, &keys[1..]), Ok((sofa(), &keys[1])));
        let origin = CheckpointError::Origin { origin: sofa().origin };
        assert_eq!(open(&sofa().sign(&[&witness]), &keys), Err(origin.clone()));
        assert_eq!(open(&signed, &keys[..1]), Err(origin));
        let unknown = Err(CheckpointError::Note(NoteError::NoKnownKey));
        assert_eq!(open(&signed, &[]), unknown);
        // A key of the same name that is not trusted.
        let impostor = secret("example.com/behind-the-sofa", 3);
        assert_eq!(open(&sofa().sign(&[&impostor]), &keys), unknown);
        let unsigned = open(&sofa().sign(&[]), &keys);
        assert_eq!(unsigned, Err(CheckpointError::Note(NoteError::Malformed)));
    }

    #[test]
    fn parse_accepts_only_the_canonical_text() {
        let root = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=";
        let size = |text: &str| CheckpointError::Size { text: text.to_owned() };
        let bad_root = |text: &str| CheckpointError::Root { text: text.to_owned() };
        for (text, expect) in [
            (format!("o\n0\n{root}\n"), None),
            (format!("o\n18446744073709551615\n{root}\n"), None),
            (format!("an origin with spaces + plus\n1\n{root}\nmore\nand more\n"), None),
            (String::new(), Some(CheckpointError::Lines)),
            ("\n".to_owned(), Some(CheckpointError::Lines)),
            ("o\n1\n".to_owned(), Some(CheckpointError::Lines)),
            (format!("o\n1\n{root}"), Some(CheckpointError::Lines)),
            (format!("o\n1\n{root}\n\n"), Some(CheckpointError::Line)),
            (format!("o\n1\n{root}\nx\n\n"), Some(CheckpointError::Line)),
            (format!("\n1\n{root}\n"), Some(CheckpointError::Line)),
            (format!("o\t\n1\n{root}\n"), Some(CheckpointError::Line)),
            (format!("o\r\n1\n{root}\n"), Some(CheckpointError::Line)),
            (format!("o\n\n{root}\n"), Some(size(""))),
            (format!("o\n01\n{root}\n"), Some(size("01"))),
            (format!("o\n00\n{root}\n"), Some(size("00"))),
            (format!("o\n+1\n{root}\n"), Some(size("+1"))),
            (format!("o\n-1\n{root}\n"), Some(size("-1"))),
            (format!("o\n 1\n{root}\n"), Some(size(" 1"))),
            (format!("o\n0x1\n{root}\n"), Some(size("0x1"))),
            (format!("o\n18446744073709551616\n{root}\n"), Some(size("18446744073709551616"))),
            ("o\n1\n\n".to_owned(), Some(bad_root(""))),
            ("o\n1\nAAAA\n".to_owned(), Some(bad_root("AAAA"))),
            (
                "o\n1\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2J=\n".to_owned(),
                Some(bad_root("CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2J=")),
            ),
            (
                "o\n1\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I\n".to_owned(),
                Some(bad_root("CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I")),
            ),
        ] {
            assert_eq!(Checkpoint::parse(&text).err(), expect, "{text:?}");
        }
        assert_eq!(Checkpoint::new("a\nb", 0, sofa().root()), Err(CheckpointError::Line));
        assert_eq!(Checkpoint::new("", 0, sofa().root()), Err(CheckpointError::Line));
        let extended = sofa().with_extensions(vec![String::new()]);
        assert_eq!(extended, Err(CheckpointError::Line));
    }

    proptest! {
        #[test]
        fn parsed_checkpoint_prints_the_same_text(
            text in "(o|[ -~]{0,9})\n(0|1|[0-9]{1,21})\n(CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2[A-Za-z]=)\n(x\n){0,3}",
        ) {
            if let Ok(checkpoint) = Checkpoint::parse(&text) {
                prop_assert_eq!(checkpoint.to_text(), text);
            }
        }

        #[test]
        fn checkpoint_survives_a_round_trip(
            origin in "[^\\p{C}]{1,20}",
            size: u64,
            root: [u8; 32],
            extensions in prop::collection::vec("[!-~]{1,9}", 0..4),
        ) {
            let checkpoint = Checkpoint::new(origin, size, Digest::new(root)).unwrap();
            let checkpoint = checkpoint.with_extensions(extensions).unwrap();
            prop_assert_eq!(Checkpoint::parse(&checkpoint.to_text()), Ok(checkpoint.clone()));
            let log = secret("log", 1);
            let note = Note::parse(&checkpoint.sign(&[&log])).unwrap();
            prop_assert_eq!(note.text(), checkpoint.to_text());
        }
    }
}
