//! Checks the parser of `belljar.toml`: no text makes it panic, and no project file loosens a setting of
//! the operator.

use std::path::Path;

use belljar_model::{Config, ConfigError, Scope, Template};

pub fn check(bytes: &[u8]) {
    let text = super::text(bytes);
    let file = Path::new("/etc/belljar.toml");
    match Config::parse(text, file, Scope::Operator) {
        Ok(config) => check_round_trip(&config, file),
        Err(error) => check_error(&error),
    }
    match Config::parse(text, file, Scope::Project) {
        Ok(project) => check_tightened(&project),
        Err(error) => check_error(&error),
    }
}

/// Checks that each template, printed as TOML and parsed again, is unchanged.
fn check_round_trip(config: &Config, file: &Path) {
    for name in config.names() {
        let template = config.template(name).expect("a named template");
        let again = Config::parse(&template.to_toml(), file, Scope::Operator)
            .expect("printed templates can be parsed");
        assert_eq!(again.template(name).as_ref(), Some(&template));
    }
}

/// Checks that an error is safe to print, because it may quote an untrusted project file.
fn check_error(error: &ConfigError) {
    let shown = error.to_string();
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
}

/// Checks that the templates are not looser after a project file was applied.
fn check_tightened(project: &Config) {
    let config = match Config::built_in().tighten(project) {
        Ok(config) => config,
        Err(error) => return check_error(&error),
    };
    let operator = Template::default();
    for name in config.names() {
        let template = config.template(name).expect("a named template");
        assert!(template.weaken.is_subset(&operator.weaken), "{template:?}");
        assert!(template.require.is_superset(&operator.require), "{template:?}");
        assert_eq!((&template.net, &template.mounts), (&operator.net, &operator.mounts));
        let (old, new) = (&operator.limits, &template.limits);
        assert!(new.memory <= old.memory && new.disk <= old.disk, "{template:?}");
        assert!(new.pids <= old.pids && new.files <= old.files, "{template:?}");
        assert!(new.output <= old.output, "{template:?}");
        assert!(new.timeout.is_some_and(|timeout| Some(timeout) <= old.timeout), "{template:?}");
    }
}
