//! Tests of the environment, user, mounts, root file system and workspace of a box.

use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use belljar_engine::error::ErrorKind;
use belljar_model::spec::WorkspaceSpec;
use belljar_testkit::{Lab, is_root};
use serde_json::json;

use crate::test_engine::TestEngine;

// ---- Environment, user and mounts

#[test]
fn box_inherits_only_the_environment_variables_that_the_spec_names() {
    let engine = TestEngine::with_variables(&[("PASSED", "on"), ("SECRET", "token")]);
    let overrides = json!({"env": ["SET=a b=c", "PASSED", "ABSENT"]});
    let spec = engine.spec_on(&engine.lab.workspace(), overrides, &["env"]);
    let out = engine.try_run(&spec).unwrap().succeeded();
    let mut names: Vec<&str> = out.lines().filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    let own = ["BELLJAR_RUN", "HOME", "LANG", "LOGNAME", "PASSED", "PATH", "SET", "USER"];
    assert_eq!(names, own, "{out}");
    for line in ["SET=a b=c", "PASSED=on"] {
        assert!(out.lines().any(|found| found == line), "{out}");
    }
}

#[test]
fn spec_can_replace_the_default_environment_variables() {
    let overrides = json!({"env": ["HOME=/tmp", "LANG=C"]});
    assert_eq!(TestEngine::new().succeed(overrides, "cd; pwd; echo $LANG"), "/tmp\nC");
}

#[test]
fn program_runs_with_the_user_id_of_the_spec() {
    let engine = TestEngine::new();
    for (user, name) in [(0, "root"), (1000, "user"), (4242, "user")] {
        let script = "id -u; id -g; id -un; touch /tmp/f f; stat -c %u /tmp/f f";
        let out = engine.succeed(json!({"user": user}), script);
        assert_eq!(out, format!("{user}\n{user}\n{name}\n{user}\n{user}"));
    }
}

#[test]
fn program_without_a_workspace_starts_in_the_home_directory() {
    let engine = TestEngine::new();
    let script = "pwd; ls -d /workspace; touch ~/f /tmp/f && echo writes";
    let mut spec = engine.spec(json!({}), script);
    spec.on.workspace = WorkspaceSpec::None;
    let ended = engine.try_run(&spec).unwrap();
    assert_eq!(ended.succeeded(), "/home/user\nwrites");
    assert_eq!(ended.result.changed_files, None);
}

#[test]
fn mounts_show_host_files_and_directories_read_only_unless_rw() {
    let engine = TestEngine::new();
    let at = |name: &str| engine.lab.dir().join(name);
    let (shown, shared, file) = (at("shown"), at("shared"), at("a file"));
    fs::create_dir(&shown).unwrap();
    fs::create_dir(&shared).unwrap();
    fs::write(shown.join("f"), "from outside").unwrap();
    fs::write(&file, "one file").unwrap();
    let mounts = [
        format!("{}:/deep/in/the/box", shown.display()),
        format!("{}:/mnt/shared:rw", shared.display()),
        format!("{}:/mnt/file:ro", file.display()),
    ];
    let script = "cat /deep/in/the/box/f /mnt/file; echo; echo from inside > /mnt/shared/new
        touch /deep/in/the/box/x 2> /dev/null || echo refused
        { echo x > /mnt/file; } 2> /dev/null || echo refused";
    let out = engine.succeed(json!({"mounts": mounts}), script);
    assert_eq!(out, "from outsideone file\nrefused\nrefused");
    assert_eq!(fs::read_to_string(shared.join("new")).unwrap(), "from inside\n");
    let owner = |path: &Path| fs::metadata(path).unwrap().uid();
    assert_eq!(owner(&shared.join("new")), owner(&shared));
    assert_eq!(fs::read_to_string(&file).unwrap(), "one file");
    assert!(!shown.join("x").exists());
}

