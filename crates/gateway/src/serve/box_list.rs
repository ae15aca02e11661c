//! The list of the boxes of a tenant, ready to be sent: the JSON of each box, and the text that filters search.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_engine::boxes::index::{BoxIndex, BoxSnapshot, BoxSummary};
use belljar_engine::scope::Scoped;
use belljar_model::boxes::{BoxName, BoxState};
use belljar_model::caller::Principal;
use memchr::memmem;

use super::filter::Filter;
use super::problem::Problem;
use super::routes::boxes::view::{damaged_json, summary_json};

/// The keys of the filter of boxes.
pub(crate) const KEYS: [&str; 4] = ["state", "agent", "template", "by"];

/// Separates the texts of boxes. No name or path of a box contains it, and neither does a filter.
const SEPARATOR: char = '\n';

/// The boxes of one tenant, with the list that was made from their newest snapshot.
#[derive(Default)]
pub(crate) struct BoxList {
    index: BoxIndex,
    latest: Mutex<Option<Arc<ReadyList>>>,
}

/// A list that was made from a snapshot.
pub(crate) struct ReadyList {
    snapshot: Arc<BoxSnapshot>,
    rows: Vec<Row>,
    /// The texts of all rows in lower case, with a separator after each.
    text: String,
}

/// A box in the list.
struct Row {
    name: String,
    /// `None` for a box whose record is damaged: only a sender who may see all boxes sees it.
    summary: Option<Arc<BoxSummary>>,
    json: Arc<str>,
    /// The end of the text of this row.
    text_end: usize,
}

/// The boxes that a sender may see.
#[derive(Clone, Copy)]
pub(crate) enum Visible<'a> {
    All,
    /// The boxes for whose makers the function returns true.
    MadeBy(&'a dyn Fn(&Principal) -> bool),
}

impl BoxList {
    /// Returns the list if nothing changed. Does not block for longer than a system call.
    pub(crate) fn fresh(&self, state: &Scoped) -> Option<Arc<ReadyList>> {
        let snapshot = self.index.fresh(state)?;
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.as_ref().filter(|list| Arc::ptr_eq(&list.snapshot, &snapshot)).map(Arc::clone)
    }

    /// Returns the current list. Blocks, because it reads the records of changed boxes.
    pub(crate) fn current(&self, state: &Scoped) -> Result<Arc<ReadyList>, Problem> {
        let snapshot = self.index.snapshot(state)?;
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = latest.as_ref().filter(|list| Arc::ptr_eq(&list.snapshot, &snapshot)) {
            return Ok(Arc::clone(list));
        }
        let made = Arc::new(ReadyList::new(snapshot, latest.as_deref()));
        *latest = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Returns the boxes that are up now, with the principals that made them. Blocks.
    pub(crate) fn running(&self, state: &Scoped) -> Result<BTreeMap<BoxName, Principal>, Problem> {
        self.index.expire();
        let snapshot = self.index.snapshot(state)?;
        let up = snapshot.boxes.iter().filter(|summary| match summary.state {
            BoxState::Running | BoxState::Paused | BoxState::Changing => true,
            BoxState::Interrupted | BoxState::Stopped | BoxState::New => false,
        });
        Ok(up.map(|summary| (summary.name.clone(), summary.maker.clone())).collect())
    }

    /// Makes the next request read the boxes again, after the server changed one.
    pub(crate) fn expire(&self) {
        self.index.expire();
    }
}

impl ReadyList {
    /// Makes a list. The JSON of unchanged boxes is taken from the list before.
    fn new(snapshot: Arc<BoxSnapshot>, before: Option<&Self>) -> Self {
        let before = before.into_iter().flat_map(|list| &list.rows);
        let known: HashMap<*const BoxSummary, &Arc<str>> = before
            .filter_map(|row| Some((Arc::as_ptr(row.summary.as_ref()?), &row.json)))
            .collect();
        let mut rows: Vec<Row> = Vec::with_capacity(snapshot.boxes.len());
        for summary in &snapshot.boxes {
            let json = known.get(&Arc::as_ptr(summary)).map(|json| Arc::clone(json));
            let json = json.unwrap_or_else(|| summary_json(summary));
            let (name, summary) = (summary.name.to_string(), Some(Arc::clone(summary)));
            rows.push(Row { name, summary, json, text_end: 0 });
        }
        for damaged in &snapshot.damaged {
            let (name, json) = (damaged.name.clone(), damaged_json(damaged));
            rows.push(Row { name, summary: None, json, text_end: 0 });
        }
        rows.sort_by(|left, right| left.name.cmp(&right.name));
        let mut text = String::new();
        for row in &mut rows {
            row.push_text(&mut text);
        }
        text.make_ascii_lowercase();
        Self { snapshot, rows, text }
    }

