//! Attacks by a repository: it tries to make git on the host run programs, read or write other files.
//!
//! Each test has a control: plain git in the same repository falls for the attack.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use belljar_engine::error::ErrorKind;
use belljar_testkit::eventually;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;

/// A git setting that starts a program, and a git command that triggers it.
struct Vector {
    name: &'static str,
    setting: &'static str,
    /// The value of the setting. `@` is replaced by the path of the file that the program creates.
    value: &'static str,
    /// The arguments of git that start the program.
    trigger: &'static [&'static str],
}

const TOUCH: &str = "sh -c 'touch @; cat'";
const VECTORS: [Vector; 10] = [
    Vector {
        name: "fsmonitor",
        setting: "core.fsmonitor",
        value: "touch @;:",
        trigger: &["status"],
    },
    Vector {
        name: "external",
        setting: "diff.external",
        value: "touch @;:",
        trigger: &["diff", "HEAD~1", "HEAD"],
    },
    Vector {
        name: "textconv",
        setting: "diff.evil.textconv",
        value: "touch @;cat",
        trigger: &["diff", "--no-ext-diff", "HEAD~1", "HEAD"],
    },
    Vector { name: "clean", setting: "filter.evil.clean", value: TOUCH, trigger: &["add", "-A"] },
    Vector {
        name: "smudge",
        setting: "filter.evil.smudge",
        value: TOUCH,
        trigger: &["checkout-index", "-f", "-a"],
    },
    Vector {
        name: "ssh",
        setting: "core.sshCommand",
        value: "touch @;:",
        trigger: &["fetch", "ssh://localhost/x"],
    },
    Vector {
        name: "helper",
        setting: "credential.helper",
        value: "!touch @;:",
        trigger: &["credential", "fill"],
    },
    Vector {
        name: "gpg",
        setting: "gpg.program",
        value: "", // replaced by the path of a script
        trigger: &["commit", "-q", "-S", "--allow-empty", "-m", "x"],
    },
    Vector {
        name: "editor",
        setting: "core.editor",
        value: "touch @;false",
        trigger: &["commit", "--allow-empty"],
    },
    Vector {
        name: "driver",
        setting: "merge.evil.driver",
        value: "touch @;:",
        trigger: &["merge", "-q", "-m", "x", "side"],
    },
];
const HOOKS: [&str; 6] = [
    "pre-commit",
    "post-commit",
    "post-checkout",
    "reference-transaction",
    "post-index-change",
    "pre-auto-gc",
];

/// Returns the directory in which each started program creates a file.
fn marks(repos: &Repos) -> PathBuf {
    repos.top.join("marks")
}

/// Returns the names of the programs that were started.
fn started_programs(repos: &Repos) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().into_owned()
    };
    let mut all: Vec<String> = fs::read_dir(marks(repos)).unwrap().map(name).collect();
    all.sort();
    all
}

/// Writes an executable file.
fn write_program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Adds all malicious settings and hooks to a repository that [`prepare`] has set up.
fn add_attacks(repos: &Repos, repo: &Path) {
    let marks = marks(repos);
    fs::create_dir_all(&marks).unwrap();
    fs::set_permissions(&marks, fs::Permissions::from_mode(0o777)).unwrap();
    let gpg = repo.join(".git/gpg");
    write_program(&gpg, &format!("#!/bin/sh\ntouch {}/gpg\nexit 1\n", marks.display()));
    let mut config = String::new();
    for vector in &VECTORS {
        let mark = marks.join(vector.name).display().to_string();
        let value = match vector.value {
            "" => gpg.display().to_string(),
            value => value.replace('@', &mark),
        };
        let (section, key) = vector.setting.rsplit_once('.').unwrap();
        let section = match section.split_once('.') {
            Some((section, name)) => format!("{section} \"{name}\""),
            None => section.to_owned(),
        };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        config.push_str(&format!("[{section}]\n\t{key} = \"{value}\"\n"));
    }
    let hooks = repo.join(".git/traps");
    for hook in HOOKS {
        let text = format!("#!/bin/sh\ntouch {}/hook-{hook}\n", marks.display());
        write_program(&hooks.join(hook), &text);
        write_program(&repo.join(".git/hooks").join(hook), &text);
    }
    config.push_str(&format!("[core]\n\thooksPath = {}\n", hooks.display()));
    let path = repo.join(".git/config");
    let old = fs::read_to_string(&path).unwrap();
    fs::write(path, format!("{old}{config}")).unwrap();
}

