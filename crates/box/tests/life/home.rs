//! Tests of persistent homes.

use std::fs;
use std::os::unix::fs::MetadataExt;

use belljar_box::Request;
use belljar_box::view::HOME;

use crate::fixture::Fixture;

#[test]
fn persistent_home_is_reused_by_the_next_box() {
    let fixture = Fixture::new();
    let request = || Request { home: fixture.home("state/boxes/a/home"), ..fixture.request() };
    let first = fixture.start(&request());
    assert_eq!(
        first.shell(&format!("cd {HOME} && mkdir .config && echo kept > .config/it")),
        ok("")
    );
    drop(first);
    let second = fixture.start(&request());
    assert_eq!(
        second.shell(&format!("cat {HOME}/.config/it; test -O {HOME}/.config/it")),
        ok("kept")
    );
    let on_disk = fs::metadata(fixture.path("state/boxes/a/home/.config/it")).unwrap();
    let ours = fs::metadata(fixture.path("state/boxes/a/home")).unwrap();
    assert_eq!(
        (on_disk.uid(), on_disk.gid()),
        (ours.uid(), ours.gid()),
        "the operator owns the file on disk"
    );

    let other = fixture.start(&fixture.request());
    assert_eq!(other.shell(&format!("ls -A {HOME}")), ok(""), "a home in memory starts empty");
    assert_eq!(other.shell(&format!("echo x > {HOME}/x")), ok(""));
}

fn ok(text: &str) -> (bool, String) {
    (true, text.to_owned())
}
