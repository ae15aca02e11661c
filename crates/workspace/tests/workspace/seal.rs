//! Tests of the changes that a seal finds in the upper layer.

use std::fs;
use std::os::unix::fs::symlink;

use belljar_workspace::{
    Base, ChangeKind, Content, ContentHash, FileKind, LinkTarget, OpenError, RunPaths, SealError,
    SealLimits, Unsupported,
};

use crate::fixture::{Run, path, snapshot, summary};

/// Checks the changes that `seal` finds after a shell script ran in the box.
#[track_caller]
fn check(host: &str, in_box: &str, expected: &[&str]) -> belljar_workspace::Changes {
    let run = Run::new(host);
    run.in_box(in_box);
    let (host, upper) = (snapshot(&run.lower()), snapshot(&run.upper()));
    let changes = run.seal();
    assert_eq!(summary(&changes), expected);
    assert_eq!(snapshot(&run.lower()), host, "sealing changes no file on the host");
    assert_eq!(snapshot(&run.upper()), upper, "sealing changes no file in the upper layer");
    assert_eq!(run.seal(), changes, "a second seal returns the same changes");
    changes
}

#[test]
fn seal_finds_added_modified_and_deleted_files() {
    let changes = check(
        "echo a > a; echo b > b; echo c > c; mkdir d; echo e > d/e",
        "echo new > n; echo more >> a; rm b; echo f > d/f",
        &["M a", "D b", "A d/f", "A n"],
    );
    let a = changes.get(&path("a")).unwrap();
    assert_eq!(a.old.as_ref().unwrap().hash, Some(ContentHash::of(b"a\n")));
    assert_eq!(a.new.as_ref().unwrap().hash, Some(ContentHash::of(b"a\nmore\n")));
    assert_eq!(a.new.as_ref().unwrap().content, Some(Content::Text));
    assert_eq!(a.base, Some(Base::Kept));
    assert_eq!(changes.get(&path("b")).unwrap().base, Some(Base::Kept));
    assert_eq!(changes.get(&path("n")).unwrap().base, None);
}

#[test]
fn seal_ignores_a_file_that_was_only_touched() {
    check("echo a > a; mkdir d; echo b > d/b", "touch a; chmod 600 a; chmod 644 a; touch d/b", &[]);
}

#[test]
fn seal_finds_changes_of_modes_types_and_links() {
    let changes = check(
        "echo a > a; chmod 644 a; ln -s a l; ln -s a k; echo t > t; mkdir d; chmod 755 d",
        "chmod 600 a; ln -sfn b l; rm t; ln -s a t; chmod 700 d; rm k; ln -s a k",
        &["m a", "m d", "M l", "T t"],
    );
    let l = changes.get(&path("l")).unwrap();
    assert_eq!(l.old.as_ref().unwrap().target, Some(LinkTarget(b"a".to_vec())));
    assert_eq!(l.new.as_ref().unwrap().target, Some(LinkTarget(b"b".to_vec())));
    let t = changes.get(&path("t")).unwrap();
    assert_eq!(t.old.as_ref().unwrap().kind, FileKind::File);
    assert_eq!(t.new.as_ref().unwrap().kind, FileKind::Symlink);
}

#[test]
fn seal_lists_a_deleted_directory_file_by_file() {
    check(
        "mkdir -p d/e; echo a > d/a; echo b > d/e/b; ln -s x d/l",
        "rm -r d",
        &["D d", "D d/a", "D d/e", "D d/e/b", "D d/l"],
    );
}

#[test]
fn seal_reports_files_missing_in_a_replaced_directory_as_deleted() {
    check(
        "mkdir -p d/e d/s; echo a > d/a; echo b > d/b; echo c > d/e/c; echo k > d/s/k",
        "rm -r d; mkdir -p d/s; echo a > d/a; echo changed > d/b; echo k > d/s/k",
        &["M d/b", "D d/e", "D d/e/c"],
    );
}

#[test]
fn seal_reports_host_files_beneath_a_replaced_directory_as_deleted() {
    check(
        "mkdir -p d/e/f; echo a > d/e/a; echo b > d/e/f/b",
        "rm -r d; mkdir -p d/e/f",
        &["D d/e/a", "D d/e/f/b"],
    );
}

