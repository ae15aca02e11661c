//! An HTTP server that counts effects by idempotency key, and holds each answer until the test releases it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) number: u64,
    /// The idempotency key of the task: `RUN/TASK`.
    pub(super) key: String,
}

#[derive(Debug, Default)]
struct Shared {
    last: u64,
    held: VecDeque<Held>,
    released: BTreeSet<u64>,
    effects: BTreeMap<String, u32>,
}

/// The server. It runs until the test process ends.
#[derive(Debug)]
pub(super) struct HeldUpstream {
    address: SocketAddr,
    shared: Arc<(Mutex<Shared>, Condvar)>,
}

impl HeldUpstream {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared: Arc<(Mutex<Shared>, Condvar)> = Arc::default();
        let of_server = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&of_server);
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
        Self { address, shared }
    }

    /// Returns a template whose boxes reach the server as `api.example.com`.
    pub(super) fn template(&self) -> String {
        format!(
            "[template.default]\nnet = \"restricted\"\n[[template.default.allow]]\nhost = \"api.example.com\"\nport = 80\nconnect = \"{}\"\n",
            self.address
        )
    }

    /// Takes the next request that waits for its answer.
    pub(super) fn next(&self) -> Option<Held> {
        self.lock().held.pop_front()
    }

    /// Lets the server answer a request.
    pub(super) fn release(&self, number: u64) {
        self.lock().released.insert(number);
        self.shared.1.notify_all();
    }

    /// Returns how often each key had an effect.
    pub(super) fn effects(&self) -> BTreeMap<String, u32> {
        self.lock().effects.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves one request of a connection. Every method except GET is an effect.
fn serve(stream: &TcpStream, shared: &(Mutex<Shared>, Condvar)) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let method = line.split(' ').next()?.to_owned();
    let (mut key, mut length) = (String::new(), 0);
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => value.trim().clone_into(&mut key),
            "content-length" => length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    let mut state = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
    if method != "GET" {
        *state.effects.entry(key.clone()).or_default() += 1;
    }
    state.last += 1;
    let number = state.last;
    state.held.push_back(Held { number, key });
    while !state.released.contains(&number) {
        state = shared.1.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    drop(state);
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    (&*stream).write_all(answer).ok() // the client may be dead
}
