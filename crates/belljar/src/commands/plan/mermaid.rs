//! A plan as a Mermaid flowchart.
//!
//! Nodes have generated names, because ids such as `end` are words of Mermaid.

use std::collections::BTreeMap;

use belljar_model::plan::{CheckedPlan, Executor, Source, Task};

use super::{executor, instances};

/// Returns the text of the flowchart: thick arrows for data, thin ones for order, dotted ones with `?`.
pub(super) fn flowchart(plan: &CheckedPlan) -> String {
    let mut text = String::from("flowchart TD\n");
    let mut inputs = BTreeMap::new();
    for name in plan.inputs().keys() {
        let node = format!("i{}", inputs.len());
        text.push_str(&format!("  {node}[/\"{}\"/]\n", escape(&format!("input.{name}"))));
        inputs.insert(name, node);
    }
    for (at, task) in plan.tasks().iter().enumerate() {
        text.push_str(&format!("  t{at}{}\n", label(task)));
    }
    for (at, task) in plan.tasks().iter().enumerate() {
        let edges = task.data.iter().map(|edge| (edge, true));
        for (edge, is_data) in edges.chain(task.needs.iter().map(|edge| (edge, false))) {
            let from = match &edge.from {
                Source::Task(id) => plan.index(id).map(|from| format!("t{from}")),
                Source::Input(name) => inputs.get(name).cloned(),
            };
            let arrow = match (edge.optional, is_data) {
                (true, _) => "-.->",
                (false, true) => "==>",
                (false, false) => "-->",
            };
            text.extend(from.map(|from| format!("  {from} {arrow} t{at}\n")));
        }
    }
    text
}

fn label(task: &Task) -> String {
    let name = escape(&format!("{}{}", task.id, instances(task)));
    let text = format!("\"{name}<br/>{}\"", escape(&executor(task)));
    match task.executor {
        Executor::Approval { .. } => format!("{{{{{text}}}}}"),
        Executor::Stub { .. } => format!("([{text}])"),
        Executor::Command { .. }
        | Executor::Code { .. }
        | Executor::Agent { .. }
        | Executor::Model { .. } => format!("[{text}]"),
    }
}

/// Replaces all characters that Mermaid or HTML could interpret by entity codes.
fn escape(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '-' | '_' | '.' | '/');
    let one = |c: char| match plain(c) {
        true => c.to_string(),
        false => format!("#{};", u32::from(c)),
    };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_leaves_no_character_that_mermaid_or_html_interprets() {
        assert_eq!(escape("a-b_1.c/d e"), "a-b_1.c/d e");
        let escaped = escape("\"<script>&#;[]{}()|`\n×");
        assert!(escaped.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '#' | ';')));
    }
}
