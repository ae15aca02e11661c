//! Checks the HTTP/1.1 checks of the broker: a request that passes them is one request for one host with one
//! length, and another parser reads the same request after it is written out again.

use std::convert::Infallible;

use belljar_broker::target::{CanonicalPath, authority, headers, strip_hop_by_hop};
use belljar_model::net::{Scheme, Target};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;

const NAME: &str = "api.example.com";

pub fn check(bytes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(serve(bytes));
}

async fn serve(bytes: &[u8]) {
    let (mut client, server) = tokio::io::duplex(bytes.len().max(1));
    client.write_all(bytes).await.expect("the buffer has the size of the input");
    client.shutdown().await.expect("the client can be shut down");
    // The responses are discarded, so that the server never waits for the client.
    let drain = async { tokio::io::copy(&mut client, &mut tokio::io::sink()).await };
    let connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(server), service_fn(answer));
    let (served, drained) = run_both(connection, drain).await;
    // The HTTP library refuses malformed requests; its errors are expected.
    drop((served, drained));
}

/// Polls both futures until the first ends, drops it, and completes the second.
async fn run_both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (Box::pin(a), Box::pin(b));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|context| {
        if first.is_none()
            && let std::task::Poll::Ready(out) = a.as_mut().poll(context)
        {
            first = Some(out);
        }
        if second.is_none()
            && let std::task::Poll::Ready(out) = b.as_mut().poll(context)
        {
            second = Some(out);
        }
        match (first.is_some(), second.is_some()) {
            (true, _) => std::task::Poll::Ready(()),
            _ => std::task::Poll::Pending,
        }
    })
    .await;
    let second = match second {
        Some(out) => out,
        None => {
            drop(a);
            b.await
        }
    };
    (first.expect("the first future has ended"), second)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let (mut parts, body) = request.into_parts();
    let known: Target = NAME.parse().expect("a name");
    let checked = headers(&parts.headers).is_ok()
        && authority(&parts, Scheme::Https, &[&known], 443).is_ok_and(|target| target == known);
    let path = parts.uri.path_and_query().map(|path| path.as_str().to_owned());
    let path = path.filter(|path| CanonicalPath::parse(path).is_ok());
    if let Some(path) = path.filter(|_| checked) {
        assert!(parts.headers.get_all(HOST).iter().count() <= 1);
        let framed = parts.headers.get_all(CONTENT_LENGTH).iter().count()
            + parts.headers.get_all(TRANSFER_ENCODING).iter().count();
        assert!(framed <= 1, "the request has at most one length");
        strip_hop_by_hop(&mut parts.headers);
        assert_reads_the_same(parts.method.as_str(), &path, &parts.headers);
    }
    drop(body.collect().await);
    Ok(Response::new(Empty::new()))
}

/// Writes a request and asserts that another parser reads the same request.
fn assert_reads_the_same(method: &str, path: &str, map: &hyper::HeaderMap) {
    let mut text = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    for (name, value) in map {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    let mut headers = vec![httparse::EMPTY_HEADER; map.len() + 1];
    let mut parsed = httparse::Request::new(&mut headers);
    let status = parsed.parse(&text).expect("the written request can be parsed");
    assert_eq!(status, httparse::Status::Complete(text.len()), "no bytes follow the head");
    assert_eq!((parsed.method, parsed.path), (Some(method), Some(path)));
    assert_eq!(parsed.headers.len(), map.len());
    for (header, (name, value)) in parsed.headers.iter().zip(map) {
        assert!(header.name == name.as_str() && header.value == value.as_bytes().trim_ascii());
    }
}
