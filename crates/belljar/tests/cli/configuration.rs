//! Errors for invalid configuration files, workspaces and state directories.

use std::fs;

use crate::{entry, lab, program, transcript};

#[test]
fn errors_in_belljar_toml_are_reported_with_file_and_line() {
    let lab = lab();
    let mut text = String::new();
    for content in [
        "[template.a\n",
        "[template.a]\nmemroy = \"1GiB\"\n",
        "[template.a]\n\nmemory = \"much\"\n",
        "[template.a]\nmemory = 5\n",
        "[template.a]\nweaken = [\"cgroup\"]\nrequire = [\"cgroup\"]\n",
        "[tempalte.a]\n",
        "[secret.token]\nhosts = []\n",
        "[mcp.a]\n",
        "[api.a]\n",
        "[[template.default.allow]]\nhost = \"a b\"\n",
    ] {
        lab.configure(content);
        text.push_str(&content.lines().map(|line| format!("> {line}\n")).collect::<String>());
        text.push_str(&transcript(&lab, &["run -- true", "template check"]));
        text.push('\n');
    }
    insta::assert_snapshot!(text, @r##"
> [template.a
$ belljar run -- true
belljar: [LAB]/home/.config/belljar/belljar.toml:1: unclosed table, expected `]`
[exit 2]

$ belljar template check
belljar: [LAB]/home/.config/belljar/belljar.toml:1: unclosed table, expected `]`
[exit 2]

> [template.a]
> memroy = "1GiB"
$ belljar run -- true
belljar: [LAB]/home/.config/belljar/belljar.toml:2: unknown key `memroy`; did you mean `memory`?
[exit 2]

$ belljar template check
belljar: [LAB]/home/.config/belljar/belljar.toml:2: unknown key `memroy`; did you mean `memory`?
[exit 2]

> [template.a]
> 
> memory = "much"
$ belljar run -- true
belljar: [LAB]/home/.config/belljar/belljar.toml:3: `memory = "much"`: invalid size; write for example "512MiB" or "2GiB"
[exit 2]

$ belljar template check
belljar: [LAB]/home/.config/belljar/belljar.toml:3: `memory = "much"`: invalid size; write for example "512MiB" or "2GiB"
[exit 2]

> [template.a]
> memory = 5
$ belljar run -- true
belljar: [LAB]/home/.config/belljar/belljar.toml:2: `memory` of template `a`: the memory limit must be at least 16MiB, or no program can start
[exit 2]

$ belljar template check
belljar: [LAB]/home/.config/belljar/belljar.toml:2: `memory` of template `a`: the memory limit must be at least 16MiB, or no program can start
[exit 2]

> [template.a]
> weaken = ["cgroup"]
> require = ["cgroup"]
$ belljar run -- true
belljar: [LAB]/home/.config/belljar/belljar.toml:3: `require` of template `a`: the layer `cgroup` is both required and weakened
[exit 2]

$ belljar template check
belljar: [LAB]/home/.config/belljar/belljar.toml:3: `require` of template `a`: the layer `cgroup` is both required and weakened
[exit 2]

> [tempalte.a]
$ belljar run -- true
belljar: [LAB]/home/.config/belljar/belljar.toml:1: unknown key `tempalte`; did you mean `template`?
[exit 2]

$ belljar template check
belljar: [LAB]/home/.config/belljar/belljar.toml:1: unknown key `tempalte`; did you mean `template`?
[exit 2]

> [secret.token]
> hosts = []
$ belljar run -- true
belljar: [LAB]/home/.config/belljar/belljar.toml:1: secret `token`: `hosts` is missing; list the hosts that may get the secret
[exit 2]

$ belljar template check
belljar: [LAB]/home/.config/belljar/belljar.toml:1: secret `token`: `hosts` is missing; list the hosts that may get the secret
[exit 2]

> [mcp.a]
$ belljar run -- true
belljar: [LAB]/home/.config/belljar/belljar.toml:1: mcp `a`: exactly one of `command` and `url` must be set
[exit 2]

$ belljar template check
belljar: [LAB]/home/.config/belljar/belljar.toml:1: mcp `a`: exactly one of `command` and `url` must be set
[exit 2]

> [api.a]
$ belljar run -- true
belljar: [LAB]/home/.config/belljar/belljar.toml:1: api `a`: `allow` and `hosts` are missing; one of them must name the hosts
[exit 2]

$ belljar template check
belljar: [LAB]/home/.config/belljar/belljar.toml:1: api `a`: `allow` and `hosts` are missing; one of them must name the hosts
[exit 2]

> [[template.default.allow]]
> host = "a b"
$ belljar run -- true
belljar: [LAB]/home/.config/belljar/belljar.toml:2: `host = "a b"`: a host name can contain only letters, digits, hyphens and dots
[exit 2]

$ belljar template check
belljar: [LAB]/home/.config/belljar/belljar.toml:2: `host = "a b"`: a host name can contain only letters, digits, hyphens and dots
[exit 2]
"##);
}

#[test]
fn project_configuration_that_exceeds_the_operators_limits_is_refused() {
    let lab = lab();
    lab.configure("[template.default]\nmemory = \"512MiB\"\n");
    let mut text = String::new();
    for line in
        ["memory = \"1GiB\"", "mode = \"direct\"", "mounts = [\"/etc:/x\"]", "net = \"full\""]
    {
        lab.write("belljar.toml", format!("[template.default]\n{line}\n"));
        text.push_str(&format!("> {line}\n"));
        text.push_str(&transcript(&lab, &["run -- true", "up a"]));
        text.push('\n');
    }
    insta::assert_snapshot!(text, @r##"
> memory = "1GiB"
$ belljar run -- true
belljar: [LAB]/project/belljar.toml:2: `memory` of template `default`: 1GiB, but the operator has 512MiB; a project may only tighten
[exit 2]

$ belljar up a
belljar: [LAB]/project/belljar.toml:2: `memory` of template `default`: 1GiB, but the operator has 512MiB; a project may only tighten
[exit 2]

> mode = "direct"
$ belljar run -- true
belljar: [LAB]/project/belljar.toml:2: `mode` of template `default`: direct, but the operator has overlay; a project may only tighten
[exit 2]

$ belljar up a
belljar: [LAB]/project/belljar.toml:2: `mode` of template `default`: direct, but the operator has overlay; a project may only tighten
[exit 2]

> mounts = ["/etc:/x"]
$ belljar run -- true
belljar: [LAB]/project/belljar.toml:2: `mounts` of template `default`: /etc:/x:ro, but the operator has no such mount; a project may only tighten
[exit 2]

$ belljar up a
belljar: [LAB]/project/belljar.toml:2: `mounts` of template `default`: /etc:/x:ro, but the operator has no such mount; a project may only tighten
[exit 2]

> net = "full"
$ belljar run -- true
belljar: [LAB]/project/belljar.toml:2: `net` of template `default`: full, but the operator has none; a project may only tighten
[exit 2]

$ belljar up a
belljar: [LAB]/project/belljar.toml:2: `net` of template `default`: full, but the operator has none; a project may only tighten
[exit 2]
"##);
}

#[test]
fn missing_configuration_file_is_reported_with_its_path() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "--config LAB/missing.toml run -- true",
        "run --config LAB/missing.toml -- true",
        "--config LAB/missing.toml template list",
        "template check LAB/missing.toml",
    ]), @r##"
$ belljar --config LAB/missing.toml run -- true
belljar: --config: the file [LAB]/missing.toml does not exist
[exit 2]

$ belljar run --config LAB/missing.toml -- true
belljar: --config: the file [LAB]/missing.toml does not exist
[exit 2]

$ belljar --config LAB/missing.toml template list
belljar: --config: the file [LAB]/missing.toml does not exist
[exit 2]

$ belljar template check LAB/missing.toml
belljar: cannot check [LAB]/missing.toml: the file does not exist
[exit 2]
"##);
}

