//! Formats new sections to append to TOML files that people edit.
//!
//! Only the new section is formatted with `toml_edit`. The existing text is kept as it is, because
//! formatting a whole file with `toml_edit` changes CRLF line ends and the order of dotted keys.

use toml_edit::{DocumentMut, Item, Table, TomlError, Value};

/// Returns the text of a TOML section with the heading `[outer.inner]`.
pub fn section([outer, inner]: [&str; 2], table: Table) -> String {
    let mut document = DocumentMut::new();
    document.insert(outer, Item::Table(parent(inner, Item::Table(table))));
    document.to_string()
}

/// Returns a table without a heading of its own that contains one item.
pub fn parent(name: &str, item: Item) -> Table {
    let mut table = Table::new();
    table.set_implicit(true);
    table.insert(name, item);
    table
}

/// Returns a TOML string on one line, with all control characters escaped.
pub fn one_line(text: &str) -> Result<Value, TomlError> {
    // The escapes of JSON are valid in TOML, which requires an escape for DEL as well.
    let quoted = serde_json::Value::from(text).to_string();
    quoted.replace('\u{7f}', "\\u007f").parse()
}

/// Returns the text of a file with new sections appended after one empty line.
pub fn appended(old: &str, sections: &str) -> String {
    let gap = match old {
        _ if old.trim_end().is_empty() => "",
        _ if old.ends_with("\n\n") => "",
        _ if old.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    format!("{old}{gap}{sections}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_puts_one_empty_line_before_the_new_sections() {
        for (old, expected) in [
            ("", ""),
            ("\n", "\n"),
            ("# mine", "# mine\n\n"),
            ("[code]\n", "[code]\n\n"),
            ("[code]\r\n", "[code]\r\n\n"),
            ("[code]\n\n", "[code]\n\n"),
        ] {
            assert_eq!(appended(old, "[a]\n"), format!("{expected}[a]\n"), "{old:?}");
        }
    }

    #[test]
    fn section_quotes_names_that_are_not_bare_toml_keys() {
        for (name, expected) in [("a-b_1", "[api.a-b_1]\n"), ("a.b", "[api.\"a.b\"]\n")] {
            assert_eq!(section(["api", name], Table::new()), expected);
        }
    }

    #[test]
    fn one_line_keeps_the_text_and_escapes_line_breaks() {
        for text in ["", "a\"\nb = 1", "\\", "\u{7f}\u{1b}", "é\u{2028}", "]\n[code]\nyolo = true"]
        {
            let value = one_line(text).unwrap();
            assert_eq!(value.as_str(), Some(text));
            assert_eq!(value.to_string().lines().count(), 1);
        }
    }
}
