use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use belljar_code::skill::{Author, Draft as SkillDraft};
use belljar_ledger::{ApprovalAsked, ApprovalGiven};
use belljar_model::Caller;
use belljar_model::answer::AnswerTerms;

use super::requests::BoxRequests;
use super::*;

/// A fake supervisor that carries out the answer to one question of its box.
#[derive(Debug)]
struct Supervisor {
    requests: BoxRequests,
    id: RequestId,
    digest: Digest,
    is_dead: AtomicBool,
    /// Fails every `wake`, as a supervisor that does not respond.
    is_unresponsive: AtomicBool,
    carried_out: AtomicUsize,
    rule: AnswerRule,
}

impl Supervisors for Supervisor {
    fn is_alive(&self, _: &Scoped, name: &BoxName, run: RunId) -> bool {
        !self.is_dead.load(Ordering::SeqCst) && name == self.requests.name() && run == self.id.run
    }

    fn answer_rule(
        &self,
        _: &Scoped,
        _: &BoxName,
        rule: Option<&str>,
    ) -> Result<AnswerRule, EngineError> {
        assert_eq!(rule, Some("ask api.example.com"));
        Ok(self.rule.clone())
    }

    fn wake(&self, _: &Scoped, _: &BoxName, id: RequestId) -> Result<(), EngineError> {
        if self.is_unresponsive.load(Ordering::SeqCst) {
            return Err(EngineError::message(ErrorKind::Broken, "no answer"));
        }
        let claim = self.requests.claim(id).unwrap();
        let Some(claim) = claim else {
            return Err(EngineError::message(ErrorKind::WrongState, "no claim"));
        };
        if claim.digest != self.digest {
            self.requests.refuse_claim(id);
            return Err(conflict());
        }
        self.requests.settle(id).unwrap();
        self.carried_out.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A state directory without runs.
#[derive(Debug)]
struct NoGates;

impl gates::Gates for NoGates {
    fn state(&self, _: &Scoped, _: RunId, _: &Digest) -> Result<gates::GateState, EngineError> {
        Err(EngineError::message(ErrorKind::NotFound, "no run"))
    }

    fn check_edit(&self, _: &Scoped, _: RunId, _: &Digest, _: &[u8]) -> Result<(), EngineError> {
        Err(EngineError::message(ErrorKind::NotFound, "no run"))
    }

    fn wake(&self, _: &Scoped, _: &dyn Fn() -> bool) -> Result<(), EngineError> {
        Err(EngineError::message(ErrorKind::NotFound, "no run"))
    }
}

/// A state directory with one open question.
struct Lab {
    dir: tempfile::TempDir,
    state: Scoped,
    supervisor: Supervisor,
}

const TEXT: &str = "GET https://api.example.com/a";

impl Lab {
    fn new() -> Self {
        Self::with_deadline(60_000)
    }

    fn with_deadline(millis: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = crate::scope::of_test(dir.path());
        let requests = BoxRequests::new(&state, "one".parse().unwrap());
        let now = state.clock().millis();
        let id = RequestId { run: RunId::new(now, 7), number: 1 };
        let request = NewRequest {
            name: "one".parse().unwrap(),
            id,
            event: 5,
            text: TEXT.to_owned(),
            secrets: vec!["token".to_owned()],
            rule: "ask api.example.com".to_owned(),
            asked: now,
            deadline: now.saturating_sub(1) + millis,
        };
        requests.open(request).unwrap();
        let supervisor = Supervisor {
            requests,
            id,
            digest: request_digest(id, TEXT),
            is_dead: AtomicBool::new(false),
            is_unresponsive: AtomicBool::new(false),
            carried_out: AtomicUsize::new(0),
            rule: AnswerRule::default(),
        };
        Self { dir, state, supervisor }
    }

    fn approvals(&self) -> Approvals<'_> {
        Approvals::new(&self.state, &self.supervisor, &NoGates)
    }

    fn answer(&self, verdict: Verdict) -> Result<(), EngineError> {
        let id = ApprovalId::Request(self.supervisor.id);
        self.approvals().answer(&id, &self.supervisor.digest, verdict)
    }

    /// Returns the names of the states of all approvals, including closed approvals.
    fn states(&self) -> Vec<&'static str> {
        let query = ApprovalQuery { closed: true, ..ApprovalQuery::default() };
        let all = self.approvals().list(&query).unwrap();
        all.iter().map(|approval| approval.state.name()).collect()
    }

    fn open(&self) -> Vec<Approval> {
        self.approvals().list(&ApprovalQuery::default()).unwrap()
    }

