//! `belljar cp`: files between the host and a box.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use belljar_testkit::Lab;

use super::up;
use crate::lab;

/// Returns a `belljar cp` command.
fn cp(lab: &Lab, from: impl AsRef<Path>, to: impl AsRef<Path>) -> belljar_testkit::Program {
    lab.belljar(["cp"]).arg(from.as_ref()).arg(to.as_ref())
}

/// Runs a script in the box `task`.
fn sh(lab: &Lab, script: &str) -> String {
    lab.belljar(["exec", "task", "--", "sh", "-c", script]).succeed()
}

#[test]
fn cp_copies_files_and_directories_in_both_directions() {
    let lab = lab();
    up(
        &lab,
        "task",
        "mkdir -p out/sub; echo report > out/sub/report; printf '#!/bin/sh\\n' > out/run; chmod +x out/run",
    );
    // To the box: a new name, an existing directory, and a directory with its content.
    lab.write("notes.md", "from the host");
    cp(&lab, "notes.md", "task:/tmp/new.md").succeed();
    cp(&lab, "notes.md", "task:out").succeed();
    assert_eq!(sh(&lab, "cat /tmp/new.md out/notes.md"), "from the hostfrom the host");
    let tree = lab.dir().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/c"), vec![b'z'; 2_000_000]).unwrap();
    fs::write(tree.join("tool"), "x").unwrap();
    fs::set_permissions(tree.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    let copied = cp(&lab, &tree, "task:/workspace/").run();
    copied.expect(0);
    assert!(copied.err().contains("copied 2 files (2000001 bytes)"), "{}", copied.err());
    assert_eq!(
        sh(&lab, "wc -c < tree/a/b/c; test -x tree/tool && echo executable"),
        "2000000\nexecutable"
    );
    // From the box.
    let to = lab.dir().join("copied");
    cp(&lab, "task:out", &to).succeed();
    assert_eq!(fs::read_to_string(to.join("sub/report")).unwrap(), "report\n");
    assert_ne!(fs::metadata(to.join("run")).unwrap().permissions().mode() & 0o100, 0);
    cp(&lab, "task:out/sub/report", lab.dir()).succeed();
    assert_eq!(fs::read_to_string(lab.dir().join("report")).unwrap(), "report\n");
    // The copy is owned by the user, and the start of each program is recorded.
    let own = fs::metadata(lab.dir()).unwrap();
    let is_own = |path: &Path| {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(path).unwrap().uid() == own.uid()
    };
    assert!(is_own(&to) && is_own(&to.join("sub/report")));
    let log = lab.belljar(["ledger", "log", "--kind", "box.exec"]).succeed();
    assert!(log.lines().count() >= 5, "{log}");
    lab.belljar(["stop", "--now", "task"]).succeed();
}

#[test]
fn c10_cp_follows_no_link_out_of_the_box() {
    let lab = lab();
    let secret = lab.home().join("secret");
    fs::write(&secret, "the user's own").unwrap();
    let path = secret.display();
    // Links in the box name a file of the host. In the box, this name leads nowhere.
    up(
        &lab,
        "task",
        &format!(
            "ln -s {path} link; mkdir dir; ln -s {path} dir/link; ln -s / dir/root; echo fine > dir/file"
        ),
    );
    let out = lab.dir().join("out");
    cp(&lab, "task:link", &out).run().fails_with(2, "link is a symbolic link");
    assert!(!out.exists());
    let copied = cp(&lab, "task:dir", &out).run();
    copied.expect(0);
    assert!(copied.err().contains("left out 2 links and special files"), "{}", copied.err());
    let names: Vec<_> = fs::read_dir(&out).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names, ["file"]);
    // A path through a link is resolved in the box, where the host's file does not exist.
    cp(&lab, format!("task:dir/root{path}"), lab.dir().join("x"))
        .run()
        .fails_with(2, "there is no");
    assert!(!lab.dir().join("x").exists());
    // Control: the same path reaches a file of the box.
    cp(&lab, "task:dir/root/etc/hostname", lab.dir().join("x")).succeed();
    // A destination that is a link of the host is refused, and the file behind it is unchanged.
    symlink(&secret, lab.dir().join("to-secret")).unwrap();
    for options in [&[][..], &["--force"]] {
        let onto = cp(&lab, "task:dir/file", lab.dir().join("to-secret")).args(options).run();
        onto.fails_with(2, "to-secret is a symbolic link");
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "the user's own");
    // A link of the host is not followed into the box, neither by its name nor in a directory.
    cp(&lab, lab.dir().join("to-secret"), "task:/tmp/").run().fails_with(2, "is a symbolic link");
    let tree = lab.dir().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "fine").unwrap();
    symlink(&secret, tree.join("link")).unwrap();
    cp(&lab, &tree, "task:/tmp/tree").succeed();
    assert_eq!(sh(&lab, "ls /tmp/tree"), "file");
    lab.belljar(["stop", "--now", "task"]).succeed();
}

