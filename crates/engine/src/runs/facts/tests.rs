use belljar_ledger::{Fields, Value};
use belljar_model::RunId;
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};

use super::*;
use crate::runs::machine::{CheckKind, CheckOutcome, CheckResult};
use crate::runs::taint::GrantName;

fn digests() -> impl Strategy<Value = Digest> {
    any::<[u8; 32]>().prop_map(Digest::new)
}

fn refs() -> impl Strategy<Value = TaskRef> {
    ("[a-z0-9][a-z0-9_-]{0,62}", proptest::option::of(any::<u32>()))
        .prop_map(|(task, item)| TaskRef { task: task.parse().unwrap(), item })
}

fn tries() -> impl Strategy<Value = Try> {
    (refs(), any::<u32>()).prop_map(|(TaskRef { task, item }, attempt)| Try { task, item, attempt })
}

fn principals() -> impl Strategy<Value = Principal> {
    prop_oneof![any::<u32>().prop_map(Principal::user), Just("person:x#1".parse().unwrap())]
}

fn limits() -> impl Strategy<Value = Limits> {
    proptest::collection::vec(proptest::option::of(any::<u64>()), Unit::ALL.len()).prop_map(
        |values| {
            let units = Unit::ALL.into_iter().zip(values);
            units.fold(Limits::default(), |limits, (unit, value)| limits.with(unit, value))
        },
    )
}

fn usage() -> impl Strategy<Value = Option<Amounts>> {
    proptest::option::of(limits().prop_map(|limits| limits.amounts()))
}

fn used_up() -> impl Strategy<Value = Option<Box<UsedUp>>> {
    let parts = (".{0,20}", one_of(&Unit::ALL), any::<u64>(), proptest::option::of(any::<u64>()));
    proptest::option::of(parts.prop_map(|(budget, unit, cap, renews)| {
        Box::new(UsedUp { budget, unit, cap, renews: renews.map(Moment) })
    }))
}

fn outputs() -> impl Strategy<Value = Output> {
    let labels = proptest::collection::btree_set("[a-z]{1,9}", 0..4);
    let selections = proptest::collection::vec(any::<u16>(), 0..9);
    (digests(), any::<u64>(), labels, selections).prop_map(|(digest, size, labels, selections)| {
        Output {
            digest,
            size,
            labels: labels.iter().map(|label| label.parse().unwrap()).collect(),
            selections: Selections(selections),
        }
    })
}

fn checks() -> impl Strategy<Value = Checks> {
    let model = proptest::option::of(".{1,20}");
    let result = (any::<u32>(), one_of(CheckKind::ALL), one_of(CheckOutcome::ALL), model);
    let result = result.prop_map(|(check, kind, outcome, model)| {
        CheckResult::new(check, kind, outcome, model.as_deref())
    });
    (any::<Vec<u32>>(), proptest::collection::vec(result, 0..9)).prop_map(|(boxes, results)| {
        let boxes = boxes.into_iter().map(|number| RunId::new(7, number)).collect();
        Checks { boxes, results }
    })
}

fn one_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(all)
}

