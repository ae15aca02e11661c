//! Tests of which changes are applied and which are left out.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use belljar_workspace::{ApplySession, Choice, EntryStatus, LeftOut, plan_apply};

use crate::fixture::{Run, all, path, snapshot, these};

/// Applies all changes of a box and checks that the host then looks like the box's view.
#[track_caller]
fn check_apply_all(host: &str, in_box: &str) -> Run {
    let run = Run::new(host);
    check_apply_all_in(&run, in_box);
    run
}

#[track_caller]
fn check_apply_all_in(run: &Run, in_box: &str) {
    run.in_box(in_box);
    let view = run.box_view();
    let outcome = run.apply(&all());
    assert!(outcome.is_complete(), "{in_box}: {outcome:?}");
    assert_eq!(snapshot(&run.lower()), view, "{in_box}");
    let again = run.apply(&all());
    assert!(
        again.entries.iter().all(|entry| entry.status == EntryStatus::AlreadyThere),
        "{again:?}"
    );
}

#[test]
fn apply_makes_all_changes_and_moves_replaced_files_to_the_trash() {
    let run = check_apply_all(
        "echo a > a; echo b > b; mkdir -p d/e; echo c > d/e/c; ln -s a l; echo t > t; mkdir m",
        "echo more >> a; rm b; rm -r d; mkdir -p n/o; echo n > n/o/p; ln -sfn b l; rm t; mkdir t
         echo u > t/u; chmod 700 m; echo x > 'with space'",
    );
    let trash = run.trash();
    let kept = |name: &str| trash.get(name.as_bytes()).map(String::as_str);
    assert_eq!(kept("a"), Some("file 644 a\\n"));
    assert_eq!(kept("b"), Some("file 644 b\\n"));
    assert_eq!(kept("d/e/c"), Some("file 644 c\\n"));
    assert_eq!(kept("l"), Some("link a"));
    assert_eq!(kept("t"), Some("file 644 t\\n"));
    assert_eq!(trash.len(), 5);
}

/// Checks every operation of a box on two hard links of one file. In the box a change separates the
/// links; an apply separates them on the host too.
#[test]
fn c17_apply_gives_every_hard_link_exactly_its_own_change() {
    let acts = [
        "true",
        "echo new > NAME",
        "rm NAME",
        "[ -L NAME ] || chmod 600 NAME",
        "ln -sfn elsewhere NAME",
        "rm NAME; mkdir NAME; echo x > NAME/x",
        "mv NAME NAME-moved",
    ];
    for first in acts {
        for second in acts {
            let in_box = [first.replace("NAME", "a"), second.replace("NAME", "d/b")].join("\n");
            let file = "echo old > a; mkdir d; ln a d/b; ln a c";
            let link = "ln -s old a; mkdir d; ln -P a d/b; ln -P a c";
            for run in [Run::new(file), Run::new(link), Run::across_file_systems(file)] {
                check_apply_all_in(&run, &in_box);
            }
        }
    }
}

#[test]
fn apply_replaces_directories_with_files_and_files_with_directories() {
    check_apply_all(
        "mkdir -p d/e f; echo a > d/a; echo b > d/e/b; echo g > g; ln -s x h",
        "rm -r d; echo d > d; rm -r f; ln -s g f; rm g; mkdir g; echo i > g/i; rm h; mkdir -p h/j",
    );
}

#[test]
fn apply_reproduces_a_replaced_directory() {
    check_apply_all(
        "mkdir -p d/e d/s; echo a > d/a; echo b > d/b; echo c > d/e/c; echo k > d/s/k",
        "rm -r d; mkdir -p d/s; chmod 750 d; echo a > d/a; echo changed > d/b; echo k > d/s/k",
    );
}

#[test]
fn apply_handles_moves_modes_and_read_only_directories() {
    check_apply_all(
        "mkdir -p d ro/sub; echo 1 > d/1; echo 2 > 2; echo x > ro/x; echo y > ro/sub/y
         chmod 555 ro/sub ro; echo p > p",
        "mv d/1 1; mv 2 d/2; chmod 755 p; chmod 755 ro; echo z > ro/z; echo w > ro/x; chmod 555 ro
         mkdir new; echo n > new/n; chmod 500 new; chmod 755 ro/sub; rm -r ro/sub || true",
    );
}

