//! A repository that is out to make somebody's git run its programs, read other files, or plant some.
//!
//! Each attack has its control: plain git, run in the same repository, falls for it.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use belljar_testkit::eventually;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::*;

/// One way to have git start a program, with what makes it do so.
struct Vector {
    name: &'static str,
    setting: &'static str,
    /// The program's way to be called, where the name of the mark comes for `@`.
    value: &'static str,
    provoke: &'static [&'static str],
}

const TOUCH: &str = "sh -c 'touch @; cat'";
const VECTORS: [Vector; 10] = [
    Vector {
        name: "fsmonitor",
        setting: "core.fsmonitor",
        value: "touch @;:",
        provoke: &["status"],
    },
    Vector {
        name: "external",
        setting: "diff.external",
        value: "touch @;:",
        provoke: &["diff", "HEAD~1", "HEAD"],
    },
    Vector {
        name: "textconv",
        setting: "diff.evil.textconv",
        value: "touch @;cat",
        provoke: &["diff", "--no-ext-diff", "HEAD~1", "HEAD"],
    },
    Vector { name: "clean", setting: "filter.evil.clean", value: TOUCH, provoke: &["add", "-A"] },
    Vector {
        name: "smudge",
        setting: "filter.evil.smudge",
        value: TOUCH,
        provoke: &["checkout-index", "-f", "-a"],
    },
    Vector {
        name: "ssh",
        setting: "core.sshCommand",
        value: "touch @;:",
        provoke: &["fetch", "ssh://localhost/x"],
    },
    Vector {
        name: "helper",
        setting: "credential.helper",
        value: "!touch @;:",
        provoke: &["credential", "fill"],
    },
    Vector {
        name: "gpg",
        setting: "gpg.program",
        value: "", // a program of its own
        provoke: &["commit", "-q", "-S", "--allow-empty", "-m", "x"],
    },
    Vector {
        name: "editor",
        setting: "core.editor",
        value: "touch @;false",
        provoke: &["commit", "--allow-empty"],
    },
    Vector {
        name: "driver",
        setting: "merge.evil.driver",
        value: "touch @;:",
        provoke: &["merge", "-q", "-m", "x", "side"],
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

/// Where programs that were started leave their marks.
fn marks(repos: &Repos) -> PathBuf {
    repos.top.join("marks")
}

fn fired(repos: &Repos) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().into_owned()
    };
    let mut all: Vec<String> = fs::read_dir(marks(repos)).unwrap().map(name).collect();
    all.sort();
    all
}

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Sets every trap in a repository whose last commit changed a file that the traps are for.
fn poison(repos: &Repos, repo: &Path) {
    let marks = marks(repos);
    fs::create_dir_all(&marks).unwrap();
    fs::set_permissions(&marks, fs::Permissions::from_mode(0o777)).unwrap();
    let gpg = repo.join(".git/gpg");
    program(&gpg, &format!("#!/bin/sh\ntouch {}/gpg\nexit 1\n", marks.display()));
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
        program(&hooks.join(hook), &text);
        program(&repo.join(".git/hooks").join(hook), &text);
    }
    config.push_str(&format!("[core]\n\thooksPath = {}\n", hooks.display()));
    let path = repo.join(".git/config");
    let old = fs::read_to_string(&path).unwrap();
    fs::write(path, format!("{old}{config}")).unwrap();
}

/// What the traps are for: a file with attributes, changed once, and a branch that changed it too.
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

/// Runs plain git into every trap.
#[track_caller]
fn control(repos: &Repos, repo: &Path) {
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
        let mut command = git_command(repo, vector.provoke);
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
            fired(repos).iter().any(|name| name == vector.name),
            "{} did not fire",
            vector.name
        );
    }
    git_command(repo, &["commit", "-q", "-m", "x", "--allow-empty", "--no-gpg-sign"])
        .output()
        .unwrap();
    for hook in ["hook-pre-commit", "hook-post-commit", "hook-reference-transaction"] {
        assert!(fired(repos).iter().any(|name| name == hook), "{hook}: {:?}", fired(repos));
    }
}

