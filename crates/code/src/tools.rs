//! File tools: read, write, edit, glob and grep, each as a small program that runs inside a box.
//!
//! The host itself never opens a path that a caller named.

use serde::{Deserialize, Serialize};

use belljar_wire::{Dialect, Script};

/// The arguments of the tool that reads a text file or some of its lines.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    path: String,
    /// The number of the first line that is read, counted from 1.
    #[serde(default)]
    offset: Option<u64>,
    /// The maximum number of lines that are read.
    #[serde(default)]
    limit: Option<u64>,
}

/// The arguments of the tool that writes a file and creates its parent directories.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    path: String,
    content: String,
}

/// The arguments of the tool that edits a file: either all replacements are made or none.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EditFile {
    path: String,
    edits: Vec<Replacement>,
}

/// One replacement. The search text must occur exactly once.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replacement {
    search: String,
    replace: String,
}

/// The arguments of the tool that lists files whose path matches a pattern.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Glob {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    limit: Option<u64>,
}

/// The arguments of the tool that finds lines that match a regular expression.
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

/// Returns the program of the tool that reads a file. Its result is `{ content, lines, truncated
/// }`.
pub fn read_file(arguments: &ReadFile) -> Script {
    script("read_file", include_str!("tools/read_file.js"), arguments)
}

/// Returns the program of the tool that writes a file. Its result is a sentence.
pub fn write_file(arguments: &WriteFile) -> Script {
    script("write_file", include_str!("tools/write_file.js"), arguments)
}

/// Returns the program of the tool that edits a file. Its result is a sentence.
pub fn edit_file(arguments: &EditFile) -> Script {
    script("edit_file", include_str!("tools/edit_file.js"), arguments)
}

/// Returns the program of the tool that lists files. Its result is `{ files, truncated }`.
pub fn glob(arguments: &Glob) -> Script {
    script("glob", include_str!("tools/glob.js"), arguments)
}

/// Returns the program of the tool that finds lines. Its result is `{ matches, truncated }`.
pub fn grep(arguments: &Grep) -> Script {
    script("grep", include_str!("tools/grep.js"), arguments)
}

/// Returns the script of a file tool with its arguments. The caller's arguments are its input and
/// never part of its code.
fn script(name: &str, code: &str, arguments: &impl Serialize) -> Script {
    let input = serde_json::to_string(arguments).expect("plain strings and numbers are JSON");
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
    fn arguments_of_a_file_tool_never_become_code() {
        let hostile = "x\"; process.exit(7); //\u{2028}${1}`\n";
        let arguments = WriteFile { path: hostile.to_owned(), content: hostile.to_owned() };
        let made = write_file(&arguments);
        assert_eq!(
            made.code,
            include_str!("tools/write_file.js"),
            "the code does not depend on the arguments"
        );
        let input: serde_json::Value = serde_json::from_str(&made.input.unwrap()).unwrap();
        assert_eq!(input["path"], hostile);
    }

    #[test]
    fn unknown_and_missing_arguments_of_a_file_tool_are_refused() {
        let unknown = serde_json::from_str::<ReadFile>(r#"{"path":"a","mode":"x"}"#).unwrap_err();
        assert!(unknown.to_string().contains("mode"), "{unknown}");
        assert!(serde_json::from_str::<Grep>("{}").unwrap_err().to_string().contains("pattern"));
    }
}
