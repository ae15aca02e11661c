//! The routes of network requests: list them, and make a rule of one.

mod rule;
mod view;

use axum::response::Response;
use belljar_engine::moment;
use belljar_engine::record::browse::requests::{RecordedRequest, RequestQuery};
use belljar_engine::record::owners::EventOwner;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Access, Operation, Routes};
use crate::serve::access::Act;
use crate::serve::call::{Call, blocking};
use crate::serve::page::{List, PageParameters};
use crate::serve::problem::Problem;
use view::RequestView;

/// The name of the list in its cursors.
const REQUESTS: &str = "requests";

pub(super) fn add(routes: Routes) -> Routes {
    let routes = routes.add(
        Operation::get("/v1/requests", Access::For(Act::SeeBoxes))
            .about(
                "Lists network requests of boxes, the newest first. A page examines a limited number of \
                 requests, so it can have fewer items than requested although `next` is set",
            )
            .query::<RequestParameters>()
            .returns::<List<RequestView>>(StatusCode::OK),
        list,
    );
    rule::add(routes)
}

/// What was decided about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Allow,
    Deny,
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// A time in the query, such as `2026-11-16T12:00:00Z`.
const TIME: &str = r"^(2[0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|2[0-9](0[48]|[2468][048]|[13579][26])-02-29)T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?Z$";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RequestParameters {
    /// The maximum number of items.
    #[schemars(range(min = 1, max = 200))]
    limit: Option<usize>,
    /// The value of `next` of the page before.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,1024}\.[A-Za-z0-9_-]{22}$"))]
    cursor: Option<String>,
    /// A filter. The items contain all words of this text.
    #[schemars(length(min = 1, max = 256))]
    q: Option<String>,
    verdict: Option<Verdict>,
    /// A host, with all names below it.
    #[schemars(regex(pattern = r"^[A-Za-z0-9.:_-]{1,253}$"))]
    host: Option<String>,
    #[serde(rename = "box")]
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]{0,62}$"))]
    box_name: Option<String>,
    #[schemars(regex(pattern = r"^[A-Z][A-Z_-]{0,31}$"))]
    method: Option<String>,
    /// The earliest time.
    #[schemars(regex(pattern = TIME))]
    from: Option<String>,
    /// The time that requests must precede.
    #[schemars(regex(pattern = TIME))]
    to: Option<String>,
}

/// The requests that a client wants to see.
struct RequestFilter {
    verdict: Option<Verdict>,
    host: Option<String>,
    box_name: Option<String>,
    method: Option<String>,
    /// Texts in lower case that a request contains.
    texts: Vec<String>,
}

impl RequestFilter {
    fn new(parameters: &mut RequestParameters) -> Result<Self, Problem> {
        let RequestParameters { verdict, host, box_name, method, q, .. } = parameters;
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".:_-".contains(&byte);
        check("host", host.as_deref(), 253, is_host)?;
        let is_name =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        check("box", box_name.as_deref(), 63, is_name)?;
        if box_name.as_deref().is_some_and(|it| it.starts_with(['.', '_', '-'])) {
            return Err(malformed("box"));
        }
        let is_method = |byte: u8| byte.is_ascii_uppercase() || b"_-".contains(&byte);
        check("method", method.as_deref(), 32, is_method)?;
        if method.as_deref().is_some_and(|it| it.starts_with(['_', '-'])) {
            return Err(malformed("method"));
        }
        let words = q.as_deref().unwrap_or_default().split_whitespace();
        Ok(Self {
            verdict: *verdict,
            host: host.take().map(|host| host.to_ascii_lowercase()),
            box_name: box_name.take(),
            method: method.take(),
            texts: words.map(str::to_ascii_lowercase).collect(),
        })
    }

