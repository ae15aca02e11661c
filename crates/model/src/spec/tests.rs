use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::boxes::{BoxRecord01, BoxWorkspace};
use crate::repo::RepoAt;
use crate::{Mode, Net};

#[track_caller]
fn refused(spec: serde_json::Value, expect: &str) {
    let error = serde_json::from_value::<BoxSpec>(spec).unwrap_err().to_string();
    assert_eq!(error, expect);
}

fn full() -> BoxSpec {
    BoxSpec {
        overrides: Overrides {
            mounts: vec!["/data:/data:rw".parse().unwrap()],
            rootfs: Some("/images/debian".into()),
            env: vec!["A=1".parse().unwrap(), "B".parse().unwrap()],
            allow: vec!["pypi".parse().unwrap(), "GET a.example.com/x".parse().unwrap()],
            deny: vec![Rule::deny("*.com").unwrap()],
            ..Overrides::default()
        },
        workspace: WorkspaceSpec::Clone {
            repo: PathBuf::from(OsString::from_vec(b"/src/\xff".to_vec())),
            branch: Some("main".into()),
            uncommitted: true,
        },
        agent: Some("claude".parse().unwrap()),
        program: Some(Argv::new(["sh", "-c", "true"]).unwrap()),
        terminal: true,
        health: Some("true".into()),
        git_identity: Some("Ada <ada@example.org>".parse().unwrap()),
        network: Some(NetworkChange {
            net: Net::Restricted,
            allow: vec!["npm".parse().unwrap()],
            deny: vec![Rule::deny("b.example.com").unwrap()],
        }),
        config_file: Some("/etc/belljar.toml".into()),
        ..BoxSpec::default()
    }
}