fn kinds() -> impl Strategy<Value = FactKind> {
    let moment = || any::<u64>().prop_map(Moment);
    let ended = prop_oneof![
        outputs().prop_map(Ended::Done),
        (one_of(FailReason::ALL), ".{0,20}")
            .prop_map(|(reason, text)| Ended::Failed { reason, text }),
        one_of(Evidence::ALL).prop_map(Ended::Lost),
    ];
    let verdict = prop_oneof![
        Just(Verdict::Passed),
        (any::<u32>(), ".{0,20}").prop_map(|(check, text)| Verdict::Rejected { check, text }),
    ];
    let settled = prop_oneof![
        Just(Settled::Rerun),
        Just(Settled::Failed),
        outputs().prop_map(Settled::Done),
    ];
    let grants = prop_oneof![
        "[a-z]{1,9}".prop_map(|name| GrantName::Secret(name.parse().unwrap())),
        ".{0,20}".prop_map(GrantName::Rule),
    ];
    let box_run =
        proptest::option::of((0_u64..1 << 48, any::<u32>()).prop_map(|(a, b)| RunId::new(a, b)));
    prop_oneof![
        (digests(), digests()).prop_map(|(plan, policy)| FactKind::PlanAccepted { plan, policy }),
        any::<u64>().prop_map(|epoch| FactKind::DriverOpened { epoch }),
        (tries(), box_run, any::<u64>(), any::<u32>(), limits(), digests()).prop_map(
            |(of, box_run, epoch, tier, lease, inputs)| FactKind::TaskStarted {
                of,
                box_run,
                epoch,
                tier,
                lease,
                inputs
            }
        ),
        (tries(), grants, "[a-z]{1,9}", proptest::collection::vec(".{0,20}", 0..3)).prop_map(
            |(of, grant, label, from)| {
                let label = label.parse().unwrap();
                FactKind::GrantRemoved { of, removed: Removed { grant, label, from } }
            }
        ),
        (tries(), ended, usage()).prop_map(|(of, end, usage)| FactKind::TaskEnded {
            of,
            end,
            usage
        }),
        (tries(), verdict, usage(), checks()).prop_map(|(of, verdict, usage, checks)| {
            FactKind::TaskJudged { of, verdict, usage, checks }
        }),
        (tries(), any::<u32>(), moment(), any::<u64>())
            .prop_map(|(of, tier, due, jitter)| FactKind::TaskRetrying { of, tier, due, jitter }),
        (tries(), one_of(Evidence::ALL))
            .prop_map(|(of, evidence)| FactKind::TaskLost { of, evidence }),
        (refs(), one_of(StopReason::ALL), usage(), used_up(), any::<Vec<u32>>()).prop_map(
            |(of, reason, usage, used_up, boxes)| {
                let boxes = boxes.into_iter().map(|number| RunId::new(7, number)).collect();
                FactKind::TaskStopped { of, reason, usage, used_up, boxes }
            }
        ),
        (tries(), digests(), moment()).prop_map(|(of, digest, deadline)| FactKind::ApprovalAsked {
            of,
            digest,
            deadline
        }),
        (tries(), digests(), principals(), any::<bool>(), outputs()).prop_map(
            |(of, digest, by, edited, output)| FactKind::ApprovalGiven {
                of,
                digest,
                by,
                edited,
                output
            }
        ),
        (tries(), digests(), one_of(RefusedBecause::ALL), proptest::option::of(principals()))
            .prop_map(|(of, digest, why, by)| FactKind::ApprovalRefused {
                of,
                digest,
                why,
                text: by.as_ref().map(ToString::to_string),
                by
            }),
        (tries(), settled, principals()).prop_map(|(of, how, by)| FactKind::AttentionSettled {
            of,
            how,
            by
        }),
        (tries(), limits()).prop_map(|(of, more)| FactKind::BudgetLeased { of, more }),
        (proptest::option::of(refs()), principals())
            .prop_map(|(of, by)| FactKind::PlanCancelling { of, by }),
        one_of(Outcome::ALL).prop_map(|outcome| FactKind::PlanEnded { outcome }),
    ]
}

fn read(event: &Event, fields: &Fields) -> Result<Option<Fact>, FactError> {
    fact(&Event::read(event.kind(), fields).unwrap())
}

proptest! {
    #[test]
    fn every_fact_survives_a_round_trip_through_its_event(at in any::<u64>(), kind in kinds()) {
        let written = Fact { at: Moment(at), kind };
        let event = event(&written);
        prop_assert_eq!(read(&event, &event.fields()), Ok(Some(written)));
    }

    #[test]
    fn unknown_fields_of_newer_versions_are_ignored(at in any::<u64>(), kind in kinds()) {
        let written = Fact { at: Moment(at), kind };
        let event = event(&written);
        let mut fields = event.fields();
        fields.set("zz_new", Value::Text("of a newer version".to_owned()));
        fields.set("aa_new", Value::Number(7));
        prop_assert_eq!(read(&event, &fields), Ok(Some(written)));
    }
}

fn of() -> Try {
    Try { task: "fix".parse().unwrap(), item: Some(1), attempt: 2 }
}

fn output() -> Output {
    Output {
        digest: Digest::new([0; 32]),
        size: 3,
        labels: ["model".parse().unwrap()].into(),
        selections: Selections(vec![1, 0xffff]),
    }
}