/// Creates the file, the attributes and the branches that the attacks of [`add_attacks`] need.
fn prepare(repo: &Path) {
    write(repo, ".gitattributes", "*.txt filter=evil diff=evil merge=evil\n");
    write(repo, "a.txt", "1\n");
    commit(repo, "One");
    git(repo, &["branch", "side"]);
    write(repo, "a.txt", "2\n");
    commit(repo, "Two");
    git(repo, &["checkout", "-q", "side"]);
    write(repo, "a.txt", "3\n");
    commit(repo, "Three");
    git(repo, &["checkout", "-q", "-"]);
}

/// Checks that plain git falls for every attack.
#[track_caller]
fn check_plain_git_is_attacked(repos: &Repos, repo: &Path) {
    for vector in &VECTORS {
        write(repo, "a.txt", "4\n");
        git_command(repo, &["-c", "core.hooksPath=/dev/null", "reset", "-q", "--hard"])
            .output()
            .unwrap();
        write(repo, "a.txt", vector.name);
        let tracked = vector.name != "driver";
        if !tracked {
            git_command(repo, &["reset", "-q", "--hard"]).output().unwrap();
        }
        let mut command = git_command(repo, vector.trigger);
        let mut child = command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .env("GIT_TERMINAL_PROMPT", "0")
            .env_remove("GIT_SSH_COMMAND")
            .spawn()
            .unwrap();
        use std::io::Write as _;
        child.stdin.take().unwrap().write_all(b"protocol=https\nhost=x\n\n").ok();
        child.wait().unwrap();
        assert!(
            started_programs(repos).iter().any(|name| name == vector.name),
            "{}: the program was not started",
            vector.name
        );
    }
    git_command(repo, &["commit", "-q", "-m", "x", "--allow-empty", "--no-gpg-sign"])
        .output()
        .unwrap();
    for hook in ["hook-pre-commit", "hook-post-commit", "hook-reference-transaction"] {
        assert!(
            started_programs(repos).iter().any(|name| name == hook),
            "{hook}: {:?}",
            started_programs(repos)
        );
    }
}

#[test]
fn c02_c03_settings_and_hooks_from_a_box_start_no_program_on_the_host() {
    let repos = Repos::new();
    let (repo, user) = (repos.repo(), repos.user());
    let at = repos.clone(false).at;
    prepare(&repo);
    add_attacks(&repos, &repo);
    // The filter may run inside the sealed box.
    let path = repo.join(".git/config");
    let config = fs::read_to_string(&path).unwrap();
    let evil = config.replace("; cat'", "; echo evil; cat'");
    assert_ne!(config, evil);
    fs::write(&path, evil).unwrap();
    write(&repo, "a.txt", "not committed\n");
    let work = collect(&repos.state, &box_name(), &at, &repo).unwrap().unwrap();
    let text = diff(&work, DiffStyle::default()).unwrap();
    assert!(
        text.contains("+evil\n+not committed\n"),
        "the filter ran inside the sealed box: {text}"
    );
    branch(&work, "belljar/box").unwrap();
    assert_eq!(git(&user, &["rev-parse", "belljar/box"]), work.tip);
    assert_eq!(
        started_programs(&repos),
        Vec::<String>::new(),
        "programs of the box ran on the host"
    );
    fs::write(&path, config).unwrap();
    check_plain_git_is_attacked(&repos, &repo);
}

