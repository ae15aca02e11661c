//! The places of a request where a placeholder can stand, and how a value is inserted there.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Uri};
use zeroize::Zeroizing;

use super::percent::{RESERVED, decode, encode};

/// The form in which a header contains a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// The header contains only the placeholder.
    Bare,
    /// The header contains a scheme and the placeholder: `Bearer PLACEHOLDER`, `token PLACEHOLDER`.
    Scheme(String),
    /// The placeholder is the user of Basic authentication: `Basic base64(PLACEHOLDER:other)`.
    BasicUser { password: String },
    /// The placeholder is the password of Basic authentication: `Basic base64(other:PLACEHOLDER)`.
    BasicPassword { user: String },
}

/// The place of a request where a secret's value is inserted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Spot {
    Header {
        name: HeaderName,
        form: Form,
    },
    /// The value is inserted as a query parameter.
    Query {
        name: String,
    },
    /// The value is inserted as a string of the JSON body.
    Json {
        pointer: String,
    },
}

/// The maximum length of an authentication scheme name before a credential.
const MAX_SCHEME: usize = 32;

impl Form {
    pub(super) const fn is_basic(&self) -> bool {
        match self {
            Self::BasicUser { .. } | Self::BasicPassword { .. } => true,
            Self::Bare | Self::Scheme(_) => false,
        }
    }

    /// Returns the part of the header that is not the placeholder.
    pub(super) fn rest(&self) -> &str {
        match self {
            Self::Bare => "",
            Self::Scheme(rest)
            | Self::BasicUser { password: rest }
            | Self::BasicPassword { user: rest } => rest,
        }
    }

    /// Returns the header with a value in place of the placeholder; `None` if the value is invalid
    /// there.
    pub(super) fn fill(&self, value: &[u8]) -> Option<HeaderValue> {
        let joined = |parts: &[&[u8]]| Zeroizing::new(parts.concat());
        let basic = |text: &[u8]| {
            let encoded = Zeroizing::new(STANDARD.encode(text));
            joined(&[b"Basic ", encoded.as_bytes()])
        };
        let text = match self {
            Self::Bare => joined(&[value]),
            Self::Scheme(scheme) => joined(&[scheme.as_bytes(), b" ", value]),
            // The user name ends at the first colon, so the rest of the value would become part of
            // the password.
            Self::BasicUser { .. } if value.contains(&b':') => return None,
            Self::BasicUser { password } => basic(&joined(&[value, b":", password.as_bytes()])),
            Self::BasicPassword { user } => basic(&joined(&[user.as_bytes(), b":", value])),
        };
        let mut header = HeaderValue::from_bytes(&text).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

/// Finds a known text in a header; returns its form and the result of `known` for it.
pub(super) fn in_header<T>(
    value: &HeaderValue,
    known: impl Fn(&str) -> Option<T>,
) -> Option<(Form, T)> {
    let text = value.to_str().ok()?;
    if let Some(found) = known(text) {
        return Some((Form::Bare, found));
    }
    let (scheme, rest) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        let is_word = (1..=MAX_SCHEME).contains(&scheme.len())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let found = known(rest).filter(|_| is_word)?;
        return Some((Form::Scheme(scheme.to_owned()), found));
    }
    let text = basic(rest)?;
    let (user, password) = text.split_once(':')?;
    match (known(user), known(password)) {
        (Some(found), None) => Some((Form::BasicUser { password: password.to_owned() }, found)),
        (None, Some(found)) => Some((Form::BasicPassword { user: user.to_owned() }, found)),
        // A placeholder in both parts is a duplicate.
        (Some(_), Some(_)) | (None, None) => None,
    }
}

/// Decodes the `user:password` of Basic authentication.
fn basic(text: &str) -> Option<String> {
    let bytes = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok()?;
    String::from_utf8(bytes).ok()
}

/// Returns the query parameters of a URI in their encoded form.
pub(super) fn parameters(uri: &Uri) -> impl Iterator<Item = (&str, &str)> {
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Returns a query parameter in its decoded form.
pub(super) fn decoded(text: &str) -> String {
    String::from_utf8_lossy(&decode(text.as_bytes())).into_owned()
}

/// Returns the URI with another value of one query parameter.
pub(super) fn with_parameter(uri: &Uri, name: &str, value: &[u8]) -> Option<Uri> {
    let query = uri.query()?;
    let mut encoded = Zeroizing::new(String::new());
    encode(value, RESERVED, &mut encoded);
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((key, _)) if key == name => Zeroizing::new(format!("{key}={}", *encoded)),
        _ => Zeroizing::new(pair.to_owned()),
    });
    let pairs: Vec<Zeroizing<String>> = pairs.collect();
    let pairs: Vec<&str> = pairs.iter().map(|pair| pair.as_str()).collect();
    let text = Zeroizing::new(format!("{}?{}", uri.path(), pairs.join("&")));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(text.as_str()).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACEHOLDER: &str = "ghp_placeholder";

