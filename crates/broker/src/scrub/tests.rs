//! Tests of every form at every split point, against references without the fast search.

mod body;
mod decode;
mod frames;
mod truncated;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use proptest::prelude::*;

use super::*;

/// A secret value with all kinds of characters that an encoding treats specially.
const VALUE: &str = "ghp_Az09+/=~&\"<\\ k%7Qx";
const NAME: &str = "[belljar:github]";

fn scrubber(values: &[(&str, &[u8])]) -> Scrubber {
    let values: Vec<_> = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    Scrubber::new(&values).unwrap()
}

fn github() -> Scrubber {
    scrubber(&[("github", VALUE.as_bytes())])
}

fn in_pieces<'a>(scrubber: &Scrubber, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut stream = scrubber.stream();
    let mut out = Vec::new();
    for piece in pieces {
        stream.push(piece, &mut out);
    }
    stream.finish(&mut out);
    out
}

/// Checks the scrubbed output for the whole text, for every split into two pieces, and byte by
/// byte.
#[track_caller]
fn check(scrubber: &Scrubber, text: &[u8], expected: &[u8]) {
    let show = |bytes: &[u8]| bytes.escape_ascii().to_string();
    assert_eq!(show(&scrubber.text(text)), show(expected), "of {}", show(text));
    for at in 0..=text.len() {
        let (one, two) = text.split_at(at);
        assert_eq!(show(&in_pieces(scrubber, [one, two])), show(expected), "cut at {at}");
        let mut stream = scrubber.stream();
        let mut out = stream.push_bytes(Bytes::copy_from_slice(one)).to_vec();
        out.extend_from_slice(&stream.push_bytes(Bytes::copy_from_slice(two)));
        stream.finish(&mut out);
        assert_eq!(show(&out), show(expected), "bytes cut at {at}");
    }
    assert_eq!(show(&in_pieces(scrubber, text.chunks(1))), show(expected), "byte by byte");
}

fn percent(byte: u8) -> String {
    format!("%{byte:02X}")
}

/// Returns the value in the output of common encoders, with their names.
fn spellings() -> Vec<(&'static str, String)> {
    let each = |spell: &dyn Fn(char) -> String| VALUE.chars().map(spell).collect::<String>();
    let json = serde_json::to_string(VALUE).unwrap();
    let json = json.trim_matches('"').to_owned();
    let nested = serde_json::to_string(&json).unwrap();
    let entities = each(&|c| match c {
        '&' => "&amp;".to_owned(),
        '"' => "&quot;".to_owned(),
        '<' => "&lt;".to_owned(),
        '+' => "&plus;".to_owned(),
        _ => c.to_string(),
    });
    let partly = each(&|c| match c {
        'A'..='Z' | 'a'..='z' | '0'..='9' | '_' | '~' => c.to_string(),
        _ => percent(u8::try_from(c).unwrap()),
    });
    vec![
        ("plain", VALUE.to_owned()),
        ("percent, all", each(&|c| percent(u8::try_from(c).unwrap()))),
        ("percent, lower", each(&|c| percent(u8::try_from(c).unwrap()).to_lowercase())),
        ("percent, twice", partly.replace('%', "%25")),
        ("form", partly.replace("%20", "+")),
        ("percent, partly", partly),
        ("json", json.clone()),
        ("json, slashes", json.replace('/', "\\/")),
        ("json in json", nested.trim_matches('"').to_owned()),
        ("json, all", each(&|c| format!("\\u{:04x}", u32::from(c)))),
        ("json, all, upper", each(&|c| format!("\\u{:04X}", u32::from(c)))),
        ("json, all, in json", each(&|c| format!("\\\\u{:04x}", u32::from(c)))),
        ("script", each(&|c| format!("\\x{:02x}", u32::from(c)))),
        ("entities", entities),
        ("entities, decimal", each(&|c| format!("&#{};", u32::from(c)))),
        ("entities, hex", each(&|c| format!("&#x{:04X};", u32::from(c)))),
        ("hex", each(&|c| format!("{:02x}", u32::from(c)))),
        ("hex, upper", each(&|c| format!("{:02X}", u32::from(c)))),
        ("hex, mixed", each(&|c| format!("{:x}{:X}", u32::from(c) >> 4, u32::from(c) & 15))),
    ]
}

