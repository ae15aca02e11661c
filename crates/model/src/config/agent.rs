//! Parser for the definition file of an agent; its format is in [`crate::agent`].

use std::path::{Component, Path, PathBuf};

use toml::de::DeValue;

use super::keys::{
    Invalid, ParseValue, Value, fill, invalid, list, path, scalar, set, table, text,
};
use super::rules;
use super::sections::command;
use crate::agent::{Agent, AgentFile, AgentName, AgentTask, Language, Login, Settings};
use crate::env::EnvVar;
use crate::net::{Allow, SecretDecl, SecretName, json_pointer};

/// The parsed keys of an agent's definition file, before they are checked together.
#[derive(Debug, Default)]
pub(super) struct Raw {
    title: Option<String>,
    program: Option<String>,
    install: Option<String>,
    start: Vec<String>,
    again: Option<Vec<String>>,
    again_needs: Option<PathBuf>,
    skip_all: Vec<String>,
    env: Vec<EnvVar>,
    allow: Vec<Allow>,
    secrets: Vec<SecretName>,
    copy: Vec<PathBuf>,
    task: Option<AgentTask>,
    settings: Option<Settings>,
    home: Vec<AgentFile>,
    files: Vec<AgentFile>,
    login: Option<Login>,
}

/// The maximum number of files in an agent's definition, far above any real definition.
const MAX_FILES: usize = 64;

/// All keys of an agent's definition file except `secret`, whose tables have names.
pub(super) const KEYS: [(&str, ParseValue<Raw>); 16] = [
    ("title", |raw, value| set(&mut raw.title, line(value))),
    ("program", |raw, value| set(&mut raw.program, program(value))),
    ("install", |raw, value| set(&mut raw.install, line(value))),
    ("start", |raw, value| fill(&mut raw.start, list(value))),
    ("again", |raw, value| set(&mut raw.again, list(value))),
    ("again-needs", |raw, value| set(&mut raw.again_needs, path_in_home(value))),
    ("skip-all", |raw, value| fill(&mut raw.skip_all, list(value))),
    ("env", |raw, value| fill(&mut raw.env, list(value))),
    ("allow", |raw, value| fill(&mut raw.allow, rules::allow(value))),
    ("secrets", |raw, value| fill(&mut raw.secrets, list(value))),
    ("copy", |raw, value| fill(&mut raw.copy, list(value).and_then(in_home))),
    ("task", |raw, value| set(&mut raw.task, task(value))),
    ("settings", |raw, value| set(&mut raw.settings, settings(value))),
    ("home", |raw, value| fill(&mut raw.home, agent_files(value, is_in_home))),
    ("file", |raw, value| fill(&mut raw.files, agent_files(value, is_inside))),
    ("login", |raw, value| set(&mut raw.login, login(value))),
];

impl Raw {
    pub(super) fn agent(
        self,
        name: AgentName,
        declared: Vec<SecretDecl>,
    ) -> Result<Agent, &'static str> {
        let login_secret = self.login.as_ref().map(|login| &login.secret);
        if login_secret.is_some_and(|name| !declared.iter().any(|it| it.name == *name)) {
            return Err(
                "the secret of `login.secret` must be declared in the same file, as `[secret.NAME]`",
            );
        }
        Ok(Agent {
            title: self.title.unwrap_or_else(|| name.to_string()),
            name,
            program: self.program.ok_or("`program` is missing")?,
            install: self.install,
            again: self.again.unwrap_or_else(|| self.start.clone()),
            again_needs: self.again_needs,
            start: self.start,
            skip_all: self.skip_all,
            env: self.env,
            allow: self.allow,
            secrets: self.secrets,
            copy: self.copy,
            task: self.task,
            settings: self.settings,
            home: self.home,
            files: self.files,
            login: self.login,
            declared,
        })
    }
}

#[derive(Debug, Default)]
struct RawTask {
    argv: Option<Vec<String>>,
}

const TASK: [(&str, ParseValue<RawTask>); 1] =
    [("argv", |raw, value| set(&mut raw.argv, argv(value)))];

fn task(value: &Value<'_>) -> Result<AgentTask, Invalid> {
    let mut raw = RawTask::default();
    table(&mut raw, &TASK, value)?;
    let missing = || invalid("`argv` is missing; write the program and its arguments as a list");
    Ok(AgentTask { argv: raw.argv.ok_or_else(missing)? })
}

/// Parses the program and the arguments of a task. Only a list is accepted, so that no word is split.
fn argv(value: &Value<'_>) -> Result<Vec<String>, Invalid> {
    match value.get_ref() {
        DeValue::Array(_) => command(value),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Table(_) => {
            Err(invalid("`argv` must be a list of the program and its arguments"))
        }
    }
}

#[derive(Debug, Default)]
struct RawFile {
    language: Option<Language>,
    path: Option<PathBuf>,
    content: Option<String>,
    secret: Option<SecretName>,
}

const SETTINGS: [(&str, ParseValue<RawFile>); 3] = [
    ("language", |raw, value| set(&mut raw.language, scalar(value))),
    ("path", |raw, value| set(&mut raw.path, path(value))),
    ("content", |raw, value| set(&mut raw.content, text(value))),
];

const FILE: [(&str, ParseValue<RawFile>); 3] = [
    ("path", |raw, value| set(&mut raw.path, path(value))),
    ("content", |raw, value| set(&mut raw.content, text(value))),
    ("secret", |raw, value| set(&mut raw.secret, scalar(value))),
];

