//! Acts that exhaust resources: processes, memory, files, disk space and time.
//!
//! Each act has an amount as argument and reports the amount that it reached. So the same act with an
//! amount below the limit is the control.

use std::fs::{self, File};
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use belljar_sys::probe::{Arg, Call, Field, Outcome, fork_and_run, in_child};
use rustix::fs::MemfdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use crate::acts::{Act, Params};
use crate::result::{ActError, ActResult};

pub(crate) const ACTS: &[Act] = &[
    Act { name: "forks", takes: "COUNT (alive at the same time)", run: forks },
    Act { name: "threads", takes: "COUNT", run: threads },
    Act { name: "storm", takes: "SECONDS (every process forks in a loop)", run: storm },
    Act { name: "zombies", takes: "COUNT", run: zombies },
    Act { name: "memory", takes: "BYTES", run: memory },
    Act {
        name: "memory-files",
        takes: "BYTES (in memfds that no process maps)",
        run: memory_files,
    },
    Act {
        name: "memory-mapped",
        takes: "BYTES (in memfds that only an untouched mapping holds)",
        run: memory_mapped,
    },
    Act { name: "memory-segments", takes: "BYTES (System V, detached)", run: memory_segments },
    Act { name: "memory-sockets", takes: "BYTES (in socket buffers)", run: memory_sockets },
    Act { name: "memory-tcp", takes: "BYTES (in buffers of TCP sockets)", run: memory_tcp },
    Act { name: "memory-udp", takes: "BYTES (in buffers of UDP sockets)", run: memory_udp },
    Act { name: "semaphores", takes: "COUNT (sets) SIZE (semaphores per set)", run: semaphores },
    Act { name: "hold-files", takes: "COUNT", run: hold_files },
    Act { name: "fill", takes: "PATH BYTES", run: fill },
    Act { name: "fill-many", takes: "DIRECTORY BYTES (in files of 4 MiB)", run: fill_many },
    Act { name: "fill-unlinked", takes: "PATH BYTES (in unlinked files)", run: fill_unlinked },
    Act {
        name: "fill-mapped",
        takes: "PATH BYTES (in unlinked files that only a mapping holds)",
        run: fill_mapped,
    },
    Act {
        name: "fill-sent",
        takes: "PATH BYTES (in unlinked files that only a message holds)",
        run: fill_sent,
    },
    Act {
        name: "fill-among-files",
        takes: "DIRECTORY COUNT BYTES (beside COUNT open files)",
        run: fill_among_files,
    },
    Act { name: "fill-hidden", takes: "DIRECTORY BYTES (of mode 0)", run: fill_hidden },
    Act { name: "files", takes: "DIRECTORY COUNT", run: files },
    Act { name: "output", takes: "BYTES", run: output },
    Act { name: "terminals", takes: "COUNT", run: terminals },
    Act { name: "timers", takes: "COUNT", run: timers },
    Act { name: "watches", takes: "COUNT (inotify instances)", run: watches },
    Act { name: "open-and-close", takes: "PATH COUNT", run: open_and_close },
];

const MIB: usize = 1 << 20;
/// The pause after each MiB, so that a watcher that polls sees the growth even on a busy machine.
const PAUSE: Duration = Duration::from_millis(10);

fn forks(params: &Params<'_>) -> ActResult {
    let count: u32 = params.number(0)?;
    let mut children = Vec::new();
    let refusal = (0..count).find_map(|_| match fork_and_run(wait_to_be_killed) {
        Ok(child) => {
            children.extend(Pid::from_raw(child));
            None
        }
        Err(error) => Some(error),
    });
    let made = children.len();
    for child in children {
        kill_process(child, Signal::KILL)?;
    }
    match refusal {
        Some(error) => Err(ActError::after(&error, made)),
        None => Ok(made.to_string()),
    }
}

fn wait_to_be_killed() -> u8 {
    std::thread::sleep(Duration::from_secs(60));
    0
}

fn threads(params: &Params<'_>) -> ActResult {
    let count: u32 = params.number(0)?;
    for made in 0..count {
        let thread = std::thread::Builder::new().stack_size(16 * 1024);
        thread
            .spawn(|| std::thread::sleep(Duration::from_secs(60)))
            .map_err(|error| ActError::after(&error, made))?;
    }
    Ok(count.to_string())
}

fn storm(params: &Params<'_>) -> ActResult {
    let until = Instant::now() + Duration::from_secs(params.number(0)?);
    while Instant::now() < until {
        // Every child runs the same loop. A refused fork means that the limit is reached.
        if fork_and_run(|| fork_until(until)).is_err() {
            std::thread::yield_now();
        }
    }
    Ok(String::new())
}

/// Forks in a loop until the deadline; every child does the same.
fn fork_until(until: Instant) -> u8 {
    while Instant::now() < until {
        if fork_and_run(|| fork_until(until)).is_err() {
            std::thread::yield_now();
        }
    }
    0
}

