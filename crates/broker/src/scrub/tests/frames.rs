//! Tests of WebSocket frames.

use proptest::prelude::*;

use super::{NAME, VALUE, github};
use crate::scrub::{Finder, FrameError, FrameGuard, FrameScrubber, Scrubber};

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;

fn frame(fin: bool, opcode: u8, mask: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![u8::from(fin) << 7 | opcode];
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match payload.len() {
        len @ 0..=125 => out.push(u8::try_from(len).unwrap() | masked),
        len @ 126..=0xffff => {
            out.push(126 | masked);
            out.extend_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
        }
        len => {
            out.push(127 | masked);
            out.extend_from_slice(&u64::try_from(len).unwrap().to_be_bytes());
        }
    }
    let mask = mask.inspect(|mask| out.extend_from_slice(mask)).unwrap_or_default();
    out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    out
}

fn server(fin: bool, opcode: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(fin, opcode, None, payload.as_ref())
}

fn client(fin: bool, opcode: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(fin, opcode, Some([1, 2, 3, 0xfe]), payload.as_ref())
}

/// Returns the WebSocket messages and control frames in the bytes of a server or a client.
fn messages(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut messages: Vec<(u8, Vec<u8>)> = Vec::new();
    let mut open: Option<(u8, Vec<u8>)> = None;
    while let [first, len, rest @ ..] = bytes {
        let is_masked = len & 0x80 != 0;
        let (len, rest) = match &(len & 0x7f) {
            126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
            127 => (
                usize::try_from(u64::from_be_bytes(rest[..8].try_into().unwrap())).unwrap(),
                &rest[8..],
            ),
            len => (usize::from(*len), rest),
        };
        let (key, rest) = if is_masked { rest.split_at(4) } else { (&[0_u8][..], rest) };
        let (payload, rest) = rest.split_at(len);
        let payload: Vec<u8> =
            payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
        bytes = rest;
        let (fin, opcode) = (first & 0x80 != 0, first & 15);
        if opcode >= CLOSE {
            assert!(fin && len <= 125);
            messages.push((opcode, payload));
            continue;
        }
        assert_eq!(open.is_some(), opcode == 0, "fragments in order");
        open.get_or_insert((opcode, Vec::new())).1.extend_from_slice(&payload);
        if fin {
            messages.extend(open.take());
        }
    }
    assert!(bytes.is_empty() && open.is_none());
    messages
}

fn scrub<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<u8>, FrameError> {
    let mut scrubber = FrameScrubber::new(&github());
    let mut out = Vec::new();
    for piece in pieces {
        scrubber.push(piece, &mut out)?;
    }
    Ok(out)
}

#[test]
fn b06_websocket_messages_are_scrubbed_across_fragments_and_pieces() {
    let (one, two) = VALUE.split_at(9);
    let bytes = [
        server(false, TEXT, format!("a {one}")),
        server(true, PING, "are you there?"),
        server(true, 0, format!("{two} b")),
        server(true, BINARY, VALUE),
        server(true, TEXT, "nothing"),
        server(true, TEXT, ""),
        server(true, CLOSE, [&[3, 232], VALUE.as_bytes()].concat()),
    ]
    .concat();
    let expected = [
        (PING, b"are you there?".to_vec()),
        (TEXT, format!("a {NAME} b").into_bytes()),
        (BINARY, NAME.into()),
        (TEXT, b"nothing".to_vec()),
        (TEXT, Vec::new()),
        (CLOSE, [&[3, 232], NAME.as_bytes()].concat()),
    ];
    for at in 0..bytes.len() {
        let (one, two) = bytes.split_at(at);
        assert_eq!(messages(&scrub([one, two]).unwrap()), expected, "cut at {at}");
    }
    assert_eq!(messages(&scrub(bytes.chunks(1)).unwrap()), expected);
}

#[test]
fn value_split_over_two_websocket_messages_is_not_replaced() {
    let (one, two) = VALUE.split_at(9);
    let bytes = [server(true, TEXT, one), server(true, TEXT, two)].concat();
    assert_eq!(scrub([bytes.as_slice()]).unwrap(), bytes);
}

