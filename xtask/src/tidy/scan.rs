//! A simple scanner for Rust that distinguishes code from comments and literals.
//!
//! It is not a parser: it knows only words, punctuation and braces, which is enough for the rules.

/// Returns Rust code with every comment and literal replaced by spaces. Newlines are kept.
pub(super) fn code_only(text: &str) -> String {
    let mut scanner = Scanner { rest: text, out: String::with_capacity(text.len()) };
    while scanner.step() {}
    scanner.out
}

/// Returns the comments and literals of Rust code, with everything else replaced by spaces. `code` is
/// what [`code_only`] returned for `text`.
pub(super) fn prose_only(text: &str, code: &str) -> String {
    let mask = |(c, kept): (char, char)| if kept == c && c != '\n' { ' ' } else { c };
    text.chars().zip(code.chars()).map(mask).collect()
}

struct Scanner<'a> {
    rest: &'a str,
    out: String,
}

impl Scanner<'_> {
    fn step(&mut self) -> bool {
        let rest = self.rest;
        let Some(first) = rest.chars().next() else { return false };
        if rest.starts_with("//") {
            self.blank(rest.find('\n').unwrap_or(rest.len()));
        } else if rest.starts_with("/*") {
            self.blank(block_comment(rest));
        } else if let Some(length) = raw_string(rest) {
            self.blank(length);
        } else if first == '"' {
            self.blank(quoted(rest, '"'));
        } else if let Some(length) = char_literal(rest) {
            self.blank(length);
        } else if first.is_alphanumeric() || first == '_' {
            // A whole word at once, so that the `r` of `for"` does not start a raw string.
            self.keep(rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len()));
        } else {
            self.keep(first.len_utf8());
        }
        true
    }

    fn keep(&mut self, length: usize) {
        let (kept, rest) = self.rest.split_at(length);
        self.out.push_str(kept);
        self.rest = rest;
    }

    fn blank(&mut self, length: usize) {
        let (blanked, rest) = self.rest.split_at(length);
        self.out.extend(blanked.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }
}

/// Returns the length of a block comment. Block comments can be nested.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(rest) = text.get(at..) {
        let Some(first) = rest.chars().next() else { break };
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += first.len_utf8();
        }
    }
    text.len()
}

/// Returns the length of a raw string, such as `r"…"` or `br#"…"#`, if the text starts with one.
fn raw_string(text: &str) -> Option<usize> {
    let body = ["br", "cr", "r"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let content = body.trim_start_matches('#').strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = content.find(&end).map_or(content.len(), |at| at + end.len());
    Some(text.len() - content.len() + length)
}

/// Returns the length of a literal that starts with a quote and ends at the next unescaped quote.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a character literal, such as `'x'` or `'\n'`, but not of a lifetime.
fn char_literal(text: &str) -> Option<usize> {
    let mut chars = text.strip_prefix('\'')?.chars();
    match (chars.next()?, chars.next()?) {
        ('\\', _) | (_, '\'') => Some(quoted(text, '\'')),
        _ => None,
    }
}

/// A word or a punctuation character of code, with its line number (from 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) line: usize,
}

/// Splits code that [`code_only`] returned into tokens.
pub(super) fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = |c: char| c.is_alphanumeric() || c == '_';
            let length = if word(first) {
                rest.find(|c| !word(c)).unwrap_or(rest.len())
            } else {
                first.len_utf8()
            };
            let (text, after) = rest.split_at(length);
            found.push(Token { text, line: number + 1 });
            rest = after.trim_start();
        }
    }
    found
}

/// Returns the names of functions with `#[test]` or `#[tokio::test]`, with their lines.
pub(super) fn tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut found = Vec::new();
    let mut marked = false;
    for (at, token) in tokens.iter().enumerate() {
        let next = |n: usize| tokens.get(at + n).map_or("", |token| token.text);
        match token.text {
            "test" if next(1) == "]" => marked = true,
            // `#[tokio::test(…)]` has arguments.
            "tokio" if [next(1), next(2), next(3), next(4)] == [":", ":", "test", "("] => {
                marked = true;
            }
            "fn" if marked => {
                marked = false;
                found.extend(tokens.get(at + 1).copied());
            }
            _ => {}
        }
    }
    found
}

/// Returns the first and last line of each `#[cfg(test)] mod … { … }`.
pub(super) fn test_modules(tokens: &[Token<'_>]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let opening = ["#", "[", "cfg", "(", "test", ")", "]", "mod"];
    let texts: Vec<&str> = tokens.iter().map(|token| token.text).collect();
    for (at, window) in texts.windows(opening.len()).enumerate() {
        if window != opening {
            continue;
        }
        let mut depth = 0_usize;
        let body = tokens
            .iter()
            .skip(at + opening.len())
            .skip_while(|token| !matches!(token.text, "{" | ";"));
        for token in body {
            match token.text {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                found.extend(tokens.get(at).map(|first| (first.line, token.line)));
                break;
            }
        }
    }
    found
}

/// Returns the tokens without items that are compiled for tests only.
pub(super) fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let mut kept = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match test_attribute(tokens, at) {
            Some(after) => at = item_end(tokens, after),
            None => {
                kept.push(*token);
                at += 1;
            }
        }
    }
    kept
}