fn zombies(params: &Params<'_>) -> ActResult {
    let count: u32 = params.number(0)?;
    for made in 0..count {
        fork_and_run(|| 0).map_err(|error| ActError::after(&error, made))?;
    }
    while wait(WaitOptions::empty()).is_ok() {}
    Ok(count.to_string())
}

fn memory(params: &Params<'_>) -> ActResult {
    let wanted: usize = params.number(0)?;
    let mut held: Vec<Vec<u8>> = Vec::new();
    for taken in (0..wanted).step_by(MIB) {
        let mut piece = Vec::new();
        if piece.try_reserve_exact(MIB).is_err() {
            return Err(ActError::after(&io::Error::from_raw_os_error(libc::ENOMEM), taken));
        }
        piece.resize(MIB, 0x5a);
        held.push(piece);
        std::thread::sleep(PAUSE);
    }
    Ok(held.iter().map(Vec::len).sum::<usize>().to_string())
}

fn memory_files(params: &Params<'_>) -> ActResult {
    write_files(params.number(0)?, 4 * MIB, |_| {
        Ok(File::from(rustix::fs::memfd_create("bomb", MemfdFlags::CLOEXEC)?))
    })
}

/// Fills System V shared memory segments with zeros and detaches them, so that they outlive the
/// process.
fn memory_segments(params: &Params<'_>) -> ActResult {
    const EACH: usize = 16 * MIB;
    let wanted: usize = params.number(0)?;
    for taken in (0..wanted).step_by(EACH) {
        let open = [Arg::int(libc::AT_FDCWD.into()), Arg::Bytes(b"/dev/zero\0"), Arg::Word(0)];
        let get = [Arg::Word(0), Arg::Word(EACH as u64), Arg::Word(0o600)];
        let calls = [
            Call::new(libc::SYS_openat, &open),
            Call::new(libc::SYS_shmget, &get),
            Call::new(libc::SYS_shmat, &[Arg::Result(1)]),
            Call::new(libc::SYS_read, &[Arg::Result(0), Arg::Result(2), Arg::Word(EACH as u64)]),
        ];
        match in_child(&calls)? {
            Outcome::Granted(_) => {}
            Outcome::Refused { errno, .. } => {
                return Err(ActError::after(&io::Error::from_raw_os_error(errno), taken));
            }
            other @ (Outcome::Killed(_) | Outcome::Exited(_)) => {
                return crate::result::from_outcome(other);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(wanted.to_string())
}

fn memory_sockets(params: &Params<'_>) -> ActResult {
    let (wanted, piece) = (params.number::<usize>(0)?, [0x5a; 64 * 1024]);
    let (mut held, mut sent) = (Vec::new(), 0);
    while sent < wanted {
        let (mut from, to) = UnixStream::pair().map_err(|error| ActError::after(&error, sent))?;
        from.set_nonblocking(true)?;
        while let Ok(count) = from.write(&piece) {
            sent += count;
        }
        held.push((from, to));
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(sent.to_string())
}

/// Fills TCP connections of this machine to itself. No process reads from them.
fn memory_tcp(params: &Params<'_>) -> ActResult {
    let (wanted, piece) = (params.number::<usize>(0)?, vec![0x5a; MIB]);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut held, mut sent) = (Vec::new(), 0);
    while sent < wanted {
        let mut from = TcpStream::connect(listener.local_addr()?)
            .map_err(|error| ActError::after(&error, sent))?;
        held.push(listener.accept().map_err(|error| ActError::after(&error, sent))?.0);
        from.set_nonblocking(true)?;
        let before = sent;
        // The receiver gets the bytes a little later than the sender has sent them.
        for _ in 0..3 {
            while let Ok(count) = from.write(&piece) {
                sent += count;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        held.push(from);
        if sent - before < 64 * 1024 {
            return Err(ActError::after(&io::Error::from_raw_os_error(libc::EAGAIN), sent));
        }
    }
    Ok(sent.to_string())
}

/// Fills UDP sockets, then counts what the kernel kept: it drops datagrams without an error.
fn memory_udp(params: &Params<'_>) -> ActResult {
    const DATAGRAMS: usize = 64; // fit into the default buffer of a socket
    let (wanted, mut datagram) = (params.number::<usize>(0)?, [0x5a; 1000]);
    let from = UdpSocket::bind("127.0.0.1:0")?;
    let mut held = Vec::new();
    for sent in (0..wanted).step_by(DATAGRAMS * datagram.len()) {
        let to = UdpSocket::bind("127.0.0.1:0").map_err(|error| ActError::after(&error, sent))?;
        let address = to.local_addr()?;
        for _ in 0..DATAGRAMS {
            from.send_to(&datagram, address).ok(); // a datagram that is lost is not counted below
        }
        to.set_nonblocking(true)?;
        held.push(to);
    }
    let mut kept = 0;
    for socket in &held {
        while let Ok(count) = socket.recv(&mut datagram) {
            kept += count;
        }
    }
    if kept < wanted {
        return Err(ActError::after(&io::Error::from_raw_os_error(libc::EAGAIN), kept));
    }
    Ok(kept.to_string())
}

fn semaphores(params: &Params<'_>) -> ActResult {
    let args = [Arg::Word(0), Arg::Word(params.number(1)?), Arg::Word(0o600)];
    repeated(Call::new(libc::SYS_semget, &args), params)
}

fn hold_files(params: &Params<'_>) -> ActResult {
    let count: u32 = params.number(0)?;
    let mut held = Vec::new();
    for made in 0..count {
        held.push(File::open("/dev/null").map_err(|error| ActError::after(&error, made))?);
    }
    Ok(held.len().to_string())
}

fn fill(params: &Params<'_>) -> ActResult {
    write_files(params.number(1)?, usize::MAX, |_| Ok(File::create(params.text(0)?)?))
}

fn fill_many(params: &Params<'_>) -> ActResult {
    let directory = params.text(0)?;
    fs::create_dir(directory)?;
    write_files(params.number(1)?, 4 * MIB, |number| {
        Ok(File::create(format!("{directory}/{number}"))?)
    })
}

fn fill_unlinked(params: &Params<'_>) -> ActResult {
    let path = params.text(0)?;
    write_files(params.number(1)?, 4 * MIB, |_| {
        let file = File::create_new(path)?;
        fs::remove_file(path)?;
        Ok(file)
    })
}

fn fill_mapped(params: &Params<'_>) -> ActResult {
    let path = params.c_string(0)?;
    let here = Arg::int(libc::AT_FDCWD.into());
    let flags = Arg::Word((libc::O_CREAT | libc::O_EXCL | libc::O_RDWR).unsigned_abs().into());
    let open = [here, Arg::Bytes(&path), flags, Arg::Word(0o600)];
    let unlink = [here, Arg::Bytes(&path), Arg::Word(0)];
    let open = Call::new(libc::SYS_openat, &open);
    hold_by_mappings(params.number(1)?, open, Call::new(libc::SYS_unlinkat, &unlink))
}

fn memory_mapped(params: &Params<'_>) -> ActResult {
    let create = [Arg::Bytes(b"bomb\0"), Arg::Word(0)];
    let create = Call::new(libc::SYS_memfd_create, &create);
    hold_by_mappings(params.number(0)?, create, Call::new(libc::SYS_getpid, &[]))
}

/// Reserves `wanted` bytes in files that `open` and then `unlink` make, maps one page of each file and
/// closes it.
fn hold_by_mappings(wanted: u64, open: Call<'_>, unlink: Call<'_>) -> ActResult {
    const EACH: u64 = 4 << 20;
    let count = wanted / EACH;
    let shared = Arg::Word(libc::MAP_SHARED.unsigned_abs().into());
    let pause = [Field::Word(0), Field::Word(40_000_000)];
    let sleep = [Arg::Struct(&pause), Arg::Word(0)];
    let of_each: Vec<_> = (0..usize::try_from(count).unwrap_or(usize::MAX))
        .map(|number| {
            let file = Arg::Result(number * 6);
            (
                [file, Arg::Word(0), Arg::Word(0), Arg::Word(EACH)],
                [Arg::Word(0), Arg::Word(4096), Arg::Word(1), shared, file, Arg::Word(0)],
                [file],
            )
        })
        .collect();
    let calls: Vec<Call<'_>> = of_each
        .iter()
        .flat_map(|(reserve, map, close)| {
            [
                open,
                unlink,
                Call::new(libc::SYS_fallocate, reserve),
                Call::new(libc::SYS_mmap, map),
                Call::new(libc::SYS_close, close),
                Call::new(libc::SYS_nanosleep, &sleep),
            ]
        })
        .collect();
    match in_child(&calls)? {
        Outcome::Granted(_) => Ok((count * EACH).to_string()),
        Outcome::Refused { index, errno } => {
            Err(ActError::after(&io::Error::from_raw_os_error(errno), index / 6 * 4 * MIB))
        }
        other @ (Outcome::Killed(_) | Outcome::Exited(_)) => crate::result::from_outcome(other),
    }
}

/// Keeps unlinked files in messages that no process receives.
fn fill_sent(params: &Params<'_>) -> ActResult {
    let (path, wanted) = (params.text(0)?, params.number::<usize>(1)?);
    let piece = vec![0x5a; 4 * MIB];
    let (from, _to) = UnixStream::pair()?;
    for written in (0..wanted).step_by(piece.len()) {
        let mut file = File::create_new(path)?;
        fs::remove_file(path)?;
        file.write_all(&piece).map_err(|error| ActError::after(&error, written))?;
        let descriptors = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        rustix::net::sendmsg(&from, &[IoSlice::new(b"x")], &mut control, SendFlags::empty())?;
        std::thread::sleep(4 * PAUSE);
    }
    Ok(wanted.to_string())
}

/// Fills the disk in a process tree that has many open files, which a watcher must look at.
fn fill_among_files(params: &Params<'_>) -> ActResult {
    let (directory, count) = (params.text(0)?, params.number::<usize>(1)?);
    fs::create_dir(directory)?;
    let mut left = count;
    while left > 0 {
        let held = left.min(4000);
        left -= held;
        fork_and_run(|| {
            let files: Vec<_> = (0..held).map_while(|_| File::open("/dev/null").ok()).collect();
            let code = wait_to_be_killed();
            drop(files);
            code
        })
        .map_err(|error| ActError::after(&error, left))?;
    }
    std::thread::sleep(Duration::from_secs(1)); // so that a watcher has looked at the files
    write_files(params.number(2)?, 4 * MIB, |number| {
        Ok(File::create(format!("{directory}/{number}"))?)
    })
}

fn fill_hidden(params: &Params<'_>) -> ActResult {
    let directory = params.text(0)?;
    fs::create_dir(directory)?;
    let allow = |mode| fs::set_permissions(directory, fs::Permissions::from_mode(mode));
    write_files(params.number(1)?, 4 * MIB, |number| {
        allow(0o700)?;
        let file = File::create(format!("{directory}/{number}"))?;
        allow(0o000)?;
        Ok(file)
    })
}

/// Writes `wanted` bytes to files of `each` bytes and keeps all files open.
fn write_files(
    wanted: usize,
    each: usize,
    open: impl Fn(usize) -> Result<File, ActError>,
) -> ActResult {
    // SIGXFSZ for a file that is too large would end the process before it can report.
    belljar_sys::probe::ignore_every_signal();
    let piece = vec![0x5a; MIB];
    let mut files: Vec<File> = Vec::new();
    for written in (0..wanted).step_by(MIB) {
        if files.len() <= written / each {
            files.push(open(written / each)?);
        }
        let Some(file) = files.last_mut() else { continue };
        file.write_all(&piece).map_err(|error| ActError::after(&error, written))?;
        std::thread::sleep(PAUSE);
    }
    Ok(wanted.to_string())
}

fn files(params: &Params<'_>) -> ActResult {
    let (directory, count) = (params.text(0)?, params.number::<u32>(1)?);
    fs::create_dir_all(directory)?;
    for made in 0..count {
        File::create_new(format!("{directory}/{made}"))
            .map_err(|error| ActError::after(&error, made))?;
    }
    Ok(count.to_string())
}

fn output(params: &Params<'_>) -> ActResult {
    let wanted: usize = params.number(0)?;
    let piece = [b'x'; 64 * 1024];
    let mut left = wanted;
    let mut out = io::stdout().lock();
    while left > 0 {
        let part = left.min(piece.len());
        out.write_all(piece.get(..part).unwrap_or_default())?;
        left -= part;
    }
    out.write_all(b"\n")?;
    Err(ActError::AlreadyPrinted(0))
}

fn terminals(params: &Params<'_>) -> ActResult {
    let count: u32 = params.number(0)?;
    let mut held = Vec::new();
    for made in 0..count {
        let terminal = fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx");
        held.push(terminal.map_err(|error| ActError::after(&error, made))?);
    }
    Ok(held.len().to_string())
}

fn timers(params: &Params<'_>) -> ActResult {
    let buffer = [0; 8];
    let call =
        Call::new(libc::SYS_timer_create, &[Arg::Word(1), Arg::Word(0), Arg::Bytes(&buffer)]);
    repeated(call, params)
}

fn watches(params: &Params<'_>) -> ActResult {
    repeated(Call::new(libc::SYS_inotify_init1, &[Arg::Word(0)]), params)
}

/// Makes the same system call many times in one process, which keeps all returned resources.
fn repeated(call: Call<'_>, params: &Params<'_>) -> ActResult {
    let count: usize = params.number(0)?;
    match in_child(&vec![call; count])? {
        Outcome::Granted(_) => Ok(count.to_string()),
        Outcome::Refused { index, errno } => {
            Err(ActError::after(&io::Error::from_raw_os_error(errno), index))
        }
        other @ (Outcome::Killed(_) | Outcome::Exited(_)) => crate::result::from_outcome(other),
    }
}

fn open_and_close(params: &Params<'_>) -> ActResult {
    let count: u32 = params.number(1)?;
    for made in 0..count {
        File::open(params.text(0)?).map_err(|error| ActError::after(&error, made))?;
    }
    Ok(count.to_string())
}
