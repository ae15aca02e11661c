//! The content of the full-screen view and the actions of its keys. This module uses no terminal.

use belljar_model::boxes::BoxState;

use super::Action;
use super::rows::Row;

/// Every key of the view and the name of its action.
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

/// The state of the full-screen view: the boxes, the selected box and messages.
#[derive(Debug)]
pub(super) struct Page {
    rows: Vec<Row>,
    selected: usize,
    /// The command that waits for a confirmation with `y`.
    pending_command: Option<Vec<&'static str>>,
    message: Option<String>,
    shows_help: bool,
    use_colours: bool,
    pub(super) size: (u16, u16),
}

/// The style of a line in the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Plain,
    Chosen,
    Faint,
    Good,
    Bad,
    Asking,
}

impl Page {
    pub(super) fn new(use_colours: bool) -> Self {
        Self {
            rows: Vec::new(),
            selected: 0,
            pending_command: None,
            message: None,
            shows_help: false,
            use_colours,
            size: (24, 80),
        }
    }

    /// Replaces the list of boxes; the selected box stays selected if it still exists.
    pub(super) fn set_rows(&mut self, rows: Vec<Row>) {
        let name = self.selected().map(|row| row.name.clone());
        let index = rows.iter().position(|row| Some(&row.name) == name.as_ref());
        let last = rows.len().saturating_sub(1);
        self.selected = index.unwrap_or(self.selected).min(last);
        self.rows = rows;
    }

    /// Returns the selected box, or `None` if there are no boxes.
    pub(super) fn selected(&self) -> Option<&Row> {
        self.rows.get(self.selected)
    }

    /// Shows a message in the footer until the next key.
    pub(super) fn show_message(&mut self, text: String) {
        self.message = Some(text);
    }

    /// Handles typed keys and returns the actions that the caller must carry out.
    pub(super) fn handle_keys(&mut self, mut keys: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some((action, length)) = action(keys) {
            keys = keys.get(length..).unwrap_or_default();
            actions.push(self.apply(action));
        }
        actions
    }

    /// Applies an action to the view, and returns the action that remains for the caller.
    fn apply(&mut self, action: Action) -> Action {
        self.message = None;
        if let Some(command) = self.pending_command.take() {
            let yes =
                matches!(&action, Action::Run { command, .. } if command.contains(&"approve"));
            return if yes { Action::Run { command, waits: false } } else { Action::Nothing };
        }
        if std::mem::take(&mut self.shows_help) && action != Action::Quit {
            return Action::Nothing;
        }
        match action {
            Action::Up => self.selected = self.selected.saturating_sub(1),
            Action::Down => {
                self.selected = (self.selected + 1).min(self.rows.len().saturating_sub(1));
            }
            Action::Help => self.shows_help = true,
            Action::Run { .. } | Action::Ask { .. } if self.rows.is_empty() => {
                self.show_message("there are no boxes".to_owned());
                return Action::Nothing;
            }
            Action::Ask { ref command } => self.pending_command = Some(command.clone()),
            Action::Nothing | Action::Quit | Action::Run { .. } => {}
        }
        action
    }

    /// Returns the text and escape sequences that draw the whole view.
    pub(super) fn draw(&self) -> String {
        let (rows, columns) = (usize::from(self.size.0), usize::from(self.size.1));
        let mut lines = vec![self.title(columns)];
        let below = self.footer(columns);
        let height = rows.saturating_sub(lines.len() + below.len());
        if self.shows_help {
            lines.extend(KEYS.iter().map(|(key, what)| {
                self.styled(&format!("  {key:<10} {what}"), Style::Plain, columns)
            }));
        } else {
            lines.extend(self.list(height, columns));
        }
        lines.truncate(rows.saturating_sub(below.len()));
        let blank = rows.saturating_sub(lines.len() + below.len());
        lines.extend(std::iter::repeat_n(String::new(), blank));
        lines.extend(below);
        lines.truncate(rows);
        // A line is erased before it is written: in the last column, erasing would remove its last character.
        format!("\x1b[H\x1b[K{}", lines.join("\r\n\x1b[K"))
    }

    /// Returns the first line of the view: counts of boxes, reviews and questions.
    fn title(&self, columns: usize) -> String {
        let is_up = |row: &&Row| matches!(row.state, BoxState::Running | BoxState::Paused);
        let up = self.rows.iter().filter(is_up).count();
        let review = self.rows.iter().filter(|row| row.waits_for_review).count();
        let questions: usize = self.rows.iter().map(|row| row.questions.len()).sum();
        let text = format!(
            " belljar  {} boxes, {up} running, {review} to review, {questions} questions",
            self.rows.len()
        );
        self.styled(&format!("{text:<columns$}"), Style::Faint, columns)
    }