    fn matches(&self, found: &RecordedRequest) -> bool {
        let RecordedRequest { owner, request, .. } = found;
        let is_within = |wanted: &String| {
            let host = request.host.to_ascii_lowercase();
            host.strip_suffix(wanted.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        self.verdict.is_none_or(|wanted| request.verdict == wanted.name())
            && self.host.as_ref().is_none_or(is_within)
            && self.method.as_ref().is_none_or(|wanted| request.method == *wanted)
            && self.box_name.as_ref().is_none_or(|wanted| owner.box_name.as_ref() == Some(wanted))
            && self.has_texts(found)
    }

    fn has_texts(&self, found: &RecordedRequest) -> bool {
        if self.texts.is_empty() {
            return true;
        }
        let RecordedRequest { owner, request, .. } = found;
        let maker = owner.maker.as_ref().map(ToString::to_string);
        let parts = [
            Some(request.method.as_str()),
            Some(&request.scheme),
            Some(&request.host),
            Some(&request.path),
            Some(&request.verdict),
            request.rule.as_deref(),
            Some(&request.reason),
            owner.box_name.as_deref(),
            maker.as_deref(),
        ];
        let all = parts.into_iter().flatten().collect::<Vec<_>>().join(" ").to_ascii_lowercase();
        self.texts.iter().all(|text| all.contains(text))
    }
}

fn malformed(field: &str) -> Problem {
    Problem::invalid(format!("`{field}` has an invalid form")).field(format!("/{field}"))
}

fn check(
    field: &str,
    value: Option<&str>,
    max: usize,
    is_valid: impl Fn(u8) -> bool,
) -> Result<(), Problem> {
    let is_wrong = |it: &str| it.is_empty() || it.len() > max || !it.bytes().all(&is_valid);
    if value.is_some_and(is_wrong) { Err(malformed(field)) } else { Ok(()) }
}

/// Parses a time of the query. Returns nanoseconds since 1970.
fn time(field: &str, text: Option<&str>) -> Result<Option<u64>, Problem> {
    let Some(text) = text else { return Ok(None) };
    // One form only, so that every text has one meaning for all clients.
    let is_plain = text.starts_with('2') && text.ends_with('Z') && text.get(10..11) == Some("T");
    let millis = moment::parse_rfc3339(text).filter(|_| is_plain).ok_or_else(|| {
        let detail = format!("`{field}` must be a time such as 2026-11-16T12:00:00Z");
        Problem::invalid(detail).field(format!("/{field}"))
    })?;
    Ok(Some(millis.saturating_mul(1_000_000)))
}

async fn list(call: Call) -> Result<Response, Problem> {
    let mut parameters: RequestParameters = call.query()?;
    let filter = RequestFilter::new(&mut parameters)?;
    let RequestParameters { limit, cursor, q, from, to, .. } = parameters;
    let page = call.page_of(REQUESTS, PageParameters { limit, cursor, q })?;
    let query = RequestQuery {
        since: time("from", from.as_deref())?,
        until: time("to", to.as_deref())?,
        before: page.after.as_deref().and_then(|after| after.parse().ok()),
    };
    let (scope, tenant, owned) = (call.scope()?, call.tenant()?, call.owned()?);
    let found = blocking(&call.app, move || {
        tenant.ledgers.read(&scope, |browser| {
            let is_visible = |owner: &EventOwner| owned.may_see(owner.maker.as_ref());
            let is_wanted = |found: &RecordedRequest| filter.matches(found);
            Ok(browser.requests(&query, page.limit, &is_visible, &is_wanted)?)
        })
    });
    let Some(found) = found.await? else {
        return call.list(REQUESTS, Vec::<RequestView>::new(), None);
    };
    let items = found.requests.iter().map(RequestView::of).collect();
    call.list(REQUESTS, items, found.last.map(|last| last.to_string()).as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_the_query_has_one_form() {
        assert_eq!(time("from", None), Ok(None));
        let nanos = 1_794_830_400_500_000_000;
        assert_eq!(time("from", Some("2026-11-16T12:00:00.5Z")), Ok(Some(nanos)));
        assert!(time("from", Some("2028-02-29T12:00:00Z")).is_ok());
        for text in ["", "2026", "2027-02-29T12:00:00Z", "2026-11-16 12:00:00Z", "T"] {
            assert!(time("from", Some(text)).is_err(), "{text}");
        }
        assert!(time("to", Some("2026-11-16T12:00:00+01:00")).is_err());
    }
}
