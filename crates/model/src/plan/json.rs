//! A reader for JSON (RFC 8259) that keeps the position of each value, which `serde_json` does not.
//!
//! It finds the structure; `serde_json` decodes the strings. Keys that occur twice in one object are
//! refused: readers differ in which of them counts.

use std::collections::BTreeSet;

use super::fault::{Collector, quote};
use super::node::{
    Key, LineStarts, MAX_NESTING, MAX_VALUES, Node, NodeValue, number, out_of_range, too_deep,
    too_many,
};

/// Returns the tree of a JSON document, or `None` if the document is invalid.
pub(super) fn read(text: &str, lines: &LineStarts, faults: &mut Collector) -> Option<Node> {
    let mut reader = Reader { text, at: 0, values: 0, duplicates: Vec::new() };
    let node = reader.document();
    for key in &reader.duplicates {
        faults.add(lines.line(key.at.start), || format!("duplicate key `{}`", quote(&key.text)));
    }
    match node {
        Ok(node) => Some(node),
        Err(SyntaxError { at, reason }) => {
            faults.add(lines.line(at), || reason);
            None
        }
    }
}

/// The first error of the document.
struct SyntaxError {
    at: usize,
    reason: String,
}

struct Reader<'t> {
    text: &'t str,
    /// The position of the next byte.
    at: usize,
    values: usize,
    duplicates: Vec<Key>,
}