    /// Returns the lines of the list of boxes, scrolled so that the selected box is visible.
    fn list(&self, height: usize, columns: usize) -> Vec<String> {
        if self.rows.is_empty() {
            let text = "  no boxes; `belljar up NAME` creates a box";
            return vec![String::new(), self.styled(text, Style::Plain, columns)];
        }
        let head = format!(
            "  {:<20} {:<12} {:<10} {:<8} {:<4} {}",
            "NAME", "STATE", "ACTIVITY", "REVIEW", "ASKS", "WORKSPACE"
        );
        let mut lines = vec![self.styled(&head, Style::Faint, columns)];
        let height = height.saturating_sub(1).max(1);
        let first = (self.selected + 1).saturating_sub(height);
        let shown = self.rows.iter().enumerate().skip(first).take(height);
        lines.extend(shown.map(|(index, row)| {
            let mark = if index == self.selected { '>' } else { ' ' };
            let review = if row.waits_for_review { "waits" } else { "-" };
            let activity = row.quiet.map_or_else(|| "-".to_owned(), ago);
            let asks = match row.questions.len() {
                0 => "-".to_owned(),
                count => count.to_string(),
            };
            let text = format!(
                "{mark} {:<20} {:<12} {activity:<10} {review:<8} {asks:<4} {}",
                truncate(&row.name, 20),
                row.state.name(),
                row.place
            );
            let style = match row.state {
                _ if index == self.selected => Style::Chosen,
                _ if !row.questions.is_empty() => Style::Asking,
                BoxState::Running => Style::Good,
                BoxState::Interrupted => Style::Bad,
                BoxState::Paused | BoxState::Changing | BoxState::Stopped | BoxState::New => {
                    Style::Plain
                }
            };
            self.styled(&format!("{text:<columns$}"), style, columns)
        }));
        lines
    }

    /// Returns the last lines of the view: details of the selected box, a message and the keys.
    fn footer(&self, columns: usize) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(row) = self.selected() {
            let ended = row.ended.as_ref().map(|it| format!("  ended: {it}")).unwrap_or_default();
            let text = format!("  {}: {}{ended}", row.name, row.program);
            lines.push(self.styled(&text, Style::Plain, columns));
            lines.extend(row.questions.first().map(|question| {
                self.styled(&format!("  asks: {question}"), Style::Asking, columns)
            }));
        }
        let text = match (&self.pending_command, &self.message) {
            (Some(command), _) => {
                let name = self.selected().map_or("", |row| row.name.as_str());
                let command = command.join(" ").replace("NAME", name);
                return [
                    lines,
                    vec![self.styled(
                        &format!(
                            "  run `belljar {command}`? press y to confirm, any other key to cancel"
                        ),
                        Style::Asking,
                        columns,
                    )],
                ]
                .concat();
            }
            (None, Some(message)) => format!("  {message}"),
            (None, None) => {
                let keys: Vec<String> =
                    KEYS.iter().map(|(key, what)| format!("{key} {what}")).collect();
                format!("  {}", keys.join("  "))
            }
        };
        // The keys need two lines on a terminal with 80 columns.
        let words = text.split("  ").filter(|word| !word.is_empty());
        let mut line = String::from(" ");
        for word in words {
            if line.chars().count() + word.chars().count() + 2 > columns {
                lines.push(self.styled(&line, Style::Faint, columns));
                line = String::from(" ");
            }
            line.push_str(&format!(" {word} "));
        }
        lines.push(self.styled(&line, Style::Faint, columns));
        lines
    }

    /// Returns a line in its style, truncated to the width of the view.
    fn styled(&self, text: &str, style: Style, columns: usize) -> String {
        let text = truncate(text, columns);
        let code = match (style, self.use_colours) {
            (Style::Plain, _) => return text,
            (Style::Chosen, _) => "7",
            (Style::Good | Style::Bad | Style::Faint, false) => return text,
            (Style::Asking, false) => "1",
            (Style::Faint, true) => "2",
            (Style::Good, true) => "32",
            (Style::Bad, true) => "31",
            (Style::Asking, true) => "1;33",
        };
        format!("\x1b[{code}m{text}\x1b[m")
    }
}

