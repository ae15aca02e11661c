//! Tests of content codings: complete, in pieces, malformed, and decompression bombs.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;

use crate::scrub::{Coding, DecodeError, Decoder, Undecodable, codings};

pub(super) fn encode(coding: Coding, content: &[u8]) -> Vec<u8> {
    match coding {
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Deflate => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        }
        Coding::Brotli => {
            let mut out = Vec::new();
            let mut encoder = brotli::CompressorWriter::new(&mut out, 4096, 5, 22);
            encoder.write_all(content).unwrap();
            drop(encoder);
            out
        }
        Coding::Zstd => zstd::encode_all(content, 3).unwrap(),
    }
}

fn raw_deflate(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub(super) const ALL: [Coding; 4] = [Coding::Gzip, Coding::Deflate, Coding::Brotli, Coding::Zstd];

/// Decodes pieces of compressed content; returns the content and the longest output of one step.
fn decode(codings: &[Coding], pieces: &[&[u8]]) -> Result<(Vec<u8>, usize), DecodeError> {
    let mut decoder = Decoder::new(codings);
    let (mut out, mut longest) = (Vec::new(), 0);
    for piece in pieces {
        let mut input = Bytes::copy_from_slice(piece);
        loop {
            let step = decoder.step(&mut input)?;
            if step.is_empty() {
                assert!(input.is_empty(), "all input is consumed");
                break;
            }
            longest = longest.max(step.len());
            out.extend_from_slice(&step);
        }
    }
    decoder.finish()?;
    Ok((out, longest))
}

fn whole(codings: &[Coding], coded: &[u8]) -> Result<Vec<u8>, DecodeError> {
    decode(codings, &[coded]).map(|(content, _)| content)
}

#[test]
fn every_content_coding_is_decoded_at_every_split_of_the_input() {
    let content = b"the quick brown fox ".repeat(20);
    let mut cases: Vec<(Coding, Vec<u8>)> =
        ALL.iter().map(|&coding| (coding, encode(coding, &content))).collect();
    cases.push((Coding::Deflate, raw_deflate(&content)));
    // Gzip and zstd allow several members.
    let (one, two) = content.split_at(77);
    for coding in [Coding::Gzip, Coding::Zstd] {
        cases.push((coding, [encode(coding, one), encode(coding, two)].concat()));
    }
    for (coding, coded) in cases {
        for at in 0..=coded.len() {
            let (one, two) = coded.split_at(at);
            let (out, _) = decode(&[coding], &[one, two]).unwrap();
            assert_eq!(out, content, "{coding} cut at {at}");
        }
        let bytes: Vec<&[u8]> = coded.chunks(1).collect();
        assert_eq!(decode(&[coding], &bytes).unwrap().0, content, "{coding} byte by byte");
    }
}

#[test]
fn decoder_accepts_content_that_fills_the_last_step_exactly() {
    for size in [64 * 1024, 128 * 1024, 64 * 1024 - 1, 64 * 1024 + 1] {
        for coding in ALL {
            let content = vec![b'x'; size];
            let coded = encode(coding, &content);
            assert_eq!(whole(&[coding], &coded).unwrap().len(), size, "{coding}");
            let (one, two) = coded.split_at(coded.len() - 4);
            assert_eq!(decode(&[coding], &[one, two]).unwrap().0.len(), size, "{coding}");
        }
    }
}

#[test]
fn nested_content_codings_are_decoded_in_reverse_order() {
    for first in ALL {
        for second in ALL {
            let coded = encode(second, &encode(first, b"twice"));
            assert_eq!(whole(&[first, second], &coded).unwrap(), b"twice", "{first}, {second}");
        }
    }
    assert_eq!(whole(&[], b"as it is").unwrap(), b"as it is");
}

#[test]
fn b05_decoder_returns_an_error_for_incomplete_or_malformed_content() {
    for coding in ALL {
        let coded = encode(coding, &b"content ".repeat(100));
        for len in 1..coded.len() {
            let error = whole(&[coding], &coded[..len]).unwrap_err();
            assert_eq!(error, DecodeError::Truncated(coding), "{coding} at {len}");
        }
        let mut garbage = coded.clone();
        garbage.extend_from_slice(b"and more");
        assert!(whole(&[coding], &garbage).is_err(), "{coding} with trailing garbage");
        let (one, two) = garbage.split_at(coded.len());
        assert!(
            decode(&[coding], &[one, two]).is_err(),
            "{coding} with trailing garbage in a separate piece"
        );
        assert!(whole(&[coding], b"\x07no such thing at all, really not").is_err(), "{coding}");
        // A response without content is valid with any coding.
        assert_eq!(whole(&[coding], b"").unwrap(), b"");
        // Control: the complete content is valid.
        assert!(whole(&[coding], &coded).is_ok());
    }
    // The checksum is verified.
    let mut gzip = encode(Coding::Gzip, b"content");
    let crc = gzip.len() - 8;
    gzip[crc] ^= 1;
    assert_eq!(whole(&[Coding::Gzip], &gzip), Err(DecodeError::Corrupt(Coding::Gzip)));
}

#[test]
fn optional_parts_of_a_gzip_head_are_skipped() {
    let plain = encode(Coding::Gzip, b"content");
    let mut head = plain[..10].to_vec();
    head[3] = 2 | 4 | 8 | 16;
    head.extend_from_slice(b"\x03\x00abcname\0comment\0\x12\x34");
    let coded = [head, plain[10..].to_vec()].concat();
    for at in 0..coded.len() {
        let (one, two) = coded.split_at(at);
        assert_eq!(decode(&[Coding::Gzip], &[one, two]).unwrap().0, b"content");
    }
    let mut endless = plain[..10].to_vec();
    endless[3] = 8;
    endless.extend_from_slice(&[b'x'; 20_000]);
    assert_eq!(whole(&[Coding::Gzip], &endless), Err(DecodeError::Corrupt(Coding::Gzip)));
}

#[test]
fn decompression_bomb_is_decoded_in_small_steps() {
    const SIZE: usize = 6 * 1024 * 1024;
    for coding in ALL {
        let coded = encode(coding, &vec![0; SIZE]);
        assert!(coded.len() < SIZE / 200, "{coding} is a bomb");
        let (content, longest) = decode(&[coding], &[&coded]).unwrap();
        assert_eq!(content.len(), SIZE);
        assert!(longest <= 64 * 1024, "{coding}: {longest} bytes at once");
    }
    // A window that needs more memory than allowed.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(b"small").unwrap();
    let coded = encoder.finish().unwrap();
    assert_eq!(whole(&[Coding::Zstd], &coded), Err(DecodeError::Corrupt(Coding::Zstd)));
}

#[test]
fn b05_response_with_an_unknown_content_coding_is_refused() {
    let of = |values: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("content-encoding", HeaderValue::from_str(value).unwrap());
        }
        codings(&headers)
    };
    assert_eq!(of(&[]).unwrap(), []);
    assert_eq!(of(&["identity", ""]).unwrap(), []);
    assert_eq!(of(&["GZip, br", "x-gzip"]).unwrap(), [Coding::Gzip, Coding::Brotli, Coding::Gzip]);
    assert_eq!(of(&["deflate , zstd"]).unwrap(), [Coding::Deflate, Coding::Zstd]);
    for unknown in ["compress", "dcb", "aws-chunked", "gzip;q=1", "exi, gzip"] {
        assert!(matches!(of(&[unknown]), Err(Undecodable::Unknown)), "{unknown}");
    }
    assert_eq!(of(&["gzip,gzip,gzip,gzip"]), Err(Undecodable::TooMany));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn decoder_returns_bounded_output_or_an_error_for_random_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        which in 0..4_usize,
        cut in 0..300_usize,
    ) {
        let (one, two) = bytes.split_at(cut.min(bytes.len()));
        let result = decode(&[ALL[which]], &[one, two]).map(|(content, _)| content);
        prop_assert_eq!(result.is_ok(), whole(&[ALL[which]], &bytes).is_ok());
    }
}
