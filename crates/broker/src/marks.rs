//! Counts the responses that contained a secret, and limits them (B09).
//!
//! A program that sends guesses learns something only from a response in which a guess was replaced.
//! Few programs ever see one: the limit stops a program that needs many.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use belljar_model::net::Target;

/// The maximum number of responses with a secret per minute.
pub(crate) const MAX_PER_MINUTE: u32 = 60;
const MINUTE: Duration = Duration::from_secs(60);
/// The number of replacements in one response that count as one more response.
const PER_ANSWER: u64 = 64;
/// The maximum number of changed resources that are remembered by their path.
const MAX_CHANGED: usize = 4096;

/// The responses of one box that contained a secret.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    began: Option<Instant>,
    count: u32,
    /// The resources that the box received with replaced values.
    changed: HashSet<(Target, String)>,
}

/// Whether the limit of responses with a secret is reached for the first time in a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Noted {
    Within,
    Reached,
    Over,
}

impl Marks {
    /// Counts a response, or a further part of it, that contained a secret.
    pub(crate) fn add(&mut self, now: Instant) -> Noted {
        if self.began.is_none_or(|began| now.duration_since(began) >= MINUTE) {
            (self.began, self.count) = (Some(now), 0);
        }
        self.count = self.count.saturating_add(1);
        match self.count {
            ..MAX_PER_MINUTE => Noted::Within,
            MAX_PER_MINUTE => Noted::Reached,
            _ => Noted::Over,
        }
    }

    /// Returns how long requests to hosts with secrets are refused, if the limit is reached.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let left = MINUTE.checked_sub(now.duration_since(self.began?))?;
        (self.count >= MAX_PER_MINUTE && !left.is_zero()).then_some(left)
    }

    /// Remembers that the box received a resource with replaced values.
    pub(crate) fn change(&mut self, target: &Target, path: &str) {
        if self.changed.len() < MAX_CHANGED {
            self.changed.insert((target.clone(), path.to_owned()));
        }
    }

    /// Returns whether the positions in a resource can differ from those that the box has seen.
    pub(crate) fn is_changed(&self, target: &Target, path: &str) -> bool {
        self.changed.len() >= MAX_CHANGED
            || self.changed.contains(&(target.clone(), path.to_owned()))
    }
}

/// Returns how many more responses an increase of the replacements in one response counts as.
pub(crate) fn answers(before: u64, after: u64) -> u64 {
    after.div_ceil(PER_ANSWER) - before.div_ceil(PER_ANSWER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b09_marked_answers_per_minute_are_limited() {
        let (mut marks, start) = (Marks::default(), Instant::now());
        for _ in 1..MAX_PER_MINUTE {
            assert_eq!(marks.add(start), Noted::Within);
            assert_eq!(marks.wait(start), None);
        }
        assert_eq!(marks.add(start), Noted::Reached);
        assert_eq!(marks.add(start), Noted::Over);
        assert_eq!(marks.wait(start + MINUTE / 2), Some(MINUTE / 2));
        assert_eq!(marks.wait(start + MINUTE), None);
        assert_eq!(marks.add(start + MINUTE), Noted::Within);
        assert_eq!(marks.wait(start + MINUTE), None);
    }

    #[test]
    fn many_replacements_in_one_response_count_more_than_once() {
        assert_eq!([answers(0, 0), answers(0, 1), answers(1, 64), answers(64, 65)], [0, 1, 0, 1]);
        assert_eq!(answers(0, 640), 10);
    }

    #[test]
    fn changed_resources_are_remembered_and_bounded() {
        let (mut marks, host) = (Marks::default(), "a.example.com".parse().unwrap());
        marks.change(&host, "/file");
        assert!(marks.is_changed(&host, "/file") && !marks.is_changed(&host, "/other"));
        (0..MAX_CHANGED).for_each(|at| marks.change(&host, &format!("/{at}")));
        assert!(marks.is_changed(&host, "/other"), "beyond the limit, every resource counts");
    }
}
