//! The content of the full-screen view of a run and the actions of its keys. This module uses no terminal.

use std::collections::{BTreeMap, BTreeSet};

use belljar_engine::runs::machine::{Status, TaskRef};
use belljar_engine::runs::view::RunView;
use belljar_model::RunId;
use belljar_model::plan::{Executor, Task, TaskId};

use crate::commands::runs::rows::{Row, cut, table};

/// The keys of the view.
const KEYS: &str = "enter log · a open approval · c cancel · d diff · q leave";
/// The number of lines that `enter` shows of a log.
const LOG_LINES: &str = "200";

/// The action of a key that the caller carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Quit,
    /// Run a command of Belljar; if `waits`, wait for a key before the view returns.
    Run {
        command: Vec<String>,
        waits: bool,
    },
}

/// The state of the view.
#[derive(Debug)]
pub(super) struct Page {
    run: Option<RunId>,
    title: String,
    /// The tasks; those that need a person come first.
    rows: Vec<Row>,
    /// The box run of each task that has one.
    boxes: BTreeMap<TaskRef, RunId>,
    /// The tasks of agents.
    agents: BTreeSet<TaskId>,
    selected: usize,
    /// The command that waits for a confirmation with `y`.
    pending: Option<Vec<String>>,
    message: Option<String>,
    use_colours: bool,
    pub(super) size: (u16, u16),
}

#[derive(Clone, Copy)]
enum Style {
    Plain,
    Chosen,
    Faint,
    Good,
    Bad,
    Asking,
}

impl Page {
    pub(super) const fn new(use_colours: bool) -> Self {
        Self {
            run: None,
            title: String::new(),
            rows: Vec::new(),
            boxes: BTreeMap::new(),
            agents: BTreeSet::new(),
            selected: 0,
            pending: None,
            message: None,
            use_colours,
            size: (24, 80),
        }
    }

    /// Replaces the content; the selected task stays selected.
    pub(super) fn set(&mut self, view: &RunView, title: String, mut rows: Vec<Row>) {
        let selected = self.selected().map(|row| row.of.clone());
        rows.sort_by_key(|row| !row.needs_person()); // stable: the order of the plan stays
        let place = rows.iter().position(|row| Some(&row.of) == selected.as_ref());
        self.selected = place.unwrap_or(self.selected).min(rows.len().saturating_sub(1));
        let boxes = view.tasks.iter();
        self.boxes = boxes.filter_map(|task| Some((task.of.clone(), task.box_run?))).collect();
        let is_agent = |task: &&Task| matches!(task.executor, Executor::Agent { .. });
        let agents = view.plan.tasks().iter().filter(is_agent);
        self.agents = agents.map(|task| task.id.clone()).collect();
        (self.run, self.title, self.rows) = (Some(view.run), title, rows);
    }

    fn selected(&self) -> Option<&Row> {
        self.rows.get(self.selected)
    }

    /// Shows a message in the last line until the next key.
    pub(super) fn show_message(&mut self, text: String) {
        self.message = Some(text);
    }

    /// Handles typed keys and returns the actions that the caller must carry out.
    pub(super) fn handle_keys(&mut self, mut keys: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        while !keys.is_empty() {
            let (action, length) = self.handle_key(keys);
            keys = keys.get(length..).unwrap_or_default();
            actions.push(action);
        }
        actions
    }

    /// Handles the first key. Returns its action and the number of its bytes.
    fn handle_key(&mut self, keys: &[u8]) -> (Action, usize) {
        self.message = None;
        if let Some(command) = self.pending.take() {
            return match keys {
                [b'y', ..] => (Action::Run { command, waits: false }, 1),
                [0x1b, ..] => (Action::Nothing, keys.len()),
                _ => (Action::Nothing, 1),
            };
        }
        let last = self.rows.len().saturating_sub(1);
        match keys {
            [0x1b, b'[' | b'O', b'A', ..] => {
                self.selected = self.selected.saturating_sub(1);
                (Action::Nothing, 3)
            }
            [0x1b, b'[' | b'O', b'B', ..] => {
                self.selected = self.selected.saturating_add(1).min(last);
                (Action::Nothing, 3)
            }
            // Any other key that sends an escape sequence.
            [0x1b, ..] => (Action::Nothing, keys.len()),
            [key, ..] => (self.handle_letter(*key, last), 1),
            [] => (Action::Nothing, 0),
        }
    }

