//! Lists of the API: the parameters of a page, and cursors that only this server can make.
//!
//! A cursor is the key of the last item of a page with a signature over tenant and list. A client cannot
//! change it, and a cursor of one tenant or list is invalid for another.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_model::caller::TenantId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::problem::Problem;
use super::signing::{Purpose, SigningKey};
use crate::auth::api_token;

/// The number of items of a page by default, and at most.
const ITEMS: (usize, usize) = (50, 200);
/// The maximum length of the filter of a list, in bytes.
const MAX_FILTER: usize = 256;

/// A list of the API. It has no more pages if `next` is null.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}List")]
pub(crate) struct List<T> {
    pub(crate) items: Vec<T>,
    /// The cursor of the next page.
    pub(crate) next: Option<String>,
}

/// The parameters of every list.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageParameters {
    /// The maximum number of items.
    #[schemars(range(min = 1, max = 200))]
    pub(crate) limit: Option<usize>,
    /// The value of `next` of the page before.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,1024}\.[A-Za-z0-9_-]{22}$"))]
    pub(crate) cursor: Option<String>,
    /// A filter. The items contain this text.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) q: Option<String>,
}

/// A page of a list that a client requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageQuery {
    pub(crate) limit: usize,
    /// The key of the last item of the page before.
    pub(crate) after: Option<String>,
    pub(crate) q: Option<String>,
}

impl PageQuery {
    /// Checks the parameters of a list.
    pub(crate) fn new(
        key: &SigningKey,
        tenant: &TenantId,
        list: &str,
        parameters: PageParameters,
    ) -> Result<Self, Problem> {
        let limit = parameters.limit.unwrap_or(ITEMS.0);
        if !(1..=ITEMS.1).contains(&limit) {
            let detail = format!("`limit` must be a number from 1 to {}", ITEMS.1);
            return Err(Problem::invalid(detail).field("/limit"));
        }
        if parameters.q.as_ref().is_some_and(|q| q.is_empty() || q.len() > MAX_FILTER) {
            let detail = format!("`q` must have 1 to {MAX_FILTER} bytes");
            return Err(Problem::invalid(detail).field("/q"));
        }
        let after = parameters.cursor.map(|cursor| {
            read_cursor(key, tenant, list, &cursor).ok_or_else(|| {
                let detail = "the cursor is not one of this list; start with the first page";
                Problem::invalid(detail).field("/cursor")
            })
        });
        Ok(Self { limit, after: after.transpose()?, q: parameters.q })
    }
}

/// A part of a list that is in memory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Slice<T> {
    pub(crate) items: Vec<T>,
    /// The key of the last item if there are more.
    pub(crate) last: Option<String>,
}

impl PageQuery {
    /// Returns the items of this page from a complete list. `key` is the unique key of an item. A page after
    /// an item that no longer exists is empty.
    pub(crate) fn slice<T>(
        &self,
        items: impl IntoIterator<Item = T>,
        key: impl Fn(&T) -> String,
    ) -> Slice<T> {
        let mut rest = items.into_iter();
        if let Some(after) = &self.after {
            rest.by_ref().find(|item| key(item) == *after);
        }
        let items: Vec<T> = rest.by_ref().take(self.limit).collect();
        let has_more = rest.next().is_some();
        let last = items.last().filter(|_| has_more).map(key);
        Slice { items, last }
    }
}

/// Returns the cursor for the items after the item with this key.
pub(crate) fn cursor(key: &SigningKey, tenant: &TenantId, list: &str, last: &str) -> String {
    let signature = key.sign(Purpose::Cursor, &signed(tenant, list, last));
    format!("{}.{signature}", URL_SAFE_NO_PAD.encode(last))
}

fn read_cursor(key: &SigningKey, tenant: &TenantId, list: &str, cursor: &str) -> Option<String> {
    let (last, signature) = cursor.split_once('.')?;
    let last = String::from_utf8(URL_SAFE_NO_PAD.decode(last).ok()?).ok()?;
    let expected = key.sign(Purpose::Cursor, &signed(tenant, list, &last));
    api_token::is_same(expected.as_bytes(), signature.as_bytes()).then_some(last)
}

/// Returns the signed bytes of a cursor. Neither a tenant nor the name of a list contains a NUL byte.
fn signed(tenant: &TenantId, list: &str, last: &str) -> Vec<u8> {
    format!("{tenant}\0{list}\0{last}").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::problem::ProblemKind;

    fn check(tenant: &str, list: &str, cursor: Option<String>) -> Result<PageQuery, Problem> {
        let key = SigningKey::new(&[1; 32]);
        let parameters = PageParameters { limit: None, cursor, q: None };
        PageQuery::new(&key, &tenant.parse().unwrap(), list, parameters)
    }

    #[test]
    fn f08_cursor_is_valid_only_unchanged_and_for_its_tenant_and_list() {
        let key = SigningKey::new(&[1; 32]);
        let made = cursor(&key, &"team-7".parse().unwrap(), "boxes", "box é");
        let page = check("team-7", "boxes", Some(made.clone())).unwrap();
        assert_eq!(page.after.as_deref(), Some("box é"), "control");
        let other_key = SigningKey::new(&[2; 32]);
        let forged = cursor(&other_key, &"team-7".parse().unwrap(), "boxes", "box é");
        let changed = format!("A{made}");
        for (tenant, list, cursor) in [
            ("team-8", "boxes", made.as_str()),
            ("team-7", "runs", &made),
            ("team-7", "boxes", &forged),
            ("team-7", "boxes", &changed),
            ("team-7", "boxes", "no cursor"),
            ("team-7", "boxes", ""),
        ] {
            let problem = check(tenant, list, Some(cursor.to_owned())).unwrap_err();
            assert_eq!(problem.kind, ProblemKind::INVALID, "{tenant} {list} {cursor}");
        }
    }

    #[test]
    fn slice_of_a_list_continues_after_the_item_of_the_cursor() {
        let mut page = PageQuery { limit: 2, after: None, q: None };
        let mut slice = |after: Option<&str>| {
            page.after = after.map(str::to_owned);
            let slice = page.slice(1..=4, ToString::to_string);
            (slice.items, slice.last)
        };
        assert_eq!(slice(None), (vec![1, 2], Some("2".to_owned())));
        assert_eq!(slice(Some("2")), (vec![3, 4], None));
        assert_eq!(slice(Some("9")), (vec![], None));
    }

    #[test]
    fn limit_of_a_page_is_between_1_and_200() {
        let key = SigningKey::new(&[1; 32]);
        let tenant = "local".parse().unwrap();
        for (limit, is_valid) in [(0, false), (1, true), (200, true), (201, false)] {
            let parameters = PageParameters { limit: Some(limit), ..PageParameters::default() };
            let page = PageQuery::new(&key, &tenant, "boxes", parameters);
            assert_eq!(page.is_ok(), is_valid, "{limit}");
        }
    }
}
