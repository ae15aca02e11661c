//! Tests of valid receipts of plans and of every kind of change to such a receipt.

use tempfile::TempDir;

use super::*;
use crate::body::{Committing, Salt};
use crate::event::*;
use crate::receipt::verify_receipt;
use crate::verify::sample::{Sample, key, run};

const PLAN: u32 = 1;
const FIRST: u32 = 2;
const SECOND: u32 = 3;
/// A box that was recorded as a start and never began.
const NEVER: u32 = 4;
const OTHER_PLAN: u32 = 5;
const OTHER_BOX: u32 = 6;

fn salt() -> Salt {
    Salt::new([9; 32])
}

fn commitment(content: &[u8]) -> (Digest, u64) {
    let mut committing = Committing::new(salt());
    committing.update(content);
    let body = committing.finish();
    (body.hash(), body.size())
}

fn begin_plan(sample: &mut Sample, number: u32) {
    let command = sample.body(b"{\"plan\":1}", false);
    let created = RunCreated {
        name: Some("fix-login".into()),
        template: "default".into(),
        mode: "read-only".into(),
        net: "none".into(),
        policy: Digest::of(&[b"policy"]),
        workspace: None,
        record: "hashes".into(),
        command,
        environment: Vec::new(),
        limits: Vec::new(),
        purpose: Some("plan".into()),
        principal: None,
        tenant: None,
        session: None,
        writable: None,
    };
    sample.add(Some(run(number)), created);
    let plan = Digest::of(&[b"files"]);
    sample.add(Some(run(number)), PlanAccepted { plan, policy: Digest::of(&[b"p"]), at: 1 });
}

fn start(sample: &mut Sample, plan: u32, task: &str, box_run: Option<u32>) {
    let started = TaskStarted {
        task: task.into(),
        attempt: 1,
        box_run: box_run.map(|number| run(number).to_string()),
        epoch: 1,
        tier: 0,
        lease: Vec::new(),
        inputs: Digest::of(&[b"inputs"]),
        at: 2,
    };
    sample.batch(|it| it.add(Some(run(plan)), started));
}

fn end(sample: &mut Sample, plan: u32, task: &str, output: Option<&[u8]>) {
    let output = output.map(commitment);
    let ended = TaskEnded {
        task: task.into(),
        attempt: 1,
        result: if output.is_some() { "done" } else { "lost" }.into(),
        reason: None,
        text: None,
        output: output.map(|(hash, _)| hash),
        output_bytes: output.map(|(_, size)| size),
        labels: None,
        selections: None,
        usage: None,
        at: 3,
    };
    sample.batch(|it| it.add(Some(run(plan)), ended));
}

/// Returns a ledger with a plan of three tasks and two boxes, and with another plan beside it.
fn ledger() -> Sample {
    let mut sample = Sample::empty();
    sample.batch(|it| it.add(None, LedgerCreated { version: "1".into(), reason: None }));
    sample.batch(|it| begin_plan(it, PLAN));
    sample.batch(|it| begin_plan(it, OTHER_PLAN));
    start(&mut sample, PLAN, "a", Some(FIRST));
    sample.batch(|it| it.begin(run(FIRST)));
    start(&mut sample, OTHER_PLAN, "x", Some(OTHER_BOX));
    sample.batch(|it| it.begin(run(OTHER_BOX)));
    let used = |host: &str| SecretUsed {
        name: "anthropic".into(),
        slot: "header".into(),
        host: host.into(),
    };
    sample.batch(|it| {
        it.add(Some(run(FIRST)), used("api.example.com"));
        it.add(Some(run(FIRST)), used("api.example.com"));
        it.end(run(FIRST));
    });
    end(&mut sample, PLAN, "a", Some(b"output of a"));
    sample.rotate(2);
    start(&mut sample, PLAN, "b", Some(NEVER));
    end(&mut sample, PLAN, "b", None);
    start(&mut sample, PLAN, "b", Some(SECOND));
    sample.batch(|it| {
        it.begin(run(SECOND));
        it.end(run(OTHER_BOX));
        it.end(run(SECOND));
    });
    end(&mut sample, PLAN, "b", Some(b"output of b"));
    let given = ApprovalGiven::new("user:1".into(), "allow".into(), Digest::of(&[b"gate"]));
    let given = ApprovalGiven { task: Some("gate".into()), attempt: Some(1), at: Some(4), ..given };
    sample.batch(|it| it.add(Some(run(PLAN)), given));
    sample.batch(|it| {
        it.add(Some(run(PLAN)), PlanEnded { outcome: "succeeded".into(), at: 5 });
        it.add(Some(run(OTHER_PLAN)), PlanEnded { outcome: "succeeded".into(), at: 5 });
    });
    sample
}