#[test]
fn box_spec_with_every_field_survives_a_round_trip() {
    let spec = full();
    let text = serde_json::to_string(&spec).unwrap();
    assert!(text.starts_with(r#"{"version":1,"template":"default","tier":"native","#), "{text}");
    assert_eq!(serde_json::from_str::<BoxSpec>(&text).unwrap(), spec);
}

#[test]
fn box_spec_with_only_a_version_has_the_defaults() {
    let spec: BoxSpec = serde_json::from_value(json!({ "version": 1 })).unwrap();
    assert_eq!(spec, BoxSpec::default());
}

#[test]
fn workspace_spec_has_one_json_form_per_variant() {
    let form = |workspace: WorkspaceSpec| serde_json::to_value(&workspace).unwrap();
    assert_eq!(form(WorkspaceSpec::None), json!("none"));
    assert_eq!(form(WorkspaceSpec::Directory("/p".into())), json!({ "directory": "/p" }));
    let clone = WorkspaceSpec::Clone { repo: "/p".into(), branch: None, uncommitted: false };
    let expect = json!({ "clone": { "repo": "/p", "branch": null, "uncommitted": false } });
    assert_eq!(form(clone), expect);
}

#[test]
fn box_spec_of_an_unknown_version_is_refused_with_the_supported_version() {
    refused(json!({ "version": 2 }), "`version` is 2; this belljar reads version 1");
    refused(json!({}), "missing field `version`");
}

#[test]
fn box_spec_with_an_unknown_tier_is_refused_with_the_known_tiers() {
    refused(json!({ "version": 1, "tier": "microvm" }), "unknown tier; the only one is `native`");
}

#[test]
fn box_spec_with_an_unknown_field_is_refused() {
    let error = serde_json::from_value::<BoxSpec>(json!({ "version": 1, "tty": true }));
    assert!(error.unwrap_err().to_string().starts_with("unknown field `tty`"));
}

#[test]
fn box_spec_with_a_relative_path_is_refused_with_the_field_name() {
    for (spec, field, path) in [
        (json!({ "workspace": { "directory": "p" } }), "workspace.directory", "p"),
        (json!({ "workspace": { "clone": { "repo": "./r" } } }), "workspace.clone.repo", "./r"),
        (json!({ "config_file": "b.toml" }), "config_file", "b.toml"),
        (json!({ "overrides": { "rootfs": "~/r" } }), "overrides.rootfs", "~/r"),
        (json!({ "overrides": { "mounts": ["data:/data"] } }), "overrides.mounts", "data"),
    ] {
        let mut spec = spec;
        spec["version"] = json!(1);
        refused(spec, &format!("invalid `{field}`: {path} is not an absolute path"));
    }
    refused(
        json!({ "version": 1, "config_file": "/a\0b" }),
        "invalid `config_file`: a path cannot contain a NUL byte",
    );
}

#[test]
fn box_spec_with_health_among_the_overrides_is_refused() {
    refused(
        json!({ "version": 1, "overrides": { "health": "true" } }),
        "`overrides.health` is not used in a spec; write it as `health`",
    );
}

#[test]
fn box_spec_with_a_network_rule_that_no_flag_can_express_is_refused() {
    let mut spec = serde_json::to_value(full()).unwrap();
    spec["network"]["deny"][0]["id"] = json!("a\nb");
    refused(spec, "invalid `network.deny`: `id` is empty or contains control characters");
}

#[test]
fn run_spec_survives_a_round_trip_and_refuses_a_second_program_or_terminal() {
    let spec = RunSpec {
        version: SpecVersion::default(),
        name: Some("build".parse().unwrap()),
        on: BoxSpec { program: None, terminal: false, ..full() },
        program: Argv::new(["make"]).unwrap(),
        terminal: Some(TerminalSize { rows: 24, columns: 80 }),
    };
    let value = serde_json::to_value(&spec).unwrap();
    assert_eq!(serde_json::from_value::<RunSpec>(value.clone()).unwrap(), spec);
    for (field, set) in [("program", json!(["sh"])), ("terminal", json!(true))] {
        let mut bad = value.clone();
        bad["on"][field] = set;
        let error = serde_json::from_value::<RunSpec>(bad).unwrap_err().to_string();
        let expect = format!("`on.{field}` is not used in a run; write it as `{field}`");
        assert_eq!(error, expect);
    }
}

#[test]
fn argv_without_a_program_or_with_nul_is_refused() {
    assert_eq!(Argv::new([""; 0]), Err(ArgvError::NoProgram));
    for words in [["a\0", "b"], ["a", "\0"]] {
        assert_eq!(Argv::new(words), Err(ArgvError::Nul));
    }
    assert!(serde_json::from_value::<Argv>(json!([])).is_err());
    assert!(serde_json::from_value::<Argv>(json!(["a", [98, 0]])).is_err());
    assert_eq!(Argv::new(["a", ""]).unwrap().program(), "a");
}

proptest! {
    #[test]
    fn argv_of_any_bytes_survives_a_round_trip(
        words in prop::collection::vec(prop::collection::vec(1_u8..=255, 1..9), 1..4)
    ) {
        let argv = Argv::new(words.into_iter().map(OsString::from_vec)).unwrap();
        let text = serde_json::to_string(&argv).unwrap();
        prop_assert_eq!(serde_json::from_str::<Argv>(&text).unwrap(), argv);
    }
}

fn record(options: &[&str]) -> BoxRecord01 {
    BoxRecord01 {
        name: "one".parse().unwrap(),
        created: 7,
        options: options.iter().map(|word| (*word).to_owned()).collect(),
        command: Vec::new(),
        typed_in: "/typed".into(),
        config: None,
        ground: BoxWorkspace::Directory { path: "/typed/real".into() },
        network: None,
    }
}

fn read(options: &[&str]) -> Result<BoxSpec, Options01Error> {
    BoxSpec::from_options_0_1(&record(options), Some(Path::new("/home/ada")))
}

#[test]
fn options_0_1_with_box_names_and_a_late_config_option_are_parsed() {
    let spec = read(&["one", "--config", "b.toml", "two", "-eA=1", "-e", "B", "-e=C=2"]).unwrap();
    let env: Vec<String> = spec.overrides.env.iter().map(ToString::to_string).collect();
    assert_eq!(env, ["A=1", "B", "C=2"]);
    assert_eq!(spec.workspace, WorkspaceSpec::Directory("/typed/real".into()));
    assert_eq!((spec.terminal, spec.config_file), (true, None), "the record stores the file");
}

#[test]
fn options_0_1_with_relative_paths_get_absolute_paths() {
    let spec = read(&["--mount", "d:/d", "--mount=~/c:/c:rw", "--rootfs", "r", "one"]).unwrap();
    let mounts: Vec<String> = spec.overrides.mounts.iter().map(ToString::to_string).collect();
    assert_eq!(mounts, ["/typed/d:/d:ro", "/home/ada/c:/c:rw"]);
    assert_eq!(spec.overrides.rootfs.as_deref(), Some(Path::new("/typed/r")));
    let no_home = BoxSpec::from_options_0_1(&record(&["--rootfs", "~/r"]), None);
    assert!(no_home.unwrap_err().to_string().contains("`overrides.rootfs`"));
}

#[test]
fn options_0_1_of_a_clone_use_the_repository_of_the_record() {
    let at = RepoAt {
        path: "/src".into(),
        git_dir: "/src/.git".into(),
        from: None,
        base: None,
        branch: "main".into(),
        identity: "Ada <a@b>".parse().unwrap(),
    };
    let ground = BoxWorkspace::Repo(Box::new(at));
    let options = ["one", "--repo", "../src/sub", "--branch=v1", "--uncommitted", "--no-tty"];
    let record = BoxRecord01 { ground, command: vec!["sh".into()], ..record(&options) };
    let spec = BoxSpec::from_options_0_1(&record, None).unwrap();
    let (repo, branch) = ("/src".into(), Some("v1".into()));
    assert_eq!(spec.workspace, WorkspaceSpec::Clone { repo, branch, uncommitted: true });
    assert_eq!((spec.program, spec.terminal), (Some(Argv::new(["sh"]).unwrap()), false));
}

#[test]
fn options_0_1_with_a_branch_and_a_mode_ignore_the_branch() {
    let spec = read(&["--branch", "v1", "--mode=direct", "--uncommitted"]).unwrap();
    assert_eq!(spec.workspace, WorkspaceSpec::Directory("/typed/real".into()));
    assert_eq!(spec.overrides.mode, Some(Mode::Direct));
}

#[test]
fn options_that_belljar_0_1_refused_are_refused() {
    let mode = Mode::Direct.name();
    for (options, expect) in [
        (&["--no-tty=1"][..], "the option `--no-tty` takes no value"),
        (&["--no-tty", "--no-tty"], "the option `--no-tty` is given twice"),
        (&["--net", "none", "--net=none"], "the option `--net` is given twice"),
        (&["--health", "-x"], "the value of the option `--health` is missing"),
        (&["--health"], "the value of the option `--health` is missing"),
        (&["--rootfs="], "the value of the option `--rootfs` is missing"),
        (&["--branch", "b"], "the option `--branch` needs `--repo`"),
        (&["--repo", "r", "--mode", mode], "the options `--repo` and `--mode` cannot be combined"),
        (
            &["--workspace=w", "--no-workspace"],
            "the options `--workspace` and `--no-workspace` cannot be combined",
        ),
    ] {
        assert_eq!(read(options).unwrap_err().to_string(), expect);
    }
    assert!(read(&["One"]).unwrap_err().to_string().starts_with("\"One\" is not a box name"));
}

#[test]
fn options_0_1_with_an_unknown_option_are_refused_with_its_name_and_a_remedy() {
    for (options, option) in
        [(&["--tier=microvm"][..], "--tier"), (&["-xe"], "-x"), (&["--=a"], "--")]
    {
        let error = read(options).unwrap_err().to_string();
        assert!(error.contains(&format!("`{option}`")), "{error}");
        assert!(error.contains("make it again with `belljar up`"), "{error}");
    }
}

#[test]
fn options_0_1_with_an_invalid_value_are_refused_without_showing_the_value() {
    let error = read(&["-e", "A\u{e9}=hunter2"]).unwrap_err().to_string();
    assert!(
        error.starts_with("invalid value of the option `-e`: ") && !error.contains("hunter2"),
        "{error}"
    );
}
