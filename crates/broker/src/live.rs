//! A broker with real sockets, for tests of whole connections. Its upstream servers, its TLS and its
//! client are real as well; only the supervisor is a thread of the test that acknowledges events.
//!
//! The tests of boxes are in `crates/belljar`. Tests here need no box, because they are about the
//! bytes that the broker sends and receives.

mod budgets;
mod ranges;
mod refusals;
mod responses;

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use belljar_model::net::{Budget, Policy, Rule, RuleTarget, SecretDecl};
use belljar_model::{AskTimeout, Net};
use belljar_testkit::Authority;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::broker::{Broker, Materials, prepare};
use crate::connection;
use crate::dns::{Resolver, ResolverConf};
use crate::record::{
    BrokerEvent, FromBroker, MAX_MESSAGE, Recorder, RecorderTasks, ToBroker, Verdict,
};
use crate::setup::Setup;
use crate::tls::Roots;
use crate::vault::Value;
use crate::vault::sealed::{KeySource, Unsealed};

/// The host of all upstream servers, unless a test names another one.
pub(super) const HOST: &str = "api.example.com";
/// The value of the secret `token`.
pub(super) const SECRET: &str = "ghp_thisIsTheRealValue0123456789abcdefAB";
/// The maximum time that a test waits for an event; only a failed test reaches it.
const DEADLINE: Duration = Duration::from_secs(60);

/// A broker that serves connections of a test.
#[derive(Clone)]
pub(super) struct Live {
    /// The address that stands for every address outside of the box.
    pub(super) address: SocketAddr,
    /// The certificate authority of the box in PEM.
    pub(super) certificate: Vec<u8>,
    placeholders: Vec<String>,
    events: Arc<Events>,
}

#[derive(Default)]
struct Events {
    list: Mutex<Vec<BrokerEvent>>,
    changed: Condvar,
}

/// Returns an empty policy, which allows nothing.
pub(super) fn policy() -> Policy {
    Policy {
        net: Net::Restricted,
        allow: Vec::new(),
        deny: Vec::new(),
        ask: Vec::new(),
        ask_timeout: AskTimeout::default(),
        secrets: Vec::new(),
        budget: Budget::default(),
        proxy: None,
    }
}

/// Returns a rule for `HOST` that leads to this server and carries these secrets.
pub(super) fn rule(connect: SocketAddr, secrets: &[&str]) -> Rule {
    rule_for(HOST, connect, secrets)
}

pub(super) fn rule_for(host: &str, connect: SocketAddr, secrets: &[&str]) -> Rule {
    let mut rule = Rule::allow(host).unwrap();
    if let RuleTarget::Http(http) = &mut rule.what {
        http.secrets = secrets.iter().map(|name| name.parse().unwrap()).collect();
        http.connect = Some(connect);
        http.websocket = true;
    }
    rule
}

/// Returns the declaration of the secret `token` for `HOST`.
pub(super) fn token() -> SecretDecl {
    SecretDecl::token("token".parse().unwrap(), vec![HOST.parse().unwrap()])
}

/// Returns a policy with one rule for `HOST` that carries the secret `token`.
pub(super) fn token_policy(connect: SocketAddr) -> Policy {
    Policy { allow: vec![rule(connect, &["token"])], secrets: vec![token()], ..policy() }
}

impl Live {
    /// Starts a broker for a policy whose secrets all have the value [`SECRET`].
    pub(super) fn start(authority: &Authority, policy: Policy) -> Self {
        let values = policy.secrets.iter().map(|it| (it.name.to_string(), SECRET.to_owned()));
        let values = values.collect();
        Self::start_with(authority, policy, values, "203.0.113.1:443")
    }

