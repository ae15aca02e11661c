//! The routes of the API. Each route is declared once, with its method, its path, its access and its handler.

mod account;
mod approvals;
pub(super) mod boxes;
mod console;
mod description;
pub(super) mod doctor;
mod events;
mod execs;
mod health;
mod ledger;
pub(super) mod login;
mod oidc;
mod operation;
mod plans;
mod policy;
mod requests;
mod run;
mod runs;
mod schedules;
mod secrets;
mod usage;
mod users;
mod webhooks;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use tower_http::catch_panic::CatchPanicLayer;

use super::app::App;
use super::call::{Call, MatchedRoute};
use super::idempotency;
use super::problem::{Problem, ProblemKind};
pub(super) use account::time;
pub(crate) use operation::{Access, Content, Operation, Replay};

/// Returns the router of the server.
pub(super) fn router(app: Arc<App>) -> Router {
    with_problems(all().router).with_state(app)
}

/// Returns all routes of the server.
fn all() -> Routes {
    [
        health::add,
        account::add,
        login::add,
        oidc::add,
        users::add,
        boxes::add,
        execs::add,
        run::add,
        events::add,
        ledger::add,
        doctor::add,
        runs::add,
        plans::add,
        schedules::add,
        approvals::add,
        usage::add,
        policy::add,
        requests::add,
        secrets::add,
        webhooks::add,
        description::add,
        console::add,
    ]
    .into_iter()
    .fold(Routes::default(), |routes, add| add(routes))
}

/// Answers with a problem where axum has other responses: unknown paths, wrong methods and panics.
fn with_problems<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router
        .fallback(|| async { Problem::new(ProblemKind::NOT_FOUND, "the server has no such path") })
        .method_not_allowed_fallback(|| async {
            Problem::new(ProblemKind::METHOD, "the header `Allow` lists the methods of this path")
        })
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            tracing::error!("a request handler panicked");
            Problem::new(ProblemKind::INTERNAL, "the operation failed").into_response()
        }))
}

/// Routes under construction.
#[derive(Default)]
struct Routes {
    router: Router<Arc<App>>,
    operations: Vec<Arc<Operation>>,
}

impl Routes {
    /// Adds a route. The handler is called only for clients with access.
    fn add<H, F>(mut self, operation: Operation, handler: H) -> Self
    where
        H: Fn(Call) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        let (path, aliases) = (operation.path, operation.aliases);
        // All methods of the declarations are known to axum; a test calls each route.
        let Ok(filter) = MethodFilter::try_from(operation.method.clone()) else { return self };
        let operation = Arc::new(operation);
        self.operations.push(Arc::clone(&operation));
        let handle = move |State(app): State<Arc<App>>, request: Request| async move {
            let from = console::Origin::of(&request);
            let (answered, running) = match Call::new(app, &operation, request).await {
                Ok((call, running)) => {
                    (idempotency::once(call, &operation, handler).await, running)
                }
                Err(problem) => (Err(problem), None),
            };
            let mut response = match answered {
                Err(problem) if operation.access == Access::Page => {
                    console::refused(&problem, &from)
                }
                answered => answered.into_response(),
            };
            if let Some(running) = running {
                response.extensions_mut().insert(running);
            }
            response.extensions_mut().insert(MatchedRoute(operation.path));
            response
        };
        for path in aliases.iter().copied().chain([path]) {
            self.router = self.router.route(path, on(filter, handle.clone()));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use tower_service::Service as _;

    use super::*;

    fn with_access(is_wanted: impl Fn(Access) -> bool) -> Vec<String> {
        let operations = all().operations;
        let wanted = operations.iter().filter(|operation| is_wanted(operation.access));
        wanted.map(|operation| format!("{} {}", operation.method, operation.path)).collect()
    }

    #[test]
    fn f06_only_listed_routes_are_open_to_everyone_or_only_to_the_local_socket() {
        let open = [
            "GET /healthz",
            "GET /readyz",
            "GET /device",
            "GET /device.js",
            "POST /auth/device",
            "POST /auth/device/token",
            "GET /login",
            "GET /login.js",
            "POST /auth/link",
            "GET /auth/oidc",
            "GET /auth/oidc/callback",
            "GET /openapi.json",
        ];
        let mut found = with_access(|access| access == Access::Anyone);
        found.retain(|route| !route.starts_with("GET /static/")); // files that are the same for everyone
        assert_eq!(found, open);
        let local = ["POST /local/login-links", "POST /local/tenants"];
        assert_eq!(with_access(|access| access == Access::LocalSocket), local);
        let all = ["GET /v1/me", "GET /v1/events"];
        assert_eq!(with_access(|access| access == Access::Authenticated), all);
        assert!(with_access(|access| matches!(access, Access::For(_))).len() >= 7);
    }

    #[tokio::test]
    async fn panic_of_a_handler_is_answered_with_a_problem() {
        async fn panics() -> Response {
            std::panic::resume_unwind(Box::new("a fault of the handler"))
        }
        let mut router = with_problems(Router::new().route("/", get(panics)));
        let request = || Request::new(Body::empty());
        let response = router.call(request()).await.unwrap();
        let problem = response.extensions().get::<Problem>().unwrap();
        assert_eq!(problem.kind, ProblemKind::INTERNAL);
        assert_eq!(router.call(request()).await.unwrap().status(), 500, "control: it still serves");
    }
}
