//! Finds the modules that a program imports: skills, libraries, clients of declared services, and tools
//! of tool servers.

use std::sync::Arc;

use belljar_code::api::Service;
use belljar_code::skill::{Granted, SkillError, SkillInfo, SkillState};
use belljar_model::Config;
use belljar_model::code::Api;
use belljar_wire::{Dialect, Module, Named, ToolRef};

use super::{Programs, RunError};
use crate::host::HostEnv;

/// The maximum total size of the modules of one program, in bytes. They are sent to the box with every
/// call.
const MAX_MODULES_SIZE: usize = 16 << 20;

/// The modules, services and tools that a program can use.
#[derive(Debug, Default)]
pub(super) struct ProgramModules {
    pub(super) modules: Vec<Module>,
    pub(super) apis: Vec<Named>,
    pub(super) tools: Vec<ToolRef>,
}

impl Programs {
    /// Returns the modules that `code` mentions. A module that the code does not import in the end does
    /// no harm, but an imported module that is missing makes the program fail.
    pub(super) fn modules(
        &self,
        config: &Config,
        code: &str,
        apis: &[&Api],
    ) -> Result<ProgramModules, RunError> {
        let mut found = ProgramModules::default();
        self.add_skills(code, apis, config.code().yolo, &mut found)?;
        let mentions = |text: &str, found: &ProgramModules| {
            code.contains(text) || found.modules.iter().any(|module| module.source.contains(text))
        };
        if mentions("lib:", &found) {
            add_libraries(self.state.host(), config, &mut found)?;
        }
        if mentions("api", &found) {
            for api in mentioned_apis(apis, code, &found) {
                let api_module = self.api_module(config, api)?;
                let specifier = format!("api:{}", api.name);
                let (name, language) = (api.name.identifier(), Dialect::Js);
                found.apis.push(Named { name, specifier: specifier.clone() });
                let source = api_module.source.clone();
                found.modules.push(Module { specifier, language, source });
            }
        }
        if mentions("tools", &found) && !config.servers().is_empty() {
            found.tools = self.servers.functions();
        }
        let size: usize = found.modules.iter().map(|module| module.source.len()).sum();
        if size > MAX_MODULES_SIZE {
            return Err(RunError::Usage(format!(
                "the modules that the program imports have {size} bytes, but the maximum is {MAX_MODULES_SIZE}; name fewer services with `apis`"
            )));
        }
        Ok(found)
    }

    /// Returns the client module of a declared service. The module is generated once and cached until the
    /// configuration changes.
    pub fn api_module(&self, config: &Config, api: &Api) -> Result<Arc<ApiModule>, RunError> {
        let cached =
            |loaded: &super::LoadedConfig| loaded.api_modules.get(&api.name).map(Arc::clone);
        if let Some(api_module) = cached(&self.loaded()) {
            return Ok(api_module);
        }
        // The lock is not held while the API description is read, which may be slow.
        let service = Service::read(api, config, self.state.host().user_home().as_deref());
        let service = service.map_err(|error| RunError::Usage(error.to_string()))?;
        let api_module = Arc::new(ApiModule { source: service.client().module, service });
        self.loaded().api_modules.insert(api.name.clone(), Arc::clone(&api_module));
        Ok(api_module)
    }

    /// Adds the skills that the code imports, and the skills that these skills import.
    fn add_skills(
        &self,
        code: &str,
        apis: &[&Api],
        yolo: bool,
        found: &mut ProgramModules,
    ) -> Result<(), RunError> {
        if !code.contains("skill:") {
            return Ok(());
        }
        let usage = |error: SkillError| RunError::Usage(error.to_string());
        let (mut unseen, mut texts) = (self.skills.list().map_err(usage)?, vec![code.to_owned()]);
        let granted = Granted { every_host: yolo, ..Granted::of(apis.iter().copied()) };
        while let Some(text) = texts.pop() {
            let is_imported = |info: &SkillInfo| imports_skill(&text, info.name.as_str());
            let (imported, rest): (Vec<_>, Vec<_>) = unseen.into_iter().partition(is_imported);
            unseen = rest;
            for SkillInfo { name, state, .. } in imported {
                let SkillState::Active { skill, .. } = state else {
                    return Err(RunError::Usage(format!(
                        "skill `{name}` is not active; the operator can approve it with `belljar skill approve {name}`"
                    )));
                };
                let missing = skill.wants.not_granted(&granted);
                if !missing.is_empty() {
                    let missing = missing.join(", ");
                    return Err(RunError::Usage(format!(
                        "skill `{name}` needs access that this call was not given: {missing}"
                    )));
                }
                texts.push(skill.code.clone());
                let (language, source) = (skill.language, skill.code);
                found.modules.push(Module { specifier: format!("skill:{name}"), language, source });
            }
        }
        Ok(())
    }
}

/// A declared service, with the source of the client module that programs import.
#[derive(Debug)]
pub struct ApiModule {
    pub service: Service,
    source: String,
}

/// Returns the services whose names occur in the code or in its modules, or all services if no name occurs.
fn mentioned_apis<'a>(apis: &[&'a Api], code: &str, found: &ProgramModules) -> Vec<&'a Api> {
    let texts: Vec<&str> = std::iter::once(code)
        .chain(found.modules.iter().map(|module| module.source.as_str()))
        .collect();
    let mentions = |text: &&str, api: &Api| {
        text.contains(&api.name.identifier()) || text.contains(api.name.as_str())
    };
    let mentioned: Vec<&Api> =
        apis.iter().copied().filter(|api| texts.iter().any(|text| mentions(text, api))).collect();
    if mentioned.is_empty() { apis.to_vec() } else { mentioned }
}

/// Returns whether a text contains the module name `skill:NAME` of this skill.
fn imports_skill(text: &str, skill: &str) -> bool {
    let specifier = format!("skill:{skill}");
    text.match_indices(&specifier).any(|(at, _)| {
        let next = text.get(at + specifier.len()..).and_then(|rest| rest.chars().next());
        next.is_none_or(|next| !(next.is_ascii_alphanumeric() || next == '_' || next == '-'))
    })
}

/// Adds the modules in the operator's library directory: `NAME.ts`, `NAME.js` and `NAME.mjs`.
fn add_libraries(
    host: &HostEnv,
    config: &Config,
    found: &mut ProgramModules,
) -> Result<(), RunError> {
    let Some(dir) = config.code().libraries(host.user_home().as_deref()) else { return Ok(()) };
    let unreadable = |error: std::io::Error| {
        let dir = dir.display();
        RunError::Usage(format!("cannot read the directory {dir} of `[code] libraries`: {error}"))
    };
    for entry in std::fs::read_dir(&dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let (Some(name), Some(extension)) = (path.file_stem(), path.extension()) else { continue };
        let language = match extension.to_str() {
            Some("ts") => Dialect::Ts,
            Some("js" | "mjs") => Dialect::Js,
            Some(_) | None => continue,
        };
        let source = std::fs::read_to_string(&path).map_err(unreadable)?;
        let specifier = format!("lib:{}", name.to_string_lossy());
        found.modules.push(Module { specifier, language, source });
    }
    Ok(())
}
