//! The reader for the tools of a `model` task.

use super::super::node::{Node, NodeValue};
use super::super::{MAX_TURNS, ModelTool, ModelTools, TaskWorkspace};
use super::{Fields, Reader};
use crate::permission::Permission;

/// The maximum number of `deny` rules of a task.
const MAX_DENY: usize = 256;
/// The keys that need `tools`.
const OF_TOOLS: [&str; 4] = ["turns", "workspace", "overlay", "deny"];

impl Reader<'_> {
    /// Reads `tools` and the keys that belong to it.
    pub(super) fn tools(&mut self, fields: &Fields<'_>) -> Option<Box<ModelTools>> {
        let Some(node) = fields.get("tools") else {
            for key in OF_TOOLS {
                if let Some(node) = fields.get(key) {
                    self.wrong(key, node, "only possible together with `tools`");
                }
            }
            return None;
        };
        let names = self.names(node);
        let turns = match fields.get("turns") {
            Some(node) => self.whole("turns", node, 1, MAX_TURNS.into()),
            None => Some(MAX_TURNS.into()),
        };
        let workspace = self.workspace(fields);
        let deny = fields.get("deny").and_then(|node| {
            self.list("deny", node, MAX_DENY, |reader, node| {
                let rule: Permission = reader.parsed("deny", node)?;
                if matches!(rule, Permission::Net(_)) {
                    let what = "hosts are denied by the box; write `box = { deny = [\"HOST\"] }`";
                    reader.wrong("deny", node, what);
                    return None;
                }
                Some(rule)
            })
        });
        let names = names?;
        let writer = names.iter().find(|tool| tool.only_writes());
        if let (Some(tool), Some(TaskWorkspace { overlay: false, .. })) = (writer, &workspace) {
            let what = format!("`{tool}` changes files; add `overlay = true`");
            self.wrong("tools", node, what);
        }
        let turns = u32::try_from(turns?).ok()?;
        Some(Box::new(ModelTools { names, turns, workspace, deny: deny.unwrap_or_default() }))
    }

    fn names(&mut self, node: &Node) -> Option<Vec<ModelTool>> {
        let max = ModelTool::ALL.len();
        let mut names = self.list("tools", node, max, |reader, node| {
            Some((reader.parsed::<ModelTool>("tools", node)?, node.at.clone()))
        })?;
        if matches!(&node.value, NodeValue::List(nodes) if nodes.is_empty()) {
            self.wrong("tools", node, "the list is empty; name a tool or remove the key");
            return None;
        }
        names.sort_by_key(|(tool, _)| *tool);
        let twice = names.windows(2).find_map(|pair| match pair {
            [(first, _), (second, at)] if first == second => Some((*second, at.start)),
            _ => None,
        });
        if let Some((tool, at)) = twice {
            self.fault(at, format!("`tools`: `{tool}` is listed twice"));
        }
        Some(names.into_iter().map(|(tool, _)| tool).collect())
    }

    /// Reads `workspace` and `overlay`.
    pub(super) fn workspace(&mut self, fields: &Fields<'_>) -> Option<TaskWorkspace> {
        let directory = fields.get("workspace").and_then(|node| self.path("workspace", node));
        let overlay = fields.get("overlay").map(|node| (node, self.boolean("overlay", node)));
        if let (Some((node, _)), false) = (overlay, fields.has("workspace")) {
            self.wrong("overlay", node, "only possible together with `workspace`");
        }
        let overlay = overlay.and_then(|(_, overlay)| overlay).unwrap_or(false);
        directory.map(|directory| TaskWorkspace { directory, overlay })
    }
}
