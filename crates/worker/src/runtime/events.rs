//! An incremental parser for server-sent events.

use std::time::Duration;

/// The default delay before an interrupted event stream is resumed.
const RETRY: Duration = Duration::from_secs(1);
/// The maximum delay before a reconnect that a server can request.
const MAX_RETRY: Duration = Duration::from_secs(60);

/// The parser of one stream of server-sent events. It continues across reconnects.
#[derive(Debug)]
pub(crate) struct Events {
    /// The maximum size of one event in bytes.
    limit: usize,
    line: Vec<u8>,
    data: String,
    size: usize,
    id: Option<String>,
    retry: Option<Duration>,
    is_after_return: bool,
}

/// An event of a stream is longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {limit} bytes")]
pub(crate) struct EventTooLong {
    limit: usize,
}

impl Events {
    /// Creates a parser for a stream whose events have at most `limit` bytes each.
    pub(crate) fn new(limit: usize) -> Self {
        let (line, data, size) = (Vec::new(), String::new(), 0);
        Self { limit, line, data, size, id: None, retry: None, is_after_return: false }
    }

    /// Parses bytes of the event stream and returns the data of each completed event.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, EventTooLong> {
        let mut done = Vec::new();
        for byte in bytes {
            let was_return = std::mem::replace(&mut self.is_after_return, *byte == b'\r');
            match byte {
                b'\n' if was_return => {}
                b'\n' | b'\r' => done.extend(self.end_of_line()),
                other => {
                    self.size += 1;
                    if self.size > self.limit {
                        return Err(EventTooLong { limit: self.limit });
                    }
                    self.line.push(*other);
                }
            }
        }
        Ok(done)
    }

    fn end_of_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            self.size = 0;
            let mut data = std::mem::take(&mut self.data);
            data.pop(); // the newline after the last line
            return Some(data).filter(|data| !data.trim().is_empty());
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.strip_prefix('\u{feff}').unwrap_or(&line);
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            "retry" => {
                let wait = value.parse().ok().map(Duration::from_millis);
                self.retry = wait.map(|wait| wait.min(MAX_RETRY)).or(self.retry);
            }
            _ => {}
        }
        None
    }

    /// Returns the id of the last event, from which the event stream can be resumed.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.id.as_deref().filter(|id| !id.is_empty())
    }

    /// Returns the delay before the event stream is resumed.
    pub(crate) fn retry(&self) -> Duration {
        self.retry.unwrap_or(RETRY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    #[test]
    fn server_sent_events_are_parsed_wherever_the_input_is_split() {
        let text = b": hi\ndata: one\r\ndata:two\n\nid: 7\nretry: 5\ndata\n\nevent: x\rdata: {\"a\":1}\r\r";
        for at in 0..=text.len() {
            let mut events = Events::new(LIMIT);
            let mut got = events.push(&text[..at]).unwrap();
            got.extend(events.push(&text[at..]).unwrap());
            assert_eq!(got, ["one\ntwo", "{\"a\":1}"], "cut at {at}");
            assert_eq!(events.last_id(), Some("7"));
            assert_eq!(events.retry(), Duration::from_millis(5));
        }
    }

    #[test]
    fn server_sent_event_above_the_size_limit_is_refused() {
        let mut events = Events::new(LIMIT);
        let piece = [b'x'; 65536];
        let refused = (0..=LIMIT / piece.len()).map(|_| events.push(&piece)).find(Result::is_err);
        assert!(refused.is_some());
    }
}
