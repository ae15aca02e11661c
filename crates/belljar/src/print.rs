//! The one place that writes to the operator's terminal. Text from a box arrives here sanitised or
//! is sanitised here.
#![expect(clippy::print_stderr, reason = "this is the module that prints")]

use std::io::{self, IsTerminal, Write};

use belljar_model::display;
use serde::Serialize;

/// An error with its causes, one line.
pub(crate) fn error(error: &anyhow::Error) {
    let text: Vec<String> = error.chain().map(ToString::to_string).collect();
    eprintln!("belljar: {}", display::safe_line(text.join(": ")));
}

/// Help, version, or what is wrong with the arguments, which are quoted and so made safe.
pub(crate) fn usage(error: &clap::Error) -> u8 {
    let text = error.render();
    if error.use_stderr() {
        eprint!("{}", display::safe_multiline(text.to_string()));
        return 2;
    }
    let text = if colour() { text.ansi().to_string() } else { text.to_string() };
    out(&text).map_or(1, |()| 0)
}

/// A remark beside the program's own output.
pub(crate) fn note(text: &str) {
    eprintln!("belljar: {}", display::safe_line(text));
}

/// Result text on standard output; a reader that went away is not an error.
pub(crate) fn out(text: &str) -> io::Result<()> {
    finish(io::stdout().lock().write_all(text.as_bytes()))
}

/// One JSON value on a line, in ASCII: what a box chose could steer a terminal in it too.
pub(crate) fn json<T: Serialize>(value: &T) -> io::Result<()> {
    let mut text = ascii(&serde_json::to_string(value).map_err(io::Error::other)?);
    text.push('\n');
    out(&text)
}

/// The same JSON. Beyond ASCII there are only the insides of strings, where an escape means the same.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if matches!(character, ' '..='~') {
            text.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            text.push_str(&format!("\\u{unit:04x}"));
        }
    }
    text
}

/// Whether colours are wanted: a terminal, and nobody said otherwise.
pub(crate) fn colour() -> bool {
    io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Long text through the operator's pager, if there is a terminal to page on.
pub(crate) fn page(text: &str) -> io::Result<()> {
    let lines = text.lines().count();
    let rows =
        rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
    if !io::stdout().is_terminal() || lines < rows {
        return out(text);
    }
    let pager = std::env::var("BELLJAR_PAGER").or_else(|_| std::env::var("PAGER"));
    let pager = pager.unwrap_or_else(|_| "less -FRX".to_owned());
    let mut words = pager.split_whitespace();
    let Some(program) = words.next() else { return out(text) };
    let started = std::process::Command::new(program)
        .args(words)
        .env("LESSSECURE", "1")
        .stdin(std::process::Stdio::piped())
        .spawn();
    let Ok(mut child) = started else { return out(text) };
    if let Some(mut input) = child.stdin.take() {
        finish(input.write_all(text.as_bytes()))?;
    }
    child.wait().map(drop)
}

/// Asks a question on the terminal. Without one the answer is no.
pub(crate) fn confirm(question: &str) -> io::Result<bool> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    eprint!("{} [y/N] ", display::safe_line(question));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn finish(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn f13_json_has_no_byte_that_a_terminal_would_obey() {
        let text = "caf\u{e9} \u{9b}31m \u{202e} \u{1f600} \u{7f} \u{1b}]";
        let json = super::ascii(&serde_json::to_string(text).unwrap());
        assert!(json.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