fn make(number: u32, more: Option<Vec<Disclosure>>) -> PlanReceipt {
    let home = TempDir::new().unwrap();
    let paths = ledger().write(home.path());
    PlanReceipt::make(&paths, run(number), more).unwrap()
}

/// Returns the contents that the engine stores outside of the ledger.
fn contents() -> Vec<Disclosure> {
    let output = |content: &[u8]| Disclosure {
        hash: commitment(content).0,
        salt: Some(salt()),
        content: content.to_vec(),
    };
    let created = Entry::decode(&make(PLAN, None).chains[0].events[0]).unwrap();
    let plan = created.fields.bodies().next().unwrap().hash();
    let plan = Disclosure { hash: plan, salt: None, content: b"{\"plan\":1}".to_vec() };
    vec![output(b"output of a"), plan, output(b"output of b")]
}

fn trusted() -> [VerifyingKey; 2] {
    [key(1).verifying(), key(2).verifying()]
}

#[test]
fn plan_receipt_proves_tasks_boxes_approvals_and_credential_uses_of_one_run_only() {
    let text = make(PLAN, None).to_text();
    assert!(is_plan_receipt(&text));
    let verified = verify_plan_receipt(&text, &trusted()[..1]).unwrap();
    assert_eq!(verified.run(), Some(run(PLAN)));
    assert_eq!(verified.created().unwrap().name.as_deref(), Some("fix-login"));
    assert_eq!(verified.accepted(), Some(Digest::of(&[b"files"])));
    assert_eq!(verified.outcome(), Some("succeeded"));
    let boxes: Vec<_> = verified.boxes().iter().map(|(run, all)| (*run, all.len())).collect();
    assert_eq!(boxes, [(run(FIRST), 4), (run(NEVER), 0), (run(SECOND), 2)]);
    assert_eq!(verified.events().count(), 16);
    assert!(verified.events().all(|entry| entry.run != Some(run(OTHER_BOX))));
    let tasks = verified.tasks();
    let summary: Vec<_> =
        tasks.iter().map(|task| (task.name.as_str(), task.attempts, task.output)).collect();
    let (a, b) = (commitment(b"output of a"), commitment(b"output of b"));
    assert_eq!(summary, [("a", 1, Some(a)), ("b", 2, Some(b)), ("gate", 0, None)]);
    assert_eq!(verified.approvals(), 1);
    assert_eq!(verified.credential_uses(), [("anthropic".to_owned(), 2)].into());
    assert_eq!(verified.content(a.0), None, "nothing is disclosed");
    let [line] = verified.checkpoint().extensions() else { panic!("one extension line") };
    assert!(line.starts_with(&format!("belljar plan {} 4 16 ", run(PLAN))), "{line}");
    assert!(line.ends_with(" ended"), "{line}");
    // The single run is not a plan, and its receipt is another file.
    let single = verify_receipt(&text, &trusted()).unwrap_err();
    assert!(matches!(single, ReceiptError::Json(_)), "{single:?}");
}

/// Other verifiers are tested with these files, and each version must verify them.
#[test]
fn plan_receipt_is_equal_to_the_stored_file_of_format_3() {
    let stored = [include_str!("golden.receipt"), include_str!("golden_other.receipt")];
    let made = [make(PLAN, Some(contents())), make(OTHER_PLAN, None)].map(|it| it.to_text());
    for (stored, made) in stored.into_iter().zip(&made) {
        assert_eq!(stored, made);
        verify_plan_receipt(stored, &trusted()).unwrap();
    }
}

#[test]
fn plan_receipt_discloses_plan_and_outputs_on_request_and_ignores_changed_contents() {
    let mut all = contents();
    let text = make(PLAN, Some(all.clone())).to_text();
    let verified = verify_plan_receipt(&text, &trusted()).unwrap();
    for disclosure in &all {
        assert_eq!(verified.content(disclosure.hash), Some(disclosure.content.as_slice()));
    }
    let changed = all[0].hash;
    all[0].content = b"forged".to_vec();
    all.push(Disclosure { hash: Digest::of(&[b"?"]), salt: Some(salt()), content: Vec::new() });
    let verified = verify_plan_receipt(&make(PLAN, Some(all)).to_text(), &trusted()).unwrap();
    assert_eq!(verified.content(changed), None);
    // A redacted plan text has no salt any more.
    let home = TempDir::new().unwrap();
    let mut sample = ledger();
    let plan = contents().remove(1);
    sample.erased.push(plan.hash);
    let paths = sample.write(home.path());
    let receipt = PlanReceipt::make(&paths, run(PLAN), Some(vec![plan.clone()])).unwrap();
    let verified = verify_plan_receipt(&receipt.to_text(), &trusted()).unwrap();
    assert_eq!(verified.content(plan.hash), None);
}