    fn handle_letter(&mut self, key: u8, last: usize) -> Action {
        match key {
            b'k' => self.selected = self.selected.saturating_sub(1),
            b'j' => self.selected = self.selected.saturating_add(1).min(last),
            b'q' | 0x03 => return Action::Quit,
            b'\r' => {
                return self.on_task(|task, _| Some(words(&["logs", task, "--tail", LOG_LINES])));
            }
            b'a' => return Action::Run { command: words(&["approve"]), waits: true },
            b'd' => {
                // The work of an agent is in a clone, which is read by the name of its task.
                let row = self.selected();
                let is_agent = row.is_some_and(|row| self.agents.contains(&row.of.task));
                return self.on_task(|task, box_run| match is_agent {
                    true => Some(words(&["diff", task])),
                    false => Some(words(&["diff", &box_run?.to_string()])),
                });
            }
            b'c' => {
                if let Action::Run { command, .. } =
                    self.on_task(|task, _| Some(words(&["cancel", task])))
                {
                    self.pending = Some(command);
                }
            }
            b'C' => self.pending = self.run.map(|run| words(&["cancel", &run.to_string()])),
            _ => {}
        }
        Action::Nothing
    }

    /// Returns the action that runs a command on the selected task.
    fn on_task(&mut self, command: impl Fn(&str, Option<RunId>) -> Option<Vec<String>>) -> Action {
        let (Some(run), Some(row)) = (self.run, self.selected()) else { return Action::Nothing };
        let (task, box_run) = (format!("{run}/{}", row.of), self.boxes.get(&row.of).copied());
        match command(&task, box_run) {
            Some(command) => Action::Run { command, waits: true },
            None => {
                self.show_message(format!("{} has no box", row.of));
                Action::Nothing
            }
        }
    }

    /// Returns the text and escape sequences that draw the whole view.
    pub(super) fn draw(&self) -> String {
        let (height, columns) = (usize::from(self.size.0), usize::from(self.size.1));
        let mut lines = vec![self.styled(&self.title, Style::Plain, columns)];
        let below = [self.footer(columns)];
        let space = height.saturating_sub(lines.len() + below.len()).max(1);
        let first = self.selected.saturating_add(1).saturating_sub(space);
        let texts = table(&self.rows);
        let shown = self.rows.iter().zip(&texts).enumerate().skip(first).take(space);
        lines.extend(shown.map(|(place, (row, text))| {
            let pointer = if place == self.selected { '>' } else { ' ' };
            let style = match row.status {
                _ if place == self.selected => Style::Chosen,
                Status::Gated | Status::Attention => Style::Asking,
                Status::Done => Style::Good,
                Status::Failed | Status::Stopped | Status::Cancelled => Style::Bad,
                Status::Waiting | Status::Skipped => Style::Faint,
                Status::Ready | Status::Running | Status::Judging | Status::Backoff => Style::Plain,
            };
            self.styled(&format!("{pointer} {text}"), style, columns)
        }));
        lines.truncate(height.saturating_sub(below.len()));
        let blank = height.saturating_sub(lines.len() + below.len());
        lines.extend(std::iter::repeat_n(String::new(), blank));
        lines.extend(below);
        lines.truncate(height);
        // A line is erased before it is written: in the last column, erasing would remove its last character.
        format!("\x1b[H\x1b[K{}", lines.join("\r\n\x1b[K"))
    }

    /// Returns the last line: a question, a message, or the keys.
    fn footer(&self, columns: usize) -> String {
        match (&self.pending, &self.message) {
            (Some(command), _) => {
                let text = format!("run `belljar {}`? y confirms", command.join(" "));
                self.styled(&text, Style::Asking, columns)
            }
            (None, Some(message)) => self.styled(message, Style::Plain, columns),
            (None, None) => self.styled(KEYS, Style::Faint, columns),
        }
    }

