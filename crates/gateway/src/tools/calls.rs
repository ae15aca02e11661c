//! Implements the tools.

use std::collections::BTreeSet;
use std::time::Duration;

use belljar_engine::file_tools::FileTool;
use belljar_engine::programs::{
    ClientNumber, Language, Listener, Program, ProgramReport, RunError, Stream, Work,
};
use belljar_engine::skills::{
    Author, Dialect, Draft, Saved, SkillInfo, SkillState, VersionState, Wants,
};
use belljar_model::Caller;
use belljar_model::caller::ClientId;
use belljar_model::code::ApiName;
use serde_json::{Map, Value, json};

use super::arguments::{
    DeleteSkill, DescribeApi, ExecuteCode, NoArguments, RunCommand, RunSkill, SaveSkill,
    SearchTools, UpdateSkill, invalid, read, seconds,
};
use super::service::McpService;
use super::{instructions, resources, specs};
use crate::mcp::context::{CallContext, StateLifetime};
use crate::mcp::service::{CallError, CallOutcome};

/// The maximum number of results of a search without `limit`.
const DEFAULT_SEARCH_LIMIT: usize = 20;

impl McpService {
    /// Runs the MCP tool `name` with its arguments.
    pub(super) async fn handle(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Map<String, Value>,
        context: &CallContext,
    ) -> Result<CallOutcome, CallError> {
        match name {
            "execute_code" => self.execute_code(caller, read(arguments)?, context).await,
            "run_command" => self.run_command(caller, read(arguments)?, context).await,
            "run_skill" => self.run_skill(caller, read(arguments)?, context).await,
            "read_file" => self.file(caller, FileTool::Read(read(arguments)?), context).await,
            "write_file" => self.file(caller, FileTool::Write(read(arguments)?), context).await,
            "edit_file" => self.file(caller, FileTool::Edit(read(arguments)?), context).await,
            "glob" => self.file(caller, FileTool::Glob(read(arguments)?), context).await,
            "grep" => self.file(caller, FileTool::Grep(read(arguments)?), context).await,
            specs::OPEN_WORKSPACE => {
                read(arguments).and_then(|NoArguments {}| open_workspace(caller, context))
            }
            "list_apis" => read(arguments).and_then(|NoArguments {}| self.list_apis()),
            "describe_api" => self.describe_api(&read(arguments)?),
            "get_instructions" => read(arguments)
                .map(|NoArguments {}| text(instructions::full(&self.programs, &self.skills))),
            "save_skill" => self.save_skill(caller, read(arguments)?),
            "update_skill" => self.update_skill(caller, &read(arguments)?),
            "delete_skill" => self.delete_skill(caller, &read(arguments)?),
            "list_skills" => read(arguments).and_then(|NoArguments {}| self.list_skills()),
            "search_tools" => self.search_tools(&read(arguments)?).await,
            _ => Err(CallError::UnknownTool),
        }
    }

    async fn execute_code(
        &self,
        caller: &Caller,
        asked: ExecuteCode,
        context: &CallContext,
    ) -> Result<CallOutcome, CallError> {
        let (language, apis, timeout) = (asked.language()?, asked.apis()?, asked.timeout()?);
        let input = asked.input.as_ref().map(Value::to_string);
        let program = Program::Code { code: asked.code, language, input };
        let report = self.run(caller, Work { program, apis, timeout }, context).await?;
        Ok(report_outcome(&report))
    }

    async fn run_command(
        &self,
        caller: &Caller,
        asked: RunCommand,
        context: &CallContext,
    ) -> Result<CallOutcome, CallError> {
        let timeout = seconds(asked.timeout)?;
        let program = Program::Command { argv: asked.argv(), stdin: asked.stdin };
        let report = self.run(caller, Work { program, apis: None, timeout }, context).await?;
        Ok(report_outcome(&report))
    }

    /// Runs a skill with only the permissions that it declared, even if the caller has more.
    async fn run_skill(
        &self,
        caller: &Caller,
        asked: RunSkill,
        context: &CallContext,
    ) -> Result<CallOutcome, CallError> {
        let skill = self.skills.get(&asked.name).map_err(invalid)?;
        let config = self.programs.config().map_err(invalid)?;
        let work = Work::of_skill(&skill, &config, asked.input.as_ref().map(Value::to_string));
        let timeout = seconds(asked.timeout)?;
        let report = self.run(caller, Work { timeout, ..work }, context).await?;
        Ok(report_outcome(&report))
    }

