//! The position in a file where a rule can be added.

use toml::de::{DeTable, DeValue};

use super::Config;

/// The position in a file at which a rule can be added to `allow = [..]` of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllowList {
    /// The byte offset after the last rule and its comma, or after the bracket of an empty list.
    pub at: usize,
    /// Whether a comma must be written before a new rule.
    pub needs_comma: bool,
}

impl Config {
    /// Returns the position at which a rule can be added to the `allow` list of a template; `None`
    /// for `[[template.NAME.allow]]`.
    pub fn allow_list(text: &str, template: &str) -> Option<AllowList> {
        let root = DeTable::parse(text).ok()?;
        let templates = root.get_ref().get("template")?.get_ref().as_table()?;
        let allow = templates.get(template)?.get_ref().as_table()?.get("allow")?;
        let DeValue::Array(rules) = allow.get_ref() else { return None };
        let list = text.get(allow.span())?;
        if !list.starts_with('[') || !list.ends_with(']') || list.starts_with("[[template") {
            return None;
        }
        let Some(last) = rules.iter().last() else {
            return Some(AllowList { at: allow.span().start + 1, needs_comma: false });
        };
        let end = last.span().end;
        let rest = text.get(end..)?;
        match rest.find(|c: char| !c.is_whitespace()) {
            Some(comma) if rest.get(comma..)?.starts_with(',') => {
                Some(AllowList { at: end + comma + 1, needs_comma: false })
            }
            _ => Some(AllowList { at: end, needs_comma: true }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<(&str, bool)>) {
        let list = Config::allow_list(text, "x").map(|AllowList { at, needs_comma }| {
            let (before, after) = text.split_at(at);
            (format!("{before}^{after}"), needs_comma)
        });
        let expect = expect.map(|(text, comma)| (text.to_owned(), comma));
        assert_eq!(list, expect);
    }

    #[test]
    fn allow_list_returns_the_position_for_another_rule() {
        let put = |list: &str| format!("[template.x]\nallow = {list}\nuser = 1\n");
        let found = |list: &str, at: &str, comma| check(&put(list), Some((&put(at), comma)));
        found(r#"["a.example"]"#, r#"["a.example"^]"#, true);
        found(r#"["a.example",]"#, r#"["a.example",^]"#, false);
        found(r#"["a.example" , ]"#, r#"["a.example" ,^ ]"#, false);
        found("[]", "[^]", false);
        found("[\n  'a.example', # ]\n]", "[\n  'a.example',^ # ]\n]", false);
        found("[\n  'a.example' # ]\n]", "[\n  'a.example'^ # ]\n]", true);
        found(r#"[{ host = "a]" }, "b"]"#, r#"[{ host = "a]" }, "b"^]"#, true);
    }

    #[test]
    fn allow_list_is_none_for_a_template_without_the_list() {
        check("", None);
        check("[template.x]\nuser = 1\n", None);
        check("[template.y]\nallow = ['a']\n", None);
        check("[[template.x.allow]]\nhost = 'a.example'\npaths = ['/']\n", None);
        check("[template.x]\nallow = 3\n", None);
        check("[template.x\n", None);
    }
}
