//! Tests of bodies: forwarded bytes, their timing, and the report at the end.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame, SizeHint};

use super::decode::{ALL, encode};
use super::{NAME, VALUE, github};
use crate::scrub::{
    BodyError, BoxError, Coding, Ended, Finder, GuardedBody, How, ScrubbedBody, Scrubber, reframe,
};

/// A test body whose frames are partly available at once and partly later.
#[derive(Default)]
struct Frames {
    frames: VecDeque<Option<Result<Frame<Bytes>, BoxError>>>,
    size: Option<u64>,
}

impl Frames {
    fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.frames.push_back(Some(Ok(Frame::data(data.into().into()))));
        self
    }

    fn later(mut self) -> Self {
        self.frames.push_back(None);
        self
    }

    fn error(mut self, error: &str) -> Self {
        self.frames.push_back(Some(Err(error.into())));
        self
    }

    fn trailer(mut self, name: &'static str, value: &str) -> Self {
        let mut trailers = HeaderMap::new();
        trailers.insert(name, HeaderValue::from_str(value).unwrap());
        self.frames.push_back(Some(Ok(Frame::trailers(trailers))));
        self
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.frames.pop_front() {
            None => Poll::Ready(None),
            Some(None) => Poll::Pending,
            Some(frame) => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.size.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

fn poll<B>(body: &mut B) -> Poll<Option<Result<Frame<Bytes>, BoxError>>>
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
}

/// Reads a body to its end; returns the data, the trailers, and the final error, if any.
fn read<B>(body: &mut B) -> (Vec<u8>, HeaderMap, Option<BoxError>)
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    let (mut data, mut trailers) = (Vec::new(), HeaderMap::new());
    loop {
        match poll(body) {
            Poll::Pending => {}
            Poll::Ready(None) => return (data, trailers, None),
            Poll::Ready(Some(Err(error))) => return (data, trailers, Some(error)),
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(bytes) => data.extend_from_slice(&bytes),
                Err(frame) => trailers = frame.into_trailers().unwrap(),
            },
        }
    }
}

/// Collects the reports about the ends of bodies.
#[derive(Clone, Default)]
struct Reports(Arc<Mutex<Vec<Ended>>>);

impl Reports {
    fn callback(&self) -> impl FnOnce(Ended) + Send + 'static + use<> {
        let reports = self.0.clone();
        move |ended| reports.lock().unwrap().push(ended)
    }

    #[track_caller]
    fn once(&self) -> Ended {
        let reports = self.0.lock().unwrap();
        assert_eq!(reports.len(), 1, "{reports:?}");
        reports[0].clone()
    }
}

fn finder() -> Finder {
    Finder::new(&[("github".to_owned(), b"bj_placeholder_of_the_box")]).unwrap()
}

#[test]
fn b05_body_with_any_coding_is_decoded_and_scrubbed() {
    let content = format!("{{\"token\":\"{VALUE}\"}}").repeat(3);
    let expected = format!("{{\"token\":\"{NAME}\"}}").repeat(3);
    for coding in ALL {
        for twice in [None, Some(Coding::Gzip)] {
            let codings: Vec<Coding> = [coding].into_iter().chain(twice).collect();
            let coded = codings.iter().fold(content.clone().into_bytes(), |c, &by| encode(by, &c));
            let reports = Reports::default();
            let frames =
                coded.chunks(7).fold(Frames::default(), |frames, c| frames.data(c).later());
            let mut body =
                ScrubbedBody::new(frames, &codings, &github()).on_end(reports.callback());
            let (data, _, error) = read(&mut body);
            assert!(error.is_none());
            assert_eq!(String::from_utf8(data).unwrap(), expected, "{codings:?}");
            let ended = reports.once();
            assert_eq!((ended.found, ended.how), (3, How::Complete));
            assert_eq!(ended.received, u64::try_from(coded.len()).unwrap());
            assert_eq!(ended.passed, u64::try_from(expected.len()).unwrap());
        }
    }
}

#[test]
fn b04_secrets_are_removed_from_response_headers_and_trailers() {
    let frames = Frames::default().data("x").trailer("x-echo", VALUE);
    let (_, trailers, _) = read(&mut ScrubbedBody::new(frames, &[], &github()));
    assert_eq!(trailers["x-echo"], NAME);

    let mut headers = HeaderMap::new();
    headers.append("location", HeaderValue::from_str(&format!("/?t={VALUE}")).unwrap());
    headers.append("set-cookie", HeaderValue::from_static("a=1"));
    headers.append("set-cookie", HeaderValue::from_str(VALUE).unwrap());
    let clean = github().headers(&headers);
    assert_eq!(clean["location"], format!("/?t={NAME}"));
    let cookies: Vec<_> = clean.get_all("set-cookie").iter().collect();
    assert_eq!(cookies, ["a=1", NAME]);

    // Header names are in lower case, but can still contain the value.
    let secret = super::scrubber(&[("token", b"Secret-Token-123")]);
    let mut headers = HeaderMap::new();
    headers.insert("x-secret-token-123", HeaderValue::from_static("1"));
    headers.insert("x-secret-token-12", HeaderValue::from_static("1"));
    assert_eq!(secret.headers(&headers).keys().collect::<Vec<_>>(), ["x-secret-token-12"]);
}

