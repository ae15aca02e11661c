//! Encodes and decodes the headers of a tar stream: POSIX (ustar and pax), and the long names of GNU tar.
//!
//! The decoder accepts only what a tar program writes for files, directories, links and special files.

use std::io::{self, Read};

use super::TransferError;
use crate::path::MAX_PATH;

const BLOCK: usize = 512;
/// The two empty blocks at the end of a stream.
pub(super) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];
const ZEROS: [u8; BLOCK] = [0; BLOCK];
/// The maximum size of an extended header, which has a path and some numbers.
const MAX_EXTENDED: u64 = 64 * 1024;
/// The maximum number of extended headers before one entry.
const MAX_HEADERS: usize = 8;

/// One entry of a stream, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) path: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    /// The size of the content that follows the header.
    pub(super) size: u64,
    /// The time of the last change in seconds since 1970; zero in a header that was read.
    pub(super) modified: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    /// A further name of the file with this path in the stream.
    HardLink(Vec<u8>),
    /// A symbolic link, a device or a pipe.
    Other,
}

/// Returns the zeros between a content of this size and the next header.
pub(super) fn padding(size: u64) -> &'static [u8] {
    let over = usize::try_from(size % 512).unwrap_or_default();
    ZEROS.get(..(BLOCK - over) % BLOCK).unwrap_or_default()
}

impl Header {
    /// Returns the blocks of the header. The path and the size are in an extended header, which every tar
    /// program reads, if they do not fit.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut extended = Vec::new();
        if self.path.len() > 100 {
            extended.extend(record(b"path", &self.path));
        }
        if self.size >= 1 << 33 {
            extended.extend(record(b"size", self.size.to_string().as_bytes()));
        }
        if !extended.is_empty() {
            let size = u64::try_from(extended.len()).unwrap_or(u64::MAX);
            out.extend(block(b"PaxHeader", b'x', 0o644, size, 0));
            out.extend_from_slice(&extended);
            out.extend_from_slice(padding(size));
        }
        let kind = if self.kind == Kind::Directory { b'5' } else { b'0' };
        out.extend(block(&self.path, kind, self.mode, self.size, self.modified));
        out
    }
}

