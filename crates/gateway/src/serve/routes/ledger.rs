//! The routes of the ledger: events, proofs, verification and redaction.

mod check;
mod proofs;
mod view;

use std::sync::Arc;

use axum::response::Response;
use belljar_engine::record::browse::{EventProperties, EventQuery, FoundEvent, LedgerBrowser};
use belljar_engine::scope::Scoped;
use belljar_model::caller::Caller;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Access, Operation, Routes};
use crate::serve::access::{Act, Extent, Role, extent};
use crate::serve::audit::system_tenant;
use crate::serve::call::{Call, Owned, blocking, json_response};
use crate::serve::filter::Filter;
use crate::serve::identity::Identity;
use crate::serve::ledgers::LedgerPool;
use crate::serve::page::{List, PageParameters};
use crate::serve::problem::{Problem, ProblemKind};
use view::{EventDetailView, EventView};

/// The keys of the filter of events.
const KEYS: [&str; 5] = ["kind", "run", "box", "actor", "by"];
/// The maximum size of a body whose content is part of the description of an event.
const MAX_CONTENT: u64 = 64 * 1024;

pub(super) fn add(routes: Routes) -> Routes {
    let read = Access::For(Act::ReadLedger);
    let routes = routes
        .add(
            Operation::get("/v1/ledger/events", read)
                .about(
                    "Lists events of the ledger; the filter has the keys kind, run, box, actor and by. \
                     A page examines a limited number of events, so it can have fewer items than \
                     requested although `next` is set",
                )
                .query::<EventParameters>()
                .returns::<List<EventView>>(StatusCode::OK),
            list,
        )
        .add(
            Operation::get("/v1/ledger/events/{event}", read)
                .about("Describes an event with its fields, its bytes and its bodies")
                .query::<LedgerParameters>()
                .returns::<EventDetailView>(StatusCode::OK),
            get,
        );
    [proofs::add, check::add].into_iter().fold(routes, |routes, add| add(routes))
}

/// A ledger that a request can read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum LedgerName {
    /// The ledger of the sender's tenant.
    #[default]
    Tenant,
    /// The ledger with the logins and tenants of the server, for auditors of the tenant `local`.
    System,
}

impl LedgerName {
    const fn name(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::System => "system",
        }
    }
}

/// The ledger of a request.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LedgerParameters {
    /// `tenant` by default.
    ledger: Option<LedgerName>,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Order {
    #[default]
    Newest,
    Oldest,
}

impl Order {
    const fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Oldest => "oldest",
        }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EventParameters {
    /// The maximum number of items.
    #[schemars(range(min = 1, max = 200))]
    limit: Option<usize>,
    /// The value of `next` of the page before.
    #[schemars(regex(pattern = r"^[A-Za-z0-9_-]{1,1024}\.[A-Za-z0-9_-]{22}$"))]
    cursor: Option<String>,
    /// A filter. The items contain this text.
    #[schemars(length(min = 1, max = 256))]
    q: Option<String>,
    /// The first item of the list: the newest event by default.
    order: Option<Order>,
    /// `tenant` by default.
    ledger: Option<LedgerName>,
}

/// A ledger with the part of it that the sender may see.
struct Source {
    scope: Scoped,
    pool: Arc<LedgerPool>,
    owned: Owned,
}

impl Source {
    /// Finds the ledger that a request names.
    fn of(call: &Call, ledger: Option<LedgerName>) -> Result<Self, Problem> {
        let owned = call.owned()?;
        match ledger.unwrap_or_default() {
            LedgerName::Tenant => {
                let pool = Arc::clone(&call.tenant()?.ledgers);
                Ok(Self { scope: call.scope()?, pool, owned })
            }
            LedgerName::System => {
                if !may_read_system(call.who()?) {
                    let detail = "the tenant has no such ledger";
                    return Err(Problem::new(ProblemKind::NOT_FOUND, detail));
                }
                let caller = Caller { tenant: system_tenant(), ..call.app.owner.clone() };
                let pool = Arc::clone(&call.app.system_ledgers);
                Ok(Self { scope: call.app.engine.of(&caller)?, pool, owned })
            }
        }
    }

    /// Calls a function with the ledger. Returns `None` if there is no ledger yet. Blocks.
    fn read<T>(
        &self,
        work: impl FnOnce(&mut LedgerBrowser) -> Result<T, Problem>,
    ) -> Result<Option<T>, Problem> {
        self.pool.read(&self.scope, work)
    }

