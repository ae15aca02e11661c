//! Checks the classifier of risky names: no name makes it panic, and letter case or depth does not hide a
//! risky name.

use belljar_model::risky::{RulePlace, bare_repository, classify, classify_link};

pub fn check(path: &[u8]) {
    bare_repository(path.split(|byte| *byte == b'/'));
    let Some(rule) = classify(path) else { return };
    assert!(classify_link(path).is_some(), "a link with a risky name must be risky, too");
    assert!(classify(&path.to_ascii_uppercase()).is_some(), "letter case must not matter");
    if rule.place == RulePlace::Anywhere {
        assert!(classify(&[b"deep/er/", path].concat()).is_some(), "depth must not matter");
    }
}