#[test]
fn c02_c03_nothing_that_a_box_wrote_into_its_repository_is_started_on_the_host() {
    let repos = Repos::new();
    let (repo, user) = (repos.repo(), repos.user());
    let at = repos.clone(false).at;
    prepare(&repo);
    poison(&repos, &repo);
    // In the sealed box it is: there it may.
    let path = repo.join(".git/config");
    let config = fs::read_to_string(&path).unwrap();
    let evil = config.replace("; cat'", "; echo evil; cat'");
    assert_ne!(config, evil);
    fs::write(&path, evil).unwrap();
    write(&repo, "a.txt", "not committed\n");
    let work = collect(&repos.state, &boxed(), &at, &repo).unwrap().unwrap();
    let text = diff(&at, &work, DiffStyle::default()).unwrap();
    assert!(text.contains("+evil\n+not committed\n"), "the filter ran where it may: {text}");
    branch(&at, &work, "belljar/box").unwrap();
    assert_eq!(git(&user, &["rev-parse", "belljar/box"]), work.tip);
    assert_eq!(fired(&repos), Vec::<String>::new(), "programs of the box ran on the host");
    fs::write(&path, config).unwrap();
    control(&repos, &repo);
}

#[test]
fn c02_c03_no_setting_or_hook_of_the_users_own_repository_is_started() {
    let repos = Repos::new();
    let (repo, user) = (repos.repo(), repos.user());
    prepare(&user);
    poison(&repos, &user);
    repos.write("a.txt", "not committed\n");
    repos.write("b.txt", "new\n");
    let cloned = repos.clone(true);
    assert_eq!(fs::read_to_string(repo.join("a.txt")).unwrap(), "not committed\n");
    write(&repo, "a.txt", "by the box\n");
    let work = collect(&repos.state, &boxed(), &cloned.at, &repo).unwrap().unwrap();
    assert!(diff(&cloned.at, &work, DiffStyle::default()).unwrap().contains("+by the box"));
    branch(&cloned.at, &work, "belljar/box").unwrap();
    branch(&cloned.at, &work, "belljar/box").unwrap();
    find_source(&repos.state, &user).unwrap().identity();
    assert_eq!(fired(&repos), Vec::<String>::new(), "programs of the repository were started");
    control(&repos, &user);
}

/// Another repository of the user's, whose content no box may have.
fn secret(repos: &Repos) -> (PathBuf, String) {
    let secret = repos.top.join("secret");
    git(&repos.top, &["init", "-q", "-b", "main", "secret"]);
    write(&secret, "key", "the secret of another repository\n");
    let oid = commit(&secret, "Secret");
    // Everybody may read it: what keeps a box from it is not its mode.
    for dir in [repos.top.clone(), secret.clone()] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    (secret, oid)
}

/// That nothing of the secret is in what the box's repository is found to hold.
#[track_caller]
fn keeps_the_secret(repos: &Repos, at: &RepoAt) {
    if let Ok(Some(work)) = read_work(&repos.state, &boxed(), at, &repos.repo()) {
        let text = diff(at, &work, DiffStyle::default()).unwrap();
        assert!(!text.contains("another repository"), "{text}");
        assert!(work.commits.iter().all(|commit| commit.subject != "Secret"), "{:?}", work.commits);
    }
}

/// Replaces what is at a path.
fn put(path: &Path, content: &str) {
    if path.is_dir() && !path.is_symlink() {
        fs::rename(path, path.with_extension("away")).unwrap();
    } else if path.symlink_metadata().is_ok() {
        fs::remove_file(path).unwrap();
    }
    fs::write(path, content).unwrap();
}