#[test]
fn b05_scrubber_finds_a_value_in_every_encoding() {
    for (name, text) in spellings() {
        let out = github().text(text.as_bytes()).into_owned();
        assert_eq!(String::from_utf8_lossy(&out), NAME, "{name}: {text}");
    }
    // Control: without values, all text stays unchanged.
    for (_, text) in spellings() {
        assert_eq!(scrubber(&[]).text(text.as_bytes()), text.as_bytes());
    }
}

#[test]
fn b05_scrubber_finds_base64_of_a_value_at_every_offset() {
    for (alphabet, encode) in [
        ("standard", (|text| STANDARD.encode(text)) as fn(&[u8]) -> String),
        ("url", |text| URL_SAFE_NO_PAD.encode(text)),
    ] {
        for before in 0..7_usize {
            for after in 0..7_usize {
                for filler in [0_u8, 0xff, b'a'] {
                    let text = [vec![filler; before], VALUE.into(), vec![filler; after]].concat();
                    let coded = encode(&text);
                    let from = before * 8 / 6;
                    let to = ((before + VALUE.len()) * 8).div_ceil(6);
                    let expected = format!("{}{NAME}{}", &coded[..from], &coded[to..]);
                    let out = github().text(coded.as_bytes()).into_owned();
                    assert_eq!(String::from_utf8_lossy(&out), expected, "{alphabet} {coded}");
                }
            }
        }
    }
}

#[test]
fn b05_scrubber_finds_base64_of_a_value_with_escapes_and_line_breaks() {
    let long = "ghp_0123456789abcdefghijklmnopqrstuvwxyz/+~~~???>>>";
    let scrubber = scrubber(&[("github", long.as_bytes())]);
    let coded = STANDARD.encode(long);
    let end = (long.len() * 8).div_ceil(6);
    let padding = &coded[end..];
    let slashes = coded.replace('/', "\\/");
    let url: String = coded
        .bytes()
        .map(|b| if b == b'/' || b == b'+' { percent(b) } else { char::from(b).into() })
        .collect();
    for text in [&slashes, &url] {
        let out = scrubber.text(text.as_bytes()).into_owned();
        assert_eq!(String::from_utf8_lossy(&out), format!("{NAME}{padding}"), "{text}");
    }
    for at in 12..end {
        for line in ["\n", "\r\n", "\\n", "\\r\\n", "%0A"] {
            let text = format!("{}{line}{}", &coded[..at], &coded[at..]);
            let out = scrubber.text(text.as_bytes()).into_owned();
            assert_eq!(String::from_utf8_lossy(&out), format!("{NAME}{padding}"), "{text}");
        }
    }
}

#[test]
fn b05_scrubber_finds_a_value_outside_ascii() {
    let value = "pässwörd-€-𝄞-ключ";
    let scrubber = scrubber(&[("github", value.as_bytes())]);
    let escaped: String = value.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    let latin1: String = value.bytes().map(char::from).collect();
    let latin1_escaped: String = value.bytes().map(|b| format!("\\u{b:04x}")).collect();
    let url: String = value.bytes().map(percent).collect();
    let partly: String = value
        .chars()
        .map(|c| match c {
            '€' => "%e2\u{fffd}".replace('\u{fffd}', "%82%AC"),
            'ä' => "&#228;".into(),
            _ => c.to_string(),
        })
        .collect();
    for text in [value.to_owned(), escaped, latin1, latin1_escaped, url, partly] {
        check(&scrubber, text.as_bytes(), NAME.as_bytes());
    }
    let binary = [0xff, 0xfe, 0, 1, 2, 0x80, 0x81, 0xc3, b'%'];
    let scrubber = self::scrubber(&[("github", &binary)]);
    check(&scrubber, &binary, NAME.as_bytes());
    check(&scrubber, b"x%ff%Fe%00%01%02%80%81%C3%25y", b"x[belljar:github]y");
}

