//! `belljar serve`: the server for people and programs, over HTTP.

mod local;
mod notify;
mod sockets;

use std::io::IsTerminal as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::sync::Arc;

use anyhow::Context as _;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};
use belljar_engine::programs::Programs;
use belljar_engine::scope::{Scoped, local_caller};
use belljar_engine::server::ServerLock;
use belljar_engine::server::witness::{self, WitnessReport, WitnessVerdict};
use belljar_engine::skills::Skills;
use belljar_gateway::tools::{McpService, TenantServices};
use belljar_gateway::{
    Rate, ReadyServer, ServeControl, ServeLimits, ServeOptions, TlsFiles, TokenFile,
};
use belljar_model::Caller;
use belljar_model::caller::TenantId;
use belljar_model::serve::ServeConfig;
use serde_json::{Value, json};

use crate::cli::Cli;
use crate::cli::serve::{LoginLinkArgs, ServerArgs, TenantArgs, TenantCommand};
use crate::commands::code::workspace;
use crate::commands::doctor;
use crate::exit::{self, Outcome};
use crate::interrupt;
use crate::print;
use crate::scope;

/// The address of a server without configuration.
const DEFAULT_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7070);

/// Runs the server until a signal stops it.
pub(crate) fn run(cli: &Cli, args: &ServerArgs) -> Outcome {
    let control = ServeControl::default();
    // Threads that are started later inherit the blocked signals.
    let signals = interrupt::watch_server(control.stop.clone(), Arc::clone(&control.reload));
    let signals = signals.kind(ErrorKind::Broken)?;
    let scope = scope::open(cli.config.as_deref())?;
    let (config, _) = scope.load_config(None)?;
    let settings = config.serve();
    let mut lock = ServerLock::acquire(&scope)?;
    let listeners = listeners(args, settings)?;
    let tls = settings
        .certificate
        .clone()
        .map(|files| TlsFiles { certificate: files.chain, key: files.key });
    let options = ServeOptions {
        listeners,
        local: lock.bind_socket(&scope)?,
        tls,
        hosts: settings.host.iter().map(ToString::to_string).collect(),
        mcp_tokens: mcp_tokens(&scope)?.tokens,
        limits: limits(settings),
        prover: Some(doctor::prover()),
    };
    let programs =
        Programs::open(&scope, scope::current_dir()?, workspace(None, None)?, usize::MAX);
    let programs = Arc::new(programs?);
    let local = Arc::new(McpService::new(Arc::clone(&programs), Skills::open(&scope)?));
    let engine = scope::engine(cli.config.as_deref())?;
    let service = Arc::new(TenantServices::new(engine.clone(), local));
    programs.expect_clients(options.mcp_tokens.len());
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.context("cannot start the async runtime").kind(ErrorKind::Broken)?;
    let served = runtime.block_on(async {
        let server = ReadyServer::new(engine, scope.clone(), &service, options, &control);
        let server = server.kind(ErrorKind::Invalid)?;
        lock.announce(server.url())?;
        notify::send(scope::host(), "READY=1");
        print::note(&format!("serving at {}", server.url()));
        // A link in the log of a service would be a credential in a log.
        match server.login_link().filter(|_| std::io::stderr().is_terminal()) {
            Some(link) => print::note(&format!("log in with this link, once: {}", link.as_str())),
            None => print::note("to log in, open the link that `belljar login-link` prints"),
        }
        server.run(control).await;
        notify::send(scope::host(), "STOPPING=1");
        service.close().await;
        Ok::<_, EngineError>(())
    });
    drop(signals);
    drop(service);
    drop(programs);
    runtime.shutdown_background();
    served.map(|()| 0)
}

/// Returns the limits of the server. A burst has four times the requests of a second.
fn limits(settings: &ServeConfig) -> ServeLimits {
    let rate = |per_second: NonZeroU32| {
        Rate::per_second(per_second.get(), per_second.get().saturating_mul(4))
    };
    let default = ServeLimits::default();
    ServeLimits {
        reads: settings.reads_per_second.map_or(default.reads, rate),
        writes: settings.writes_per_second.map_or(default.writes, rate),
        ..default
    }
}