#[test]
fn seal_finds_directories_that_became_files_and_the_reverse() {
    let changes = check(
        "mkdir -p d/e; echo a > d/e/a; echo f > f; mkdir g",
        "rm -r d; echo x > d; rm f; mkdir f; echo y > f/y; rmdir g; ln -s f g",
        &["T d", "D d/e", "D d/e/a", "T f", "A f/y", "T g"],
    );
    assert_eq!(changes.get(&path("d")).unwrap().old.as_ref().unwrap().kind, FileKind::Directory);
    assert_eq!(changes.get(&path("f")).unwrap().base, Some(Base::Kept));
}

#[test]
fn seal_recognises_a_moved_file_by_its_content() {
    let changes = check(
        "echo one > one; echo two > two; mkdir d; : > empty",
        "mv one d/uno; mv two d/two; rm empty; : > also-empty",
        &["A also-empty", "R(two) d/two", "R(one) d/uno", "D empty", "D one", "D two"],
    );
    assert_eq!(changes.get(&path("one")).unwrap().moved_to, Some(path("d/uno")));
}

#[test]
fn seal_reports_an_unknown_original_for_a_host_file_that_changed_after_the_start() {
    let run = Run::new("echo a > a; echo b > b; ln -s x l");
    run.in_box("echo box > a; rm b; ln -sfn y l");
    run.host("echo host > a; echo host > b; ln -sfn z l");
    let changes = run.seal();
    for name in ["a", "b", "l"] {
        assert_eq!(changes.get(&path(name)).unwrap().base, Some(Base::Unknown), "{name}");
    }
    assert_eq!(fs::read_dir(run.run_dir().join("base")).unwrap().count(), 0);
}

#[test]
fn seal_stores_originals_once_and_large_ones_only_as_a_hash() {
    let run = Run::new("echo same > a; echo same > b; truncate -s 17M big");
    run.in_box("echo x > a; rm b; echo x >> big");
    let changes = run.seal();
    let kept: Vec<_> = fs::read_dir(run.run_dir().join("base")).unwrap().collect();
    assert_eq!(kept.len(), 1);
    let hash = ContentHash::of(b"same\n").to_string();
    assert_eq!(fs::read(run.run_dir().join("base").join(hash)).unwrap(), b"same\n");
    let big = changes.get(&path("big")).unwrap();
    assert_eq!(big.base, Some(Base::HashOnly));
    assert!(big.old.as_ref().unwrap().hash.is_some());
}

#[test]
fn seal_identifies_originals_above_the_byte_limit_by_inode() {
    let run = Run::new("echo aaaa > a; echo bbbb > b");
    run.in_box("rm a; echo x > b");
    let changes = run.try_seal(&SealLimits { base_bytes: 3, ..SealLimits::default() }).unwrap();
    for change in changes.entries() {
        assert_eq!(change.base, Some(Base::IdentityOnly));
        assert!(change.host.is_some());
    }
}

#[test]
fn c01_to_c08_seal_marks_files_that_the_host_executes() {
    let changes = check(
        "mkdir -p .git/hooks; echo x > .git/config; echo y > package.json; echo z > main.c",
        "mkdir -p .claude .vscode .venv/bin; echo {} > .claude/settings.json
         echo {} > .vscode/tasks.json; echo x > .git/hooks/pre-commit; echo y > .git/config
         echo x > .envrc; echo n > main.c; rm package.json; ln -s elsewhere .github
         echo x > .venv/bin/python; echo x > belljar.toml; mkdir -p repo/objects; echo x > repo/HEAD",
        &[
            "A .claude",
            "A .claude/settings.json",
            "A .envrc",
            "M .git/config",
            "A .git/hooks/pre-commit",
            "A .github",
            "A .venv",
            "A .venv/bin",
            "A .venv/bin/python",
            "A .vscode",
            "A .vscode/tasks.json",
            "A belljar.toml",
            "M main.c",
            "D package.json",
            "A repo",
            "A repo/HEAD",
            "A repo/objects",
        ],
    );
    for change in changes.entries() {
        let name = change.path.as_bytes();
        let is_dir = change.file_kind() == FileKind::Directory;
        assert_eq!(change.risky.is_none(), is_dir || name == b"main.c", "{:?}", change.path);
    }
}