    fn read(text: &str) -> Option<Form> {
        let value = HeaderValue::from_str(text).unwrap();
        in_header(&value, |text| (text == PLACEHOLDER).then_some(())).map(|(form, ())| form)
    }

    #[track_caller]
    fn check(text: &str, filled: &str) {
        let form = read(text).unwrap_or_else(|| panic!("{text}"));
        let header = form.fill(b"real-value").unwrap();
        assert_eq!(header, filled);
        assert!(header.is_sensitive());
    }

    fn basic(text: &str) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    #[test]
    fn b11_placeholder_is_replaced_in_every_header_form() {
        check("ghp_placeholder", "real-value");
        check("Bearer ghp_placeholder", "Bearer real-value");
        check("token ghp_placeholder", "token real-value");
        check(&basic("x-access-token:ghp_placeholder"), &basic("x-access-token:real-value"));
        check(&basic("ghp_placeholder:x-oauth-basic"), &basic("real-value:x-oauth-basic"));
        check(&basic("ghp_placeholder:"), &basic("real-value:"));
        check(&basic(":ghp_placeholder"), &basic(":real-value"));
        check(&basic("u:ghp_placeholder").replace('=', ""), &basic("u:real-value"));
        check(&basic("u:ghp_placeholder").replace("Basic", "basic"), &basic("u:real-value"));
    }

    #[test]
    fn header_with_text_around_a_placeholder_is_not_recognized() {
        for text in [
            "",
            "Bearer",
            "Bearer  ghp_placeholder",
            "Bearer ghp_placeholder ",
            "Bearer ghp_placeholder, Bearer x",
            "Bearer xghp_placeholder",
            "Digest username=ghp_placeholder",
            "a/b ghp_placeholder",
            "ghp_placeholder ghp_placeholder_",
            "Basic ghp_placeholder",
            &basic("ghp_placeholder"),
            &basic("ghp_placeholder:ghp_placeholder"),
            &basic("u:p:ghp_placeholder"),
            &format!("{} ghp_placeholder", "a".repeat(33)),
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn b11_value_with_a_colon_is_refused_as_basic_user() {
        let user = Form::BasicUser { password: String::new() };
        assert_eq!(user.fill(b"real:value"), None);
        let password = Form::BasicPassword { user: String::new() };
        assert_eq!(password.fill(b"real:value").unwrap(), basic(":real:value").as_str());
    }

    #[test]
    fn with_parameter_replaces_and_encodes_one_query_value() {
        let uri: Uri = "https://a.example/p?x=1&key=old&y=%20&z".parse().unwrap();
        let new = with_parameter(&uri, "key", b"a&b=c d/\xfc").unwrap();
        assert_eq!(new, "https://a.example/p?x=1&key=a%26b%3Dc%20d%2F%FC&y=%20&z");
        assert_eq!(with_parameter(&"/p".parse().unwrap(), "key", b"x"), None);
    }
}
