//! Acts on sockets: create sockets of any family, and connect to other processes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixListener, UnixStream};
use std::time::Duration;

use belljar_sys::probe::{Arg, Call, in_child};

use crate::acts::{Act, Params};
use crate::result::{self, ActError, ActResult};

pub(crate) const ACTS: &[Act] = &[
    Act { name: "socket", takes: "FAMILY TYPE PROTOCOL", run: socket },
    Act { name: "socketpair", takes: "FAMILY TYPE", run: socketpair },
    Act { name: "connect-tcp", takes: "ADDRESS:PORT", run: connect_tcp },
    Act { name: "greet-tcp", takes: "ADDRESS:PORT", run: greet_tcp },
    Act { name: "ask-udp", takes: "ADDRESS:PORT", run: ask_udp },
    Act {
        name: "own-service",
        takes: "LISTEN-ADDRESS:PORT CONNECT-ADDRESS:PORT",
        run: own_service,
    },
    Act { name: "send-udp", takes: "ADDRESS:PORT", run: send_udp },
    Act { name: "connect-path", takes: "PATH", run: connect_path },
    Act { name: "connect-abstract", takes: "NAME", run: connect_abstract },
    Act { name: "send-abstract", takes: "NAME", run: send_abstract },
    Act { name: "listen-abstract", takes: "NAME READY SECONDS", run: listen_abstract },
    Act { name: "interfaces", takes: "", run: interfaces },
];

/// All socket address families, including those that this kernel does not have.
const FAMILIES: &[(&str, i32)] = &[
    ("unix", libc::AF_UNIX),
    ("inet", libc::AF_INET),
    ("ax25", libc::AF_AX25),
    ("ipx", libc::AF_IPX),
    ("appletalk", libc::AF_APPLETALK),
    ("netrom", libc::AF_NETROM),
    ("bridge", libc::AF_BRIDGE),
    ("atmpvc", libc::AF_ATMPVC),
    ("x25", libc::AF_X25),
    ("inet6", libc::AF_INET6),
    ("rose", libc::AF_ROSE),
    ("decnet", libc::AF_DECnet),
    ("key", libc::AF_KEY),
    ("netlink", libc::AF_NETLINK),
    ("packet", libc::AF_PACKET),
    ("econet", libc::AF_ECONET),
    ("rds", libc::AF_RDS),
    ("irda", libc::AF_IRDA),
    ("pppox", libc::AF_PPPOX),
    ("llc", libc::AF_LLC),
    ("ib", libc::AF_IB),
    ("mpls", libc::AF_MPLS),
    ("can", libc::AF_CAN),
    ("tipc", libc::AF_TIPC),
    ("bluetooth", libc::AF_BLUETOOTH),
    ("iucv", libc::AF_IUCV),
    ("rxrpc", libc::AF_RXRPC),
    ("isdn", libc::AF_ISDN),
    ("phonet", libc::AF_PHONET),
    ("ieee802154", libc::AF_IEEE802154),
    ("caif", libc::AF_CAIF),
    ("alg", libc::AF_ALG),
    ("nfc", libc::AF_NFC),
    ("vsock", libc::AF_VSOCK),
    ("kcm", 41),
    ("qipcrtr", 42),
    ("smc", 43),
    ("xdp", libc::AF_XDP),
    ("mctp", 45),
];

const TYPES: &[(&str, i32)] = &[
    ("stream", libc::SOCK_STREAM),
    ("dgram", libc::SOCK_DGRAM),
    ("raw", libc::SOCK_RAW),
    ("rdm", libc::SOCK_RDM),
    ("seqpacket", libc::SOCK_SEQPACKET),
    ("dccp", 6),
    ("packet", 10),
];

/// Returns the number with this name as an argument of a system call.
fn number_of(table: &[(&str, i32)], name: &str) -> Result<Arg<'static>, ActError> {
    match table.iter().find(|(known, _)| *known == name) {
        Some((_, number)) => Ok(Arg::int(i64::from(*number))),
        None => Err(ActError::Usage(format!("… unknown family or type `{name}`"))),
    }
}