    /// Runs an MCP tool that works on files. The result is the output of its script.
    async fn file(
        &self,
        caller: &Caller,
        tool: FileTool,
        context: &CallContext,
    ) -> Result<CallOutcome, CallError> {
        let report = self.run(caller, tool.work(), context).await?;
        if let Some(why) = report.failure() {
            return Ok(CallOutcome { text: why, structured: None, is_error: true });
        }
        let json = report.json();
        let value = json.get("result").unwrap_or(&Value::Null);
        let text = value.as_str().or_else(|| value.get("content")?.as_str()).map(str::to_owned);
        let text = text.unwrap_or_else(|| match value.is_null() {
            true => report.result().to_owned(),
            false => serde_json::to_string_pretty(value).unwrap_or_default(),
        });
        Ok(CallOutcome { text, structured: None, is_error: false })
    }

    async fn run(
        &self,
        caller: &Caller,
        work: Work,
        context: &CallContext,
    ) -> Result<ProgramReport, CallError> {
        let call_room = self.room_for_call(caller, context)?;
        let room = &call_room.room;
        let client = ClientNumber(context.client);
        let mut listener = ProgressListener { context };
        let answer = self.programs.run(room, work, client, &mut listener, &context.cancelled).await;
        let answer = answer.map_err(|error| match error {
            RunError::Usage(message) => CallError::InvalidArguments(message),
            RunError::Broken(error) => CallError::Internal(format!("{error:#}")),
        })?;
        let report = ProgramReport::of(&answer);
        room.store_result(answer.run, report.json_text());
        Ok(report)
    }

    fn list_apis(&self) -> Result<CallOutcome, CallError> {
        let config = self.programs.config().map_err(invalid)?;
        let apis: Vec<Value> = config.apis().values().map(resources::api_line).collect();
        let languages = Language::installed_names();
        let value = json!({ "apis": apis, "languages": languages });
        Ok(structured(value))
    }

    fn describe_api(&self, asked: &DescribeApi) -> Result<CallOutcome, CallError> {
        let config = self.programs.config().map_err(invalid)?;
        let name: ApiName =
            asked.api.parse().map_err(|error| invalid(format!("`api`: {error}")))?;
        let api = config.api(&name).map_err(invalid)?;
        resources::describe(&self.programs, api, asked.search.as_deref()).map(text).map_err(invalid)
    }

    fn save_skill(&self, caller: &Caller, asked: SaveSkill) -> Result<CallOutcome, CallError> {
        let language = match asked.language.as_deref() {
            None | Some("ts" | "typescript") => Dialect::Ts,
            Some("js" | "javascript") => Dialect::Js,
            Some(other) => {
                return Err(invalid(format!("`language`: expected ts or js, not {other:?}")));
            }
        };
        let wants = Wants {
            hosts: parsed("hosts", &asked.hosts)?,
            secrets: parsed("secrets", &asked.secrets)?,
            paths: asked.paths.into_iter().collect(),
        };
        let draft = Draft { description: asked.description, code: asked.code, language, wants };
        let saved = self.skills.save(&asked.name, draft, &author(caller));
        let saved = saved.map_err(invalid)?;
        Ok(structured(saved_line(asked.name.as_str(), &saved)))
    }

    fn update_skill(&self, caller: &Caller, asked: &UpdateSkill) -> Result<CallOutcome, CallError> {
        let saved = self.skills.edit(&asked.name, &asked.edits(), &author(caller));
        let saved = saved.map_err(invalid)?;
        Ok(structured(saved_line(asked.name.as_str(), &saved)))
    }

    fn delete_skill(&self, caller: &Caller, asked: &DeleteSkill) -> Result<CallOutcome, CallError> {
        self.skills.remove(&asked.name, &author(caller)).map_err(invalid)?;
        Ok(text(format!("deleted the skill {}", asked.name)))
    }

    fn list_skills(&self) -> Result<CallOutcome, CallError> {
        let skills = self.skills.list().map_err(invalid)?;
        let skills: Vec<Value> = skills.iter().map(skill_line).collect();
        Ok(structured(json!({ "skills": skills })))
    }

