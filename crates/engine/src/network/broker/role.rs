//! The main function of the broker process: prepare, give up all rights, serve one box, exit.

use std::fs::File;
use std::net::{TcpListener, ToSocketAddrs as _, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context as _, bail};
use belljar_broker::dns::{Resolver, ResolverConf};
use belljar_broker::serve::{Listeners, serve};
use belljar_broker::setup::{Reply, Setup, SocketKind};
use belljar_broker::vault::sealed::{Key, unseal};
use belljar_broker::{Materials, prepare};
use belljar_init::wire;

use crate::clock::Clock;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::lockdown::{self, LockedRole};
use crate::network::roots;

/// The descriptor of the socket to the supervisor, as [`belljar_sys::clone::spawn`] passes it.
const CONTROL_FD: i32 = belljar_sys::clone::CONTROL_FD;

/// Runs this process as a broker until its box ends.
pub fn main(clock: Clock) -> Result<(), EngineError> {
    let adopted =
        belljar_sys::exec::adopt(CONTROL_FD).context("cannot find the socket to the supervisor");
    let control = adopted.kind(ErrorKind::Broken)?;
    // A new session, because signals of a terminal to the supervisor's process group must not stop the
    // broker: a program that was asked to exit may still use the network. The call fails only for a leader
    // of a process group, which is already separate.
    rustix::process::setsid().ok();
    let result = run(&control, clock).inspect_err(|error| {
        let reply = Reply::Failed(format!("{error:#}"));
        wire::send(control.as_fd(), &reply, &[]).ok(); // the supervisor sees the closed socket
    });
    result.kind(ErrorKind::Broken)
}

/// Sets up the broker, locks the process down and serves the box.
fn run(control: &OwnedFd, clock: Clock) -> anyhow::Result<()> {
    let setup = wire::receive::<Setup>(control.as_fd(), wire::MAX_MESSAGE);
    let Some((setup, sealed)) = setup.context("cannot receive the setup from the supervisor")?
    else {
        return Ok(());
    };
    tracing::debug!(
        net = %setup.policy.net,
        allow = setup.policy.allow.len(),
        deny = setup.policy.deny.len(),
        ask = setup.policy.ask.len(),
        secrets = setup.secrets.len(),
        "broker is set up"
    );
    let materials = materials(&setup, sealed, clock)?;
    let (prepared, mut hello) = prepare(setup, materials)?;
    hello.remarks =
        lockdown::enter(LockedRole::Broker).context("cannot lock down the broker process")?;
    tracing::debug!("broker process is locked down");
    wire::send(control.as_fd(), &Reply::Hello(hello), &[])
        .context("cannot report to the supervisor")?;
    let Some(listeners) = receive_listeners(control)? else { return Ok(()) };
    let socket = control.try_clone().context("cannot duplicate the control socket")?;
    let ready = || wire::send(control.as_fd(), &Reply::Ready, &[]);
    serve(prepared, listeners, socket, ready).context("the broker failed")
}

/// Reads everything that needs the file system, before the lockdown removes the access to it.
fn materials(setup: &Setup, descriptors: Vec<OwnedFd>, clock: Clock) -> anyhow::Result<Materials> {
    let roots = roots::read(&setup.roots)?;
    let mut files = descriptors.into_iter().map(File::from);
    let (mut values, mut key) = (Vec::new(), None);
    if let Some(file) = files.next() {
        let key = key.insert(Key::read(setup.key, &file)?);
        for (name, file) in setup.secrets.iter().zip(files) {
            let sealed = unseal(key, name, &file)
                .with_context(|| format!("cannot decrypt the secret {name}"))?;
            values.push((name.clone(), sealed));
        }
    }
    let proxy = match &setup.policy.proxy {
        Some(proxy) => (proxy.target.to_string().as_str(), proxy.port)
            .to_socket_addrs()
            .with_context(|| format!("[proxy] url: cannot resolve {}", proxy.target))?
            .collect(),
        None => Vec::new(),
    };
    let conf = match setup.name_servers.as_slice() {
        [] => ResolverConf::system(),
        servers => ResolverConf::new(servers.to_vec(), ""),
    };
    let resolver = Resolver::new(conf)?;
    Ok(Materials { roots, values, key, proxy, resolver, clock: clock.function() })
}

/// Receives the listening sockets of the box; `None` if the supervisor gave up.
fn receive_listeners(control: &OwnedFd) -> anyhow::Result<Option<Listeners>> {
    let (mut tcp, mut datagrams, mut streams) = (Vec::new(), None, None);
    loop {
        let received = wire::receive::<SocketKind>(control.as_fd(), wire::MAX_SMALL_MESSAGE);
        let message = received.context("cannot receive a socket from the supervisor")?;
        let Some((kind, mut descriptors)) = message else { return Ok(None) };
        match (kind, descriptors.pop()) {
            (SocketKind::Tcp, Some(socket)) => tcp.push(TcpListener::from(socket)),
            (SocketKind::DnsDatagrams, Some(socket)) => datagrams = Some(UdpSocket::from(socket)),
            (SocketKind::DnsStreams, Some(socket)) => streams = Some(TcpListener::from(socket)),
            (SocketKind::Open, None) => break,
            (kind, _) => bail!("message {kind:?} has a missing or an unexpected socket"),
        }
    }
    match (datagrams, streams) {
        (Some(dns_datagrams), Some(dns_streams)) => {
            Ok(Some(Listeners { tcp, dns_datagrams, dns_streams }))
        }
        _ => bail!("the supervisor sent no DNS sockets"),
    }
}
