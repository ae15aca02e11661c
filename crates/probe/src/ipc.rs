//! Acts on System V IPC and POSIX message queues, which processes share by key or name.

use belljar_sys::probe::{Arg, Call, in_child};

use crate::acts::{Act, Params};
use crate::result::{self, ActResult};

pub(crate) const ACTS: &[Act] = &[
    Act { name: "shm-make", takes: "KEY", run: |params| segment(params, MAKE) },
    Act { name: "shm-find", takes: "KEY", run: |params| segment(params, FIND) },
    Act { name: "shm-remove", takes: "KEY", run: remove_segment },
    Act { name: "msg-make", takes: "KEY", run: |params| queue(params, MAKE) },
    Act { name: "msg-find", takes: "KEY", run: |params| queue(params, FIND) },
    Act { name: "msg-remove", takes: "KEY", run: remove_queue },
    Act { name: "sem-make", takes: "KEY", run: |params| semaphore(params, MAKE) },
    Act { name: "sem-find", takes: "KEY", run: |params| semaphore(params, FIND) },
    Act { name: "sem-remove", takes: "KEY", run: remove_semaphore },
    Act { name: "mq-make", takes: "NAME", run: |params| posix_queue(params, POSIX_MAKE) },
    Act { name: "mq-find", takes: "NAME", run: |params| posix_queue(params, 0) },
    Act { name: "mq-remove", takes: "NAME", run: remove_posix_queue },
];

const MAKE: u64 = 0o1666; // IPC_CREAT, mode 0666
const FIND: u64 = 0;
const POSIX_MAKE: u64 = 0o100; // O_CREAT
const REMOVE: Arg<'static> = Arg::Word(0); // IPC_RMID

fn segment(params: &Params<'_>, flags: u64) -> ActResult {
    let size = if flags == FIND { 0 } else { 4096 };
    let args = [Arg::Word(params.integer(0)?), Arg::Word(size), Arg::Word(flags)];
    result::from_outcome(in_child(&[Call::new(libc::SYS_shmget, &args)])?)
}

fn remove_segment(params: &Params<'_>) -> ActResult {
    let find = Call::new(libc::SYS_shmget, &[Arg::Word(params.integer(0)?)]);
    let remove = Call::new(libc::SYS_shmctl, &[Arg::Result(0), REMOVE]);
    result::from_outcome(in_child(&[find, remove])?)
}

fn queue(params: &Params<'_>, flags: u64) -> ActResult {
    let args = [Arg::Word(params.integer(0)?), Arg::Word(flags)];
    result::from_outcome(in_child(&[Call::new(libc::SYS_msgget, &args)])?)
}

fn remove_queue(params: &Params<'_>) -> ActResult {
    let find = Call::new(libc::SYS_msgget, &[Arg::Word(params.integer(0)?)]);
    let remove = Call::new(libc::SYS_msgctl, &[Arg::Result(0), REMOVE]);
    result::from_outcome(in_child(&[find, remove])?)
}

fn semaphore(params: &Params<'_>, flags: u64) -> ActResult {
    let count = u64::from(flags != FIND);
    let args = [Arg::Word(params.integer(0)?), Arg::Word(count), Arg::Word(flags)];
    result::from_outcome(in_child(&[Call::new(libc::SYS_semget, &args)])?)
}

fn remove_semaphore(params: &Params<'_>) -> ActResult {
    let find = Call::new(libc::SYS_semget, &[Arg::Word(params.integer(0)?)]);
    let remove = Call::new(libc::SYS_semctl, &[Arg::Result(0), Arg::Word(0), REMOVE]);
    result::from_outcome(in_child(&[find, remove])?)
}

/// Opens a POSIX message queue. The system call expects the name without the leading slash.
fn posix_queue(params: &Params<'_>, flags: u64) -> ActResult {
    let name = params.c_string(0)?;
    let args = [Arg::Bytes(&name), Arg::Word(flags), Arg::Word(0o666), Arg::Word(0)];
    result::from_outcome(in_child(&[Call::new(libc::SYS_mq_open, &args)])?)
}

fn remove_posix_queue(params: &Params<'_>) -> ActResult {
    let name = params.c_string(0)?;
    result::from_outcome(in_child(&[Call::new(libc::SYS_mq_unlink, &[Arg::Bytes(&name)])])?)
}
