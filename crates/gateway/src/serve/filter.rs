//! The filter of a list: words that an item must contain, and `KEY:VALUE` terms.
//!
//! A term with a key that the list does not have is searched as text, so that every filter is valid.

/// A parsed filter. All parts are in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Terms with a key of the list.
    terms: Vec<(&'static str, String)>,
    /// Texts that an item contains.
    texts: Vec<String>,
}

impl Filter {
    /// Parses a filter for a list with these keys.
    pub(crate) fn parse(text: Option<&str>, keys: &[&'static str]) -> Self {
        let mut filter = Self::default();
        for word in text.unwrap_or_default().split_whitespace() {
            let word = word.to_ascii_lowercase();
            let keyed = word.split_once(':').and_then(|(key, value)| {
                let key = keys.iter().find(|known| **known == key)?;
                (!value.is_empty()).then(|| (*key, value.to_owned()))
            });
            match keyed {
                Some(term) => filter.terms.push(term),
                None => filter.texts.push(word),
            }
        }
        filter
    }

    /// Returns whether an item has the values of all terms. `value` returns the value of a key.
    pub(crate) fn has_terms<'v>(&self, value: impl Fn(&str) -> &'v str) -> bool {
        self.terms.iter().all(|(key, wanted)| value(key).eq_ignore_ascii_case(wanted))
    }

    /// Returns the values of all terms with a key, in lower case.
    pub(crate) fn terms(&self, key: &str) -> impl Iterator<Item = &str> {
        self.terms.iter().filter(move |(known, _)| *known == key).map(|(_, value)| value.as_str())
    }

    /// Returns the texts that an item contains, in lower case.
    pub(crate) fn texts(&self) -> &[String] {
        &self.texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_has_terms_of_known_keys_and_searches_everything_else_as_text() {
        let filter = Filter::parse(Some("State:Running fix x:y state: Name"), &["state", "agent"]);
        assert_eq!(filter.terms, [("state", "running".to_owned())]);
        assert_eq!(filter.texts(), ["fix", "x:y", "state:", "name"]);
        assert!(filter.has_terms(|key| if key == "state" { "running" } else { "" }));
        assert!(!filter.has_terms(|_| "stopped"));
        assert_eq!(filter.terms("state").collect::<Vec<_>>(), ["running"]);
        assert_eq!(filter.terms("agent").count(), 0);
        assert_eq!(Filter::parse(None, &["state"]), Filter::default());
    }
}