#[test]
fn c02_c03_settings_and_hooks_of_the_users_repository_start_no_program() {
    let repos = Repos::new();
    let (repo, user) = (repos.repo(), repos.user());
    prepare(&user);
    add_attacks(&repos, &user);
    repos.write("a.txt", "not committed\n");
    repos.write("b.txt", "new\n");
    let cloned = repos.clone(true);
    assert_eq!(fs::read_to_string(repo.join("a.txt")).unwrap(), "not committed\n");
    write(&repo, "a.txt", "by the box\n");
    let work = collect(&repos.state, &box_name(), &cloned.at, &repo).unwrap().unwrap();
    assert!(diff(&work, DiffStyle::default()).unwrap().contains("+by the box"));
    branch(&work, "belljar/box").unwrap();
    branch(&work, "belljar/box").unwrap();
    find_source(&repos.state, &user).unwrap().identity();
    assert_eq!(
        started_programs(&repos),
        Vec::<String>::new(),
        "programs of the repository were started"
    );
    check_plain_git_is_attacked(&repos, &user);
}

/// Creates another repository of the user, whose content no box may read. Returns its path and commit.
fn secret_repository(repos: &Repos) -> (PathBuf, String) {
    let secret = repos.top.join("secret");
    git(&repos.top, &["init", "-q", "-b", "main", "secret"]);
    write(&secret, "key", "the secret of another repository\n");
    let oid = commit(&secret, "Secret");
    // The files are readable by everyone, so that file modes do not protect them.
    for dir in [repos.top.clone(), secret.clone()] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    (secret, oid)
}

/// Checks that the work of the box contains nothing of the secret repository.
#[track_caller]
fn check_secret_is_not_in_work(repos: &Repos, at: &RepoAt) {
    if let Ok(Some(work)) = read_work(&repos.state, &box_name(), at, &repos.repo()) {
        let text = diff(&work, DiffStyle::default()).unwrap();
        assert!(!text.contains("another repository"), "{text}");
        assert!(work.commits.iter().all(|commit| commit.subject != "Secret"), "{:?}", work.commits);
    }
}

/// Replaces a file, link or directory by a file with this content.
fn replace_with_file(path: &Path, content: &str) {
    if path.is_dir() && !path.is_symlink() {
        fs::rename(path, path.with_extension("away")).unwrap();
    } else if path.symlink_metadata().is_ok() {
        fs::remove_file(path).unwrap();
    }
    fs::write(path, content).unwrap();
}

#[test]
fn c04_repository_that_points_to_another_repository_is_an_error_and_reveals_nothing() {
    let repos = Repos::new();
    let (secret, oid) = secret_repository(&repos);
    let repo = repos.repo();
    let plain_git_reads_the_secret =
        || git_command(&repo, &["show", "HEAD:key"]).output().unwrap().status.success();
    type Attack = fn(&Path, &Path, &str);
    let attacks: [(&str, Attack); 5] = [
        ("gitfile", |repo, secret, _| {
            replace_with_file(
                &repo.join(".git"),
                &format!("gitdir: {}\n", secret.join(".git").display()),
            );
        }),
        ("alternates", |repo, secret, oid| {
            fs::create_dir_all(repo.join(".git/objects/info")).unwrap();
            let objects = secret.join(".git/objects").display().to_string();
            replace_with_file(&repo.join(".git/objects/info/alternates"), &objects);
            replace_with_file(&repo.join(".git/HEAD"), &format!("{oid}\n"));
        }),
        ("commondir", |repo, secret, oid| {
            replace_with_file(
                &repo.join(".git/commondir"),
                &secret.join(".git").display().to_string(),
            );
            replace_with_file(&repo.join(".git/HEAD"), &format!("{oid}\n"));
        }),
        ("link", |repo, secret, _| {
            replace_with_file(&repo.join(".git"), "");
            fs::remove_file(repo.join(".git")).unwrap();
            symlink(secret.join(".git"), repo.join(".git")).unwrap();
        }),
        ("objects", |repo, secret, oid| {
            replace_with_file(&repo.join(".git/objects"), "");
            fs::remove_file(repo.join(".git/objects")).unwrap();
            symlink(secret.join(".git/objects"), repo.join(".git/objects")).unwrap();
            replace_with_file(&repo.join(".git/HEAD"), &format!("{oid}\n"));
        }),
    ];
    for (name, attack) in attacks {
        let at = repos.clone(false).at;
        attack(&repo, &secret, &oid);
        assert!(plain_git_reads_the_secret(), "{name}: plain git falls for it");
        let before = read_tree(&repos.user());
        check_secret_is_not_in_work(&repos, &at);
        assert!(
            read_work(&repos.state, &box_name(), &at, &repo).is_err(),
            "{name}: the attack is an error"
        );
        assert_eq!(before, read_tree(&repos.user()));
        fs::remove_dir_all(&repo).unwrap();
    }
}