fn settings(value: &Value<'_>) -> Result<Settings, Invalid> {
    let mut raw = RawFile::default();
    table(&mut raw, &SETTINGS, value)?;
    let path = raw.path.filter(|path| is_inside(path));
    Ok(Settings {
        language: raw.language.ok_or_else(|| invalid("`language` is missing"))?,
        path: path.ok_or_else(|| invalid("`path` must be an absolute path inside the box"))?,
        content: raw.content.unwrap_or_default(),
    })
}

fn agent_files(value: &Value<'_>, is_valid: fn(&Path) -> bool) -> Result<Vec<AgentFile>, Invalid> {
    let DeValue::Array(tables) = value.get_ref() else {
        return Err(invalid("must be an array of tables; write `[[file]]` or `[[home]]`"));
    };
    if tables.len() > MAX_FILES {
        return Err(invalid(format!("at most {MAX_FILES} files are possible")));
    }
    let one = |value: &Value<'_>| {
        let mut raw = RawFile::default();
        table(&mut raw, &FILE, value)?;
        let path = raw.path.filter(|path| is_valid(path));
        Ok(AgentFile {
            path: path.ok_or_else(|| {
                invalid("`path` must be relative in `[[home]]` and absolute in `[[file]]`, without `.` and `..`")
            })?,
            content: raw.content.unwrap_or_default(),
            secret: raw.secret,
        })
    };
    tables.iter().map(one).collect()
}

#[derive(Debug, Default)]
struct RawLogin {
    file: Option<PathBuf>,
    secret: Option<SecretName>,
    refresh: Option<String>,
    access: Option<String>,
    expires: Option<String>,
    renewed: Option<String>,
    identity: Vec<String>,
    keep: Vec<String>,
}

const LOGIN: [(&str, ParseValue<RawLogin>); 8] = [
    ("file", |raw, value| set(&mut raw.file, path(value))),
    ("secret", |raw, value| set(&mut raw.secret, scalar(value))),
    ("refresh", |raw, value| set(&mut raw.refresh, pointer(value))),
    ("access", |raw, value| set(&mut raw.access, pointer(value))),
    ("expires", |raw, value| set(&mut raw.expires, pointer(value))),
    ("renewed", |raw, value| set(&mut raw.renewed, pointer(value))),
    ("identity", |raw, value| fill(&mut raw.identity, list(value))),
    ("keep", |raw, value| fill(&mut raw.keep, list(value))),
];

fn login(value: &Value<'_>) -> Result<Login, Invalid> {
    let mut raw = RawLogin::default();
    table(&mut raw, &LOGIN, value)?;
    let missing = |key: &str| invalid(format!("`{key}` is missing"));
    let file = raw.file.filter(|path| is_in_home(path));
    Ok(Login {
        file: file.ok_or_else(|| invalid("`file` must be a path in the user's home"))?,
        secret: raw.secret.ok_or_else(|| missing("secret"))?,
        refresh: raw.refresh.ok_or_else(|| missing("refresh"))?,
        access: raw.access.ok_or_else(|| missing("access"))?,
        expires: raw.expires,
        renewed: raw.renewed,
        identity: raw.identity,
        keep: raw.keep,
    })
}

fn pointer(value: &Value<'_>) -> Result<String, Invalid> {
    json_pointer(&text(value)?).map_err(invalid)
}

fn program(value: &Value<'_>) -> Result<String, Invalid> {
    match <[String; 1]>::try_from(command(value)?) {
        Ok([program]) if !program.contains('/') => Ok(program),
        Ok(_) | Err(_) => Err(invalid("must be the name of one program, without a path")),
    }
}

fn line(value: &Value<'_>) -> Result<String, Invalid> {
    let text = text(value)?;
    if text.is_empty() || text.len() > 256 || text.chars().any(char::is_control) {
        return Err(invalid("must be one short line"));
    }
    Ok(text)
}

fn in_home(paths: Vec<PathBuf>) -> Result<Vec<PathBuf>, Invalid> {
    match paths.iter().all(|path| is_in_home(path)) {
        true => Ok(paths),
        false => Err(invalid("must be paths relative to the user's home, without `~/` and `..`")),
    }
}

fn path_in_home(value: &Value<'_>) -> Result<PathBuf, Invalid> {
    let path = PathBuf::from(text(value)?);
    match is_in_home(&path) {
        true => Ok(path),
        false => Err(invalid("must be a path relative to the home, without `~/` and `..`")),
    }
}

fn is_in_home(path: &Path) -> bool {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    path.components().count() > 0 && path.components().all(plain) && !path.starts_with("~")
}

fn is_inside(path: &Path) -> bool {
    path.strip_prefix("/").is_ok_and(is_in_home)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn parsed(text: &str) -> Result<Agent, String> {
        let text = format!("program = 'scribe'\n{text}");
        let parsed = Config::agent(&"scribe".parse().unwrap(), &text, Path::new("scribe.toml"));
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn task_of_an_agent_is_a_list_with_a_program() {
        let agent = parsed("[task]\nargv = ['scribe', '--print', 'a b']").unwrap();
        assert_eq!(agent.task.unwrap().argv, ["scribe", "--print", "a b"]);
        assert_eq!(parsed("").unwrap().task, None);
        for (text, expected) in [
            ("[task]", "`argv` is missing"),
            ("[task]\nargv = 'scribe -p'", "must be a list of the program and its arguments"),
            ("[task]\nargv = []", "the program is missing"),
            ("[task]\nargv = ['']", "the program is missing"),
            ("[task]\nargv = ['scribe', \"a\\u0000\"]", "the program is missing"),
            ("[task]\nargs = ['scribe']", "args"),
            ("task = ['scribe']", "table"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