#[test]
fn c05_seal_marks_a_file_in_an_existing_bare_repository() {
    let changes = check(
        "mkdir -p x/repo/refs; echo x > x/repo/HEAD; mkdir -p y/refs",
        "mkdir -p x/repo/sub; echo x > x/repo/sub/config; echo x > x/other; echo x > y/config",
        &["A x/other", "A x/repo/sub", "A x/repo/sub/config", "A y/config"],
    );
    assert!(changes.get(&path("x/repo/sub/config")).unwrap().risky.is_some());
    assert!(changes.get(&path("x/other")).unwrap().risky.is_none());
    assert!(changes.get(&path("y/config")).unwrap().risky.is_none());
}

#[test]
fn c06_c22_seal_marks_new_executables_and_drops_setuid_bits() {
    let changes = check(
        "echo a > a; echo b > b; chmod +x b; echo c > c; chmod +x c; echo s > s; chmod 755 s",
        "chmod +x a; echo more >> b; mv c d; echo n > n; chmod 4755 n; chmod 6755 s",
        &["m a", "M b", "D c", "R(c) d", "A n", "m s"],
    );
    let marked = |name| changes.get(&path(name)).unwrap().new_executable;
    assert!(marked("a") && marked("n"));
    assert!(!marked("b") && !marked("d") && !marked("s"), "these files were executable before");
    let n = changes.get(&path("n")).unwrap();
    assert_eq!((n.stripped, n.new.as_ref().unwrap().mode), (0o4000, 0o755));
    let s = changes.get(&path("s")).unwrap();
    assert_eq!((s.stripped, s.new.as_ref().unwrap().mode), (0o6000, 0o755));
}

#[test]
fn c10_seal_flags_symlinks_that_lead_out_of_the_workspace() {
    let changes = check(
        "mkdir d",
        "ln -s /etc/passwd a; ln -s ../.. b; ln -s .. d/c; ln -s ../.. d/e; ln -s d f",
        &["A a", "A b", "A d/c", "A d/e", "A f"],
    );
    let out: Vec<_> = changes.entries().iter().filter(|change| change.leads_out).collect();
    assert_eq!(out.len(), 3);
    assert!(out.iter().all(|change| matches!(change.path.as_bytes(), b"a" | b"b" | b"d/e")));
}

#[test]
fn c10_seal_does_not_follow_a_host_link_in_place_of_a_directory() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "x").unwrap();
    let run = Run::new("mkdir d; echo a > d/a");
    run.in_box("echo b > d/a; rm -rf d; mkdir d; echo c > d/secret");
    fs::remove_dir_all(run.lower().join("d")).unwrap();
    symlink(outside.path(), run.lower().join("d")).unwrap();
    let changes = run.seal();
    assert_eq!(summary(&changes), ["T d", "A d/secret"]);
}

#[test]
fn c23_seal_reports_pipes_and_sockets_as_unsupported() {
    let run = Run::new("echo a > a; mkfifo p");
    run.in_box("mkfifo f; rm a; mkfifo a; touch p");
    let _socket = std::os::unix::net::UnixListener::bind(run.upper().join("s")).unwrap();
    let changes = run.seal();
    assert_eq!(summary(&changes), ["T a", "A f", "A s"]);
    let why = |name| changes.get(&path(name)).unwrap().unsupported;
    assert_eq!(why("f"), Some(Unsupported::Fifo));
    assert_eq!(why("a"), Some(Unsupported::Fifo));
    assert_eq!(why("s"), Some(Unsupported::Socket));
}

#[test]
fn c23_seal_reports_a_huge_sparse_file_without_reading_it() {
    let run = Run::new("");
    // The limit of ext4 is 16 TiB, which is also far too large to read.
    run.in_box("truncate -s 15T huge || truncate -s 8191P huge; echo ok > ok");
    let changes = run.seal();
    assert_eq!(summary(&changes), ["A huge", "A ok"]);
    let huge = changes.get(&path("huge")).unwrap();
    assert_eq!(huge.unsupported, Some(Unsupported::TooLarge));
}

