//! The only module that writes to the user's terminal. Text from a box is sanitised here or before.

use std::io::{self, IsTerminal, Write};
use std::process::Child;

use belljar_engine::error::EngineError;
use belljar_engine::notice::{Notice, Observer};
use belljar_model::display;
use serde::Serialize;

/// Prints the notices of the engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer;

impl Observer for Printer {
    fn notice(&self, notice: &Notice) {
        if let Notice::Logged(line) = notice {
            log_line(line);
        } else {
            note(&notice.to_string());
        }
    }
}

/// Prints an error on one line: what failed, why, and what to do.
pub(crate) fn error(error: &EngineError) {
    err(&format!("belljar: {}\n", display::safe_line(format!("{error:#}"))));
}

/// Prints the help, the version, or an error about the arguments, and returns the exit code.
pub(crate) fn usage(error: &clap::Error) -> u8 {
    let text = error.render();
    if error.use_stderr() {
        let text = text.to_string();
        // Starts like every other error. The quoted arguments can contain control characters.
        let text = text.strip_prefix("error: ").map_or(text.clone(), |it| format!("belljar: {it}"));
        err(&display::safe_multiline(text));
        return 2;
    }
    let text = if colour() { text.ansi().to_string() } else { text.to_string() };
    out(&text).map_or(1, |()| 0)
}

/// Prints a note on standard error, beside the output of the program.
pub(crate) fn note(text: &str) {
    err(&format!("belljar: {}\n", display::safe_line(text)));
}

/// Prints lines on standard error, beside the result on standard output.
pub(crate) fn lines(text: &str) {
    err(&display::safe_multiline(text));
}

/// Returns whether a status line can be shown.
pub(crate) fn has_status() -> bool {
    io::stderr().is_terminal()
}

/// Shows a status in place of the last one. Without a terminal nothing is printed.
pub(crate) fn status(text: &str) {
    if has_status() {
        err(&format!("\r\x1b[K{}", display::safe_line(text)));
    }
}

/// Removes the status line.
pub(crate) fn end_status() {
    if has_status() {
        err("\r\x1b[K");
    }
}

/// Prints a log line of another process of Belljar.
pub(crate) fn log_line(line: &str) {
    err(&format!("{}\n", display::safe_line(line)));
}

/// Prints a question without a line break after it.
pub(crate) fn ask(question: &str) {
    err(&display::safe_multiline(question));
}

/// Writes to standard error. A failure is ignored: there is no other place to report it.
fn err(text: &str) {
    io::stderr().lock().write_all(text.as_bytes()).ok(); // `eprintln!` would panic
}

/// Writes a result to standard output. A closed pipe is not an error.
pub(crate) fn out(text: &str) -> io::Result<()> {
    finish(io::stdout().lock().write_all(text.as_bytes()))
}

/// Prints one JSON value on a line, in ASCII, because text from a box can contain control characters.
pub(crate) fn json<T: Serialize>(value: &T) -> io::Result<()> {
    out(&json_line(value)?)
}

/// Returns one JSON value as an ASCII line.
pub(crate) fn json_line<T: Serialize>(value: &T) -> io::Result<String> {
    let mut text = ascii(&serde_json::to_string(value).map_err(io::Error::other)?);
    text.push('\n');
    Ok(text)
}

/// Escapes all non-ASCII characters of a JSON text. They occur only inside strings.
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

/// Returns whether to print colours: on a terminal, unless `NO_COLOR` or `TERM=dumb` is set.
pub(crate) fn colour() -> bool {
    io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Prints a text with the user's pager if standard output is a terminal.
pub(crate) fn page(text: &str) -> io::Result<()> {
    let mut paged = Paged::new(true);
    paged.write(text)?;
    paged.finish()
}

/// Output that is sent to the user's pager once it is longer than the screen.
#[derive(Debug)]
pub(crate) struct Paged {
    held: String,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    /// A terminal with this number of rows; the text so far may still fit.
    Screen(usize),
    Out,
    Pager(Child),
    /// The reader closed the pipe.
    Gone,
}

/// The number of bytes that are written to a pipe or file at once.
const HELD: usize = 64 << 10;

impl Paged {
    /// Creates an output with a pager if standard output is a terminal and a pager is `wanted`.
    pub(crate) fn new(wanted: bool) -> Self {
        let rows =
            rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
        let on_screen = wanted && io::stdout().is_terminal();
        Self { held: String::new(), sink: if on_screen { Sink::Screen(rows) } else { Sink::Out } }
    }

    /// Adds a text. Returns false if the reader closed the pipe.
    pub(crate) fn write(&mut self, text: &str) -> io::Result<bool> {
        self.held.push_str(text);
        match &self.sink {
            Sink::Screen(rows) if self.held.lines().count() >= *rows => {
                self.sink = pager().map_or(Sink::Out, Sink::Pager);
                self.flush()?;
            }
            Sink::Screen(_) => {}
            Sink::Out | Sink::Pager(_) if self.held.len() >= HELD => self.flush()?,
            Sink::Out | Sink::Pager(_) | Sink::Gone => {}
        }
        Ok(!matches!(self.sink, Sink::Gone))
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        match self.sink {
            Sink::Pager(mut child) => {
                drop(child.stdin.take());
                child.wait().map(drop)
            }
            Sink::Screen(_) | Sink::Out | Sink::Gone => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.held);
        let written = match &mut self.sink {
            Sink::Gone => return Ok(()),
            Sink::Screen(_) | Sink::Out => io::stdout().lock().write_all(text.as_bytes()),
            Sink::Pager(child) => match &mut child.stdin {
                Some(input) => input.write_all(text.as_bytes()),
                None => Ok(()),
            },
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                if let Sink::Pager(child) = &mut self.sink {
                    child.wait()?; // the user left the pager
                }
                self.sink = Sink::Gone;
                Ok(())
            }
            other => other,
        }
    }
}

/// Starts the user's pager.
fn pager() -> Option<Child> {
    let pager = std::env::var("BELLJAR_PAGER").or_else(|_| std::env::var("PAGER"));
    let pager = pager.unwrap_or_else(|_| "less -FRX".to_owned());
    let mut words = pager.split_whitespace();
    let mut command = std::process::Command::new(words.next()?);
    command.args(words).env("LESSSECURE", "1").stdin(std::process::Stdio::piped());
    command.spawn().ok()
}

/// Shows the progress of a long operation on one line of the terminal. Prints nothing elsewhere.
pub(crate) fn progress(text: &str) {
    if io::stderr().is_terminal() {
        err(&format!("\r\x1b[K{}", display::safe_line(text)));
    }
}

/// Waits for the return key. Returns false at the end of the input.
pub(crate) fn pause() -> io::Result<bool> {
    let mut line = String::new();
    Ok(io::stdin().read_line(&mut line)? > 0)
}

/// Asks a yes-or-no question. Returns false if standard input is not a terminal.
pub(crate) fn confirm(question: &str) -> io::Result<bool> {
    if !io::stdin().is_terminal() {
        return Ok(false);
    }
    err(&format!("{} [y/N] ", display::safe_line(question)));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Reads a line from standard input. Returns `None` at the end of the input.
pub(crate) fn answer() -> io::Result<Option<String>> {
    let mut answer = String::new();
    let length = io::stdin().read_line(&mut answer)?;
    Ok((length > 0).then(|| answer.trim().to_owned()))
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
    fn f13_json_output_contains_no_control_characters() {
        let text = "caf\u{e9} \u{9b}31m \u{202e} \u{1f600} \u{7f} \u{1b}]";
        let json = super::ascii(&serde_json::to_string(text).unwrap());
        assert!(json.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
