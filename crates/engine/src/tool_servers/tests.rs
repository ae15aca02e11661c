use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use belljar_code::pin::Identity;
use belljar_model::code::McpServer;
use serde_json::json;

use super::launch::Start;
use super::*;
use crate::scope::of_test;

fn start_python(argv: &[OsString], [input, output, error]: [OwnedFd; 3]) -> std::io::Result<Child> {
    let mut command = std::process::Command::new("/usr/bin/python3");
    command.args(argv).stdin(input).stdout(output).stderr(error).spawn()
}

/// The tool server `odd`: the script `tests/server.py`, which runs without a box.
struct TestServer {
    home: tempfile::TempDir,
    servers: Servers,
}

impl TestServer {
    /// Declares the server. `mode` selects a misbehaviour of the script.
    fn new(mode: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = Config::parse(
            "[mcp.odd]\ncommand = [\"odd\"]\ntimeout = \"20s\"\n",
            &PathBuf::from("/belljar.toml"),
            belljar_model::Scope::Operator,
        );
        let config = config.unwrap();
        let declared: &McpServer = config.servers().values().next().unwrap();
        let script = include_str!("tests/server.py");
        let argv = ["-c".as_ref(), script.as_ref(), home.path().as_os_str(), mode.as_ref()];
        let argv = argv.map(OsString::from).to_vec();
        let launch = Launch {
            start: Start::Plain { argv, start: start_python },
            identity: Identity::Command(vec!["odd".to_owned()]),
        };
        let pins = Arc::new(Pins::open(home.path()).unwrap());
        let servers = vec![Arc::new(Server::new(declared, launch, pins))];
        Self { home, servers: Servers { servers } }
    }

    /// Starts the server and accepts all of its tools.
    async fn accepted() -> Self {
        let server = Self::new("");
        server.accept().await;
        server
    }

    /// Accepts the current tools of the server.
    async fn accept(&self) {
        let server = &self.servers.servers[0];
        server.offer().await.unwrap().accept(&of_test(self.home.path())).unwrap();
    }

