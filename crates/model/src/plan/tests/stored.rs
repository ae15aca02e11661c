use super::*;

const GOLDEN: &str = include_str!("golden.json");

#[test]
fn canonical_json_of_a_plan_does_not_change() {
    let canonical = check(EXAMPLE).unwrap().canonical();
    assert_eq!(canonical, GOLDEN.trim_end(), "the commitments of stored plans would change");
}

#[test]
fn stored_plan_is_equal_to_the_checked_one() {
    let plan = check(EXAMPLE).unwrap();
    let stored = CheckedPlan::stored(&plan.canonical()).unwrap();
    assert_eq!(stored, plan);
    assert_eq!(stored.canonical(), plan.canonical());
    assert_eq!(stored.dependents(0), plan.dependents(0));
}

#[test]
fn canonical_json_does_not_depend_on_format_and_layout() {
    let toml = "[task.a]\nattempts = 2\ndo = { stub = { b = 1, a = [2.5] } }\n";
    let json = r#"{"task": {"a": {"do": {"stub": {"a": [2.5], "b": 1}}, "attempts": 2}}}"#;
    let json = Plan::parse(json, "p.json").unwrap().check(&ceiling()).unwrap();
    assert_eq!(check(toml).unwrap().canonical(), json.canonical());
}

#[test]
fn inconsistent_stored_plans_are_refused() {
    let text = check(&stubs(2, |at| at.checked_sub(1).into_iter().collect())).unwrap().canonical();
    assert!(CheckedPlan::stored(&text).is_ok());
    for (old, new, expect) in [
        (r#""format":1"#, r#""format":2"#, "has format 2"),
        (r#""task":"t0""#, r#""task":"t9""#, "not in order"),
        (r#""task":"t0""#, r#""task":"t1""#, "not in order"),
        (r#""boxes":[null,"#, r#""boxes":[7,"#, "not in order"),
        (r#""answer":null"#, r#""extra":null"#, "not valid JSON of a plan"),
    ] {
        assert!(text.contains(old), "{old} in {text}");
        let error = CheckedPlan::stored(&text.replace(old, new)).unwrap_err();
        assert!(error.to_string().contains(expect), "{new}: {error}");
    }
}
