//! The environment variables of a program in a box.

use std::ffi::OsString;

use belljar_box::view;
use belljar_model::{RunId, Template};

use crate::host::HostEnv;

/// Returns the environment of a program: default variables, then the variables of the template.
pub(super) fn environment(
    host: &HostEnv,
    template: &Template,
    id: RunId,
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
            None => host.variable(variable.name()).map(OsString::from),
        };
        env.retain(|(name, _)| name != variable.name());
        env.extend(value.map(|value| (variable.name().into(), value)));
    }
    env
}
