//! The one place that writes to the operator's terminal. Text from a box arrives here sanitised or
//! is sanitised here.
#![expect(clippy::print_stderr, reason = "this is the module that prints")]

use std::io::{self, IsTerminal, Write};
use std::process::Child;

use belljar_engine::error::EngineError;
use belljar_engine::notice::{Notice, Observer};
use belljar_model::display;
use serde::Serialize;

/// Prints what the engine reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer;

impl Observer for Printer {
    fn notice(&self, notice: &Notice) {
        if let Notice::Logged(line) = notice {
            pass_on(line);
        } else {
            note(&notice.to_string());
        }
    }
}

/// An error with its causes, one line.
pub(crate) fn error(error: &EngineError) {
    eprintln!("belljar: {}", display::safe_line(format!("{error:#}")));
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

/// A line that another of our processes noted.
pub(crate) fn pass_on(line: &str) {
    eprintln!("{}", display::safe_line(line));
}

/// A question at the terminal, without a line break after it.
pub(crate) fn ask(question: &str) {
    eprint!("{}", display::safe_multiline(question));
}

/// Result text on standard output; a reader that went away is not an error.
pub(crate) fn out(text: &str) -> io::Result<()> {
    finish(io::stdout().lock().write_all(text.as_bytes()))
}

/// One JSON value on a line, in ASCII: what a box chose could steer a terminal in it too.
pub(crate) fn json<T: Serialize>(value: &T) -> io::Result<()> {
    out(&json_line(value)?)
}

/// The same line, for whoever writes it elsewhere.
pub(crate) fn json_line<T: Serialize>(value: &T) -> io::Result<String> {
    let mut text = ascii(&serde_json::to_string(value).map_err(io::Error::other)?);
    text.push('\n');
    Ok(text)
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
    let mut paged = Paged::new(true);
    paged.write(text)?;
    paged.finish()
}

/// Text that comes in pieces: to the operator's pager once it is more than a screen.
#[derive(Debug)]
pub(crate) struct Paged {
    held: String,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    /// A terminal of so many rows; what came so far may still fit.
    Screen(usize),
    Out,
    Pager(Child),
    /// Whoever read it went away.
    Gone,
}

/// What a pipe or a file gets at once.
const HELD: usize = 64 << 10;

impl Paged {
    /// Text for a pager if there is a terminal and one is `wanted`.
    pub(crate) fn new(wanted: bool) -> Self {
        let rows =
            rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
        let on_screen = wanted && io::stdout().is_terminal();
        Self { held: String::new(), sink: if on_screen { Sink::Screen(rows) } else { Sink::Out } }
    }

    /// Takes another piece; false when nobody wants more.
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
                    child.wait()?; // the person left it
                }
                self.sink = Sink::Gone;
                Ok(())
            }
            other => other,
        }
    }
}

/// Starts what the operator reads long texts with.
fn pager() -> Option<Child> {
    let pager = std::env::var("BELLJAR_PAGER").or_else(|_| std::env::var("PAGER"));
    let pager = pager.unwrap_or_else(|_| "less -FRX".to_owned());
    let mut words = pager.split_whitespace();
    let mut command = std::process::Command::new(words.next()?);
    command.args(words).env("LESSSECURE", "1").stdin(std::process::Stdio::piped());
    command.spawn().ok()
}

/// How far a long work is, on one line of a terminal that is written over; nothing elsewhere.
pub(crate) fn progress(text: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{}", display::safe_line(text));
    }
}

/// Waits for the return key; false at the end of the input.
pub(crate) fn pause() -> io::Result<bool> {
    let mut line = String::new();
    Ok(io::stdin().read_line(&mut line)? > 0)
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

/// Reads a line that was typed; none at the end of the input.
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
    fn f13_json_has_no_byte_that_a_terminal_would_obey() {
        let text = "caf\u{e9} \u{9b}31m \u{202e} \u{1f600} \u{7f} \u{1b}]";
        let json = super::ascii(&serde_json::to_string(text).unwrap());
        assert!(json.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
