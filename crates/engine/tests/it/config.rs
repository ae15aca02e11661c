//! A project's `belljar.toml` tightens what the operator's says, and never loosens it.

use belljar_engine::error::ErrorKind;
use serde_json::json;

use crate::bench::Bench;

#[test]
fn a_project_may_tighten() {
    let bench = Bench::new();
    bench.lab.configure("[template.default]\nmemory = \"512MiB\"\n");
    let text = "[template.default]\nmemory = \"64MiB\"\nmode = \"read-only\"\n";
    bench.lab.write("belljar.toml", text);
    let ended = bench.run(json!({}), "touch x 2> /dev/null || echo refused");
    assert_eq!(ended.succeeded(), "refused");
    assert_eq!(ended.result.limits.memory.to_string(), "64MiB");
}

#[test]
fn a_project_may_not_loosen() {
    let bench = Bench::new();
    bench.lab.configure("[template.default]\nmemory = \"512MiB\"\n");
    let file = bench.lab.workspace().join("belljar.toml");
    for (line, about) in [
        ("memory = \"1GiB\"", "`memory` of template `default`: 1GiB, but the operator has 512MiB"),
        ("mode = \"direct\"", "`mode` of template `default`: direct, but the operator has overlay"),
        ("mounts = [\"/etc:/x\"]", "`mounts` of template `default`"),
        ("env = [\"LD_PRELOAD=x\"]", "LD_PRELOAD, which controls"),
        ("env = [\"TOKEN\"]", "TOKEN inherited"),
        ("weaken = [\"seccomp\"]", "seccomp weakened"),
        ("timeout = \"none\"", "`timeout` of template `default`: none"),
        ("user = 0", "`user` of template `default`: 0"),
    ] {
        bench.lab.write("belljar.toml", format!("# a comment\n[template.default]\n{line}\n"));
        let refused = bench.refused(&bench.spec(json!({}), "true"), ErrorKind::Invalid);
        assert!(refused.contains(&format!("{}:3: ", file.display())), "{refused}");
        assert!(refused.contains(about), "{refused}");
    }
    assert!(bench.runs().is_empty(), "nothing was run");
}
