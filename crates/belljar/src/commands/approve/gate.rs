//! Gates of runs: shows what an approval would do, and asks for the answer.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::Path;

use anyhow::Context as _;
use belljar_engine::approvals::gates::GateQuestion;
use belljar_engine::approvals::{
    Approval, ApprovalQuery, ApprovalQuestion, ApprovalState, Verdict,
};
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::moment;
use belljar_engine::runs::gate::ARM_DELAY;
use belljar_engine::runs::gates;
use belljar_engine::scope::Scoped;
use belljar_model::RunId;
use belljar_model::display::safe_multiline;
use rustix::termios::{QueueSelector, tcflush};

use crate::cli::network::ApproveArgs;
use crate::exit;
use crate::print;

/// The number of characters of a digest that a person sees.
const SHORT_DIGEST: usize = 8;
/// The number of lines of an input that a person sees.
const PREVIEW_LINES: usize = 10;
/// The maximum size of an edited output in bytes: that of any output.
const MAX_EDIT: u64 = 64 << 20;

/// What a person decided at a prompt.
pub(super) enum Asked {
    Answer(Verdict),
    /// The gate stays open.
    Leave,
    /// No further question is asked.
    Quit,
}

/// Returns the verdict of the command line.
pub(super) fn verdict(args: &ApproveArgs) -> Result<Verdict, EngineError> {
    match (&args.edit, args.deny, &args.reason) {
        (Some(file), ..) => read_edit(file).map(Verdict::Edit),
        (None, true, Some(reason)) => Ok(Verdict::DenyBecause(reason.clone())),
        (None, true, None) => Ok(Verdict::Deny),
        (None, false, _) => Ok(Verdict::Allow),
    }
}

fn read_edit(file: &Path) -> Result<Vec<u8>, EngineError> {
    let mut content = Vec::new();
    let read = File::open(file).and_then(|file| file.take(MAX_EDIT + 1).read_to_end(&mut content));
    read.with_context(|| format!("cannot read {}", file.display())).kind(ErrorKind::Invalid)?;
    Ok(content)
}

/// Returns the question whose digest begins with `prefix`: an open one if there is one.
pub(super) fn find(state: &Scoped, prefix: &str) -> Result<ApprovalQuestion, EngineError> {
    let query = ApprovalQuery { closed: true, ..ApprovalQuery::default() };
    let all = gates::approvals(state).list(&query)?;
    let is_named = |about: &ApprovalQuestion| about.digest.to_string().starts_with(prefix);
    let (open, closed): (Vec<Approval>, Vec<Approval>) = all
        .into_iter()
        .filter(|approval| approval.about.as_ref().is_some_and(is_named))
        .partition(|approval| approval.state == ApprovalState::Open);
    let found = if open.is_empty() { closed } else { open };
    if found.len() > 1 {
        let text = format!("{} questions have a digest that begins with {prefix}", found.len());
        return Err(invalid(format!("{text}; write more of it")));
    }
    let unknown = || invalid(format!("no question has a digest that begins with {prefix}"));
    found.into_iter().next().and_then(|approval| approval.about).ok_or_else(unknown)
}

/// Shows one gate and asks for the answer.
pub(super) fn decide(state: &Scoped, about: ApprovalQuestion) -> exit::Outcome {
    let open = gates::approvals(state).list(&ApprovalQuery::default())?;
    let open = open.into_iter().find(|approval| {
        let digest = approval.about.as_ref().map(|about| about.digest);
        digest == Some(about.digest) && approval.state == ApprovalState::Open
    });
    let label = short(&about);
    let Some(approval) = open else {
        // The answer fails with the reason.
        return super::answer(state, &label, Ok(about), Verdict::Allow, false);
    };
    if !io::stdin().is_terminal() {
        let text = "this is the gate of a run; add `--yes`, `--reject` or `--edit FILE`";
        return Err(invalid(text));
    }
    print::ask(&super::text_line(&approval));
    match ask(state, &about)? {
        Asked::Answer(verdict) => super::answer(state, &label, Ok(about), verdict, false),
        Asked::Leave | Asked::Quit => Ok(0),
    }
}

