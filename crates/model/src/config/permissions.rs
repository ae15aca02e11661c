//! Parser for `[permissions]` and `[template.NAME.permissions]`.

use super::keys::{Invalid, ParseValue, Value, invalid, list, set, table};
use super::rules::boolean;
use crate::permission::{MAX_PERMISSIONS, Permission, Permissions, Verdict};

const KEYS: [(&str, ParseValue<Permissions>); 4] = [
    ("allow", |permissions, value| fill(&mut permissions.allow, Verdict::Allow, value)),
    ("deny", |permissions, value| fill(&mut permissions.deny, Verdict::Deny, value)),
    ("ask", |permissions, value| fill(&mut permissions.ask, Verdict::Ask, value)),
    ("skip-all", |permissions, value| set(&mut permissions.skip_all, boolean(value))),
];

/// Parses a table of permissions from `belljar.toml`.
pub(super) fn read(value: &Value<'_>) -> Result<Permissions, Invalid> {
    let mut permissions = Permissions::default();
    table(&mut permissions, &KEYS, value)?;
    Ok(permissions)
}

/// Returns a permission rule that a project cannot set, since it can only tighten (threat C08).
///
/// An `ask` rule for a host opens the host once the user approves, so only the operator can set it.
pub(super) fn loosens(permissions: &Permissions) -> Option<(&'static str, String)> {
    let Permissions { allow, deny: _, ask, skip_all } = permissions;
    let net = ask.iter().find(|it| matches!(it, Permission::Net(_)));
    if let Some(permission) = allow.first() {
        return Some(("allow", permission.to_string()));
    }
    if let Some(permission) = net {
        return Some(("ask", permission.to_string()));
    }
    (*skip_all == Some(true)).then(|| ("skip-all", "true".to_owned()))
}

fn fill(place: &mut Vec<Permission>, verdict: Verdict, value: &Value<'_>) -> Result<(), Invalid> {
    let permissions: Vec<Permission> = list(value)?;
    if permissions.len() > MAX_PERMISSIONS {
        return Err(invalid(format!("at most {MAX_PERMISSIONS} rules are possible")));
    }
    for permission in &permissions {
        permission.check(verdict).map_err(|error| invalid(format!("{permission}: {error}")))?;
    }
    *place = permissions;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::{Config, Scope};

    fn parse(text: &str, scope: Scope) -> Result<Config, String> {
        Config::parse(text, Path::new("belljar.toml"), scope).map_err(|error| error.to_string())
    }

    #[test]
    fn permissions_of_the_file_and_of_a_template_add_up() {
        let text = "[permissions]\ndeny = ['Read(.env)']\n[template.x.permissions]\nask = ['Bash(git push:*)']\nallow = ['Net(docs.rs)']\n";
        let config = parse(text, Scope::Operator).unwrap();
        let (all, x) = (config.permissions("default"), config.permissions("x"));
        assert_eq!((all.deny.len(), all.ask.len(), all.skips_all()), (1, 0, true));
        assert_eq!((x.deny.len(), x.ask.len(), x.allow.len(), x.skips_all()), (1, 1, 1, false));
    }

    #[test]
    fn invalid_permission_is_refused_with_its_line() {
        for (text, what) in [
            (
                "[permissions]\ndeny = ['Write(x)']",
                "belljar.toml:2: `'Write(x)'` in `deny`: invalid",
            ),
            ("[permissions]\nallow = ['Net(nonsense)']", "unknown preset"),
            ("[permissions]\nskip-all = 'yes'", "must be true or false"),
            ("[permissions]\nskipall = true", "did you mean `skip-all`?"),
            ("permissions = 3", "must be a table"),
        ] {
            let error = parse(text, Scope::Operator).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn c08_project_permissions_can_deny_more_but_permit_nothing() {
        let operator = "[permissions]\ndeny = ['Read(.env)']\nallow = ['Bash(make:*)']\nskip-all = true\n[template.x.permissions]\ndeny = ['Edit(/ci)']\n";
        let operator = parse(operator, Scope::Operator).unwrap();
        let project = "[permissions]\ndeny = ['Read(/keys)']\nask = ['Bash(git push:*)']\nskip-all = false\n[template.x.permissions]\ndeny = ['Edit(/docs)']\n";
        let project = parse(project, Scope::Project).unwrap();
        let got = operator.tighten(&project).unwrap().permissions("x");
        let deny: Vec<String> = got.deny.iter().map(ToString::to_string).collect();
        assert_eq!(deny, ["Read(.env)", "Read(/keys)", "Edit(/ci)", "Edit(/docs)"]);
        assert!(!got.skips_all() && got.allow.len() == 1);
        for text in [
            "allow = ['Edit(src/**)']",
            "allow = ['Net(evil.example)']",
            "ask = ['Net(evil.example)']",
            "skip-all = true",
        ] {
            for section in ["permissions", "template.x.permissions"] {
                let text = format!("[{section}]\n{text}");
                let error = parse(&text, Scope::Project).unwrap_err();
                assert!(error.contains("a project may only set `deny`"), "{error}");
                parse(&text, Scope::Operator).unwrap();
            }
        }
    }
}
