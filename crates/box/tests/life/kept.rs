//! Homes that outlast their box.

use std::fs;
use std::os::unix::fs::MetadataExt;

use belljar_box::Request;
use belljar_box::view::HOME;

use crate::room::Room;

#[test]
fn a_kept_home_is_the_next_boxes_home_too() {
    let room = Room::new();
    let request = || Request { home: room.kept("state/boxes/a/home"), ..room.request() };
    let first = room.start(&request());
    assert_eq!(
        first.shell(&format!("cd {HOME} && mkdir .config && echo kept > .config/it")),
        ok("")
    );
    drop(first);
    let second = room.start(&request());
    assert_eq!(
        second.shell(&format!("cat {HOME}/.config/it; test -O {HOME}/.config/it")),
        ok("kept")
    );
    let on_disk = fs::metadata(room.path("state/boxes/a/home/.config/it")).unwrap();
    let ours = fs::metadata(room.path("state/boxes/a/home")).unwrap();
    assert_eq!((on_disk.uid(), on_disk.gid()), (ours.uid(), ours.gid()), "it is the operator's");

    let other = room.start(&room.request());
    assert_eq!(other.shell(&format!("ls -A {HOME}")), ok(""), "without one it is empty");
    assert_eq!(other.shell(&format!("echo x > {HOME}/x")), ok(""));
}

fn ok(text: &str) -> (bool, String) {
    (true, text.to_owned())
}