/// Returns the end of `#[cfg(test)]` or `#[cfg(all(test, …))]`, if it starts at this token.
fn test_attribute(tokens: &[Token<'_>], at: usize) -> Option<usize> {
    let starts = |words: &[&str]| {
        let here = tokens.iter().skip(at).map(|token| token.text).take(words.len());
        here.eq(words.iter().copied())
    };
    let is_test = starts(&["#", "[", "cfg", "(", "test", ")", "]"])
        || starts(&["#", "[", "cfg", "(", "all", "(", "test"]);
    is_test.then(|| attribute_end(tokens, at))
}

fn attribute_end(tokens: &[Token<'_>], at: usize) -> usize {
    let close = tokens.iter().skip(at).position(|token| token.text == "]");
    close.map_or(tokens.len(), |length| at + length + 1)
}

/// Returns the end of the item that starts at this token: after its `;`, its `}` or, for a field, its `,`.
fn item_end(tokens: &[Token<'_>], mut at: usize) -> usize {
    while tokens.get(at).is_some_and(|token| token.text == "#") {
        at = attribute_end(tokens, at);
    }
    let mut depth = 0_usize;
    let mut is_item = false;
    let mut ends_with_brace = true;
    while let Some(token) = tokens.get(at) {
        match token.text {
            "use" | "let" | "const" | "static" | "type" if depth == 0 => {
                is_item = true;
                // `const fn` ends with its body.
                ends_with_brace = tokens.get(at + 1).is_some_and(|next| next.text == "fn");
            }
            "fn" | "mod" | "struct" | "enum" | "impl" | "trait" if depth == 0 => is_item = true,
            "{" | "(" | "[" => depth += 1,
            // The end of the block that contains the item.
            "}" | ")" | "]" if depth == 0 => return at,
            "}" if depth == 1 && ends_with_brace => return at + 1,
            "}" | ")" | "]" => depth -= 1,
            ";" if depth == 0 => return at + 1,
            "," if depth == 0 && !is_item => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tests_removes_items_with_cfg_test_and_keeps_the_rest() {
        for (code, expect) in [
            ("a; #[cfg(test)] use crate::{b, c}; d;", "a ; d ;"),
            ("#[cfg(test)] mod tests { fn a() {} } b", "b"),
            ("#[cfg(test)] mod tests; b", "b"),
            ("#[cfg(test)] #[expect(x)] pub(crate) fn a(b: [u8; 4]) -> c { d; } e", "e"),
            ("#[cfg(all(test, unix))] const A: u8 = { 1 }; b", "b"),
            ("#[cfg(test)] const fn a() {} b", "b"),
            ("struct A { #[cfg(test)] b: u8, c: u8 }", "struct A { c : u8 }"),
            ("struct A { #[cfg(test)] b: u8 } c", "struct A { } c"),
            ("#[cfg(not(test))] use a;", "# [ cfg ( not ( test ) ) ] use a ;"),
        ] {
            let left = without_tests(&tokens(code));
            let left: Vec<&str> = left.iter().map(|token| token.text).collect();
            assert_eq!(left.join(" "), expect, "{code}");
        }
    }

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let code = code_only(text);
        assert_eq!(code.lines().count(), text.lines().count(), "{code:?}");
        assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), expect);
    }

    #[test]
    fn code_only_blanks_comments_and_literals_and_keeps_code() {
        check("a // unsafe\nb", "a b");
        check("a /* x /* unsafe */ y */ b", "a b");
        check(r#"a("unsafe \" still", b)"#, "a( , b)");
        check("a(r#\"unsafe \" still\"#, b)", "a( , b)");
        check(r#"a(br"\", c"x", b)"#, "a( , c , b)");
        check(r"m(b'\'', '\u{7f}', 'x', c)", "m(b , , , c)");
        check("fn f<'a>(x: &'a str, y: &'a str)", "fn f<'a>(x: &'a str, y: &'a str)");
        check("let r#unsafe = for_r; \"x\"", "let r#unsafe = for_r;");
        check("\"ä\" é 'ü'", "é");
        check("/* never closed", "");
    }

    #[test]
    fn prose_only_keeps_comments_and_literals_and_blanks_code() {
        let text = "let a = \"é text\"; // a comment\nlet b = 'x';";
        let prose = prose_only(text, &code_only(text));
        assert_eq!(prose, "        \"é text\"  // a comment\n        'x' ");
    }

    #[test]
    fn tests_finds_test_functions_with_other_attributes_and_with_arguments() {
        let code = "#[test]\n#[should_panic]\nfn one() {}\nfn two() {}\n#[tokio::test]\npub async fn three() {}\n#[tokio::test(start_paused = true)]\nasync fn four() {}";
        let tokens = tokens(code);
        let names: Vec<_> = tests(&tokens).iter().map(|token| (token.text, token.line)).collect();
        assert_eq!(names, [("one", 3), ("three", 6), ("four", 8)]);
    }

    #[test]
    fn test_modules_returns_the_first_and_last_line_of_each_test_module() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { {} }\n}\nfn c() {}\n#[cfg(test)]\nmod far;\n";
        assert_eq!(test_modules(&tokens(code)), [(2, 5), (7, 8)]);
    }
}
