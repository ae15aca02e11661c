//! Executes the guides on the network, secrets, plans, runs, schedules, code mode, MCP, the server,
//! teams and agents. Each block of commands is
//! run unchanged, and the text block after it must match the output, line by line.
//!
//! `…` matches any text within a line. A TOML block whose first line names the operator's file is
//! written to that file. The server of the guides is an echo server on the loopback interface.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use belljar_testkit::{Authority, Lab, Model, Upstream};
use serde_json::json;

use crate::mcp::installed;
use crate::plan_write::{PLAN, chat_model};
use crate::serve::CHROMIUM;
use crate::{bin_dir, lab};

/// The address of the server in the texts of the guides.
const SERVER: &str = "127.0.0.1:8443";
/// The first line of a TOML block that is the operator's file.
const CONFIG_HEADER: &str = "# ~/.config/belljar/belljar.toml\n";

/// A code block of a guide.
#[derive(Debug, PartialEq, Eq)]
enum Block<'a> {
    Commands(&'a str),
    Output(&'a str),
    File(&'a str),
}

/// Returns the code blocks of a guide that are commands, expected output or the operator's file.
fn blocks(guide: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    for (index, part) in guide.split("```").enumerate() {
        let Some((language, text)) = part.split_once('\n') else { continue };
        match (index % 2, language) {
            (1, "sh") => blocks.push(Block::Commands(text)),
            (1, "text") => blocks.push(Block::Output(text)),
            (1, "toml") if text.starts_with(CONFIG_HEADER) => blocks.push(Block::File(text)),
            _ => {}
        }
    }
    blocks
}

/// Returns whether a line matches a pattern in which `…` stands for any text.
fn matches_pattern(pattern: &str, line: &str) -> bool {
    let pieces: Vec<&str> = pattern.split('…').collect();
    let [first, middle @ .., last] = pieces.as_slice() else { return line == pattern };
    let inside = line.strip_prefix(first).and_then(|rest| rest.strip_suffix(last));
    let Some(mut rest) = inside else { return false };
    middle.iter().all(|piece| match rest.split_once(piece) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Asserts that the output has a line for each pattern, in order. Other lines may be between them.
#[track_caller]
fn assert_output_matches(commands: &str, patterns: &str, output: &str) {
    let mut lines = output.lines();
    for pattern in patterns.lines().filter(|pattern| !pattern.is_empty() && *pattern != "…") {
        let found = lines.any(|line| matches_pattern(pattern, line));
        assert!(
            found,
            "line {pattern:?} is missing or out of order; commands:\n{commands}\noutput:\n{output}"
        );
    }
}

/// Executes a guide and returns the number of its blocks of commands.
#[track_caller]
fn execute(lab: &Lab, guide: &str) -> usize {
    execute_with(lab, guide, &[])
}

/// Executes a guide after the replacement of addresses in the operator's file.
#[track_caller]
fn execute_with(lab: &Lab, guide: &str, addresses: &[(&str, String)]) -> usize {
    let authority = Authority::new();
    let upstream = Upstream::echo(&authority, &["api.corp.example"]);
    fs::write(lab.home().join("corp.pem"), authority.pem()).unwrap();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin_dir(lab).display());
    let (mut count, mut blocks) = (0, blocks(guide).into_iter().peekable());
    while let Some(block) = blocks.next() {
        match block {
            Block::File(text) => {
                let has_server = text.contains(SERVER) || !text.contains("connect");
                assert!(has_server, "the file of the guide does not connect to {SERVER}");
                let text = text.replace(SERVER, &upstream.address().to_string());
                let replace =
                    |text: String, (from, to): &(&str, String)| text.replace(from, to.as_str());
                lab.configure(&addresses.iter().fold(text, replace));
            }
            Block::Output(text) => panic!("output block without commands before it:\n{text}"),
            Block::Commands(commands) => {
                count += 1;
                let script = format!("exec 2>&1\n{commands}");
                let bash = lab.program("bash").args(["-c", &script]).env("PATH", &path);
                let ended = bash.run();
                match blocks.next_if(|next| matches!(next, Block::Output(_))) {
                    Some(Block::Output(patterns)) => {
                        assert_output_matches(commands, patterns, &ended.out());
                    }
                    _ => {
                        assert_eq!(ended.code(), 0, "{commands}\n{}", ended.out());
                    }
                }
            }
        }
    }
    count
}

#[test]
fn first_steps_guide_commands_produce_the_documented_output() {
    let count = execute(&lab(), include_str!("../../../../docs/guide/first-steps.md"));
    assert_eq!(count, 3);
}

#[test]
fn network_guide_commands_produce_the_documented_output() {
    let count = execute(&lab(), include_str!("../../../../docs/guide/network.md"));
    assert!(count >= 6, "{count} blocks");
}

#[test]
fn secrets_guide_commands_produce_the_documented_output() {
    let lab = lab();
    let count = execute(&lab, include_str!("../../../../docs/guide/secrets.md"));
    assert!(count >= 6, "{count} blocks");
}

#[test]
fn mcp_guide_commands_produce_the_documented_output() {
    let lab = lab();
    let count = execute(&lab, include_str!("../../../../docs/guide/mcp.md"));
    assert!(count >= 4, "{count} blocks");
}

/// Kills the server of the guide if the test fails before the guide stops the server.
struct StopServer(std::path::PathBuf);

impl Drop for StopServer {
    fn drop(&mut self) {
        let pid = fs::read_to_string(&self.0).ok().and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, belljar_testkit::Signal::KILL).ok();
        }
    }
}

/// Returns an address of the loopback interface with a port that no server uses.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn serve_guide_commands_produce_the_documented_output() {
    let lab = lab();
    // The guide has the default port, which another server of this machine may use.
    let (first, second) = (free_address(), free_address());
    let _stop = StopServer(lab.workspace().join("serve.pid"));
    lab.configure(&format!("[serve]\nlisten = \"{first}\"\n"));
    let guide = include_str!("../../../../docs/guide/serve.md");
    let guide = guide.replace("7070", "PORT-A").replace("7071", "PORT-B");
    let guide = guide.replace("PORT-A", &first.port().to_string());
    let guide = guide.replace("PORT-B", &second.port().to_string());
    assert!(execute(&lab, &guide) >= 5);
}

