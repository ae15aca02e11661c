//! No name that a box chooses makes the classifier panic, or slips through it by a trick of spelling.

use belljar_model::risky::{RulePlace, bare_repository, classify, classify_link};

pub fn check(path: &[u8]) {
    bare_repository(path.split(|byte| *byte == b'/'));
    let Some(rule) = classify(path) else { return };
    assert!(classify_link(path).is_some(), "a link is no safer than a file");
    assert!(classify(&path.to_ascii_uppercase()).is_some(), "letter case makes no difference");
    if rule.place == RulePlace::Anywhere {
        assert!(classify(&[b"deep/er/", path].concat()).is_some(), "nor does depth");
    }
}
