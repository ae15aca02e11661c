//! The token file: one token per line, readable only by its owner.
//!
//! Empty lines and lines that start with `#` are skipped. A file that others can read is refused,
//! because others can know its tokens.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::auth::token::{BadToken, Token, Tokens};
use crate::mcp::session::NoRandomness;

/// The maximum size of a token file, enough for a hundred tokens of maximum length.
const MAX_FILE: u64 = 64 * 1024;

/// The bearer tokens that a token file contains.
#[derive(Debug)]
pub struct TokenFile {
    pub tokens: Tokens,
    /// The token that was generated because the file did not exist.
    pub made: Option<Token>,
}

/// The reason why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("cannot generate a token")]
    Random(#[source] NoRandomness),
    #[error("cannot create the token file {}", path.display())]
    Create { path: PathBuf, source: std::io::Error },
    #[error("cannot read the token file {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the token file {} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    #[error("the token file {} belongs to another user", .0.display())]
    OtherOwner(PathBuf),
    #[error("other users can read the token file {}; run `chmod 600` on it and replace tokens that they could have read", .0.display())]
    ReadableByOthers(PathBuf),
    #[error("the token file {} is larger than 64 KiB", .0.display())]
    TooLarge(PathBuf),
    #[error("invalid token in {}, line {line}", path.display())]
    Line { path: PathBuf, line: usize, source: BadToken },
    #[error("the token file {} contains no token", .0.display())]
    Empty(PathBuf),
}

impl TokenFile {
    /// Reads the bearer tokens in the file `path`, or creates the file with a new token.
    pub fn open(path: &Path) -> Result<Self, TokenFileError> {
        match read(path) {
            Err(TokenFileError::Read { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                create(path)
            }
            Err(error) => Err(error),
            Ok(tokens) => Ok(Self { tokens: Tokens::new(&tokens), made: None }),
        }
    }
}

fn create(path: &Path) -> Result<TokenFile, TokenFileError> {
    let token = Token::generate().map_err(TokenFileError::Random)?;
    let write = || {
        // The mode applies from the creation on, whatever the umask allows.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(Zeroizing::new(format!("{}\n", token.expose())).as_bytes())?;
        file.sync_all()
    };
    write().map_err(|source| TokenFileError::Create { path: path.to_owned(), source })?;
    Ok(TokenFile { tokens: Tokens::new([&token]), made: Some(token) })
}

fn read(path: &Path) -> Result<Vec<Token>, TokenFileError> {
    let failed = |source| TokenFileError::Read { path: path.to_owned(), source };
    let nofollow = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(nofollow.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    // Checks the open file, which cannot be swapped any more.
    check_private(path, &file.metadata().map_err(failed)?)?;
    let text = contents(&file).map_err(failed)?;
    let mut tokens = Vec::new();
    for (line, text) in (1..).zip(text.lines().map(str::trim)) {
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let bad = |source| TokenFileError::Line { path: path.to_owned(), line, source };
        tokens.push(Token::parse(text).map_err(bad)?);
    }
    if tokens.is_empty() { Err(TokenFileError::Empty(path.to_owned())) } else { Ok(tokens) }
}

fn check_private(path: &Path, about: &Metadata) -> Result<(), TokenFileError> {
    let refused = if !about.is_file() {
        TokenFileError::NotAFile
    } else if about.uid() != rustix::process::geteuid().as_raw() {
        TokenFileError::OtherOwner
    } else if about.mode() & 0o077 != 0 {
        TokenFileError::ReadableByOthers
    } else if about.len() > MAX_FILE {
        TokenFileError::TooLarge
    } else {
        return Ok(());
    };
    Err(refused(path.to_owned()))
}

fn contents(file: &File) -> std::io::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    file.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn f17_a_token_file_is_created_private_and_refused_if_others_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let made = TokenFile::open(&path).unwrap().made.unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let again = TokenFile::open(&path).unwrap();
        assert_eq!((again.made, again.tokens.find(made.expose())), (None, Some(0)));

        for mode in [0o640, 0o604, 0o620, 0o666] {
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            let error = TokenFile::open(&path).unwrap_err();
            assert!(matches!(error, TokenFileError::ReadableByOthers(_)), "{mode:o}: {error}");
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o400)).unwrap();
        assert_eq!(TokenFile::open(&path).unwrap().tokens.len(), 1);
    }

    #[test]
    fn f17_a_link_or_directory_as_token_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("token"), dir.path().join("link"));
        TokenFile::open(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(TokenFile::open(&link).unwrap_err(), TokenFileError::Read { .. }));
        let dangling = dir.path().join("dangling");
        std::os::unix::fs::symlink(dir.path().join("nowhere"), &dangling).unwrap();
        TokenFile::open(&dangling).unwrap_err();
        assert!(!dir.path().join("nowhere").exists());
        assert!(matches!(TokenFile::open(dir.path()).unwrap_err(), TokenFileError::NotAFile(_)));
    }

    #[test]
    fn token_file_accepts_comments_and_reports_the_line_of_an_invalid_token() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let write = |text: &str| {
            drop(std::fs::remove_file(&path));
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        let (a, b) = (Token::generate().unwrap(), Token::generate().unwrap());
        write(&format!("# laptop\n{}\n\n  {}  \n", a.expose(), b.expose()));
        let tokens = TokenFile::open(&path).unwrap().tokens;
        assert_eq!((tokens.find(a.expose()), tokens.find(b.expose())), (Some(0), Some(1)));

        write("# only a comment\n");
        assert!(matches!(TokenFile::open(&path).unwrap_err(), TokenFileError::Empty(_)));
        write("\nhunter2\n");
        let error = TokenFile::open(&path).unwrap_err();
        assert!(error.to_string().ends_with("line 2"), "{error}");
    }
}
