//! Requests of a box that wait for approval: an approval allows one request, no answer denies it.

use belljar_testkit::{Authority, Upstream};

use super::*;

/// The value of the secret `token`, which no box may see.
pub(super) const SECRET_VALUE: &str = "ghp_thisIsTheRealValue0123456789abcdefAB";

/// A shell loop that starts each script that the test puts into the box's home, in parallel.
const RUN_SCRIPTS: &str = "i=0; while :; do if [ -e ~/$i.sh ]; then \
                      (sh ~/$i.sh > ~/$i.new 2>&1; mv ~/$i.new ~/$i.out) & i=$((i+1)); \
                      else sleep 0.02; fi; done";

/// A named box that runs scripts from the test.
pub(super) struct ScriptBox<'a> {
    pub(super) lab: &'a Lab,
    pub(super) name: &'a str,
    /// The number of scripts that were started.
    started: std::cell::Cell<usize>,
}

impl<'a> ScriptBox<'a> {
    /// Creates a named box that runs scripts, with the given options of `belljar up`.
    #[track_caller]
    pub(super) fn up(lab: &'a Lab, name: &'a str, options: &[&str]) -> Self {
        let up = lab.belljar(["up", name, "--no-tty", "--no-workspace"]).args(options);
        up.args(["--", "sh", "-c", RUN_SCRIPTS]).succeed();
        Self { lab, name, started: std::cell::Cell::new(0) }
    }

    /// Starts a script in the box and returns its number.
    pub(super) fn start_script(&self, script: &str) -> usize {
        let at = self.started.replace(self.started.get() + 1);
        let home = self.lab.state().join("boxes").join(self.name).join("home");
        fs::write(home.join("next"), format!("{script}\n")).unwrap();
        fs::rename(home.join("next"), home.join(format!("{at}.sh"))).unwrap();
        at
    }

    /// Waits until the script with the number `at` has ended and returns its output.
    #[track_caller]
    pub(super) fn output(&self, at: usize) -> String {
        let home = self.lab.state().join("boxes").join(self.name).join("home");
        let out = home.join(format!("{at}.out"));
        eventually("the script has ended", || out.exists());
        fs::read_to_string(&out).unwrap().trim().to_owned()
    }

    /// Tells whether the script with the number `at` has ended.
    pub(super) fn is_done(&self, at: usize) -> bool {
        let home = self.lab.state().join("boxes").join(self.name).join("home");
        home.join(format!("{at}.out")).exists()
    }

    /// Runs a script in the box and returns its output.
    #[track_caller]
    pub(super) fn run(&self, script: &str) -> String {
        self.output(self.start_script(script))
    }

    /// Removes all scripts and counts from zero again, for the next start of the box.
    pub(super) fn reset(&self) {
        let home = self.lab.state().join("boxes").join(self.name).join("home");
        for entry in fs::read_dir(home).unwrap().flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().ends_with(".sh") || name.to_string_lossy().ends_with(".out") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        self.started.set(0);
    }
}

/// Returns the requests that wait for approval.
#[track_caller]
pub(super) fn waiting(lab: &Lab) -> Vec<Value> {
    let out = lab.belljar(["approve", "--json"]).succeed();
    out.lines().map(|line| serde_json::from_str(line).expect("one object")).collect()
}

/// Waits until `count` requests wait for approval, and returns their ids and texts.
#[track_caller]
fn wait_for_requests(lab: &Lab, count: usize) -> Vec<(String, String)> {
    eventually(&format!("{count} requests wait for approval"), || waiting(lab).len() == count);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    waiting(lab).iter().map(|it| (text(&it["id"]), text(&it["text"]))).collect()
}

/// Returns the ledger events of one kind.
#[track_caller]
pub(super) fn ledger_events(lab: &Lab, kind: &str) -> Vec<Value> {
    let log = lab.belljar(["ledger", "log", "--json"]).succeed();
    let all = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|it| it["kind"] == kind).collect()
}

