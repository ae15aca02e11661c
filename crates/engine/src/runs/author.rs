//! Asks a model to write a plan for a goal, and checks the plan.
//!
//! Each question is a run with one `model` task: in a box, through the broker, with the key in the vault, recorded
//! and limited by a budget. A plan with faults goes back to the model together with its faults.
//!
//! [`Author::start`] starts the next question. The caller waits until its run has ended, and [`Author::judge`]
//! reads the answer. Nothing here submits the plan of the model: a person does that.
//!
//! **Invariant:** an accepted plan passes all checks of a submission, uses only the given template and the
//! listed tiers, agents and secrets, and names only files inside of its directory.

mod answer;
mod directory;
mod failure;
mod paths;
mod prompt;
mod question;
mod setup;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use belljar_model::net::MicroUsd;
use belljar_model::plan::{Ceiling, CheckedPlan, Plan, PlanFaults, PlanPath, RunBudget, TierName};
use belljar_model::{RunId, Template};

use self::directory::DirectoryFacts;
use self::prompt::Names;
use self::question::Question;
use super::budget::{Amounts, Unit};
use super::machine::{Outcome, TaskRef};
use super::plans;
use super::submit;
use super::view;
use crate::error::{EngineError, ErrorKind, WithKind as _, invalid};
use crate::scope::Scoped;

/// The maximum number of questions for one goal.
pub const MAX_ATTEMPTS: u32 = 3;
/// The maximum length of a goal in bytes.
const MAX_GOAL: usize = 16 << 10;
/// The task whose output is the plan.
const TASK: &str = "write";

/// A request for a plan.
#[derive(Debug, Clone, Default)]
pub struct PlanRequest {
    pub goal: String,
    /// The tier that writes the plan; by default the most capable one of the configuration.
    pub tier: Option<TierName>,
    /// The template of all boxes of the plan, and of the box of the model; by default `default`.
    pub template: Option<String>,
    /// The maximum number of questions, from 1 to [`MAX_ATTEMPTS`].
    pub attempts: u32,
    /// The limits of all questions together. `calls`, `tokens` and `time` have defaults.
    pub budget: RunBudget,
}

/// Writes one plan with the help of a model.
#[derive(Debug)]
pub struct Author<'a> {
    state: &'a Scoped,
    /// The directory that paths of the plan refer to.
    dir: PathBuf,
    goal: String,
    tier: TierName,
    attempts: u32,
    template: Template,
    names: Names,
    facts: DirectoryFacts,
    /// What the question may use: everything of the operator.
    operator: Ceiling,
    /// What the plan may use.
    ceiling: Ceiling,
    budget: RunBudget,
    used: Amounts,
    /// The number of questions so far.
    asked: u32,
    refused: Option<RefusedPlan>,
}

#[derive(Debug)]
struct RefusedPlan {
    text: String,
    faults: PlanFaults,
}

/// A plan of a model that passed all checks.
#[derive(Debug, Clone)]
pub struct WrittenPlan {
    /// The text, without hidden characters.
    pub text: String,
    pub plan: CheckedPlan,
    /// The files and directories that the plan names.
    pub paths: Vec<PlanPath>,
    dir: PathBuf,
}

impl WrittenPlan {
    /// Checks again that all paths lead to files inside of the directory. They can have changed while a person
    /// read the plan.
    pub fn check_paths(&self) -> Result<(), EngineError> {
        match path_faults(&self.dir, &self.paths)? {
            None => Ok(()),
            Some(faults) => Err(EngineError::new(ErrorKind::Conflict, faults)
                .context("files that the plan names have changed")),
        }
    }
}

/// The result of one question.
#[derive(Debug)]
pub enum Judged {
    Accepted(Box<WrittenPlan>),
    /// The plan has faults. After the last question there is no other one.
    Refused {
        faults: PlanFaults,
        is_last: bool,
    },
}

impl<'a> Author<'a> {
    /// Reads the configuration and the facts about a directory, and checks the request. Nothing is started.
    pub fn open(state: &'a Scoped, dir: &Path, request: &PlanRequest) -> Result<Self, EngineError> {
        let goal = goal(&request.goal)?;
        if !(1..=MAX_ATTEMPTS).contains(&request.attempts) {
            return Err(invalid(format!("the number of attempts is from 1 to {MAX_ATTEMPTS}")));
        }
        let setup = setup::of(state, dir, request.tier.as_ref(), request.template.as_deref())?;
        let facts = DirectoryFacts::read(dir)
            .with_context(|| format!("cannot read the directory {}", dir.display()))
            .kind(ErrorKind::Invalid)?;
        let budget = question::limited(&request.budget, &setup.operator.budget);
        Ok(Self {
            state,
            dir: dir.to_owned(),
            goal,
            tier: setup.tier,
            attempts: request.attempts,
            template: setup.template,
            names: setup.names,
            facts,
            operator: setup.operator,
            ceiling: setup.ceiling,
            budget,
            used: Amounts::NONE,
            asked: 0,
            refused: None,
        })
    }

    /// Returns the tier that writes the plan.
    pub const fn tier(&self) -> &TierName {
        &self.tier
    }

    /// Returns the number of the last question, and the maximum.
    pub const fn progress(&self) -> (u32, u32) {
        (self.asked, self.attempts)
    }

    /// Returns the usage of all questions so far.
    pub const fn used(&self) -> Amounts {
        self.used
    }

    /// Returns the cost of all questions so far, if the price of the tier is known.
    pub fn cost(&self) -> Option<MicroUsd> {
        let tier = self.operator.tiers.get(&self.tier)?;
        tier.is_priced.then(|| MicroUsd(self.used.get(Unit::Money)))
    }