    /// Returns a line in its style, cut to the width of the view.
    fn styled(&self, text: &str, style: Style, columns: usize) -> String {
        let text = cut(text, columns);
        let code = match (style, self.use_colours) {
            (Style::Plain, _) | (Style::Good | Style::Bad | Style::Faint, false) => return text,
            (Style::Chosen, _) => "7",
            (Style::Asking, false) => "1",
            (Style::Faint, true) => "2",
            (Style::Good, true) => "32",
            (Style::Bad, true) => "31",
            (Style::Asking, true) => "1;33",
        };
        format!("\x1b[{code}m{text}\x1b[m")
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use belljar_engine::host::HostEnv;
    use belljar_engine::runs::budget::{Amounts, Unit};
    use belljar_engine::runs::machine::{Moment, Phase};
    use belljar_engine::runs::plans;
    use belljar_engine::runs::view::TaskView;
    use belljar_model::{Config, Scope};

    use super::*;
    use crate::commands::runs::rows;

    const CONFIG: &str = "[tier.cheap]\nprovider = 'anthropic'\nmodel = 'm'\nsecret = 'anthropic'\nprice = { input = '1 USD', output = '5 USD' }\n";
    const PLAN: &str = "[run]\nbudget = { money = '5 USD', tokens = 400000, boxes = 3 }\n\
        [task.triage]\ndo = { model = 'cheap', prompt = 'x' }\n\
        [task.fix]\ndo = { agent = 'claude', prompt = 'x' }\nneeds = ['triage']\nfor_each = { values = [1, 2] }\n\
        [task.pick]\ndo = { stub = 1 }\nneeds = ['fix']\n\
        [task.push]\ndo = { command = ['git', 'push'] }\n\
        [task.merge]\ndo = { approval = 'Go?' }\nneeds = ['pick']\n";

    fn task(of: &str, status: Status, note: &str) -> TaskView {
        let is_begun = status != Status::Waiting;
        let is_lost = status == Status::Attention;
        let is_failed = matches!(status, Status::Failed | Status::Attention);
        TaskView {
            of: of.parse().unwrap(),
            status,
            attempt: u32::from(is_begun),
            started: is_begun.then_some(Moment(10_000)),
            ended: status.is_final().then_some(Moment(16_000)),
            box_run: None,
            gate: None,
            lost: is_lost.then_some(1),
            reason: is_failed.then(|| note.to_owned()),
            by: None,
            tier: 0,
            usage: match is_begun {
                true => Amounts::NONE.with(Unit::Tokens, 61_000).with(Unit::Money, 920_000),
                false => Amounts::NONE,
            },
            lines: vec![note.to_owned()],
            labels: Vec::new(),
            checks: Vec::new(),
        }
    }

    fn view() -> RunView {
        let config = Config::parse(CONFIG, Path::new("belljar.toml"), Scope::Operator).unwrap();
        let host = HostEnv::new([("HOME".into(), "/nonexistent".into())], "/proc/self/exe".into());
        let ceiling = plans::ceiling(&host, &config).unwrap();
        let plan = plans::check(PLAN, "fix-login.toml", &ceiling).unwrap();
        RunView {
            run: "06gy9arp42e3y8db".parse().unwrap(),
            name: plan.name().to_owned(),
            phase: Phase::Attention,
            outcome: None,
            accepted: Moment(8_000),
            ended: None,
            plan: Arc::new(plan),
            base: "/home/ada".into(),
            epoch: 1,
            tasks: vec![
                task("triage", Status::Done, ""),
                task("fix[0]", Status::Running, "Edited \x1b[31msrc/session.rs\x07"),
                task("fix[1]", Status::Failed, "exit: exit status 1: tests failed\nsee the log"),
                task("pick", Status::Waiting, ""),
                task("push", Status::Attention, "lost: may_have_effect"),
                task("merge", Status::Waiting, ""),
            ],
        }
    }

    fn page(rows: u16, columns: u16) -> Page {
        let (view, now) = (view(), Moment(260_000));
        let mut page = Page::new(false);
        let output = |_: &TaskRef| Some("{\"severity\":\"high\"}".to_owned());
        page.set(&view, rows::title(&view, now), rows::rows(&view, now, output));
        page.size = (rows, columns);
        page
    }

    fn text(page: &Page) -> String {
        let mut text = page.draw();
        for code in ["\x1b[H", "\x1b[K", "\x1b[J", "\x1b[7m", "\x1b[1m", "\x1b[m", "\r"] {
            text = text.replace(code, "");
        }
        assert!(!text.contains('\x1b'), "{text:?}");
        text
    }

    #[test]
    fn f13_watch_page_at_80_columns_shows_tasks_that_need_a_person_first_and_no_escape_sequences() {
        insta::assert_snapshot!(text(&page(10, 80)));
    }

    #[test]
    fn watch_page_at_120_columns_shows_more_of_each_task() {
        insta::assert_snapshot!(text(&page(10, 120)));
    }

    #[test]
    fn watch_page_fits_terminals_of_any_size_and_shows_the_selected_task() {
        for (rows, columns) in [(2, 10), (4, 30), (24, 80), (60, 200)] {
            let mut page = page(rows, columns);
            page.handle_keys(b"jjjjjjjjjj");
            let text = text(&page);
            let lines: Vec<&str> = text.split('\n').collect();
            assert_eq!(lines.len(), usize::from(rows), "{text}");
            let fits = |line: &&str| line.chars().count() <= usize::from(columns);
            assert!(lines.iter().all(fits), "{text}");
            assert!(rows < 4 || text.contains("> · merge"), "{text}");
        }
    }

    #[test]
    fn watch_page_erases_a_line_before_its_text_so_that_the_last_column_stays() {
        let drawn = page(24, 40).draw();
        let lines: Vec<&str> = drawn.strip_prefix("\x1b[H").unwrap().split("\r\n").collect();
        let is_erased_first = |line: &&str| line.starts_with("\x1b[K") && !line.ends_with("\x1b[K");
        assert!(lines.iter().filter(|line| line.len() > 3).all(is_erased_first), "{lines:?}");
        assert!(lines.iter().all(|line| !line.contains("\x1b[J")), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains('…')), "control: a line is full");
    }