/// Creates a lab whose boxes need approval for requests to an echo server, with one secret.
pub(super) fn lab_with_ask_rule(more: &str) -> (Lab, Upstream) {
    let (lab, authority) = (lab(), Authority::new());
    let upstream = Upstream::echo(&authority, &["api.example.com"]);
    let connect = upstream.address();
    lab.configure_for(
        &authority,
        &format!(
            "[template.default]\nnet = \"restricted\"\nsecrets = [\"token\"]\n{more}\n\
             [[template.default.ask]]\nhost = \"api.example.com\"\nconnect = \"{connect}\"\n\
             [secret.token]\nhosts = [\"api.example.com\"]\nslots = [\"header:authorization\"]\n\
             shape = \"ghp_{{36}}\"\nenv = \"TOKEN\"\n"
        ),
    );
    lab.belljar(["secret", "set", "token"]).input(SECRET_VALUE).succeed();
    (lab, upstream)
}

/// Returns a curl command that prints the response of the echo server and the status.
fn curl(path: &str) -> String {
    format!("curl -sS -w ' %{{http_code}}' 'https://api.example.com{path}'")
}

#[test]
fn g03_approval_allows_exactly_one_request() {
    let (lab, upstream) = lab_with_ask_rule("");
    let sandbox = ScriptBox::up(&lab, "one", &[]);
    let first = sandbox.start_script(&curl("/a?key=value"));
    let requests = wait_for_requests(&lab, 1);
    assert_eq!(requests[0].1, "GET https://api.example.com/a?(9 bytes)");
    let second = sandbox.start_script(&curl("/b"));
    let requests = wait_for_requests(&lab, 2);
    assert_eq!(requests[1].1, "GET https://api.example.com/b");
    assert!(upstream.received().is_empty(), "no request is sent before its approval");

    lab.belljar(["approve", &requests[0].0]).succeed();
    assert!(sandbox.output(first).ends_with("200"));
    assert_eq!(upstream.received().len(), 1);
    assert!(!sandbox.is_done(second), "one approval does not allow another request");
    // A repeated request needs another approval; the first approval is used up.
    let third = sandbox.start_script(&curl("/a?key=value"));
    let again = wait_for_requests(&lab, 2);
    lab.belljar(["approve", &requests[0].0]).run().fails_with(2, "waits for an answer");
    assert!(!sandbox.is_done(third));

    lab.belljar(["approve", "--deny", &again[0].0, &again[1].0]).succeed();
    for at in [second, third] {
        let response = sandbox.output(at);
        assert!(
            response.contains("the operator refused the request") && response.ends_with("403"),
            "{response}"
        );
    }
    assert_eq!(upstream.received().len(), 1);
    assert_eq!(ledger_events(&lab, "approval.asked").len(), 3);
    assert_eq!(ledger_events(&lab, "approval.given").len(), 1);
    let refused = ledger_events(&lab, "approval.refused");
    assert_eq!(refused.len(), 2);
    assert!(refused.iter().all(|it| it["fields"]["why"] == "operator"), "{refused:?}");
}

#[test]
fn approval_request_names_the_secret_and_closes_when_the_program_gives_up() {
    let (lab, upstream) = lab_with_ask_rule("");
    let sandbox = ScriptBox::up(&lab, "one", &[]);
    let post = "curl -sS -d body -H \"authorization: Bearer $TOKEN\" https://api.example.com/p";
    let sent = sandbox.start_script(post);
    let (id, text) = wait_for_requests(&lab, 1).remove(0);
    assert_eq!(text, "POST https://api.example.com/p with the secret token");
    assert_eq!(waiting(&lab)[0]["secret"], "token");
    lab.belljar(["approve", &id]).succeed();
    assert!(sandbox.output(sent).contains("[belljar:token]"));
    let [received] = &upstream.received()[..] else { panic!("one request") };
    assert_eq!(received.header("authorization"), Some(format!("Bearer {SECRET_VALUE}").as_str()));

    let gone = sandbox.start_script("curl -sS -m 1 https://api.example.com/late; echo $?");
    wait_for_requests(&lab, 1);
    assert!(sandbox.output(gone).ends_with("28"), "curl gave up");
    wait_for_requests(&lab, 0);
    lab.belljar(["approve", "--all-of", "one"]).succeed();
    assert_eq!(upstream.received().len(), 1, "the request was withdrawn");
}

