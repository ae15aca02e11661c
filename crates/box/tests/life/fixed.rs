//! Masks of the workspace and files of our own: what nobody inside can change or get at.

use std::fs;

use belljar_box::view::HOME;
use belljar_box::{Mask, MaskKind, Request, Workspace};

use crate::room::{Room, write};

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