#[test]
fn c04_project_whose_git_directory_leads_to_another_repository_is_refused() {
    let repos = Repos::new();
    let (secret, oid) = secret_repository(&repos);
    let project = repos.top.join("project");
    let link = |name: &str, to: &str| {
        let path = project.join(name);
        fs::rename(&path, path.with_extension("away")).ok();
        symlink(secret.join(to), path).unwrap();
    };
    let point = |name: &str, prefix: &str, to: &str| {
        let text = format!("{prefix}{}\n", secret.join(to).display());
        fs::create_dir_all(project.join(name).parent().unwrap()).unwrap();
        replace_with_file(&project.join(name), &text);
    };
    let use_secret_commit = || replace_with_file(&project.join(".git/HEAD"), &format!("{oid}\n"));
    let without_git = || fs::rename(project.join(".git"), project.join("git.away")).unwrap();
    type Attack<'a> = (&'a str, Box<dyn Fn() + 'a>);
    let attacks: [Attack<'_>; 10] = [
        ("a file .git", Box::new(|| point(".git", "gitdir: ", ".git"))),
        ("a link .git", Box::new(|| link(".git", ".git"))),
        (
            "a file commondir",
            Box::new(|| {
                point(".git/commondir", "", ".git");
                use_secret_commit();
            }),
        ),
        (
            "linked objects",
            Box::new(|| {
                link(".git/objects", ".git/objects");
                use_secret_commit();
            }),
        ),
        (
            "linked packs",
            Box::new(|| {
                link(".git/objects/pack", ".git/objects/pack");
                use_secret_commit();
            }),
        ),
        (
            "alternates",
            Box::new(|| {
                point(".git/objects/info/alternates", "", ".git/objects");
                use_secret_commit();
            }),
        ),
        (
            "linked objects and refs",
            Box::new(|| {
                link(".git/objects", ".git/objects");
                link(".git/refs", ".git/refs");
            }),
        ),
        (
            "a worktree of another checkout",
            Box::new(|| point(".git", "gitdir: ", ".git/worktrees/other-tree")),
        ),
        (
            "a file .jj/repo",
            Box::new(|| {
                without_git();
                write(&secret, "store/git_target", "../.git");
                point(".jj/repo", "", "");
            }),
        ),
        (
            "a file git_target",
            Box::new(|| {
                without_git();
                point(".jj/repo/store/git_target", "", ".git");
            }),
        ),
    ];
    git(&secret, &["worktree", "add", "-q", "../other-tree", "-b", "other-tree"]);
    git(&secret, &["repack", "-q", "-a", "-d"]);
    let before = read_tree(&secret);
    for (name, attack) in attacks {
        git(&repos.top, &["init", "-q", "-b", "main", "project"]);
        write(&project, "a", "1\n");
        commit(&project, "Theirs");
        find_source(&repos.state, &project).unwrap_or_else(|error| panic!("control: {error:#}"));
        attack();
        if !name.contains(".jj") && !name.contains("git_target") {
            let plain = git_command(&project, &["show", "HEAD:key"]).output().unwrap();
            assert!(plain.status.success(), "{name}: plain git reads the secret");
        }
        let error = find_source(&repos.state, &project).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}: {error:#}");
        let named = [secret.as_path(), project.as_path()];
        let text = format!("{error:#}");
        assert!(named.iter().any(|path| text.contains(path.to_str().unwrap())), "{name}: {text}");
        fs::remove_dir_all(&project).unwrap();
        fs::remove_dir_all(secret.join("store")).ok();
    }
    assert_eq!(before, read_tree(&secret));
}

