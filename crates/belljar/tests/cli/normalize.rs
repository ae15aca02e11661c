//! Replaces values that differ between machines and runs, such as ids and times, by names in brackets.

use belljar_testkit::Lab;

/// Replaces ids, times, hashes, process ids, sizes and temporary paths in a text by names in brackets.
pub(crate) fn normalize(lab: &Lab, text: &str) -> String {
    let dir = lab.dir().display().to_string();
    let text = replace_times(&text.replace(&dir, "[LAB]"));
    replace_ids(&replace_ledger_keys(&replace_json_values(&replace_durations_and_sizes(&text))))
}

/// JSON keys whose values differ between machines, users, files, processes or runs.
const VARYING_JSON_KEYS: [&str; 15] = [
    "boot",
    "clock",
    "cpu_micros",
    "ctime",
    "dev",
    "ino",
    "layers",
    "maker",
    "mtime",
    "peak_memory",
    "peak_memory_bytes",
    "pid",
    "setup_micros",
    "uptime_nano",
    "wall_micros",
];

/// Replaces the values of [`VARYING_JSON_KEYS`] by `[OWN]`: numbers, strings, objects and lists.
fn replace_json_values(text: &str) -> String {
    let mut out = text.to_owned();
    for name in VARYING_JSON_KEYS {
        let key = format!("\"{name}\":");
        let mut parts = out.split(&key);
        let mut replaced = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = match part.chars().next() {
                Some('{') => part.find('}').map(|at| at + 1),
                Some('[') => part.find(']').map(|at| at + 1),
                _ => part.find([',', '}']),
            };
            replaced.push_str(&key);
            replaced.push_str("[OWN]");
            replaced.push_str(&part[end.unwrap_or(0)..]);
        }
        out = replaced;
    }
    out
}

/// Replaces public keys of ledgers, `belljar/ID+HASH+KEY`, by `belljar/[KEY]`.
fn replace_ledger_keys(text: &str) -> String {
    const START: &str = "belljar/";
    let mut parts = text.split(START);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|it: char| it.is_whitespace() || it == '"').unwrap_or(part.len());
        let is_key = end >= 32 && part.bytes().take(32).all(|byte| byte.is_ascii_hexdigit());
        out.push_str(START);
        out.push_str(if is_key { "[KEY]" } else { &part[..end] });
        out.push_str(&part[end..]);
    }
    out
}

/// Replaces run ids, hashes and timestamps in milliseconds or nanoseconds.
fn replace_ids(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    for character in text.chars().chain(['\0']) {
        if character.is_ascii_alphanumeric() {
            word.push(character);
            continue;
        }
        out.push_str(replacement_of_id(&word).unwrap_or(&word));
        word.clear();
        out.push(character);
    }
    out.pop();
    out
}

/// Returns the replacement of a word that is a run id, a hash or a timestamp.
fn replacement_of_id(word: &str) -> Option<&'static str> {
    let is_hex = word.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    let is_base32 = word.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    match word.len() {
        64 if is_hex => Some("[HASH]"),
        13 if is_number => Some("[MILLISECONDS]"),
        19 if is_number => Some("[NANOSECONDS]"),
        // Run ids start with the time, whose first digit is 0 until the year 10889.
        16 if is_base32 && word.starts_with('0') => Some("[ID]"),
        12 if is_hex && word.bytes().any(|byte| byte.is_ascii_digit()) => Some("[SHORT-HASH]"),
        _ => None,
    }
}

/// Replaces times such as `2026-11-16 12:00:00.123Z` and `2026-11-16T12:00:00Z` by `[TIME]`.
fn replace_times(text: &str) -> String {
    const SHAPE: &str = "dddd-dd-dd dd:dd:dd";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let fits = rest.len() >= SHAPE.len()
            && SHAPE.bytes().zip(rest.bytes()).all(|(shape, byte)| match shape {
                b'd' => byte.is_ascii_digit(),
                b' ' => byte == b' ' || byte == b'T',
                other => byte == other,
            });
        let end = fits.then(|| {
            let fraction = rest[SHAPE.len()..].bytes();
            SHAPE.len() + fraction.take_while(|byte| *byte == b'.' || byte.is_ascii_digit()).count()
        });
        match end {
            Some(end) if rest[end..].starts_with('Z') => {
                out.push_str("[TIME]");
                rest = &rest[end + 1..];
            }
            _ => {
                out.push(character);
                rest = &rest[character.len_utf8()..];
            }
        }
    }
    out
}

/// Replaces durations such as `350 µs` and `1.25 s` by `[SPAN]`, and sizes such as `3.1 KiB` by `[SIZE]`.
fn replace_durations_and_sizes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let mut parts = line.split(' ').peekable();
        while let Some(part) = parts.next() {
            let is_number =
                !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            let unit = parts.peek().map(|unit| unit.trim_end_matches([',', '\n', ')', ';']));
            let name = match unit {
                Some("\u{b5}s" | "ms" | "s") => Some("[SPAN]"),
                Some("B" | "KiB" | "MiB" | "GiB") => Some("[SIZE]"),
                _ => None,
            };
            match name.filter(|_| is_number) {
                Some(name) => {
                    let after = parts.next().expect("the unit that was peeked");
                    let kept = after.trim_start_matches(|c: char| c.is_alphabetic());
                    // A column is aligned by the length of its numbers.
                    while out.ends_with("  ") {
                        out.pop();
                    }
                    out.push_str(name);
                    out.push_str(kept);
                }
                None => out.push_str(part),
            }
            if parts.peek().is_some() {
                out.push(' ');
            }
        }
    }
    out
}

#[test]
fn normalize_replaces_ids_times_hashes_and_durations_and_keeps_other_words() {
    for (given, expected) in [
        ("run 01jd3q4m5n6p7r8s ended", "run [ID] ended"),
        ("at 2026-11-16 12:00:00Z, box", "at [TIME], box"),
        ("at 2026-11-16T12:00:00.123456789Z", "at [TIME]"),
        ("in 350 \u{b5}s, 1.25 s", "in [SPAN], [SPAN]"),
        ("3.1 KiB of 512MiB", "[SIZE] of 512MiB"),
        ("total   31.1 KiB  all", "total [SIZE]  all"),
        ("\"created\":1763337600000,", "\"created\":[MILLISECONDS],"),
        (
            "{\"pid\":12,\"mtime\":{\"secs\":1},\"dev\":3}",
            "{\"pid\":[OWN],\"mtime\":[OWN],\"dev\":[OWN]}",
        ),
        ("key belljar/502f306536e0accd24d23d96d19f3b49+4b+Ab/c=", "key belljar/[KEY]"),
        ("in state/belljar/runs", "in state/belljar/runs"),
        ("authentication is 16 letters", "authentication is 16 letters"),
        ("2026-11-16 is a date", "2026-11-16 is a date"),
    ] {
        let text = replace_durations_and_sizes(&replace_times(given));
        let text = replace_ids(&replace_ledger_keys(&replace_json_values(&text)));
        assert_eq!(text, expected);
    }
}