#[test]
fn b08_server_sent_events_are_forwarded_at_once() {
    let event = "data: {\"delta\":\"hello\"}\n\n";
    let frames = Frames::default().data(event).later().data(event).later();
    let mut body = ScrubbedBody::new(frames, &[], &github());
    for _ in 0..2 {
        let Poll::Ready(Some(Ok(frame))) = poll(&mut body) else { panic!("held back") };
        assert_eq!(frame.into_data().unwrap(), event);
        assert!(poll(&mut body).is_pending());
    }
    // Compressed events too, if the server flushes each one.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut flushed = Vec::new();
    for _ in 0..2 {
        use std::io::Write as _;
        encoder.write_all(event.as_bytes()).unwrap();
        encoder.flush().unwrap();
        flushed.push(std::mem::take(encoder.get_mut()));
    }
    let frames = flushed.into_iter().fold(Frames::default(), |frames, f| frames.data(f).later());
    let mut body = ScrubbedBody::new(frames, &[Coding::Gzip], &github());
    for _ in 0..2 {
        let Poll::Ready(Some(Ok(frame))) = poll(&mut body) else { panic!("held back") };
        assert_eq!(frame.into_data().unwrap(), event);
        assert!(poll(&mut body).is_pending());
    }
}

#[test]
fn b08_length_and_checksum_headers_of_a_scrubbed_response_are_removed() {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("content-length", "12"),
        ("content-encoding", "gzip"),
        ("content-md5", "x"),
        ("digest", "sha-256=x"),
        ("repr-digest", "sha-256=:x:"),
        ("x-amz-checksum-crc32", "x"),
        ("accept-ranges", "bytes"),
        ("etag", "\"abc\""),
        ("content-type", "text/plain"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    reframe(&mut headers);
    let mut left: Vec<_> =
        headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
    left.sort();
    assert_eq!(left, ["content-type: text/plain", "etag: W/\"abc\""]);
    reframe(&mut headers);
    assert_eq!(headers["etag"], "W/\"abc\"");

    let sized = |codings: &[Coding], scrubber: &Scrubber| {
        let frames = Frames { size: Some(5), ..Frames::default().data("12345") };
        ScrubbedBody::new(frames, codings, scrubber).size_hint().exact()
    };
    assert_eq!(sized(&[], &github()), None, "the length can change");
    assert_eq!(sized(&[Coding::Gzip], &super::scrubber(&[])), None);
    assert_eq!(sized(&[], &super::scrubber(&[])), Some(5), "the control");
}

#[test]
fn b05_response_with_truncated_compression_is_an_error() {
    let mut coded = encode(Coding::Gzip, b"content");
    coded.truncate(coded.len() - 1);
    let reports = Reports::default();
    let frames = Frames::default().data(coded);
    let mut body = ScrubbedBody::new(frames, &[Coding::Gzip], &github()).on_end(reports.callback());
    let (_, _, error) = read(&mut body);
    assert!(matches!(error.unwrap().downcast_ref(), Some(BodyError::Decode(_))));
    assert!(matches!(reports.once().how, How::Failed(_)));
}

#[test]
fn end_of_a_scrubbed_body_is_reported_once() {
    let reports = Reports::default();
    let frames = Frames::default().data("some").error("reset by the peer");
    let mut body = ScrubbedBody::new(frames, &[], &github()).on_end(reports.callback());
    let (data, _, error) = read(&mut body);
    assert_eq!(
        (data.as_slice(), error.unwrap().to_string().as_str()),
        (&b"some"[..], "reset by the peer")
    );
    drop(body);
    assert_eq!(reports.once().how, How::Failed("reset by the peer".to_owned()));

    let reports = Reports::default();
    let frames = Frames::default().data("some").data("more");
    let mut body = ScrubbedBody::new(frames, &[], &github()).on_end(reports.callback());
    assert!(poll(&mut body).is_ready());
    drop(body);
    assert_eq!(reports.once(), Ended { received: 4, passed: 4, found: 0, how: How::Dropped });

    // A body that is empty from the start is not read.
    let reports = Reports::default();
    drop(ScrubbedBody::new(Frames::default(), &[], &github()).on_end(reports.callback()));
    assert_eq!(reports.once().how, How::Complete);
    let reports = Reports::default();
    drop(GuardedBody::new(Frames::default(), &finder()).on_end(reports.callback()));
    assert_eq!(reports.once().how, How::Complete);
}

#[test]
fn watch_function_gets_forwarded_bytes_and_can_stop_the_body() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let copy = seen.clone();
    let frames = Frames::default().data(format!("a {VALUE} b!")).data("stop!").data("never");
    let mut body = ScrubbedBody::new(frames, &[], &github()).watch(move |bytes| {
        copy.lock().unwrap().extend_from_slice(bytes);
        if bytes == b"stop!" { Err("spent".into()) } else { Ok(()) }
    });
    let (data, _, error) = read(&mut body);
    assert_eq!(error.unwrap().to_string(), "spent");
    assert_eq!(String::from_utf8(data).unwrap(), format!("a {NAME} b!"));
    assert_eq!(
        String::from_utf8(seen.lock().unwrap().clone()).unwrap(),
        format!("a {NAME} b!stop!")
    );
}

