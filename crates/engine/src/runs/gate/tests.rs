use std::collections::BTreeSet;

use super::*;

fn digest(text: &str) -> Digest {
    Digest::of(&[text.as_bytes()])
}

#[test]
fn digest_of_a_gate_changes_with_every_part_of_its_content() {
    let (gate, other): (TaskId, TaskId) = ("merge".parse().unwrap(), "push".parse().unwrap());
    let (one, two) = ([digest("spec")], [digest("spec"), digest("more")]);
    let bound = Bound {
        run: RunId::new(1, 1),
        plan: digest("plan"),
        gate: &gate,
        item: None,
        inputs: digest("inputs"),
        dependents: &one,
        policy: digest("policy"),
    };
    let all = [
        bound.clone(),
        Bound { run: RunId::new(1, 2), ..bound.clone() },
        Bound { plan: digest("other"), ..bound.clone() },
        Bound { gate: &other, ..bound.clone() },
        Bound { item: Some(0), ..bound.clone() },
        Bound { item: Some(1), ..bound.clone() },
        Bound { inputs: digest("other"), ..bound.clone() },
        Bound { dependents: &[], ..bound.clone() },
        Bound { dependents: &two, ..bound.clone() },
        Bound { policy: digest("other"), ..bound.clone() },
    ];
    let digests: BTreeSet<Digest> = all.iter().map(Bound::digest).collect();
    assert_eq!(digests.len(), all.len());
    assert_eq!(bound.digest(), bound.clone().digest());
}

#[test]
fn bytes_of_a_gate_are_unchanged() {
    let gate: TaskId = "merge".parse().unwrap();
    let bound = Bound {
        run: RunId::new(1, 1),
        plan: Digest::new([1; 32]),
        gate: &gate,
        item: Some(2),
        inputs: Digest::new([2; 32]),
        dependents: &[Digest::new([3; 32])],
        policy: Digest::new([4; 32]),
    };
    let mut expect = b"belljar gate 1\0".to_vec();
    for part in [b"0000000004000001".as_slice(), &[1; 32], b"merge", &[0, 0, 0, 2], &[2; 32]] {
        expect.extend([0, 0, 0, 0, 0, 0, 0, u8::try_from(part.len()).unwrap()]);
        expect.extend(part);
    }
    expect.extend([0, 0, 0, 0, 0, 0, 0, 1]);
    for part in [[3; 32], [4; 32]] {
        expect.extend([0, 0, 0, 0, 0, 0, 0, 32]);
        expect.extend(part);
    }
    assert_eq!(bound.bytes(), expect);
}

#[test]
fn digest_of_inputs_depends_on_task_item_and_content() {
    let (a, ab): (TaskId, TaskId) = ("a".parse().unwrap(), "ab".parse().unwrap());
    let (x, y) = (digest("x"), digest("y"));
    let of = |outputs: &[(&TaskId, Option<u32>, &Digest)]| inputs_digest(outputs.iter().copied());
    let all = [
        of(&[]),
        of(&[(&a, None, &x)]),
        of(&[(&ab, None, &x)]),
        of(&[(&a, Some(0), &x)]),
        of(&[(&a, None, &y)]),
        of(&[(&a, None, &x), (&ab, None, &y)]),
        of(&[(&ab, None, &y), (&a, None, &x)]),
    ];
    assert_eq!(BTreeSet::from(all).len(), all.len());
}

#[test]
fn g05_h14_only_a_person_outside_of_all_runs_may_answer() {
    let check = |principal: &str, run, expect| {
        let sender = Sender { principal: principal.parse().unwrap(), run };
        assert_eq!(may_answer(&sender), expect, "{principal}");
    };
    check("user:1000", None, Ok(()));
    check("person:https://id.example#42", None, Ok(()));
    check("service:ci", None, Err(SenderError::NoPerson(PrincipalKind::Service)));
    check("agent:claude", None, Err(SenderError::NoPerson(PrincipalKind::Agent)));
    check("schedule:nightly", None, Err(SenderError::NoPerson(PrincipalKind::Schedule)));
    for principal in ["user:1000", "person:x", "agent:claude"] {
        check(principal, Some(RunId::new(1, 1)), Err(SenderError::FromRun));
    }
}