/// The names and texts of the fields of an event. Digests are left out.
fn shown(kind: FactKind) -> String {
    let event = event(&Fact { at: Moment(9), kind });
    let fields: Vec<String> = event
        .fields()
        .iter()
        .map(|(name, value)| match value {
            Value::Text(text) => format!("{name}={text}"),
            Value::Number(number) => format!("{name}={number}"),
            Value::List(items) => {
                let items: Vec<_> =
                    items.iter().map(|item| String::from_utf8_lossy(item)).collect();
                format!("{name}=[{}]", items.join(","))
            }
            Value::Bytes(bytes) => format!("{name}={}", hex::encode(bytes)),
            Value::Truth(truth) => format!("{name}={truth}"),
            Value::Hash(_) | Value::Body(_) => name.to_owned(),
        })
        .collect();
    format!("{} {}", event.kind(), fields.join(" "))
}

#[test]
fn kinds_and_fields_of_facts_are_unchanged() {
    let (digest, by) = (Digest::new([0; 32]), Principal::user(1000));
    let lease = Limits::default().with(Unit::Tokens, Some(5)).with(Unit::Boxes, Some(1));
    let usage = Some(Amounts::default().with(Unit::Money, 7));
    let check = |kind, expect: &str| assert_eq!(shown(kind), expect);
    check(
        FactKind::PlanAccepted { plan: digest, policy: digest },
        "plan.accepted at=9 plan policy",
    );
    check(FactKind::DriverOpened { epoch: 3 }, "driver.opened at=9 epoch=3");
    check(
        FactKind::TaskStarted {
            of: of(),
            box_run: Some(RunId::new(0, 1)),
            epoch: 3,
            tier: 1,
            lease,
            inputs: digest,
        },
        "task.started at=9 attempt=2 box_run=0000000000000001 epoch=3 inputs lease=[tokens=5,boxes=1] task=fix[1] tier=1",
    );
    let removed = Removed {
        grant: GrantName::Secret("deploy".parse().unwrap()),
        label: "untrusted".parse().unwrap(),
        from: vec!["input.issue".to_owned()],
    };
    check(
        FactKind::GrantRemoved { of: of(), removed },
        "grant.removed at=9 attempt=2 from=[input.issue] grant=secret deploy label=untrusted task=fix[1]",
    );
    check(
        FactKind::TaskEnded { of: of(), end: Ended::Done(output()), usage },
        "task.ended at=9 attempt=2 labels=[model] output output_bytes=3 result=done selections=0001ffff task=fix[1] usage=[money=7]",
    );
    let failed = Ended::Failed { reason: FailReason::Exit, text: "no".to_owned() };
    check(
        FactKind::TaskEnded { of: of(), end: failed, usage: None },
        "task.ended at=9 attempt=2 reason=exit result=failed task=fix[1] text=no",
    );
    check(
        FactKind::TaskEnded { of: of(), end: Ended::Lost(Evidence::NoEffect), usage: None },
        "task.ended at=9 attempt=2 reason=no_effect result=lost task=fix[1]",
    );
    check(
        FactKind::TaskJudged {
            of: of(),
            verdict: Verdict::Rejected { check: 1, text: "no".to_owned() },
            usage,
            checks: Checks::default(),
        },
        "task.judged at=9 attempt=2 check=1 task=fix[1] text=no usage=[money=7] verdict=rejected",
    );
    check(
        FactKind::TaskJudged {
            of: of(),
            verdict: Verdict::Passed,
            usage: None,
            checks: Checks {
                boxes: vec![RunId::new(0, 1), RunId::new(0, 2)],
                results: vec![
                    CheckResult::new(0, CheckKind::Model, CheckOutcome::Passed, Some("large")),
                    CheckResult::new(1, CheckKind::Verify, CheckOutcome::Confirmed, None),
                ],
            },
        },
        "task.judged at=9 attempt=2 box_runs=[0000000000000001,0000000000000002] checks=[0 model passed large,1 verify confirmed] task=fix[1] verdict=passed",
    );
    check(
        FactKind::TaskRetrying { of: of(), tier: 1, due: Moment(11), jitter: 1 },
        "task.retrying at=9 attempt=2 due=11 jitter=1 task=fix[1] tier=1",
    );
    check(
        FactKind::TaskLost { of: of(), evidence: Evidence::MayHaveEffect },
        "task.lost at=9 attempt=2 evidence=may_have_effect task=fix[1]",
    );
    check(
        FactKind::TaskStopped {
            of: of().instance(),
            reason: StopReason::InputFailed,
            usage: None,
            used_up: None,
            boxes: Vec::new(),
        },
        "task.stopped at=9 reason=input_failed state=stopped task=fix[1]",
    );
    let used_up = UsedUp {
        budget: "tenant local".into(),
        unit: Unit::Money,
        cap: 7,
        renews: Some(Moment(8)),
    };
    check(
        FactKind::TaskStopped {
            of: of().instance(),
            reason: StopReason::Budget,
            usage: None,
            used_up: Some(Box::new(used_up)),
            boxes: vec![RunId::new(0, 1)],
        },
        "task.stopped at=9 box_runs=[0000000000000001] budget=tenant local cap=7 reason=budget renews=8 state=stopped task=fix[1] unit=money",
    );
    check(
        FactKind::ApprovalAsked { of: of(), digest, deadline: Moment(99) },
        "approval.asked at=9 attempt=2 bound_to deadline=99 task=fix[1] what=gate fix[1]",
    );
    check(
        FactKind::ApprovalGiven {
            of: of(),
            digest,
            by: by.clone(),
            edited: true,
            output: output(),
        },
        "approval.given at=9 attempt=2 bound_to by=user:1000 labels=[model] output output_bytes=3 selections=0001ffff task=fix[1] verdict=edit",
    );
    check(
        FactKind::ApprovalRefused {
            of: of(),
            digest,
            why: RefusedBecause::Expired,
            by: None,
            text: None,
        },
        "approval.refused at=9 attempt=2 bound_to task=fix[1] why=timeout",
    );
    check(
        FactKind::ApprovalRefused {
            of: of(),
            digest,
            why: RefusedBecause::Labels,
            by: None,
            text: Some("untrusted (input.issue)".to_owned()),
        },
        "approval.refused at=9 attempt=2 bound_to task=fix[1] text=untrusted (input.issue) why=labels",
    );
    check(
        FactKind::AttentionSettled { of: of(), how: Settled::Rerun, by: by.clone() },
        "attention.settled at=9 attempt=2 by=user:1000 how=rerun reason=fix[1]: rerun task=fix[1]",
    );
    check(
        FactKind::BudgetLeased { of: of(), more: lease },
        "budget.leased at=9 attempt=2 lease=[tokens=5,boxes=1] task=fix[1]",
    );
    check(FactKind::PlanCancelling { of: None, by }, "plan.cancelling at=9 by=user:1000");
    check(
        FactKind::PlanEnded { outcome: Outcome::OverBudget },
        "plan.ended at=9 outcome=over_budget",
    );
}