#[test]
fn c04_a_repository_that_points_elsewhere_leads_nowhere() {
    let repos = Repos::new();
    let (secret, oid) = secret(&repos);
    let repo = repos.repo();
    let sees = || git_command(&repo, &["show", "HEAD:key"]).output().unwrap().status.success();
    type Trap = fn(&Path, &Path, &str);
    let traps: [(&str, Trap); 5] = [
        ("gitfile", |repo, secret, _| {
            put(&repo.join(".git"), &format!("gitdir: {}\n", secret.join(".git").display()));
        }),
        ("alternates", |repo, secret, oid| {
            fs::create_dir_all(repo.join(".git/objects/info")).unwrap();
            let objects = secret.join(".git/objects").display().to_string();
            put(&repo.join(".git/objects/info/alternates"), &objects);
            put(&repo.join(".git/HEAD"), &format!("{oid}\n"));
        }),
        ("commondir", |repo, secret, oid| {
            put(&repo.join(".git/commondir"), &secret.join(".git").display().to_string());
            put(&repo.join(".git/HEAD"), &format!("{oid}\n"));
        }),
        ("link", |repo, secret, _| {
            put(&repo.join(".git"), "");
            fs::remove_file(repo.join(".git")).unwrap();
            symlink(secret.join(".git"), repo.join(".git")).unwrap();
        }),
        ("objects", |repo, secret, oid| {
            put(&repo.join(".git/objects"), "");
            fs::remove_file(repo.join(".git/objects")).unwrap();
            symlink(secret.join(".git/objects"), repo.join(".git/objects")).unwrap();
            put(&repo.join(".git/HEAD"), &format!("{oid}\n"));
        }),
    ];
    for (name, trap) in traps {
        let at = repos.clone(false).at;
        trap(&repo, &secret, &oid);
        assert!(sees(), "{name}: plain git falls for it");
        let before = picture(&repos.user());
        keeps_the_secret(&repos, &at);
        assert!(read_work(&repos.state, &boxed(), &at, &repo).is_err(), "{name}: and it is said");
        assert_eq!(before, picture(&repos.user()));
        fs::remove_dir_all(&repo).unwrap();
    }
}

#[test]
fn c04_settings_in_hidden_places_and_attributes_hide_nothing_from_a_review() {
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
    assert!(plain.contains("Binary files"), "plain git hides it: {plain}");
    write(&repo, ".git/config.worktree", "[core]\n\tworktree = /\n\tbare = true\n");
    let work = collect(&repos.state, &boxed(), &at, &repo).unwrap().unwrap();
    let text = diff(&at, &work, DiffStyle::default()).unwrap();
    assert!(text.contains("+unsafe"), "{text}");
    let marked = work.files.iter().find(|file| file.path == Path::new(".gitattributes")).unwrap();
    assert!(marked.risky.is_some(), "{marked:?}");
}

#[test]
fn c05_a_bare_repository_among_the_files_is_marked() {
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
    assert_eq!(plain, "true", "plain git takes it for one");
    let work = collect(&repos.state, &boxed(), &at, &repo).unwrap().unwrap();
    for file in &work.files {
        let planted = file.path.starts_with("assets");
        assert_eq!(file.risky.is_some(), planted, "{file:?}");
    }
    assert_eq!(work.files.len(), 6);
}

#[test]
fn c06_what_tools_execute_is_marked_and_does_not_reach_the_checkout() {
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
    program(&repo.join("tool"), "#!/bin/sh\n");
    let work = collect(&repos.state, &boxed(), &at, &repo).unwrap().unwrap();
    branch(&at, &work, "belljar/box").unwrap();
    for file in &work.files {
        assert_eq!(file.risky.is_none(), file.path == Path::new("harmless.txt"), "{file:?}");
    }
    let tool = work.files.iter().find(|file| file.path == Path::new("tool")).unwrap();
    assert_eq!(tool.risky.as_deref(), Some("a new executable file"));
    assert!(risky.iter().all(|path| !user.join(path).exists()), "nothing was checked out");
    git(&user, &["checkout", "-q", "belljar/box"]);
    assert!(risky.iter().all(|path| user.join(path).exists()), "until the user does");
}

#[test]
fn c10_links_are_marked_and_never_followed() {
    let repos = Repos::new();
    let (secret, _) = secret(&repos);
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
    assert!(plain.contains("another repository"), "who follows it reads the secret");
    let work = collect(&repos.state, &boxed(), &at, &repo).unwrap().unwrap();
    let marked = |path: &str| {
        let file = work.files.iter().find(|file| file.path == Path::new(path));
        file.unwrap().risky.as_deref() == Some("a symbolic link that leads out of the workspace")
    };
    for path in ["file", "dir", "up", "README.md", "src"] {
        assert!(marked(path), "{path}: {:?}", work.files);
    }
    assert!(!marked("inside"));
    let text = diff(&at, &work, DiffStyle::default()).unwrap();
    assert!(!text.contains("another repository"), "{text}");
    // Nor the index, which is copied inside the sealed box.
    for name in ["index", "HEAD", "config"] {
        let path = repo.join(".git").join(name);
        let old = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(secret.join("key"), &path).unwrap();
        keeps_the_secret(&repos, &at);
        fs::remove_file(&path).unwrap();
        fs::write(&path, old).unwrap();
    }
}