    #[test]
    fn watch_keys_run_commands_on_the_selected_task_and_cancelling_needs_confirmation() {
        let mut page = page(24, 80);
        let run = |command: &[&str]| Action::Run { command: words(command), waits: true };
        let id = "06gy9arp42e3y8db";
        let task = |name: &str| format!("{id}/{name}");
        assert_eq!(page.handle_keys(b"\r"), [run(&["logs", &task("push"), "--tail", "200"])]);
        assert_eq!(page.handle_keys(b"a"), [run(&["approve"])]);
        assert_eq!(page.handle_keys(b"d"), [Action::Nothing]);
        assert!(text(&page).contains("push has no box"));
        page.handle_keys(b"\x1b[Bc");
        let question = format!("run `belljar cancel {}`? y confirms", task("triage"));
        assert!(text(&page).contains(&question), "{}", text(&page));
        assert_eq!(page.handle_keys(b"n"), [Action::Nothing]);
        let cancel = Action::Run { command: words(&["cancel", &task("triage")]), waits: false };
        assert_eq!(page.handle_keys(b"cy"), [Action::Nothing, cancel]);
        let cancel = Action::Run { command: words(&["cancel", id]), waits: false };
        assert_eq!(page.handle_keys(b"Cy"), [Action::Nothing, cancel]);
        page.handle_keys(b"j");
        assert_eq!(page.handle_keys(b"d"), [run(&["diff", &task("fix[0]")])], "an agent");
        assert_eq!(page.handle_keys(b"q"), [Action::Quit]);
    }
}
