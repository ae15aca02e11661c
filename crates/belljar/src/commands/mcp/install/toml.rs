//! Sets one table of a TOML text and leaves all other bytes unchanged.

use belljar_engine::config::section::{appended, section};
use toml::{Table, Value};
use toml_edit::{DocumentMut, Item};

/// Returns the text with `value` as its table `[outer.inner]`.
pub(super) fn set(
    text: &str,
    path: [&str; 2],
    value: &serde_json::Value,
) -> Result<String, String> {
    let [outer, inner] = path;
    let new = Table::try_from(value).map_err(|error| error.to_string())?;
    let mut expected: Table = text.parse().map_err(|_| "the file is not valid TOML".to_owned())?;
    let servers = expected.entry(outer).or_insert_with(|| Value::Table(Table::new()));
    let Value::Table(servers) = servers else { return Err(format!("`{outer}` is not a table")) };
    let old = servers.insert(inner.to_owned(), Value::Table(new.clone()));
    if old == Some(Value::Table(new)) {
        return Ok(text.to_owned());
    }
    let table = toml_edit::ser::to_document(value).map_err(|error| error.to_string())?;
    let table = table.as_table().clone();
    let is_expected = |new: &String| new.parse::<Table>().is_ok_and(|new| new == expected);
    let with_appended_section =
        old.is_none().then(|| appended(text, &section(path, table.clone())));
    let edited = with_appended_section
        .filter(is_expected)
        .or_else(|| replace_table(text, path, table).filter(is_expected));
    edited.ok_or_else(|| format!("`{outer}` has a format that cannot be edited safely"))
}

/// Returns the text with the old table replaced, or with the table added to an inline table.
fn replace_table(
    text: &str,
    [outer, inner]: [&str; 2],
    mut table: toml_edit::Table,
) -> Option<String> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let text = format!("{text}{end}");
    let mut document: DocumentMut = text.parse().ok()?;
    // `toml_edit` changes some texts, such as those with Windows line ends. Such texts are not edited.
    if document.to_string() != text {
        return None;
    }
    let servers = document.get_mut(outer)?.as_table_like_mut()?;
    match servers.get_mut(inner) {
        Some(Item::Table(old)) => {
            *table.decor_mut() = old.decor().clone();
            table.set_position(old.position());
            *old = table;
        }
        Some(_) | None => drop(servers.insert(inner, Item::Table(table))),
    }
    Some(document.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PATH: [&str; 2] = ["mcp_servers", "belljar"];
    const KEYS: &str = "command = \"b\"\nargs = [\"mcp\"]\nenv = { A = \"1\" }\n";

    fn value() -> serde_json::Value {
        json!({ "command": "b", "args": ["mcp"], "env": { "A": "1" } })
    }

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let new = set(text, PATH, &value()).unwrap();
        assert_eq!(new, expect);
        assert_eq!(set(&new, PATH, &value()).unwrap(), new, "a second edit changes nothing");
    }

    #[test]
    fn toml_edit_appends_a_new_table_and_keeps_all_other_bytes() {
        let section = format!("[mcp_servers.belljar]\n{KEYS}");
        check("", &section);
        for (text, gap) in [
            ("model = 'x' # mine\n", "\n"),
            ("[mcp_servers.other]\ncommand = \"o\"", "\n\n"),
            ("[ a . b ]\r\nx.y = 1\r\nz = 1\r\nx.w = 2\r\n", "\n"),
            ("[z]\nb = 2\n\n# the end\n", "\n"),
        ] {
            check(text, &format!("{text}{gap}{section}"));
        }
    }

    #[test]
    fn toml_edit_replaces_an_existing_table_at_its_position() {
        let old = "command = \"x\"\n[mcp_servers.belljar.env]\nB = \"2\"\n";
        let (before, after) =
            ("a = 1\n# ours\n[mcp_servers.belljar] # old\n", "\n# next\n[z]\nb = 2\n");
        check(&format!("{before}{old}{after}"), &format!("{before}{KEYS}{after}"));
        let before = "text = '''\n[mcp_servers.belljar]\n'''\n[mcp_servers . \"belljar\"]\n";
        check(&format!("{before}command = 'x'"), &format!("{before}{KEYS}"));
    }

    #[test]
    fn toml_edit_adds_the_table_to_an_inline_table() {
        let inline = "{ command = \"b\", args = [\"mcp\"], env = { A = \"1\" } }";
        for text in ["mcp_servers = {}\n", "mcp_servers = { belljar = { command = 'x' } }\n"] {
            check(text, &format!("mcp_servers = {{ belljar = {inline} }}\n"));
        }
    }

    #[test]
    fn toml_edit_refuses_texts_that_cannot_be_edited_safely() {
        for text in ["mcp_servers = 1", "= 1", "[mcp_servers.belljar]\r\ncommand = 'x'\r\n"] {
            assert!(set(text, PATH, &value()).is_err(), "{text}");
        }
    }
}
