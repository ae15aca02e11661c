//! Converts the request of a caller into the task of a box.

use std::collections::BTreeSet;
use std::time::Duration;

use belljar_code::skill::Skill;
use belljar_model::Config;
use belljar_model::code::{ApiName, CodeConfig, Selection};
use belljar_wire::{Job, Program as Exec, Script};

use super::language::Language;
use super::{Programs, RunError};
use crate::supervisor::spec::Task;

/// A request to run one program.
#[derive(Debug)]
pub struct Work {
    pub program: Program,
    /// The services that the program may call. `None` selects all declared services.
    pub apis: Option<BTreeSet<ApiName>>,
    pub timeout: Option<Duration>,
}

/// The program of a request.
#[derive(Debug)]
pub enum Program {
    /// Code that a model wrote.
    Code { code: String, language: Language, input: Option<String> },
    /// A script of Belljar that implements a file tool.
    Tool(Script),
    /// A command with its arguments.
    Command { argv: Vec<String>, stdin: Option<String> },
}

/// The maximum heap size of the script engine, in percent of the box's memory limit.
const HEAP_PERCENT: u64 = 75;

impl Work {
    /// Creates the request to call a skill with an input. The skill gets only the services that it needs for
    /// its declared access, even if its caller may use more.
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
    /// Converts a request into the task that is sent to a box.
    pub(super) fn task(&self, config: &Config, work: Work) -> Result<Task, RunError> {
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
                        let found = self.modules(config, &code, &apis)?;
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
                if argv.iter().any(|argument| argument.contains('\0')) {
                    return Err(RunError::Usage("`command` contains a NUL byte".to_owned()));
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

/// Returns the command that runs code with an interpreter of the host.
fn program(language: Language, code: String, input: Option<String>) -> Result<Exec, RunError> {
    let name = language.name();
    if !language.is_installed() {
        let installed = Language::installed_names().join(", ");
        return Err(RunError::Usage(format!(
            "the language `{name}` is not installed on this machine; use one of {installed}"
        )));
    }
    let no_interpreter = || RunError::Usage(format!("the language `{name}` has no interpreter"));
    language.program(code, input).ok_or_else(no_interpreter)
}

/// Returns the timeout of a program. An error if the requested timeout is not within the configured range.
fn timeout(code: &CodeConfig, requested: Option<Duration>) -> Result<Duration, RunError> {
    let (min, max) = (CodeConfig::MIN_TIMEOUT, code.max_timeout);
    match requested {
        None => Ok(code.timeout.min(max)),
        Some(requested) if requested < min || requested > max => Err(RunError::Usage(format!(
            "`timeout` must be from {} to {} seconds",
            min.as_secs(),
            max.as_secs()
        ))),
        Some(requested) => Ok(requested),
    }
}