fn socket(params: &Params<'_>) -> ActResult {
    let family = number_of(FAMILIES, params.text(0)?)?;
    let kind = number_of(TYPES, params.text(1)?)?;
    result::from_outcome(in_child(&[Call::new(
        libc::SYS_socket,
        &[family, kind, Arg::Word(params.integer(2)?)],
    )])?)
    .map(|_| String::new())
}

fn socketpair(params: &Params<'_>) -> ActResult {
    let family = number_of(FAMILIES, params.text(0)?)?;
    let kind = number_of(TYPES, params.text(1)?)?;
    let buffer = Arg::Bytes(&[0; 8]);
    result::from_outcome(in_child(&[Call::new(
        libc::SYS_socketpair,
        &[family, kind, Arg::Word(0), buffer],
    )])?)
    .map(|_| String::new())
}

/// The timeout of a connection, long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

fn address(params: &Params<'_>) -> Result<SocketAddr, ActError> {
    params.number(0)
}

fn connect_tcp(params: &Params<'_>) -> ActResult {
    TcpStream::connect_timeout(&address(params)?, TIMEOUT)?;
    Ok(String::new())
}

/// Sends a line over a TCP connection and prints the response.
fn greet_tcp(params: &Params<'_>) -> ActResult {
    let mut stream = TcpStream::connect_timeout(&address(params)?, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"belljar-probe\n")?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply.escape_debug().to_string())
}

/// Sends a UDP datagram and prints the response from the same address.
fn ask_udp(params: &Params<'_>) -> ActResult {
    let to = address(params)?;
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.send(b"belljar-probe")?;
    let mut reply = [0; 512];
    let count = socket.recv(&mut reply)?;
    Ok(reply.get(..count).unwrap_or_default().escape_ascii().to_string())
}

/// Listens on one address and connects to another one in the same box. Prints whether the
/// connection reached the own listener, and its local address.
fn own_service(params: &Params<'_>) -> ActResult {
    let listener = std::net::TcpListener::bind(params.number::<SocketAddr>(0)?)?;
    let target: SocketAddr = params.number(1)?;
    let connection = TcpStream::connect_timeout(&target, TIMEOUT)?;
    listener.set_nonblocking(true)?; // the connection has arrived by now, or reached another listener
    let (accepted, from) = listener.accept()?;
    let same = from.port() == connection.local_addr()?.port();
    Ok(format!("{same} {}", accepted.local_addr()?))
}

fn send_udp(params: &Params<'_>) -> ActResult {
    let to = address(params)?;
    let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let sent = UdpSocket::bind(from)?.send_to(b"belljar-probe", to)?;
    Ok(sent.to_string())
}

/// Sends a line over a Unix socket and prints the response, which identifies the listener.
fn greet(mut stream: UnixStream) -> ActResult {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"belljar-probe\n")?;
    let mut reply = [0; 64];
    let count = stream.read(&mut reply)?;
    Ok(reply.get(..count).unwrap_or_default().escape_ascii().to_string())
}

fn connect_path(params: &Params<'_>) -> ActResult {
    greet(UnixStream::connect(params.text(0)?)?)
}

fn connect_abstract(params: &Params<'_>) -> ActResult {
    greet(UnixStream::connect_addr(&UnixAddr::from_abstract_name(params.text(0)?)?)?)
}

fn send_abstract(params: &Params<'_>) -> ActResult {
    let to = UnixAddr::from_abstract_name(params.text(0)?)?;
    Ok(UnixDatagram::unbound()?.send_to_addr(b"belljar-probe", &to)?.to_string())
}

/// Listens on an abstract Unix socket, creates the file `READY` and sleeps, so that a test can connect.
fn listen_abstract(params: &Params<'_>) -> ActResult {
    let listener = UnixListener::bind_addr(&UnixAddr::from_abstract_name(params.text(0)?)?)?;
    std::fs::write(params.text(1)?, "")?;
    std::thread::sleep(Duration::from_secs(params.number(2)?));
    drop(listener);
    Ok(String::new())
}

/// Prints the names of the network interfaces in `/proc/self/net/dev`.
fn interfaces(_: &Params<'_>) -> ActResult {
    let text = std::fs::read_to_string("/proc/self/net/dev")?;
    let names: Vec<&str> =
        text.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).collect();
    Ok(names.join(" "))
}