#[test]
fn c04_setting_core_worktree_of_a_project_does_not_select_another_directory() {
    let repos = Repos::new();
    let (secret, _) = secret_repository(&repos);
    let user = repos.user();
    git(&user, &["config", "core.worktree", secret.to_str().unwrap()]);
    let plain = git(&user, &["ls-files", "--others"]);
    assert!(plain.contains("key"), "plain git lists the other directory: {plain}");
    repos.write("new", "x\n");
    let cloned = repos.clone(true);
    assert_eq!(cloned.at.path, user);
    assert!(repos.repo().join("new").exists() && !repos.repo().join("key").exists());
}

#[test]
fn clone_accepts_a_submodule_whose_git_directory_points_back() {
    let repos = Repos::new();
    let (library, user) = (repos.top.join("library"), repos.user());
    git(&repos.top, &["init", "-q", "-b", "main", "library"]);
    write(&library, "x", "x\n");
    let oid = commit(&library, "Theirs");
    let url = library.to_str().unwrap();
    let add = ["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", url, "sub"];
    git(&user, &add);
    assert!(user.join("sub/.git").is_file());
    let (ada, name) = (ada(), box_name());
    let spec = CloneSpec { branch: None, uncommitted: false, identity: &ada, name: &name };
    let cloned = repos.clone_as(&user.join("sub"), &spec).unwrap();
    assert_eq!((cloned.at.base, cloned.at.path), (Some(oid), user.join("sub")));
}

#[test]
fn c03_git_on_the_host_reads_no_setting_of_the_users_repository() {
    let repos = Repos::new();
    let user = repos.user();
    for (key, value) in [("hook.evil.event", "reference-transaction"), ("hook.evil.command", "x")] {
        git(&user, &["config", key, value]);
    }
    // A program `git` that lists the settings of every command except `git config`.
    let (bin, log) = (repos.top.join("bin"), repos.top.join("settings"));
    fs::create_dir(&bin).unwrap();
    let real = repos.engine.state.host().find_program("git").unwrap();
    let (real, list) = (real.display(), log.display());
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = config ] || {{ echo \"command $1\"; {real} config --list --show-origin; }} >> {list}\nexec {real} \"$@\"\n"
    );
    write_program(&bin.join("git"), &script);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let home = repos.top.join("state");
    let state = test_engine::open_engine_with_path(&repos.engine.lab, &home, &path).unwrap();
    let (ada, name) = (ada(), box_name());
    let spec = CloneSpec { branch: None, uncommitted: true, identity: &ada, name: &name };
    let owner = is_root().then_some((65534, 65534));
    let source = find_source(&state, &user).unwrap();
    let at = clone(&source, &spec, &repos.repo(), owner).unwrap().at;
    drop(source);
    write(&repos.repo(), "a", "1\n");
    let work = collect(&state, &name, &at, &repos.repo()).unwrap().unwrap();
    branch(&work, "belljar/box").unwrap();
    let settings = fs::read_to_string(&log).unwrap();
    for command in ["pack-objects", "rev-parse", "index-pack", "diff-tree", "update-ref"] {
        assert!(settings.contains(&format!("command {command}\n")), "{settings}");
    }
    assert!(!settings.contains("hook."), "{settings}");
    // Control: plain git in the repository reads these settings.
    assert!(git(&user, &["config", "--list"]).contains("hook.evil.command=x"));
    let incoming = fs::read_dir(repos.top.join("state/incoming")).unwrap().count();
    drop(work);
    let left = fs::read_dir(repos.top.join("state/incoming")).unwrap().count();
    assert_eq!((incoming, left), (1, 0), "views are removed with their users");
}

