//! One table put into a TOML text, with every other byte left as it is.

use belljar_engine::config::section::{appended, section};
use toml::{Table, Value};
use toml_edit::{DocumentMut, Item};

/// The text with `[outer.inner]` as its table for this value.
pub(super) fn set(
    text: &str,
    path: [&str; 2],
    value: &serde_json::Value,
) -> Result<String, String> {
    let [outer, inner] = path;
    let new = Table::try_from(value).map_err(|error| error.to_string())?;
    let mut expected: Table = text.parse().map_err(|_| "this is not TOML".to_owned())?;
    let servers = expected.entry(outer).or_insert_with(|| Value::Table(Table::new()));
    let Value::Table(servers) = servers else { return Err(format!("`{outer}` is no table")) };
    let old = servers.insert(inner.to_owned(), Value::Table(new.clone()));
    if old == Some(Value::Table(new)) {
        return Ok(text.to_owned());
    }
    let table = toml_edit::ser::to_document(value).map_err(|error| error.to_string())?;
    let table = table.as_table().clone();
    let is_right = |new: &String| new.parse::<Table>().is_ok_and(|new| new == expected);
    let behind = old.is_none().then(|| appended(text, &section(path, table.clone())));
    let edited = behind.filter(is_right).or_else(|| within(text, path, table).filter(is_right));
    edited.ok_or_else(|| format!("`{outer}` is written in a way we do not edit"))
}

/// The text with the table in the place of its old one, or within an inline table.
fn within(text: &str, [outer, inner]: [&str; 2], mut table: toml_edit::Table) -> Option<String> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let text = format!("{text}{end}");
    let mut document: DocumentMut = text.parse().ok()?;
    // Writing a document changes some texts, such as line ends of Windows. Those are not edited.
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
    const KEYS: &str = "args = [\"mcp\"]\ncommand = \"b\"\nenv = { A = \"1\" }\n";

    fn value() -> serde_json::Value {
        json!({ "command": "b", "args": ["mcp"], "env": { "A": "1" } })
    }

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let new = set(text, PATH, &value()).unwrap();
        assert_eq!(new, expect);
        assert_eq!(set(&new, PATH, &value()).unwrap(), new, "twice is once");
    }

    #[test]
    fn a_new_table_is_appended_and_all_else_stays() {
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
    fn an_old_table_is_replaced_in_its_place() {
        let old = "command = \"x\"\n[mcp_servers.belljar.env]\nB = \"2\"\n";
        let (before, after) =
            ("a = 1\n# ours\n[mcp_servers.belljar] # old\n", "\n# next\n[z]\nb = 2\n");
        check(&format!("{before}{old}{after}"), &format!("{before}{KEYS}{after}"));
        let before = "text = '''\n[mcp_servers.belljar]\n'''\n[mcp_servers . \"belljar\"]\n";
        check(&format!("{before}command = 'x'"), &format!("{before}{KEYS}"));
    }

    #[test]
    fn an_inline_table_gets_the_new_one() {
        let inline = "{ args = [\"mcp\"], command = \"b\", env = { A = \"1\" } }";
        for text in ["mcp_servers = {}\n", "mcp_servers = { belljar = { command = 'x' } }\n"] {
            check(text, &format!("mcp_servers = {{ belljar = {inline} }}\n"));
        }
    }

    #[test]
    fn texts_that_cannot_be_edited_are_refused() {
        for text in ["mcp_servers = 1", "= 1", "[mcp_servers.belljar]\r\ncommand = 'x'\r\n"] {
            assert!(set(text, PATH, &value()).is_err(), "{text}");
        }
    }
}