    /// Returns the JSON of at most `limit` boxes after the box `after`, and the name of the last one if there
    /// are more.
    pub(crate) fn page<'l>(
        &'l self,
        visible: Visible<'_>,
        filter: &'l Filter,
        after: Option<&str>,
        limit: usize,
    ) -> (Vec<&'l str>, Option<&'l str>) {
        let start = after.map_or(0, |after| self.rows.partition_point(|row| *row.name <= *after));
        let mut found = self
            .candidates(filter, start)
            .filter(|row| row.is_visible(visible) && filter.has_terms(|key| row.value(key)));
        let page: Vec<&Row> = found.by_ref().take(limit).collect();
        let last = page.last().filter(|_| found.next().is_some()).map(|row| row.name.as_str());
        (page.iter().map(|row| &*row.json).collect(), last)
    }

    /// Returns the rows that contain all texts of the filter, from the row `start`.
    fn candidates<'l>(
        &'l self,
        filter: &'l Filter,
        start: usize,
    ) -> Box<dyn Iterator<Item = &'l Row> + 'l> {
        let rest = self.rows.get(start..).unwrap_or_default();
        let Some((first, others)) = filter.texts().split_first() else {
            return Box::new(rest.iter());
        };
        let finder = memmem::Finder::new(first.as_bytes()).into_owned();
        let mut at =
            start.checked_sub(1).and_then(|it| self.rows.get(it)).map_or(0, |it| it.text_end);
        let next = move || {
            let found = at + finder.find(self.text.as_bytes().get(at..)?)?;
            let row = self.rows.partition_point(|row| row.text_end <= found);
            let row = self.rows.get(row)?;
            at = row.text_end;
            Some(row)
        };
        let has_others =
            move |row: &&Row| others.iter().all(|text| self.text_of(row).contains(text));
        Box::new(std::iter::from_fn(next).filter(has_others))
    }

    fn text_of(&self, row: &Row) -> &str {
        let before = self.text.get(..row.text_end.saturating_sub(1)).unwrap_or_default();
        before.rsplit(SEPARATOR).next().unwrap_or_default()
    }
}

impl Row {
    /// Appends the text that filters search.
    fn push_text(&mut self, text: &mut String) {
        let mut push = |part: &str| {
            text.push_str(&part.replace(SEPARATOR, " "));
            text.push(' ');
        };
        push(&self.name);
        if let Some(summary) = &self.summary {
            push(&summary.template);
            push(summary.agent.as_ref().map_or("", |agent| agent.as_str()));
            push(&summary.ground.path().map(|it| it.to_string_lossy()).unwrap_or_default());
            push(&summary.maker.to_string());
        }
        text.push(SEPARATOR);
        self.text_end = text.len();
    }

    fn is_visible(&self, visible: Visible<'_>) -> bool {
        match visible {
            Visible::All => true,
            Visible::MadeBy(is_own) => self.summary.as_ref().is_some_and(|it| is_own(&it.maker)),
        }
    }

