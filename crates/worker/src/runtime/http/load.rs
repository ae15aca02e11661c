//! Loads a module over HTTP for an `import`.

use std::net::IpAddr;
use std::time::Duration;

use hyper::Method;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use url::Url;

use super::{Client, HttpRequest, HttpResponse, Redirect, RequestBody};

/// The maximum size of a loaded module in bytes.
const MAX_MODULE: usize = 8 << 20;
/// The timeout for loading a module over HTTP.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The source text of a loaded module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedModule {
    /// URL after redirects. Imports of the module are relative to it.
    pub url: String,
    pub kind: ModuleKind,
    pub source: String,
}

/// The language of a loaded module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleKind {
    JavaScript,
    TypeScript,
    Json,
}

/// Loads a JavaScript module over HTTP and blocks until it is complete.
///
/// The request runs on its own thread, because the module loader of QuickJS is synchronous.
pub fn load(broker: IpAddr, url: &str) -> Result<LoadedModule, String> {
    let parsed = Url::parse(url).map_err(|error| format!("{url:?} is not a valid URL: {error}"))?;
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
            // The timeout is created inside the runtime, because a tokio timer needs one.
            let loading = async { tokio::time::timeout(TIMEOUT, get(broker, parsed)).await };
            let loaded = runtime.block_on(loading);
            loaded.unwrap_or_else(|_| Err(format!("timeout after {} s", TIMEOUT.as_secs())))
        });
        let loaded =
            loading.join().unwrap_or_else(|_| Err("the loader thread panicked".to_owned()));
        loaded.map_err(|error| format!("cannot import {url}: {error}"))
    })
}

async fn get(broker: IpAddr, url: Url) -> Result<LoadedModule, String> {
    let accept = HeaderValue::from_static("application/typescript, text/javascript, */*;q=0.8");
    let request = HttpRequest {
        method: Method::GET,
        url,
        headers: HeaderMap::from_iter([(ACCEPT, accept)]),
        body: RequestBody::None,
        redirect: Redirect::Follow,
    };
    let mut response =
        Client::new(broker).fetch(request).await.map_err(|error| error.to_string())?;
    if !response.status.is_success() {
        return Err(format!("the server responded {}", response.status));
    }
    let kind = kind(&response)?;
    let mut source = Vec::new();
    while let Some(piece) = response.body.next().await.map_err(|error| error.to_string())? {
        source.extend_from_slice(&piece);
        if source.len() > MAX_MODULE {
            return Err(format!("the module is larger than {} MiB", MAX_MODULE >> 20));
        }
    }
    let source =
        String::from_utf8(source).map_err(|_| "the module is not valid UTF-8".to_owned())?;
    Ok(LoadedModule { url: response.url.into(), kind, source })
}

/// Returns the language of a loaded module by its content type, or by its file extension.
fn kind(response: &HttpResponse) -> Result<ModuleKind, String> {
    let path = response.url.path();
    let content_type =
        response.headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let content_type =
        content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let by_name = || match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "ts" | "mts" | "cts" | "tsx" => Some(ModuleKind::TypeScript),
        "js" | "mjs" | "cjs" | "jsx" => Some(ModuleKind::JavaScript),
        "json" => Some(ModuleKind::Json),
        _ => None,
    };
    let kind = match content_type.as_str() {
        "application/typescript" | "text/typescript" | "application/x-typescript" => {
            Some(ModuleKind::TypeScript)
        }
        // Servers take the extension `.ts` for an MPEG video.
        "video/mp2t" | "video/vnd.dlna.mpeg-tts" => by_name(),
        "application/json" | "text/json" => Some(ModuleKind::Json),
        "application/javascript"
        | "text/javascript"
        | "application/x-javascript"
        | "application/ecmascript"
        | "text/ecmascript" => by_name()
            .filter(|kind| *kind == ModuleKind::TypeScript)
            .or(Some(ModuleKind::JavaScript)),
        "" | "text/plain" | "application/octet-stream" => by_name(),
        _ => None,
    };
    kind.ok_or_else(|| format!("the content type {content_type:?} is not a module"))
}