#[test]
fn c23_seal_fails_above_each_limit_and_changes_nothing() {
    let run = Run::new("mkdir d; for n in 1 2 3 4 5 6 7 8 9; do echo $n > d/$n; done");
    run.in_box("for n in 1 2 3 4 5 6 7 8 9; do echo $n > $n; done; rm -r d");
    let before = snapshot(&run.upper());
    let seal = |limits| run.try_seal(&limits).unwrap_err();
    let limits = SealLimits::default();
    assert!(matches!(
        seal(SealLimits { entries: 5, ..limits }),
        SealError::TooManyEntries { cap: 5 }
    ));
    assert!(matches!(seal(SealLimits { entries: 15, ..limits }), SealError::TooManyEntries { .. }));
    assert!(matches!(
        seal(SealLimits { upper_bytes: 10, ..limits }),
        SealError::TooManyBytes { .. }
    ));
    assert!(matches!(
        seal(SealLimits { path_bytes: 10, ..limits }),
        SealError::TooManyPathBytes { .. }
    ));
    assert_eq!(snapshot(&run.upper()), before);
    assert!(!run.run_dir().join("changes.json").exists());
    assert_eq!(run.seal().entries().len(), 19, "the default limits suffice");
}

#[test]
fn c23_arbitrary_bytes_in_names_survive_a_round_trip_through_changes_json() {
    let run = Run::new("");
    run.in_box(
        r#"printf x > "$(printf 'new\nline')"; printf x > "$(printf '\033[31mred')"
           printf x > "$(printf 'bad\377utf')"; printf x > 'back\slash'; ln -s "$(printf 'a\377')" l"#,
    );
    let changes = run.seal();
    let names: Vec<_> = changes.entries().iter().map(|c| c.path.as_bytes().to_vec()).collect();
    let expected: [&[u8]; 5] = [b"\x1b[31mred", b"back\\slash", b"bad\xffutf", b"l", b"new\nline"];
    assert_eq!(names, expected);
    assert_eq!(run.seal(), changes);
}

#[test]
fn c23_seal_reads_a_file_a_thousand_directories_deep() {
    let run = Run::new("");
    run.in_box("p=.; i=0; while [ $i -lt 1200 ]; do mkdir d; cd d; i=$((i+1)); done; echo x > f");
    let changes = run.seal();
    assert_eq!(changes.entries().len(), 1201);
    assert!(changes.too_long().is_empty());
}

#[test]
fn c23_seal_counts_and_skips_paths_above_the_length_limit() {
    let run = Run::new("");
    let flags = rustix::fs::OFlags::DIRECTORY;
    let none = rustix::fs::Mode::empty();
    let mut dir = rustix::fs::open(run.upper(), flags, none).unwrap();
    for _ in 0..40 {
        let name = "d".repeat(200);
        rustix::fs::mkdirat(&dir, &name, rustix::fs::Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, &name, flags, none).unwrap();
    }
    let changes = run.seal();
    assert_eq!(changes.entries().len(), 20, "20 * 201 bytes are below the limit");
    assert_eq!(changes.too_long().len(), 1);
    assert_eq!(changes.too_long()[0].names, 1);
}

#[test]
fn c17_seal_reports_each_hard_link_as_its_own_change() {
    let changes = check("echo a > a", "echo b > b; ln b c; ln a d", &["A b", "A c", "A d"]);
    let hash = |name| changes.get(&path(name)).unwrap().new.as_ref().unwrap().hash;
    assert_eq!(hash("b"), hash("c"));
    assert_eq!(hash("d"), Some(ContentHash::of(b"a\n")));
}

#[test]
fn seal_reads_files_with_mode_0_and_restores_their_modes() {
    let run = Run::new("");
    run.in_box("mkdir -p d/e; echo x > d/e/f; echo y > g; chmod 0 d/e/f g d/e d; chmod 0 .");
    let changes = run.seal();
    assert_eq!(summary(&changes), ["A d", "A d/e", "A d/e/f", "A g"]);
    let side = |name| changes.get(&path(name)).unwrap().new.clone().unwrap();
    assert_eq!(side("d/e/f").hash, Some(ContentHash::of(b"x\n")));
    assert!(["d", "d/e", "d/e/f", "g"].iter().all(|name| side(name).mode == 0));
    let mode = fs::metadata(run.upper()).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0);
}