/// Uses `oidc-provider` of npm as the identity provider, and Chromium for the login of a member.
#[test]
fn team_guide_takes_a_new_user_to_a_team_with_tls_and_an_identity_provider() {
    let lab = lab();
    let port = free_address().port().to_string();
    let redirect = format!("https://belljar.example.com:{port}/auth/oidc/callback");
    let secret = "s3cret-of-the-client";
    let client = json!({ "redirect": redirect, "algorithm": "RS256", "secret": secret });
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let node = installed("mcp").join("npm/node_modules/node/bin/node");
    let provider = lab.program(&node).arg(tests.join("../gateway/tests/it/provider.mjs"));
    let provider = provider.arg(installed("oidc")).arg(client.to_string()).open_input().start();
    let provider = provider.within(Duration::from_secs(300));
    provider.wait_for_output("ready");
    let output = provider.output();
    let issuer = output.lines().next().unwrap();
    let _stop = StopServer(lab.workspace().join("serve.pid"));
    let guide = include_str!("../../../../docs/guide/team.md");
    assert!(guide.contains(&redirect.replace(&port, "8443")), "the guide has the redirect address");
    let guide = guide.replace("8443", &port).replace("https://id.example.com", issuer);
    let (before, after) = guide.split_once("After Ada has logged in").unwrap();
    assert!(execute(&lab, before) >= 5);
    let script = tests.join("tests/e2e/serve/team_login.mjs");
    let url = format!("https://belljar.example.com:{port}/login");
    let browser = lab.program(node).arg(script).arg(installed("browser")).args([CHROMIUM, &url]);
    let shown = browser.start().within(Duration::from_secs(120)).wait().expect(0);
    assert_eq!(shown, format!("person:{issuer}#ada member platform"));
    assert!(execute(&lab, after) >= 8);
}