#[test]
fn c23_apply_handles_file_names_with_arbitrary_bytes() {
    check_apply_all(
        "",
        r#"printf x > "$(printf 'new\nline')"; printf x > "$(printf '\033[31mred')"
           printf x > "$(printf 'bad\377utf')"; printf x > 'back\slash'; printf x > '-rf'
           mkdir "$(printf 'd\001')"; printf x > "$(printf 'd\001/x')""#,
    );
}

#[test]
fn c23_apply_handles_a_file_a_thousand_directories_deep() {
    check_apply_all(
        "",
        "i=0; while [ $i -lt 1100 ]; do mkdir d; cd d; i=$((i+1)); done; echo x > f",
    );
}

#[test]
fn c23_apply_keeps_holes_and_leaves_out_pipes() {
    let run = Run::new("");
    run.in_box("truncate -s 64M hole; echo end >> hole; mkfifo pipe; mkdir d; mkfifo d/pipe");
    let outcome = run.apply(&all());
    let meta = fs::metadata(run.lower().join("hole")).unwrap();
    assert_eq!(meta.len(), (64 << 20) + 4);
    assert!(meta.blocks() * 512 < 1 << 20);
    assert_eq!(snapshot(&run.lower()).len(), 1, "neither the pipe nor its directory is applied");
    assert!(matches!(
        outcome.get(&path("pipe")),
        Some(EntryStatus::LeftOut(LeftOut::Unsupported(_)))
    ));
    assert_eq!(outcome.get(&path("d")), Some(&EntryStatus::LeftOut(LeftOut::NothingInside)));
    assert!(!outcome.is_complete());
}

/// Files that tools of the host execute, and files of unknown kinds.
const NOT_INERT: &str = "
    node_modules/a/index.js .venv/lib/python3/site.py vendor/a/b.go target/debug/deps/libx.so .bsp/x.json
    .factorypath .settings/x.prefs omnisharp.json rust-analyzer.toml .merlin .ropeproject/config.py .lintr
    Package@swift-5.swift config/prod.exs project/B.scala platformio.ini b.hxml nim.cfg .ansible-lint
    .cfnlintrc .sqlfluff .RData renv/activate.R user.clj profiles.clj jupyter_lab_config.py .rvmrc
    .rbenv-vars .prototools .rspec-local .byebugrc grumphp.yml captainhook.json hk.pkl rusty-hook.toml
    .hooks/x .czrc .gitlint .reviewboardrc .arclint a.csproj.user binding.gyp .bazeliskrc .actrc
    x.config.json webpack.mix.js conanfile.py docs/conf.py phpcs.xml dub.json rescript.json
    tauri.conf.json launchSettings.json .zuul.yaml amplify.yml .ebextensions/x atlantis.yaml .packit.yaml
    renovate.json .github/settings.yml conductor.json .coderabbit.yaml
    tool-of-tomorrow.yml tomorrow.json Tomorrowfile .tomorrowrc .tomorrow/run.js tomorrow.sh x.ini";

#[test]
fn c06_choice_of_inert_files_applies_sources_and_documents_only() {
    let run = Run::new(
        "echo 0 > notes.md; echo 0 > old.yml; echo 0 > gone.cfg; echo 0 > gone.txt; mkdir d",
    );
    let names: Vec<&str> = NOT_INERT.split_whitespace().collect();
    let mut script = "echo 1 > notes.md; echo 1 > old.yml; rm gone.cfg gone.txt; mkdir -p src new/sub
        echo 1 > src/main.rs; echo 1 > new/sub/README; ln -s ../src d/link; ln -s notes.md d/link.md\n"
        .to_owned();
    for name in &names {
        script.push_str(&format!("mkdir -p \"$(dirname '{name}')\"; echo evil > '{name}'\n"));
    }
    run.in_box(&script);
    let direct = Choice { only_inert: true, ..Choice::everything() };
    let outcome = run.apply(&direct);
    let files = |run: &Run| -> Vec<String> {
        let host = snapshot(&run.lower()).into_iter();
        let files = host.filter(|(_, kind)| !kind.starts_with("dir"));
        files.map(|(path, _)| String::from_utf8(path).unwrap()).collect()
    };
    let expected =
        ["d/link.md", "gone.cfg", "new/sub/README", "notes.md", "old.yml", "src/main.rs"];
    assert_eq!(files(&run), expected);
    let host = snapshot(&run.lower());
    assert_eq!(
        (&*host[&b"notes.md"[..]], &*host[&b"old.yml"[..]]),
        ("file 644 1\\n", "file 644 0\\n")
    );
    for name in ["old.yml", "gone.cfg", "tomorrow.json", "Tomorrowfile", "tomorrow.sh", "d/link"] {
        let status = outcome.get(&path(name));
        assert_eq!(status, Some(&EntryStatus::LeftOut(LeftOut::NotInert)), "{name}");
    }
    // Control: without that choice, the files that the table does not name are applied.
    run.apply(&Choice::everything());
    let host = snapshot(&run.lower());
    assert!(host.contains_key(&b"tomorrow.json"[..]) && !host.contains_key(&b"gone.cfg"[..]));
    assert!(!host.contains_key(&b"grumphp.yml"[..]));
    run.apply(&all());
    let host = snapshot(&run.lower());
    assert!(names.iter().all(|name| host.contains_key(name.as_bytes())));
}