#[test]
fn plan_receipt_of_an_open_plan_has_the_events_so_far() {
    let home = TempDir::new().unwrap();
    let mut sample = Sample::empty();
    sample.batch(|it| begin_plan(it, PLAN));
    start(&mut sample, PLAN, "a", Some(FIRST));
    let paths = sample.write(home.path());
    let receipt = PlanReceipt::make(&paths, run(PLAN), None).unwrap();
    let verified = verify_plan_receipt(&receipt.to_text(), &trusted()).unwrap();
    assert_eq!((verified.outcome(), verified.boxes().len()), (None, 1));
    assert!(verified.checkpoint().extensions()[0].ends_with(" open"));
}

#[test]
fn plan_receipt_of_a_single_run_is_refused() {
    let home = TempDir::new().unwrap();
    let paths = ledger().write(home.path());
    let error = PlanReceipt::make(&paths, run(FIRST), None).unwrap_err();
    assert!(matches!(error, ReceiptError::NotPlan { .. }), "{error:?}");
    let error = PlanReceipt::make(&paths, run(77), None).unwrap_err();
    assert!(matches!(error, ReceiptError::NoRun { .. }), "{error:?}");
}

/// Changes the parts of a valid receipt and returns the error; the spelling stays canonical.
#[track_caller]
fn refused(change: impl FnOnce(&mut PlanReceipt)) -> ReceiptError {
    let mut receipt = make(PLAN, Some(contents()));
    verify_plan_receipt(&receipt.to_text(), &trusted()).unwrap();
    change(&mut receipt);
    verify_plan_receipt(&receipt.to_text(), &trusted()).unwrap_err()
}

#[test]
fn h02_plan_receipt_without_a_box_or_with_another_box_is_refused() {
    for place in 1..4 {
        let error = refused(|receipt| drop(receipt.chains.remove(place)));
        assert!(matches!(error, ReceiptError::ChainMissing { .. }), "{error:?}");
    }
    let error = refused(|receipt| drop(receipt.chains.remove(0)));
    assert!(matches!(error, ReceiptError::ChainMissing { .. }), "{error:?}");
    let error = refused(|receipt| receipt.chains.clear());
    assert!(matches!(error, ReceiptError::ChainMissing { .. }), "{error:?}");
    // The chains of another run of the same ledger are valid by themselves.
    let other = make(OTHER_PLAN, None);
    let error = refused(|receipt| receipt.chains[1] = other.chains[1].clone());
    assert!(matches!(error, ReceiptError::ChainMissing { run: id } if id == run(FIRST)));
    let error = refused(|receipt| receipt.chains.push(other.chains[1].clone()));
    assert!(matches!(error, ReceiptError::ChainUnnamed { run: id } if id == run(OTHER_BOX)));
    let error = refused(|receipt| receipt.chains.push(receipt.chains[1].clone()));
    assert!(matches!(error, ReceiptError::ChainUnnamed { run: id } if id == run(FIRST)));
    let error = refused(|receipt| receipt.chains.swap(1, 3));
    assert!(matches!(error, ReceiptError::ChainUnnamed { .. }), "{error:?}");
    let error = refused(|receipt| receipt.chains[0] = other.chains[0].clone());
    assert!(matches!(error, ReceiptError::ChainMissing { .. }), "{error:?}");
    let error = refused(|receipt| receipt.chains[1].run = run(OTHER_BOX));
    assert!(matches!(error, ReceiptError::Link { .. }), "{error:?}");
    // The whole content of another receipt under this run, and a box in place of the plan.
    let error = refused(|receipt| receipt.run = run(OTHER_PLAN));
    assert!(matches!(error, ReceiptError::ChainMissing { .. }), "{error:?}");
    let error = refused(|receipt| {
        receipt.run = run(FIRST);
        receipt.chains.remove(0);
    });
    assert!(matches!(error, ReceiptError::NotPlan { .. }), "{error:?}");
}

#[test]
fn h02_plan_receipt_with_a_removed_event_is_refused() {
    for chain in [0, 1, 3] {
        let length = make(PLAN, None).chains[chain].events.len();
        for event in 0..length {
            let error = refused(|receipt| drop(receipt.chains[chain].events.remove(event)));
            let is_last = event + 1 == length;
            let is_named = if is_last {
                matches!(error, ReceiptError::ChainProof { .. })
            } else {
                matches!(error, ReceiptError::Link { .. })
            };
            assert!(is_named, "chain {chain}, event {event}: {error:?}");
        }
    }
    // An emptied chain claims that the box was never started.
    let error = refused(|receipt| {
        let run = receipt.chains[1].run;
        receipt.chains[1] = Chain { run, index: 0, proof: Vec::new(), events: Vec::new() };
    });
    assert!(matches!(error, ReceiptError::Extent), "{error:?}");
    let error = refused(|receipt| receipt.chains[1].events.clear());
    assert!(matches!(error, ReceiptError::Value { .. }), "{error:?}");
    let error = refused(|receipt| receipt.chains[1].events.swap(1, 2));
    assert!(matches!(error, ReceiptError::Link { .. }), "{error:?}");
}

