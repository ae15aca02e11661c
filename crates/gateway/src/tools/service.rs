//! The MCP service: one workspace per session, or per call of a client without sessions. All share the configuration, skills and
//! tool servers.
//!
//! **Invariant:** a call finds a workspace and results only by the id of their session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_engine::programs::{ProgramSession, Programs, close_session};
use belljar_engine::skills::Skills;
use belljar_model::Caller;
use belljar_model::code::SkillName;
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use super::{instructions, resources, specs};
use crate::mcp::context::{CallContext, StateLifetime};
use crate::mcp::service::{
    About, CallError, CallOutcome, PromptArgument, PromptError, PromptSpec, PromptText, ReadError,
    ResourceContents, ResourceSpec, ResourceTemplateSpec, Service, ToolSpec,
};

/// The MCP tools of Belljar for all sessions of one server.
#[derive(Debug)]
pub struct McpService {
    pub(super) programs: Arc<Programs>,
    pub(super) skills: Skills,
    /// The program sessions by caller, so that no caller gets the session of another.
    rooms: Mutex<HashMap<Caller, Arc<ProgramSession>>>,
    /// The tasks that remove the resources of ended sessions.
    leaving: Mutex<JoinSet<()>>,
}

impl McpService {
    pub fn new(programs: Arc<Programs>, skills: Skills) -> Self {
        Self { programs, skills, rooms: Mutex::default(), leaving: Mutex::default() }
    }

    /// Returns the program session of a caller and creates it on first use.
    pub(super) fn room(&self, caller: &Caller) -> Result<Arc<ProgramSession>, CallError> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = rooms.get(caller) {
            return Ok(Arc::clone(room));
        }
        let room = self.programs.new_session_of(caller);
        let room = room.map_err(|error| CallError::Internal(format!("{error:#}")))?;
        rooms.insert(caller.clone(), Arc::clone(&room));
        Ok(room)
    }

    /// Returns the program session for one call. A call without a session gets a new one, which no
    /// other call can use.
    pub(super) fn room_for_call(
        &self,
        caller: &Caller,
        context: &CallContext,
    ) -> Result<CallRoom<'_>, CallError> {
        let of_session = context.retention.lifetime() == StateLifetime::Session;
        let room = match of_session {
            true => self.room(caller)?,
            false => {
                let room = self.programs.new_session_for_one_call(caller);
                room.map_err(|error| CallError::Internal(format!("{error:#}")))?
            }
        };
        Ok(CallRoom { room, service: (!of_session).then_some(self) })
    }

    /// Returns the program session of a caller, if it exists.
    pub(super) fn known(&self, caller: &Caller) -> Option<Arc<ProgramSession>> {
        let rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.get(caller).map(Arc::clone)
    }

    /// Ends all sessions and waits until their resources are removed.
    pub async fn close(&self) {
        let rooms = std::mem::take(&mut *self.rooms.lock().unwrap_or_else(PoisonError::into_inner));
        rooms.into_values().for_each(|room| self.leave(room));
        let leaving = std::mem::take(&mut *self.leaving());
        leaving.join_all().await;
    }

    /// Removes the resources of a session on a blocking thread, because that accesses files.
    fn leave(&self, room: Arc<ProgramSession>) {
        let mut leaving = self.leaving();
        while leaving.try_join_next().is_some() {} // collect finished tasks
        leaving.spawn_blocking(move || close_session(room));
    }

    fn leaving(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The program session of one call.
#[derive(Debug)]
pub(super) struct CallRoom<'a> {
    pub(super) room: Arc<ProgramSession>,
    /// The service that removes the session after the call; `None` if other calls use it.
    service: Option<&'a McpService>,
}

impl Drop for CallRoom<'_> {
    fn drop(&mut self) {
        if let Some(service) = self.service {
            service.leave(Arc::clone(&self.room));
        }
    }
}

impl Service for McpService {
    fn about(&self, _: &Caller) -> About {
        About {
            name: "belljar".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instructions: instructions::brief(&self.programs),
        }
    }

    async fn tools(&self, caller: &Caller, lifetime: StateLifetime) -> Vec<ToolSpec> {
        // A client that lists the tools will call one soon. A client without a session will call it
        // in another workspace.
        if lifetime == StateLifetime::Session
            && let Ok(room) = self.room(caller)
        {
            self.programs.warm(&room);
        }
        specs::all(&self.programs, lifetime)
    }

    fn state_argument(&self) -> &'static str {
        specs::WORKSPACE
    }

    async fn call(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Map<String, Value>,
        context: CallContext,
    ) -> Result<CallOutcome, CallError> {
        self.handle(caller, name, arguments, &context).await
    }

    async fn resources(&self, caller: &Caller) -> Vec<ResourceSpec> {
        resources::list(&self.programs, &self.skills, self.known(caller).as_deref())
    }

    fn resource_templates(&self) -> Vec<ResourceTemplateSpec> {
        resources::templates()
    }

    async fn read(&self, caller: &Caller, uri: &str) -> Result<Vec<ResourceContents>, ReadError> {
        resources::read(&self.programs, &self.skills, self.known(caller).as_deref(), uri)
    }

    async fn prompts(&self, _: &Caller) -> Vec<PromptSpec> {
        let argument = |name: &str, description: &str, required| PromptArgument {
            name: name.to_owned(),
            description: description.to_owned(),
            required,
        };
        vec![PromptSpec {
            name: "run_skill".to_owned(),
            title: Some("Run a skill".to_owned()),
            description: "Run a saved skill with an input".to_owned(),
            arguments: vec![
                argument("name", "The name of the skill", true),
                argument("input", "The input as JSON", false),
            ],
        }]
    }

    async fn prompt(
        &self,
        _: &Caller,
        name: &str,
        arguments: Map<String, Value>,
    ) -> Result<PromptText, PromptError> {
        if name != "run_skill" {
            return Err(PromptError::UnknownPrompt);
        }
        let text = |key: &str| arguments.get(key).and_then(Value::as_str);
        let missing = || PromptError::InvalidArguments("`name` is missing".to_owned());
        let skill: SkillName = text("name")
            .ok_or_else(missing)?
            .parse()
            .map_err(|error| PromptError::InvalidArguments(format!("`name`: {error}")))?;
        let found = self.skills.get(&skill);
        let found = found.map_err(|error| PromptError::InvalidArguments(error.to_string()))?;
        let input = text("input").map_or_else(String::new, |input| format!(" and input {input}"));
        Ok(PromptText {
            description: Some(instructions::description(&found.description)),
            text: format!(
                "Call the tool `run_skill` with name {skill:?}{input}, and show me its result.\n\nThe author of the skill describes it as \"{}\".",
                instructions::description(&found.description)
            ),
        })
    }

    fn closed(&self, caller: &Caller) {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(room) = rooms.remove(caller) else { return };
        drop(rooms);
        self.leave(room);
    }
}
