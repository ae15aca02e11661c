//! No text makes the reader of `belljar.toml` panic, and no project loosens what an operator set.

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

/// A template that is shown as text gives the same template again.
fn check_round_trip(config: &Config, file: &Path) {
    for name in config.names() {
        let template = config.template(name).expect("a named template");
        let again =
            Config::parse(&template.to_toml(), file, Scope::Operator).expect("our own text");
        assert_eq!(again.template(name).as_ref(), Some(&template));
    }
}

/// A project's file is not trusted, and its errors are printed.
fn check_error(error: &ConfigError) {
    let shown = error.to_string();
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
}

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
        let (ours, theirs) = (&operator.limits, &template.limits);
        assert!(theirs.memory <= ours.memory && theirs.disk <= ours.disk, "{template:?}");
        assert!(theirs.pids <= ours.pids && theirs.files <= ours.files, "{template:?}");
        assert!(theirs.output <= ours.output, "{template:?}");
        assert!(
            theirs.timeout.is_some_and(|timeout| Some(timeout) <= ours.timeout),
            "{template:?}"
        );
    }
}