#[test]
fn b06_scrubber_finds_every_encoding_at_every_split_of_the_stream() {
    for (name, spelled) in spellings() {
        // Surrounding text that can and cannot be mistaken for a part of the value.
        for (before, after) in
            [("", ""), ("{\"a\":\"", "\"}"), ("ghp_A", "ghp_Az0"), ("g%6", "\\u00")]
        {
            let text = format!("{before}{spelled}{after}");
            let expected = format!("{before}{NAME}{after}");
            println!("{name}: {text}");
            check(&github(), text.as_bytes(), expected.as_bytes());
        }
    }
    for offset in 0..3 {
        let text = STANDARD.encode([vec![b'?'; offset], VALUE.into(), b"?".to_vec()].concat());
        let expected = github().text(text.as_bytes()).into_owned();
        assert!(expected.starts_with(&text.as_bytes()[..offset * 8 / 6]), "{text}");
        check(&github(), text.as_bytes(), &expected);
    }
}

#[test]
fn b06_scrubber_holds_back_only_possible_starts_of_a_value() {
    let scrubber = scrubber(&[("github", b"ghp_0123456789abcdef")]);
    let mut stream = scrubber.stream();
    let mut out = Vec::new();
    // An event of a stream is forwarded completely and at once.
    for event in ["data: {\"text\":\"hello\"}\n\n", "event: ping\n\n", "data: [DONE]\n\n"] {
        out.clear();
        stream.push(event.as_bytes(), &mut out);
        assert_eq!(out, event.as_bytes());
    }
    out.clear();
    stream.push(b"data: ghp_012345", &mut out);
    assert_eq!((out.as_slice(), stream.held()), (&b"data: "[..], 10));
    stream.push(b"x, and more", &mut out);
    assert_eq!((out.as_slice(), stream.held()), (&b"data: ghp_012345x, and more"[..], 0));
}

#[test]
fn scrubber_replaces_overlapping_values_together() {
    let both = scrubber(&[("one", b"aaaabbbbcccc"), ("two", b"bbbbccccdddd"), ("in", b"abbbbccc")]);
    check(&both, b"-aaaabbbbccccdddd-", b"-[belljar:one][belljar:two]-");
    check(&both, b"-aaaabbbbcccc-bbbbccccdddd-", b"-[belljar:one]-[belljar:two]-");
    check(&both, b"-aabbbbcccd-", b"-a[belljar:in]d-");
    let nested = scrubber(&[("short", b"abcdefgh"), ("long", b"abcdefghijkl")]);
    check(&nested, b"abcdefghijk", b"[belljar:short]ijk");
    check(&nested, b"abcdefghijkl", b"[belljar:long]");
    check(&nested, b"abcdefghabcdefghijkl", b"[belljar:short][belljar:long]");
    let row = scrubber(&[("row", b"aaaaaaaa")]);
    check(&row, b"-aaaaaaaaaaaaaaaaaaaaa-", b"-[belljar:row]-");
    check(&row, b"-aaaaaaa-", b"-aaaaaaa-");
}

#[test]
fn scrubber_finds_a_value_made_of_escapes_plain_and_decoded() {
    for value in ["%25%25%25", "\\\\\\\\\\\\\\\\", "&amp;&amp;", "%2525252525"] {
        let scrubber = scrubber(&[("github", value.as_bytes())]);
        let json = value.replace('\\', "\\\\");
        let url: String = value.bytes().map(percent).collect();
        for text in [value.to_owned(), json, url, value.replace('&', "&amp;")] {
            let out = scrubber.text(text.as_bytes()).into_owned();
            assert_eq!(String::from_utf8_lossy(&out), NAME, "{value} in {text}");
        }
    }
}