    /// Starts a broker with these values of secrets. All its connections dial `dialled`.
    pub(super) fn start_with(
        authority: &Authority,
        policy: Policy,
        values: Vec<(String, String)>,
        dialled: &str,
    ) -> Self {
        let dialled: SocketAddr = dialled.parse().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (control, supervisor) = UnixDatagram::pair().unwrap();
        let events = Arc::new(Events::default());
        let kept = Arc::clone(&events);
        std::thread::spawn(move || supervise(&supervisor, &kept));
        let mut roots = Roots::none();
        roots.add_pem(authority.pem().as_bytes(), "the authority of the test").unwrap();
        let (sender, prepared) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let unsealed = |(name, text): (String, String)| {
                    let value = Value::new(Zeroizing::new(text.into_bytes())).unwrap();
                    (name.parse().unwrap(), Unsealed { value, set_at: 1 })
                };
                let secrets = policy.secrets.iter().map(|it| it.name.clone()).collect();
                let (prepared, hello) = prepare(
                    Setup {
                        policy,
                        roots: Vec::new(),
                        name_servers: Vec::new(),
                        key: KeySource::File,
                        secrets,
                        own: Vec::new(),
                        changes: false,
                        leased: false,
                    },
                    Materials {
                        roots,
                        resolver: Resolver::new(ResolverConf::default()).unwrap(),
                        values: values.into_iter().map(unsealed).collect(),
                        key: None,
                        proxy: Vec::new(),
                        clock: now,
                    },
                )
                .unwrap();
                let (recorder, tasks, _changes) = Recorder::new(control.into()).unwrap();
                let (receiving, sending) = RecorderTasks::split(tasks);
                tokio::spawn(receiving);
                tokio::spawn(sending);
                let broker = Arc::new(Broker::new(prepared, recorder));
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                sender.send(hello).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    tokio::spawn(connection::serve(Arc::clone(&broker), stream, dialled));
                }
            });
        });
        let hello = prepared.recv().unwrap();
        let placeholders = hello.placeholders.into_iter().map(|it| it.text).collect();
        Self { address, certificate: hello.certificate, placeholders, events }
    }

    /// Returns the placeholder of the first secret.
    pub(super) fn placeholder(&self) -> &str {
        &self.placeholders[0]
    }

    /// Opens a TLS connection of a client in the box.
    pub(super) fn connect_to(&self, host: &str) -> StreamOwned<ClientConnection, TcpStream> {
        use rustls_pki_types::pem::PemObject as _;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&self.certificate).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = host.to_owned().try_into().unwrap();
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        StreamOwned::new(client, stream)
    }

    /// Sends a request with these header lines to `HOST`, and returns the whole response as text.
    pub(super) fn request(&self, start: &str, headers: &[(&str, &str)], body: &str) -> String {
        self.request_to(HOST, start, headers, body)
    }

    pub(super) fn request_to(
        &self,
        host: &str,
        start: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> String {
        let mut text = format!("{start} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        let mut stream = self.connect_to(host);
        write!(stream, "{text}\r\n{body}").unwrap();
        without_chunks(&read_all(&mut stream))
    }

    /// Sends a `GET` request with the placeholder, and returns the whole response as text.
    pub(super) fn get(&self, path: &str, more: &[(&str, &str)]) -> String {
        let bearer = format!("Bearer {}", self.placeholder());
        let headers = [&[("authorization", bearer.as_str())], more].concat();
        self.request(&format!("GET {path}"), &headers, "")
    }

    /// Returns all events that the broker recorded so far.
    pub(super) fn events(&self) -> Vec<BrokerEvent> {
        lock(&self.events.list).clone()
    }

    /// Waits until the broker has recorded an event, and returns the result of `find` for it.
    #[track_caller]
    pub(super) fn wait<T>(&self, find: impl Fn(&BrokerEvent) -> Option<T>) -> T {
        self.wait_all(|events| events.iter().find_map(&find))
    }

    /// Waits until a request or connection has failed, and returns its error.
    #[track_caller]
    pub(super) fn error(&self) -> String {
        self.wait(|event| {
            let BrokerEvent::Finished(finished) = event else { return None };
            finished.error.clone()
        })
    }

    /// Waits until a denial is recorded, and returns its reason.
    #[track_caller]
    pub(super) fn denial(&self) -> String {
        self.wait(|event| {
            let BrokerEvent::Decided(decided) = event else { return None };
            (decided.verdict == Verdict::Deny).then(|| decided.reason.clone())
        })
    }

    /// Waits until `find` has a result for the events that the broker recorded so far.
    #[track_caller]
    pub(super) fn wait_all<T>(&self, find: impl Fn(&[BrokerEvent]) -> Option<T>) -> T {
        let mut list = lock(&self.events.list);
        loop {
            if let Some(found) = find(&list) {
                return found;
            }
            let (next, waited) = self.events.changed.wait_timeout(list, DEADLINE).unwrap();
            assert!(!waited.timed_out(), "no such event in {next:#?}");
            list = next;
        }
    }
}

/// Reads until the peer closes the connection, with or without a TLS alert.
pub(super) fn read_all(stream: &mut impl std::io::Read) -> String {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok(); // the bytes before an error are kept
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a response as text without the framing of its chunks.
fn without_chunks(response: &str) -> String {
    let Some((head, mut rest)) = response.split_once("\r\n\r\n") else {
        return response.to_owned();
    };
    let mut text = format!("{head}\r\n\r\n");
    if !head.contains("transfer-encoding: chunked") {
        return response.to_owned();
    }
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        text.push_str(after.get(..size).unwrap_or(after));
        rest = after.get(size + 2..).unwrap_or_default();
    }
    text
}

#[expect(clippy::disallowed_methods, reason = "clients check certificates with the real time")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Stores the events of a broker and acknowledges them.
fn supervise(socket: &UnixDatagram, events: &Events) {
    let mut buffer = vec![0; MAX_MESSAGE];
    while let Ok(length @ 1..) = socket.recv(&mut buffer) {
        let id = match postcard::from_bytes(&buffer[..length]).unwrap() {
            FromBroker::Events(batch) => {
                lock(&events.list).extend(batch.events);
                events.changed.notify_all();
                batch.id
            }
            FromBroker::Renewed(renewed) => renewed.id,
            FromBroker::Changed(_) | FromBroker::Exhausted => continue,
        };
        if id > 0 {
            let first = u64::try_from(lock(&events.list).len()).unwrap();
            let reply = postcard::to_allocvec(&ToBroker::Recorded { id, first }).unwrap();
            socket.send(&reply).ok(); // the broker can have ended
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}