/// Returns the action of the first key, and the number of bytes that the key has.
fn action(keys: &[u8]) -> Option<(Action, usize)> {
    let run = |command: &[&'static str], waits| Action::Run { command: command.to_vec(), waits };
    let action = match keys {
        [] => return None,
        [0x1b, b'[' | b'O', b'A', ..] => return Some((Action::Up, 3)),
        [0x1b, b'[' | b'O', b'B', ..] => return Some((Action::Down, 3)),
        // Any other key that sends an escape sequence.
        [0x1b, ..] => return Some((Action::Nothing, keys.len())),
        [key, ..] => match key {
            b'k' => Action::Up,
            b'j' => Action::Down,
            b'q' | 0x03 => Action::Quit,
            b'?' | b'h' => Action::Help,
            b'a' | b'\r' => run(&["attach", "NAME"], false),
            b'l' => run(&["logs", "NAME", "--tail", "200"], true),
            b'd' => run(&["diff", "NAME"], true),
            b'p' => run(&["apply", "NAME"], true),
            b's' => run(&["start", "NAME"], false),
            b'e' => run(&["exec", "NAME", "--", "sh"], false),
            b'i' => run(&["status", "NAME"], true),
            b'y' => run(&["approve"], true),
            b't' => Action::Ask { command: vec!["stop", "NAME"] },
            b'x' => Action::Ask { command: vec!["down", "NAME"] },
            _ => Action::Nothing,
        },
    };
    Some((action, 1))
}

/// Returns the first `max` characters of a text.
fn truncate(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}

/// Formats a duration in milliseconds as a short age such as `5m ago`.
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
        page.set_rows(vec![row("one", BoxState::Running), row("two", BoxState::Stopped)]);
        page
    }

    #[test]
    fn ui_page_fits_terminals_of_any_size() {
        for (rows, columns) in [(24, 80), (5, 20), (2, 10), (60, 200)] {
            let mut page = page();
            page.set_rows(
                (0..100).map(|at| row(&format!("box-{at}"), BoxState::Running)).collect(),
            );
            page.size = (rows, columns);
            page.selected = 99;
            let drawn = page.draw();
            let text = drawn.replace("\x1b[H", "").replace("\x1b[K", "").replace("\x1b[J", "");
            let text = text.replace("\x1b[7m", "").replace("\x1b[m", "");
            let lines: Vec<&str> = text.split("\r\n").collect();
            assert!(lines.len() <= usize::from(rows), "{rows}: {text}");
            assert!(
                lines.iter().all(|line| line.chars().count() <= usize::from(columns)),
                "{text}"
            );
            assert!(rows < 5 || text.contains("box-99"), "the selected box is visible: {text}");
        }
    }

    #[test]
    fn ui_page_without_colours_has_no_colour_codes() {
        let drawn = page().draw();
        assert!(!drawn.contains("\x1b[3") && !drawn.contains("\x1b[2m"), "{drawn:?}");
        let mut coloured = page();
        coloured.use_colours = true;
        assert!(coloured.draw().contains("\x1b[2m"));
    }

    #[test]
    fn ui_keys_select_boxes_and_removing_a_box_needs_confirmation() {
        let mut page = page();
        let none: Vec<Action> = vec![Action::Nothing];
        page.handle_keys(b"\x1b[B");
        assert_eq!(page.selected().unwrap().name, "two");
        page.handle_keys(b"kjjj");
        assert_eq!(page.selected().unwrap().name, "two");
        page.handle_keys(b"x");
        assert!(page.draw().contains("run `belljar down two`? press y"));
        assert_eq!(page.handle_keys(b"n"), none);
        page.handle_keys(b"x");
        let down = Action::Run { command: vec!["down", "NAME"], waits: false };
        assert_eq!(page.handle_keys(b"y"), [down]);
        assert_eq!(page.handle_keys(b"q"), [Action::Quit]);
        page.handle_keys(b"?");
        assert!(page.draw().contains("attach"));
        let mut empty = Page::new(false);
        assert_eq!(empty.handle_keys(b"a"), none);
    }

    #[test]
    fn ui_selection_stays_on_a_box_while_other_boxes_appear_and_disappear() {
        let mut page = page();
        page.handle_keys(b"j");
        page.set_rows(vec![row("new", BoxState::Running), row("two", BoxState::Running)]);
        assert_eq!(page.selected().unwrap().name, "two");
        page.set_rows(Vec::new());
        assert!(page.selected().is_none());
        assert!(page.draw().contains("no boxes"));
    }
}
