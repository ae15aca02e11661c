//! Writes the directory with the inputs of a task.
//!
//! ```text
//! <dir>/NAME           one file per input
//!       prompt         the text of the task, if it has one
//!       item.json      the item of a task with `for_each`
//!       reason.txt     why the last attempt was not accepted
//!       manifest.json  the names, sizes and labels of all inputs
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::supervisor::task_run::open_input;

/// An input of a task: the output of another task or an input of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputFile {
    /// The name that the plan gives to the input, such as `triage`, `fix[0]` or `input.issue`.
    pub name: String,
    /// The file on the host with the content.
    pub content: PathBuf,
    pub labels: Vec<String>,
}

/// The inputs of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskInputs {
    pub files: Vec<InputFile>,
    pub prompt: Option<String>,
    /// The JSON text of the item.
    pub item: Option<String>,
    /// Why the last attempt failed or was rejected. It joins the prompt of this attempt.
    pub reason: Option<String>,
}

/// Names that belong to Belljar.
const OWN: [&str; 4] = ["manifest.json", "prompt", "item.json", "reason.txt"];

impl TaskInputs {
    /// Creates the directory of the inputs. Returns the name of the file for standard input: the single
    /// input, else the manifest.
    ///
    /// The directory is not synced: after a crash of the host the attempt is over.
    pub fn write(&self, dir: &Path) -> io::Result<String> {
        DirBuilder::new().mode(0o700).create(dir)?;
        let mut entries = Vec::new();
        for input in &self.files {
            if !is_file_name(&input.name) || OWN.contains(&input.name.as_str()) {
                let text = format!("`{}` cannot be the file name of an input", input.name);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
            let target = dir.join(&input.name);
            // The box cannot change the file: its mount is read-only.
            if fs::hard_link(&input.content, &target).is_err() {
                copy(&input.content, &target)?;
            }
            let size = fs::metadata(&target)?.len();
            entries.push(json!({"name": input.name, "size": size, "labels": input.labels}));
        }
        let create = |name: &str, text: &str| {
            File::create_new(dir.join(name)).and_then(|mut file| file.write_all(text.as_bytes()))
        };
        let mut manifest = serde_json::Map::new();
        manifest.insert("version".to_owned(), json!(1));
        manifest.insert("inputs".to_owned(), entries.into());
        let own = [
            ("prompt", "prompt", self.prompt.clone()),
            ("item", "item.json", self.item.clone()),
            ("reason", "reason.txt", self.reason.clone()),
        ];
        for (key, name, text) in own {
            if let Some(text) = text {
                create(name, &text)?;
                manifest.insert(key.to_owned(), json!(name));
            }
        }
        let manifest = serde_json::Value::from(manifest);
        create("manifest.json", &format!("{manifest:#}\n"))?;
        Ok(match self.files.as_slice() {
            [single] => single.name.clone(),
            _ => "manifest.json".to_owned(),
        })
    }
}

/// Returns whether a name is one component of a path.
fn is_file_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && name != "."
        && name != ".."
        && !name.contains(['/', '\0'])
}

/// Copies a file that cannot be linked, such as one on another file system.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = open_input(from.parent().unwrap_or(from), &file_name(from))?;
    io::copy(&mut from, &mut File::create_new(to)?).map(drop)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(dir: &Path, name: &str, text: &str) -> InputFile {
        let content = dir.join(format!("content-{}", name.replace('/', "-")));
        fs::write(&content, text).unwrap();
        InputFile { name: name.to_owned(), content, labels: vec!["untrusted".to_owned()] }
    }

    #[test]
    fn single_input_is_the_standard_input_and_several_have_a_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let one = TaskInputs { files: vec![input(dir.path(), "a", "A")], ..TaskInputs::default() };
        assert_eq!(one.write(&dir.path().join("one")).unwrap(), "a");
        let files = vec![input(dir.path(), "a", "A"), input(dir.path(), "fix[0]", "BB")];
        let two = TaskInputs {
            files,
            prompt: Some("do".to_owned()),
            item: Some("1".to_owned()),
            ..TaskInputs::default()
        };
        let at = dir.path().join("two");
        assert_eq!(two.write(&at).unwrap(), "manifest.json");
        let manifest: serde_json::Value =
            serde_json::from_slice(&fs::read(at.join("manifest.json")).unwrap()).unwrap();
        assert_eq!(manifest["inputs"][1]["name"], "fix[0]");
        assert_eq!(manifest["inputs"][1]["size"], 2);
        assert_eq!(
            (&manifest["prompt"], &manifest["item"]),
            (&json!("prompt"), &json!("item.json"))
        );
        assert_eq!(fs::read_to_string(at.join("fix[0]")).unwrap(), "BB");
        assert_eq!(fs::read_to_string(at.join("prompt")).unwrap(), "do");
    }

    #[test]
    fn input_name_cannot_leave_the_directory_or_replace_a_file_of_belljar() {
        let dir = tempfile::tempdir().unwrap();
        for (number, name) in
            ["../x", "..", "", "a/b", "manifest.json", "prompt"].iter().enumerate()
        {
            let files = vec![input(dir.path(), name, "x")];
            let inputs = TaskInputs { files, ..TaskInputs::default() };
            let error = inputs.write(&dir.path().join(number.to_string())).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        assert!(!dir.path().join("x").exists());
    }
}
