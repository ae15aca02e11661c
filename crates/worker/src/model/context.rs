//! Compares a question with the context window of its model, and cuts it by a fixed rule. Pure.
//!
//! A token counts as 4 bytes. Without a known window, only the server decides. The rule of a cut: the
//! longest inputs lose their middle until all inputs fit, and the oldest results of tools are removed until
//! the turns fit. Each cut has a mark in the request, and a note for the log.

use belljar_wire::{ModelFailure, ModelFailureKind as Kind, ModelJob};

use super::failure;
use super::request::Input;
use super::turns::Turn;

/// The number of bytes that count as one token.
const BYTES_PER_TOKEN: u64 = 4;
/// The number of bytes of a request for each input and turn beside its content.
const OVERHEAD: u64 = 256;
/// The content of a result of a tool that was removed.
const REMOVED: &str = "[belljar: this result was removed, because the conversation is longer than the context window of the model]";

/// The room for a question in the context window of its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// The bytes of the window without those of the answer; `None` if the window is not known.
    bytes: Option<u64>,
    window: u64,
    max_tokens: u64,
    cuts: bool,
}

impl Room {
    pub(super) fn of(job: &ModelJob) -> Self {
        let bytes =
            |window: u64| window.saturating_sub(job.max_tokens).saturating_mul(BYTES_PER_TOKEN);
        let (window, max_tokens, cuts) = (job.window.unwrap_or(u64::MAX), job.max_tokens, job.cuts);
        Self { bytes: job.window.map(bytes), window, max_tokens, cuts }
    }

    /// Returns the inputs as they are sent, and a note for each cut. `fixed` is the number of bytes of the
    /// prompt, the instructions and the tools.
    pub(super) fn inputs(
        &self,
        fixed: u64,
        mut inputs: Vec<Input>,
    ) -> Result<(Vec<Input>, Vec<String>), ModelFailure> {
        let Some(room) = self.bytes else { return Ok((inputs, Vec::new())) };
        let fixed = fixed.saturating_add(OVERHEAD.saturating_mul(inputs.len() as u64 + 1));
        let sizes: Vec<u64> = inputs.iter().map(|(_, content)| content.len() as u64).collect();
        let total = sizes.iter().sum::<u64>().saturating_add(fixed);
        if total <= room {
            return Ok((inputs, Vec::new()));
        }
        let longest = inputs.iter().max_by_key(|(_, content)| content.len());
        let longest = longest.map_or_else(String::new, |(name, content)| {
            format!("; the longest input is `{name}` with {} bytes", content.len())
        });
        if !self.cuts || fixed >= room {
            return Err(self.too_long("the prompt and the inputs", total, &longest));
        }
        let cap = cap(&sizes, room - fixed);
        let mut notes = Vec::new();
        for (name, content) in &mut inputs {
            let before = content.len();
            if before as u64 > cap {
                *content = without_middle(content, usize::try_from(cap).unwrap_or(usize::MAX));
                let after = content.len();
                notes.push(format!(
                    "the input `{name}` was cut from {before} to {after} bytes; its middle is missing"
                ));
            }
        }
        Ok((inputs, notes))
    }

    /// Removes the oldest results of tools until the turns fit, and returns a note for each. `question` is
    /// the number of bytes before the turns.
    pub(super) fn turns(
        &self,
        question: u64,
        turns: &mut [Turn],
    ) -> Result<Vec<String>, ModelFailure> {
        let Some(room) = self.bytes else { return Ok(Vec::new()) };
        let size = |turns: &[Turn]| {
            turns.iter().map(|turn| turn.bytes() + OVERHEAD).sum::<u64>().saturating_add(question)
        };
        let mut total = size(turns);
        if total > room && !self.cuts {
            return Err(self.too_long("the conversation", total, ""));
        }
        let mut notes = Vec::new();
        for (number, turn) in turns.iter_mut().enumerate() {
            if total <= room {
                break;
            }
            let Turn::Results(results) = turn else { continue };
            let mut removed = 0_u64;
            for result in results.iter_mut().filter(|it| it.text.len() > REMOVED.len()) {
                removed += (result.text.len() - REMOVED.len()) as u64;
                REMOVED.clone_into(&mut result.text);
            }
            if removed > 0 {
                let turn = number / 2 + 1;
                notes.push(format!(
                    "{removed} bytes of the tool results of turn {turn} were removed to fit the window"
                ));
            }
            total = total.saturating_sub(removed);
        }
        if total > room {
            return Err(self.too_long("the conversation", total, ""));
        }
        Ok(notes)
    }

