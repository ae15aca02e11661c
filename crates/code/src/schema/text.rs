//! Converts untrusted text to single TypeScript tokens: literals, keys, comments and identifiers.

use belljar_model::plain;

/// The maximum length of a string literal or a property key, in bytes.
const MAX_LITERAL: usize = 200;

/// Returns a TypeScript string literal, or `None` if the text is too long.
pub fn literal(text: &str) -> Option<String> {
    if text.len() > MAX_LITERAL {
        return None;
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            ' '..='~' => out.push(character),
            other if plain::is_plain(other) => out.push(other),
            other => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out.push('"');
    Some(out)
}

/// Returns a TypeScript property key: an identifier if possible, else a string literal.
pub fn key(name: &str) -> Option<String> {
    if is_identifier(name) && name.len() <= MAX_LITERAL {
        Some(name.to_owned())
    } else {
        literal(name)
    }
}

/// Returns a TypeScript comment of at most `most` characters, or `None` if no visible text remains.
pub fn comment(text: &str, most: usize) -> Option<String> {
    let text = plain::plain(text).text;
    // The text must neither end this comment nor start another one.
    let text = text.replace("*/", "* /").replace("/*", "/ *");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut text = words.join(" ");
    if let Some((at, _)) = text.char_indices().nth(most) {
        text.truncate(at);
        text.push('…');
    }
    (!text.trim().is_empty()).then(|| format!("/** {} */", text.trim()))
}

/// The names with a built-in meaning in JavaScript, which no function can have.
///
/// Objects inherit most of them, and `await` calls `then`.
const BUILT_IN: [&str; 9] = [
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "prototype",
    "then",
    "toJSON",
    "toLocaleString",
    "toString",
    "valueOf",
];

/// Converts a name to a JavaScript identifier. Each invalid character becomes `_`.
pub fn identifier(name: &str) -> String {
    let fits =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '$');
    let mut out: String = name.chars().take(64).map(|c| if fits(c) { c } else { '_' }).collect();
    if out.is_empty() || out.starts_with(|first: char| first.is_ascii_digit()) {
        out.insert(0, '_');
    }
    if BUILT_IN.contains(&out.as_str()) {
        out.push('_');
    }
    out
}

/// Converts a name to a type name in Pascal case: `tree-node` becomes `TreeNode`.
pub fn type_name(name: &str) -> String {
    let words = name.split(|character: char| !character.is_ascii_alphanumeric());
    let mut out = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        let mut letters = word.chars();
        out.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        out.push_str(letters.as_str());
    }
    out.truncate(64);
    match out.starts_with(|first: char| first.is_ascii_alphabetic()) {
        true if RESERVED.contains(&out.as_str()) => format!("{out}Type"),
        true => out,
        false => format!("Type{out}"),
    }
}

/// The names of TypeScript's built-in types.
const RESERVED: [&str; 14] = [
    "Array", "Boolean", "Date", "Error", "Function", "Map", "Number", "Object", "Promise",
    "Record", "RegExp", "Set", "String", "Symbol",
];

fn is_identifier(name: &str) -> bool {
    let mut letters = name.chars();
    let starts = |first: char| first.is_ascii_alphabetic() || matches!(first, '_' | '$');
    letters.next().is_some_and(starts)
        && letters.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '$'))
        && name != "__proto__"
}
