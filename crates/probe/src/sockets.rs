//! Acts on sockets: which families can be made, and whom they reach.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixListener, UnixStream};
use std::time::Duration;

use belljar_sys::probe::{Arg, Call, in_child};

use crate::acts::{Act, Words};
use crate::answer::{self, Answer, Stop};

pub(crate) const ACTS: &[Act] = &[
    Act { name: "socket", takes: "FAMILY TYPE PROTOCOL", run: socket },
    Act { name: "socketpair", takes: "FAMILY TYPE", run: socketpair },
    Act { name: "connect-tcp", takes: "ADDRESS:PORT", run: connect_tcp },
    Act { name: "greet-tcp", takes: "ADDRESS:PORT", run: greet_tcp },
    Act { name: "ask-udp", takes: "ADDRESS:PORT", run: ask_udp },
    Act { name: "own-service", takes: "BOUND-TO:PORT DIALLED:PORT", run: own_service },
    Act { name: "send-udp", takes: "ADDRESS:PORT", run: send_udp },
    Act { name: "connect-path", takes: "PATH", run: connect_path },
    Act { name: "connect-abstract", takes: "NAME", run: connect_abstract },
    Act { name: "send-abstract", takes: "NAME", run: send_abstract },
    Act { name: "listen-abstract", takes: "NAME READY SECONDS", run: listen_abstract },
    Act { name: "interfaces", takes: "", run: interfaces },
];

/// The families that a program may name, whether or not this kernel has them.
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

fn number_of(table: &[(&str, i32)], name: &str) -> Result<Arg<'static>, Stop> {
    match table.iter().find(|(known, _)| *known == name) {
        Some((_, number)) => Ok(Arg::int(i64::from(*number))),
        None => Err(Stop::Usage(format!("… `{name}` is not known"))),
    }
}

fn socket(words: &Words<'_>) -> Answer {
    let family = number_of(FAMILIES, words.text(0)?)?;
    let kind = number_of(TYPES, words.text(1)?)?;
    answer::of(in_child(&[Call::new(
        libc::SYS_socket,
        &[family, kind, Arg::Word(words.word(2)?)],
    )])?)
    .map(|_| String::new())
}

fn socketpair(words: &Words<'_>) -> Answer {
    let family = number_of(FAMILIES, words.text(0)?)?;
    let kind = number_of(TYPES, words.text(1)?)?;
    let room = Arg::Bytes(&[0; 8]);
    answer::of(in_child(&[Call::new(libc::SYS_socketpair, &[family, kind, Arg::Word(0), room])])?)
        .map(|_| String::new())
}

/// Enough for anything but a hang, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn address(words: &Words<'_>) -> Result<SocketAddr, Stop> {
    words.number(0)
}

fn connect_tcp(words: &Words<'_>) -> Answer {
    TcpStream::connect_timeout(&address(words)?, PATIENCE)?;
    Ok(String::new())
}

/// Sends a word over a connection and tells all that comes back.
fn greet_tcp(words: &Words<'_>) -> Answer {
    let mut stream = TcpStream::connect_timeout(&address(words)?, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"belljar-probe\n")?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply.escape_debug().to_string())
}

/// Sends a datagram to exactly one and tells what that one answers.
fn ask_udp(words: &Words<'_>) -> Answer {
    let to = address(words)?;
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.send(b"belljar-probe")?;
    let mut reply = [0; 512];
    let count = socket.recv(&mut reply)?;
    Ok(reply.get(..count).unwrap_or_default().escape_ascii().to_string())
}

/// Listens on one address and dials another; tells whether it met itself, and where.
fn own_service(words: &Words<'_>) -> Answer {
    let listener = std::net::TcpListener::bind(words.number::<SocketAddr>(0)?)?;
    let dialled: SocketAddr = words.number(1)?;
    let dialling = TcpStream::connect_timeout(&dialled, PATIENCE)?;
    listener.set_nonblocking(true)?; // the connection is there by now, or went elsewhere
    let (accepted, from) = listener.accept()?;
    let same = from.port() == dialling.local_addr()?.port();
    Ok(format!("{same} {}", accepted.local_addr()?))
}

fn send_udp(words: &Words<'_>) -> Answer {
    let to = address(words)?;
    let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let sent = UdpSocket::bind(from)?.send_to(b"belljar-probe", to)?;
    Ok(sent.to_string())
}

/// Sends a word and tells what comes back, so that a connection to the wrong listener shows.
fn greet(mut stream: UnixStream) -> Answer {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"belljar-probe\n")?;
    let mut reply = [0; 64];
    let count = stream.read(&mut reply)?;
    Ok(reply.get(..count).unwrap_or_default().escape_ascii().to_string())
}

fn connect_path(words: &Words<'_>) -> Answer {
    greet(UnixStream::connect(words.text(0)?)?)
}

fn connect_abstract(words: &Words<'_>) -> Answer {
    greet(UnixStream::connect_addr(&UnixAddr::from_abstract_name(words.text(0)?)?)?)
}

fn send_abstract(words: &Words<'_>) -> Answer {
    let to = UnixAddr::from_abstract_name(words.text(0)?)?;
    Ok(UnixDatagram::unbound()?.send_to_addr(b"belljar-probe", &to)?.to_string())
}

/// Listens, makes the file `READY` and stays, so that the other side can try to connect.
fn listen_abstract(words: &Words<'_>) -> Answer {
    let listener = UnixListener::bind_addr(&UnixAddr::from_abstract_name(words.text(0)?)?)?;
    std::fs::write(words.text(1)?, "")?;
    std::thread::sleep(Duration::from_secs(words.number(2)?));
    drop(listener);
    Ok(String::new())
}

/// The network interfaces, from `/proc/net/dev` as any program reads them.
fn interfaces(_: &Words<'_>) -> Answer {
    let text = std::fs::read_to_string("/proc/self/net/dev")?;
    let names: Vec<&str> =
        text.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).collect();
    Ok(names.join(" "))
}