#[test]
fn g06_request_is_denied_when_no_approval_arrives_in_time() {
    let (lab, upstream) = lab_with_ask_rule("ask-timeout = \"300ms\"");
    let sandbox = ScriptBox::up(&lab, "one", &[]);
    let response = sandbox.run(&curl("/x"));
    assert!(
        response.contains("the operator did not approve it within 300 ms")
            && response.ends_with("403"),
        "{response}"
    );
    eventually("the timeout is in the ledger", || {
        let refused = ledger_events(&lab, "approval.refused");
        refused.iter().any(|it| it["fields"]["why"] == "timeout")
    });
    assert_eq!(waiting(&lab).len(), 0);
    // `belljar run` denies the request at once, because no person can answer.
    let ended = lab.bash(&curl("/y")).run();
    assert!(ended.out().contains("belljar up") && ended.out().ends_with("403"), "{}", ended.out());
    assert!(ended.err().contains("denied: GET https://api.example.com/y"), "{}", ended.err());
    assert!(upstream.received().is_empty());
    for bad in ["0s", "2h", "none"] {
        let text = format!("[template.default]\nask-timeout = \"{bad}\"\n");
        lab.configure(&text);
        lab.bash("true").run().fails_with(2, "ask-timeout");
    }
}

#[test]
fn g08_tcp_connections_need_approval_and_open_requests_are_limited() {
    let lab = lab();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    lab.configure(&format!(
        "[[template.default.ask]]\ntcp = \"db.example.com:5432\"\nconnect = \"{address}\"\n"
    ));
    let sandbox = ScriptBox::up(&lab, "one", &["--net", "restricted"]);
    let connect = "exec 3<>/dev/tcp/db.example.com/5432; timeout 60 head -n1 <&3";
    let connect = format!("bash -c '{connect}'");
    let server = std::thread::spawn(move || {
        use std::io::Write as _;
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"hello\n").unwrap();
        listener
    });
    let first = sandbox.start_script(&connect);
    let (id, text) = wait_for_requests(&lab, 1).remove(0);
    assert_eq!(text, "TCP tcp://db.example.com:5432");
    lab.belljar(["approve", &id]).succeed();
    assert_eq!(sandbox.output(first), "hello");
    let listener = server.join().unwrap();
    // Of 36 requests at once, 20 wait for approval and the others are denied.
    let flood =
        "for i in $(seq 36); do (exec 3<>/dev/tcp/db.example.com/5432; cat <&3) & done; wait";
    sandbox.start_script(&format!("bash -c '{flood}'"));
    eventually("20 requests wait for approval", || waiting(&lab).len() == 20);
    eventually("the other 16 requests are denied", || {
        let decided = ledger_events(&lab, "request.decided");
        let is_flood = |it: &&Value| it["fields"]["reason"].as_str().unwrap().contains("ask-flood");
        decided.iter().filter(is_flood).count() == 16
    });
    lab.belljar(["approve", "--deny", "--all-of", "one"]).succeed();
    eventually("no request waits for approval", || waiting(&lab).is_empty());
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "no connection was made");
}

/// Returns all requests for approval, also those that were answered or closed.
#[track_caller]
fn all_requests(lab: &Lab) -> Vec<Value> {
    let out = lab.belljar(["approve", "--list", "--json"]).succeed();
    out.lines().map(|line| serde_json::from_str(line).expect("one object")).collect()
}

#[test]
fn approve_records_who_answered_in_the_ledger_and_in_the_store() {
    let (lab, upstream) = lab_with_ask_rule("");
    let sandbox = ScriptBox::up(&lab, "one", &[]);
    let user = format!("user:{}", rustix::process::getuid().as_raw());
    let first = sandbox.start_script(&curl("/a"));
    let (id, _) = wait_for_requests(&lab, 1).remove(0);
    lab.belljar(["approve", &id]).succeed();
    let already = format!("already answered by {user}");
    lab.belljar(["approve", "--deny", &id]).run().fails_with(2, &already);
    assert!(sandbox.output(first).ends_with("200"));
    let second = sandbox.start_script(&curl("/b"));
    let (id, _) = wait_for_requests(&lab, 1).remove(0);
    lab.belljar(["approve", "--deny", &id]).succeed();
    assert!(sandbox.output(second).ends_with("403"));
    assert_eq!(upstream.received().len(), 1);

    let given = ledger_events(&lab, "approval.given");
    let refused = ledger_events(&lab, "approval.refused");
    assert_eq!((given.len(), refused.len()), (1, 1));
    assert_eq!(given[0]["fields"]["by"], user.as_str());
    assert_eq!(refused[0]["fields"]["by"], user.as_str());
    let requests = all_requests(&lab);
    assert_eq!(requests.len(), 2, "{requests:?}");
    for (approval, state) in requests.iter().zip(["allowed", "denied"]) {
        assert_eq!(approval["state"], state);
        assert_eq!(approval["by"], user.as_str());
    }
    assert_eq!(requests[0]["digest"], given[0]["fields"]["bound_to"]);
    let listed = lab.belljar(["approve", "--list"]).succeed();
    assert!(listed.contains(&format!("(allowed by {user})")), "{listed}");
}