/// Returns one record of an extended header: its own length, a key and a value.
fn record(key: &[u8], value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [length.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat()
}

/// Returns one ustar header. A path that is too long is truncated, because an extended header has it.
fn block(path: &[u8], kind: u8, mode: u32, size: u64, modified: u64) -> Vec<u8> {
    let mut name = path.get(..path.len().min(100)).unwrap_or_default().to_vec();
    name.resize(100, 0);
    let size = if size >= 1 << 33 { 0 } else { size };
    let mut header = name;
    let modified = modified.min((1 << 33) - 1);
    let numbers = format!("{mode:07o}\0{0:07o}\0{0:07o}\0{size:011o}\0{modified:011o}\0", 0);
    header.extend(numbers.into_bytes());
    header.extend_from_slice(b"        "); // the checksum counts as blanks
    header.push(kind);
    header.resize(257, 0);
    header.extend_from_slice(b"ustar\x0000");
    header.resize(BLOCK, 0);
    let sum: u64 = header.iter().map(|byte| u64::from(*byte)).sum();
    let text = format!("{sum:06o}\0 ");
    for (at, byte) in text.bytes().enumerate() {
        if let Some(place) = header.get_mut(148 + at) {
            *place = byte;
        }
    }
    header
}

/// Reads the next entry of a stream, or `None` at its end.
pub(super) fn read(from: &mut impl Read) -> Result<Option<Header>, TransferError> {
    let (mut path, mut link, mut size) = (None, None, None);
    for _ in 0..MAX_HEADERS {
        let mut bytes = [0; BLOCK];
        read_block(from, &mut bytes)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let block = Block::parse(&bytes)?;
        match block.kind {
            b'x' | b'L' | b'K' => {
                let content = read_extended(from, block.size)?;
                match block.kind {
                    b'L' => path = Some(until_nul(&content)),
                    b'K' => link = Some(until_nul(&content)),
                    _ => {
                        let mut records = Records(&content);
                        while let Some((key, value)) = records.next()? {
                            match key {
                                b"path" => path = Some(value.to_vec()),
                                b"linkpath" => link = Some(value.to_vec()),
                                b"size" => size = Some(decimal(value)?),
                                _ => {}
                            }
                        }
                    }
                }
            }
            b'g' => drop(read_extended(from, block.size)?),
            _ => {
                let path = path.unwrap_or(block.path);
                if path.len() > MAX_PATH + 1 {
                    return Err(TransferError::Malformed("a path is too long"));
                }
                let size = size.unwrap_or(block.size);
                let kind = match block.kind {
                    b'0' | 0 | b'7' => Kind::File,
                    b'5' => Kind::Directory,
                    b'1' => Kind::HardLink(link.unwrap_or(block.link)),
                    b'2' | b'3' | b'4' | b'6' => Kind::Other,
                    _ => return Err(TransferError::Malformed("an entry has an unknown kind")),
                };
                // Only files have content, whatever their headers say.
                let size = if kind == Kind::File { size } else { 0 };
                return Ok(Some(Header { path, kind, mode: block.mode, size, modified: 0 }));
            }
        }
    }
    Err(TransferError::Malformed("an entry has too many headers"))
}

fn read_block(from: &mut impl Read, bytes: &mut [u8]) -> Result<(), TransferError> {
    from.read_exact(bytes).map_err(|error| match error.kind() == io::ErrorKind::UnexpectedEof {
        true => TransferError::Malformed("it ends too early"),
        false => TransferError::Stream(error),
    })
}

fn read_extended(from: &mut impl Read, size: u64) -> Result<Vec<u8>, TransferError> {
    if size > MAX_EXTENDED {
        return Err(TransferError::Malformed("an extended header is too long"));
    }
    let mut content = vec![0; usize::try_from(size).unwrap_or_default()];
    read_block(from, &mut content)?;
    let mut rest = vec![0; padding(size).len()];
    read_block(from, &mut rest)?;
    Ok(content)
}

/// The fields of one header block.
struct Block {
    path: Vec<u8>,
    link: Vec<u8>,
    kind: u8,
    mode: u32,
    size: u64,
}

impl Block {
    fn parse(bytes: &[u8; BLOCK]) -> Result<Self, TransferError> {
        let field = |at: usize, length: usize| bytes.get(at..at + length).unwrap_or_default();
        let sum = bytes.iter().enumerate().map(|(at, byte)| match at {
            148..156 => u64::from(b' '),
            _ => u64::from(*byte),
        });
        if number(field(148, 8))? != sum.sum::<u64>() {
            return Err(TransferError::Malformed("a header has a wrong checksum"));
        }
        let name = until_nul(field(0, 100));
        // Only the POSIX format has a prefix; GNU tar has times there.
        let prefix = match field(257, 6) {
            b"ustar\0" => until_nul(field(345, 155)),
            _ => Vec::new(),
        };
        let path = if prefix.is_empty() { name } else { [prefix, name].join(&b'/') };
        let mode = u32::try_from(number(field(100, 8))? & 0o7777).unwrap_or_default();
        let kind = field(156, 1).first().copied().unwrap_or_default();
        Ok(Self {
            path,
            link: until_nul(field(157, 100)),
            kind,
            mode,
            size: number(field(124, 12))?,
        })
    }
}

fn until_nul(bytes: &[u8]) -> Vec<u8> {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

/// Parses a number of a header: octal digits, or a binary number of GNU tar.
fn number(field: &[u8]) -> Result<u64, TransferError> {
    let wrong = TransferError::Malformed("a header has an invalid number");
    if let Some((0x80, rest)) = field.split_first().map(|(first, rest)| (*first, rest)) {
        let (high, low) = rest.split_at(rest.len().saturating_sub(8));
        return match (high.iter().all(|byte| *byte == 0), <[u8; 8]>::try_from(low)) {
            (true, Ok(low)) => Ok(u64::from_be_bytes(low)),
            _ => Err(wrong),
        };
    }
    let digits: Vec<u8> = field.iter().copied().filter(|byte| !matches!(byte, b' ' | 0)).collect();
    if digits.is_empty() {
        return Ok(0);
    }
    let text = std::str::from_utf8(&digits).ok();
    text.and_then(|text| u64::from_str_radix(text, 8).ok()).ok_or(wrong)
}

fn decimal(text: &[u8]) -> Result<u64, TransferError> {
    let wrong = TransferError::Malformed("an extended header has an invalid number");
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(wrong)
}

/// The key and the value of one record of an extended header.
type Record<'a> = (&'a [u8], &'a [u8]);

/// The records of an extended header.
struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    fn next(&mut self) -> Result<Option<Record<'a>>, TransferError> {
        const WRONG: TransferError = TransferError::Malformed("an extended header is invalid");
        if self.0.is_empty() {
            return Ok(None);
        }
        let blank = self.0.iter().position(|byte| *byte == b' ').ok_or(WRONG)?;
        let length = decimal(self.0.get(..blank).unwrap_or_default())?;
        let length = usize::try_from(length).map_err(|_| WRONG)?;
        let record = self.0.get(blank + 1..length).ok_or(WRONG)?;
        self.0 = self.0.get(length..).ok_or(WRONG)?;
        let record = record.strip_suffix(b"\n").ok_or(WRONG)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or(WRONG)?;
        let (key, value) = record.split_at(equals);
        Ok(Some((key, value.get(1..).unwrap_or_default())))
    }
}