    /// Calls a function with an event that the sender may see. Blocks.
    fn read_event<T>(
        &self,
        index: u64,
        work: impl FnOnce(&LedgerBrowser, &FoundEvent) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        let unknown = || Problem::new(ProblemKind::NOT_FOUND, "the ledger has no such event");
        let result = self.read(|browser| {
            let found = browser.find(index)?;
            let found = found.filter(|it| self.owned.may_see(it.owner.maker.as_ref()));
            work(browser, &found.ok_or_else(unknown)?)
        });
        result?.ok_or_else(unknown)
    }
}

/// Returns whether a sender may read the ledger with the logins and tenants of the server.
fn may_read_system(who: &Identity) -> bool {
    let has_role = match who.role {
        Role::Owner | Role::Admin | Role::Auditor => true,
        Role::Operator | Role::Member => false,
    };
    who.tenant().is_local() && has_role
}

/// Returns the problem of a route that needs a ledger.
fn no_ledger() -> Problem {
    Problem::new(ProblemKind::NOT_FOUND, "the tenant has no ledger yet; its first event creates it")
}

/// A parsed filter of events.
struct EventFilter {
    filter: Filter,
    query: EventQuery,
    /// Whether the terms of the filter contradict each other, so that no event matches.
    is_empty: bool,
}

impl EventFilter {
    fn new(q: Option<&str>, order: Order) -> Self {
        let filter = Filter::parse(q, &KEYS);
        let mut runs = filter.terms("run");
        let run = runs.next();
        let is_empty = run.is_some_and(|first| runs.any(|other| other != first));
        let run = run.map(|run| run.parse().ok());
        let query = EventQuery {
            run: run.flatten(),
            kind: filter.terms("kind").next().map(str::to_owned),
            from: None,
            newest_first: order == Order::Newest,
            texts: filter.texts().to_vec(),
        };
        Self { is_empty: is_empty || run == Some(None), query, filter: filter.clone() }
    }

    /// Returns whether an event has the values of all terms that the index does not look up.
    fn matches(&self, event: EventProperties<'_>) -> bool {
        let EventProperties { kind, actor, owner } = event;
        let all = |key: &str, is: &dyn Fn(&str) -> bool| self.filter.terms(key).all(is);
        let is_by = |wanted: &str| {
            owner.maker.as_ref().is_some_and(|maker| {
                maker.name().eq_ignore_ascii_case(wanted)
                    || maker.to_string().eq_ignore_ascii_case(wanted)
            })
        };
        all("kind", &|wanted| kind == wanted || kind.split('.').next() == Some(wanted))
            && all("actor", &|wanted| actor == wanted)
            && all("box", &|wanted| owner.box_name.as_deref() == Some(wanted))
            && all("by", &is_by)
    }
}

async fn list(call: Call) -> Result<Response, Problem> {
    let EventParameters { limit, cursor, q, order, ledger } = call.query()?;
    let order = order.unwrap_or_default();
    let name = format!("ledger-{}-{}", ledger.unwrap_or_default().name(), order.name());
    let page = call.page_of(&name, PageParameters { limit, cursor, q })?;
    let mut filter = EventFilter::new(page.q.as_deref(), order);
    filter.query.from = page.after.as_deref().and_then(|after| after.parse().ok());
    if filter.is_empty {
        return call.list(&name, Vec::<EventView>::new(), None);
    }
    let source = Source::of(&call, ledger)?;
    let found = blocking(&call.app, move || {
        source.read(|browser| {
            let is_wanted = |event: EventProperties<'_>| {
                source.owned.may_see(event.owner.maker.as_ref()) && filter.matches(event)
            };
            Ok(browser.page(&filter.query, page.limit, &is_wanted)?)
        })
    });
    let Some(found) = found.await? else { return call.list(&name, Vec::<EventView>::new(), None) };
    let items = found.events.iter().map(EventView::of).collect();
    call.list(&name, items, found.last.map(|last| last.to_string()).as_deref())
}

/// Returns the index of the event that a request names.
fn event_index(call: &Call) -> Result<u64, Problem> {
    let unknown = |_| Problem::new(ProblemKind::NOT_FOUND, "the ledger has no such event");
    call.param("event")?.parse().map_err(unknown)
}

async fn get(call: Call) -> Result<Response, Problem> {
    let LedgerParameters { ledger } = call.query()?;
    let (source, index) = (Source::of(&call, ledger)?, event_index(&call)?);
    let who = call.who()?;
    let may_read_contents = extent(Act::ReadContents, who.role, &who.grant) > Extent::Nothing;
    let max_content = may_read_contents.then_some(MAX_CONTENT);
    let detail = blocking(&call.app, move || {
        source.read_event(index, |browser, found| Ok(browser.detail(found, max_content)?))
    })
    .await?;
    json_response(StatusCode::OK, &EventDetailView::of(&detail))
}
