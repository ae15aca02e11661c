//! Tests of the diff output for people.

use std::fs;

use belljar_workspace::{
    Colour, Pick, report, stat, stat_with_lines, three_way, unified, write_unified,
};

use crate::fixture::{Run, path, these};

/// Checks the unified diff of a box change.
#[track_caller]
fn check(host: &str, in_box: &str, expected: &str) -> Run {
    let run = Run::new(host);
    run.in_box(in_box);
    let changes = run.seal();
    let shown = unified(&run.layers(), &changes, &Pick::All, Colour::Never);
    assert_eq!(shown, expected);
    let mut written = Vec::new();
    write_unified(&run.layers(), &changes, &Pick::All, (Colour::Never, &mut written)).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), expected);
    run
}

#[test]
fn unified_diff_shows_text_changes_line_by_line() {
    check(
        "printf '1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n' > a; printf 'old\\n' > d",
        "printf '1\\n2\\n3\\n4\\nfive\\n6\\n7\\n8\\n' > a; printf 'new' > n; rm d",
        "\
diff --git a/a b/a
--- a/a
+++ b/a
@@ -2,7 +2,7 @@
 2
 3
 4
-5
+five
 6
 7
 8
diff --git a/d b/d
deleted file mode 100644
--- a/d
+++ /dev/null
@@ -1,1 +0,0 @@
-old
diff --git a/n b/n
new file mode 100644
--- /dev/null
+++ b/n
@@ -0,0 +1,1 @@
+new
\\ No newline at end of file
",
    );
}

#[test]
fn unified_diff_summarizes_modes_moves_links_directories_and_binaries() {
    check(
        "echo m > m; echo moved > from; ln -s a l; mkdir e; printf 'a\\0b' > b; echo t > t",
        "chmod 600 m; mv from to; ln -sfn b l; mkdir n; rmdir e; printf 'a\\0bc' > b; rm t; ln -s m t",
        "\
diff --git a/b b/b
Binary file, 3 -> 4 bytes
diff --git a/e b/e
deleted directory mode 040755
diff --git a/l b/l
old link to a
new link to b
diff --git a/m b/m
old mode 100644
new mode 100600
diff --git a/n b/n
new directory mode 040755
diff --git a/t b/t
deleted file mode 100644
new link to m
--- a/t
+++ /dev/null
@@ -1,1 +0,0 @@
-t
diff --git a/from b/to
rename from from
rename to to
",
    );
}

#[test]
fn diff_shows_marked_changes_with_their_reason() {
    let run = Run::new("echo s > s; chmod 755 s");
    run.in_box(
        "mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; printf x > run; chmod 4755 run
         ln -s /etc/passwd out; mkfifo pipe",
    );
    let changes = run.seal();
    let shown = unified(&run.layers(), &changes, &Pick::All, Colour::Never);
    for note in [
        "! git runs its hooks on commit, checkout, merge and push; apply leaves it out unless it is named with --include-executable\n",
        "! a new executable file; apply leaves it out unless",
        "! the mode bits 4000 are not applied\n",
        "! a symbolic link that leads out of the workspace; apply leaves it out unless",
        "! apply does not support named pipes; apply leaves it out\n",
    ] {
        assert!(shown.contains(note), "{note}{shown}");
    }
    let sums = stat(&changes, &Pick::All, Colour::Never);
    assert!(sums.contains("! A .git/hooks/pre-commit"), "{sums}");
    assert!(sums.contains("\n! 3 marked: "), "{sums}");
}

#[test]
fn diff_output_contains_no_control_characters_of_the_box() {
    let run = Run::new("echo a > a");
    run.in_box(
        r#"printf 'x\033[2Jy\r\n\tz\001\n' > a; printf 'q\n! forged\n' > "$(printf 'n\n! forged\033[31m')"
           ln -s "$(printf 'target\n! forged\033]0;t\007')" l; printf 'bad\377' > "$(printf 'bad\377')"
           mkdir .vscode; printf '\033[1A' > .vscode/tasks.json; printf '\342\200\256rtl' > bidi"#,
    );
    let changes = run.seal();
    let layers = run.layers();
    let plain = Colour::Never;
    let mut all = unified(&layers, &changes, &Pick::All, plain);
    all += &stat(&changes, &Pick::All, plain);
    all += &stat_with_lines(&layers, &changes, &Pick::All, plain);
    for change in changes.entries() {
        all += &three_way(&layers, change, plain);
    }
    for entry in report(&layers, &changes, &Pick::All).entries {
        all += &entry.diff.unwrap_or_default();
        all += &entry.notes.join("\n");
    }
    let steers = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || c == '\u{202e}';
    assert!(!all.contains(steers), "{all:?}");
    assert!(!all.contains("\n! forged"), "no line of the box starts with `!`: {all}");
    assert!(all.contains(r"x\x1b[2Jy\r"), "the escaped content is visible: {all}");
}

#[test]
fn unified_diff_with_colour_adds_colour_sequences() {
    let run = Run::new("echo a > a");
    run.in_box("echo b > a; echo {} > .mcp.json");
    let shown = unified(&run.layers(), &run.seal(), &Pick::All, Colour::Always);
    for line in [
        "\u{1b}[31m-a\u{1b}[m\n",
        "\u{1b}[32m+b\u{1b}[m\n",
        "\u{1b}[36m@@ -1,1 +1,1 @@\u{1b}[m\n",
        "\u{1b}[1m--- a/a\u{1b}[m\n",
        "\u{1b}[1;33m! settings, hooks",
    ] {
        assert!(shown.contains(line), "{line:?} {shown:?}");
    }
}