#[test]
fn c04_attributes_and_worktree_settings_do_not_hide_changes_from_a_diff() {
    let repos = Repos::new();
    let at = repos.clone(false).at;
    let repo = repos.repo();
    write(&repo, ".git/info/attributes", "* -diff\n");
    write(&repo, ".gitattributes", "* -diff\n");
    git(&repo, &["config", "extensions.worktreeConfig", "true"]);
    write(&repo, ".git/config.worktree", "[core]\n\tworktree = /\n\tbare = true\n");
    write(&repo, "src/lib.rs", "unsafe\n");
    fs::remove_file(repo.join(".git/config.worktree")).unwrap();
    commit(&repo, "Hide it");
    let plain = git(&repo, &["diff", "HEAD~1", "HEAD", "--", "src"]);
    assert!(plain.contains("Binary files"), "plain git hides the change: {plain}");
    write(&repo, ".git/config.worktree", "[core]\n\tworktree = /\n\tbare = true\n");
    let work = collect(&repos.state, &box_name(), &at, &repo).unwrap().unwrap();
    let text = diff(&work, DiffStyle::default()).unwrap();
    assert!(text.contains("+unsafe"), "{text}");
    let marked = work.files.iter().find(|file| file.path == Path::new(".gitattributes")).unwrap();
    assert!(marked.risky.is_some(), "{marked:?}");
}

#[test]
fn c05_files_of_a_planted_bare_repository_are_marked_as_risky() {
    let repos = Repos::new();
    let at = repos.clone(false).at;
    let repo = repos.repo();
    for (path, content) in [
        ("assets/HEAD", "ref: refs/heads/main\n"),
        ("assets/config", "[core]\n\tbare = true\n\tfsmonitor = evil\n"),
        ("assets/objects/x", ""),
        ("assets/refs/x", ""),
        ("other/refs/x", ""),
        ("other/file", ""),
    ] {
        write(&repo, path, content);
    }
    let plain = git(&repo.join("assets"), &["rev-parse", "--is-bare-repository"]);
    assert_eq!(plain, "true", "plain git takes the directory for a repository");
    let work = collect(&repos.state, &box_name(), &at, &repo).unwrap().unwrap();
    for file in &work.files {
        let planted = file.path.starts_with("assets");
        assert_eq!(file.risky.is_some(), planted, "{file:?}");
    }
    assert_eq!(work.files.len(), 6);
}

#[test]
fn c06_files_that_tools_execute_are_marked_and_not_written_to_the_checkout() {
    let repos = Repos::new();
    let (repo, user) = (repos.repo(), repos.user());
    let at = repos.clone(false).at;
    let risky = [
        ".vscode/tasks.json",
        ".envrc",
        ".npmrc",
        "Makefile",
        "package.json",
        "conftest.py",
        ".github/workflows/ci.yml",
        "Dockerfile",
        ".claude/settings.json",
        "deep/within/.ENVRC",
    ];
    for path in risky {
        write(&repo, path, "planted\n");
    }
    write(&repo, "harmless.txt", "x\n");
    write_program(&repo.join("tool"), "#!/bin/sh\n");
    let work = collect(&repos.state, &box_name(), &at, &repo).unwrap().unwrap();
    branch(&work, "belljar/box").unwrap();
    for file in &work.files {
        assert_eq!(file.risky.is_none(), file.path == Path::new("harmless.txt"), "{file:?}");
    }
    let tool = work.files.iter().find(|file| file.path == Path::new("tool")).unwrap();
    assert_eq!(tool.risky.as_deref(), Some("a new executable file"));
    assert!(
        risky.iter().all(|path| !user.join(path).exists()),
        "no file was written to the checkout"
    );
    git(&user, &["checkout", "-q", "belljar/box"]);
    assert!(risky.iter().all(|path| user.join(path).exists()), "the user checks out the branch");
}

