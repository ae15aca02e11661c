//! What a program can import and call, as far as it does.

use std::sync::Arc;

use belljar_code::api::Service;
use belljar_code::skill::{Granted, SkillError, SkillInfo, SkillState};
use belljar_model::Config;
use belljar_model::code::Api;
use belljar_wire::{Dialect, Module, Named, ToolRef};

use super::{Programs, RunError};
use crate::host::HostEnv;

/// All of it together may be no larger: it goes to the box with every call that mentions it.
const MOST: usize = 16 << 20;

/// What a program is given.
#[derive(Debug, Default)]
pub(super) struct ProgramModules {
    pub(super) modules: Vec<Module>,
    pub(super) apis: Vec<Named>,
    pub(super) tools: Vec<ToolRef>,
}

impl Programs {
    /// Looks for what `code` mentions. Too much does no harm; too little would be an import that fails.
    pub(super) async fn modules(
        &self,
        config: &Config,
        code: &str,
        apis: &[&Api],
    ) -> Result<ProgramModules, RunError> {
        let mut found = ProgramModules::default();
        self.skills_of(code, apis, config.code().yolo, &mut found)?;
        let mentions = |word: &str, found: &ProgramModules| {
            code.contains(word) || found.modules.iter().any(|module| module.source.contains(word))
        };
        if mentions("lib:", &found) {
            libraries(self.state.host(), config, &mut found)?;
        }
        if mentions("api", &found) {
            for api in mentioned(apis, code, &found) {
                let offer = self.offer(config, api)?;
                let specifier = format!("api:{}", api.name);
                let (name, language) = (api.name.identifier(), Dialect::Js);
                found.apis.push(Named { name, specifier: specifier.clone() });
                found.modules.push(Module { specifier, language, source: offer.module.clone() });
            }
        }
        if mentions("tools", &found) && !config.servers().is_empty() {
            let tools = self.servers.tools().await;
            found.tools.extend(tools.into_iter().map(|tool| ToolRef {
                server: tool.namespace(),
                function: tool.function,
                tool: tool.name,
            }));
        }
        let size: usize = found.modules.iter().map(|module| module.source.len()).sum();
        if size > MOST {
            return Err(RunError::Usage(format!(
                "what the program imports has {size} bytes, where {MOST} are the most: name fewer with `apis`"
            )));
        }
        Ok(found)
    }

    /// What is made of a declared service, once for as long as the rules stay as they are.
    pub fn offer(&self, config: &Config, api: &Api) -> Result<Arc<Offer>, RunError> {
        let known = |rules: &super::Rules| rules.offers.get(&api.name).map(Arc::clone);
        if let Some(offer) = known(&self.rules()) {
            return Ok(offer);
        }
        // Reading a large document takes its time, and others must not wait for it.
        let service = Service::read(api, config, self.state.host().user_home().as_deref());
        let service = service.map_err(|error| RunError::Usage(error.to_string()))?;
        let offer = Arc::new(Offer { module: service.client().module, service });
        self.rules().offers.insert(api.name.clone(), Arc::clone(&offer));
        Ok(offer)
    }

    /// The skills that it names, and those that they name.
    fn skills_of(
        &self,
        code: &str,
        apis: &[&Api],
        yolo: bool,
        found: &mut ProgramModules,
    ) -> Result<(), RunError> {
        if !code.contains("skill:") {
            return Ok(());
        }
        let broken = |error: SkillError| RunError::Usage(error.to_string());
        let (mut unseen, mut texts) = (self.skills.list().map_err(broken)?, vec![code.to_owned()]);
        let granted = Granted { every_host: yolo, ..Granted::of(apis.iter().copied()) };
        while let Some(text) = texts.pop() {
            let is_named = |info: &SkillInfo| names(&text, info.name.as_str());
            let (named, rest): (Vec<_>, Vec<_>) = unseen.into_iter().partition(is_named);
            unseen = rest;
            for SkillInfo { name, state } in named {
                let SkillState::Active { skill, .. } = state else {
                    let why = "it waits for the operator: `belljar skill approve`";
                    return Err(RunError::Usage(format!("skill `{name}` is not in force; {why}")));
                };
                let beyond = skill.wants.not_granted(&granted);
                if !beyond.is_empty() {
                    let beyond = beyond.join(", ");
                    return Err(RunError::Usage(format!(
                        "skill `{name}` wants what this call was not given: {beyond}"
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

/// A declared service as programs have it.
#[derive(Debug)]
pub struct Offer {
    pub service: Service,
    module: String,
}

/// The services that are spoken of by name; all of them where none is.
fn mentioned<'a>(apis: &[&'a Api], code: &str, found: &ProgramModules) -> Vec<&'a Api> {
    let texts: Vec<&str> = std::iter::once(code)
        .chain(found.modules.iter().map(|module| module.source.as_str()))
        .collect();
    let speaks = |text: &&str, api: &Api| {
        text.contains(&api.name.identifier()) || text.contains(api.name.as_str())
    };
    let named: Vec<&Api> =
        apis.iter().copied().filter(|api| texts.iter().any(|text| speaks(text, api))).collect();
    if named.is_empty() { apis.to_vec() } else { named }
}

/// Whether a text imports this skill.
fn names(text: &str, skill: &str) -> bool {
    let mention = format!("skill:{skill}");
    text.match_indices(&mention).any(|(at, _)| {
        let next = text.get(at + mention.len()..).and_then(|rest| rest.chars().next());
        next.is_none_or(|next| !(next.is_ascii_alphanumeric() || next == '_' || next == '-'))
    })
}

/// The modules that the operator keeps for programs: `NAME.ts`, `NAME.js` or `NAME.mjs`.
fn libraries(host: &HostEnv, config: &Config, found: &mut ProgramModules) -> Result<(), RunError> {
    let Some(dir) = config.code().libraries(host.user_home().as_deref()) else { return Ok(()) };
    let unread = |error: std::io::Error| {
        RunError::Usage(format!("`[code] libraries`: {}: {error}", dir.display()))
    };
    for entry in std::fs::read_dir(&dir).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        let (Some(name), Some(kind)) = (path.file_stem(), path.extension()) else { continue };
        let language = match kind.to_str() {
            Some("ts") => Dialect::Ts,
            Some("js" | "mjs") => Dialect::Js,
            Some(_) | None => continue,
        };
        let source = std::fs::read_to_string(&path).map_err(unread)?;
        let specifier = format!("lib:{}", name.to_string_lossy());
        found.modules.push(Module { specifier, language, source });
    }
    Ok(())
}