#[test]
fn diff_stat_shows_only_selected_paths() {
    let run = Run::new("mkdir d; echo moved > moved");
    run.in_box("echo x > d/x; echo y > y; mv moved z");
    let changes = run.seal();
    let sums = |pick: &Pick| stat(&changes, pick, Colour::Never);
    assert_eq!(
        sums(&these(["d"])),
        "  A d/x | new file mode 100644\n1 changed, 0 insertions(+), 0 deletions(-)\n"
    );
    assert!(sums(&these(["moved"])).starts_with("  D moved |"));
    let all = sums(&Pick::All);
    assert!(all.contains("  R moved => z | ") && !all.contains("D moved"), "{all}");
}

#[test]
fn diff_stat_counts_lines_and_limits_the_width_of_the_bar() {
    let run = Run::new("seq 1000 > a; echo b > b; printf 'x\\0' > c");
    run.in_box("seq 500 > a; echo bb >> b; printf 'y\\0' > c");
    let changes = run.seal();
    let shown = stat_with_lines(&run.layers(), &changes, &Pick::All, Colour::Never);
    let bar = "-".repeat(40);
    assert_eq!(
        shown,
        format!(
            "  M a | 500 {bar}\n  M b | 1 +\n  M c | Bin 2 -> 2 bytes\n\
             3 changed, 1 insertions(+), 500 deletions(-)\n"
        )
    );
    let report = report(&run.layers(), &changes, &Pick::All);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["insertions"], 1);
    assert_eq!(json["entries"][1]["path"], "b");
    assert_eq!(json["entries"][1]["kind"], "modified");
    assert_eq!(json["entries"][1]["diff"], "@@ -1,1 +1,2 @@\n b\n+bb\n");
    assert!(json["entries"][2].get("diff").is_none());
}

#[test]
fn diff_does_not_show_large_files_and_long_lines_in_full() {
    let run = Run::new("");
    run.in_box("yes | head -c 5000000 > large; head -c 100000 /dev/zero | tr '\\0' x > line");
    let shown = unified(&run.layers(), &run.seal(), &Pick::All, Colour::Never);
    assert!(shown.contains("b/large\nnew file mode 100644\n! too large to show\n"), "{shown}");
    assert!(shown.contains("x … (100000 bytes)\n"));
    assert!(shown.len() < 10_000);
}

#[test]
fn unified_diff_reports_files_that_cannot_be_compared() {
    let run = Run::new("echo a > a; echo b > b; echo c > c");
    run.in_box("echo x > a; echo x > b; echo x > c");
    run.host("echo host > c");
    let changes = run.seal();
    fs::write(run.upper().join("a"), "tampered").unwrap();
    let hash = belljar_workspace::ContentHash::of(b"b\n").to_string();
    fs::write(run.run_dir().join("base").join(hash), "damaged").unwrap();
    let shown = unified(&run.layers(), &changes, &Pick::All, Colour::Never);
    let expected = "\
diff --git a/a b/a
! the box's file changed after the changes were sealed
diff --git a/b b/b
! the stored original is damaged or missing
diff --git a/c b/c
! you changed this file since the box started; the diff compares with your current version
--- a/c
+++ b/c
@@ -1,1 +1,1 @@
-host
+x
";
    assert_eq!(shown, expected);
}

#[test]
fn three_way_diff_shows_both_versions_of_a_conflict() {
    let run = Run::new("printf '1\\n2\\n3\\n' > a; echo b > b; echo c > c");
    run.in_box("printf '1\\n2\\nbox\\n' > a; echo box > b; rm c");
    run.host("echo host > b");
    let changes = run.seal();
    run.host("printf 'host\\n2\\n3\\n' > a; echo host > c");
    let shown = |name: &str| {
        let change = changes.get(&path(name)).unwrap();
        three_way(&run.layers(), change, Colour::Never)
    };
    let expected = "\
! both sides changed a
--- base/a
+++ host/a
@@ -1,3 +1,3 @@
-1
+host
 2
 3
--- base/a
+++ box/a
@@ -1,3 +1,3 @@
 1
 2
-3
+box
";
    assert_eq!(shown("a"), expected);
    let expected = "\
! both sides changed b
--- host/b
+++ box/b
@@ -1,1 +1,1 @@
-host
+box
";
    assert_eq!(shown("b"), expected);
    let expected = "\
! both sides changed c
--- base/c
+++ host/c
@@ -1,1 +1,1 @@
-c
+host
! base/c -> box/c: the box has no regular file at this path
";
    assert_eq!(shown("c"), expected);
}

#[test]
fn unified_diff_counts_paths_that_are_too_long() {
    let run = Run::new("");
    let name = "d".repeat(250);
    let mut dir = run.upper();
    for _ in 0..15 {
        dir.push(&name);
    }
    fs::create_dir_all(&dir).unwrap();
    let none = rustix::fs::Mode::empty();
    let fd = rustix::fs::open(&dir, rustix::fs::OFlags::DIRECTORY, none).unwrap();
    for last in ["x", "y"] {
        rustix::fs::mkdirat(&fd, last.repeat(250), rustix::fs::Mode::RWXU).unwrap();
        let sub = last.repeat(250);
        let fd = rustix::fs::openat(&fd, &sub, rustix::fs::OFlags::DIRECTORY, none).unwrap();
        rustix::fs::mkdirat(&fd, "z".repeat(250), rustix::fs::Mode::RWXU).unwrap();
    }
    let shown = unified(&run.layers(), &run.seal(), &Pick::All, Colour::Never);
    assert!(shown.contains("\n! 1 names in ddd"), "{}", &shown[shown.len() - 400..]);
}
