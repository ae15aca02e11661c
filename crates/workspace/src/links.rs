//! Classifies the targets of symbolic links.

use crate::path::RelPath;

/// Returns whether a link at `path` with this target can lead out of the workspace.
///
/// The directories above `path` are real, so leading `..` components are exact. A `..` after a name
/// is not: the name can be a link, and `..` then starts from the target of that link.
pub fn leads_out(path: &RelPath, target: &[u8]) -> bool {
    if target.starts_with(b"/") || target.is_empty() {
        return true;
    }
    let depth = path.parts().count().saturating_sub(1);
    let mut parts = target.split(|&byte| byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let up = parts.by_ref().take_while(|part| *part == b"..").count();
    up > depth || parts.any(|part| part == b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c10_leads_out_detects_links_that_can_leave_the_workspace() {
        for (path, target, out) in [
            ("a", "b", false),
            ("a", "./b/c", false),
            ("a", "..", true),
            ("a", "../b", true),
            ("d/a", "../b", false),
            ("d/a", "..", false),
            ("d/e/a", "./.././../b", false),
            ("d/e/a", "../../../b", true),
            ("a", "/etc/passwd", true),
            ("a", "/", true),
            // `b` can be a link to a directory further up.
            ("d/a", "b/../c", true),
            ("d/a", "../b/..", true),
            ("a", "...", false),
            ("a", "", true),
        ] {
            assert_eq!(leads_out(&RelPath::new(path).unwrap(), target.as_bytes()), out, "{target}");
        }
    }
}