impl<'t> Reader<'t> {
    fn document(&mut self) -> Result<Node, SyntaxError> {
        let node = self.value(0)?;
        match self.peek() {
            None => Ok(node),
            Some(_) => Err(self.error("expected the end of the file")),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, SyntaxError> {
        let first = self.peek();
        let start = self.at;
        self.values += 1;
        if depth > MAX_NESTING {
            return Err(self.error(&too_deep()));
        }
        if self.values > MAX_VALUES {
            return Err(self.error(&too_many()));
        }
        let value = match first {
            Some(b'{') => self.table(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => NodeValue::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => NodeValue::Number(self.number()?),
            Some(_) => self.word()?,
            None => return Err(self.error("expected a value, but the file ends")),
        };
        Ok(Node { at: start..self.at, value })
    }

    fn table(&mut self, depth: usize) -> Result<NodeValue, SyntaxError> {
        self.at += 1;
        let (mut entries, mut seen) = (Vec::new(), BTreeSet::new());
        if self.take(b'}') {
            return Ok(NodeValue::Table(entries));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.error("expected a key in double quotes"));
            }
            let start = self.at;
            let text = self.string()?;
            let key = Key { at: start..self.at, text };
            if !self.take(b':') {
                return Err(self.error("expected `:` after the key"));
            }
            let node = self.value(depth + 1)?;
            match seen.insert(key.text.clone()) {
                true => entries.push((key, node)),
                false => self.duplicates.push(key),
            }
            if self.take(b'}') {
                return Ok(NodeValue::Table(entries));
            }
            if !self.take(b',') {
                return Err(self.error("expected `,` or `}`"));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<NodeValue, SyntaxError> {
        self.at += 1;
        let mut nodes = Vec::new();
        if self.take(b']') {
            return Ok(NodeValue::List(nodes));
        }
        loop {
            nodes.push(self.value(depth + 1)?);
            if self.take(b']') {
                return Ok(NodeValue::List(nodes));
            }
            if !self.take(b',') {
                return Err(self.error("expected `,` or `]`"));
            }
        }
    }

    /// Reads a string that starts at the current position.
    fn string(&mut self) -> Result<String, SyntaxError> {
        let rest = self.rest();
        let mut escaped = false;
        let end = rest.bytes().skip(1).position(|byte| {
            let is_end = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            is_end
        });
        let Some(length) = end else { return Err(self.error("the string has no end")) };
        let literal = rest.get(..length + 2).unwrap_or_default();
        let text = serde_json::from_str(literal).map_err(|_| {
            self.error(
                "the string has an invalid escape or a control character that is not escaped",
            )
        })?;
        self.at += literal.len();
        Ok(text)
    }

    fn number(&mut self) -> Result<serde_json::Number, SyntaxError> {
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let length = self.rest().bytes().take_while(is_part).count();
        let digits = self.rest().get(..length).unwrap_or_default();
        // Checks the syntax, which is stricter than that of Rust.
        if let Err(error) = serde_json::from_str::<serde_json::Number>(digits) {
            let range = error.to_string().contains("out of range");
            return Err(match range {
                true => self.error(&out_of_range()),
                false => self.error("invalid number"),
            });
        }
        let number = number(digits, 10).ok_or_else(|| self.error(&out_of_range()))?;
        self.at += length;
        Ok(number)
    }

    fn word(&mut self) -> Result<NodeValue, SyntaxError> {
        let words = [
            ("null", NodeValue::Null),
            ("true", NodeValue::Boolean(true)),
            ("false", NodeValue::Boolean(false)),
        ];
        let found = words.into_iter().find(|(word, _)| self.rest().starts_with(word));
        let (word, value) = found.ok_or_else(|| self.error("expected a value"))?;
        self.at += word.len();
        Ok(value)
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Skips whitespace and returns the next byte.
    fn peek(&mut self) -> Option<u8> {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += self.rest().bytes().take_while(is_space).count();
        self.rest().bytes().next()
    }

    /// Skips whitespace, and the byte if it is the next one.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn error(&self, reason: &str) -> SyntaxError {
        SyntaxError { at: self.at, reason: reason.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<serde_json::Value, String> {
        let mut faults = Collector::new("x.json");
        let node = read(text, &LineStarts::of(text), &mut faults);
        let faults = faults.finish(()).map_err(|faults| faults.to_string());
        faults.map(|()| node.unwrap().json().unwrap())
    }

    #[test]
    fn reader_accepts_the_same_documents_as_serde_json() {
        for text in [
            "{}",
            "[]",
            " [1, -2.5e3, true, false, null, \"\\u00e9\\n\"] ",
            "{\"a\":{\"b\":[{}]}}",
            "\"\"",
            "0",
            "-0",
            "1e2",
            "18446744073709551615",
            "-9223372036854775808",
            "{\"a\":1,}",
            "[1,]",
            "[1 2]",
            "{a:1}",
            "{\"a\" 1}",
            "tru",
            "01",
            "1.",
            "+1",
            "--1",
            "\"a",
            "\"\\x\"",
            "\"\n\"",
            "\"\\ud800\"",
            "",
            " ",
            "[",
            "{",
            "{}{}",
            "nullx",
            "'a'",
        ] {
            let expect = serde_json::from_str::<serde_json::Value>(text);
            assert_eq!(parse(text).is_ok(), expect.is_ok(), "{text}");
            if let (Ok(found), Ok(expect)) = (parse(text), expect) {
                assert!(found == expect || text == "-0", "{text}: {found}");
            }
        }
    }

    #[test]
    fn syntax_error_has_its_line() {
        assert_eq!(parse("{\n\"a\": 1\n\"b\": 2}"), Err("x.json:3: expected `,` or `}`".into()));
        assert_eq!(parse("[\n\n1e999]"), Err(format!("x.json:3: {}", out_of_range())));
        assert_eq!(parse("[\n99999999999999999999]"), Err(format!("x.json:2: {}", out_of_range())));
    }

    #[test]
    fn h14_duplicate_keys_of_json_objects_are_refused() {
        let error =
            parse("{\"a\": 1,\n\"b\": {\"c\": 1,\n\"c\": 2},\n\"\\u0061\": 3}").unwrap_err();
        assert_eq!(error, "x.json:3: duplicate key `c`\nx.json:4: duplicate key `a`");
    }

    #[test]
    fn h14_deeply_nested_json_is_refused_without_a_stack_overflow() {
        for open in ["[", "{\"a\":"] {
            let error = parse(&open.repeat(500_000)).unwrap_err();
            assert!(error.contains("nested more than 64 levels"), "{error}");
        }
        let deep = format!("{}1{}", "[".repeat(MAX_NESTING), "]".repeat(MAX_NESTING));
        assert!(parse(&deep).is_ok());
    }
}
