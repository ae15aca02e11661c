//! Decides whether a try that failed is repeated, and when. Pure.

use std::time::Duration;

use belljar_wire::ModelFailureKind as Kind;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;

use super::Limits;

/// The reason why one try failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server or the broker answered with this status, and can request a time until the next try.
    Status { status: u16, retry_after: Option<Duration> },
    /// The server reported an error in the stream of an answer.
    Reported,
    /// The stream ended before the end of the answer.
    CutOff,
    /// The server sent nothing for too long.
    Silent,
    /// The connection failed before a response.
    Disconnected,
}

/// What follows a try that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    RetryAfter(Duration),
    Fail(Kind),
}

impl Trouble {
    /// Returns what follows after `tries` tries of one turn. `jitter` is a random number.
    pub(super) fn next(self, tries: u32, jitter: u16, limits: &Limits) -> Next {
        if !self.is_retried() || tries >= limits.tries {
            return Next::Fail(self.kind());
        }
        let requested = match self {
            Self::Status { retry_after, .. } => retry_after,
            Self::Reported | Self::CutOff | Self::Silent | Self::Disconnected => None,
        };
        let wait = requested.map_or_else(
            || backoff(tries, jitter, limits),
            |requested| requested.min(limits.max_retry_after),
        );
        Next::RetryAfter(wait)
    }

    const fn is_retried(self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 408 | 409 | 429 | 500..=599),
            Self::Reported | Self::CutOff | Self::Silent | Self::Disconnected => true,
        }
    }

    const fn kind(self) -> Kind {
        match self {
            Self::Status { status: 401 | 403, .. } => Kind::BadKey,
            Self::Status { status: 413, .. } => Kind::TooLong,
            Self::Status { .. } if !self.is_retried() => Kind::CannotStart,
            Self::CutOff => Kind::CutOff,
            Self::Status { .. } | Self::Reported | Self::Silent | Self::Disconnected => {
                Kind::Unavailable
            }
        }
    }
}

/// Returns a time between half of the doubled time and all of it.
fn backoff(tries: u32, jitter: u16, limits: &Limits) -> Duration {
    let factor = 2_u32.saturating_pow(tries.saturating_sub(1));
    let half = limits.first_wait.saturating_mul(factor).min(limits.max_wait) / 2;
    half + half * u32::from(jitter) / u32::from(u16::MAX)
}

/// Returns the time of a `Retry-After` header, which is a number of seconds or an HTTP date.
pub(super) fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(value.parse().unwrap_or(u64::MAX)));
    }
    let seconds = http_date(value)?.duration_since(now);
    Some(Duration::try_from(seconds).unwrap_or(Duration::ZERO)) // a date in the past
}

/// Parses an HTTP date, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn http_date(value: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn status(status: u16) -> Trouble {
        Trouble::Status { status, retry_after: None }
    }

    #[test]
    fn every_trouble_is_retried_or_final_with_its_kind() {
        let limits = Limits::default();
        for (trouble, is_retried, kind) in [
            (status(408), true, Kind::Unavailable),
            (status(409), true, Kind::Unavailable),
            (status(429), true, Kind::Unavailable),
            (status(500), true, Kind::Unavailable),
            (status(502), true, Kind::Unavailable),
            (status(503), true, Kind::Unavailable),
            (status(504), true, Kind::Unavailable),
            (status(529), true, Kind::Unavailable),
            (status(599), true, Kind::Unavailable),
            (Trouble::Reported, true, Kind::Unavailable),
            (Trouble::CutOff, true, Kind::CutOff),
            (Trouble::Silent, true, Kind::Unavailable),
            (Trouble::Disconnected, true, Kind::Unavailable),
            (status(400), false, Kind::CannotStart),
            (status(401), false, Kind::BadKey),
            (status(402), false, Kind::CannotStart),
            (status(403), false, Kind::BadKey),
            (status(404), false, Kind::CannotStart),
            (status(413), false, Kind::TooLong),
            (status(422), false, Kind::CannotStart),
            (status(302), false, Kind::CannotStart),
            (status(600), false, Kind::CannotStart),
        ] {
            let first = trouble.next(1, 0, &limits);
            assert_eq!(matches!(first, Next::RetryAfter(_)), is_retried, "{trouble:?}");
            assert_eq!(trouble.next(6, 0, &limits), Next::Fail(kind), "{trouble:?}");
        }
    }

    #[test]
    fn every_other_client_error_is_final() {
        for code in (400..500).filter(|code| ![408, 409, 429].contains(code)) {
            let next = status(code).next(1, 0, &Limits::default());
            assert!(matches!(next, Next::Fail(_)), "{code}: {next:?}");
        }
    }

    #[test]
    fn wait_doubles_from_one_second_to_a_minute_and_jitter_halves_it_at_most() {
        let limits = Limits { tries: 100, ..Limits::default() };
        for (tries, seconds) in [(1, 1), (2, 2), (3, 4), (5, 16), (6, 32), (7, 60), (99, 60)] {
            let full = Duration::from_secs(seconds);
            assert_eq!(status(500).next(tries, u16::MAX, &limits), Next::RetryAfter(full));
            assert_eq!(status(500).next(tries, 0, &limits), Next::RetryAfter(full / 2));
        }
    }

    #[test]
    fn retry_after_counts_up_to_ten_minutes() {
        let limits = Limits::default();
        for (asked, waited) in [(0, 0), (7, 7), (600, 600), (601, 600), (u64::MAX, 600)] {
            let retry_after = Some(Duration::from_secs(asked));
            let trouble = Trouble::Status { status: 429, retry_after };
            let expected = Next::RetryAfter(Duration::from_secs(waited));
            assert_eq!(trouble.next(1, 9, &limits), expected);
            assert_eq!(trouble.next(6, 9, &limits), Next::Fail(Kind::Unavailable));
        }
    }

    #[test]
    fn retry_after_header_is_seconds_or_an_http_date() {
        let now = http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        for (value, expected) in [
            ("0", Some(0)),
            (" 30 ", Some(30)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
        ] {
            let expected = expected.map(Duration::from_secs);
            assert_eq!(retry_after(value, now), expected, "{value}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_header_never_panics(value in ".*") {
            retry_after(&value, Timestamp::MIN).and(retry_after(&value, Timestamp::MAX));
        }

        #[test]
        fn waiting_times_are_bounded(
            status in 0..1000_u16,
            seconds in proptest::option::of(proptest::num::u64::ANY),
            tries in proptest::num::u32::ANY,
            jitter in proptest::num::u16::ANY,
        ) {
            let limits = Limits { tries: u32::MAX, ..Limits::default() };
            let retry_after = seconds.map(Duration::from_secs);
            let next = Trouble::Status { status, retry_after }.next(tries, jitter, &limits);
            if let Next::RetryAfter(wait) = next {
                let least = seconds.map_or(Duration::from_millis(500), Duration::from_secs);
                proptest::prop_assert!(wait >= least.min(limits.max_retry_after), "{:?}", wait);
                let most = seconds.map_or(limits.max_wait, |_| limits.max_retry_after);
                proptest::prop_assert!(wait <= most, "{:?}", wait);
            }
        }
    }
}