#[test]
fn c11_a_repository_that_is_swapped_all_the_time_shows_nothing_else() {
    let repos = Repos::new();
    let (secret, _) = secret(&repos);
    let repo = repos.repo();
    let at = repos.clone(false).at;
    symlink(secret.join(".git"), repo.join("other")).unwrap();
    symlink(&secret, repo.join("linked")).unwrap();
    let over = AtomicBool::new(false);
    let swap = |one: &str, other: &str| {
        let (one, other) = (repo.join(one), repo.join(other));
        renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                swap(".git", "other");
                swap("src", "linked");
            }
        });
        let reads = || git_command(&repo, &["show", "HEAD:key"]).output().unwrap().status.success();
        let verdict = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("plain git is led to the secret", reads);
            for _ in 0..20 {
                keeps_the_secret(&repos, &at);
            }
        }));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = verdict {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn c26_our_own_state_is_no_repository_and_never_comes_along() {
    let repos = Repos::new();
    let (user, repo) = (repos.user(), repos.repo());
    let at = repos.clone(false).at;
    assert!(git(&repo, &["status", "--porcelain"]).is_empty(), "plain git takes it for one");
    let gitfile = repos.top.join("lure");
    write(&gitfile, ".git", &format!("gitdir: {}\n", repo.join(".git").display()));
    let link = repos.top.join("link");
    symlink(&repo, &link).unwrap();
    for dir in [&repo, &repo.join("src"), &repo.join(".git"), &gitfile, &link] {
        let refused = find_source(&repos.state, dir).unwrap_err();
        assert!(format!("{refused:#}").contains("own state"), "{refused:#}");
    }
    drop(at);
    // A user who works in the home directory has our state among the files.
    let own = user.join("odd *[x] #state");
    write(&own, "vault/key", "secret\n");
    write(&own, "boxes/other/repo/.git", "gitdir: /nowhere\n");
    repos.write("mine", "x\n");
    assert!(
        git(&user, &["status", "--porcelain", "-uall"]).contains("vault/key"),
        "plain git sees it"
    );
    let state = repos.open(&own);
    let (ada, name) = (ada(), boxed());
    let into = own.join("boxes/box/repo");
    let wish = CloneSpec { branch: None, uncommitted: true, identity: &ada, name: &name };
    let cloned = clone(&find_source(&state, &user).unwrap(), &wish, &into, None).unwrap();
    assert_eq!(cloned.remarks.len(), 1, "{:?}", cloned.remarks);
    assert!(
        cloned.remarks[0].starts_with("uncommitted changes of 1 file are in the box"),
        "{:?}",
        cloned.remarks
    );
    assert!(into.join("mine").exists());
    assert!(picture(&into).iter().all(|(path, _)| !path.ends_with("key")));
}

/// As root, in a repository of somebody else: what is written there belongs to its owner.
#[test]
fn what_root_puts_into_a_repository_belongs_to_its_owner() {
    use std::os::unix::fs::MetadataExt as _;
    if !belljar_testkit::root_or_skip("a plain user owns every file it writes") {
        return;
    }
    let repos = Repos::new();
    let (repo, user) = (repos.repo(), repos.user());
    // Its owner can get there, but not to our state.
    fs::set_permissions(&repos.top, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(repos.top.join("state"), fs::Permissions::from_mode(0o700)).unwrap();
    let given = Command::new("chown").args(["-R", "4711:4712"]).arg(&user).status().unwrap();
    assert!(given.success());
    let at = repos.clone(false).at;
    write(&repo, "a", "1\n");
    let work = collect(&repos.state, &boxed(), &at, &repo).unwrap().unwrap();
    branch(&at, &work, "belljar/box").unwrap();
    for (path, _) in picture(&user) {
        let meta = path.symlink_metadata().unwrap();
        assert_eq!((meta.uid(), meta.gid()), (4711, 4712), "{}", path.display());
    }
    for dir in [".git/refs/belljar", ".git/refs/heads/belljar"] {
        assert_eq!(user.join(dir).metadata().unwrap().uid(), 4711, "{dir}");
    }
}