#[test]
fn plans_guide_commands_produce_the_documented_output() {
    let model = chat_model(&[PLAN]);
    let addresses = [("localhost:11434", model.address().to_string())];
    let guide = include_str!("../../../../docs/guide/plans.md");
    let count = execute_with(&lab(), guide, &addresses);
    assert!(count >= 6, "{count} blocks");
    assert_eq!(model.received().len(), 1);
}

#[test]
fn runs_guide_commands_produce_the_documented_output() {
    let count = execute(&lab(), include_str!("../../../../docs/guide/runs.md"));
    assert!(count >= 7, "{count} blocks");
}

#[test]
fn schedules_guide_commands_produce_the_documented_output() {
    let count = execute(&lab(), include_str!("../../../../docs/guide/schedules.md"));
    assert!(count >= 5, "{count} blocks");
}

#[test]
fn code_mode_guide_commands_produce_the_documented_output() {
    let count = execute(&lab(), include_str!("../../../../docs/guide/code-mode.md"));
    assert!(count >= 6, "{count} blocks");
}

/// Uses the real Claude Code and a scripted model that answers in place of the host of its vendor.
#[test]
fn agents_guide_commands_produce_the_documented_output() {
    let (lab, authority) = (lab(), Authority::new());
    let write =
        json!({ "file_path": "/workspace/greeting.txt", "content": "hello from the box\n" });
    // Each box writes a different line.
    let line = "grep hello greeting.txt && echo \"in $BELLJAR_RUN\" >> greeting.txt";
    let check = json!({ "command": line, "description": "check it" });
    let calls = vec![("Write", write), ("Bash", check)];
    let model = Model::answering(&authority, &["api.anthropic.com"], calls, "It is done.");
    let (host, connect) = ("api.anthropic.com", model.address().to_string());
    let rules = format!("[[template.default.allow]]\nhost = {host:?}\nconnect = {connect:?}\n");
    lab.configure_for(&authority, &rules);
    let git = |args: &[&str]| lab.program("git").args(args).succeed();
    git(&["init", "--quiet", "--initial-branch=main"]);
    git(&["config", "--global", "user.name", "Ada Lovelace"]);
    git(&["config", "--global", "user.email", "ada@example.org"]);
    lab.write("README.md", "a project\n");
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "begin"]);
    let bin = lab.dir().join("bin");
    fs::create_dir(&bin).unwrap();
    let claude = installed("agents").join("node_modules/.bin/claude");
    symlink(claude, bin.join("claude")).unwrap();
    let guide = include_str!("../../../../docs/guide/agents.md");
    let guide = guide.replace("8317", &free_address().port().to_string());
    let count = execute(&lab, &guide);
    assert!(count >= 10, "{count} blocks");
}

#[test]
fn guide_check_fails_on_wrong_output_or_a_failed_command() {
    assert!(
        matches_pattern("a…c", "abc")
            && matches_pattern("…", "")
            && matches_pattern("a…b…", "a b c")
            && matches_pattern("a", "a")
    );
    assert!(
        !matches_pattern("a…c", "abcd")
            && !matches_pattern("a…b…d", "a d")
            && !matches_pattern("a", "ab")
    );
    let guide = "x\n```sh\nbelljar --version\n```\n```text\nbelljar 0…\n```\n```toml\nx = 1\n```\n";
    let expect = [Block::Commands("belljar --version\n"), Block::Output("belljar 0…\n")];
    assert_eq!(blocks(guide), expect);
    assert_eq!(execute(&lab(), guide), 1);
    for wrong in [guide.replace("0…", "9…"), "```sh\nexit 3\n```\n".to_owned()] {
        let lab = lab();
        let run = std::panic::AssertUnwindSafe(|| execute(&lab, &wrong));
        assert!(std::panic::catch_unwind(run).is_err(), "{wrong}");
    }
}
