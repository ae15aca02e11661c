//! Where a symbolic link could lead.

use crate::path::RelPath;

/// Whether a link at `path` with this target leads out of the workspace, or might.
///
/// The directories above `path` are real ones, so `..` at the start of the target is exact. After
/// any name it is not: the name may be a link itself, and `..` then starts from where that leads.
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
    fn c10_a_link_may_only_point_where_it_surely_stays_inside() {
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
            // Through `b`, which may be a link to somewhere higher up.
            ("d/a", "b/../c", true),
            ("d/a", "../b/..", true),
            ("a", "...", false),
            ("a", "", true),
        ] {
            assert_eq!(leads_out(&RelPath::new(path).unwrap(), target.as_bytes()), out, "{target}");
        }
    }
}
