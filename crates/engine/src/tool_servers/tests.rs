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

fn python(words: &[OsString], [input, output, error]: [OwnedFd; 3]) -> std::io::Result<Child> {
    let mut command = std::process::Command::new("/usr/bin/python3");
    command.args(words).stdin(input).stdout(output).stderr(error).spawn()
}

/// A server that is the script beside this file, without a box.
struct Odd {
    home: tempfile::TempDir,
    servers: Servers,
}

impl Odd {
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
        let words = ["-c".as_ref(), script.as_ref(), home.path().as_os_str(), mode.as_ref()];
        let launch = Launch {
            start: Start::Plain { words: words.map(OsString::from).to_vec(), start: python },
            identity: Identity::Command(vec!["odd".to_owned()]),
        };
        let pins = Arc::new(Pins::open(home.path()).unwrap());
        let servers = vec![Arc::new(Server::new(declared, launch, pins))];
        Self { home, servers: Servers { servers } }
    }

    /// One whose tools were all accepted as they are.
    async fn accepted() -> Self {
        let odd = Self::new("");
        odd.accept().await;
        odd
    }

    async fn accept(&self) {
        let server = &self.servers.servers[0];
        server.offer().await.unwrap().accept(&of_test(self.home.path())).unwrap();
    }

    async fn call(&self, tool: &str) -> Result<Value, String> {
        let input = RawValue::from_string(r#"{"text":"hi"}"#.to_owned()).unwrap();
        let answer = self.servers.call("odd", tool, input, CancellationToken::new()).await?;
        Ok(serde_json::from_str(answer.get()).unwrap())
    }

    /// How often the script left a mark.
    fn marks(&self, name: &str) -> usize {
        std::fs::read(self.home.path().join(name)).map_or(0, |text| text.len())
    }

    async fn names(&self) -> Vec<String> {
        self.servers.tools().await.into_iter().map(|tool| tool.name).collect()
    }
}

#[tokio::test]
async fn f09_nothing_is_called_before_it_was_accepted() {
    let odd = Odd::new("");
    assert!(odd.names().await.is_empty());
    let refused = odd.call("echo").await.unwrap_err();
    assert!(
        refused.contains("odd.echo was not accepted yet; `belljar mcp accept odd`"),
        "{refused}"
    );
    odd.accept().await;
    assert_eq!(odd.names().await.len(), 6);
    assert_eq!(odd.call("echo").await.unwrap(), "hi");
    assert_eq!(odd.call("many").await.unwrap(), json!({"sum": 3}));
    let unknown = odd.call("no-such").await.unwrap_err();
    assert!(unknown.contains("has no tool"), "{unknown}");
    assert_eq!(odd.marks("started"), 1, "one process for all of it");
    odd.servers.stop().await;
}

#[tokio::test]
async fn f09_a_definition_that_changes_while_the_server_runs_is_not_called_again() {
    let odd = Odd::accepted().await;
    assert_eq!(odd.call("echo").await.unwrap(), "hi", "the control");
    // Its answer comes behind the word that the list changed.
    assert_eq!(odd.call("shadow").await.unwrap(), "changed");
    let refused = odd.call("echo").await.unwrap_err();
    assert!(refused.contains("changed since it was accepted (its description)"), "{refused}");
    assert!(!odd.names().await.contains(&"echo".to_owned()));
    odd.accept().await;
    assert_eq!(odd.call("echo").await.unwrap(), "hi", "once it is accepted anew");
    odd.servers.stop().await;
}

#[tokio::test]
async fn a_server_that_dies_is_started_again_after_a_pause() {
    let odd = Odd::accepted().await;
    let died = odd.call("die").await.unwrap_err();
    assert!(died.contains("call it"), "{died}");
    let paused = odd.call("echo").await.unwrap_err();
    assert!(paused.contains("the server odd is not there: it ended"), "{paused}");
    assert_eq!(odd.marks("started"), 1, "not at once");
    let until = std::time::Instant::now() + belljar_testkit::DEADLINE;
    while odd.call("echo").await.is_err() {
        assert!(std::time::Instant::now() < until, "it is not started again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(odd.marks("started"), 2);
    odd.servers.stop().await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_or_takes_too_long_is_told_to_the_server() {
    let odd = Odd::accepted().await;
    let cancelled = CancellationToken::new();
    let input = RawValue::from_string("{}".to_owned()).unwrap();
    let call = odd.servers.call("odd", "hang", input, cancelled.clone());
    let cancel = async {
        // Once the server answers something else it has the call.
        odd.call("echo").await.unwrap();
        cancelled.cancel();
    };
    let (answer, ()) = tokio::join!(call, cancel);
    assert_eq!(answer.unwrap_err(), "cancelled");
    odd.call("echo").await.unwrap();
    assert_eq!(odd.marks("cancelled"), 1);
    odd.servers.stop().await;
}

#[tokio::test]
async fn f14_what_a_server_says_is_bounded() {
    let odd = Odd::new("endless");
    let report = odd.servers.report().await;
    let trouble = report[0].trouble.clone().unwrap();
    assert!(trouble.contains("more than 64 pages"), "{trouble}");
}

#[tokio::test]
async fn f13_a_server_that_does_not_come_up_is_told_in_words_that_only_draw() {
    let odd = Odd::new("broken");
    let report = odd.servers.report().await;
    let trouble = report[0].trouble.clone().unwrap();
    assert!(trouble.contains(r"\x1b]0;owned\x07 no such module"), "{trouble}");
    assert!(trouble.chars().all(belljar_model::plain::is_plain), "{trouble}");
    odd.servers.report().await;
    assert_eq!(odd.marks("started"), 1, "the next attempt comes after a pause");
}

#[tokio::test]
async fn what_is_no_object_is_no_input() {
    let odd = Odd::accepted().await;
    for input in ["[]", "\"text\"", "1"] {
        let input = RawValue::from_string(input.to_owned()).unwrap();
        let refused = odd.servers.call("odd", "echo", input, CancellationToken::new()).await;
        assert!(refused.unwrap_err().contains("one object"));
    }
    odd.servers.stop().await;
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
fn a_tool_is_found_by_words_of_its_name_before_those_of_its_description() {
    let tools = vec![
        tool("files", "write-file", "Writes. Reads nothing."),
        tool("files", "read-file", "Gives what is in it."),
        tool("web", "fetch", "Gets a page."),
    ];
    let found = |query: &str, limit| -> Vec<String> {
        ranked(tools.clone(), query, limit).into_iter().map(|tool| tool.name).collect()
    };
    assert_eq!(found("read", 9), ["read-file", "write-file"]);
    assert_eq!(found("Files: page", 9), ["write-file", "read-file", "fetch"]);
    assert_eq!(found("", 2), ["write-file", "read-file"]);
    assert_eq!(found("nothing xyz", 9), ["write-file"]);
}

#[test]
fn tools_are_declared_as_functions_of_their_server() {
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