#[test]
fn concurrent_answers_to_one_approval_request_have_one_winner() {
    let (lab, _upstream) = lab_with_ask_rule("");
    let sandbox = ScriptBox::up(&lab, "one", &[]);
    let at = sandbox.start_script(&curl("/a"));
    let (id, _) = wait_for_requests(&lab, 1).remove(0);
    let answers = [vec!["approve", "--json", &id], vec!["approve", "--json", &id, "--deny"]];
    let answer = |args: &[&str]| {
        let out = lab.belljar(args).run().out().to_owned();
        serde_json::from_str::<Value>(out.trim()).unwrap()
    };
    let answered: Vec<Value> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            answers.iter().map(|args| scope.spawn(move || answer(args))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let won: Vec<&Value> = answered.iter().filter(|it| it["error"].is_null()).collect();
    assert_eq!(won.len(), 1, "{answered:?}");
    let is_allowed = won[0]["answer"] == "allow";
    assert!(sandbox.output(at).ends_with(if is_allowed { "200" } else { "403" }));
    let (given, refused) = (
        ledger_events(&lab, "approval.given").len(),
        ledger_events(&lab, "approval.refused").len(),
    );
    assert_eq!((given, refused), if is_allowed { (1, 0) } else { (0, 1) });
}

#[test]
fn approval_request_of_a_killed_box_is_closed_as_gone() {
    let (lab, upstream) = lab_with_ask_rule("");
    let sandbox = ScriptBox::up(&lab, "one", &[]);
    sandbox.start_script(&curl("/a"));
    let (id, _) = wait_for_requests(&lab, 1).remove(0);
    let pid = rustix::process::Pid::from_raw(supervisor_pid(&lab, "one")).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("the supervisor is gone", || state(&lab, "one") == "interrupted");

    let listed = lab.belljar(["approve"]).run();
    assert!(listed.err().contains("one:1: closed") && listed.out().is_empty(), "{}", listed.err());
    assert_eq!(all_requests(&lab)[0]["state"], "gone");
    lab.belljar(["approve", &id]).run().fails_with(2, "not running any more");
    let refused = ledger_events(&lab, "approval.refused");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0]["fields"]["why"], "gone");
    // After the next start the same id names another request.
    lab.belljar(["start", "one"]).succeed();
    sandbox.reset();
    sandbox.start_script(&curl("/b"));
    let again = wait_for_requests(&lab, 1);
    assert_eq!(again[0].0, id);
    lab.belljar(["approve", &id]).succeed();
    eventually("only the second request was sent", || upstream.received().len() == 1);
    lab.belljar(["ledger", "verify"]).succeed();
}

#[test]
fn approve_refuses_when_the_stored_request_was_modified() {
    let (lab, upstream) = lab_with_ask_rule("");
    let sandbox = ScriptBox::up(&lab, "one", &[]);
    let at = sandbox.start_script(&curl("/a"));
    let (id, text) = wait_for_requests(&lab, 1).remove(0);
    let dir = lab.state().join("approvals");
    let file = fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    let written = fs::read_to_string(&file).unwrap();
    fs::write(&file, written.replace(&text, "GET https://api.example.com/harmless")).unwrap();
    lab.belljar(["approve", &id]).run().fails_with(1, "digest");
    assert_eq!(all_requests(&lab)[0]["state"], "damaged");
    assert!(!sandbox.is_done(at) && upstream.received().is_empty());
    fs::write(&file, written).unwrap();
    lab.belljar(["approve", &id]).succeed();
    assert!(sandbox.output(at).ends_with("200"));
}
