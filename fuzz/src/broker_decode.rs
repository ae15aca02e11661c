//! Checks the decoders of compressed bodies: no input makes them panic or return a large piece, and the result
//! does not depend on how the input is split.

use belljar_broker::scrub::{Coding, DecodeError, Decoder};
use bytes::Bytes;

/// Maximum decoded size that is checked; decompression bombs are slow, and their steps are all alike.
const MAX_DECODED: usize = 4 << 20;

/// Decodes the pieces of an input, and returns the output and the result of the decoder.
fn decode(codings: &[Coding], pieces: &[&[u8]]) -> (Vec<u8>, Result<(), DecodeError>) {
    let mut decoder = Decoder::new(codings);
    let mut out = Vec::new();
    for piece in pieces {
        let mut input = Bytes::copy_from_slice(piece);
        loop {
            match decoder.step(&mut input) {
                Ok(step) if step.is_empty() => break,
                Ok(step) => {
                    assert!(step.len() <= 64 * 1024);
                    out.extend_from_slice(&step);
                }
                Err(error) => return (out, Err(error)),
            }
            if out.len() > MAX_DECODED {
                return (out, Ok(()));
            }
        }
    }
    (out, decoder.finish())
}

pub fn check(bytes: &[u8]) {
    // The first byte selects the codings, the second the offset of the split.
    let [which, cut, coded @ ..] = bytes else { return };
    let all = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];
    let first = all[usize::from(which & 3)];
    let codings = match which >> 2 & 7 {
        second @ 0..4 => vec![first, all[usize::from(second)]],
        _ => vec![first],
    };
    let (whole, ended) = decode(&codings, &[coded]);
    if whole.len() > MAX_DECODED {
        return;
    }
    let (one, two) = coded.split_at(usize::from(*cut).min(coded.len()));
    let (split, split_ended) = decode(&codings, &[one, two]);
    assert_eq!(ended.is_ok(), split_ended.is_ok());
    if ended.is_ok() {
        assert_eq!(whole, split);
    }
}
