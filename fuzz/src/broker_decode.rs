//! No bytes make a decoder panic or give much at once, and where they are cut does not matter.

use belljar_broker::scrub::{Coding, DecodeError, Decoder};
use bytes::Bytes;

/// More than this is not looked at: bombs are slow, and their steps are all alike.
const ENOUGH: usize = 4 << 20;

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
            if out.len() > ENOUGH {
                return (out, Ok(()));
            }
        }
    }
    (out, decoder.finish())
}

pub fn check(bytes: &[u8]) {
    let [which, cut, coded @ ..] = bytes else { return };
    let all = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];
    let first = all[usize::from(which & 3)];
    let codings = match which >> 2 & 7 {
        second @ 0..4 => vec![first, all[usize::from(second)]],
        _ => vec![first],
    };
    let (whole, ended) = decode(&codings, &[coded]);
    if whole.len() > ENOUGH {
        return;
    }
    let (one, two) = coded.split_at(usize::from(*cut).min(coded.len()));
    let (in_two, ended_in_two) = decode(&codings, &[one, two]);
    assert_eq!(ended.is_ok(), ended_in_two.is_ok());
    if ended.is_ok() {
        assert_eq!(whole, in_two);
    }
}
