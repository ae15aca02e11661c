//! What the page looks like, and what keys mean on it. Knows no terminal.

use belljar_model::boxes::BoxState;

use super::Wish;
use super::rows::Row;

/// Every key with what it does.
const KEYS: [(&str, &str); 12] = [
    ("enter a", "attach"),
    ("l", "logs"),
    ("d", "diff"),
    ("p", "apply"),
    ("s", "start"),
    ("t", "stop"),
    ("x", "down"),
    ("e", "shell"),
    ("y", "approve"),
    ("i", "status"),
    ("?", "help"),
    ("q", "quit"),
];

/// The boxes, and which of them is chosen.
#[derive(Debug)]
pub(super) struct Page {
    rows: Vec<Row>,
    chosen: usize,
    /// What a `y` would do.
    asked: Option<Vec<&'static str>>,
    said: Option<String>,
    helps: bool,
    colours: bool,
    pub(super) size: (u16, u16),
}

/// How a piece of a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paint {
    Plain,
    Chosen,
    Faint,
    Good,
    Bad,
    Asking,
}

impl Page {
    pub(super) fn new(colours: bool) -> Self {
        Self {
            rows: Vec::new(),
            chosen: 0,
            asked: None,
            said: None,
            helps: false,
            colours,
            size: (24, 80),
        }
    }

    /// Takes how the boxes are now. The same one stays chosen.
    pub(super) fn take(&mut self, rows: Vec<Row>) {
        let name = self.chosen().map(|row| row.name.clone());
        let index = rows.iter().position(|row| Some(&row.name) == name.as_ref());
        let last = rows.len().saturating_sub(1);
        self.chosen = index.unwrap_or(self.chosen).min(last);
        self.rows = rows;
    }

    pub(super) fn chosen(&self) -> Option<&Row> {
        self.rows.get(self.chosen)
    }

    pub(super) fn say(&mut self, text: String) {
        self.said = Some(text);
    }

    /// What was typed, and what is to be done about it.
    pub(super) fn typed(&mut self, mut keys: &[u8]) -> Vec<Wish> {
        let mut wishes = Vec::new();
        while let Some((wish, length)) = wish(keys) {
            keys = keys.get(length..).unwrap_or_default();
            wishes.push(self.decide(wish));
        }
        wishes
    }

    fn decide(&mut self, wish: Wish) -> Wish {
        self.said = None;
        if let Some(command) = self.asked.take() {
            let yes = matches!(&wish, Wish::Run { command, .. } if command.contains(&"approve"));
            return if yes { Wish::Run { command, waits: false } } else { Wish::Nothing };
        }
        if std::mem::take(&mut self.helps) && wish != Wish::Quit {
            return Wish::Nothing;
        }
        match wish {
            Wish::Up => self.chosen = self.chosen.saturating_sub(1),
            Wish::Down => self.chosen = (self.chosen + 1).min(self.rows.len().saturating_sub(1)),
            Wish::Help => self.helps = true,
            Wish::Run { .. } | Wish::Ask { .. } if self.rows.is_empty() => {
                self.say("there is no box yet".to_owned());
                return Wish::Nothing;
            }
            Wish::Ask { ref command } => self.asked = Some(command.clone()),
            Wish::Nothing | Wish::Quit | Wish::Run { .. } => {}
        }
        wish
    }

    /// The whole page.
    pub(super) fn draw(&self) -> String {
        let (rows, columns) = (usize::from(self.size.0), usize::from(self.size.1));
        let mut lines = vec![self.title(columns)];
        let below = self.footer(columns);
        let room = rows.saturating_sub(lines.len() + below.len());
        if self.helps {
            lines.extend(KEYS.iter().map(|(key, what)| {
                self.paint(&format!("  {key:<10} {what}"), Paint::Plain, columns)
            }));
        } else {
            lines.extend(self.list(room, columns));
        }
        lines.truncate(rows.saturating_sub(below.len()));
        let blank = rows.saturating_sub(lines.len() + below.len());
        lines.extend(std::iter::repeat_n(String::new(), blank));
        lines.extend(below);
        lines.truncate(rows);
        format!("\x1b[H{}\x1b[K\x1b[J", lines.join("\x1b[K\r\n"))
    }

    fn title(&self, columns: usize) -> String {
        let up = self.rows.iter().filter(|row| row.state == BoxState::Running).count();
        let review = self.rows.iter().filter(|row| row.waits_for_review).count();
        let asks: usize = self.rows.iter().map(|row| row.questions.len()).sum();
        let text = format!(
            " belljar  {} boxes, {up} running, {review} to review, {asks} questions",
            self.rows.len()
        );
        self.paint(&format!("{text:<columns$}"), Paint::Faint, columns)
    }

