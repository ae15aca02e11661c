//! Tests of workspace masks and injected files, which a box can neither change nor bypass.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use belljar_box::view::HOME;
use belljar_box::{ExecStreams, Mask, MaskKind, Program, Request, StartError, Workspace};

use crate::fixture::{Fixture, TestBox, line, program, write};

fn masks(hidden: &[&str], read_only: &[&str]) -> Vec<Mask> {
    let mask = |kind: MaskKind| move |path: &&str| Mask { path: path.into(), kind };
    let hidden = hidden.iter().map(mask(MaskKind::Hidden));
    hidden.chain(read_only.iter().map(mask(MaskKind::ReadOnly))).collect()
}

fn ok(text: &str) -> (bool, String) {
    (true, text.to_owned())
}

/// Returns both kinds of writable workspaces, with their names.
fn workspaces(fixture: &Fixture, name: &str) -> [(Option<Workspace>, &'static str); 2] {
    [(fixture.scratch(name), "scratch"), (fixture.overlay(name), "overlay")]
}

#[test]
fn mask_hides_a_workspace_path_or_makes_it_read_only() {
    let fixture = Fixture::new();
    write(&fixture.path("w/.env"), "SECRET");
    write(&fixture.path("w/keys/a"), "SECRET");
    write(&fixture.path("w/src/main.c"), "code");
    write(&fixture.path("w/free"), "free");
    for (workspace, which) in workspaces(&fixture, "w") {
        let masks = masks(&[".env", "keys", "absent/x"], &["src", "free/x"]);
        let sandbox = fixture.start(&Request { workspace, masks, ..fixture.request() });
        let refused = |script: &str| {
            let (succeeded, output) = sandbox.shell(script);
            assert!(!succeeded, "{which}: {script}: {output}");
        };
        refused("cat .env");
        refused("cat keys/a");
        refused("echo x > src/main.c");
        refused("echo x > src/new");
        assert_eq!(
            sandbox.shell("cat src/main.c; ls keys; cat free; echo new > new"),
            ok("codefree")
        );
    }
    // Masks also apply in a read-only workspace.
    let workspace = fixture.scratch("w").map(|place| Workspace { scratch: false, ..place });
    let masks = masks(&[".env", "keys"], &["src"]);
    let sandbox = fixture.start(&Request { workspace, masks, ..fixture.request() });
    let (found, output) = sandbox.shell("grep -rs SECRET /workspace");
    assert!(!found, "{output}");
    assert_eq!(sandbox.shell("cat src/main.c"), ok("code"));
}

#[test]
fn injected_files_exist_and_cannot_be_changed() {
    let fixture = Fixture::new();
    let managed = format!("{HOME}/.agent/managed/settings.json");
    let files = vec![
        ("/etc/agent/policy".into(), b"ours".to_vec()),
        (managed.clone().into(), b"ours".to_vec()),
    ];
    for home in [None, fixture.home("state/home")] {
        let request = Request { home, files: files.clone(), ..fixture.request() };
        let sandbox = fixture.start(&request);
        assert_eq!(sandbox.shell(&format!("cat /etc/agent/policy {managed}")), ok("oursours"));
        let (changed, _) = sandbox.shell(&format!("echo x > {managed}"));
        assert!(!changed);
        assert_eq!(sandbox.shell(&format!("echo x > {HOME}/.agent/managed/other")), ok(""));
    }
    let left = fs::read(fixture.path("state/home/.agent/managed/settings.json")).unwrap();
    assert!(left.is_empty(), "an empty file remains in the persistent home");
}

/// The shell commands that try to read a hidden file (`KEY`) or replace a read-only file (`CODE`).
///
/// Each command succeeds only if its attack has succeeded.
const BYPASSES: [&str; 14] = [
    "cat deep/er/KEY | grep SECRET",
    "mv deep/er/KEY x && grep SECRET x",
    "ln deep/er/KEY x && grep SECRET x",
    "mv deep/er moved && mkdir deep/er && echo mine > deep/er/CODE",
    "mv deep moved && mkdir -p deep/er && echo mine > deep/er/CODE",
    "cp -a deep/er copy && grep SECRET copy/KEY",
    "rm -rf deep; mkdir -p deep/er && echo mine > deep/er/CODE",
    "rm -f deep/er/CODE && echo mine > deep/er/CODE",
    "echo mine >> deep/er/CODE",
    "echo mine > new && mv -f new deep/er/CODE && grep mine deep/er/CODE",
    "ln deep/er/CODE x && echo mine >> x && grep mine deep/er/CODE",
    "ln -sf /etc/passwd deep/er/CODE",
    "chmod 600 deep/er/KEY && grep SECRET deep/er/KEY",
    "mkdir swap && echo mine > swap/CODE && /probe exchange deep/er swap && grep mine deep/er/CODE",
];

fn tree(fixture: &Fixture, name: &str) {
    for (file, content) in [("KEY", "SECRET"), ("CODE", "code"), ("free", "free")] {
        write(&fixture.path(&format!("{name}/deep/er/{file}")), content);
    }
}

#[test]
fn c17_mask_cannot_be_bypassed_by_renames_or_links() {
    let fixture = Fixture::new();
    for (number, way) in BYPASSES.iter().enumerate() {
        for layered in [false, true] {
            for masked in [false, true] {
                let name = format!("w{number}-{layered}-{masked}");
                tree(&fixture, &name);
                let workspace =
                    if layered { fixture.overlay(&name) } else { fixture.scratch(&name) };
                let masks = masks(&["deep/er/KEY"], &["deep/er/CODE"]);
                let masks = if masked { masks } else { Vec::new() };
                let sandbox = fixture.start(&Request { workspace, masks, ..fixture.request() });
                let (succeeded, output) = sandbox.shell(way);
                // An overlay cannot rename directories of the lower layer; mv(1) copies them.
                let fails = masked || (layered && way.contains("exchange"));
                assert_eq!(
                    succeeded, !fails,
                    "{way}, layered: {layered}, masked: {masked}: {output}"
                );
                if masked {
                    let (found, output) = sandbox.shell("grep -rs SECRET /workspace /tmp /home");
                    assert!(!found, "{way}: {output}");
                    assert_eq!(sandbox.shell("cat deep/er/CODE"), ok("code"), "{way}");
                    drop(sandbox);
                    let place = if layered { format!("{name}.layers/upper") } else { name };
                    let left = fs::read_to_string(fixture.path(&format!("{place}/deep/er/CODE")));
                    assert!(left.is_err() == layered, "{way}: {left:?}");
                    assert!(layered || left.unwrap() == "code", "{way}");
                }
            }
        }
    }
}

#[test]
fn c17_unmasked_files_of_a_masked_directory_stay_writable() {
    let fixture = Fixture::new();
    for layered in [false, true] {
        let name = format!("w-{layered}");
        tree(&fixture, &name);
        let workspace = if layered { fixture.overlay(&name) } else { fixture.scratch(&name) };
        let masks = masks(&["deep/er/KEY"], &["deep/er/CODE"]);
        let sandbox = fixture.start(&Request { workspace, masks, ..fixture.request() });
        let work = "cd deep/er && echo more >> free && echo new > a && mv a b && rm free && mkdir c && mv b c";
        assert_eq!(sandbox.shell(work), ok(""));
        assert_eq!(sandbox.shell("cat deep/er/c/b; ls deep/er"), ok("new\nCODE\nKEY\nc"));
    }
}

#[test]
fn mask_follows_symbolic_links_only_inside_the_workspace() {
    let fixture = Fixture::new();
    write(&fixture.path("w/real/KEY"), "SECRET");
    write(&fixture.path("w/other/KEY"), "SECRET");
    write(&fixture.path("w/third/KEY"), "SECRET");
    for (target, link) in [
        ("real", "relative"),
        ("/workspace/other", "absolute"),
        ("../third/KEY", "real/to-file"),
        ("/etc/passwd", "out"),
        ("../../etc/group", "up"),
        ("loop", "loop"),
        ("nowhere", "dangling"),
    ] {
        symlink(target, fixture.path("w").join(link)).unwrap();
    }
    for (workspace, which) in workspaces(&fixture, "w") {
        let hidden = [
            "relative/KEY",
            "absolute/KEY",
            "relative/to-file",
            "out",
            "up",
            "loop",
            "dangling",
            "loop/x",
            "out/x",
        ];
        let masks = masks(&hidden, &[]);
        let sandbox = fixture.start(&Request { workspace, masks, ..fixture.request() });
        let (found, output) = sandbox.shell("grep -rs SECRET /workspace");
        assert!(!found, "{which}: {output}");
        let (_, passwd) = sandbox.shell("cat out up");
        assert!(passwd.contains("nobody:x:") && passwd.contains("nogroup:x:"), "{which}: {passwd}");
    }
}

#[test]
fn nested_masks_of_a_workspace_apply_in_any_order() {
    let fixture = Fixture::new();
    write(&fixture.path("w/a/b/KEY"), "SECRET");
    write(&fixture.path("w/a/b/CODE"), "code");
    let inner = masks(&["a/b/KEY"], &["a"]);
    let outer = inner.iter().rev().cloned().collect();
    for masks in [inner, outer] {
        for (workspace, which) in workspaces(&fixture, "w") {
            let masks = masks.clone();
            let sandbox = fixture.start(&Request { workspace, masks, ..fixture.request() });
            assert_eq!(sandbox.shell("cat a/b/CODE"), ok("code"), "{which}");
            for way in ["cat a/b/KEY", "echo x > a/b/CODE", "touch a/b/new", "mv a x"] {
                assert!(!sandbox.shell(way).0, "{which}: {way}");
            }
        }
    }
}

#[test]
fn start_refuses_masks_and_files_with_invalid_paths_or_sizes() {
    let fixture = Fixture::new();
    for path in ["/etc/passwd", "../x", "a/../../x"] {
        let request = Request { masks: masks(&[path], &[]), ..fixture.request() };
        assert!(fixture.try_start(&request).is_err(), "{path}");
    }
    for path in ["relative", "/etc/../x", ""] {
        let request = Request { files: vec![(path.into(), Vec::new())], ..fixture.request() };
        assert!(fixture.try_start(&request).is_err(), "{path}");
    }
    let long = vec![("/etc/long".into(), vec![b'x'; belljar_box::MAX_FILES])];
    let sandbox = fixture.start(&Request { files: long.clone(), ..fixture.request() });
    assert_eq!(sandbox.shell("wc -c < /etc/long"), ok("65536"));
    drop(sandbox);
    let many: Vec<String> = (0..10_000).map(|number| format!("some/where/{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let error = fixture.try_start(&Request { masks: masks(&many, &[]), ..fixture.request() }).err();
    assert!(matches!(error, Some(StartError::TooLong)), "{error:?}");
    let some = masks(many.get(..500).unwrap(), &[]);
    drop(fixture.start(&Request { masks: some, ..fixture.request() }));
    let longer = [long, vec![("/etc/more".into(), vec![b'x'])]].concat();
    assert!(fixture.try_start(&Request { files: longer, ..fixture.request() }).is_err());
}

const SETTINGS: &str = ".agent/managed/settings.json";

/// The shell commands that try to replace the injected settings file, with the home as working
/// directory.
const OTHER_SETTINGS: [&str; 9] = [
    "echo mine > .agent/managed/settings.json",
    "rm -f .agent/managed/settings.json && echo mine > .agent/managed/settings.json",
    "echo mine > new && mv -f new .agent/managed/settings.json",
    "mv .agent/managed x && mkdir .agent/managed && echo mine > .agent/managed/settings.json",
    "mv .agent x && mkdir -p .agent/managed && echo mine > .agent/managed/settings.json",
    "rm -rf .agent; mkdir -p .agent/managed && echo mine > .agent/managed/settings.json",
    "mkdir x && echo mine > x/settings.json && /probe exchange x .agent/managed",
    "chmod 666 .agent/managed/settings.json && echo mine > .agent/managed/settings.json",
    "ln -sfn /tmp .agent/managed/settings.json",
];

#[test]
fn c17_injected_files_cannot_be_replaced_or_moved() {
    let fixture = Fixture::new();
    let ours = vec![(format!("{HOME}/{SETTINGS}").into(), b"ours".to_vec())];
    for (number, way) in OTHER_SETTINGS.iter().enumerate() {
        for kept in [false, true] {
            let home =
                |name: &str| if kept { fixture.home(&format!("{name}{number}")) } else { None };
            let settings = format!("cat {HOME}/{SETTINGS}");
            let request = Request { home: home("ours"), files: ours.clone(), ..fixture.request() };
            let sandbox = fixture.start(&request);
            let (succeeded, output) = sandbox.shell(&format!("cd {HOME} && {way}"));
            assert!(!succeeded, "{way}, kept: {kept}: {output}");
            assert_eq!(sandbox.shell(&settings), ok("ours"), "{way}, kept: {kept}");

            let control = fixture.start(&Request { home: home("control"), ..fixture.request() });
            let prepare = format!("cd {HOME} && mkdir -p .agent/managed && echo ours > {SETTINGS}");
            assert_eq!(control.shell(&prepare), ok(""));
            let (succeeded, output) = control.shell(&format!("cd {HOME} && {way}"));
            assert!(succeeded, "control: {way}, kept: {kept}: {output}");
        }
    }
}

#[test]
fn c17_injected_files_replace_files_that_an_earlier_box_left() {
    let fixture = Fixture::new();
    write(&fixture.path("outside/managed/settings.json"), "theirs");
    let outside = fixture.path("outside");
    let outside = outside.to_str().unwrap();
    let planted = [
        format!("ln -s {outside} .agent"),
        "ln -s /etc .agent".to_owned(),
        "mkdir .agent && ln -s /tmp .agent/managed".to_owned(),
        format!("mkdir .agent && ln -s {outside}/managed .agent/managed"),
        "echo mine > .agent".to_owned(),
        "mkfifo .agent".to_owned(),
        "mkdir -p .agent/managed/settings.json/full/of/things".to_owned(),
        "mkdir -p .agent/managed && ln -s /etc/passwd .agent/managed/settings.json".to_owned(),
        format!(
            "mkdir -p .agent/managed && ln -s {outside}/managed/settings.json .agent/managed/settings.json"
        ),
        "mkdir -p .agent/managed && mkfifo .agent/managed/settings.json".to_owned(),
        "mkdir -p .agent/managed && echo mine > .agent/managed/settings.json".to_owned(),
        "mkdir -p .agent/managed && echo mine > x && ln x .agent/managed/settings.json".to_owned(),
        "mkdir -p .agent/managed && chmod 0 .agent/managed .agent".to_owned(),
    ];
    for (number, way) in planted.iter().enumerate() {
        let home = || fixture.home(&format!("home{number}"));
        let earlier = fixture.start(&Request { home: home(), ..fixture.request() });
        assert_eq!(earlier.shell(&format!("cd {HOME} && {way}")), ok(""), "{way}");
        drop(earlier);
        let files = vec![(format!("{HOME}/{SETTINGS}").into(), b"ours".to_vec())];
        let sandbox = fixture.start(&Request { home: home(), files, ..fixture.request() });
        assert_eq!(sandbox.shell(&format!("cat {HOME}/{SETTINGS}")), ok("ours"), "{way}");
        drop(sandbox);
        let theirs = fixture.path(&format!("home{number}/{SETTINGS}"));
        let left = fs::metadata(&theirs).unwrap();
        let kept = left.is_file() && fs::read_to_string(theirs).unwrap().contains("ours");
        assert!(!kept, "{way}: the persistent home must not contain the injected content");
    }
    let theirs = fs::read_to_string(fixture.path("outside/managed/settings.json")).unwrap();
    assert_eq!(theirs, "theirs", "files outside the home are unchanged");
    let aside = fixture.path("home6/.agent/managed/settings.json.aside-0/full/of/things");
    assert!(aside.is_dir(), "the existing directory was renamed");
}

#[test]
fn c17_injected_files_cannot_be_replaced_in_a_custom_rootfs() {
    let fixture = Fixture::new();
    let root = fixture.directory("root");
    fs::create_dir(root.join("bin")).unwrap();
    fs::copy(fixture.path("probe"), root.join("bin/probe")).unwrap();
    let start = |files: Vec<(PathBuf, Vec<u8>)>| {
        let mut request = Request { files, ..fixture.request() };
        request.template.rootfs = Some(root.clone());
        request.argv = vec!["/bin/probe".into(), "batch".into()];
        fixture.start(&request)
    };
    let ask = |sandbox: &TestBox, act: &str| {
        let argv: Vec<&str> = ["/bin/probe"].into_iter().chain(act.split(' ')).collect();
        sandbox.run(&argv).out.trim_end().to_owned()
    };
    let attacks = [
        "rename /etc/agent/policy /etc/agent/x",
        "unlink /etc/agent/policy",
        "write /etc/agent/policy mine",
        "exchange /tmp/agent /etc/agent",
        "rename /etc/agent /etc/agent2",
        "rename /etc /etc2",
    ];
    let sandbox = start(vec![("/etc/agent/policy".into(), b"ours".to_vec())]);
    assert_eq!(ask(&sandbox, "mkdir /tmp/agent"), "ok");
    for act in attacks {
        let answer = ask(&sandbox, act);
        assert!(answer.starts_with("errno"), "{act}: {answer}");
    }
    assert_eq!(ask(&sandbox, "read /etc/agent/policy"), "ok ours");
    drop(sandbox);

    let control = start(Vec::new());
    for act in [
        "mkdir /etc/agent",
        "write /etc/agent/policy theirs",
        "rename /etc/agent/policy /etc/agent/x",
        "rename /etc/agent /etc/agent2",
        "rename /etc /etc2",
    ] {
        assert!(ask(&control, act).starts_with("ok"), "control: {act}");
    }
    // The box can rename `/dev` there, but an exec still gets a terminal of the real devpts.
    for act in ["rename /dev /dev2", "mkdir /dev", "mkdir /dev/pts", "write /dev/pts/ptmx mine"] {
        assert!(ask(&control, act).starts_with("ok"), "{act}");
    }
    let spec = Program {
        terminal: Some((24, 80)),
        ..program(&["/bin/probe", "readlink", "/proc/self/fd/0"])
    };
    let mut process = control.channel.exec(&spec).unwrap();
    let Some(ExecStreams::Terminal(master)) = process.streams.take() else { panic!() };
    assert_eq!(line(&mut fs::File::from(master)).trim_end(), "ok /dev2/pts/0");
}