#[test]
fn approval_of_a_box_is_not_a_fact_of_a_run() {
    let asked = ApprovalAsked::new("GET example.com".to_owned(), Digest::new([0; 32]));
    assert_eq!(fact(&asked.into()), Ok(None));
    let settled = AttentionSettled::new("checked by hand".to_owned());
    assert_eq!(fact(&settled.into()), Ok(None));
}

#[test]
fn unknown_value_is_refused_with_kind_and_field() {
    let mut event = PlanEnded { outcome: "succeeded".to_owned(), at: 1 };
    assert!(fact(&event.clone().into()).is_ok());
    event.outcome = "unheard_of".to_owned();
    let error = fact(&event.into()).unwrap_err();
    assert_eq!(error, FactError { kind: "plan.ended", field: "outcome" });
    let leased =
        BudgetLeased { task: "a".into(), attempt: 1, lease: vec!["joule=1".into()], at: 1 };
    assert_eq!(fact(&leased.into()), Err(FactError { kind: "budget.leased", field: "lease" }));
}

#[test]
fn fact_with_the_most_selections_fits_into_one_event() {
    let selections = Selections(vec![1; 20_000]);
    let text = "x".repeat(4096);
    let facts = [
        FactKind::TaskEnded {
            of: of(),
            end: Ended::Done(Output { selections, ..output() }),
            usage: None,
        },
        FactKind::TaskEnded {
            of: of(),
            end: Ended::Failed { reason: FailReason::Exit, text },
            usage: None,
        },
    ];
    for kind in facts {
        let event = event(&Fact { at: Moment(0), kind });
        let entry = belljar_ledger::Entry {
            kind: event.kind().to_owned(),
            run: Some(RunId::new(0, 1)),
            sequence: 1,
            previous: Some(Digest::new([1; 32])),
            actor: belljar_ledger::Actor::Engine,
            cause: None,
            moment: belljar_ledger::Moment { time: 0, uptime: 0, boot: [0; 16] },
            fields: event.fields(),
        };
        assert!(entry.encode().is_ok());
    }
}