    /// As many boxes as there is room for, around the one that is chosen.
    fn list(&self, room: usize, columns: usize) -> Vec<String> {
        if self.rows.is_empty() {
            let text = "  no boxes; `belljar up NAME` makes one";
            return vec![String::new(), self.paint(text, Paint::Plain, columns)];
        }
        let head = format!(
            "  {:<20} {:<12} {:<10} {:<8} {:<4} {}",
            "NAME", "STATE", "ACTIVITY", "REVIEW", "ASKS", "WORKS ON"
        );
        let mut lines = vec![self.paint(&head, Paint::Faint, columns)];
        let room = room.saturating_sub(1).max(1);
        let first = (self.chosen + 1).saturating_sub(room);
        let shown = self.rows.iter().enumerate().skip(first).take(room);
        lines.extend(shown.map(|(index, row)| {
            let mark = if index == self.chosen { '>' } else { ' ' };
            let review = if row.waits_for_review { "waits" } else { "-" };
            let activity = row.quiet.map_or_else(|| "-".to_owned(), ago);
            let asks = match row.questions.len() {
                0 => "-".to_owned(),
                count => count.to_string(),
            };
            let text = format!(
                "{mark} {:<20} {:<12} {activity:<10} {review:<8} {asks:<4} {}",
                cut(&row.name, 20),
                row.state.name(),
                row.place
            );
            let paint = match row.state {
                _ if index == self.chosen => Paint::Chosen,
                _ if !row.questions.is_empty() => Paint::Asking,
                BoxState::Running => Paint::Good,
                BoxState::Interrupted => Paint::Bad,
                BoxState::Changing | BoxState::Stopped | BoxState::New => Paint::Plain,
            };
            self.paint(&format!("{text:<columns$}"), paint, columns)
        }));
        lines
    }

    /// What is known of the box that is chosen, and the keys.
    fn footer(&self, columns: usize) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(row) = self.chosen() {
            let ended = row.ended.as_ref().map(|it| format!("  ended: {it}")).unwrap_or_default();
            let text = format!("  {}: {}{ended}", row.name, row.program);
            lines.push(self.paint(&text, Paint::Plain, columns));
            lines.extend(row.questions.first().map(|question| {
                self.paint(&format!("  asks: {question}"), Paint::Asking, columns)
            }));
        }
        let text = match (&self.asked, &self.said) {
            (Some(command), _) => {
                let name = self.chosen().map_or("", |row| row.name.as_str());
                let command = command.join(" ").replace("NAME", name);
                return [
                    lines,
                    vec![self.paint(
                        &format!("  belljar {command}? y does it, any other key does not"),
                        Paint::Asking,
                        columns,
                    )],
                ]
                .concat();
            }
            (None, Some(said)) => format!("  {said}"),
            (None, None) => {
                let keys: Vec<String> =
                    KEYS.iter().map(|(key, what)| format!("{key} {what}")).collect();
                format!("  {}", keys.join("  "))
            }
        };
        // At eighty columns the keys take two lines.
        let words = text.split("  ").filter(|word| !word.is_empty());
        let mut line = String::from(" ");
        for word in words {
            if line.chars().count() + word.chars().count() + 2 > columns {
                lines.push(self.paint(&line, Paint::Faint, columns));
                line = String::from(" ");
            }
            line.push_str(&format!(" {word} "));
        }
        lines.push(self.paint(&line, Paint::Faint, columns));
        lines
    }

    /// A line of at most the width of the page, in its colour.
    fn paint(&self, text: &str, paint: Paint, columns: usize) -> String {
        let text = cut(text, columns);
        let code = match (paint, self.colours) {
            (Paint::Plain, _) => return text,
            (Paint::Chosen, _) => "7",
            (Paint::Good | Paint::Bad | Paint::Faint, false) => return text,
            (Paint::Asking, false) => "1",
            (Paint::Faint, true) => "2",
            (Paint::Good, true) => "32",
            (Paint::Bad, true) => "31",
            (Paint::Asking, true) => "1;33",
        };
        format!("\x1b[{code}m{text}\x1b[m")
    }
}