#[test]
fn c02_c06_change_that_a_later_commit_restores_is_marked_and_denied() {
    let repos = Repos::new();
    repos.write(".husky/pre-commit", "true\n");
    let base = repos.commit("Add a hook");
    let at = repos.clone(false).at;
    let repo = repos.repo();
    // One change is restored by the next commit, the other is made and restored on a merged branch.
    write(&repo, ".husky/pre-commit", "evil\n");
    write(&repo, "private/key", "x\n");
    write(&repo, "notes.txt", "x\n");
    let first = commit(&repo, "Work");
    git(&repo, &["checkout", "-q", "-b", "side"]);
    write(&repo, ".envrc", "evil\n");
    commit(&repo, "Side");
    git(&repo, &["rm", "-q", ".envrc"]);
    commit(&repo, "Restore the side");
    git(&repo, &["checkout", "-q", "main"]);
    git(&repo, &["rm", "-q", "-r", "private"]);
    write(&repo, ".husky/pre-commit", "true\n");
    commit(&repo, "Restore");
    git(&repo, &["merge", "-q", "--no-ff", "-m", "Merge", "side"]);
    let plain = git(&repo, &["diff", "--name-only", &base, "HEAD"]);
    assert_eq!(plain, "notes.txt", "control: the last commit shows nothing else");

    let mut work = repos.work(&at).unwrap();
    work.deny(&|path| path.starts_with("private").then(|| "denied".to_owned()));
    let file = |path: &str| work.files.iter().find(|file| file.path == Path::new(path)).unwrap();
    for path in [".husky/pre-commit", ".envrc"] {
        let (file, all) = (file(path), &work.files);
        assert!(file.risky.as_ref().is_some_and(|why| why.contains("(in commit ")), "{all:?}");
        assert!(file.only_in.is_some(), "{all:?}");
    }
    assert!(file("private/key").denied.as_ref().is_some_and(|why| why.starts_with("denied (in")));
    assert_eq!((&file("notes.txt").only_in, &file("notes.txt").risky), (&None, &None));
    // The host checks out the first commit, as a rebase or bisect does, and finds the changed hook.
    save_work(&at, &work, &box_name()).unwrap();
    let user = repos.user();
    git(&user, &["checkout", "-q", "--detach", &first]);
    assert_eq!(fs::read_to_string(user.join(".husky/pre-commit")).unwrap(), "evil\n");
}

#[test]
fn c10_symbolic_links_out_of_the_workspace_are_marked_and_not_followed() {
    let repos = Repos::new();
    let (secret, _) = secret_repository(&repos);
    let repo = repos.repo();
    let at = repos.clone(false).at;
    symlink(secret.join("key"), repo.join("file")).unwrap();
    symlink(&secret, repo.join("dir")).unwrap();
    symlink("../../secret/key", repo.join("up")).unwrap();
    symlink("src/lib.rs", repo.join("inside")).unwrap();
    fs::remove_file(repo.join("README.md")).unwrap();
    symlink(secret.join("key"), repo.join("README.md")).unwrap();
    fs::remove_dir_all(repo.join("src")).unwrap();
    symlink(&secret, repo.join("src")).unwrap();
    let plain = fs::read_to_string(repo.join("file")).unwrap();
    assert!(
        plain.contains("another repository"),
        "a program that follows the link reads the secret"
    );
    let work = collect(&repos.state, &box_name(), &at, &repo).unwrap().unwrap();
    let marked = |path: &str| {
        let file = work.files.iter().find(|file| file.path == Path::new(path));
        file.unwrap().risky.as_deref() == Some("a symbolic link that leads out of the workspace")
    };
    for path in ["file", "dir", "up", "README.md", "src"] {
        assert!(marked(path), "{path}: {:?}", work.files);
    }
    assert!(!marked("inside"));
    let text = diff(&work, DiffStyle::default()).unwrap();
    assert!(!text.contains("another repository"), "{text}");
    // The index, HEAD and config are copied inside the sealed box and not followed either.
    for name in ["index", "HEAD", "config"] {
        let path = repo.join(".git").join(name);
        let old = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(secret.join("key"), &path).unwrap();
        check_secret_is_not_in_work(&repos, &at);
        fs::remove_file(&path).unwrap();
        fs::write(&path, old).unwrap();
    }
}

