//! What a box asks before it does it: an answer is good for exactly one thing, and no answer is a no.

use belljar_testkit::{Authority, Upstream};

use super::*;

pub(super) const REAL: &str = "ghp_thisIsTheRealValue0123456789abcdefAB";

/// Does one after the other what the test puts into the box's home, all of it at once if need be.
const WORKER: &str = "i=0; while :; do if [ -e ~/$i.sh ]; then \
                      (sh ~/$i.sh > ~/$i.new 2>&1; mv ~/$i.new ~/$i.out) & i=$((i+1)); \
                      else sleep 0.02; fi; done";

/// A box that does what it is told.
pub(super) struct Worker<'a> {
    pub(super) lab: &'a Lab,
    pub(super) name: &'a str,
    told: std::cell::Cell<usize>,
}

impl<'a> Worker<'a> {
    #[track_caller]
    pub(super) fn up(lab: &'a Lab, name: &'a str, options: &[&str]) -> Self {
        let up = lab.belljar(["up", name, "--no-tty", "--no-workspace"]).args(options);
        up.args(["--", "sh", "-c", WORKER]).succeed();
        Self { lab, name, told: std::cell::Cell::new(0) }
    }

    /// Has it begin something.
    pub(super) fn begin(&self, script: &str) -> usize {
        let at = self.told.replace(self.told.get() + 1);
        let home = self.lab.state().join("boxes").join(self.name).join("home");
        fs::write(home.join("next"), format!("{script}\n")).unwrap();
        fs::rename(home.join("next"), home.join(format!("{at}.sh"))).unwrap();
        at
    }

    /// What came of it, once it is done.
    #[track_caller]
    pub(super) fn end(&self, at: usize) -> String {
        let home = self.lab.state().join("boxes").join(self.name).join("home");
        let out = home.join(format!("{at}.out"));
        eventually("the box is done with it", || out.exists());
        fs::read_to_string(&out).unwrap().trim().to_owned()
    }

    pub(super) fn is_done(&self, at: usize) -> bool {
        let home = self.lab.state().join("boxes").join(self.name).join("home");
        home.join(format!("{at}.out")).exists()
    }

    #[track_caller]
    pub(super) fn does(&self, script: &str) -> String {
        self.end(self.begin(script))
    }

    /// Starts again at the first thing: after a start of the box.
    pub(super) fn forget(&self) {
        let home = self.lab.state().join("boxes").join(self.name).join("home");
        for entry in fs::read_dir(home).unwrap().flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().ends_with(".sh") || name.to_string_lossy().ends_with(".out") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        self.told.set(0);
    }
}

/// What waits for an answer.
#[track_caller]
pub(super) fn waiting(lab: &Lab) -> Vec<Value> {
    let out = lab.belljar(["approve", "--json"]).succeed();
    out.lines().map(|line| serde_json::from_str(line).expect("one object")).collect()
}

/// Waits until so many questions are open, and gives their texts.
#[track_caller]
fn asked(lab: &Lab, count: usize) -> Vec<(String, String)> {
    eventually("the questions are open", || waiting(lab).len() == count);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    waiting(lab).iter().map(|it| (text(&it["id"]), text(&it["text"]))).collect()
}

/// The records of a kind.
#[track_caller]
pub(super) fn recorded(lab: &Lab, kind: &str) -> Vec<Value> {
    let log = lab.belljar(["ledger", "log", "--json"]).succeed();
    let all = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|it| it["kind"] == kind).collect()
}

/// A lab whose boxes ask before they speak to an echoing server, with a secret if they like.
pub(super) fn site(more: &str) -> (Lab, Upstream) {
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
    lab.belljar(["secret", "set", "token"]).input(REAL).succeed();
    (lab, upstream)
}

fn curl(path: &str) -> String {
    format!("curl -sS -w ' %{{http_code}}' 'https://api.example.com{path}'")
}

#[test]
fn g03_approval_allows_exactly_one_request() {
    let (lab, upstream) = site("");
    let worker = Worker::up(&lab, "one", &[]);
    let first = worker.begin(&curl("/a?key=value"));
    let questions = asked(&lab, 1);
    assert_eq!(questions[0].1, "GET https://api.example.com/a?(9 bytes)");
    let second = worker.begin(&curl("/b"));
    let questions = asked(&lab, 2);
    assert_eq!(questions[1].1, "GET https://api.example.com/b");
    assert!(upstream.received().is_empty(), "nothing goes before a yes");

    lab.belljar(["approve", &questions[0].0]).succeed();
    assert!(worker.end(first).ends_with("200"));
    assert_eq!(upstream.received().len(), 1);
    assert!(!worker.is_done(second), "a yes for one is none for another");
    // The same once more is a question of its own, and the old answer is used up.
    let third = worker.begin(&curl("/a?key=value"));
    let again = asked(&lab, 2);
    lab.belljar(["approve", &questions[0].0]).run().complains(2, "nothing waits");
    assert!(!worker.is_done(third));

    lab.belljar(["approve", "--deny", &again[0].0, &again[1].0]).succeed();
    for at in [second, third] {
        let told = worker.end(at);
        assert!(
            told.contains("the operator refused the request") && told.ends_with("403"),
            "{told}"
        );
    }
    assert_eq!(upstream.received().len(), 1);
    assert_eq!(recorded(&lab, "approval.asked").len(), 3);
    assert_eq!(recorded(&lab, "approval.given").len(), 1);
    let refused = recorded(&lab, "approval.refused");
    assert_eq!(refused.len(), 2);
    assert!(refused.iter().all(|it| it["fields"]["why"] == "operator"), "{refused:?}");
}