    async fn call(&self, tool: &str) -> Result<Value, String> {
        let input = RawValue::from_string(r#"{"text":"hi"}"#.to_owned()).unwrap();
        let result = self.servers.call("odd", tool, input, CancellationToken::new()).await?;
        Ok(serde_json::from_str(result.get()).unwrap())
    }

    /// Returns how often the script recorded an event of this name.
    fn count(&self, event: &str) -> usize {
        std::fs::read(self.home.path().join(event)).map_or(0, |text| text.len())
    }

    /// Returns the names of the tools that may be called.
    async fn tool_names(&self) -> Vec<String> {
        self.servers.tools().await.into_iter().map(|tool| tool.name).collect()
    }
}

#[tokio::test]
async fn f09_tool_call_is_refused_before_the_operator_accepts_the_tool() {
    let server = TestServer::new("");
    assert!(server.tool_names().await.is_empty());
    let refused = server.call("echo").await.unwrap_err();
    assert!(
        refused.contains("odd.echo is not accepted yet") && refused.contains("mcp accept odd`"),
        "{refused}"
    );
    server.accept().await;
    assert_eq!(server.tool_names().await.len(), 6);
    assert_eq!(server.call("echo").await.unwrap(), "hi");
    assert_eq!(server.call("many").await.unwrap(), json!({"sum": 3}));
    let unknown = server.call("no-such").await.unwrap_err();
    assert!(unknown.contains("has no tool"), "{unknown}");
    assert_eq!(server.count("started"), 1, "one process serves all calls");
    server.servers.stop().await;
}

#[tokio::test]
async fn f09_tool_whose_definition_changes_while_its_server_runs_is_not_called_again() {
    let server = TestServer::accepted().await;
    assert_eq!(server.call("echo").await.unwrap(), "hi", "control: the accepted tool is called");
    // The server sends the result after the notification that its list of tools changed.
    assert_eq!(server.call("shadow").await.unwrap(), "changed");
    let refused = server.call("echo").await.unwrap_err();
    assert!(refused.contains("changed since it was accepted (its description)"), "{refused}");
    assert!(!server.tool_names().await.contains(&"echo".to_owned()));
    server.accept().await;
    assert_eq!(
        server.call("echo").await.unwrap(),
        "hi",
        "the tool is called after it was accepted again"
    );
    server.servers.stop().await;
}

#[tokio::test]
async fn tool_server_that_exits_is_restarted_after_a_pause() {
    let server = TestServer::accepted().await;
    let error = server.call("die").await.unwrap_err();
    assert!(error.contains("cannot call the tool"), "{error}");
    let error = server.call("echo").await.unwrap_err();
    assert!(error.contains("the tool server odd is not available: the server exited"), "{error}");
    assert_eq!(server.count("started"), 1, "the server is not restarted at once");
    let deadline = std::time::Instant::now() + belljar_testkit::DEADLINE;
    while server.call("echo").await.is_err() {
        assert!(std::time::Instant::now() < deadline, "the server is not restarted");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.count("started"), 2);
    server.servers.stop().await;
}

#[tokio::test]
async fn cancelling_a_tool_call_notifies_the_tool_server() {
    let server = TestServer::accepted().await;
    let cancelled = CancellationToken::new();
    let input = RawValue::from_string("{}".to_owned()).unwrap();
    let call = server.servers.call("odd", "hang", input, cancelled.clone());
    let cancel = async {
        // The server handles calls in order: after this result it has received the other call.
        server.call("echo").await.unwrap();
        cancelled.cancel();
    };
    let (result, ()) = tokio::join!(call, cancel);
    assert_eq!(result.unwrap_err(), "cancelled");
    server.call("echo").await.unwrap();
    assert_eq!(server.count("cancelled"), 1);
    server.servers.stop().await;
}

#[tokio::test]
async fn f14_endless_tool_list_of_a_tool_server_is_refused() {
    let server = TestServer::new("endless");
    let report = server.servers.report().await;
    let trouble = report[0].trouble.clone().unwrap();
    assert!(trouble.contains("more than 64 pages"), "{trouble}");
}

#[tokio::test]
async fn f13_start_failure_of_a_tool_server_is_reported_without_control_characters() {
    let server = TestServer::new("broken");
    let report = server.servers.report().await;
    let trouble = report[0].trouble.clone().unwrap();
    assert!(trouble.contains(r"\x1b]0;owned\x07 no such module"), "{trouble}");
    assert!(trouble.chars().all(belljar_model::plain::is_plain), "{trouble}");
    server.servers.report().await;
    assert_eq!(server.count("started"), 1, "the server is not restarted before a pause");
}

#[tokio::test]
async fn tool_call_refuses_an_input_that_is_not_an_object() {
    let server = TestServer::accepted().await;
    for input in ["[]", "\"text\"", "1"] {
        let input = RawValue::from_string(input.to_owned()).unwrap();
        let refused = server.servers.call("odd", "echo", input, CancellationToken::new()).await;
        assert!(refused.unwrap_err().contains("one object"));
    }
    server.servers.stop().await;
}

fn tool(server: &str, name: &str, description: &str) -> ForeignTool {
    ForeignTool {
        server: server.to_owned(),
        function: name.replace('-', "_"),
        name: name.to_owned(),
        description: description.to_owned(),
        input: json!({"type": "object", "properties": {}}),
        output: None,
    }
}

#[test]
fn tool_search_ranks_matches_in_names_above_matches_in_descriptions() {
    let tools = vec![
        tool("files", "write-file", "Writes. Reads nothing."),
        tool("files", "read-file", "Gives what is in it."),
        tool("web", "fetch", "Gets a page."),
    ];
    let found = |query: &str, limit| -> Vec<String> {
        rank(tools.clone(), query, limit).into_iter().map(|tool| tool.name).collect()
    };
    assert_eq!(found("read", 9), ["read-file", "write-file"]);
    assert_eq!(found("Files: page", 9), ["write-file", "read-file", "fetch"]);
    assert_eq!(found("", 2), ["write-file", "read-file"]);
    assert_eq!(found("nothing xyz", 9), ["write-file"]);
}

#[test]
fn declarations_list_tools_as_functions_of_their_server() {
    let mut sum = tool("my-math", "get-sum", "Adds two numbers. */ evil()");
    sum.input = json!({"type": "object", "properties": {"a": {"type": "number"}, "b": {"$ref": "#/$defs/n"}}, "required": ["a", "b"], "$defs": {"n": {"type": "number"}}});
    sum.output = Some(
        json!({"type": "object", "properties": {"sum": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "string"}}}),
    );
    let text = declarations(&[sum, tool("my-math", "ping", ""), tool("web", "fetch", "Gets.")]);
    assert_eq!(
        text,
        "type N2 = string;
type N = number;
declare const tools: {
  my_math: {
    /** Adds two numbers. * / evil() */
    get_sum(input: { a: number; b: N }): Promise<{ sum?: N2 }>;
    ping(): Promise<unknown>;
  };
  web: {
    /** Gets. */
    fetch(): Promise<unknown>;
  };
};
"
    );
    assert_eq!(declarations(&[]), "");
}
