//! The scripted model: a small deterministic agent that repairs a repository with tools.
//!
//! The agent decides by the results that it has got so far. It reads how the tests run, runs them, takes
//! the name of the failing function from their output, finds a file with this name, reads the file, computes
//! a change from the text that it read, and runs the tests again, until they pass. A case only knows which
//! text of a file is wrong and what is right.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::cases::{By, Case, Find, LookUp, Mistake};
use super::protocol::{Done, Step};

/// The answer of an agent whose tests pass.
pub(super) const FIXED: &str = "The tests pass.";

/// Returns what the agent does after a history.
pub(super) fn next(case: &Case, history: &[Done]) -> Step {
    let mut agent = Agent::default();
    for done in history {
        agent.learn(case, done);
    }
    agent.step(case, agent.intent(case))
}

/// The purpose of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intent {
    /// A step that fails.
    Err(Mistake),
    ReadInstructions,
    Test,
    LookUp,
    Find,
    Read,
    /// Applies the repair with this number.
    Change(usize),
    Finish,
    GiveUp,
}

/// What the agent knows.
#[derive(Debug, Default)]
struct Agent {
    has_erred: bool,
    /// The command line of the tests.
    tests: Option<String>,
    /// The last output of the tests.
    output: String,
    is_passing: bool,
    /// The name of the function whose test fails.
    suspect: Option<String>,
    /// A value that the agent looked up.
    value: Option<String>,
    /// The files in which the wrong text can be.
    candidates: Option<Vec<String>>,
    /// The lines of the first candidate that were read so far.
    text: String,
    /// The first line of it that was not read yet; `None` if all were read.
    offset: Option<u64>,
    /// The repairs that were made.
    made: BTreeSet<usize>,
    /// The number of lines before the wrong ones that a change includes.
    context: usize,
}

impl Agent {
    fn intent(&self, case: &Case) -> Intent {
        let mistake = case.mistake.filter(|_| !self.has_erred);
        if let Some(mistake) = mistake.filter(|it| !it.is_made_at_a_change()) {
            return Intent::Err(mistake);
        }
        if self.is_passing {
            return Intent::Finish;
        }
        if self.tests.is_none() {
            return Intent::ReadInstructions;
        }
        if self.suspect.is_none() {
            return if self.output.is_empty() { Intent::Test } else { Intent::GiveUp };
        }
        if case.look_up.is_some() && self.value.is_none() {
            return Intent::LookUp;
        }
        match &self.candidates {
            None => Intent::Find,
            Some(list) if list.is_empty() => Intent::GiveUp,
            Some(_) if self.offset.is_some() => Intent::Read,
            Some(_) => match (self.repair(case), mistake) {
                (Some(_), Some(mistake)) => Intent::Err(mistake),
                (Some(number), None) => Intent::Change(number),
                (None, _) => Intent::GiveUp,
            },
        }
    }

    fn step(&self, case: &Case, intent: Intent) -> Step {
        let suspect = self.suspect.as_deref().unwrap_or_default();
        let path = self.candidates.iter().flatten().next().map_or("", String::as_str);
        let (name, arguments) = match intent {
            Intent::Err(mistake) => self.err(case, mistake, path),
            Intent::ReadInstructions => ("read", json!({"path": "README.md"})),
            Intent::Test => ("shell", json!({"command": self.tests, "timeout": 60})),
            Intent::LookUp => match case.look_up {
                Some(LookUp::Code(code)) => ("execute_code", json!({ "code": code })),
                Some(LookUp::Page(_)) | None => {
                    ("fetch", json!({"url": format!("https://docs.example.com/{}", case.name)}))
                }
            },
            Intent::Find => match case.find {
                Find::Grep => ("grep", json!({"pattern": format!("\\b{suspect}\\b")})),
                Find::Glob => ("glob", json!({"pattern": format!("**/*{suspect}*")})),
                Find::Shell => ("shell", json!({"command": format!("grep -rlw {suspect} .")})),
            },
            Intent::Read => ("read", json!({"path": path, "offset": self.offset})),
            Intent::Change(number) => self.change(case, number, path),
            Intent::Finish => return Step::Say(FIXED),
            Intent::GiveUp => return Step::Say("I cannot repair it."),
        };
        Step::Call(name, arguments)
    }

