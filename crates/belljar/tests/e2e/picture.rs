//! The terminal picture of the README: its text is the output of the real commands.
//!
//! If the picture is outdated, the test fails and writes a new picture to the directory for temporary files of
//! tests, from where it can be copied to `docs/terminal.svg`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::{bin_dir, lab};

/// The commands of the picture, in order.
const COMMANDS: [&str; 6] = [
    "belljar run -- sh -c 'ls ~; rm -r src; echo TODO >> notes.txt; echo evil > .git/hooks/pre-commit'",
    "git status --short                    # your directory is unchanged",
    "belljar diff --stat                   # review the changes; ! marks files that your machine would execute",
    "belljar apply --yes -- notes.txt      # keep one of them",
    "belljar discard --yes                 # delete the others",
    "git status --short",
];
const COLUMN: usize = 8;
const ROW: usize = 19;
const MARGIN: usize = 16;

#[test]
fn readme_picture_shows_the_output_of_the_real_commands() {
    let lab = lab();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin_dir(&lab).display());
    lab.write("src/main.rs", "fn main() {}\n");
    lab.write("notes.txt", "hello\n");
    let identity = "-c user.name=Ada -c user.email=ada@example.com";
    let repository = format!("git init -q . && git add . && git {identity} commit -qm first");
    lab.program("bash").args(["-c", &repository]).succeed();

    let mut lines = Vec::new();
    for command in COMMANDS {
        lines.push(format!("$ {command}"));
        let script = format!("exec 2>&1\n{command}");
        let ended = lab.program("bash").args(["-c", &script]).env("PATH", &path).run();
        assert_eq!(ended.code(), 0, "{command}: {}", ended.out());
        lines.extend(without_run_id(&ended.out()).lines().map(str::to_owned));
    }
    let drawn = svg(&lines);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/terminal.svg");
    let expected = fs::read_to_string(&file).unwrap();
    let current = Path::new(env!("CARGO_TARGET_TMPDIR")).join("terminal.svg");
    if drawn != expected {
        fs::write(&current, &drawn).ok(); // the assertion reports the difference in any case
    }
    let current = current.display();
    assert_eq!(drawn, expected, "docs/terminal.svg is outdated; replace it by {current}");
}

/// Replaces the random run id by a fixed one.
fn without_run_id(output: &str) -> String {
    let is_id =
        |word: &str| word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let words = output.split(' ').map(|word| {
        if is_id(word.trim_end()) {
            word.replace(word.trim_end(), "06gyma0w7ja8az12")
        } else {
            word.into()
        }
    });
    words.collect::<Vec<String>>().join(" ")
}

/// Draws lines of a terminal; commands are brighter than output, comments darker.
fn svg(lines: &[String]) -> String {
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let (width, height) = (columns * COLUMN + 2 * MARGIN, lines.len() * ROW + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"A terminal in which Belljar holds the changes of a program back\">\n\
         <style>text {{ font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #c9d1d9; \
         white-space: pre; }} .command {{ fill: #7ee787; }} .comment {{ fill: #8b949e; }} \
         .marked {{ fill: #ffa198; }}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#0d1117\"/>\n"
    );
    for (index, line) in lines.iter().enumerate() {
        let y = MARGIN + ROW * index + 13;
        let (text, comment) = match line.split_once(" # ") {
            Some((text, comment)) => (text, format!(" # {comment}")),
            None => (line.as_str(), String::new()),
        };
        let class = match text.chars().next() {
            Some('$') => " class=\"command\"",
            Some('!') => " class=\"marked\"",
            _ => "",
        };
        let (text, comment) = (escape(text), escape(&comment));
        writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y}\" xml:space=\"preserve\"{class}>{text}\
             <tspan class=\"comment\">{comment}</tspan></text>"
        )
        .unwrap();
    }
    svg.push_str("</svg>\n");
    svg
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
