//! The broker's process: gets ready, locks itself in, serves one box, ends.

use std::fs::File;
use std::net::{TcpListener, ToSocketAddrs as _, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context as _, bail};
use belljar_broker::dns::{Resolver, ResolverConf};
use belljar_broker::serve::{Listeners, serve};
use belljar_broker::setup::{Reply, Setup, SocketKind};
use belljar_broker::tls::Roots;
use belljar_broker::vault::sealed::{Key, unseal};
use belljar_broker::{Materials, prepare};
use belljar_init::wire;

use crate::clock::Clock;
use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::lockdown::{self, LockedRole};

/// Where [`belljar_sys::clone::spawn`] puts the socket to the supervisor.
const CONTROL: i32 = belljar_sys::clone::CONTROL_FD;

/// Runs as a broker until its box is gone.
pub fn main(clock: Clock) -> Result<(), EngineError> {
    let adopted = belljar_sys::exec::adopt(CONTROL).context("find the socket to the supervisor");
    let control = adopted.kind(ErrorKind::Broken)?;
    // What a terminal or a shell sends to the supervisor's group is not for us: a program of the box
    // that was asked to end may still have something to say. Refused only to a leader, who is alone.
    rustix::process::setsid().ok();
    let worked = work(&control, clock).inspect_err(|error| {
        let reply = Reply::Failed(format!("{error:#}"));
        wire::send(control.as_fd(), &reply, &[]).ok(); // then its silence says it
    });
    worked.kind(ErrorKind::Broken)
}

fn work(control: &OwnedFd, clock: Clock) -> anyhow::Result<()> {
    let setup = wire::receive::<Setup>(control.as_fd(), wire::MAX_MESSAGE);
    let Some((setup, sealed)) = setup.context("hear from the supervisor")? else { return Ok(()) };
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
    hello.remarks = lockdown::enter(LockedRole::Broker).context("lock the broker in")?;
    tracing::debug!("broker is locked in");
    wire::send(control.as_fd(), &Reply::Hello(hello), &[]).context("say hello")?;
    let Some(doors) = doors(control)? else { return Ok(()) };
    let own = control.try_clone().context("share the control socket")?;
    let ready = || wire::send(control.as_fd(), &Reply::Ready, &[]);
    serve(prepared, doors, own, ready).context("serve")
}

/// Everything that needs a file system.
fn materials(setup: &Setup, descriptors: Vec<OwnedFd>, clock: Clock) -> anyhow::Result<Materials> {
    let mut roots = Roots::system();
    for path in &setup.roots {
        let pem =
            std::fs::read(path).with_context(|| format!("[tls] roots: {}", path.display()))?;
        roots.add_pem(&pem, &path.display().to_string())?;
    }
    let mut files = descriptors.into_iter().map(File::from);
    let (mut values, mut key) = (Vec::new(), None);
    if let Some(file) = files.next() {
        let key = key.insert(Key::read(setup.key, &file)?);
        for (name, file) in setup.secrets.iter().zip(files) {
            let sealed = unseal(key, name, &file).with_context(|| format!("secret {name}"))?;
            values.push((name.clone(), sealed));
        }
    }
    let proxy = match &setup.policy.proxy {
        Some(proxy) => (proxy.target.to_string().as_str(), proxy.port)
            .to_socket_addrs()
            .with_context(|| format!("[proxy] url: resolve {}", proxy.target))?
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

/// The sockets of the box; none if there will be no box.
fn doors(control: &OwnedFd) -> anyhow::Result<Option<Listeners>> {
    let (mut tcp, mut datagrams, mut streams) = (Vec::new(), None, None);
    loop {
        let received = wire::receive::<SocketKind>(control.as_fd(), wire::MAX_SMALL_MESSAGE);
        let Some((door, mut with)) = received.context("get a socket")? else { return Ok(None) };
        match (door, with.pop()) {
            (SocketKind::Tcp, Some(socket)) => tcp.push(TcpListener::from(socket)),
            (SocketKind::DnsDatagrams, Some(socket)) => datagrams = Some(UdpSocket::from(socket)),
            (SocketKind::DnsStreams, Some(socket)) => streams = Some(TcpListener::from(socket)),
            (SocketKind::Open, None) => break,
            (door, _) => bail!("{door:?} came without its socket, or with one"),
        }
    }
    match (datagrams, streams) {
        (Some(dns_datagrams), Some(dns_streams)) => {
            Ok(Some(Listeners { tcp, dns_datagrams, dns_streams }))
        }
        _ => bail!("a box without DNS"),
    }
}
