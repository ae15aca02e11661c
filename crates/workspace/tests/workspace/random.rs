//! Property tests with random changes of the box and the host.

use belljar_workspace::{ApplySession, Choice, Pick, plan_apply};
use proptest::prelude::*;

use crate::fixture::{Run, all, snapshot};

/// Generates one shell command on a small set of names, so that commands often affect each other.
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

/// Generates a script. Commands can fail because of earlier ones.
fn script() -> impl Strategy<Value = String> {
    let each = |commands: Vec<String>| -> String {
        commands.iter().map(|command| format!("{{ {command}; }} 2>/dev/null || true\n")).collect()
    };
    proptest::collection::vec(command(), 0..14).prop_map(each)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn apply_of_all_changes_makes_the_host_equal_to_the_boxs_view(host in script(), in_box in script()) {
        let run = Run::new(&host);
        run.in_box(&in_box);
        let view = run.box_view();
        let before = snapshot(&run.lower());
        let changes = run.seal();
        prop_assert_eq!(&snapshot(&run.lower()), &before, "sealing changes no file");
        prop_assert_eq!(changes.is_empty(), view == before, "{:?}", changes);
        let outcome = run.apply(&all());
        prop_assert!(outcome.is_complete(), "{:?}", outcome);
        prop_assert_eq!(&snapshot(&run.lower()), &view);
        let again = run.apply(&all());
        prop_assert!(again.is_complete());
        prop_assert_eq!(&snapshot(&run.lower()), &view, "a second apply changes nothing");
    }

    #[test]
    fn apply_never_loses_a_file_that_the_host_changed_at_the_same_time(
        host in script(), in_box in script(), meanwhile in script(), theirs: bool,
    ) {
        let run = Run::new(&host);
        run.in_box(&in_box);
        let changes = run.seal();
        run.host(&meanwhile);
        let before = snapshot(&run.lower());
        let theirs = if theirs { Pick::All } else { Pick::none() };
        let layers = run.layers();
        let mut session = ApplySession::begin(&layers).unwrap();
        let observed = session.observe(&changes).unwrap();
        match plan_apply(&observed, &Choice { theirs, ..all() }).settle() {
            Err(draft) => {
                prop_assert!(draft.conflicts().next().is_some());
                prop_assert_eq!(&snapshot(&run.lower()), &before, "a refused apply changes no file");
            }
            Ok(plan) => {
                session.apply(plan, &mut |_| {}).unwrap();
                let (after, trash) = (snapshot(&run.lower()), run.trash());
                for (path, what) in before.iter().filter(|(_, what)| !what.starts_with("dir")) {
                    let same = |other: &String| content(other) == content(what);
                    let kept = after.get(path).is_some_and(same) || trash.get(path).is_some_and(same);
                    prop_assert!(kept, "{:?} {} is lost", path.escape_ascii(), what);
                }
                let ours = |name: &Vec<u8>| name.windows(9).any(|part| part == b".belljar-");
                prop_assert!(!after.keys().any(ours), "{:?}", after);
            }
        }
    }
}

/// Splits a snapshot entry into file type and content, without the mode.
fn content(what: &str) -> (&str, &str) {
    let (kind, rest) = what.split_once(' ').unwrap_or((what, ""));
    match kind {
        "file" => (kind, rest.split_once(' ').map_or("", |(_, content)| content)),
        _ => (kind, rest),
    }
}
