use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use belljar_model::net::Allow;
use belljar_model::{Config, Net, Scope};

use super::*;

fn choice(has_network: bool, may_push: bool, agent: Option<&str>) -> ProjectChoice {
    let agent = agent.map(|name| name.parse().unwrap());
    ProjectChoice { name: "shop".to_owned(), has_network, may_push, agent }
}

/// A Rust and JavaScript project with a remote on GitHub, and a lock file that names a host of a stranger.
fn project() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write("Cargo.toml", "[package]\n");
    write("Cargo.lock", "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n");
    write(
        "package-lock.json",
        "\"https://registry.npmjs.org/a\" \"https://cdn.stranger.example/b\"",
    );
    fs::create_dir(dir.path().join(".git")).unwrap();
    write(".git/config", "[remote \"origin\"]\n\turl = git@github.com:acme/shop.git\n");
    dir
}

#[test]
fn facts_of_a_project_name_registries_remotes_and_other_hosts() {
    let dir = project();
    let facts = ProjectFacts::read(dir.path()).unwrap();
    let pairs = |found: &[Found]| -> Vec<String> {
        found.iter().map(|found| format!("{} {}", found.what, found.file)).collect()
    };
    assert_eq!(pairs(&facts.registries), ["crates Cargo.toml", "npm package-lock.json"]);
    assert_eq!(pairs(&facts.other_hosts), ["cdn.stranger.example package-lock.json"]);
    assert_eq!(facts.remotes.len(), 1);
    assert_eq!(facts.command.as_deref(), Some("cargo test"));
    assert_eq!(facts.partly_read, Vec::<String>::new());
}

#[test]
fn every_choice_gives_a_valid_configuration() {
    let dir = project();
    let facts = ProjectFacts::read(dir.path()).unwrap();
    for (of, facts) in [("project", &facts), ("empty directory", &ProjectFacts::default())] {
        for (has_network, may_push) in [(true, true), (true, false), (false, false)] {
            for agent in [None, Some("claude")] {
                let text = render(facts, &choice(has_network, may_push, agent));
                let config = Config::parse(&text, Path::new("belljar.toml"), Scope::Operator)
                    .unwrap_or_else(|error| panic!("{of}: {error}\n{text}"));
                let template = config.template("shop").unwrap();
                assert_eq!(template.net == Net::None, !has_network, "{text}");
                template.policy(&config).unwrap();
                assert_eq!(config.template("shop-agent").is_some(), agent.is_some(), "{text}");
            }
        }
    }
}

#[test]
fn host_that_only_a_file_of_the_project_names_is_a_comment_and_not_allowed() {
    let dir = project();
    let facts = ProjectFacts::read(dir.path()).unwrap();
    let text = render(&facts, &choice(true, false, None));
    assert!(
        text.contains("#   \"GET,HEAD cdn.stranger.example\", # package-lock.json\n"),
        "{text}"
    );
    let config = Config::parse(&text, Path::new("belljar.toml"), Scope::Operator).unwrap();
    let allowed: Vec<String> = config
        .template("shop")
        .unwrap()
        .allow
        .iter()
        .map(|allow| match allow {
            Allow::Preset(name) => name.to_string(),
            Allow::Rule(rule) => rule.id.clone(),
        })
        .collect();
    assert_eq!(allowed, ["crates", "npm", "fetch origin"]);
}

#[test]
fn facts_follow_no_link_and_read_a_long_file_in_part() {
    let (dir, other) = (tempfile::tempdir().unwrap(), project());
    symlink(other.path().join("package-lock.json"), dir.path().join("package-lock.json")).unwrap();
    symlink(other.path().join(".git"), dir.path().join(".git")).unwrap();
    fs::write(dir.path().join("yarn.lock"), vec![b' '; 8 << 20]).unwrap();
    let facts = ProjectFacts::read(dir.path()).unwrap();
    assert_eq!((facts.other_hosts, facts.partly_read), (Vec::new(), Vec::new()));
    assert_eq!(facts.remotes, Vec::new());
    fs::write(dir.path().join("yarn.lock"), vec![b' '; (8 << 20) + 1]).unwrap();
    assert_eq!(ProjectFacts::read(dir.path()).unwrap().partly_read, ["yarn.lock"]);
}

#[test]
fn template_name_is_made_of_the_name_of_the_directory() {
    let name = |path: &str| ProjectFacts::template_name(Path::new(path));
    assert_eq!(name("/home/me/My Shop_2"), "my-shop-2");
    assert_eq!(name("/home/me/default"), "project");
    assert_eq!(name("/"), "project");
    assert_eq!(name("/\u{1b}[31m"), "31m");
}
