//! Native functions for `URL` and `URLSearchParams`.

use rquickjs::function::Func;
use rquickjs::{Object, Result};
use url::{Url, form_urlencoded, quirks};

pub(super) fn natives(natives: &Object<'_>) -> Result<()> {
    natives.set("urlParse", Func::from(parse))?;
    natives.set("urlSet", Func::from(set))?;
    natives.set("formParse", Func::from(form_parse))?;
    natives.set("formSerialize", Func::from(form_serialize))
}

/// Returns the parts of a URL in the order that `url.js` expects.
fn parts(url: &Url) -> Vec<String> {
    [
        quirks::href(url),
        &quirks::origin(url),
        quirks::protocol(url),
        quirks::username(url),
        quirks::password(url),
        quirks::host(url),
        quirks::hostname(url),
        quirks::port(url),
        quirks::pathname(url),
        quirks::search(url),
        quirks::hash(url),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Parses a URL. Returns `None` if it is invalid.
fn parse(text: String, base: Option<String>) -> Option<Vec<String>> {
    let base = match base {
        Some(base) => Some(Url::parse(&base).ok()?),
        None => None,
    };
    Url::options().base_url(base.as_ref()).parse(&text).ok().as_ref().map(parts)
}

/// Sets one part of a URL and returns all its parts, or `None` if the URL is invalid. Returns
/// `None` if the value is invalid.
fn set(href: String, part: String, value: String) -> Option<Vec<String>> {
    let mut url = Url::parse(&href).ok()?;
    let is_set = match part.as_str() {
        "protocol" => quirks::set_protocol(&mut url, &value).is_ok(),
        "username" => quirks::set_username(&mut url, &value).is_ok(),
        "password" => quirks::set_password(&mut url, &value).is_ok(),
        "host" => quirks::set_host(&mut url, &value).is_ok(),
        "hostname" => quirks::set_hostname(&mut url, &value).is_ok(),
        "port" => quirks::set_port(&mut url, &value).is_ok(),
        "pathname" => {
            quirks::set_pathname(&mut url, &value);
            true
        }
        "search" => {
            quirks::set_search(&mut url, &value);
            true
        }
        "hash" => {
            quirks::set_hash(&mut url, &value);
            true
        }
        _ => false,
    };
    is_set.then(|| parts(&url))
}

/// Parses a URL-encoded form into alternating names and values.
fn form_parse(text: String) -> Vec<String> {
    let pairs = form_urlencoded::parse(text.as_bytes());
    pairs.flat_map(|(name, value)| [name.into_owned(), value.into_owned()]).collect()
}

fn form_serialize(flat: Vec<String>) -> String {
    let mut serializer = form_urlencoded::Serializer::new(String::new());
    for [name, value] in flat.as_chunks::<2>().0 {
        serializer.append_pair(name, value);
    }
    serializer.finish()
}