#[test]
fn b07_scrubber_replaces_a_truncated_value_at_the_end() {
    let value = b"ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    let scrubber = scrubber(&[("github", value)]);
    for len in 16..value.len() {
        let text = [b"token=", &value[..len]].concat();
        check(&scrubber, &text, b"token=[belljar:github]");
        let coded = STANDARD.encode(value);
        let out = scrubber.text(&coded.as_bytes()[..len * 4 / 3 + 1]).into_owned();
        assert_eq!(String::from_utf8_lossy(&out), NAME);
    }
    // The broker's limits apply after scrubbing, so they leave no prefix of a value.
    let mut stream = scrubber.stream();
    let mut out = Vec::new();
    stream.push(&value[..39], &mut out);
    assert!(out.is_empty(), "no byte of an incomplete value is forwarded");
}

#[test]
fn b09_scrubber_does_not_replace_a_short_prefix_of_a_value() {
    // Shorter starts are forwarded; otherwise a box could guess a value byte by byte.
    let value = b"ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    let scrubber = scrubber(&[("github", value)]);
    for len in 0..16 {
        let text = [b"token=", &value[..len]].concat();
        check(&scrubber, &text, &text);
    }
}

#[test]
fn b09_scrubber_does_not_replace_other_values() {
    let other = "ghp_another-secret-of-another-host";
    let text = format!("{VALUE} {other} {}", hex::encode(other));
    let out = github().text(text.as_bytes()).into_owned();
    let expected = format!("{NAME} {other} {}", hex::encode(other));
    assert_eq!(String::from_utf8_lossy(&out), expected);
    // The replacement reveals only the name, not even the length.
    let long = scrubber(&[("github", &[b'x'; 500])]);
    assert_eq!(long.text(&[b'x'; 500]).len(), NAME.len());
}

#[test]
fn b09_scrubber_refuses_values_that_are_too_short() {
    for short in ["", "a", "1234567"] {
        let values = [("pin".to_owned(), short.as_bytes())];
        let refused = TooShort { name: "pin".to_owned() };
        assert_eq!(Scrubber::new(&values).unwrap_err(), refused);
        assert_eq!(Finder::new(&values).unwrap_err(), refused);
    }
    assert!(Scrubber::new(&[("pin".to_owned(), b"12345678")]).is_ok());
    assert!(Scrubber::new(&[]).unwrap().is_empty());
}

#[test]
fn debug_output_of_a_scrubber_does_not_contain_the_value() {
    let scrubber = github();
    let mut stream = scrubber.stream();
    stream.push(&VALUE.as_bytes()[..12], &mut Vec::new());
    let shown = format!("{scrubber:?} {stream:?}");
    assert!(shown.contains("github") && !shown.contains("ghp"), "{shown}");
}

#[test]
fn finder_returns_the_name_of_a_value_for_every_encoding_and_split() {
    let finder = Finder::new(&[
        ("other".to_owned(), b"bj_another_placeholder"),
        ("github".to_owned(), VALUE.as_bytes()),
    ]);
    let finder = finder.unwrap();
    assert_eq!(finder.text(b"no placeholder here"), None);
    for (name, spelled) in spellings() {
        let text = format!("a={spelled}&b");
        assert_eq!(finder.text(text.as_bytes()), Some("github"), "{name}");
        for at in 0..text.len() {
            let (one, two) = text.as_bytes().split_at(at);
            let mut stream = finder.stream();
            let found = stream.push(one).is_some() || stream.push(two).is_some();
            assert!(found || stream.finish().is_err(), "{name} cut at {at}");
            let mut stream = finder.stream();
            let gone = stream.guard(Bytes::copy_from_slice(one)).map(|bytes| bytes.len());
            assert!(gone.is_err() || gone == Ok(at.min(2)), "{name}: {gone:?} of {at} went on");
        }
    }
}

