//! Attacks on the MCP server: access from its programs, file tools, variables and names.

use belljar_testkit::McpHttp;
use serde_json::json;

use super::*;

/// Starts an MCP server on HTTP and returns the process, its address and its token.
fn start_http_server(lab: &Lab) -> (belljar_testkit::Live, std::net::SocketAddr, String) {
    let file = lab.home().join("token");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let live = lab
        .belljar(["mcp", "--http", &address.to_string(), "--token-file"])
        .arg(&file)
        .env("CANARY_OF_THE_SERVER", "in its environment")
        .open_input()
        .start();
    let mut token = String::new();
    belljar_testkit::eventually("the server accepts connections", || {
        token = token_in(&live.error_output());
        !token.is_empty() && std::net::TcpStream::connect(address).is_ok()
    });
    (live, address, token)
}

/// Returns the token that the MCP server printed, or an empty text if there is none.
fn token_in(output: &str) -> String {
    let line = output
        .lines()
        .find_map(|line| line.split_once("the new token, which is shown only once: "));
    line.map_or_else(String::new, |(_, token)| token.trim().to_owned())
}

#[test]
fn f07_mcp_server_is_unreachable_from_the_programs_it_runs() {
    let lab = lab();
    let (_live, address, token) = start_http_server(&lab);
    let session = McpHttp::start(address, &token);
    assert_eq!(session.run("6 * 7")["result"], 42, "control: from outside");
    let port = address.port();
    let code = format!(
        r#"
const out = {{}};
for (const host of ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "192.0.2.1", "host.docker.internal", "169.254.169.254"]) {{
  for (const scheme of ["http", "https"]) {{
    try {{ out[`${{scheme}} ${{host}}`] = (await fetch(`${{scheme}}://${{host}}:{port}/mcp`, {{ method: "POST", body: "{{}}", headers: {{ authorization: "Bearer {token}" }} }})).status; }} catch (error) {{ out[`${{scheme}} ${{host}}`] = error.name; }}
  }}
}}
out;
"#
    );
    let results = session.run(&code);
    for (url, outcome) in results["result"].as_object().unwrap_or_else(|| panic!("{results:#}")) {
        assert_eq!(outcome, "TypeError", "{url}: {results:#}");
    }
    let script = format!(
        "for a in 127.0.0.1 ::1 192.0.2.1 $(hostname -i); do (exec 3<>/dev/tcp/$a/{port}) 2>/dev/null && \
         printf 'POST /mcp HTTP/1.0\\r\\n\\r\\n' >&3 && timeout 2 cat <&3; done; \
         find / -xdev -type s 2>/dev/null; cat /proc/net/unix | tail -n +2 | grep -v '@$' ; \
         grep -l {token} /proc/*/environ /proc/*/cmdline 2>/dev/null; cat {} 2>/dev/null; env; true",
        lab.home().join("token").display()
    );
    let results = session.call("run_command", &json!({ "command": ["bash", "-c", script] }));
    let out = results["structuredContent"]["stdout"].as_str().unwrap_or_default();
    assert!(out.contains("PATH="), "control: {results:#}");
    for never in
        [token.as_str(), "in its environment", "HTTP/1", "unauthorized", "belljar-supervisor"]
    {
        assert!(!out.contains(never), "{never} in {out}");
    }
    assert_eq!(session.run("1")["result"], 1, "the server still works");
}

/// Returns the text and the structured result of a tool call of revision 2026-07-28, which has no
/// session.
fn call_without_session(
    address: std::net::SocketAddr,
    token: &str,
    method: &str,
    params: &serde_json::Value,
) -> serde_json::Value {
    use std::io::{Read as _, Write as _};
    let mut params = params.clone();
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let name = params.get("name").or(params.get("uri")).and_then(serde_json::Value::as_str);
    let name = name.map_or_else(String::new, |name| format!("mcp-name: {name}\r\n"));
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.0\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nmcp-method: {method}\r\n{name}\
         mcp-protocol-version: 2026-07-28\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let json = answer.split_once("\r\n\r\n").map(|(_, body)| serde_json::from_str(body));
    json.unwrap().unwrap_or_else(|_| panic!("{answer}"))
}