#[test]
fn approval_request_names_the_secret_and_closes_when_the_program_gives_up() {
    let (lab, upstream) = site("");
    let worker = Worker::up(&lab, "one", &[]);
    let post = "curl -sS -d body -H \"authorization: Bearer $TOKEN\" https://api.example.com/p";
    let sent = worker.begin(post);
    let (id, text) = asked(&lab, 1).remove(0);
    assert_eq!(text, "POST https://api.example.com/p with the secret token");
    assert_eq!(waiting(&lab)[0]["secret"], "token");
    lab.belljar(["approve", &id]).succeed();
    assert!(worker.end(sent).contains("[belljar:token]"));
    let [received] = &upstream.received()[..] else { panic!("one request") };
    assert_eq!(received.header("authorization"), Some(format!("Bearer {REAL}").as_str()));

    let gone = worker.begin("curl -sS -m 1 https://api.example.com/late; echo $?");
    asked(&lab, 1);
    assert!(worker.end(gone).ends_with("28"), "it waited no longer");
    asked(&lab, 0);
    lab.belljar(["approve", "--all-of", "one"]).succeed();
    assert_eq!(upstream.received().len(), 1, "nobody waits for it");
}

#[test]
fn g06_request_is_denied_when_no_approval_arrives_in_time() {
    let (lab, upstream) = site("ask-timeout = \"300ms\"");
    let worker = Worker::up(&lab, "one", &[]);
    let told = worker.does(&curl("/x"));
    assert!(
        told.contains("the operator did not approve it within 300 ms") && told.ends_with("403"),
        "{told}"
    );
    eventually("it is on record", || {
        let refused = recorded(&lab, "approval.refused");
        refused.iter().any(|it| it["fields"]["why"] == "timeout")
    });
    assert_eq!(waiting(&lab).len(), 0);
    // Where nobody can answer, nobody is waited for.
    let ended = lab.bash(&curl("/y")).run();
    assert!(ended.out().contains("belljar up") && ended.out().ends_with("403"), "{}", ended.out());
    assert!(ended.err().contains("denied: GET https://api.example.com/y"), "{}", ended.err());
    assert!(upstream.received().is_empty());
    for bad in ["0s", "2h", "none"] {
        let text = format!("[template.default]\nask-timeout = \"{bad}\"\n");
        lab.configure(&text);
        lab.bash("true").run().complains(2, "ask-timeout");
    }
}

#[test]
fn g08_tcp_connections_need_approval_and_open_requests_are_limited() {
    let lab = lab();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap();
    lab.configure(&format!(
        "[[template.default.ask]]\ntcp = \"db.example.com:5432\"\nconnect = \"{place}\"\n"
    ));
    let worker = Worker::up(&lab, "one", &["--net", "restricted"]);
    let dial = "exec 3<>/dev/tcp/db.example.com/5432; timeout 60 head -n1 <&3";
    let dial = format!("bash -c '{dial}'");
    let served = std::thread::spawn(move || {
        use std::io::Write as _;
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"hello\n").unwrap();
        listener
    });
    let first = worker.begin(&dial);
    let (id, text) = asked(&lab, 1).remove(0);
    assert_eq!(text, "TCP tcp://db.example.com:5432");
    lab.belljar(["approve", &id]).succeed();
    assert_eq!(worker.end(first), "hello");
    let listener = served.join().unwrap();
    // A flood of questions leaves the operator with what can be looked at; the rest is denied.
    let flood =
        "for i in $(seq 80); do (exec 3<>/dev/tcp/db.example.com/5432; cat <&3) & done; wait";
    worker.begin(&format!("bash -c '{flood}'"));
    eventually("there are as many as there may be", || waiting(&lab).len() == 64);
    eventually("the others are denied", || {
        let decided = recorded(&lab, "request.decided");
        let flooded = |it: &&Value| it["fields"]["reason"].as_str().unwrap().contains("ask-flood");
        decided.iter().filter(flooded).count() == 16
    });
    lab.belljar(["approve", "--deny", "--all-of", "one"]).succeed();
    eventually("none is left", || waiting(&lab).is_empty());
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "none of them came through");
}