/// Creates a root file system with busybox as its only program.
fn busybox_root(lab: &Lab) -> PathBuf {
    let root = lab.dir().join("root");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox");
    for name in ["sh", "cat", "ls", "id", "touch"] {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    fs::write(root.join("bin/greeting"), "hello\n").unwrap();
    root
}

#[test]
fn box_with_another_root_file_system_does_not_change_it() {
    let engine = TestEngine::new();
    let root = busybox_root(&engine.lab);
    let script = "cat /bin/greeting; ls /usr/lib 2> /dev/null; echo x > /bin/greeting; touch /made; cat /bin/greeting; id -u; touch in-workspace";
    let argv = ["/bin/sh", "-c", script];
    let mut spec = engine.spec_on(&engine.lab.workspace(), json!({}), &argv);
    spec.on.overrides.rootfs = Some(root.clone());
    assert_eq!(engine.try_run(&spec).unwrap().succeeded(), "hello\nx\n1000");
    assert_eq!(fs::read_to_string(root.join("bin/greeting")).unwrap(), "hello\n");
    assert!(!root.join("made").exists());
    assert!(engine.lab.run_dir().join("upper/in-workspace").exists());
}

#[test]
fn box_cannot_write_to_system_directories() {
    let script = "for d in / /usr /etc /bin /proc /sys /dev /run /root /var; do
        touch $d/x 2> /dev/null && echo $d; done; touch /tmp/x ~/x /dev/shm/x /var/tmp/y && echo rest";
    assert_eq!(TestEngine::new().succeed(json!({}), script), "rest");
}

// ---- The workspace

#[test]
fn files_that_a_box_writes_belong_to_the_owner_of_the_workspace() {
    let engine = TestEngine::new();
    let workspace = engine.lab.workspace();
    if is_root() {
        chown(&workspace, Some(4242), Some(4343)).unwrap();
    }
    let own = fs::metadata(&workspace).unwrap();
    let own = (own.uid(), own.gid());
    let owner = |path: PathBuf| fs::metadata(path).map(|meta| (meta.uid(), meta.gid())).unwrap();
    engine.lab.write("before.txt", "");
    if is_root() {
        chown(workspace.join("before.txt"), Some(4242), Some(4343)).unwrap();
    }
    let script = "stat -c %U before.txt; echo x >> before.txt; mkdir -p d; touch d/new.txt";
    assert_eq!(engine.succeed(json!({}), script), "user");
    let upper = engine.lab.run_dir().join("upper");
    for made in ["before.txt", "d", "d/new.txt"] {
        assert_eq!(owner(upper.join(made)), own, "{made} in the overlay");
    }
    assert!(!workspace.join("d").exists());
    engine.succeed(json!({"mode": "direct"}), script);
    for made in ["before.txt", "d", "d/new.txt"] {
        assert_eq!(owner(workspace.join(made)), own, "{made} in the workspace");
    }
}

#[test]
fn box_cannot_write_to_a_read_only_workspace() {
    let engine = TestEngine::new();
    engine.lab.write("f", "content");
    let script = "cat f; echo; touch x 2> /dev/null || echo refused";
    assert_eq!(engine.succeed(json!({"mode": "read-only"}), script), "content\nrefused");
}

#[test]
fn workspace_path_may_contain_any_bytes() {
    let engine = TestEngine::new();
    let odd = [
        b"with space".to_vec(),
        b"colon:comma,equals=back\\slash".to_vec(),
        b"not\xff\xfeutf8".to_vec(),
        "žluťoučký".into(),
        b"new\nline".to_vec(),
        b"-dash".to_vec(),
    ];
    for name in odd {
        let dir = engine.lab.dir().join(std::ffi::OsString::from_vec(name));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("f"), "here").unwrap();
        let out = engine.succeed_on(&dir, &["bash", "-c", "cat f; echo new > g"]);
        assert_eq!(out, "here", "{dir:?}");
        let upper = engine.runs().pop().unwrap().join("upper/g");
        assert_eq!(fs::read(upper).unwrap(), b"new\n", "{dir:?}");
        let recorded = engine.state.store().runs().unwrap();
        let workspaces = recorded.iter().filter_map(|run| run.record.workspace.as_ref());
        assert_eq!(workspaces.filter(|at| at.path == dir).count(), 1, "{dir:?}");
    }
}

/// Runs git on the host with an identity and with clones from local files allowed.
#[track_caller]
fn git(lab: &Lab, dir: &Path, args: &[&str]) {
    let always = ["-c", "user.name=n", "-c", "user.email=e@x", "-c", "protocol.file.allow=always"];
    lab.program("git").args(always).args(args).cwd(dir).succeed();
}

fn repository(lab: &Lab, name: &str) -> PathBuf {
    let dir = lab.dir().join(name);
    git(lab, lab.dir(), &["init", "-q", "-b", "master", name]);
    fs::write(dir.join("f"), "one\n").unwrap();
    git(lab, &dir, &["add", "f"]);
    git(lab, &dir, &["commit", "-qm", "first"]);
    dir
}

#[test]
fn git_works_in_a_workspace_that_is_a_worktree() {
    let engine = TestEngine::new();
    let main = repository(&engine.lab, "main");
    git(&engine.lab, &main, &["worktree", "add", "-q", "../tree", "-b", "topic"]);
    let script =
        "echo two >> f; git status --short; git log --format=%s; git branch --show-current";
    let out = engine.succeed_on(&engine.lab.dir().join("tree"), &["bash", "-c", script]);
    assert_eq!(out, " M f\nfirst\ntopic");
}

#[test]
fn git_works_in_a_workspace_that_is_a_submodule() {
    let engine = TestEngine::new();
    let lab = &engine.lab;
    let (main, _) = (repository(lab, "main"), repository(lab, "part"));
    git(lab, &main, &["submodule", "--quiet", "add", "../part", "part"]);
    git(lab, &main, &["commit", "-qm", "with a part"]);
    let script = "echo two >> f; git status --short; git log --format=%s";
    let out = engine.succeed_on(&main.join("part"), &["bash", "-c", script]);
    assert_eq!(out, " M f\nfirst");
    let script = "git submodule status | cut -c43-; git -C part log --format=%s";
    assert_eq!(engine.succeed_on(&main, &["bash", "-c", script]), "part (heads/master)\nfirst");
}

#[test]
fn state_directory_cannot_be_a_workspace_and_is_hidden_inside_one() {
    let engine = TestEngine::new();
    let on_state = engine.spec_on(&engine.lab.state(), json!({}), &["true"]);
    let message = engine.fail(&on_state, ErrorKind::Invalid);
    assert!(message.contains("own state"), "{message}");
    assert_eq!(engine.succeed_on(engine.lab.dir(), &["ls", "-A", "state"]), "");
}