    /// Returns the number of the first repair that was not made and whose wrong text is in the file.
    fn repair(&self, case: &Case) -> Option<usize> {
        let is_possible = |number: &usize| {
            !self.made.contains(number) && self.text.contains(case.repairs[*number].0)
        };
        (0..case.repairs.len()).find(is_possible)
    }

    /// Returns whole lines of the file with the wrong text of a repair, and the lines that replace them.
    fn lines(&self, case: &Case, number: usize) -> (String, String) {
        let (wrong, right) = case.repairs[number];
        let right = right.replace("{value}", self.value.as_deref().unwrap_or_default());
        let suspect = self.suspect.as_deref().unwrap_or_default();
        // The same text can be in another function before the suspect.
        let function = self.text.find(suspect).unwrap_or(0);
        let found = self.text[function..].find(wrong).map(|at| at + function);
        let at = found.or_else(|| self.text.find(wrong)).expect("the repair is possible");
        let before = self.text[..at].lines().rev().skip(1).take(self.context);
        let start = at - self.text[..at].rsplit('\n').next().map_or(0, str::len);
        let start = start - before.map(|line| line.len() + 1).sum::<usize>();
        let end = at + wrong.len();
        let end = self.text[end..].find('\n').map_or(self.text.len(), |more| end + more);
        let old = &self.text[start..end];
        let (head, tail) = old.split_at(at - start);
        (old.to_owned(), format!("{head}{right}{}", &tail[wrong.len()..]))
    }

    fn change(&self, case: &Case, number: usize, path: &str) -> (&'static str, Value) {
        let (old, new) = self.lines(case, number);
        let content = self.text.replacen(&old, &new, 1);
        match case.by {
            By::Edit => ("edit", json!({"path": path, "old": old, "new": new})),
            By::Write => ("write", json!({"path": path, "content": content})),
            By::Shell => {
                ("shell", json!({"command": format!("cat > {path} <<'END'\n{content}END\n")}))
            }
            By::Code => {
                let [path, old, new] = [path, &old, &new].map(|text| json!(text));
                let code = format!(
                    "const text: string = Deno.readTextFileSync({path});\n\
                     Deno.writeTextFileSync({path}, text.replace({old}, () => {new}));\n\
                     export default text.includes({old});"
                );
                ("execute_code", json!({ "code": code }))
            }
        }
    }

    /// Returns a call that fails.
    fn err(&self, case: &Case, mistake: Mistake, path: &str) -> (&'static str, Value) {
        match mistake {
            Mistake::UnknownTool => ("run_tests", json!({"verbose": true})),
            Mistake::WrongArguments => ("read", json!({"file": "README.md"})),
            Mistake::FailingCommand => ("shell", json!({"command": "make test"})),
            Mistake::DeniedCommand => {
                ("shell", json!({"command": "git add . && git push --force"}))
            }
            Mistake::PathOutside => {
                ("write", json!({"path": "../escaped.txt", "content": "outside"}))
            }
            Mistake::OtherHost => ("fetch", json!({"url": "https://other.example.com/"})),
            Mistake::WrongOldText => {
                let old = self.repair(case).map_or("", |number| case.repairs[number].0);
                ("edit", json!({"path": path, "old": format!("{old} # wrong"), "new": ""}))
            }
            Mistake::ChangedTest => {
                let (_, test) = self.output.split_once("tests/").unwrap_or_default();
                let test = test.split(['"', ':', ' ']).next().unwrap_or_default();
                ("write", json!({"path": format!("tests/{test}"), "content": ""}))
            }
            Mistake::ThrowingCode => {
                ("execute_code", json!({"code": format!("Deno.readTextFileSync('no/{path}');")}))
            }
        }
    }

