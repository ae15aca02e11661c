//! The environment variables of a program in a box.

use std::ffi::OsString;

use belljar_box::view;
use belljar_model::{RunId, Template};

use crate::host::HostEnv;

/// The environment variables of a program in a box.
#[derive(Debug, Default)]
pub enum Environment {
    /// The default variables of every box and the variables of the template.
    #[default]
    OfTemplate,
    /// The default variables, those variables of the template that have a value, and the given ones,
    /// which win. Nothing is inherited from the host.
    OfTask(Vec<(OsString, OsString)>),
    /// Exactly the given variables.
    Exactly(Vec<(OsString, OsString)>),
}

impl Environment {
    /// Returns the environment of a program: default variables, then the variables of the template. Variables
    /// are inherited from `user`.
    pub(super) fn resolve(
        self,
        user: Option<&HostEnv>,
        template: &Template,
        id: RunId,
    ) -> Vec<(OsString, OsString)> {
        match self {
            Self::OfTemplate => environment(template, id, |name| {
                user.and_then(|user| user.variable(name)).map(Into::into)
            }),
            Self::OfTask(given) => {
                let mut env = environment(template, id, |_| None);
                for (name, value) in given {
                    env.retain(|(existing, _)| *existing != name);
                    env.push((name, value));
                }
                env
            }
            Self::Exactly(env) => env,
        }
    }
}

fn environment(
    template: &Template,
    id: RunId,
    inherited: impl Fn(&str) -> Option<OsString>,
) -> Vec<(OsString, OsString)> {
    let user = if template.user == 0 { "root" } else { "user" };
    let mut env: Vec<(OsString, OsString)> = [
        ("PATH", view::PATH),
        ("HOME", view::HOME),
        ("USER", user),
        ("LOGNAME", user),
        ("LANG", "C.UTF-8"),
        ("BELLJAR_RUN", &id.to_string()),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .to_vec();
    for variable in &template.env {
        let value = match variable.value() {
            Some(value) => Some(OsString::from(value)),
            None => inherited(variable.name()),
        };
        env.retain(|(name, _)| name != variable.name());
        env.extend(value.map(|value| (variable.name().into(), value)));
    }
    env
}