#[test]
fn cp_refuses_existing_special_and_missing_files() {
    let lab = lab();
    up(&lab, "task", "echo new > file; echo old > taken; mkfifo pipe; mkdir dir; mkdir dir/file");
    let out = lab.dir().join("out");
    fs::write(&out, "old").unwrap();
    cp(&lab, "task:file", &out).run().fails_with(2, "--force");
    assert_eq!(fs::read_to_string(&out).unwrap(), "old");
    cp(&lab, "task:file", &out).arg("--force").succeed();
    assert_eq!(fs::read_to_string(&out).unwrap(), "new\n");
    cp(&lab, "task:pipe", lab.dir().join("p"))
        .run()
        .fails_with(2, "neither a file nor a directory");
    cp(&lab, "task:missing", lab.dir().join("m"))
        .run()
        .fails_with(2, "there is no missing in the box");
    cp(&lab, "task:file", "/dev/null").run().fails_with(2, "neither a file nor a directory");
    cp(&lab, "task:file", lab.dir().join("no/such/dir")).run().fails_with(2, "no/such/dir");
    cp(&lab, &out, "task:taken").run().fails_with(2, "taken exists in the box");
    cp(&lab, &out, "task:pipe")
        .arg("--force")
        .run()
        .fails_with(2, "neither a file nor a directory");
    cp(&lab, &out, "task:no-such/").run().fails_with(2, "there is no no-such/");
    fs::write(lab.dir().join("file"), "x").unwrap();
    cp(&lab, lab.dir().join("file"), "task:dir")
        .arg("--force")
        .run()
        .fails_with(2, "dir has a file of this name");
    assert_eq!(sh(&lab, "cat taken; ls -A | wc -l"), "old\n4", "nothing else was created");
    cp(&lab, &out, "task:taken").arg("--force").succeed();
    assert_eq!(sh(&lab, "cat taken"), "new");
    cp(&lab, lab.dir().join("none"), "task:x").run().fails_with(2, "cannot open");
    cp(&lab, "/dev/null", "task:x").run().fails_with(2, "neither a file nor a directory");
    cp(&lab, "a", "b").run().fails_with(2, "neither path is in a box");
    cp(&lab, "task:a", "task:b").run().fails_with(2, "both paths are in a box");
    cp(&lab, "task:", "b").run().fails_with(2, "names no file");
    cp(&lab, "none:a", "b").run().fails_with(2, "there is no box none");
    lab.belljar(["stop", "--now", "task"]).succeed();
    cp(&lab, "task:file", "b").run().fails_with(2, "belljar start task");
}

#[test]
fn cp_of_a_growing_or_huge_file_leaves_no_copy() {
    let lab = lab();
    // The file grows while it is read, until the test writes a file.
    let grow = "truncate -s 300M big; (while [ ! -e stop ]; do echo more >> big; done) & true";
    up(&lab, "task", grow);
    let out = lab.dir().join("out");
    cp(&lab, "task:big", &out).run().fails_with(1, "changed while it was copied");
    sh(&lab, "touch stop; truncate -s 5M huge");
    let small = |limit: &str| cp(&lab, "task:huge", &out).args(["--max-size", limit]).run();
    small("4MiB").fails_with(1, "--max-size");
    assert!(!out.exists());
    let left: Vec<_> = fs::read_dir(lab.dir()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".belljar-cp")), "{left:?}");
    // Control: the same file is copied with a higher limit.
    small("5MiB").expect(0);
    assert_eq!(fs::metadata(&out).unwrap().len(), 5 << 20);
    lab.belljar(["stop", "--now", "task"]).succeed();
}
