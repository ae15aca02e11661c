//! Decodes one member of a gzip file (RFC 1952), and verifies its checksum.

use flate2::{Crc, Decompress};

use super::{Progress, inflate};

/// The first byte of a gzip member.
pub(super) const MAGIC: u8 = 0x1f;
/// The maximum size of a gzip head. Names and comments are short; a longer head is an attempt to
/// use memory.
const MAX_HEAD: usize = 8 * 1024;

pub(super) struct Gzip {
    part: Part,
    head: Vec<u8>,
    deflate: Decompress,
    crc: Crc,
    trailer: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Head,
    Content,
    Trailer,
    Done,
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self {
            part: Part::Head,
            head: Vec::new(),
            deflate: Decompress::new(false),
            crc: Crc::new(),
            trailer: Vec::new(),
        }
    }

    pub(super) fn run(&mut self, input: &[u8], output: &mut [u8]) -> Option<Progress> {
        match self.part {
            Part::Head => self.read_head(input),
            Part::Content => {
                let progress = inflate(&mut self.deflate, input, output)?;
                self.crc.update(output.get(..progress.given)?);
                if progress.ended {
                    self.part = Part::Trailer;
                    if progress.taken == 0 && progress.given == 0 {
                        return self.run(input, output);
                    }
                }
                Some(Progress { ended: false, ..progress })
            }
            Part::Trailer => {
                let missing = 8_usize.saturating_sub(self.trailer.len());
                let taken = missing.min(input.len());
                self.trailer.extend_from_slice(input.get(..taken)?);
                if self.trailer.len() == 8 {
                    self.check()?;
                    self.part = Part::Done;
                }
                Some(Progress { taken, given: 0, ended: self.part == Part::Done })
            }
            Part::Done => Some(Progress { taken: 0, given: 0, ended: true }),
        }
    }

    fn read_head(&mut self, input: &[u8]) -> Option<Progress> {
        let before = self.head.len();
        let room = input.len().min(MAX_HEAD.saturating_sub(before));
        self.head.extend_from_slice(input.get(..room)?);
        let taken = match head_len(&self.head)? {
            Some(len) => {
                self.part = Part::Content;
                self.head = Vec::new();
                len.checked_sub(before)?
            }
            None if room == input.len() => room,
            None => return None,
        };
        Some(Progress { taken, given: 0, ended: false })
    }

    fn check(&self) -> Option<()> {
        let (crc, size) = self.trailer.split_first_chunk::<4>()?;
        let size = size.first_chunk::<4>()?;
        let right = u32::from_le_bytes(*crc) == self.crc.sum()
            && u32::from_le_bytes(*size) == self.crc.amount();
        right.then_some(())
    }
}

/// Returns the length of a gzip head: outer `None` if it is malformed, inner `None` if it is
/// incomplete.
fn head_len(head: &[u8]) -> Option<Option<usize>> {
    const MAGIC_AND_METHOD: [u8; 3] = [MAGIC, 0x8b, 8];
    if !MAGIC_AND_METHOD.starts_with(head.get(..head.len().min(3))?) {
        return None;
    }
    let Some(&[_, _, _, flags, ..]) = head.first_chunk::<10>() else { return Some(None) };
    if flags & 0xe0 != 0 {
        return None;
    }
    Some(optional_parts(head, flags))
}

fn optional_parts(head: &[u8], flags: u8) -> Option<usize> {
    let mut len = 10;
    if flags & 4 != 0 {
        let extra = head.get(len..)?.first_chunk::<2>()?;
        len += 2 + usize::from(u16::from_le_bytes(*extra));
    }
    // The name and the comment each end with a zero byte.
    for flag in [8, 16] {
        if flags & flag != 0 {
            len += head.get(len..)?.iter().position(|&byte| byte == 0)? + 1;
        }
    }
    if flags & 2 != 0 {
        len += 2;
    }
    (head.len() >= len).then_some(len)
}
