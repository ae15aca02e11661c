//! `belljar mcp`: serves code mode to MCP clients, on standard input and output or over HTTP.

use std::net::TcpListener;
use std::sync::Arc;

use anyhow::Context as _;
use belljar_gateway::tools::McpService;
use belljar_gateway::{HttpOptions, TlsFiles, TokenFile};
use belljar_model::Caller;
use tokio_util::sync::CancellationToken;

use crate::cli::Cli;
use crate::cli::mcp::ServeArgs;
use crate::commands::code::workspace;
use crate::exit::Outcome;
use crate::interrupt;
use crate::print;
use crate::scope;
use belljar_engine::error::{ErrorKind, WithKind as _};
use belljar_engine::programs::Programs;
use belljar_engine::skills::Skills;

/// Serves MCP until the client disconnects or a signal arrives.
pub(super) fn run(cli: &Cli, args: &ServeArgs) -> Outcome {
    let workspace = workspace(args.workspace.as_deref(), args.mode)?;
    let scope = scope::open(cli.config.as_deref())?;
    let programs = Arc::new(Programs::open(&scope, scope::current_dir()?, workspace, usize::MAX)?);
    let skills = Skills::open(&scope)?;
    let service = Arc::new(McpService::new(Arc::clone(&programs), skills));
    let stop = CancellationToken::new();
    let signals = interrupt::watch(stop.clone()).kind(ErrorKind::Broken)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the async runtime").kind(ErrorKind::Broken)?;
    let served = runtime.block_on(async {
        let serving = async {
            match args.http {
                Some(_) => http(args, &service, &programs, scope.caller(), &stop).await,
                None => Ok(belljar_gateway::stdio(Arc::clone(&service), scope.caller()).await?),
            }
        };
        tokio::pin!(serving);
        let mut served = tokio::select! {
            served = &mut serving => Some(served),
            () = stop.cancelled() => None,
        };
        if args.http.is_some() && served.is_none() {
            served = Some(serving.await); // wait until its sessions are closed
        }
        service.close().await;
        programs.servers.stop().await;
        served.unwrap_or(Ok(()))
    });
    drop(signals);
    drop(service);
    drop(programs);
    // The thread that reads standard input cannot be stopped, so do not wait for it.
    runtime.shutdown_background();
    served.kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Serves MCP over HTTP until `stop` is cancelled.
async fn http(
    args: &ServeArgs,
    service: &Arc<McpService>,
    programs: &Programs,
    owner: &Caller,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let address = args.http.context("--http has no address")?;
    let default_file = || scope::open(None).map(|state| state.store().layout().mcp_token());
    let file = match &args.token_file {
        Some(file) => file.clone(),
        None => default_file()?,
    };
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("cannot create the directory {}", dir.display()))?;
    }
    let TokenFile { tokens, made } = TokenFile::open(&file)
        .with_context(|| format!("cannot open the token file {}", file.display()))?;
    let listener = TcpListener::bind(address)
        .with_context(|| format!("--http: cannot listen on {address}"))?;
    let address =
        listener.local_addr().context("cannot read the address of the listening socket")?;
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    print::note(&format!("serving MCP at {scheme}://{address}/mcp"));
    match made {
        Some(token) => {
            print::note(&format!("the new token, which is shown only once: {}", token.expose()));
        }
        None => print::note(&format!("clients must send the token from {}", file.display())),
    }
    programs.expect_clients(tokens.len());
    let mut options = HttpOptions::new(tokens, owner.clone());
    options.hosts.clone_from(&args.allow_host);
    options.origins.clone_from(&args.allow_origin);
    if let (Some(certificate), Some(key)) = (args.tls_cert.clone(), args.tls_key.clone()) {
        options.tls = Some(TlsFiles { certificate, key });
    }
    Ok(belljar_gateway::http(Arc::clone(service), listener, options, stop.clone()).await?)
}
