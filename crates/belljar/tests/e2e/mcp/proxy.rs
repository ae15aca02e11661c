//! A loopback proxy that adds a token to every request, for a client that cannot send one.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Starts a proxy that forwards connections to `server` with a token, and returns its address. The
/// proxy ends with the process.
pub(super) fn with_token(server: &str, token: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (server, token) = (server.to_owned(), token.to_owned());
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (server, token) = (server.clone(), token.clone());
            std::thread::spawn(move || forward(client, &server, &token));
        }
    });
    address
}

/// Forwards one request per connection and its response, then closes the connection. An error closes
/// the connection as well, which the client notices.
fn forward(mut client: TcpStream, server: &str, token: &str) -> Option<()> {
    let head = read_head(&mut client)?;
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

/// Reads the head of an HTTP request, up to and including the empty line.
fn read_head(client: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    String::from_utf8(head).ok()
}