/// Returns one character, plain or as one of its escapes.
fn spell(c: char, how: u8) -> String {
    let code = u32::from(c);
    match how {
        0 => format!("%{code:02x}"),
        1 => format!("%{code:02X}"),
        2 => format!("\\u{code:04x}"),
        3 => format!("&#{code};"),
        4 => format!("\\\\\\u{code:04X}"),
        5 => format!("%25{code:02x}"),
        _ => c.to_string(),
    }
}

prop_compose! {
    /// Generates a value with random escapes.
    fn spelled(values: Vec<&'static str>)(
        which in 0..values.len(),
        hows in prop::collection::vec(0_u8..24, 64),
    ) -> (usize, String) {
        let text = values[which].chars().zip(hows).map(|(c, how)| spell(c, how)).collect();
        (which, text)
    }
}

const VALUES: [&str; 4] = ["aabaabaaba", "baabaabb", "ghp_%41\\n&x;", "ab/+ab/+ab/+"];

fn four() -> Scrubber {
    scrubber(
        &["a", "b", "c", "d"]
            .map(|name| (name, VALUES[usize::from(name.as_bytes()[0] - b'a')].as_bytes())),
    )
}

/// Returns the scrubbed text by trying every encoding at every position, without streaming.
fn reference(scrubber: &Scrubber, text: &[u8]) -> Vec<u8> {
    let (mut out, mut done, mut last) = (Vec::new(), 0, None);
    for at in 0..text.len() {
        if let Some((end, secret)) = scrubber.values().search.brute(text, at)
            && end > done
        {
            if at >= done {
                out.extend_from_slice(&text[done..at]);
                last = None;
            }
            if last != Some(secret) {
                out.extend_from_slice(
                    format!("[belljar:{}]", scrubber.values().names[secret]).as_bytes(),
                );
                last = Some(secret);
            }
            done = end;
        }
    }
    out.extend_from_slice(&text[done..]);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Checks that exactly the values are replaced in text that cannot be part of a value.
    #[test]
    fn scrubber_replaces_a_value_with_any_mix_of_escapes(
        parts in prop::collection::vec((" [ -,.!XYZ]{0,12}", spelled(VALUES.to_vec())), 1..6),
        cuts in prop::collection::vec(0..400_usize, 0..6),
    ) {
        let text: String = parts.iter().map(|(before, (_, value))| format!("{before}{value}")).collect();
        let expected: String = parts
            .iter()
            .map(|(before, (which, _))| format!("{before}[belljar:{}]", ["a", "b", "c", "d"][*which]))
            .collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]);
        let out = in_pieces(&four(), pieces);
        prop_assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    /// Checks that a stream returns the same output as the reference, for text that resembles a
    /// value.
    #[test]
    fn scrubbed_stream_equals_the_output_of_a_brute_force_search(
        text in "(aab|ab|b|a|aabaabaaba|%61|%62|\\\\u0061|%|&#97;|\\\\|ghp_|%2541|n&|x;|61|YWFi|/|\\+){0,40}",
        cuts in prop::collection::vec(0..400_usize, 0..6),
    ) {
        let scrubber = four();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]);
        let expected = reference(&scrubber, text.as_bytes());
        let out = in_pieces(&scrubber, pieces);
        prop_assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&expected));
    }

    /// Checks that a random value is found in random bytes.
    #[test]
    fn scrubber_finds_a_random_value_in_random_bytes(
        value in prop::collection::vec(any::<u8>(), 8..40),
        before in prop::collection::vec(any::<u8>(), 0..60),
        after in prop::collection::vec(any::<u8>(), 0..60),
        cut in 0..160_usize,
    ) {
        let scrubber = scrubber(&[("v", &value)]);
        let text = [before, value.clone(), after].concat();
        let (one, two) = text.split_at(cut.min(text.len()));
        let out = in_pieces(&scrubber, [one, two]);
        prop_assert_eq!(&out, &reference(&scrubber, &text));
        prop_assert!(!out.windows(value.len()).any(|window| window == value));
    }
}