/// Cuts a box's last event off; the rest is a chain whose last event is in the tree.
#[test]
fn h02_plan_receipt_whose_last_events_were_cut_off_is_refused() {
    // An older receipt of the same plan has the proof for the shorter chain, but an older checkpoint.
    let home = TempDir::new().unwrap();
    let sample = ledger();
    let paths = sample.write(home.path());
    let tree = crate::receipt::make::gather(
        &crate::log::Log::open(&paths.log()).unwrap(),
        make(PLAN, None).checkpoint.lines().nth(1).unwrap().parse().unwrap(),
        run(FIRST),
    )
    .unwrap();
    let size = make(PLAN, None).checkpoint.lines().nth(1).unwrap().parse().unwrap();
    let (index, _) = tree.events[2];
    let proof = crate::merkle::inclusion(&tree.tree, index, size).ok().flatten().unwrap();
    let error = refused(|receipt| {
        receipt.chains[1].events.truncate(3);
        receipt.chains[1].index = index;
        receipt.chains[1].proof = proof;
    });
    assert!(matches!(error, ReceiptError::Extent), "{error:?}");
    // The checkpoint of the ledger or of another receipt does not name these events.
    let plain = sample.head(sample.batches.len(), 1).note;
    let error = refused(|receipt| receipt.checkpoint = plain);
    assert!(matches!(error, ReceiptError::Extent), "{error:?}");
    let other = make(OTHER_PLAN, None).checkpoint;
    let error = refused(|receipt| receipt.checkpoint = other);
    assert!(matches!(error, ReceiptError::Extent), "{error:?}");
}

#[test]
fn plan_receipt_with_a_changed_proof_key_or_body_is_refused() {
    let error = refused(|receipt| receipt.chains[1].index += 1);
    assert!(matches!(error, ReceiptError::ChainProof { .. }), "{error:?}");
    let error = refused(|receipt| receipt.chains[3].proof.truncate(1));
    assert!(matches!(error, ReceiptError::ChainProof { .. }), "{error:?}");
    let error = refused(|receipt| receipt.chains[2].index = 3);
    assert!(matches!(error, ReceiptError::Value { .. }), "{error:?}");
    let error = refused(|receipt| receipt.rotations[0].endorsement[5] ^= 1);
    assert!(matches!(error, ReceiptError::Rotation), "{error:?}");
    let error = refused(|receipt| receipt.bodies[0].content = b"other".to_vec());
    assert!(matches!(error, ReceiptError::BodyContent { .. }), "{error:?}");
    let error = refused(|receipt| receipt.bodies[0].hash = Digest::of(&[b"x"]));
    assert!(matches!(error, ReceiptError::BodyUnnamed { .. }), "{error:?}");
    let text = make(PLAN, None).to_text();
    let error = verify_plan_receipt(&text, &[key(9).verifying()]).unwrap_err();
    assert!(matches!(error, ReceiptError::UntrustedKey { .. }), "{error:?}");
}

#[test]
fn h07_verify_plan_receipt_detects_changed_bytes_and_truncation() {
    let text = make(PLAN, Some(contents())).to_text();
    // Each receipt costs two signatures; a step without common factors reaches all parts.
    for place in (0..text.len()).step_by(7) {
        let mut bytes = text.clone().into_bytes();
        bytes[place] ^= 1 << (place % 7);
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        assert!(verify_plan_receipt(&changed, &trusted()).is_err(), "byte {place}: {changed}");
    }
    for length in (0..text.len()).step_by(11).chain([text.len() - 1]) {
        let Some(cut) = text.get(..length) else { continue };
        assert!(verify_plan_receipt(cut, &trusted()).is_err(), "{length} bytes");
    }
    let spaced = text.replacen("\"run\":", "\"run\": ", 1);
    let error = verify_plan_receipt(&spaced, &trusted()).unwrap_err();
    assert!(matches!(error, ReceiptError::Spelling), "{error:?}");
}

proptest::proptest! {
    #[test]
    fn plan_receipt_parser_never_panics(rest in "[\\[\\]{}\":,a-z0-9]*") {
        let text = format!("{START}{rest}");
        proptest::prop_assert!(verify_plan_receipt(&text, &[]).is_err());
    }
}
