//! One table put into a TOML text, with every other byte left as it is.

use toml::{Table, Value};

/// The text with `table` as `[mcp_servers.belljar]`, or whatever `path` says.
pub(super) fn set(text: &str, path: [&str; 2], table: &Table) -> Result<String, String> {
    let [outer, inner] = path;
    let broken = |_| "this is not TOML".to_owned();
    let mut expected: Table = text.parse().map_err(broken)?;
    let servers = expected.entry(outer).or_insert_with(|| Value::Table(Table::new()));
    let Value::Table(servers) = servers else { return Err(format!("`{outer}` is no table")) };
    let is_there = servers.contains_key(inner);
    if servers.insert(inner.to_owned(), Value::Table(table.clone()))
        == Some(Value::Table(table.clone()))
    {
        return Ok(text.to_owned());
    }
    let section = section(path, table)?;
    let new = if is_there { replaced(text, path, &section) } else { appended(text, &section) };
    // The edit is of lines, so what it means is looked at again.
    let is_right = new.parse::<Table>().is_ok_and(|new| new == expected);
    if is_right { Ok(new) } else { Err(format!("`{outer}` is written in a way we do not edit")) }
}

/// The table with its head.
pub(super) fn section([outer, inner]: [&str; 2], table: &Table) -> Result<String, String> {
    let mut plain = Table::new();
    let mut inlined = String::new();
    for (key, value) in table {
        match value {
            Value::Table(_) => inlined.push_str(&format!("{key} = {value}\n")),
            Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_) => {
                plain.insert(key.clone(), value.clone());
            }
        }
    }
    let plain = toml::to_string(&plain).map_err(|error| error.to_string())?;
    Ok(format!("[{outer}.{inner}]\n{plain}{inlined}"))
}

fn appended(text: &str, section: &str) -> String {
    let gap = match text {
        "" => "",
        text if text.ends_with("\n\n") => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    format!("{text}{gap}{section}")
}

/// Exchanges the lines from the table's head to the next head that is not below it.
fn replaced(text: &str, [outer, inner]: [&str; 2], section: &str) -> String {
    let (mut out, mut is_within, mut is_written) = (String::new(), false, false);
    let (own, below) = (format!("[{outer}.{inner}]"), format!("[{outer}.{inner}."));
    let mut held = String::new();
    for line in text.split_inclusive('\n') {
        let head: String = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        if head == own && !is_written {
            out.push_str(section);
            (is_within, is_written) = (true, true);
        } else if is_within && head.starts_with('[') && !head.starts_with(&below) {
            is_within = false;
        }
        // Comments and blank lines before the next head belong to that.
        match (is_within, head.is_empty()) {
            (true, true) => held.push_str(line),
            (true, false) => held.clear(),
            (false, _) => {
                out.push_str(&std::mem::take(&mut held));
                out.push_str(line);
            }
        }
    }
    out.push_str(&held);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        "command = \"b\"\nargs = [\"mcp\"]\nenv = { A = \"1\" }\n".parse().unwrap()
    }

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let new = set(text, ["mcp_servers", "belljar"], &table()).unwrap();
        assert_eq!(new, expect);
        assert_eq!(set(&new, ["mcp_servers", "belljar"], &table()).unwrap(), new, "twice is once");
    }

    const SECTION: &str =
        "[mcp_servers.belljar]\nargs = [\"mcp\"]\ncommand = \"b\"\nenv = { A = \"1\" }\n";

    #[test]
    fn a_table_is_put_in_and_all_else_stays() {
        check("", SECTION);
        check("model = 'x' # mine\n", &format!("model = 'x' # mine\n\n{SECTION}"));
        check(
            "[mcp_servers.other]\ncommand = \"o\"",
            &format!("[mcp_servers.other]\ncommand = \"o\"\n\n{SECTION}"),
        );
        check(
            "a = 1\n[mcp_servers.belljar] # old\ncommand = \"x\"\n[mcp_servers.belljar.env]\nB = \"2\"\n\n# next\n[z]\nb = 2\n",
            &format!("a = 1\n{SECTION}\n# next\n[z]\nb = 2\n"),
        );
    }

    #[test]
    fn what_cannot_be_edited_is_refused() {
        for text in [
            "mcp_servers = 1",
            "mcp_servers = { belljar = { command = 'x' } }",
            "mcp_servers = {}",
            "= 1",
        ] {
            assert!(set(text, ["mcp_servers", "belljar"], &table()).is_err(), "{text}");
        }
    }
}
