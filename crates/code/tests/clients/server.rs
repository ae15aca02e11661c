//! An HTTP server that returns each request as JSON.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use serde_json::{Map, Value, json};

/// A running HTTP server that returns each request as JSON. Its thread ends with the test process.
pub(crate) struct Echo {
    port: u16,
}

impl Echo {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                thread::spawn(move || serve(&connection));
            }
        });
        Self { port }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

fn serve(connection: &TcpStream) {
    let mut reader = BufReader::new(connection);
    while let Some((method, target, headers, body)) = request(&mut reader) {
        let (status, kind, answer) = match target.trim_start_matches("/v2") {
            "/pets/204" => ("204 No Content", "", String::new()),
            "/status/418" => {
                ("418 I'm a teapot", "application/json", json!({"why": "teapot"}).to_string())
            }
            "/broken" => ("200 OK", "application/json", "{oops".to_owned()),
            "/text" => ("200 OK", "text/plain", "plain text".to_owned()),
            _ => {
                let body = String::from_utf8_lossy(&body);
                let echo =
                    json!({"method": method, "target": target, "headers": headers, "body": body});
                ("200 OK", "application/json", echo.to_string())
            }
        };
        let answer = if method == "HEAD" { String::new() } else { answer };
        let kind =
            if kind.is_empty() { String::new() } else { format!("content-type: {kind}\r\n") };
        let length = answer.len();
        let sent = write!(
            &*connection,
            "HTTP/1.1 {status}\r\n{kind}content-length: {length}\r\n\r\n{answer}"
        );
        if sent.is_err() {
            return;
        }
    }
}

type Request = (String, String, Map<String, Value>, Vec<u8>);

fn request(reader: &mut BufReader<&TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut headers = Map::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), Value::from(value.trim()));
    }
    let length = headers.get("content-length").and_then(Value::as_str);
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some((method, target, headers, body))
}