    /// Returns the value of a key of the filter.
    fn value(&self, key: &str) -> &str {
        let Some(summary) = &self.summary else {
            return if key == "state" { "damaged" } else { "" };
        };
        match key {
            "state" => summary.state.name(),
            "agent" => summary.agent.as_ref().map_or("", |agent| agent.as_str()),
            "template" => &summary.template,
            "by" => summary.maker.name(),
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use belljar_model::boxes::BoxWorkspace;

    use super::*;

    fn list(names: &[(&str, BoxState, &str)]) -> ReadyList {
        let boxes = names.iter().map(|(name, state, maker)| {
            Arc::new(BoxSummary {
                name: name.parse().unwrap(),
                state: *state,
                created: 0,
                maker: maker.parse().unwrap(),
                template: "Default".to_owned(),
                agent: Some("claude".parse().unwrap()),
                ground: BoxWorkspace::Nothing,
                run: None,
            })
        });
        let snapshot = BoxSnapshot { boxes: boxes.collect(), damaged: Vec::new() };
        ReadyList::new(Arc::new(snapshot), None)
    }

    fn names(list: &ReadyList, visible: Visible<'_>, q: &str, after: Option<&str>) -> Vec<String> {
        let filter = Filter::parse(Some(q), &KEYS);
        let (page, _) = list.page(visible, &filter, after, 200);
        let name = |json: &&str| {
            let value: serde_json::Value = serde_json::from_str(json).unwrap();
            value["name"].as_str().unwrap().to_owned()
        };
        page.iter().map(name).collect()
    }

    #[test]
    fn filter_finds_boxes_by_text_and_by_term_after_the_cursor() {
        let all = list(&[
            ("fix-login", BoxState::Running, "service:ci"),
            ("fix-logout", BoxState::Stopped, "user:1000"),
            ("other", BoxState::Running, "user:1000"),
        ]);
        let found = |q: &str, after| names(&all, Visible::All, q, after).join(" ");
        assert_eq!(found("", None), "fix-login fix-logout other");
        assert_eq!(found("LOGIN", None), "fix-login");
        assert_eq!(found("fix log", None), "fix-login fix-logout");
        assert_eq!(found("fix log", Some("fix-login")), "fix-logout");
        assert_eq!(found("", Some("fix-logout")), "other");
        assert_eq!(found("", Some("g")), "other", "the box of the cursor is gone");
        assert_eq!(found("state:running", None), "fix-login other");
        assert_eq!(found("state:running by:1000", None), "other");
        assert_eq!(found("agent:claude user:1000", None), "fix-logout other");
        assert_eq!(found("fix other", None), "");
    }

    #[test]
    fn f08_list_has_only_the_boxes_that_the_sender_may_see() {
        let all = list(&[
            ("a", BoxState::New, "user:1"),
            ("b", BoxState::New, "user:2"),
            ("c", BoxState::New, "user:1"),
        ]);
        let is_own = |maker: &Principal| maker.name() == "1";
        let visible = Visible::MadeBy(&is_own);
        assert_eq!(names(&all, visible, "", None), ["a", "c"]);
        let filter = Filter::default();
        let (page, last) = all.page(visible, &filter, None, 1);
        assert_eq!((page.len(), last), (1, Some("a")));
        let (page, last) = all.page(visible, &filter, Some("a"), 1);
        assert_eq!((page.len(), last), (1, None), "a hidden box is no further item");
        assert_eq!(names(&all, Visible::All, "", None).len(), 3, "control");
    }

    #[test]
    fn new_list_keeps_the_json_of_unchanged_boxes() {
        let first = list(&[("a", BoxState::New, "user:1"), ("b", BoxState::New, "user:1")]);
        let second = ReadyList::new(Arc::clone(&first.snapshot), Some(&first));
        assert!(Arc::ptr_eq(&first.rows[0].json, &second.rows[0].json));
    }
}
