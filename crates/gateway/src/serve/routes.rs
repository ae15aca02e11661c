//! The routes of the API. Each route is declared once, with its method, its path, its access and its handler.

mod health;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use http::Method;
use tower_http::catch_panic::CatchPanicLayer;

use super::app::App;
use super::call::{Call, MatchedRoute, RequestContext};
use super::head::Entrance;
use super::problem::{Problem, ProblemKind};

/// The clients that may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Every client that can connect.
    Anyone,
    /// Clients on the local socket, which are processes of the user that runs the server.
    LocalSocket,
}

impl Access {
    pub(super) fn check(self, context: &RequestContext) -> Result<(), Problem> {
        match (self, context.entrance) {
            (Self::Anyone, _) | (Self::LocalSocket, Entrance::LocalSocket) => Ok(()),
            (Self::LocalSocket, Entrance::Network { .. }) => {
                let detail = "this route is available on the local socket only";
                Err(Problem::new(ProblemKind::FORBIDDEN, detail))
            }
        }
    }
}

/// The declaration of a route.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) access: Access,
    /// The maximum length of the body in bytes.
    pub(super) max_body: usize,
}

impl Operation {
    const fn get(path: &'static str, access: Access) -> Self {
        Self { method: Method::GET, path, access, max_body: 0 }
    }
}

/// All routes of the server.
pub(super) fn router(app: Arc<App>) -> Router {
    let routes = Routes(Router::new());
    let Routes(router) = health::add(routes);
    with_problems(router).with_state(app)
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
struct Routes(Router<Arc<App>>);

impl Routes {
    /// Adds a route. The handler is called only for clients with access.
    fn add<H, F>(self, operation: Operation, handler: H) -> Self
    where
        H: Fn(Call) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        let path = operation.path;
        // All methods of the declarations are known to axum; a test calls each route.
        let Ok(filter) = MethodFilter::try_from(operation.method.clone()) else { return self };
        let operation = Arc::new(operation);
        let handle = move |State(app): State<Arc<App>>, request: Request| async move {
            let answered = match Call::new(app, &operation, request).await {
                Ok(call) => handler(call).await,
                Err(problem) => Err(problem),
            };
            let mut response = answered.into_response();
            response.extensions_mut().insert(MatchedRoute(operation.path));
            response
        };
        Self(self.0.route(path, on(filter, handle)))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::routing::get;
    use tower_service::Service as _;

    use super::*;

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