#[test]
fn f08_clients_without_a_session_share_no_workspace_and_no_results() {
    let lab = lab();
    let (_live, address, token) = start_http_server(&lab);
    let call = |tool: &str, arguments: serde_json::Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        call_without_session(address, &token, "tools/call", &params)["result"].clone()
    };
    let write = |workspace: Option<&str>| {
        let mut arguments =
            json!({ "command": "echo of-the-first > /workspace/mark; cat /workspace/mark" });
        arguments
            .as_object_mut()
            .unwrap()
            .extend(workspace.map(|id| ("workspace".to_owned(), json!(id))));
        call("run_command", arguments)
    };
    let written = write(None);
    assert_eq!(written["structuredContent"]["stdout"], "of-the-first\n", "control: {written:#}");
    let opened = call("open_workspace", json!({}));
    let workspace = opened["structuredContent"]["workspace"].as_str().unwrap().to_owned();
    let kept = write(Some(&workspace));
    assert_eq!(kept["structuredContent"]["stdout"], "of-the-first\n", "control: {kept:#}");

    let inspect = "cat /workspace/mark; find / -xdev -name mark 2>/dev/null; true";
    let seen = call("run_command", json!({ "command": inspect }));
    assert_eq!(seen["structuredContent"]["stdout"], "", "{seen:#}");
    for run in [&written, &kept] {
        let run = run["structuredContent"]["run"].as_str().unwrap();
        let read = json!({ "uri": format!("run://{run}") });
        let read = call_without_session(address, &token, "resources/read", &read);
        assert!(read["result"].is_null(), "{read:#}");
    }
    let listed = call_without_session(address, &token, "resources/list", &json!({}));
    assert!(!listed.to_string().contains("run://"), "{listed:#}");

    // The controls: the id of a workspace finds it, and a session keeps its workspace and results.
    let seen = call("read_file", json!({ "path": "mark", "workspace": workspace }));
    assert!(seen.to_string().contains("of-the-first"), "{seen:#}");
    let session = McpHttp::start(address, &token);
    let mark = session.run("import fs from 'node:fs'; fs.writeFileSync('/workspace/mark', 'mine')");
    assert!(mark["run"].is_string(), "{mark:#}");
    let read = session.run("import fs from 'node:fs'; fs.readFileSync('/workspace/mark', 'utf8')");
    assert_eq!(read["result"], "mine", "{read:#}");
    session.end();
}

#[test]
fn f16_mcp_file_tools_cannot_access_files_outside_the_box() {
    let lab = lab();
    let (file, secret) = host_file(&lab);
    let mcp = Mcp::start(lab.belljar(["mcp"]).env("CANARY_OF_THE_SERVER", "in its environment"));
    let path = file.display().to_string();
    assert!(
        std::fs::read_to_string(&file).unwrap().contains(&secret),
        "control: the host can read the file"
    );
    mcp.call("write_file", &json!({ "path": "/workspace/a.txt", "content": "needle in a file\n" }));
    let read = mcp.call("read_file", &json!({ "path": "/workspace/a.txt" }));
    assert!(read.to_string().contains("needle"), "control: {read}");
    let found = mcp.call("grep", &json!({ "pattern": "needle", "path": "/workspace" }));
    assert!(found.to_string().contains("a.txt"), "control: {found}");
    run_command(&mcp, &["ln", "-s", &path, "/workspace/link"]);
    run_command(&mcp, &["ln", "-s", lab.home().to_str().unwrap(), "/workspace/home"]);
    let calls = [
        ("read_file", json!({ "path": path })),
        ("read_file", json!({ "path": "/workspace/link" })),
        ("read_file", json!({ "path": "/workspace/home/canary.txt" })),
        ("read_file", json!({ "path": format!("/workspace/../../..{path}") })),
        ("read_file", json!({ "path": "/proc/1/environ" })),
        ("read_file", json!({ "path": "/proc/self/environ" })),
        ("grep", json!({ "pattern": "canary", "path": "/" })),
        ("glob", json!({ "pattern": "/**/canary.txt" })),
        ("glob", json!({ "pattern": "home/*" })),
    ];
    for (tool, arguments) in calls {
        let answer = mcp.wait_for_response(mcp.start_call(tool, &arguments)).to_string();
        for never in [secret.as_str(), "in its environment"] {
            assert!(!answer.contains(never), "{tool} {arguments}: {answer}");
        }
    }
    for path in ["/workspace/link", &path, "/etc/passwd", "/usr/bin/evil"] {
        mcp.wait_for_response(
            mcp.start_call("write_file", &json!({ "path": path, "content": "evil" })),
        );
    }
    mcp.wait_for_response(mcp.start_call(
        "edit_file",
        &json!({ "path": "/workspace/link", "search": "canary", "replace": "evil" }),
    ));
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        secret,
        "the file on the host is unchanged"
    );
    assert!(!std::fs::read_to_string("/etc/passwd").unwrap().contains("evil"));
    assert!(!std::path::Path::new("/usr/bin/evil").exists());
}

