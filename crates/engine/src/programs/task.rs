//! From what a caller asks for to what a box is told.

use std::collections::BTreeSet;
use std::time::Duration;

use belljar_code::skill::Skill;
use belljar_model::Config;
use belljar_model::code::{ApiName, CodeConfig, Selection};
use belljar_wire::{Job, Program as Exec, Script};

use super::language::Language;
use super::{Programs, RunError};
use crate::supervisor::spec::Task;

/// What a caller asks for.
#[derive(Debug)]
pub struct Work {
    pub program: Program,
    /// The services that it is given; all that are declared if it does not say.
    pub apis: Option<BTreeSet<ApiName>>,
    pub timeout: Option<Duration>,
}

/// One program.
#[derive(Debug)]
pub enum Program {
    /// As a model wrote it.
    Code { code: String, language: Language, input: Option<String> },
    /// A small script of our own, for a tool that works on files.
    Tool(Script),
    /// A command line.
    Command { argv: Vec<String>, stdin: Option<String> },
}

/// The heap of the engine, in parts of the box's memory: the rest is for what it is made of.
const HEAP_PERCENT: u64 = 75;

impl Work {
    /// Calls a skill with an input. It gets the services that lead to what it wants and no others,
    /// whatever its caller may.
    pub fn of_skill(skill: &Skill, config: &Config, input: Option<String>) -> Self {
        let code = format!(
            "import * as skill from \"skill:{}\";\nconst run = skill.default ?? skill.main ?? skill.run;\nif (run === undefined) throw new TypeError(\"the skill exports no default, main or run\");\nexport default typeof run === \"function\" ? await run(input) : run;\n",
            skill.name
        );
        let program = Program::Code { code, language: Language::JavaScript, input };
        Self { program, apis: Some(skill.wants.apis(config.apis())), timeout: None }
    }
}

impl Programs {
    pub(super) async fn task(&self, config: &Config, work: Work) -> Result<Task, RunError> {
        let code = config.code();
        let timeout = timeout(code, work.timeout)?;
        let selection = work.apis.as_ref().map_or(Selection::All, Selection::Only);
        let apis = selection.of(config).map_err(|error| RunError::Usage(error.to_string()))?;
        let memory = code.template(config, selection);
        let memory = memory.map_err(|error| RunError::Usage(error.to_string()))?;
        let memory = memory.template.limits.memory.as_u64() / 100 * HEAP_PERCENT;
        let (job, command) = match work.program {
            Program::Code { code, language, input } => {
                let mut command = vec!["execute_code".to_owned(), language.name().to_owned()];
                command.push(code.clone());
                command.extend(input.clone());
                let job = match language.dialect() {
                    Some(dialect) => {
                        let found = self.modules(config, &code, &apis).await?;
                        Job::Script(Script {
                            file: format!("main.{}", language.name()),
                            code,
                            language: dialect,
                            input,
                            modules: found.modules,
                            apis: found.apis,
                            tools: found.tools,
                            memory,
                        })
                    }
                    None => Job::Program(program(language, code, input)?),
                };
                (job, command)
            }
            Program::Tool(script) => {
                let command = vec![script.file.clone(), script.input.clone().unwrap_or_default()];
                (Job::Script(Script { memory, ..script }), command)
            }
            Program::Command { argv, stdin } => {
                if argv.first().is_none_or(String::is_empty) {
                    return Err(RunError::Usage("`command` must name a program".to_owned()));
                }
                if argv.iter().any(|word| word.contains('\0')) {
                    return Err(RunError::Usage("`command` has a NUL in it".to_owned()));
                }
                let command = std::iter::once("run_command".to_owned()).chain(argv.clone());
                let command = command.collect();
                let (env, files, workdir) = (Vec::new(), Vec::new(), None);
                (Job::Program(Exec { argv, env, files, workdir, stdin }), command)
            }
        };
        let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let output = code.output.as_u64();
        Ok(Task { job, command, timeout_millis: Some(timeout), output })
    }
}

fn program(language: Language, code: String, input: Option<String>) -> Result<Exec, RunError> {
    if !language.is_here() {
        return Err(RunError::Usage(format!(
            "boxes on this machine have no {}; there are {}",
            language.name(),
            Language::here().join(", ")
        )));
    }
    language.program(code, input).ok_or_else(|| RunError::Usage("no such language".to_owned()))
}

/// How long it may take. Neither nothing nor for ever can be said.
fn timeout(code: &CodeConfig, said: Option<Duration>) -> Result<Duration, RunError> {
    let (least, most) = (CodeConfig::MIN_TIMEOUT, code.max_timeout);
    match said {
        None => Ok(code.timeout.min(most)),
        Some(said) if said < least || said > most => Err(RunError::Usage(format!(
            "`timeout` must be from {} to {} seconds",
            least.as_secs(),
            most.as_secs()
        ))),
        Some(said) => Ok(said),
    }
}