#[test]
fn c11_repository_that_is_swapped_during_a_read_does_not_reveal_another_one() {
    let repos = Repos::new();
    let (secret, _) = secret_repository(&repos);
    let repo = repos.repo();
    let at = repos.clone(false).at;
    symlink(secret.join(".git"), repo.join("other")).unwrap();
    symlink(&secret, repo.join("linked")).unwrap();
    let stop = AtomicBool::new(false);
    let swap = |one: &str, other: &str| {
        let (one, other) = (repo.join(one), repo.join(other));
        renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                swap(".git", "other");
                swap("src", "linked");
            }
        });
        let reads = || git_command(&repo, &["show", "HEAD:key"]).output().unwrap().status.success();
        let checks = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("plain git reads the secret", reads);
            for _ in 0..20 {
                check_secret_is_not_in_work(&repos, &at);
            }
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = checks {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn c26_state_directory_cannot_be_cloned_and_is_not_part_of_a_clone() {
    let repos = Repos::new();
    let (user, repo) = (repos.user(), repos.repo());
    let at = repos.clone(false).at;
    assert!(
        git(&repo, &["status", "--porcelain"]).is_empty(),
        "plain git takes the directory for a repository"
    );
    let gitfile = repos.top.join("lure");
    write(&gitfile, ".git", &format!("gitdir: {}\n", repo.join(".git").display()));
    let link = repos.top.join("link");
    symlink(&repo, &link).unwrap();
    for dir in [&repo, &repo.join("src"), &repo.join(".git"), &gitfile, &link] {
        let error = find_source(&repos.state, dir).unwrap_err();
        assert!(format!("{error:#}").contains("own state"), "{error:#}");
    }
    drop(at);
    // A user who works in the home directory has the state directory among the files.
    let state_dir = user.join("odd *[x] #state");
    write(&state_dir, "vault/key", "secret\n");
    write(&state_dir, "boxes/other/repo/.git", "gitdir: /nowhere\n");
    repos.write("mine", "x\n");
    assert!(
        git(&user, &["status", "--porcelain", "-uall"]).contains("vault/key"),
        "plain git lists the file"
    );
    let state = repos.open(&state_dir);
    let (ada, name) = (ada(), box_name());
    let into = state_dir.join("boxes/box/repo");
    let spec = CloneSpec { branch: None, uncommitted: true, identity: &ada, name: &name };
    let cloned = clone(&find_source(&state, &user).unwrap(), &spec, &into, None).unwrap();
    assert_eq!(cloned.remarks.len(), 1, "{:?}", cloned.remarks);
    assert!(
        cloned.remarks[0].starts_with("uncommitted changes of 1 file are in the box"),
        "{:?}",
        cloned.remarks
    );
    assert!(into.join("mine").exists());
    assert!(read_tree(&into).iter().all(|(path, _)| !path.ends_with("key")));
}

#[test]
fn files_that_root_writes_to_a_repository_belong_to_the_owner_of_the_repository() {
    use std::os::unix::fs::MetadataExt as _;
    if !belljar_testkit::root_or_skip("a plain user owns every file it writes") {
        return;
    }
    let repos = Repos::new();
    let (repo, user) = (repos.repo(), repos.user());
    // The owner can access the repository but not the state directory.
    fs::set_permissions(&repos.top, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(repos.top.join("state"), fs::Permissions::from_mode(0o700)).unwrap();
    let chown = Command::new("chown").args(["-R", "4711:4712"]).arg(&user).status().unwrap();
    assert!(chown.success());
    let at = repos.clone(false).at;
    write(&repo, "a", "1\n");
    let work = collect(&repos.state, &box_name(), &at, &repo).unwrap().unwrap();
    branch(&work, "belljar/box").unwrap();
    for (path, _) in read_tree(&user) {
        let meta = path.symlink_metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid()), (4711, 4712), "{}", path.display());
    }
    for dir in [".git/refs/belljar", ".git/refs/heads/belljar"] {
        assert_eq!(user.join(dir).metadata().unwrap().uid(), 4711, "{dir}");
    }
}
