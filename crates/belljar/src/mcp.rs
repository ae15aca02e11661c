//! `belljar mcp`: serves programs to MCP clients.
//!
//! What a client says is the gateway's business; what a program does is the workshop's. Here is what
//! lies between: which tools there are, and what each asks of the workshop.

mod arguments;
mod calls;
mod instructions;
mod report;
mod resources;
mod service;
mod tools;

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::Context as _;
use belljar_gateway::{HttpOptions, TlsFiles, TokenFile};
use tokio_util::sync::CancellationToken;

use crate::cli::Cli;
use crate::cli::mcp::ServeArgs;
use crate::commands::code::ground;
use crate::exit::Outcome;
use crate::interrupt;
use crate::print;
use crate::scope;
use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::programs::Workshop;
use service::Desk;

pub(crate) use report::Report;

pub(crate) fn serve(cli: &Cli, args: &ServeArgs) -> Outcome {
    let ground = ground(args.workspace.as_deref(), args.mode)?;
    let workshop = Arc::new(Workshop::open(
        &scope::open(cli.config.as_deref())?,
        scope::here()?,
        ground,
        usize::MAX,
    )?);
    let desk = Arc::new(Desk::new(Arc::clone(&workshop)));
    let stop = CancellationToken::new();
    let signals = interrupt::watch(stop.clone()).kind(ErrorKind::Broken)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("start a runtime").kind(ErrorKind::Broken)?;
    let served = runtime.block_on(async {
        let serving = async {
            match args.http {
                Some(_) => http(args, &desk, &stop).await,
                None => Ok(belljar_gateway::stdio(Arc::clone(&desk)).await?),
            }
        };
        tokio::pin!(serving);
        let mut served = tokio::select! {
            served = &mut serving => Some(served),
            () = stop.cancelled() => None,
        };
        if args.http.is_some() && served.is_none() {
            served = Some(serving.await); // it stops by itself and says goodbye
        }
        desk.close().await;
        workshop.servers.stop().await;
        served.unwrap_or(Ok(()))
    });
    drop(signals);
    drop(desk);
    drop(workshop);
    // The thread that reads standard input cannot be told to stop.
    runtime.shutdown_background();
    served.kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Serves HTTP until `stop`.
async fn http(args: &ServeArgs, desk: &Arc<Desk>, stop: &CancellationToken) -> anyhow::Result<()> {
    let address = args.http.context("an address")?;
    let usual = || scope::open(None).map(|state| state.home().join("mcp").join("token"));
    let file = match &args.token_file {
        Some(file) => file.clone(),
        None => usual()?,
    };
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    }
    let TokenFile { tokens, made } = TokenFile::open(&file).context("--token-file")?;
    let listener = TcpListener::bind(address).with_context(|| format!("--http {address}"))?;
    let address = listener.local_addr().context("look at the socket")?;
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    print::note(&format!("serving MCP at {scheme}://{address}/mcp"));
    match made {
        Some(token) => print::note(&format!("the token, shown only now: {}", token.expose())),
        None => print::note(&format!("the token is the one in {}", file.display())),
    }
    let mut options = HttpOptions::new(tokens);
    options.hosts.clone_from(&args.allow_host);
    options.origins.clone_from(&args.allow_origin);
    if let (Some(certificate), Some(key)) = (args.tls_cert.clone(), args.tls_key.clone()) {
        options.tls = Some(TlsFiles { certificate, key });
    }
    Ok(belljar_gateway::http(Arc::clone(desk), listener, options, stop.clone()).await?)
}
