//! Suggestions for misspelled keys.

/// Returns the known key that is most similar to a misspelled one, if it is similar enough.
pub(crate) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    // A project's file is not trusted, and the cost grows with the square of the length.
    if word.len() > 40 {
        return None;
    }
    let word = word.to_lowercase().replace('_', "-");
    let close = |candidate: &&str| {
        let distance = distance(&word, candidate);
        (distance <= 1 + candidate.len() / 4).then_some(distance)
    };
    let candidates = known.iter().filter_map(|known| Some((close(known)?, *known)));
    candidates.min().map(|(_, known)| known)
}

/// Returns the edit distance of two words: insertions, deletions, replacements and swaps of
/// neighbors.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in to.iter().enumerate() {
            let at =
                |row: &[usize], place: usize| row.get(place).copied().unwrap_or(usize::MAX / 2);
            let mut best =
                (at(&row, j) + usize::from(a != b)).min(at(&row, j + 1) + 1).min(at(&next, j) + 1);
            let swapped = i > 0 && j > 0 && from.get(i - 1) == Some(b) && to.get(j - 1) == Some(a);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_edited_letters() {
        for (from, to, expect) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("", "ab", 2),
            ("abc", "acb", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(from, to), expect, "{from} {to}");
            assert_eq!(distance(to, from), expect, "{to} {from}");
        }
    }

    #[test]
    fn nearest_finds_the_intended_key_for_a_misspelled_one() {
        let known = ["memory", "mounts", "mode", "output-limit", "env"];
        for (word, expect) in [
            ("memroy", Some("memory")),
            ("Memory", Some("memory")),
            ("mount", Some("mounts")),
            ("output_limit", Some("output-limit")),
            ("envs", Some("env")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &known), expect, "{word}");
        }
        assert_eq!(nearest(&"m".repeat(100_000), &known), None);
    }
}