    async fn search_tools(&self, asked: &SearchTools) -> Result<CallOutcome, CallError> {
        let limit = asked.limit.unwrap_or(DEFAULT_SEARCH_LIMIT).clamp(1, 100);
        let found = self.programs.servers.search(&asked.query, limit).await;
        let declarations = belljar_engine::tool_servers::declarations(&found);
        Ok(text(if found.is_empty() {
            "no accepted tool of another server matches the query".to_owned()
        } else {
            declarations
        }))
    }
}

/// Keeps the workspace of a call for later calls that name it.
fn open_workspace(caller: &Caller, context: &CallContext) -> Result<CallOutcome, CallError> {
    if context.retention.lifetime() == StateLifetime::Session {
        return Err(invalid("this workspace is open already; calls without `workspace` open one"));
    }
    let id = caller.session.ok_or_else(|| CallError::Internal("no session".to_owned()))?;
    context.retention.keep();
    Ok(structured(json!({ specs::WORKSPACE: id.to_string() })))
}

/// Reports the progress of a running program to its client.
struct ProgressListener<'a> {
    context: &'a CallContext,
}

impl Listener for ProgressListener<'_> {
    fn output(&mut self, _: Stream, _: &str) {}

    fn progress(&mut self, since: Duration, written: usize) {
        if self.context.progress.is_requested() {
            let message = format!("running for {} s, {written} bytes of output", since.as_secs());
            self.context.progress.report(since.as_secs_f64(), None, message);
        }
    }
}

/// Returns the complete report on a program as the result of a tool call.
fn report_outcome(report: &ProgramReport) -> CallOutcome {
    CallOutcome { text: report.text(), structured: Some(report.json()), is_error: !report.is_ok() }
}

fn text(text: impl Into<String>) -> CallOutcome {
    CallOutcome { text: text.into(), structured: None, is_error: false }
}

fn structured(value: Value) -> CallOutcome {
    let text = serde_json::to_string_pretty(&value).unwrap_or_default();
    CallOutcome { text, structured: Some(value), is_error: false }
}

/// Returns the author of the skills that a caller saves. The clients of one user on standard streams are
/// one author, because nothing authenticates them.
fn author(caller: &Caller) -> Author {
    let client = caller.client.as_ref().map_or("stdio", ClientId::as_str).to_owned();
    // A prefix distinguishes sessions. A reader of the skill must not learn the complete id.
    let session = caller.session.map(|id| id.to_string()).unwrap_or_default();
    Author::Caller { client, session: session.get(..8).unwrap_or_default().to_owned() }
}

fn parsed<T: std::str::FromStr + Ord>(
    field: &str,
    texts: &[String],
) -> Result<BTreeSet<T>, CallError>
where
    T::Err: std::fmt::Display,
{
    let parse =
        |text: &String| text.parse().map_err(|error| invalid(format!("`{field}`: {error}")));
    texts.iter().map(parse).collect()
}

fn saved_line(name: &str, saved: &Saved) -> Value {
    match &saved.state {
        VersionState::Active => {
            json!({ "name": name, "version": saved.version.as_str(), "state": "active" })
        }
        VersionState::Waits { more } => json!({
            "name": name,
            "version": saved.version.as_str(),
            "state": "waits",
            "more": more,
            "approve": format!("the operator runs: belljar skill approve {name}"),
        }),
    }
}

fn skill_line(info: &SkillInfo) -> Value {
    let name = info.name.as_str();
    match &info.state {
        SkillState::Active { skill, waiting } => json!({
            "name": name,
            "description": instructions::description(&skill.description),
            "author": info.author,
            "version": skill.version.as_str(),
            "state": if waiting.is_some() { "active; a newer version waits" } else { "active" },
            "wants": skill.wants.words(),
            "import": format!("skill:{name}"),
        }),
        SkillState::Waiting(waiting) => json!({
            "name": name,
            "description": instructions::description(&waiting.skill.description),
            "author": info.author,
            "version": waiting.skill.version.as_str(),
            "state": "waits for approval",
            "wants": waiting.skill.wants.words(),
        }),
        SkillState::Damaged(why) => json!({ "name": name, "state": "damaged", "why": why }),
    }
}