/// What the first key means, and how many bytes it is.
fn wish(keys: &[u8]) -> Option<(Wish, usize)> {
    let run = |command: &[&'static str], waits| Wish::Run { command: command.to_vec(), waits };
    let wish = match keys {
        [] => return None,
        [0x1b, b'[' | b'O', b'A', ..] => return Some((Wish::Up, 3)),
        [0x1b, b'[' | b'O', b'B', ..] => return Some((Wish::Down, 3)),
        // Another key that sends more than a byte.
        [0x1b, ..] => return Some((Wish::Nothing, keys.len())),
        [key, ..] => match key {
            b'k' => Wish::Up,
            b'j' => Wish::Down,
            b'q' | 0x03 => Wish::Quit,
            b'?' | b'h' => Wish::Help,
            b'a' | b'\r' => run(&["attach", "NAME"], false),
            b'l' => run(&["logs", "NAME", "--tail", "200"], true),
            b'd' => run(&["diff", "NAME"], true),
            b'p' => run(&["apply", "NAME"], true),
            b's' => run(&["start", "NAME"], false),
            b'e' => run(&["exec", "NAME", "--", "sh"], false),
            b'i' => run(&["status", "NAME"], true),
            b'y' => run(&["approve"], true),
            b't' => Wish::Ask { command: vec!["stop", "NAME"] },
            b'x' => Wish::Ask { command: vec!["down", "NAME"] },
            _ => Wish::Nothing,
        },
    };
    Some((wish, 1))
}

/// At most so many characters.
fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// How long ago, in a few characters.
fn ago(millis: u64) -> String {
    match millis / 1000 {
        seconds @ 0..60 => format!("{seconds}s ago"),
        seconds @ 60..3600 => format!("{}m ago", seconds / 60),
        seconds @ 3600..86400 => format!("{}h ago", seconds / 3600),
        seconds => format!("{}d ago", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, state: BoxState) -> Row {
        Row {
            name: name.to_owned(),
            state,
            quiet: Some(90_000),
            waits_for_review: true,
            questions: Vec::new(),
            program: "bash".to_owned(),
            place: "/work".to_owned(),
            ended: None,
        }
    }

    fn page() -> Page {
        let mut page = Page::new(false);
        page.take(vec![row("one", BoxState::Running), row("two", BoxState::Stopped)]);
        page
    }

    #[test]
    fn the_page_fits_whatever_its_size_is() {
        for (rows, columns) in [(24, 80), (5, 20), (2, 10), (60, 200)] {
            let mut page = page();
            page.take((0..100).map(|at| row(&format!("box-{at}"), BoxState::Running)).collect());
            page.size = (rows, columns);
            page.chosen = 99;
            let drawn = page.draw();
            let text = drawn.replace("\x1b[H", "").replace("\x1b[K", "").replace("\x1b[J", "");
            let text = text.replace("\x1b[7m", "").replace("\x1b[m", "");
            let lines: Vec<&str> = text.split("\r\n").collect();
            assert!(lines.len() <= usize::from(rows), "{rows}: {text}");
            assert!(
                lines.iter().all(|line| line.chars().count() <= usize::from(columns)),
                "{text}"
            );
            assert!(rows < 5 || text.contains("box-99"), "the chosen one is there: {text}");
        }
    }

    #[test]
    fn without_colours_there_are_none() {
        let drawn = page().draw();
        assert!(!drawn.contains("\x1b[3") && !drawn.contains("\x1b[2m"), "{drawn:?}");
        let mut coloured = page();
        coloured.colours = true;
        assert!(coloured.draw().contains("\x1b[2m"));
    }

    #[test]
    fn keys_choose_and_what_ends_a_box_is_asked_about() {
        let mut page = page();
        let none: Vec<Wish> = vec![Wish::Nothing];
        page.typed(b"\x1b[B");
        assert_eq!(page.chosen().unwrap().name, "two");
        page.typed(b"kjjj");
        assert_eq!(page.chosen().unwrap().name, "two");
        page.typed(b"x");
        assert!(page.draw().contains("belljar down two? y does it"));
        assert_eq!(page.typed(b"n"), none);
        page.typed(b"x");
        let down = Wish::Run { command: vec!["down", "NAME"], waits: false };
        assert_eq!(page.typed(b"y"), [down]);
        assert_eq!(page.typed(b"q"), [Wish::Quit]);
        page.typed(b"?");
        assert!(page.draw().contains("attach"));
        let mut empty = Page::new(false);
        assert_eq!(empty.typed(b"a"), none);
    }

    #[test]
    fn the_chosen_box_stays_chosen_while_others_come_and_go() {
        let mut page = page();
        page.typed(b"j");
        page.take(vec![row("new", BoxState::Running), row("two", BoxState::Running)]);
        assert_eq!(page.chosen().unwrap().name, "two");
        page.take(Vec::new());
        assert!(page.chosen().is_none());
        assert!(page.draw().contains("no boxes"));
    }
}
