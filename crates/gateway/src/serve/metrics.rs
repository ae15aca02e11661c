//! The metrics of the server, in the text format of Prometheus.
//!
//! Labels are routes, methods and statuses, never values of a request.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use belljar_engine::record::durations::RecordedDuration;
use http::{Method, StatusCode};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The content type of the metrics.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The upper bounds of the histograms, in seconds.
const SECONDS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

type RequestLabels = [(&'static str, String); 3];
type RouteLabels = [(&'static str, &'static str); 1];

/// The counters of one server.
pub(crate) struct Metrics {
    registry: Mutex<Registry>,
    requests: Family<RequestLabels, Counter>,
    durations: Family<RouteLabels, Histogram>,
    pub(super) connections: Gauge,
    pub(super) refused_connections: Counter,
    /// The time from the request for a box to the start of its program.
    starts: Histogram,
    /// The time that the start of a box waits for its turn.
    pub(super) queue: Histogram,
    /// The time of requests of boxes through their brokers.
    broker: Histogram,
    /// The time until a record of the server is on disk.
    pub(super) ledger: Histogram,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("belljar");
        let requests = Family::<RequestLabels, Counter>::default();
        let histogram: fn() -> Histogram = || Histogram::new(SECONDS);
        let durations = Family::<RouteLabels, Histogram>::new_with_constructor(histogram);
        let (connections, refused_connections) = (Gauge::default(), Counter::default());
        registry.register("http_requests", "Handled requests", requests.clone());
        registry.register(
            "http_request_duration_seconds",
            "Time until the head of the response is ready",
            durations.clone(),
        );
        registry.register("http_connections", "Open connections", connections.clone());
        registry.register(
            "http_refused_connections",
            "Connections that were closed because of a limit or a wrong user",
            refused_connections.clone(),
        );
        let mut add_histogram = |name: &str, help: &str| {
            let added = histogram();
            registry.register(name, help, added.clone());
            added
        };
        let starts = add_histogram(
            "box_start_seconds",
            "Time from the request for a box to the start of its program",
        );
        let queue =
            add_histogram("start_queue_seconds", "Time that the start of a box waits for its turn");
        let broker = add_histogram("broker_request_seconds", "Time of requests through the broker");
        let ledger =
            add_histogram("ledger_append_seconds", "Time until a record of the server is on disk");
        Self {
            registry: Mutex::new(registry),
            requests,
            durations,
            connections,
            refused_connections,
            starts,
            queue,
            broker,
            ledger,
        }
    }

    /// Counts a handled request. `route` is the pattern of the path, not the path.
    pub(super) fn handled(
        &self,
        route: &'static str,
        method: &Method,
        status: StatusCode,
        time: Duration,
    ) {
        // Clients choose the method, and a label must not have unlimited values.
        let known =
            [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        let method = if known.contains(method) { method.as_str() } else { "other" };
        let status = status.as_str().to_owned();
        let labels =
            [("route", route.to_owned()), ("method", method.to_owned()), ("status", status)];
        self.requests.get_or_create(&labels).inc();
        self.durations.get_or_create(&[("route", route)]).observe(time.as_secs_f64());
    }

    /// Counts a duration that the ledger of a tenant recorded.
    pub(super) fn recorded(&self, duration: RecordedDuration) {
        let seconds = |micros: u64| Duration::from_micros(micros).as_secs_f64();
        match duration {
            RecordedDuration::Start(micros) => self.starts.observe(seconds(micros)),
            RecordedDuration::Request(micros) => self.broker.observe(seconds(micros)),
        }
    }

    /// Returns all metrics as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        encode(&mut text, &registry).ok(); // writing to a text does not fail
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_count_requests_by_route_method_and_status() {
        let metrics = Metrics::new();
        let time = Duration::from_millis(3);
        metrics.handled("/healthz", &Method::GET, StatusCode::OK, time);
        metrics.handled("/healthz", &Method::GET, StatusCode::OK, time);
        metrics.handled("none", &"BREW".parse().unwrap(), StatusCode::NOT_FOUND, time);
        metrics.recorded(RecordedDuration::Start(20_000));
        metrics.recorded(RecordedDuration::Request(90_000));
        let text = metrics.text();
        for line in [
            "belljar_http_requests_total{route=\"/healthz\",method=\"GET\",status=\"200\"} 2",
            "belljar_http_requests_total{route=\"none\",method=\"other\",status=\"404\"} 1",
            "belljar_http_request_duration_seconds_bucket{le=\"0.005\",route=\"/healthz\"} 2",
            "belljar_http_connections 0",
            "belljar_box_start_seconds_bucket{le=\"0.025\"} 1",
            "belljar_broker_request_seconds_count 1",
            "belljar_start_queue_seconds_count 0",
            "belljar_ledger_append_seconds_count 0",
            "# EOF",
        ] {
            assert!(text.lines().any(|it| it == line), "{line}:\n{text}");
        }
    }
}