/// All approvals, also those that ended.
#[track_caller]
fn all(lab: &Lab) -> Vec<Value> {
    let out = lab.belljar(["approve", "--list", "--json"]).succeed();
    out.lines().map(|line| serde_json::from_str(line).expect("one object")).collect()
}

#[test]
fn approve_records_who_answered_in_the_ledger_and_in_the_store() {
    let (lab, upstream) = site("");
    let worker = Worker::up(&lab, "one", &[]);
    let user = format!("user:{}", rustix::process::getuid().as_raw());
    let first = worker.begin(&curl("/a"));
    let (id, _) = asked(&lab, 1).remove(0);
    lab.belljar(["approve", &id]).succeed();
    let already = format!("already answered by {user}");
    lab.belljar(["approve", "--deny", &id]).run().complains(2, &already);
    assert!(worker.end(first).ends_with("200"));
    let second = worker.begin(&curl("/b"));
    let (id, _) = asked(&lab, 1).remove(0);
    lab.belljar(["approve", "--deny", &id]).succeed();
    assert!(worker.end(second).ends_with("403"));
    assert_eq!(upstream.received().len(), 1);

    let given = recorded(&lab, "approval.given");
    let refused = recorded(&lab, "approval.refused");
    assert_eq!((given.len(), refused.len()), (1, 1));
    assert_eq!(given[0]["fields"]["by"], user.as_str());
    assert_eq!(refused[0]["fields"]["by"], user.as_str());
    let all = all(&lab);
    assert_eq!(all.len(), 2, "{all:?}");
    for (approval, state) in all.iter().zip(["allowed", "denied"]) {
        assert_eq!(approval["state"], state);
        assert_eq!(approval["by"], user.as_str());
    }
    assert_eq!(all[0]["digest"], given[0]["fields"]["bound_to"]);
    let listed = lab.belljar(["approve", "--list"]).succeed();
    assert!(listed.contains(&format!("(allowed by {user})")), "{listed}");
}

#[test]
fn concurrent_answers_to_one_approval_request_have_one_winner() {
    let (lab, _upstream) = site("");
    let worker = Worker::up(&lab, "one", &[]);
    let at = worker.begin(&curl("/a"));
    let (id, _) = asked(&lab, 1).remove(0);
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
    assert!(worker.end(at).ends_with(if is_allowed { "200" } else { "403" }));
    let (given, refused) =
        (recorded(&lab, "approval.given").len(), recorded(&lab, "approval.refused").len());
    assert_eq!((given, refused), if is_allowed { (1, 0) } else { (0, 1) });
}

#[test]
fn approval_request_of_a_killed_box_is_closed_as_gone() {
    let (lab, upstream) = site("");
    let worker = Worker::up(&lab, "one", &[]);
    worker.begin(&curl("/a"));
    let (id, _) = asked(&lab, 1).remove(0);
    let pid = rustix::process::Pid::from_raw(keeper(&lab, "one")).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("its keeper is gone", || state(&lab, "one") == "interrupted");

    let listed = lab.belljar(["approve"]).run();
    assert!(listed.err().contains("one:1: closed") && listed.out().is_empty(), "{}", listed.err());
    assert_eq!(all(&lab)[0]["state"], "gone");
    lab.belljar(["approve", &id]).run().complains(2, "not running any more");
    let refused = recorded(&lab, "approval.refused");
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0]["fields"]["why"], "gone");
    // The first question of the next start is another one.
    lab.belljar(["start", "one"]).succeed();
    worker.forget();
    worker.begin(&curl("/b"));
    let again = asked(&lab, 1);
    assert_eq!(again[0].0, id);
    lab.belljar(["approve", &id]).succeed();
    eventually("only the second was allowed", || upstream.received().len() == 1);
    lab.belljar(["ledger", "verify"]).succeed();
}

#[test]
fn approve_refuses_when_the_stored_request_was_modified() {
    let (lab, upstream) = site("");
    let worker = Worker::up(&lab, "one", &[]);
    let at = worker.begin(&curl("/a"));
    let (id, text) = asked(&lab, 1).remove(0);
    let dir = lab.state().join("approvals");
    let file = fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    let written = fs::read_to_string(&file).unwrap();
    fs::write(&file, written.replace(&text, "GET https://api.example.com/harmless")).unwrap();
    lab.belljar(["approve", &id]).run().complains(1, "digest");
    assert_eq!(all(&lab)[0]["state"], "damaged");
    assert!(!worker.is_done(at) && upstream.received().is_empty());
    fs::write(&file, written).unwrap();
    lab.belljar(["approve", &id]).succeed();
    assert!(worker.end(at).ends_with("200"));
}
