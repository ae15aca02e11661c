//! `belljar approve`: says yes or no to what boxes ask first, each time to exactly one thing.

use std::io::IsTerminal as _;

use belljar_model::boxes::BoxName;
use belljar_model::display;
use serde::Serialize;

use crate::cli::network::{ApproveArgs, QuestionId};
use crate::exit::{self, Outcome};
use crate::print;
use crate::scope;
use crate::scope::CLOCK;
use belljar_engine::box_store::NamedBox;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _};
use belljar_engine::keeper::{
    self,
    protocol::{Reply, Request},
};
use belljar_engine::network::broker::lever::Question;
use belljar_engine::scope::Scoped;

/// A question of a box, for programs.
#[derive(Debug, Serialize)]
struct Waiting {
    id: String,
    #[serde(rename = "box")]
    name: BoxName,
    #[serde(flatten)]
    question: About,
}

/// What of a question is told.
#[derive(Debug, Serialize)]
struct About {
    asked: u64,
    until: u64,
    text: String,
    secret: Option<String>,
}

/// What was answered, for programs.
#[derive(Debug, Serialize)]
struct Answered {
    id: String,
    answer: &'static str,
    /// Why it was not taken.
    error: Option<String>,
}

pub(crate) fn run(args: &ApproveArgs) -> Outcome {
    let state = scope::open(None)?;
    if args.ids.is_empty() && args.all_of.is_empty() {
        return look(&state, args);
    }
    let mut ids = args.ids.clone();
    for name in &args.all_of {
        let one = NamedBox::find(&state, name)?;
        ids.extend(of_box(&one)?.into_iter().map(|(id, _)| id));
    }
    if ids.is_empty() {
        print::note("nothing waits for an answer");
    }
    let mut worst = 0;
    for id in &ids {
        worst = worst.max(answer(&state, id, !args.deny, args.json)?);
    }
    Ok(worst)
}

/// Shows what waits, and on a terminal asks about one after the other.
fn look(state: &Scoped, args: &ApproveArgs) -> Outcome {
    let mut all = Vec::new();
    for one in NamedBox::all(state)?.iter().filter(|one| one.is_up()) {
        match of_box(one) {
            Ok(questions) => all.extend(questions),
            // One that ends right now does not hide what the others ask.
            Err(failure) => print::error(&failure),
        }
    }
    if args.json {
        for (id, question) in all {
            let Question { id: _, asked, until, text, secret } = question;
            let question = About { asked, until, text, secret };
            print::json(&Waiting { id: id.to_string(), name: id.name, question })
                .kind(ErrorKind::Broken)?;
        }
        return Ok(0);
    }
    if all.is_empty() {
        print::note("nothing waits for an answer");
        return Ok(0);
    }
    if !std::io::stdin().is_terminal() {
        for (id, question) in &all {
            print::out(&line(id, question)).kind(ErrorKind::Broken)?;
        }
        return Ok(0);
    }
    let mut worst = 0;
    for (id, question) in &all {
        print::ask(&line(id, question));
        print::ask("allow exactly this once? [y/n, anything else leaves it waiting] ");
        match print::answer().kind(ErrorKind::Broken)?.as_deref() {
            Some("y" | "Y" | "yes") => worst = worst.max(answer(state, id, true, false)?),
            Some("n" | "N" | "no") => worst = worst.max(answer(state, id, false, false)?),
            Some(_) => {}
            None => break,
        }
    }
    Ok(worst)
}

/// What waits in one box.
fn of_box(one: &NamedBox) -> Result<Vec<(QuestionId, Question)>, EngineError> {
    let Reply::Questions(questions) = keeper::ask(one, &Request::Questions)? else {
        let error = anyhow::anyhow!("the keeper of box {} answered something else", one.name());
        return Err(EngineError::new(ErrorKind::Broken, error));
    };
    let named = |question: Question| {
        (QuestionId { name: one.name().clone(), number: question.id }, question)
    };
    Ok(questions.into_iter().map(named).collect())
}

/// Answers one; 2 if nothing waits under this name.
fn answer(state: &Scoped, id: &QuestionId, yes: bool, json: bool) -> Outcome {
    let one = NamedBox::find(state, &id.name)?;
    let told = keeper::ask(&one, &Request::Answer { id: id.number, yes });
    let error = match told {
        Ok(_) => None,
        Err(error) if error.kind() == ErrorKind::Invalid => Some(format!("{error:#}")),
        Err(failure) => return Err(failure),
    };
    let code = if error.is_some() { exit::USAGE } else { 0 };
    let answer = if yes { "allow" } else { "deny" };
    if json {
        print::json(&Answered { id: id.to_string(), answer, error }).kind(ErrorKind::Broken)?;
    } else {
        match error {
            Some(error) => print::note(&format!("{id}: {error}")),
            None if yes => print::note(&format!("{id}: allowed, this once")),
            None => print::note(&format!("{id}: denied")),
        }
    }
    Ok(code)
}

fn line(id: &QuestionId, question: &Question) -> String {
    let millis = CLOCK.millis();
    let left = question.until.saturating_sub(millis).div_ceil(1000);
    format!("{id:<20}  {}  ({left} s left)\n", display::safe_line(&question.text))
}
