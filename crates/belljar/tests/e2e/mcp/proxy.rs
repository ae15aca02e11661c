//! A loopback proxy that adds a token to every request, for a judge that cannot be given one.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Passes connections on to `server`. Ends with the process.
pub(super) fn with_token(server: &str, token: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (server, token) = (server.to_owned(), token.to_owned());
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (server, token) = (server.clone(), token.clone());
            std::thread::spawn(move || pass(client, &server, &token));
        }
    });
    address
}

/// One request for each connection: what follows its head is its body, and the end of the answer is the
/// end of the connection. Whatever fails ends it, and the judge notices.
fn pass(mut client: TcpStream, server: &str, token: &str) -> Option<()> {
    let head = head(&mut client)?;
    let kept = head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let mut head = kept.collect::<Vec<_>>().join("\r\n").trim_end().to_owned();
    head.push_str(&format!("\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"));
    let mut server = TcpStream::connect(server).ok()?;
    server.write_all(head.as_bytes()).ok()?;
    let (mut body, mut upward) = (client.try_clone().ok()?, server.try_clone().ok()?);
    std::thread::spawn(move || std::io::copy(&mut body, &mut upward));
    std::io::copy(&mut server, &mut client).ok()?;
    client.shutdown(std::net::Shutdown::Both).ok()?;
    server.shutdown(std::net::Shutdown::Both).ok()
}

fn head(client: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    String::from_utf8(head).ok()
}