/// Asks a person about one gate, whose line is on the terminal.
pub(super) fn ask(state: &Scoped, about: &ApprovalQuestion) -> Result<Asked, EngineError> {
    let Some(gate) = about.gate.as_deref() else { return Ok(Asked::Leave) };
    print::ask(&text(gate));
    loop {
        print::ask("a approve, e edit, r reject, d show all, s skip, q leave: ");
        let Some(answer) = armed_answer()? else { return Ok(Asked::Quit) };
        match answer.as_str() {
            "a" => return Ok(Asked::Answer(Verdict::Allow)),
            "e" => {
                print::ask("file with the new output: ");
                let file = print::answer().kind(ErrorKind::Broken)?.unwrap_or_default();
                match read_edit(Path::new(&file)) {
                    Ok(content) => return Ok(Asked::Answer(Verdict::Edit(content))),
                    Err(error) => print::note(&format!("{error:#}")),
                }
            }
            "r" => {
                print::ask("reason (can be empty): ");
                let reason = print::answer().kind(ErrorKind::Broken)?.unwrap_or_default();
                let verdict = match reason.is_empty() {
                    true => Verdict::Deny,
                    false => Verdict::DenyBecause(reason),
                };
                return Ok(Asked::Answer(verdict));
            }
            "d" => {
                let run: RunId = gate.run.parse().kind(ErrorKind::Broken)?;
                let details = gates::details(state, run, &about.digest)?;
                print::ask(&safe_multiline(details));
            }
            "s" => return Ok(Asked::Leave),
            "q" => return Ok(Asked::Quit),
            _ => {}
        }
    }
}

/// Reads a line that was typed after the question was on the terminal for [`ARM_DELAY`].
///
/// A key that was meant for something else does not answer a question that just appeared (G01).
pub(super) fn armed_answer() -> Result<Option<String>, EngineError> {
    std::thread::sleep(ARM_DELAY);
    tcflush(io::stdin(), QueueSelector::IFlush).ok(); // fails if there is no terminal
    print::answer().kind(ErrorKind::Broken)
}

/// Returns the index of the event that answered a gate.
pub(super) fn event(state: &Scoped, about: &ApprovalQuestion) -> Option<u64> {
    let run = about.gate.as_ref()?.run.parse().ok()?;
    gates::answer_event(state, run, &about.digest)
}

/// Returns when a gate is denied automatically, and the beginning of its digest.
pub(super) fn deadline(approval: &Approval) -> String {
    let Some(about) = &approval.about else { return String::new() };
    let at = about.deadline.unwrap_or_default().saturating_mul(1_000_000);
    format!("denied automatically at {}; digest {}", moment::readable_seconds(at), short(about))
}

fn short(about: &ApprovalQuestion) -> String {
    about.digest.to_string().chars().take(SHORT_DIGEST).collect()
}

/// Describes what an approval does. All texts of a gate are safe to print.
pub(super) fn text(gate: &GateQuestion) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: &str| {
        writeln!(text, "  {name:<9} {value}").ok(); // writing to a string does not fail
    };
    if let Some(apply) = &gate.apply {
        let commit: String = apply.commit.chars().take(12).collect();
        let size =
            format!("{} files, +{} -{}", apply.files, apply.added_lines, apply.removed_lines);
        let value =
            format!("put commit {commit} of {} on branch {} ({size})", apply.of, apply.branch);
        row("will do", &value);
        for file in &apply.executes {
            row("executes", file);
        }
    }
    for input in &gate.inputs {
        let digest: String = input.digest.chars().take(16).collect();
        row("input", &format!("{}, {} bytes, sha256 {digest}", input.name, input.size));
        for line in input.preview.lines().take(PREVIEW_LINES) {
            row("", &format!("| {line}"));
        }
        if input.preview.lines().count() > PREVIEW_LINES
            || input.preview.len() < usize::try_from(input.size).unwrap_or(usize::MAX)
        {
            row("", "| …");
        }
    }
    for dependent in &gate.dependents {
        row("then", &format!("{}: {}", dependent.task, dependent.does));
    }
    if gate.dependents.is_empty() && gate.apply.is_none() {
        row("then", "nothing starts");
    }
    if !gate.taint.is_empty() {
        let labels: Vec<String> = gate.taint.iter().map(ToString::to_string).collect();
        row("labels", &labels.join(", "));
    }
    if !gate.clears.is_empty() {
        row("clears", &gate.clears.join(", "));
    }
    if let Some(why) = &gate.obstacle {
        row("obstacle", &format!("cannot be approved: {why}"));
    }
    row("run", &gate.run);
    text
}
