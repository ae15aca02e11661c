//! New sections for TOML files that people write.
//!
//! `toml_edit` writes a section; the text of the file is not written again, because reading and writing
//! a whole file with `toml_edit` changes line ends of Windows and the order of dotted keys.

use toml_edit::{DocumentMut, Item, Table, TomlError, Value};

/// The text of a section with the heading `[outer.inner]`.
pub fn section([outer, inner]: [&str; 2], table: Table) -> String {
    let mut document = DocumentMut::new();
    document.insert(outer, Item::Table(parent(inner, Item::Table(table))));
    document.to_string()
}

/// A table that has no heading of its own, with one item in it.
pub fn parent(name: &str, item: Item) -> Table {
    let mut table = Table::new();
    table.set_implicit(true);
    table.insert(name, item);
    table
}

/// A string on one line, whatever it holds: people read it before it is written.
pub fn one_line(text: &str) -> Result<Value, TomlError> {
    // Escapes of JSON mean the same in TOML, which also wants one for DEL.
    let quoted = serde_json::Value::from(text).to_string();
    quoted.replace('\u{7f}', "\\u007f").parse()
}

/// A file's text with sections behind it, after one empty line.
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
    fn sections_are_appended_after_one_empty_line() {
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
    fn names_in_a_heading_are_quoted_where_toml_wants_it() {
        for (name, expected) in [("a-b_1", "[api.a-b_1]\n"), ("a.b", "[api.\"a.b\"]\n")] {
            assert_eq!(section(["api", name], Table::new()), expected);
        }
    }

    #[test]
    fn a_string_stays_on_one_line_and_keeps_its_content() {
        for text in ["", "a\"\nb = 1", "\\", "\u{7f}\u{1b}", "é\u{2028}", "]\n[code]\nyolo = true"]
        {
            let value = one_line(text).unwrap();
            assert_eq!(value.as_str(), Some(text));
            assert_eq!(value.to_string().lines().count(), 1);
        }
    }
}
