//! Masks of the workspace and files of our own: what nobody inside can change or get at.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use belljar_box::view::HOME;
use belljar_box::{Ends, Mask, MaskKind, Program, Request, StartError, Workspace};

use crate::room::{Room, Standing, line, program, write};

fn masks(hidden: &[&str], read_only: &[&str]) -> Vec<Mask> {
    let mask = |kind: MaskKind| move |path: &&str| Mask { path: path.into(), kind };
    let hidden = hidden.iter().map(mask(MaskKind::Hidden));
    hidden.chain(read_only.iter().map(mask(MaskKind::ReadOnly))).collect()
}

fn ok(text: &str) -> (bool, String) {
    (true, text.to_owned())
}

/// Every kind of workspace that can be written to.
fn workspaces(room: &Room, name: &str) -> [(Option<Workspace>, &'static str); 2] {
    [(room.scratch(name), "scratch"), (room.overlay(name), "overlay")]
}

#[test]
fn a_mask_hides_or_makes_read_only() {
    let room = Room::new();
    write(&room.path("w/.env"), "SECRET");
    write(&room.path("w/keys/a"), "SECRET");
    write(&room.path("w/src/main.c"), "code");
    write(&room.path("w/free"), "free");
    for (workspace, which) in workspaces(&room, "w") {
        let masks = masks(&[".env", "keys", "absent/x"], &["src", "free/x"]);
        let standing = room.start(&Request { workspace, masks, ..room.request() });
        let refused = |script: &str| {
            let (succeeded, said) = standing.shell(script);
            assert!(!succeeded, "{which}: {script}: {said}");
        };
        refused("cat .env");
        refused("cat keys/a");
        refused("echo x > src/main.c");
        refused("echo x > src/new");
        assert_eq!(
            standing.shell("cat src/main.c; ls keys; cat free; echo new > new"),
            ok("codefree")
        );
    }
    // Where nothing can be written, too.
    let workspace = room.scratch("w").map(|place| Workspace { scratch: false, ..place });
    let masks = masks(&[".env", "keys"], &["src"]);
    let standing = room.start(&Request { workspace, masks, ..room.request() });
    let (found, said) = standing.shell("grep -rs SECRET /workspace");
    assert!(!found, "{said}");
    assert_eq!(standing.shell("cat src/main.c"), ok("code"));
}

#[test]
fn files_of_our_own_are_there_and_cannot_be_changed() {
    let room = Room::new();
    let managed = format!("{HOME}/.agent/managed/settings.json");
    let files = vec![
        ("/etc/agent/policy".into(), b"ours".to_vec()),
        (managed.clone().into(), b"ours".to_vec()),
    ];
    for home in [None, room.kept("state/home")] {
        let request = Request { home, files: files.clone(), ..room.request() };
        let standing = room.start(&request);
        assert_eq!(standing.shell(&format!("cat /etc/agent/policy {managed}")), ok("oursours"));
        let (changed, _) = standing.shell(&format!("echo x > {managed}"));
        assert!(!changed);
        assert_eq!(standing.shell(&format!("echo x > {HOME}/.agent/managed/other")), ok(""));
    }
    let left = fs::read(room.path("state/home/.agent/managed/settings.json")).unwrap();
    assert!(left.is_empty(), "an empty file stays behind");
}

/// Ways to get at what a mask takes, or to put something else in its place. Each ends in success only
/// if it has done so; `KEY` is the hidden file, `CODE` the one that must stay as it is.
const WAYS: [&str; 14] = [
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

fn tree(room: &Room, name: &str) {
    for (file, content) in [("KEY", "SECRET"), ("CODE", "code"), ("free", "free")] {
        write(&room.path(&format!("{name}/deep/er/{file}")), content);
    }
}

#[test]
fn c17_a_mask_cannot_be_moved_away_or_around() {
    let room = Room::new();
    for (number, way) in WAYS.iter().enumerate() {
        for layered in [false, true] {
            for masked in [false, true] {
                let name = format!("w{number}-{layered}-{masked}");
                tree(&room, &name);
                let workspace = if layered { room.overlay(&name) } else { room.scratch(&name) };
                let masks = masks(&["deep/er/KEY"], &["deep/er/CODE"]);
                let masks = if masked { masks } else { Vec::new() };
                let standing = room.start(&Request { workspace, masks, ..room.request() });
                let (succeeded, said) = standing.shell(way);
                // An overlay does not rename directories of the lower layer; mv(1) copies them.
                let fails = masked || (layered && way.contains("exchange"));
                assert_eq!(
                    succeeded, !fails,
                    "{way}, layered: {layered}, masked: {masked}: {said}"
                );
                if masked {
                    let (found, said) = standing.shell("grep -rs SECRET /workspace /tmp /home");
                    assert!(!found, "{way}: {said}");
                    assert_eq!(standing.shell("cat deep/er/CODE"), ok("code"), "{way}");
                    drop(standing);
                    let place = if layered { format!("{name}.layers/upper") } else { name };
                    let left = fs::read_to_string(room.path(&format!("{place}/deep/er/CODE")));
                    assert!(left.is_err() == layered, "{way}: {left:?}");
                    assert!(layered || left.unwrap() == "code", "{way}");
                }
            }
        }
    }
}

#[test]
fn c17_the_rest_of_a_masked_directory_can_be_changed() {
    let room = Room::new();
    for layered in [false, true] {
        let name = format!("w-{layered}");
        tree(&room, &name);
        let workspace = if layered { room.overlay(&name) } else { room.scratch(&name) };
        let masks = masks(&["deep/er/KEY"], &["deep/er/CODE"]);
        let standing = room.start(&Request { workspace, masks, ..room.request() });
        let work = "cd deep/er && echo more >> free && echo new > a && mv a b && rm free && mkdir c && mv b c";
        assert_eq!(standing.shell(work), ok(""));
        assert_eq!(standing.shell("cat deep/er/c/b; ls deep/er"), ok("new\nCODE\nKEY\nc"));
    }
}

#[test]
fn a_mask_follows_links_as_a_program_would_and_not_out_of_the_workspace() {
    let room = Room::new();
    write(&room.path("w/real/KEY"), "SECRET");
    write(&room.path("w/other/KEY"), "SECRET");
    write(&room.path("w/third/KEY"), "SECRET");
    for (target, link) in [
        ("real", "relative"),
        ("/workspace/other", "absolute"),
        ("../third/KEY", "real/to-file"),
        ("/etc/passwd", "out"),
        ("../../etc/group", "up"),
        ("loop", "loop"),
        ("nowhere", "dangling"),
    ] {
        symlink(target, room.path("w").join(link)).unwrap();
    }
    for (workspace, which) in workspaces(&room, "w") {
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
        let standing = room.start(&Request { workspace, masks, ..room.request() });
        let (found, said) = standing.shell("grep -rs SECRET /workspace");
        assert!(!found, "{which}: {said}");
        let (_, passwd) = standing.shell("cat out up");
        assert!(passwd.contains("nobody:x:") && passwd.contains("nogroup:x:"), "{which}: {passwd}");
    }
}

#[test]
fn masks_lie_in_each_other_in_any_order() {
    let room = Room::new();
    write(&room.path("w/a/b/KEY"), "SECRET");
    write(&room.path("w/a/b/CODE"), "code");
    let inner = masks(&["a/b/KEY"], &["a"]);
    let outer = inner.iter().rev().cloned().collect();
    for masks in [inner, outer] {
        for (workspace, which) in workspaces(&room, "w") {
            let masks = masks.clone();
            let standing = room.start(&Request { workspace, masks, ..room.request() });
            assert_eq!(standing.shell("cat a/b/CODE"), ok("code"), "{which}");
            for way in ["cat a/b/KEY", "echo x > a/b/CODE", "touch a/b/new", "mv a x"] {
                assert!(!standing.shell(way).0, "{which}: {way}");
            }
        }
    }
}

#[test]
fn a_mask_or_a_file_with_another_kind_of_path_is_refused() {
    let room = Room::new();
    for path in ["/etc/passwd", "../x", "a/../../x"] {
        let request = Request { masks: masks(&[path], &[]), ..room.request() };
        assert!(room.try_start(&request).is_err(), "{path}");
    }
    for path in ["relative", "/etc/../x", ""] {
        let request = Request { files: vec![(path.into(), Vec::new())], ..room.request() };
        assert!(room.try_start(&request).is_err(), "{path}");
    }
    let long = vec![("/etc/long".into(), vec![b'x'; belljar_box::MAX_FILES])];
    let standing = room.start(&Request { files: long.clone(), ..room.request() });
    assert_eq!(standing.shell("wc -c < /etc/long"), ok("65536"));
    drop(standing);
    let many: Vec<String> = (0..10_000).map(|number| format!("some/where/{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let error = room.try_start(&Request { masks: masks(&many, &[]), ..room.request() }).err();
    assert!(matches!(error, Some(StartError::TooLong)), "{error:?}");
    let some = masks(many.get(..500).unwrap(), &[]);
    drop(room.start(&Request { masks: some, ..room.request() }));
    let longer = [long, vec![("/etc/more".into(), vec![b'x'])]].concat();
    assert!(room.try_start(&Request { files: longer, ..room.request() }).is_err());
}

const SETTINGS: &str = ".agent/managed/settings.json";

/// Ways to have other settings than ours, as seen from the home.
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
fn c17_files_of_our_own_cannot_be_moved_away() {
    let room = Room::new();
    let ours = vec![(format!("{HOME}/{SETTINGS}").into(), b"ours".to_vec())];
    for (number, way) in OTHER_SETTINGS.iter().enumerate() {
        for kept in [false, true] {
            let home = |name: &str| if kept { room.kept(&format!("{name}{number}")) } else { None };
            let settings = format!("cat {HOME}/{SETTINGS}");
            let request = Request { home: home("ours"), files: ours.clone(), ..room.request() };
            let standing = room.start(&request);
            let (succeeded, said) = standing.shell(&format!("cd {HOME} && {way}"));
            assert!(!succeeded, "{way}, kept: {kept}: {said}");
            assert_eq!(standing.shell(&settings), ok("ours"), "{way}, kept: {kept}");

            let control = room.start(&Request { home: home("control"), ..room.request() });
            let prepare = format!("cd {HOME} && mkdir -p .agent/managed && echo ours > {SETTINGS}");
            assert_eq!(control.shell(&prepare), ok(""));
            let (succeeded, said) = control.shell(&format!("cd {HOME} && {way}"));
            assert!(succeeded, "control: {way}, kept: {kept}: {said}");
        }
    }
}

#[test]
fn c17_nothing_that_an_earlier_box_left_is_in_the_way_of_our_files() {
    let room = Room::new();
    write(&room.path("outside/managed/settings.json"), "theirs");
    let outside = room.path("outside");
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
        let home = || room.kept(&format!("home{number}"));
        let earlier = room.start(&Request { home: home(), ..room.request() });
        assert_eq!(earlier.shell(&format!("cd {HOME} && {way}")), ok(""), "{way}");
        drop(earlier);
        let files = vec![(format!("{HOME}/{SETTINGS}").into(), b"ours".to_vec())];
        let standing = room.start(&Request { home: home(), files, ..room.request() });
        assert_eq!(standing.shell(&format!("cat {HOME}/{SETTINGS}")), ok("ours"), "{way}");
        drop(standing);
        let theirs = room.path(&format!("home{number}/{SETTINGS}"));
        let left = fs::metadata(&theirs).unwrap();
        let kept = left.is_file() && fs::read_to_string(theirs).unwrap().contains("ours");
        assert!(!kept, "{way}: nothing is written through into the kept home");
    }
    let theirs = fs::read_to_string(room.path("outside/managed/settings.json")).unwrap();
    assert_eq!(theirs, "theirs", "nothing outside was touched");
    let aside = room.path("home6/.agent/managed/settings.json.aside-0/full/of/things");
    assert!(aside.is_dir(), "what had the name has another");
}

#[test]
fn c17_files_of_our_own_stay_in_a_root_of_the_users_own() {
    let room = Room::new();
    let root = room.directory("root");
    fs::create_dir(root.join("bin")).unwrap();
    fs::copy(room.path("probe"), root.join("bin/probe")).unwrap();
    let start = |files: Vec<(PathBuf, Vec<u8>)>| {
        let mut request = Request { files, ..room.request() };
        request.template.rootfs = Some(root.clone());
        request.argv = vec!["/bin/probe".into(), "batch".into()];
        room.start(&request)
    };
    let ask = |standing: &Standing, act: &str| {
        let argv: Vec<&str> = ["/bin/probe"].into_iter().chain(act.split(' ')).collect();
        standing.run(&argv).out.trim_end().to_owned()
    };
    let attacks = [
        "rename /etc/agent/policy /etc/agent/x",
        "unlink /etc/agent/policy",
        "write /etc/agent/policy mine",
        "exchange /tmp/agent /etc/agent",
        "rename /etc/agent /etc/agent2",
        "rename /etc /etc2",
    ];
    let standing = start(vec![("/etc/agent/policy".into(), b"ours".to_vec())]);
    assert_eq!(ask(&standing, "mkdir /tmp/agent"), "ok");
    for act in attacks {
        let answer = ask(&standing, act);
        assert!(answer.starts_with("errno"), "{act}: {answer}");
    }
    assert_eq!(ask(&standing, "read /etc/agent/policy"), "ok ours");
    drop(standing);

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
    // Also `/dev` can be renamed there, and no guest is given a terminal of somebody else's making.
    for act in ["rename /dev /dev2", "mkdir /dev", "mkdir /dev/pts", "write /dev/pts/ptmx mine"] {
        assert!(ask(&control, act).starts_with("ok"), "{act}");
    }
    let wish = Program {
        terminal: Some((24, 80)),
        ..program(&["/bin/probe", "readlink", "/proc/self/fd/0"])
    };
    let mut guest = control.door.exec(&wish).unwrap();
    let Some(Ends::Terminal(master)) = guest.ends.take() else { panic!() };
    assert_eq!(line(&mut fs::File::from(master)).trim_end(), "ok /dev2/pts/0");
}