#[test]
fn seal_refuses_hostile_overlay_attributes() {
    let run = Run::new("echo secret > s; mkdir d; echo x > d/x");
    for dir in ["moved", "marks"] {
        fs::create_dir(run.upper().join(dir)).unwrap();
    }
    fs::write(run.upper().join("meta"), "").unwrap();
    fs::write(run.upper().join("marks/x"), "").unwrap();
    fs::write(run.upper().join("x"), "").unwrap();
    let set = |name: &str, attribute: &str, value: &[u8]| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(run.upper().join(name), attribute, value, flags).unwrap();
    };
    set("moved", "user.overlay.redirect", b"/d");
    set("meta", "user.overlay.metacopy", b"");
    set("marks", "user.overlay.opaque", b"x");
    set("marks/x", "user.overlay.whiteout", b"");
    // Without the mark on the directory the file is an ordinary empty file.
    set("x", "user.overlay.whiteout", b"");
    let changes = run.seal();
    assert_eq!(summary(&changes), ["A marks", "A meta", "A moved", "A x"]);
    let why = |name| changes.get(&path(name)).unwrap().unsupported;
    assert_eq!(why("moved"), Some(Unsupported::Redirect));
    assert_eq!(why("meta"), Some(Unsupported::Metacopy));
    assert_eq!((why("marks"), why("x")), (None, None));
}

#[test]
fn seal_reads_a_whiteout_attribute_as_a_deletion() {
    let run = Run::new("mkdir d; echo x > d/x; echo y > d/y");
    fs::create_dir(run.upper().join("d")).unwrap();
    fs::write(run.upper().join("d/x"), "").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    let upper = run.upper();
    rustix::fs::setxattr(upper.join("d"), "user.overlay.opaque", b"x", flags).unwrap();
    rustix::fs::setxattr(upper.join("d/x"), "user.overlay.whiteout", b"", flags).unwrap();
    assert_eq!(summary(&run.seal()), ["D d/x"]);
}

#[test]
fn c26_seal_marks_the_state_directory_of_belljar_as_unsupported() {
    let run = Run::new("mkdir -p home/.state/other; echo precious > home/.state/x");
    run.in_box("echo evil > home/.state/x; echo evil > home/.state/other/y; echo fine > home/z");
    let (workspace, dir) = (run.lower(), run.run_dir());
    let state = run.lower().join("home/.state");
    let layers = belljar_workspace::Layers::open(&RunPaths {
        workspace: &workspace,
        state: &state,
        run: &dir,
    })
    .unwrap();
    let changes = belljar_workspace::seal(&layers, run.start(), &SealLimits::default()).unwrap();
    assert_eq!(summary(&changes), ["m home/.state", "A home/z"]);
    assert_eq!(changes.get(&path("home/.state")).unwrap().unsupported, Some(Unsupported::OwnState));
    let inside = state.join("other");
    let open =
        belljar_workspace::Layers::open(&RunPaths { workspace: &inside, state: &state, run: &dir });
    assert!(matches!(open, Err(OpenError::InsideState { .. })));
}

#[test]
fn opening_layers_of_a_run_without_an_upper_layer_is_an_error() {
    let run = Run::new("");
    belljar_workspace::discard(&run.run_dir()).unwrap();
    let (workspace, dir, state) = (run.lower(), run.run_dir(), run.run_dir());
    let open = belljar_workspace::Layers::open(&RunPaths {
        workspace: &workspace,
        state: &state,
        run: &dir,
    });
    assert!(matches!(open, Err(OpenError::NoUpper { .. })));
}

#[test]
fn seal_refuses_a_damaged_manifest() {
    let run = Run::new("");
    run.in_box("echo x > x");
    run.seal();
    fs::write(run.run_dir().join("changes.json"), "{\"version\":1").unwrap();
    assert!(matches!(run.try_seal(&SealLimits::default()), Err(SealError::Load(_))));
}

#[test]
fn kinds_of_changes_are_serialized_in_kebab_case() {
    let kind = ChangeKind::Renamed { from: path("a") };
    assert_eq!(serde_json::to_string(&kind).unwrap(), r#"{"renamed":{"from":"a"}}"#);
    assert_eq!(serde_json::to_string(&ChangeKind::ModeChanged).unwrap(), r#""mode-changed""#);
}