#[test]
fn f15_mcp_server_ignores_injected_variables_and_refuses_invalid_names() {
    let lab = lab();
    let mark = lab.home().join("mark");
    let evil = format!("touch {}", mark.display());
    let server = lab
        .belljar(["mcp"])
        .env("LD_PRELOAD", "/tmp/evil.so")
        .env("NODE_OPTIONS", "--require /tmp/evil.js")
        .env("BASH_ENV", "/tmp/evil.sh")
        .env("PYTHONSTARTUP", "/tmp/evil.py")
        .env("GIT_SSH_COMMAND", &evil)
        .env("DENO_DIR", "/tmp/evil");
    let mcp = Mcp::start(server);
    let environment = run_command(&mcp, &["env"])["stdout"].as_str().unwrap_or_default().to_owned();
    assert!(environment.contains("PATH="), "control: {environment}");
    assert!(!environment.contains("evil"), "{environment}");
    let seen = result(&mcp, "[Object.keys(process.env).length > 0, JSON.stringify(process.env)]");
    assert!(seen[0] == true && !seen[1].as_str().unwrap().contains("evil"), "{seen}");
    // Variables and start-up files of one call have no effect on the next call.
    let export = "export LD_PRELOAD=/workspace/evil.so NODE_OPTIONS=--bad BASH_ENV=/workspace/evil.sh; \
                  echo 'echo steered' > /workspace/evil.sh; echo 'echo steered' | tee ~/.bashrc ~/.profile ~/.bash_profile >/dev/null; \
                  mkdir -p /workspace/node_modules/fs; echo 'steered' > /workspace/node_modules/fs/index.js; bash -c 'echo $BASH_ENV'";
    let response = mcp.call("execute_code", &json!({ "code": export, "language": "sh" }));
    assert_eq!(
        response["structuredContent"]["stdout"], "steered\n/workspace/evil.sh\n",
        "control: {response:#}"
    );
    for (language, code) in [
        ("sh", "echo clean"),
        ("node", "console.log('clean')"),
        ("py", "print('clean')"),
        ("js", "console.log('clean')"),
    ] {
        let answer = mcp.call("execute_code", &json!({ "code": code, "language": language }));
        assert_eq!(answer["structuredContent"]["stdout"], "clean\n", "{language}: {answer:#}");
    }
    // Names with shell syntax or invalid characters are refused.
    for name in [
        format!("a; {evil}"),
        format!("$({evil})"),
        "../../x".to_owned(),
        "a b".to_owned(),
        "-rf".to_owned(),
        "A\u{202e}".to_owned(),
        String::new(),
    ] {
        let calls = [
            ("save_skill", json!({ "name": name, "description": "d", "code": "1" })),
            ("run_skill", json!({ "name": name })),
            ("delete_skill", json!({ "name": name })),
            ("describe_api", json!({ "api": name })),
            ("execute_code", json!({ "code": "1", "apis": [name] })),
            ("execute_code", json!({ "code": "1", "language": name })),
        ];
        for (tool, arguments) in calls {
            let answer = mcp.wait_for_response(mcp.start_call(tool, &arguments));
            let refused = answer.get("error").is_some() || answer["result"]["isError"] == true;
            assert!(refused, "{tool} {arguments}: {answer}");
        }
    }
    let saved = mcp.call(
        "save_skill",
        &json!({ "name": "a-name", "description": "d", "code": "export default () => 7" }),
    );
    assert_ne!(saved["isError"], true, "control: {saved}");
    // Arguments of a command are not interpreted by a shell.
    let printed = run_command(&mcp, &["printf", "%s|", "$(id)", "; id", "`id`", "-n"]);
    assert_eq!(printed["stdout"], "$(id)|; id|`id`|-n|");
    assert!(!mark.exists());
}
