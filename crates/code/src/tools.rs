//! Tools that work on files: small programs for the engine, so that nothing on the host opens a path
//! that a caller named.

use serde::{Deserialize, Serialize};

use belljar_wire::{Dialect, Script};

/// A text file, or some of its lines.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    path: String,
    /// The first line, from 1.
    #[serde(default)]
    offset: Option<u64>,
    /// How many lines.
    #[serde(default)]
    limit: Option<u64>,
}

/// A file, with the directories above it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    path: String,
    content: String,
}

/// Replacements, of which all are done or none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditFile {
    path: String,
    edits: Vec<Replacement>,
}

/// One that must fit exactly once.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    search: String,
    replace: String,
}

/// Files by their path.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Glob {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    limit: Option<u64>,
}

/// Lines by what is in them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grep {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    glob: Option<String>,
    #[serde(default)]
    limit: Option<u64>,
}

/// Gives `{ content, lines, truncated }`.
pub fn read_file(asked: &ReadFile) -> Script {
    script("read_file", include_str!("tools/read_file.js"), asked)
}

/// Gives a sentence.
pub fn write_file(asked: &WriteFile) -> Script {
    script("write_file", include_str!("tools/write_file.js"), asked)
}

/// Gives a sentence.
pub fn edit_file(asked: &EditFile) -> Script {
    script("edit_file", include_str!("tools/edit_file.js"), asked)
}

/// Gives `{ files, truncated }`.
pub fn glob(asked: &Glob) -> Script {
    script("glob", include_str!("tools/glob.js"), asked)
}

/// Gives `{ matches, truncated }`.
pub fn grep(asked: &Grep) -> Script {
    script("grep", include_str!("tools/grep.js"), asked)
}

/// The program of a tool. What the caller said is its input and never a part of its text.
fn script(name: &str, code: &str, asked: &impl Serialize) -> Script {
    let input = serde_json::to_string(asked).expect("plain strings and numbers are JSON");
    Script {
        code: code.to_owned(),
        language: Dialect::Js,
        file: format!("{name}.js"),
        input: Some(input),
        modules: Vec::new(),
        apis: Vec::new(),
        tools: Vec::new(),
        memory: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_says_is_data_and_never_text_of_the_program() {
        let hostile = "x\"; process.exit(7); //\u{2028}${1}`\n";
        let asked = WriteFile { path: hostile.to_owned(), content: hostile.to_owned() };
        let made = write_file(&asked);
        assert_eq!(made.code, include_str!("tools/write_file.js"), "whatever was said");
        let input: serde_json::Value = serde_json::from_str(&made.input.unwrap()).unwrap();
        assert_eq!(input["path"], hostile);
    }

    #[test]
    fn what_a_tool_does_not_know_is_refused() {
        let unknown = serde_json::from_str::<ReadFile>(r#"{"path":"a","mode":"x"}"#).unwrap_err();
        assert!(unknown.to_string().contains("mode"), "{unknown}");
        assert!(serde_json::from_str::<Grep>("{}").unwrap_err().to_string().contains("pattern"));
    }
}
