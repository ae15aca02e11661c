//! Takes the text of a plan out of the answer of a model. Pure.
//!
//! An answer is the plan itself, or a text with one fenced block that is the plan. Everything outside of the
//! block is dropped. The plan has no hidden characters, so a person sees exactly what is submitted.

use belljar_model::display::safe_multiline;
use belljar_model::plan::PlanFaults;

/// The name of the plan in faults. The extension selects TOML.
pub(super) const FILE: &str = "plan.toml";
/// The mark at the start and at the end of a block.
const FENCE: &str = "```";

/// Returns the text of the plan in an answer, with `\n` as line ends.
pub(super) fn plan_text(answer: &str) -> Result<String, PlanFaults> {
    let answer = answer.replace("\r\n", "\n");
    let text = one_block(&answer)
        .map_err(|(line, reason)| PlanFaults::one(FILE, line, reason.to_owned()))?;
    let hidden = text.lines().enumerate().filter(|(_, line)| safe_multiline(line) != **line);
    let hidden = hidden.map(|(at, line)| {
        let line = safe_multiline(line);
        (
            at + 1,
            format!("hidden characters; write them as escapes in a text, or remove them: {line}"),
        )
    });
    match PlanFaults::of(FILE, hidden) {
        Some(faults) => Err(faults),
        None => Ok(text),
    }
}

/// Returns the content of the single fenced block, or the whole text if it has none.
fn one_block(answer: &str) -> Result<String, (usize, &'static str)> {
    let is_fence = |line: &str| line.trim_start().starts_with(FENCE);
    let fences = answer.lines().enumerate().filter(|(_, line)| is_fence(line));
    let fences: Vec<usize> = fences.map(|(at, _)| at).collect();
    match fences.as_slice() {
        [] => Ok(format!("{}\n", answer.trim())),
        [start, end] => {
            let lines = answer.lines().skip(start + 1).take(end.saturating_sub(start + 1));
            Ok(lines.flat_map(|line| [line, "\n"]).collect())
        }
        [.., last] => {
            let reason = "the answer must have one block between two lines with ```, and the block must be the plan";
            Err((last + 1, reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "[task.a]\ndo = { command = [\"true\"] }\n";

    #[track_caller]
    fn check(answer: &str, expected: Result<&str, &str>) {
        let found = plan_text(answer).map_err(|faults| faults.to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{answer}");
    }

    #[test]
    fn plan_is_the_whole_answer_or_its_single_block() {
        check(PLAN, Ok(PLAN));
        check(&format!("\n\n{PLAN}\n\n"), Ok(PLAN));
        check(&PLAN.replace('\n', "\r\n"), Ok(PLAN));
        check(&format!("```toml\n{PLAN}```"), Ok(PLAN));
        check(&format!("Here it is:\n\n```\n{PLAN}```\nIt grants nothing.\n"), Ok(PLAN));
        check("```\n```", Ok(""));
    }

    #[test]
    fn several_blocks_and_an_open_block_are_refused() {
        let reason = "the answer must have one block between two lines with ```, and the block must be the plan";
        let expected = format!("plan.toml:1: {reason}");
        check(&format!("```toml\n{PLAN}"), Err(&expected));
        let expected = format!("plan.toml:8: {reason}");
        check(&format!("```\n{PLAN}```\n```\n{PLAN}```\n"), Err(&expected));
    }

    #[test]
    fn g02_hidden_characters_in_the_plan_are_refused_with_their_line() {
        let hidden = "hidden characters; write them as escapes in a text, or remove them";
        for (character, shown) in
            [("\u{202e}", r"\u{202e}"), ("\u{200b}", r"\u{200b}"), ("\u{1b}[2J", r"\x1b[2J")]
        {
            let plan = PLAN.replace("true", &format!("tr{character}ue"));
            let line = format!("do = {{ command = [\"tr{shown}ue\"] }}");
            check(&plan, Err(&format!("plan.toml:2: {hidden}: {line}")));
        }
        // Control: other letters and an escape are visible.
        let visible = PLAN.replace("true", "caf\u{e9} \\u200b");
        check(&visible, Ok(&visible));
    }
}