#[test]
fn c01_to_c08_apply_leaves_out_marked_changes_unless_they_are_named() {
    let run = Run::new("mkdir .git; echo x > .git/config; echo s > script.sh");
    run.in_box(
        "mkdir .claude; echo {} > .claude/settings.json; echo evil > .git/config; echo ok > ok.txt
         echo evil > .envrc; printf '#!/bin/sh' > tool; chmod +x tool; rm script.sh; ln -s / out",
    );
    let outcome = run.apply(&Choice::everything());
    let host = snapshot(&run.lower());
    assert_eq!(host.keys().collect::<Vec<_>>(), [&b".git"[..], b".git/config", b"ok.txt"]);
    assert_eq!(host[&b".git/config"[..]], "file 644 x\\n");
    for name in [".claude/settings.json", ".envrc", ".git/config", "out", "tool"] {
        match outcome.get(&path(name)) {
            Some(EntryStatus::LeftOut(left @ LeftOut::Marked { .. })) => {
                assert!(left.message().contains("--include-executable"), "{left:?}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    let named = Choice { include_executable: these([".envrc", ".claude"]), ..Choice::everything() };
    run.apply(&named);
    let host = snapshot(&run.lower());
    assert!(host.contains_key(&b".envrc"[..]) && host.contains_key(&b".claude/settings.json"[..]));
    assert!(!host.contains_key(&b"tool"[..]) && !host.contains_key(&b"out"[..]));
    run.apply(&all());
    let host = snapshot(&run.lower());
    assert_eq!(host[&b".git/config"[..]], "file 644 evil\\n");
    assert!(host.contains_key(&b"tool"[..]) && host.contains_key(&b"out"[..]));
}

#[test]
fn c22_apply_never_sets_setuid_bits() {
    let run = Run::new("echo s > s; chmod 755 s");
    run.in_box(
        "cp /bin/true suid; chmod 6755 suid; chmod 4755 s; mkdir d; chmod 3777 d; echo x > d/x",
    );
    run.apply(&all());
    let mode =
        |name: &str| fs::metadata(run.lower().join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("suid"), mode("s"), mode("d")), (0o755, 0o755, 0o777));
}

#[test]
fn apply_makes_only_the_selected_changes() {
    let run = Run::new("echo a > a; mkdir d; echo b > d/b");
    run.in_box("echo x > a; echo x > d/b; mkdir -p n/m; echo x > n/m/o; echo x > n/p");
    let outcome = run.apply(&Choice { paths: these(["d", "n/m/o"]), ..Choice::everything() });
    let host = snapshot(&run.lower());
    assert_eq!(host[&b"a"[..]], "file 644 a\\n");
    assert_eq!(host[&b"d/b"[..]], "file 644 x\\n");
    assert!(host.contains_key(&b"n/m/o"[..]), "with its parent directories");
    assert!(!host.contains_key(&b"n/p"[..]));
    assert_eq!(outcome.get(&path("a")), Some(&EntryStatus::NotChosen));
    assert!(outcome.is_complete());
}

#[test]
fn apply_reports_patterns_that_match_no_change() {
    let run = Run::new("");
    run.in_box("echo x > a");
    let (layers, changes) = (run.layers(), run.seal());
    let session = ApplySession::begin(&layers).unwrap();
    let observed = session.observe(&changes).unwrap();
    let choice =
        Choice { paths: these(["a", "typo"]), ours: these(["b*"]), ..Choice::everything() };
    let draft = plan_apply(&observed, &choice);
    let unmatched: Vec<_> = draft.unmatched().iter().map(ToString::to_string).collect();
    assert_eq!(unmatched, ["typo", "b*"]);
}

#[test]
fn apply_keeps_the_old_name_of_a_moved_file_if_its_new_name_is_left_out() {
    let run = Run::new("echo content > work.txt");
    run.in_box("mkdir .githooks; mv work.txt .githooks/post-commit");
    let (layers, changes) = (run.layers(), run.seal());
    let session = ApplySession::begin(&layers).unwrap();
    let draft = plan_apply(&session.observe(&changes).unwrap(), &Choice::everything());
    assert_eq!(draft.to_do().count(), 0, "the plan leaves out both before anything is applied");
    drop((draft, session));
    let outcome = run.apply(&Choice::everything());
    assert_eq!(fs::read(run.lower().join("work.txt")).unwrap(), b"content\n");
    assert!(matches!(
        outcome.get(&path("work.txt")),
        Some(EntryStatus::LeftOut(LeftOut::MoveLeftOut { .. }))
    ));
    run.apply(&Choice { paths: these([".githooks"]), ..all() });
    assert!(!run.lower().join("work.txt").exists(), "choosing one half of a move chooses both");
    assert!(run.lower().join(".githooks/post-commit").exists());
}

#[test]
fn apply_keeps_a_deleted_directory_if_a_file_in_it_is_left_out() {
    let run = Run::new("mkdir -p d/.git; echo x > d/.git/config; echo y > d/y");
    run.in_box("rm -r d");
    let outcome = run.apply(&Choice::everything());
    assert_eq!(outcome.get(&path("d")), Some(&EntryStatus::LeftOut(LeftOut::NotEmpty)));
    let host = snapshot(&run.lower());
    assert!(host.contains_key(&b"d/.git/config"[..]) && !host.contains_key(&b"d/y"[..]));
}

#[test]
fn apply_replaces_a_directory_completely_or_not_at_all() {
    let run = Run::new("mkdir -p d/.git; echo x > d/.git/config; echo y > d/y");
    run.in_box("rm -r d; echo file > d");
    let before = snapshot(&run.lower());
    let outcome = run.apply(&Choice::everything());
    assert_eq!(outcome.get(&path("d")), Some(&EntryStatus::LeftOut(LeftOut::DirectoryStays)));
    assert_eq!(snapshot(&run.lower()), before);
    run.apply(&all());
    assert_eq!(fs::read(run.lower().join("d")).unwrap(), b"file\n");
}

#[test]
fn apply_keeps_a_deleted_directory_if_the_host_added_a_file() {
    let run = Run::new("mkdir d; echo a > d/a");
    run.in_box("rm -r d");
    run.seal();
    run.host("echo mine > d/mine");
    let outcome = run.apply(&all());
    assert_eq!(outcome.get(&path("d")), Some(&EntryStatus::LeftOut(LeftOut::NotEmpty)));
    assert_eq!(snapshot(&run.lower()).len(), 2);
}

#[test]
fn a_replaced_file_keeps_its_owner_and_a_new_file_gets_the_directorys_owner() {
    let run = Run::new("echo a > a; mkdir d; chmod 777 d");
    let root = rustix::process::geteuid().is_root();
    let lower = run.lower();
    if root {
        std::os::unix::fs::chown(lower.join("d"), Some(1234), Some(2345)).unwrap();
        std::os::unix::fs::chown(lower.join("a"), Some(1111), Some(2222)).unwrap();
    }
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(lower.join("a"), "user.note", b"mine", flags).unwrap();
    // The owner in the box has no id in our namespace, so the test writes the upper layer itself.
    fs::create_dir(run.upper().join("d")).unwrap();
    fs::set_permissions(run.upper().join("d"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(run.upper().join("d/new"), "new").unwrap();
    fs::create_dir(run.upper().join("d/sub")).unwrap();
    std::os::unix::fs::symlink("new", run.upper().join("d/link")).unwrap();
    fs::write(run.upper().join("a"), "changed").unwrap();
    let choice = Choice { theirs: belljar_workspace::Pick::All, ..all() };
    run.apply(&choice);
    let owner = |name: &str| {
        let meta = fs::symlink_metadata(lower.join(name)).unwrap();
        (meta.uid(), meta.gid())
    };
    if root {
        assert_eq!(owner("a"), (1111, 2222));
        for name in ["d/new", "d/sub", "d/link"] {
            assert_eq!(owner(name), (1234, 2345), "{name}");
        }
    }
    let mut value = [0; 16];
    let len = rustix::fs::getxattr(lower.join("a"), "user.note", &mut value).unwrap();
    assert_eq!(&value[..len], b"mine");
    assert_eq!(fs::read(lower.join("a")).unwrap(), b"changed");
}

#[test]
fn apply_keeps_setgid_of_directories_and_new_subdirectories_inherit_it() {
    let run = Run::new("mkdir d; chmod 2755 d");
    run.in_box("chmod 2750 d; mkdir d/sub; chmod 700 d/sub");
    run.apply(&all());
    let mode =
        |name: &str| fs::metadata(run.lower().join(name)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("d"), mode("d/sub")), (0o2750, 0o2700));
}

#[test]
fn apply_refuses_a_file_of_the_box_that_changed_after_the_seal() {
    let run = Run::new("echo a > a");
    run.in_box("echo reviewed > a; echo reviewed > n");
    run.seal();
    fs::write(run.upper().join("a"), "tampered").unwrap();
    fs::write(run.upper().join("n"), "tampered and longer").unwrap();
    let outcome = run.apply(&all());
    assert!(outcome.entries.iter().all(|entry| matches!(entry.status, EntryStatus::Failed { .. })));
    assert_eq!(snapshot(&run.lower()).into_values().collect::<Vec<_>>(), ["file 644 a\\n"]);
}

#[test]
fn apply_copies_replaced_files_to_a_trash_on_another_file_system() {
    let run = Run::across_file_systems(
        "echo a > a; echo b > b; chmod 600 b; ln -s a l; ln -s a m; mkdir d; echo c > d/c; echo t > t",
    );
    run.in_box("echo x > a; rm b; ln -sfn x l; rm m; rm -r d; rm t; mkdir t");
    let view = run.box_view();
    assert!(run.apply(&all()).is_complete());
    assert_eq!(snapshot(&run.lower()), view);
    let trash = run.trash();
    let kept = |name: &str| trash.get(name.as_bytes()).map(String::as_str);
    assert_eq!(kept("a"), Some("file 644 a\\n"));
    assert_eq!(kept("b"), Some("file 600 b\\n"));
    assert_eq!((kept("l"), kept("m")), (Some("link a"), Some("link a")));
    assert_eq!(kept("d/c"), Some("file 644 c\\n"));
    assert_eq!(kept("t"), Some("file 644 t\\n"));
}

#[test]
fn apply_keeps_a_deleted_pipe_if_the_trash_is_on_another_file_system() {
    let run = Run::across_file_systems("mkfifo p");
    run.in_box("rm p");
    let outcome = run.apply(&all());
    assert!(matches!(outcome.get(&path("p")), Some(EntryStatus::Failed { .. })), "{outcome:?}");
    assert_eq!(snapshot(&run.lower()).into_values().collect::<Vec<_>>(), ["pipe"]);
}

#[test]
fn a_second_apply_of_a_run_is_refused_while_one_is_in_progress() {
    let run = Run::new("");
    let layers = run.layers();
    let _first = ApplySession::begin(&layers).unwrap();
    assert!(matches!(ApplySession::begin(&layers), Err(belljar_workspace::ApplyError::Busy)));
}

#[test]
fn discard_keeps_the_trash_of_an_apply() {
    let run = Run::new("echo precious > a");
    run.in_box("rm a");
    run.apply(&all());
    belljar_workspace::discard(&run.run_dir()).unwrap();
    let kept = snapshot(&run.run_dir().join("trash"));
    assert_eq!(kept.into_values().collect::<Vec<_>>(), ["file 644 precious\\n"]);
}
