//! Tests of values that are wrapped, cut short, or in unusual escapes and places.

use http::HeaderMap;

use super::*;

/// A value of 41 letters and digits.
const TOKEN: &str = "tokenAz09tokenBy18tokenCx27tokenDw36token";

fn token() -> Scrubber {
    scrubber(&[("github", TOKEN.as_bytes())])
}

#[test]
fn b05_scrubber_finds_base64_with_a_line_break_after_every_digit() {
    for before in 0..3 {
        let text = format!("{}{VALUE}-", "x".repeat(before));
        let encoded = STANDARD.encode(text);
        for at in 1..encoded.len() - 4 {
            for line_break in ["\n", "\r\n", "\\r\\n", "%0A", "\r\n  "] {
                let (one, two) = encoded.split_at(at);
                let text = format!("A line of digits before it {one}{line_break}{two}");
                let seen = github().text(text.as_bytes()).into_owned();
                let seen = String::from_utf8(seen).unwrap();
                assert!(seen.contains(NAME), "{before} {at} {line_break:?}: {seen:?}");
                let rest = two.get(4..12).filter(|rest| rest.len() == 8);
                assert!(rest.is_none_or(|rest| !seen.contains(rest)), "{at}: {seen:?}");
            }
        }
    }
}

#[test]
fn b05_scrubber_finds_wrapped_base64_that_arrives_line_by_line() {
    for length in [19, 64, 76] {
        for before in 0..length {
            let encoded = STANDARD.encode(format!("{}{TOKEN}-", "x".repeat(before)));
            let lines: Vec<Vec<u8>> = encoded
                .as_bytes()
                .chunks(length)
                .map(|line| [line, b"\r\n".as_slice()].concat())
                .collect();
            let seen = in_pieces(&token(), lines.iter().map(Vec::as_slice));
            let seen = String::from_utf8(seen).unwrap().replace("\r\n", "");
            let first = before.div_ceil(3) * 4;
            assert!(seen.contains(NAME), "{length} {before}: {seen}");
            assert!(!seen.contains(&encoded[first..first + 8]), "{length} {before}: {seen}");
        }
    }
}

#[test]
fn b06_line_breaks_do_not_hold_back_ordinary_lines() {
    for line in ["progress 57\n", "data: {\"done\": 1}\n\n", "ghp\n", "hello Z\r\n", "event: x\n\n"]
    {
        let mut stream = github().stream();
        let mut out = Vec::new();
        stream.push(line.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), line);
    }
}

#[test]
fn b05_scrubber_finds_octal_braced_long_and_padded_escapes() {
    let each = |spell: &dyn Fn(u32) -> String| -> String {
        VALUE.chars().map(|c| spell(u32::from(c))).collect()
    };
    for text in [
        each(&|code| format!("\\{code:03o}")),
        each(&|code| format!("\\\\{code:03o}")),
        each(&|code| format!("\\{code:o}")),
        each(&|code| format!("\\u{{{code:x}}}")),
        each(&|code| format!("\\u{{{code:06X}}}")),
        each(&|code| format!("\\x{{{code:x}}}")),
        each(&|code| format!("\\U{code:08x}")),
        each(&|code| format!("&#{code:015};")),
        each(&|code| format!("&#x{code:012x};")),
    ] {
        // Octal escapes without three digits are ambiguous before a digit, so nothing follows.
        check(&github(), format!("a{text}").as_bytes(), format!("a{NAME}").as_bytes());
    }
}

#[test]
fn b07_scrubber_replaces_a_truncated_value_that_text_follows() {
    for kept in 36..TOKEN.len() {
        let text = format!("a {}... b", &TOKEN[..kept]);
        let seen = String::from_utf8(token().text(text.as_bytes()).into_owned()).unwrap();
        assert!(seen.starts_with(&format!("a {NAME}")) && seen.ends_with(" b"), "{kept}: {seen}");
    }
    for kept in 16..TOKEN.len() {
        for (open, close) in
            [("\"", "\""), ("<b>", "</b>"), ("", " is wrong"), ("", "\\n"), ("", "&quot;")]
        {
            let text = format!("a {open}{}{close} b", &TOKEN[..kept]);
            check(&token(), text.as_bytes(), format!("a {open}{NAME}{close} b").as_bytes());
        }
    }
    let hex: String = TOKEN.bytes().map(|byte| format!("{byte:02x}")).collect();
    check(&token(), format!("{}, b", &hex[..80]).as_bytes(), format!("{NAME} b").as_bytes());
    // Control: a short prefix is ordinary text.
    let text = format!("a {} b", &TOKEN[..15]);
    check(&token(), text.as_bytes(), text.as_bytes());
}

#[test]
fn b09_right_bytes_after_a_known_prefix_do_not_change_the_output() {
    // A program that knows the first 16 bytes, as those of many tokens are public, tries the next.
    for after in ["", "\"", " ", " and more text that follows the guess of the program"] {
        let output = |guess: &str| {
            let text = format!("{}{guess}{after}", &TOKEN[..16]);
            String::from_utf8(token().text(text.as_bytes()).into_owned()).unwrap()
        };
        let right = output(&TOKEN[16..17]);
        for guess in "abcXYZ0123456789-_".chars() {
            assert_eq!(output(&guess.to_string()), right, "{guess} {after:?}");
        }
        let longer = output(&TOKEN[16..23]);
        assert_eq!(output("nonsens"), longer, "{after:?}");
    }
}

#[test]
fn b05_header_names_with_an_encoded_value_are_dropped() {
    let hex: String = TOKEN.bytes().map(|byte| format!("{byte:02x}")).collect();
    let percent: String = TOKEN.bytes().map(percent).collect();
    let mixed = format!("{}{}", percent.split_at(30).0, &TOKEN[10..]).to_lowercase();
    let entity: String = TOKEN.bytes().map(|byte| format!("&#{byte}")).collect();
    for name in [TOKEN.to_lowercase(), hex, percent.to_lowercase(), mixed, entity] {
        let mut headers = HeaderMap::new();
        headers
            .insert(http::HeaderName::try_from(format!("x-{name}")).unwrap(), "1".parse().unwrap());
        headers.insert("x-other", "1".parse().unwrap());
        let clean = token().headers(&headers);
        assert_eq!(clean.len(), 1, "{name}");
        assert!(clean.contains_key("x-other"));
    }
}
