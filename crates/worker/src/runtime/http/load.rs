//! A module from the network, for an `import` that waits for it.

use std::net::IpAddr;
use std::time::Duration;

use hyper::Method;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use url::Url;

use super::{Answer, Ask, Client, Outgoing, Redirect};

/// Largest module.
const MODULE: usize = 8 << 20;
/// How long one may take.
const LATE: Duration = Duration::from_secs(60);

/// A module as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// After redirects; what it imports is relative to this.
    pub url: String,
    pub kind: Kind,
    pub source: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    JavaScript,
    TypeScript,
    Json,
}

/// Fetches a module. Blocks, on a thread of its own, so that it may be called from within the engine.
pub fn load(door: IpAddr, url: &str) -> Result<Loaded, String> {
    let parsed = Url::parse(url).map_err(|error| format!("{url:?} is no URL: {error}"))?;
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| format!("load {url}: {error}"))?;
            // Within it, because a clock asks for its runtime when it is made.
            let loading = async { tokio::time::timeout(LATE, get(door, parsed)).await };
            let loaded = runtime.block_on(loading);
            loaded.unwrap_or_else(|_| Err(format!("it took longer than {} s", LATE.as_secs())))
        });
        let loaded = loading.join().unwrap_or_else(|_| Err("it could not be loaded".to_owned()));
        loaded.map_err(|error| format!("import of {url}: {error}"))
    })
}

async fn get(door: IpAddr, url: Url) -> Result<Loaded, String> {
    let accept = HeaderValue::from_static("application/typescript, text/javascript, */*;q=0.8");
    let ask = Ask {
        method: Method::GET,
        url,
        headers: HeaderMap::from_iter([(ACCEPT, accept)]),
        body: Outgoing::None,
        redirect: Redirect::Follow,
    };
    let mut answer = Client::new(door).fetch(ask).await.map_err(|error| error.to_string())?;
    if !answer.status.is_success() {
        return Err(format!("the server answers {}", answer.status));
    }
    let kind = kind(&answer)?;
    let mut source = Vec::new();
    while let Some(piece) = answer.body.next().await.map_err(|error| error.to_string())? {
        source.extend_from_slice(&piece);
        if source.len() > MODULE {
            return Err(format!("it is longer than {} MiB", MODULE >> 20));
        }
    }
    let source = String::from_utf8(source).map_err(|_| "it is not text in UTF-8".to_owned())?;
    Ok(Loaded { url: answer.url.into(), kind, source })
}

/// What a module is: by its type, and where that says nothing by its name.
fn kind(answer: &Answer) -> Result<Kind, String> {
    let path = answer.url.path();
    let said = answer.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let said = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let by_name = || match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "ts" | "mts" | "cts" | "tsx" => Some(Kind::TypeScript),
        "js" | "mjs" | "cjs" | "jsx" => Some(Kind::JavaScript),
        "json" => Some(Kind::Json),
        _ => None,
    };
    let kind = match said.as_str() {
        "application/typescript" | "text/typescript" | "application/x-typescript" => {
            Some(Kind::TypeScript)
        }
        // What servers make of `.ts`: the container of video.
        "video/mp2t" | "video/vnd.dlna.mpeg-tts" => by_name(),
        "application/json" | "text/json" => Some(Kind::Json),
        "application/javascript"
        | "text/javascript"
        | "application/x-javascript"
        | "application/ecmascript"
        | "text/ecmascript" => {
            by_name().filter(|kind| *kind == Kind::TypeScript).or(Some(Kind::JavaScript))
        }
        "" | "text/plain" | "application/octet-stream" => by_name(),
        _ => None,
    };
    kind.ok_or_else(|| format!("{said:?} is no type of a module"))
}