    /// Starts the next question. Its run goes on without this process.
    pub fn start(&mut self) -> Result<RunId, EngineError> {
        let is_repeated = self.refused.is_some();
        let refused = self.refused.as_ref();
        let question = Question {
            tier: &self.tier,
            template: &self.template.name,
            prompt: prompt::prompt(&self.names, &self.template, &self.goal, is_repeated),
            facts: &self.facts.text(),
            refused: refused.map(|RefusedPlan { text, faults }| (text.as_str(), faults)),
            budget: question::rest(&self.budget, self.used)?,
        };
        let text = question.plan().to_string();
        let plan = plans::check(&text, "question.json", &self.operator).map_err(|faults| {
            let reasons: Vec<&str> = faults.list().iter().map(|it| it.reason.as_str()).collect();
            invalid(reasons.join("; ")).context("the model cannot be asked for a plan")
        })?;
        self.asked += 1;
        submit::submit(self.state, &plan, &self.dir, None)
    }

    /// Reads the answer to a question whose run has ended, and checks the plan in it.
    pub fn judge(&mut self, run: RunId) -> Result<Judged, EngineError> {
        let view = view::run(self.state, run)?;
        self.used = self.used.plus(view.usage());
        let of = TaskRef { task: TASK.parse().kind(ErrorKind::Broken)?, item: None };
        if view.outcome != Some(Outcome::Succeeded) {
            let secret = setup::secret_of(self.state, &self.tier)?;
            return Err(failure::of_question(&view, &of, secret.as_ref()));
        }
        let answer = view::output(self.state, run, &of)?;
        let text = answer::plan_text(&String::from_utf8_lossy(&answer));
        let checked = match text {
            Ok(text) => self.check(&text)?.map_err(|faults| (text, faults)),
            Err(faults) => Err((String::from_utf8_lossy(&answer).into_owned(), faults)),
        };
        Ok(match checked {
            Ok(plan) => Judged::Accepted(Box::new(plan)),
            Err((text, faults)) => {
                self.refused = Some(RefusedPlan { text, faults: faults.clone() });
                Judged::Refused { faults, is_last: self.asked >= self.attempts }
            }
        })
    }

    /// Checks the text of a plan as a submission does, and by the rules for plans of models.
    fn check(&self, text: &str) -> Result<Result<WrittenPlan, PlanFaults>, EngineError> {
        let plan = match Plan::parse(text, answer::FILE) {
            Ok(plan) => plan,
            Err(faults) => return Ok(Err(faults)),
        };
        let paths = plan.paths();
        let authored = plan.check_authored(&self.names.secrets).err();
        // A path that the rules refuse is not looked at.
        let of_paths = match &authored {
            None => path_faults(&self.dir, &paths)?,
            Some(_) => None,
        };
        let checked = plan.check(&self.ceiling);
        let of_plan = checked.as_ref().err().cloned();
        let faults = [authored, of_paths, of_plan].into_iter().flatten().reduce(PlanFaults::and);
        Ok(match (checked, faults) {
            (Ok(plan), None) => match self.submission_fault(&plan)? {
                None => {
                    Ok(WrittenPlan { text: text.to_owned(), plan, paths, dir: self.dir.clone() })
                }
                Some(faults) => Err(faults),
            },
            (_, Some(faults)) | (Err(faults), None) => Err(faults),
        })
    }

    /// Returns the reason why a submission would refuse the plan. The text has no path of this machine.
    fn submission_fault(&self, plan: &CheckedPlan) -> Result<Option<PlanFaults>, EngineError> {
        let Err(error) = submit::check(self.state, plan, &self.dir) else { return Ok(None) };
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Refused => {
                let dir = self.dir.display().to_string();
                let reason = format!("{error:#}").replace(&dir, "the directory");
                Ok(Some(PlanFaults::one(answer::FILE, 1, reason)))
            }
            ErrorKind::AlreadyExists
            | ErrorKind::WrongState
            | ErrorKind::LimitReached
            | ErrorKind::Busy
            | ErrorKind::Conflict
            | ErrorKind::Damaged
            | ErrorKind::Version
            | ErrorKind::Broken
            | ErrorKind::Unrecorded
            | ErrorKind::CannotStart
            | ErrorKind::NotExecutable
            | ErrorKind::ProgramNotFound => Err(error),
        }
    }
}

fn path_faults(dir: &Path, paths: &[PlanPath]) -> Result<Option<PlanFaults>, EngineError> {
    let faults = paths::faults(dir, paths)
        .with_context(|| format!("cannot read the directory {}", dir.display()))
        .kind(ErrorKind::Broken)?;
    Ok(PlanFaults::of(answer::FILE, faults))
}

fn goal(text: &str) -> Result<String, EngineError> {
    let goal = text.trim();
    if goal.is_empty() {
        return Err(invalid("the goal is empty; say in a sentence what the plan is for"));
    }
    if goal.len() > MAX_GOAL {
        let text = format!("the goal is longer than {} KiB", MAX_GOAL >> 10);
        return Err(
            invalid(text).advise("put the details into a file and name the file in the goal")
        );
    }
    Ok(goal.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_is_trimmed_and_an_empty_or_very_long_one_is_refused() {
        assert_eq!(goal("  Fix the login.\n").unwrap(), "Fix the login.");
        assert!(goal(" \n").is_err_and(|error| error.to_string().starts_with("the goal is empty")));
        let long = goal(&"x".repeat(MAX_GOAL + 1)).unwrap_err();
        assert_eq!(long.to_string(), "the goal is longer than 16 KiB");
    }
}