#[test]
fn b01_placeholder_in_a_body_stops_the_request() {
    let text = "{\"title\":\"bj_placeholder_of_the_box\"}";
    for at in 0..text.len() {
        let (one, two) = text.split_at(at);
        let reports = Reports::default();
        let frames = Frames::default().data(one).later().data(two).data("and more");
        let mut body = GuardedBody::new(frames, &finder()).on_end(reports.callback());
        let (data, _, error) = read(&mut body);
        let error = error.expect("stopped");
        assert!(
            matches!(error.downcast_ref(), Some(BodyError::Placeholder { name }) if name == "github"),
            "{error}"
        );
        assert!(
            text.as_bytes().starts_with(&data) && data.len() <= 10,
            "no byte of the placeholder was forwarded"
        );
        assert_eq!(reports.once().found, 1);
    }
    let frames = Frames::default().data("x").trailer("x-t", "bj_placeholder_of_the_box");
    assert!(read(&mut GuardedBody::new(frames, &finder())).2.is_some());
    // Control: a body without a placeholder is forwarded unchanged, with its known length.
    let text = "{\"title\":\"bj_placeholder_of_the_bo\"} bj_placeh";
    let size = u64::try_from(text.len()).unwrap();
    let frames = Frames { size: Some(size), ..Frames::default().data(text) };
    let reports = Reports::default();
    let mut body = GuardedBody::new(frames, &finder()).on_end(reports.callback());
    assert_eq!(body.size_hint().exact(), Some(size));
    let (data, _, error) = read(&mut body);
    assert!(error.is_none());
    assert_eq!(data, text.as_bytes());
    assert_eq!(
        reports.once(),
        Ended { received: size, passed: size, found: 0, how: How::Complete }
    );
}

#[test]
fn b01_placeholder_in_a_streamed_body_is_masked_at_every_split() {
    let masked = Scrubber::new(&[("own".to_owned(), b"bj_placeholder_of_the_own")]).unwrap();
    let text = "{\"a\":\"bj_placeholder_of_the_own\"} and bj_placeholder_of_the_own";
    let body = |frames: Frames, names: &Arc<Mutex<Vec<String>>>| {
        let names = Arc::clone(names);
        let on_masked = move |name: &str| names.lock().unwrap().push(name.to_owned());
        read(&mut GuardedBody::new(frames, &finder()).mask(&masked, &finder(), on_masked))
    };
    for at in 0..text.len() {
        let (one, two) = text.split_at(at);
        let names = Arc::default();
        let (data, _, error) = body(Frames::default().data(one).later().data(two), &names);
        assert!(error.is_none(), "{error:?}");
        let data = String::from_utf8(data).unwrap();
        assert_eq!(data, "{\"a\":\"[belljar:own]\"} and [belljar:own]");
        assert_eq!(*names.lock().unwrap(), ["own"], "each secret is reported once");
    }
    // A placeholder of another secret still stops the body, also next to a masked one.
    let names = Arc::default();
    let frames = Frames::default().data(text).data("bj_placeholder_of_the_box");
    let error = body(frames, &names).2.expect("stopped");
    assert!(
        matches!(error.downcast_ref(), Some(BodyError::Placeholder { name }) if name == "github")
    );
    // Trailers are not masked.
    let frames = Frames::default().data("x").trailer("x-t", "bj_placeholder_of_the_box");
    assert!(body(frames, &names).2.is_some());
}

#[test]
fn request_body_above_the_limit_of_the_rule_is_refused() {
    let body = |size: usize| {
        let frames = Frames::default().data(vec![b'x'; size / 2]).data(vec![b'x'; size - size / 2]);
        read(&mut GuardedBody::new(frames, &finder()).limit(1000))
    };
    assert!(body(1000).2.is_none());
    let (data, _, error) = body(1001);
    assert!(matches!(error.unwrap().downcast_ref(), Some(BodyError::TooLong { limit: 1000 })));
    assert!(data.len() <= 1000);
}
