//! Whatever a box does, taking it all over makes the host look like the box's view.

use proptest::prelude::*;

use crate::fixture::{Run, all, snapshot};

/// One shell command in a small world of names, so that commands meet each other often.
fn command() -> impl Strategy<Value = String> {
    let name = prop_oneof!["[abc]", "[abc]/[xy]", "[ab]/x/[pq]", Just("a b/\u{e9}".to_owned()),];
    let name = name.prop_map(|name| format!("'{name}'"));
    let word = "[a-d]{1,3}";
    prop_oneof![
        4 => (name.clone(), word).prop_map(|(n, w)| format!("echo {w} > {n}")),
        2 => (name.clone(), word).prop_map(|(n, w)| format!("echo {w} >> {n}")),
        3 => name.clone().prop_map(|n| format!("rm -rf {n}")),
        4 => name.clone().prop_map(|n| format!("mkdir -p {n}")),
        2 => (name.clone(), name.clone()).prop_map(|(n, m)| format!("mv -T {n} {m}")),
        1 => (name.clone(), name.clone()).prop_map(|(n, m)| format!("cp -a {n} {m}")),
        1 => (name.clone(), word).prop_map(|(n, w)| format!("ln -sfnT {w} {n}")),
        1 => (name.clone(), name.clone()).prop_map(|(n, m)| format!("ln {n} {m}")),
        1 => (name.clone(), "(755|700|555|750)").prop_map(|(n, m)| format!("chmod {m} {n}")),
        1 => (name.clone(), "(644|600|755|444)").prop_map(|(n, m)| format!("[ -f {n} ] && chmod {m} {n}")),
        1 => name.clone().prop_map(|n| format!("touch {n}")),
        1 => name.prop_map(|n| format!("rm -rf {n}; mkdir -p {n}; echo new > {n}/x")),
    ]
}

/// Commands that fail because of what others did are part of the game.
fn script() -> impl Strategy<Value = String> {
    let each = |commands: Vec<String>| -> String {
        commands.iter().map(|command| format!("{{ {command}; }} 2>/dev/null || true\n")).collect()
    };
    proptest::collection::vec(command(), 0..14).prop_map(each)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn taking_all_over_makes_the_host_look_like_the_box(host in script(), in_box in script()) {
        let run = Run::new(&host);
        run.in_box(&in_box);
        let view = run.box_view();
        let before = snapshot(&run.lower());
        let changes = run.seal();
        prop_assert_eq!(&snapshot(&run.lower()), &before, "sealing changes nothing");
        prop_assert_eq!(changes.is_empty(), view == before, "{:?}", changes);
        let outcome = run.apply(&all());
        prop_assert!(outcome.is_complete(), "{:?}", outcome);
        prop_assert_eq!(&snapshot(&run.lower()), &view);
        let again = run.apply(&all());
        prop_assert!(again.is_complete());
        prop_assert_eq!(&snapshot(&run.lower()), &view, "and again changes nothing");
    }
}