/// Returns the sockets of systemd, or opens the socket of the configuration.
fn listeners(args: &ServerArgs, settings: &ServeConfig) -> Result<Vec<TcpListener>, EngineError> {
    let passed = sockets::from_systemd(scope::host())?;
    if !passed.is_empty() {
        return match args.listen {
            None => Ok(passed),
            Some(_) => Err(invalid("--listen: systemd passed the sockets; remove this option")),
        };
    }
    let address = args.listen.or(settings.listen).unwrap_or(DEFAULT_ADDRESS);
    let source = if args.listen.is_some() { "--listen" } else { "[serve] listen" };
    let bound = TcpListener::bind(address)
        .with_context(|| format!("{source}: cannot listen on {address}"))
        .kind(ErrorKind::Invalid);
    let advice = "stop the program that uses the port, or choose another address with --listen";
    Ok(vec![bound.map_err(|error| error.advise(advice))?])
}

/// Prints a link that logs the owner of a tenant in.
pub(crate) fn login_link(args: &LoginLinkArgs) -> Outcome {
    let body = match &args.tenant {
        Some(tenant) => json!({ "tenant": tenant }),
        None => json!({}),
    };
    let created = local::post(&scope::open(None)?, "/local/login-links", &body)?;
    let url = created.get("url").and_then(Value::as_str).unwrap_or_default();
    print::out(&format!("{url}\n")).kind(ErrorKind::Broken)?;
    Ok(0)
}

/// Runs `belljar tenant`.
pub(crate) fn tenant(cli: &Cli, args: &TenantArgs) -> Outcome {
    match &args.command {
        TenantCommand::Create { name, owner } => create_tenant(name, owner),
        TenantCommand::Verify { json } => verify_tenants(cli, *json),
    }
}

fn create_tenant(name: &TenantId, owner: &[String]) -> Outcome {
    let [issuer, subject] = owner else {
        return Err(invalid("--owner needs an issuer and a subject"));
    };
    let body = json!({ "name": name, "issuer": issuer, "subject": subject });
    local::post(&scope::open(None)?, "/local/tenants", &body)?;
    print::note(&format!(
        "tenant {name} was created; log its owner in with `belljar login-link {name}`"
    ));
    Ok(0)
}

/// Compares the ledgers of all tenants with their recorded checkpoints.
fn verify_tenants(cli: &Cli, json: bool) -> Outcome {
    let tenant: TenantId = witness::SYSTEM.parse().kind(ErrorKind::Broken)?;
    let caller = Caller { tenant, ..local_caller() };
    let reports = witness::compare(&scope::engine(cli.config.as_deref())?.of(&caller)?)?;
    for WitnessReport { tenant, verdict } in &reports {
        let text = verdict_text(verdict);
        if json {
            let is_fault = verdict.is_fault();
            let line = json!({ "tenant": tenant, "fault": is_fault, "verdict": text });
            print::json(&line).kind(ErrorKind::Broken)?;
        } else {
            print::out(&format!("{tenant:<20}  {text}\n")).kind(ErrorKind::Broken)?;
        }
    }
    let has_fault = reports.iter().any(|report| report.verdict.is_fault());
    Ok(if has_fault { exit::FAILED } else { 0 })
}

fn verdict_text(verdict: &WitnessVerdict) -> String {
    match verdict {
        WitnessVerdict::Intact { recorded, size } => {
            format!("intact: {size} events, the first {recorded} as recorded")
        }
        WitnessVerdict::Unrecorded => {
            "no checkpoint was recorded yet; a running server records one".to_owned()
        }
        WitnessVerdict::Missing { recorded } => {
            format!("MISSING: the ledger had {recorded} events; restore it from a backup")
        }
        WitnessVerdict::Truncated { recorded, size } => {
            format!("TRUNCATED: the ledger had {recorded} events and has {size}")
        }
        WitnessVerdict::Rewritten { recorded } => {
            format!("REWRITTEN: the first {recorded} events differ from the recorded ones")
        }
        WitnessVerdict::Unreadable { why } => format!("UNREADABLE: {why}"),
    }
}

/// Reads the tokens of MCP clients, or creates the file with a new one.
fn mcp_tokens(scope: &Scoped) -> Result<TokenFile, EngineError> {
    let file = scope.store().layout().mcp_token();
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)
            .with_context(|| format!("cannot create the directory {}", dir.display()))
            .kind(ErrorKind::Broken)?;
    }
    TokenFile::open(&file)
        .with_context(|| format!("cannot open the token file {}", file.display()))
        .kind(ErrorKind::Invalid)
}