#[test]
fn long_websocket_message_is_forwarded_in_pieces() {
    let payload = vec![b'x'; 1 << 20];
    let bytes = server(true, BINARY, &payload);
    let mut scrubber = FrameScrubber::new(&github());
    let mut out = Vec::new();
    let (most, rest) = bytes.split_at(bytes.len() - 10);
    for piece in most.chunks(10_000) {
        let before = out.len();
        scrubber.push(piece, &mut out).unwrap();
        assert!(out.len() > before, "every piece is forwarded");
    }
    scrubber.push(rest, &mut out).unwrap();
    assert_eq!(messages(&out), [(BINARY, payload)]);
}

#[test]
fn websocket_frames_that_the_rfc_forbids_are_errors() {
    let close = [server(true, CLOSE, ""), server(true, TEXT, "after")].concat();
    for (what, bytes) in [
        ("a reserved bit", vec![0xc1, 0]),
        ("a reserved opcode", vec![0x83, 0]),
        ("a reserved control opcode", vec![0x8b, 0]),
        ("a mask", client(true, TEXT, "x")),
        ("a long control frame", server(true, PING, vec![0; 126])),
        ("a fragmented control frame", server(false, PING, "x")),
        ("a continuation without a message", server(true, 0, "x")),
        (
            "a new message within a message",
            [server(false, TEXT, "x"), server(true, TEXT, "y")].concat(),
        ),
        ("a long form of a short length", vec![0x81, 126, 0, 5]),
        ("a longer form", vec![0x81, 127, 0, 0, 0, 0, 0, 0, 0, 5]),
        ("a length above the maximum", vec![0x81, 127, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ("half a code", server(true, CLOSE, "x")),
        ("a frame after the close", close),
    ] {
        assert!(matches!(scrub([bytes.as_slice()]), Err(FrameError::Invalid(_))), "{what}");
    }
    let mut guard = FrameGuard::new(&Finder::new(&[]).unwrap(), &Finder::new(&[]).unwrap());
    assert!(guard.push(&server(true, TEXT, "unmasked")).is_err());
}

#[test]
fn b01_placeholder_in_a_websocket_message_is_found() {
    let finder = Finder::new(&[("github".to_owned(), b"bj_placeholder_of_the_box")]).unwrap();
    let found = FrameError::Placeholder { name: "github".to_owned() };
    let bytes = [
        client(false, TEXT, "hello bj_placeholder"),
        client(true, PING, ""),
        client(true, 0, "_of_the_box!"),
    ]
    .concat();
    for at in 0..bytes.len() {
        let (one, two) = bytes.split_at(at);
        let mut guard = FrameGuard::new(&finder, &finder);
        assert_eq!(guard.push(one).and_then(|()| guard.push(two)), Err(found.clone()), "at {at}");
    }
    let mut guard = FrameGuard::new(&finder, &finder);
    assert_eq!(guard.push(&client(true, PING, "bj_placeholder_of_the_box")), Err(found));
    let mut guard = FrameGuard::new(&finder, &finder);
    for text in ["hello bj_placeholder", "_of_the_box!", "bj_placeholder_of_the_bo"] {
        assert_eq!(guard.push(&client(true, TEXT, text)), Ok(()));
    }
}

#[test]
fn b01_placeholder_in_a_websocket_message_is_masked_at_every_split() {
    let masked = Scrubber::new(&[("own".to_owned(), b"bj_placeholder_of_the_own")]).unwrap();
    let bytes = [
        client(false, TEXT, "hello bj_placeholder"),
        client(true, PING, "ping"),
        client(true, 0, "_of_the_own!"),
        client(true, BINARY, "unchanged"),
    ]
    .concat();
    let expect = [
        (PING, b"ping".to_vec()),
        (TEXT, b"hello [belljar:own]!".to_vec()),
        (BINARY, b"unchanged".to_vec()),
    ];
    for at in 0..bytes.len() {
        let (one, two) = bytes.split_at(at);
        let mut mask = FrameScrubber::of_client(&masked);
        let mut out = Vec::new();
        mask.push(one, &mut out).and_then(|()| mask.push(two, &mut out)).unwrap();
        assert_eq!(messages(&out), expect, "at {at}");
        assert_eq!(mask.names(), ["own"]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn websocket_scrubber_gives_the_same_result_at_any_split_of_random_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cut in 0..200_usize,
    ) {
        let (one, two) = bytes.split_at(cut.min(bytes.len()));
        prop_assert_eq!(scrub([one, two]).is_ok(), scrub([bytes.as_slice()]).is_ok());
    }
}