    fn file(&self, kind: &str) -> PathBuf {
        self.dir.path().join("approvals").join(format!("{}.{kind}", self.supervisor.id))
    }

    /// Creates the claim of a process that was killed before it notified the supervisor.
    fn leave_claim(&self, age: u64) {
        let at = self.state.clock().millis() - age;
        let by = Some(Principal::user(1234));
        let (id, digest) = (self.supervisor.id, self.supervisor.digest);
        let claim = AnswerFile::of(id, digest, ApprovalOutcome::Allowed, by, at);
        assert!(self.approvals().files().put_claim(&claim).unwrap());
    }
}

#[track_caller]
fn assert_fails(outcome: Result<(), EngineError>, kind: ErrorKind, part: &str) {
    let error = outcome.unwrap_err();
    assert!(error.kind() == kind && error.to_string().contains(part), "{error:?}");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn approvals_list_shows_an_open_question_and_its_files_are_private() {
    let lab = Lab::new();
    let [approval] = &lab.open()[..] else { panic!("one approval") };
    assert_eq!((approval.label.as_str(), &approval.state), ("one:1", &ApprovalState::Open));
    let about = approval.about.as_ref().unwrap();
    assert_eq!(about.text, TEXT);
    assert_eq!(about.secrets, ["token"]);
    assert_eq!(about.event, Some(5));
    assert_eq!(about.digest, lab.supervisor.digest);
    assert_eq!(about.id.to_string().parse(), Ok(about.id.clone()));
    assert_eq!(mode(&lab.file("json")), 0o600);
    assert_eq!(mode(&lab.dir.path().join("approvals")), 0o700);
}

#[test]
fn approval_answer_names_the_principal_and_a_second_answer_is_refused() {
    let lab = Lab::new();
    lab.answer(Verdict::Deny).unwrap();
    assert!(lab.open().is_empty());
    let query = ApprovalQuery { closed: true, ..ApprovalQuery::default() };
    let all = lab.approvals().list(&query).unwrap();
    let by = lab.state.caller().principal.clone();
    assert_eq!(all[0].state.by(), Some(&by));
    assert_eq!(all[0].state.name(), "denied");
    assert_eq!(mode(&lab.file("answer")), 0o600);
    assert!(!lab.file("claim").exists());
    let text = format!("already answered by {by}");
    assert_fails(lab.answer(Verdict::Allow), ErrorKind::WrongState, &text);
    assert_eq!(lab.supervisor.carried_out.load(Ordering::SeqCst), 1);
}

#[test]
fn exactly_one_of_several_concurrent_approval_answers_succeeds() {
    for _ in 0..20 {
        let lab = Lab::new();
        let wins = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for number in 0..8 {
                let verdict = if number % 2 == 0 { Verdict::Allow } else { Verdict::Deny };
                let (lab, wins) = (&lab, &wins);
                scope.spawn(move || match lab.answer(verdict) {
                    Ok(()) => drop(wins.fetch_add(1, Ordering::SeqCst)),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WrongState, "{error:?}"),
                });
            }
        });
        assert_eq!(wins.load(Ordering::SeqCst), 1);
        assert_eq!(lab.supervisor.carried_out.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn approval_answer_with_another_digest_is_a_conflict_and_changes_nothing() {
    let lab = Lab::new();
    let id = ApprovalId::Request(lab.supervisor.id);
    let other = Digest::of(&[b"other"]);
    assert_fails(
        lab.approvals().answer(&id, &other, Verdict::Allow),
        ErrorKind::Conflict,
        "does not match",
    );
    assert_eq!(lab.states(), ["open"]);
    lab.answer(Verdict::Allow).unwrap();
}

#[test]
fn approval_answer_to_a_tampered_question_file_is_refused() {
    let lab = Lab::new();
    let text = fs::read_to_string(lab.file("json")).unwrap();
    // Only the text or only the digest is changed: they do not match.
    let (own, other) = (lab.supervisor.digest, request_digest(lab.supervisor.id, "GET /b"));
    for changed in
        [text.replace(TEXT, "GET /b"), text.replace(&own.to_string(), &other.to_string())]
    {
        fs::write(lab.file("json"), changed).unwrap();
        assert_fails(lab.answer(Verdict::Allow), ErrorKind::Damaged, "digest");
        assert_eq!(lab.states(), ["damaged"]);
    }
    // Both are changed: the supervisor knows the digest of its question.
    let both = text.replace(TEXT, "GET /b").replace(&own.to_string(), &other.to_string());
    fs::write(lab.file("json"), both).unwrap();
    let id = ApprovalId::Request(lab.supervisor.id);
    assert_fails(
        lab.approvals().answer(&id, &other, Verdict::Allow),
        ErrorKind::Conflict,
        "does not match",
    );
    assert!(!lab.file("claim").exists() && !lab.file("answer").exists());
    assert_eq!(lab.supervisor.carried_out.load(Ordering::SeqCst), 0);
}

#[test]
fn approval_claim_of_a_killed_process_is_listed_and_carried_out_by_the_next_answer() {
    let lab = Lab::new();
    lab.leave_claim(CLAIM_TIMEOUT + 1000);
    let [approval] = &lab.open()[..] else { panic!("one approval") };
    assert_eq!(approval.state, ApprovalState::Claimed { by: Some(Principal::user(1234)) });
    assert_fails(lab.answer(Verdict::Deny), ErrorKind::WrongState, "already answered by user:1234");
    assert_eq!(lab.states(), ["allowed"]);
    assert_eq!(lab.supervisor.carried_out.load(Ordering::SeqCst), 1);
}

#[test]
fn recent_approval_claim_is_not_carried_out_by_another_process() {
    let lab = Lab::new();
    lab.leave_claim(0);
    assert_fails(lab.answer(Verdict::Deny), ErrorKind::WrongState, "already answered by user:1234");
    assert_eq!(lab.states(), ["claimed"]);
    assert_eq!(lab.supervisor.carried_out.load(Ordering::SeqCst), 0);
}

#[test]
fn approval_claim_of_a_dead_box_is_closed_as_gone_and_names_the_person_who_answered() {
    let lab = Lab::new();
    lab.supervisor.is_unresponsive.store(true, Ordering::SeqCst);
    assert_fails(lab.answer(Verdict::Allow), ErrorKind::Broken, "no answer");
    lab.supervisor.is_dead.store(true, Ordering::SeqCst);
    let [approval] = &lab.open()[..] else { panic!("one approval") };
    assert_eq!(approval.state.name(), "gone");
    assert_eq!(approval.state.by(), Some(&lab.state.caller().principal));
    assert!(!lab.file("claim").exists());
}

#[test]
fn recorded_approval_claim_of_a_dead_box_is_closed_as_answered() {
    let lab = Lab::new();
    lab.supervisor.is_unresponsive.store(true, Ordering::SeqCst);
    assert_fails(lab.answer(Verdict::Allow), ErrorKind::Broken, "no answer");
    let (ledger, bound_to) = (record::open(&lab.state).unwrap(), lab.supervisor.digest);
    let asked = |_| {
        let event = ApprovalAsked::new(TEXT.to_owned(), bound_to);
        ledger.record(Draft::new(event)).unwrap().index()
    };
    let event = (0..10).map(asked).find(|index| *index == 5).unwrap();
    let by = lab.state.caller().principal.to_string();
    let given = ApprovalGiven::new(by, "allow".to_owned(), bound_to);
    ledger.record(Draft::new(given).because_of_index(Some(event))).map(drop).unwrap();
    lab.supervisor.is_dead.store(true, Ordering::SeqCst);
    assert_eq!(lab.states(), ["allowed"]);
    let reader = Reader::open(&LedgerPaths::under(lab.state.home())).unwrap();
    let effects = reader.effects_of(event).unwrap();
    assert_eq!(effects.len(), 1, "no refusal contradicts the answer: {effects:?}");
}

#[test]
fn question_of_a_dead_box_is_closed_once_and_its_answers_are_refused() {
    let lab = Lab::new();
    lab.supervisor.is_dead.store(true, Ordering::SeqCst);
    let [approval] = &lab.open()[..] else { panic!("the call that closes the question lists it") };
    assert_eq!(approval.state.name(), "gone");
    assert!(lab.open().is_empty());
    assert_eq!(lab.states(), ["gone"]);
    assert_fails(lab.answer(Verdict::Allow), ErrorKind::WrongState, "not running any more");
}

#[test]
fn approval_answer_to_a_question_of_a_dead_box_closes_the_question() {
    let lab = Lab::new();
    lab.supervisor.is_dead.store(true, Ordering::SeqCst);
    assert_fails(
        lab.answer(Verdict::Allow),
        ErrorKind::WrongState,
        "box one is not running any more",
    );
    assert!(lab.file("answer").exists() && !lab.file("claim").exists());
}

#[test]
fn question_after_its_deadline_is_not_listed_and_its_answers_are_refused() {
    let lab = Lab::with_deadline(0);
    assert!(lab.open().is_empty());
    assert_eq!(lab.states(), ["expired"]);
    assert_fails(lab.answer(Verdict::Allow), ErrorKind::WrongState, "expired");
    assert!(!lab.file("claim").exists());
}

#[test]
fn unreadable_approval_files_are_listed_as_damaged() {
    let lab = Lab::new();
    let dir = lab.dir.path().join("approvals");
    fs::write(dir.join("readme.txt"), "x").unwrap();
    fs::write(dir.join(".half.new"), "x").unwrap();
    fs::write(lab.file("claim"), "{").unwrap();
    assert_eq!(lab.states(), ["damaged", "damaged"]);
    assert_fails(lab.answer(Verdict::Allow), ErrorKind::Damaged, "claim");
    fs::remove_file(lab.file("claim")).unwrap();
    fs::remove_file(lab.file("json")).unwrap();
    fs::write(lab.file("answer"), "{}").unwrap();
    assert_eq!(lab.states(), ["damaged", "damaged"]);
    assert_fails(
        lab.answer(Verdict::Allow),
        ErrorKind::NotFound,
        "no question with this number waits",
    );
}

#[test]
fn approval_id_has_exactly_one_valid_spelling() {
    let id = RequestId { run: RunId::new(1, 2), number: 3 };
    assert_eq!(id.to_string().parse(), Ok(id));
    for text in ["", "x", "../a-1", "skill:", "skill:../a", "skill:A"] {
        assert_eq!(text.parse::<ApprovalId>(), Err(ApprovalIdError), "{text}");
    }
    for number in ["03", "+3", "-3", "3 ", ""] {
        let text = format!("{}-{number}", id.run);
        assert_eq!(text.parse::<ApprovalId>(), Err(ApprovalIdError), "{text}");
    }
}

#[test]
fn remove_old_removes_approvals_closed_long_ago_and_keeps_open_ones() {
    let lab = Lab::new();
    assert_eq!(remove_old(&lab.state, Duration::ZERO, false).unwrap(), 0);
    lab.answer(Verdict::Allow).unwrap();
    assert_eq!(remove_old(&lab.state, RETENTION, false).unwrap(), 0);
    belljar_testkit::eventually("the age of the answer is greater than zero", || {
        remove_old(&lab.state, Duration::ZERO, true).unwrap() == 1
    });
    assert_eq!(lab.states(), ["allowed"]);
    assert_eq!(remove_old(&lab.state, Duration::ZERO, false).unwrap(), 1);
    assert!(lab.states().is_empty());
}

#[test]
fn approval_answer_of_a_principal_that_is_not_a_person_is_refused() {
    let lab = Lab::new();
    for principal in ["agent:a", "service:ci", "schedule:nightly"] {
        let caller = Caller { principal: principal.parse().unwrap(), ..Caller::local(0) };
        let state = lab.state.for_caller(caller).unwrap();
        let approvals = Approvals::new(&state, &lab.supervisor, &NoGates);
        let id = ApprovalId::Request(lab.supervisor.id);
        let answered = approvals.answer(&id, &lab.supervisor.digest, Verdict::Allow);
        assert_fails(answered, ErrorKind::Refused, "only a person");
    }
    assert_eq!(lab.states(), ["open"]);
}

/// Saves a version of a skill that wants access to a host, as a model would.
fn save(lab: &Lab, name: &str, host: &str) -> Digest {
    let draft = SkillDraft {
        description: "reads".to_owned(),
        code: format!("// wants: host {host}\nreturn 1"),
        language: belljar_wire::Dialect::Js,
        wants: belljar_code::skill::Wants {
            hosts: [host.parse().unwrap()].into(),
            ..Default::default()
        },
    };
    let skills = skills::open(&lab.state).unwrap();
    let author = Author::Caller { client: "m".to_owned(), session: String::new() };
    let saved = skills.save(&name.parse().unwrap(), draft, &author);
    skills::digest(&saved.unwrap().version).unwrap()
}

#[test]
fn waiting_skill_is_listed_and_accepts_exactly_one_answer() {
    let lab = Lab::new();
    for (name, verdict) in [("yes", Verdict::Allow), ("no", Verdict::Deny)] {
        let digest = save(&lab, name, "api.example.com");
        let query = ApprovalQuery { kind: Some(ApprovalKind::Skill), ..Default::default() };
        let [approval] = &lab.approvals().list(&query).unwrap()[..] else { panic!("one skill") };
        assert_eq!(approval.label, format!("skill:{name}"));
        let about = approval.about.as_ref().unwrap();
        assert_eq!(about.digest, digest);
        assert!(about.text.contains("wants host api.example.com"), "{}", about.text);
        let other = Digest::of(&[b"other"]);
        let answer = |digest| lab.approvals().answer(&about.id, digest, verdict.clone());
        assert_fails(answer(&other), ErrorKind::Conflict, "does not wait");
        answer(&digest).unwrap();
        assert!(lab.approvals().list(&query).unwrap().is_empty());
        let again = answer(&digest).unwrap_err();
        assert!(matches!(again.kind(), ErrorKind::Conflict | ErrorKind::NotFound), "{again:?}");
    }
    let skills = skills::open(&lab.state).unwrap();
    skills.get(&"yes".parse().unwrap()).unwrap();
    skills.get(&"no".parse().unwrap()).unwrap_err();
}

#[test]
fn index_lists_all_approvals_newest_first_and_reads_a_closed_one_once() {
    let lab = Lab::new();
    save(&lab, "web", "api.example.com");
    let files = gates::GateFiles::new(&lab.state);
    let now = lab.state.clock().millis();
    let (run, digest) = (RunId::new(1, 2), Digest::of(&[b"gate"]));
    let names = ("fix\u{202e}".to_owned(), "merge".to_owned());
    let question = "Take\nit?".to_owned();
    let times = (now + 1, now + 60_000);
    files.open(&gates::GateFile::new(digest, run, names, question, times)).unwrap();
    let index = index::ApprovalIndex::default();
    let list = || index.list(&lab.approvals()).unwrap();
    let shown = |all: &[std::sync::Arc<index::ApprovalEntry>]| -> Vec<String> {
        let text = |it: &std::sync::Arc<index::ApprovalEntry>| {
            format!("{} {} {}", it.asker, it.text, it.state.name())
        };
        all.iter().map(text).collect()
    };
    let first = list();
    let gate = "fix\\u{202e}/merge Take\\nit? open";
    let skill = shown(&first[2..]).remove(0);
    assert_eq!(shown(&first)[..2], [gate.to_owned(), format!("one {TEXT} open")]);
    assert!(skill.starts_with("skill:web skill web, version "), "{skill}");
    assert_eq!((first[0].run, first[1].run), (Some(run), Some(lab.supervisor.id.run)));
    lab.answer(Verdict::Deny).unwrap();
    let closed = list();
    assert_eq!(closed[1].state.name(), "denied");
    fs::write(lab.file("answer"), "{").unwrap();
    assert!(std::sync::Arc::ptr_eq(&list()[1], &closed[1]), "the file is not read again");
    for kind in ["json", "answer"] {
        fs::remove_file(lab.file(kind)).unwrap();
    }
    assert_eq!(list().len(), 2, "control: files that were removed are not listed");
}

#[test]
fn approval_is_found_by_its_id_with_the_complete_act() {
    let lab = Lab::new();
    let approvals = lab.approvals();
    let find = |id: &ApprovalId| index::find(&approvals, id).unwrap();
    let index::FoundApproval { entry, approval: full, .. } =
        find(&ApprovalId::Request(lab.supervisor.id)).unwrap();
    assert_eq!((entry.state, entry.digest), (ApprovalState::Open, lab.supervisor.digest));
    assert_eq!(full.about.unwrap().secrets, ["token"]);
    let other = RequestId { number: 2, ..lab.supervisor.id };
    assert_eq!(find(&ApprovalId::Request(other)), None);
    assert_eq!(find(&ApprovalId::Gate(Digest::of(&[b"x"]))), None);
    let id = ApprovalId::Skill("web".parse().unwrap());
    assert_eq!(find(&id), None);
    save(&lab, "web", "api.example.com");
    assert_eq!(find(&id).unwrap().entry.id, id);
}

#[test]
fn answer_is_refused_to_a_person_whom_the_rule_excludes_and_the_question_stays_open() {
    let mut lab = Lab::new();
    let (ada, bob): (Principal, Principal) =
        ("person:ada".parse().unwrap(), "person:bob".parse().unwrap());
    let terms = AnswerTerms { operator: true, two_people: true };
    lab.supervisor.rule = AnswerRule { terms, requester: Some(ada.clone()) };
    let answer = |role, person: &Principal| {
        let owns = |maker: &Principal| maker == person;
        let (id, digest) = (ApprovalId::Request(lab.supervisor.id), lab.supervisor.digest);
        let person = Answerer { role, owns: &owns };
        lab.approvals().answer_as(&id, &digest, Verdict::Allow, &person)
    };
    for (role, person) in [(Role::Member, &bob), (Role::Owner, &ada)] {
        let error = answer(role, person).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:#}");
        assert_eq!(lab.states(), ["open"]);
    }
    answer(Role::Operator, &bob).unwrap();
    assert_eq!(lab.states(), ["allowed"]);
}