#[test]
fn workspace_that_is_the_root_the_state_directory_or_a_file_is_refused() {
    let lab = lab();
    fs::write(lab.dir().join("file"), "").unwrap();
    insta::assert_snapshot!(transcript(&lab, &[
        "run --workspace / -- true",
        "run --workspace LAB/state -- true",
        "run --workspace LAB/state/runs -- true",
        "run --workspace LAB/file -- true",
        "up a --workspace /",
        "up a --workspace LAB/state",
        "up a --repo LAB/state",
        "code --workspace / LAB/file",
    ]), @r##"
$ belljar run --workspace / -- true
belljar: the workspace cannot be the root of the host (`/`): choose another directory with --workspace
[exit 2]

$ belljar run --workspace LAB/state -- true
belljar: --workspace [LAB]/state: the directory is part of Belljar's own state
[exit 2]

$ belljar run --workspace LAB/state/runs -- true
belljar: --workspace [LAB]/state/runs: the directory is part of Belljar's own state
[exit 2]

$ belljar run --workspace LAB/file -- true
belljar: --workspace [LAB]/file: not a directory
[exit 2]

$ belljar up a --workspace /
belljar: the workspace cannot be the root of the host (`/`): choose another directory with --workspace
[exit 2]

$ belljar up a --workspace LAB/state
belljar: --workspace [LAB]/state: the directory is part of Belljar's own state
[exit 2]

$ belljar up a --repo LAB/state
belljar: --repo: [LAB]/state is part of Belljar's own state directory
[exit 2]

$ belljar code --workspace / LAB/file
belljar: the workspace cannot be the root of the host (`/`): choose another directory with --workspace
[exit 2]
"##);
}

#[test]
fn unusable_state_directory_is_reported_by_every_command() {
    let lab = lab();
    fs::write(lab.dir().join("file"), "").unwrap();
    let dir = lab.dir().display().to_string();
    let mut text = String::new();
    for home in ["relative", "", "/proc/belljar", "LAB/file", "LAB/file/below"] {
        for command in ["run -- true", "list", "runs", "secret list", "ledger log"] {
            let ended = program(&lab, command).env("BELLJAR_HOME", home.replace("LAB", &dir)).run();
            text.push_str(&format!("BELLJAR_HOME={home} "));
            text.push_str(&entry(&lab, command, &ended));
        }
    }
    let ended = program(&lab, "list").without_env("BELLJAR_HOME").without_env("HOME").run();
    text.push_str("without HOME ");
    text.push_str(&entry(&lab, "list", &ended));
    insta::assert_snapshot!(text, @r##"
BELLJAR_HOME=relative $ belljar run -- true
belljar: BELLJAR_HOME must be an absolute path
[exit 2]
BELLJAR_HOME=relative $ belljar list
belljar: BELLJAR_HOME must be an absolute path
[exit 2]
BELLJAR_HOME=relative $ belljar runs
belljar: BELLJAR_HOME must be an absolute path
[exit 2]
BELLJAR_HOME=relative $ belljar secret list
belljar: BELLJAR_HOME must be an absolute path
[exit 2]
BELLJAR_HOME=relative $ belljar ledger log
belljar: BELLJAR_HOME must be an absolute path
[exit 2]
BELLJAR_HOME= $ belljar run -- true
belljar: BELLJAR_HOME must be an absolute path
[exit 2]
BELLJAR_HOME= $ belljar list
belljar: BELLJAR_HOME must be an absolute path
[exit 2]
BELLJAR_HOME= $ belljar runs
belljar: BELLJAR_HOME must be an absolute path
[exit 2]
BELLJAR_HOME= $ belljar secret list
belljar: BELLJAR_HOME must be an absolute path
[exit 2]
BELLJAR_HOME= $ belljar ledger log
belljar: BELLJAR_HOME must be an absolute path
[exit 2]
BELLJAR_HOME=/proc/belljar $ belljar run -- true
belljar: cannot open the state directory /proc/belljar: No such file or directory (os error 2)
[exit 1]
BELLJAR_HOME=/proc/belljar $ belljar list
belljar: cannot open the state directory /proc/belljar: No such file or directory (os error 2)
[exit 1]
BELLJAR_HOME=/proc/belljar $ belljar runs
belljar: cannot open the state directory /proc/belljar: No such file or directory (os error 2)
[exit 1]
BELLJAR_HOME=/proc/belljar $ belljar secret list
belljar: cannot open the state directory /proc/belljar: No such file or directory (os error 2)
[exit 1]
BELLJAR_HOME=/proc/belljar $ belljar ledger log
belljar: cannot open the state directory /proc/belljar: No such file or directory (os error 2)
[exit 1]
BELLJAR_HOME=LAB/file $ belljar run -- true
belljar: cannot open the state directory [LAB]/file: Not a directory (os error 20)
[exit 1]
BELLJAR_HOME=LAB/file $ belljar list
belljar: cannot open the state directory [LAB]/file: Not a directory (os error 20)
[exit 1]
BELLJAR_HOME=LAB/file $ belljar runs
belljar: cannot open the state directory [LAB]/file: Not a directory (os error 20)
[exit 1]
BELLJAR_HOME=LAB/file $ belljar secret list
belljar: cannot open the state directory [LAB]/file: Not a directory (os error 20)
[exit 1]
BELLJAR_HOME=LAB/file $ belljar ledger log
belljar: cannot open the state directory [LAB]/file: Not a directory (os error 20)
[exit 1]
BELLJAR_HOME=LAB/file/below $ belljar run -- true
belljar: cannot open the state directory [LAB]/file/below: Not a directory (os error 20)
[exit 1]
BELLJAR_HOME=LAB/file/below $ belljar list
belljar: cannot open the state directory [LAB]/file/below: Not a directory (os error 20)
[exit 1]
BELLJAR_HOME=LAB/file/below $ belljar runs
belljar: cannot open the state directory [LAB]/file/below: Not a directory (os error 20)
[exit 1]
BELLJAR_HOME=LAB/file/below $ belljar secret list
belljar: cannot open the state directory [LAB]/file/below: Not a directory (os error 20)
[exit 1]
BELLJAR_HOME=LAB/file/below $ belljar ledger log
belljar: cannot open the state directory [LAB]/file/below: Not a directory (os error 20)
[exit 1]
without HOME $ belljar list
belljar: cannot find the state directory: neither BELLJAR_HOME nor HOME is set; set one of them
[exit 2]
"##);
}
