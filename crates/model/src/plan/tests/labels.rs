//! Tests of labels in plans.

use super::*;

#[track_caller]
fn refused(text: &str, expect: &str) {
    assert_eq!(check(text).unwrap_err(), format!("p.toml:{expect}"));
}

#[test]
fn gate_and_task_can_name_labels() {
    let text = "[run]\ninput.x = { text = 'x', labels = ['customer'] }\n\
        [task.a]\ndo = { command = ['true'], workspace = '.' }\nlabels = ['untrusted']\n\
        [task.b]\ndo = { approval = 'Go?', clears = ['customer'], deny_when = ['network', 'model'] }\ndata = ['a', 'input.x']\n";
    let plan = check(text).unwrap();
    assert_eq!(plan.tasks()[0].labels, ["untrusted".parse().unwrap()]);
    let Executor::Approval { clears, deny_when, .. } = &plan.tasks()[1].executor else {
        panic!("{plan:?}");
    };
    assert_eq!((clears.len(), deny_when.len()), (1, 2));
    assert_eq!(CheckedPlan::stored(&plan.canonical()).unwrap(), plan);
    assert!(!check("[task.a]\ndo.stub = 1\n").unwrap().canonical().contains("labels"));
}

#[test]
fn h14_only_an_approval_can_clear_labels_or_be_excluded_by_them() {
    let clears = "only an approval can clear labels, because a person decides";
    for executor in ["command = ['true']", "model = 'cheap', prompt = 'x'", "stub = 1"] {
        let text = format!("[task.a]\ndo = {{ {executor},\n clears = ['untrusted'] }}\n");
        // The plan is written by a model, so the fault names the line.
        refused(&text, &format!("3: task `a`: `clears`: {clears}"));
    }
    let text = "[task.a]\ndo = { stub = 1, deny_when = ['model'] }\n";
    let reason =
        "only an approval has it in a plan; secrets and rules have `deny-when` in belljar.toml";
    refused(text, &format!("2: task `a`: `deny_when`: {reason}"));
    let faults = check("[task.a]\ndo.stub = 1\nclears = ['model']\n").unwrap_err();
    assert!(
        faults.starts_with("p.toml:3: ") && faults.contains("unknown key `clears`"),
        "{faults}"
    );
    assert!(check("[task.a]\ndo = { approval = 'x', clears = ['model'] }\n").is_ok(), "control");
}

#[test]
fn gate_with_a_label_that_no_data_can_have_is_refused() {
    let text = "[task.a]\ndo = { approval = 'Go?', deny_when = ['untrustd'] }\n";
    refused(
        text,
        "2: task `a`: `deny_when`: no data of the plan has the label `untrustd`; did you mean `untrusted`?",
    );
    let text = "[task.a]\ndo = { approval = 'Go?', clears = ['customer'] }\n";
    refused(
        text,
        "2: task `a`: `clears`: no data of the plan has the label `customer`; known: model, network, untrusted",
    );
    let text = "[task.a]\ndo = { approval = 'Go?', clears = ['model'], deny_when = ['model'] }\n";
    refused(
        text,
        "2: task `a`: the label `model` is in `clears` and in `deny_when`; an approval that is refused clears nothing",
    );
}