    /// Takes the result of the last step into account.
    fn learn(&mut self, case: &Case, done: &Done) {
        let intent = self.intent(case);
        let Step::Call(name, arguments) = self.step(case, intent) else {
            panic!("{}: the model had finished before {done:?}", case.name)
        };
        // The client sends the calls of the model back unchanged.
        assert_eq!((name, &arguments), (done.name.as_str(), &done.arguments), "{}", case.name);
        let result = done.result.as_str();
        match intent {
            Intent::Err(mistake) => {
                self.has_erred = result.contains(mistake.result());
                assert!(self.has_erred, "{}: {mistake:?}: {result}", case.name);
            }
            Intent::ReadInstructions => {
                let tests = result.split_once("Run the tests with `").map(|(_, rest)| rest);
                self.tests = tests.and_then(|rest| rest.split('`').next()).map(str::to_owned);
            }
            Intent::Test => {
                self.is_passing = result.starts_with("exit status 0\n");
                result.clone_into(&mut self.output);
                self.suspect = suspect(result);
            }
            Intent::LookUp => {
                let line = result.lines().find_map(|line| line.rsplit_once(": "));
                self.value = line.map(|(_, value)| value.trim_matches('"').to_owned());
            }
            Intent::Find => {
                let paths = result.lines().filter_map(|line| line.split(':').next());
                let paths = paths.map(|path| path.trim_start_matches("./"));
                let is_source = |path: &&str| {
                    path.contains('.') && !path.starts_with("tests/") && *path != "README.md"
                };
                let mut found: Vec<String> = Vec::new();
                for path in paths.filter(is_source) {
                    if !found.iter().any(|known| known == path) {
                        found.push(path.to_owned());
                    }
                }
                self.candidates = Some(found);
                self.offset = Some(1);
            }
            Intent::Read => self.read(case, result),
            Intent::Change(number) => {
                let is_done = match case.by {
                    By::Edit => result.starts_with("replaced 1 times"),
                    By::Write => result.starts_with("wrote "),
                    By::Shell => result.starts_with("exit status 0\n"),
                    By::Code => result == "result: true",
                };
                if is_done {
                    self.made.insert(number);
                    (self.suspect, self.candidates, self.context) = (None, None, 0);
                    self.output.clear();
                } else if result.contains("times; make it longer") {
                    self.context += 1;
                }
                self.text.clear();
                self.offset = Some(1);
            }
            Intent::Finish | Intent::GiveUp => {}
        }
    }

    /// Adds lines of the first candidate. A file without a wrong text is no candidate.
    fn read(&mut self, case: &Case, result: &str) {
        let note = "\n[belljar: the file has ";
        let (lines, more) = result.split_once(note).unwrap_or((result, ""));
        self.text.push_str(lines);
        let offset = more.rsplit_once("offset ").map(|(_, number)| number.trim_end_matches(']'));
        self.offset = offset.and_then(|number| number.parse().ok());
        if self.offset.is_none() && self.repair(case).is_none() {
            self.candidates.iter_mut().for_each(|list| drop(list.remove(0)));
            self.text.clear();
            self.offset = Some(1);
        }
    }
}

/// Returns the name of the function whose test failed: `median` for `FAIL: test_median__of_two`.
fn suspect(output: &str) -> Option<String> {
    let lines = output.lines().filter_map(|line| {
        line.strip_prefix("FAIL: test_").or_else(|| line.strip_prefix("ERROR: test_"))
    });
    let is_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
    let names = lines.map(|line| line.chars().take_while(is_name).collect::<String>());
    names.map(|name| name.split("__").next().unwrap_or_default().to_owned()).next()
}