    fn too_long(&self, what: &str, bytes: u64, longest: &str) -> ModelFailure {
        let (tokens, window, answer) =
            (bytes.div_ceil(BYTES_PER_TOKEN), self.window, self.max_tokens);
        let advice = if self.cuts {
            "make the prompt shorter"
        } else {
            "shorten it, or set `overflow = \"cut\"`"
        };
        failure(
            Kind::TooLong,
            format!(
                "{what} has about {tokens} tokens, but the window of the model has {window}, of which {answer} are for the answer{longest}; {advice}"
            ),
        )
    }
}

/// Returns the largest size such that all sizes, each reduced to it, fit into a room.
fn cap(sizes: &[u64], room: u64) -> u64 {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let (mut left, mut count) = (room, sorted.len() as u64);
    for size in sorted {
        if size.saturating_mul(count) > left {
            return left / count.max(1);
        }
        left -= size;
        count -= 1;
    }
    u64::MAX
}

/// Returns a text of at most `max` bytes: its beginning, a mark, and its end.
pub(super) fn without_middle(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mark = |left_out: usize| format!("\n[belljar: {left_out} bytes are left out here]\n");
    let kept = max.saturating_sub(mark(text.len()).len());
    let head = text.floor_char_boundary(kept - kept / 4);
    let tail = text.ceil_char_boundary(text.len() - kept / 4);
    let (head, tail) = (text.get(..head).unwrap_or_default(), text.get(tail..).unwrap_or_default());
    format!("{head}{}{tail}", mark(text.len() - head.len() - tail.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::turns::CallResult;

    fn room(window: u64, cuts: bool) -> Room {
        Room { bytes: Some(window * BYTES_PER_TOKEN), window, max_tokens: 0, cuts }
    }

    fn input(name: &str, size: usize) -> Input {
        (name.to_owned(), "x".repeat(size))
    }

    #[test]
    fn question_that_fits_or_has_no_known_window_is_unchanged() {
        let inputs = vec![input("a", 1000)];
        let unknown = Room { bytes: None, ..room(1, false) };
        for room in [room(1000, false), room(1000, true), unknown] {
            assert_eq!(room.inputs(500, inputs.clone()).unwrap(), (inputs.clone(), Vec::new()));
        }
    }

    #[test]
    fn question_over_the_window_is_refused_and_names_the_longest_input() {
        let inputs = vec![input("small", 10), input("large", 9000)];
        let failure = room(1000, false).inputs(500, inputs).unwrap_err();
        assert_eq!(failure.kind, Kind::TooLong);
        assert!(failure.message.contains("`large` with 9000 bytes"), "{failure}");
        assert!(failure.message.contains("overflow = \"cut\""), "{failure}");
        // A prompt alone that is too long cannot be cut.
        assert!(room(1000, true).inputs(4000, Vec::new()).is_err());
    }

    #[test]
    fn cut_shortens_the_longest_inputs_with_a_mark_and_a_note() {
        let inputs = vec![input("small", 100), input("large", 9000), input("larger", 20_000)];
        let (cut, notes) = room(2000, true).inputs(500, inputs.clone()).unwrap();
        assert_eq!(cut[0], inputs[0], "short inputs stay");
        let sizes: Vec<usize> = cut.iter().map(|(_, content)| content.len()).collect();
        assert!(sizes.iter().sum::<usize>() <= 2000 * 4 - 500, "{sizes:?}");
        assert!(sizes[1].abs_diff(sizes[2]) < 8, "{sizes:?}");
        assert!(cut[1].1.contains("bytes are left out here"));
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("`large` was cut from 9000 to"), "{notes:?}");
    }

    #[test]
    fn oldest_results_are_removed_until_the_turns_fit() {
        let turn = || {
            let text = "y".repeat(2000);
            Turn::Results(vec![CallResult { id: "1".to_owned(), text, is_error: false }])
        };
        let mut turns = [turn(), turn(), turn()];
        assert!(room(1500, false).turns(0, &mut turns).is_err(), "control: it is refused");
        let notes = room(1500, true).turns(0, &mut turns).unwrap();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(matches!(&turns[0], Turn::Results(it) if it[0].text == REMOVED));
        assert_eq!(turns[1..], [turn(), turn()]);
        assert!(room(100, true).turns(0, &mut turns).is_err());
    }

    proptest::proptest! {
        #[test]
        fn text_without_its_middle_is_never_longer_than_the_limit(
            text in "\\PC{0,400}", max in 0..400_usize,
        ) {
            let cut = without_middle(&text, max);
            proptest::prop_assert!(cut.len() <= max.max(60), "{} {}", cut.len(), max);
            proptest::prop_assert_eq!(cut == text, text.len() <= max);
        }

        #[test]
        fn capped_sizes_fit(
            sizes in proptest::collection::vec(0..10_000_u64, 0..20), room in 0..50_000_u64,
        ) {
            let cap = cap(&sizes, room);
            let total: u64 = sizes.iter().map(|size| size.min(&cap)).sum();
            proptest::prop_assert!(total <= room);
        }
    }
}
