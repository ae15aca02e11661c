//! Acts on memory and queues that processes share by a key or a name instead of a path.

use belljar_sys::probe::{Arg, Call, in_child};

use crate::acts::{Act, Words};
use crate::answer::{self, Answer};

pub(crate) const ACTS: &[Act] = &[
    Act { name: "shm-make", takes: "KEY", run: |words| segment(words, MAKE) },
    Act { name: "shm-find", takes: "KEY", run: |words| segment(words, FIND) },
    Act { name: "shm-remove", takes: "KEY", run: remove_segment },
    Act { name: "msg-make", takes: "KEY", run: |words| queue(words, MAKE) },
    Act { name: "msg-find", takes: "KEY", run: |words| queue(words, FIND) },
    Act { name: "msg-remove", takes: "KEY", run: remove_queue },
    Act { name: "sem-make", takes: "KEY", run: |words| semaphore(words, MAKE) },
    Act { name: "sem-find", takes: "KEY", run: |words| semaphore(words, FIND) },
    Act { name: "sem-remove", takes: "KEY", run: remove_semaphore },
    Act { name: "mq-make", takes: "NAME", run: |words| posix_queue(words, POSIX_MAKE) },
    Act { name: "mq-find", takes: "NAME", run: |words| posix_queue(words, 0) },
    Act { name: "mq-remove", takes: "NAME", run: remove_posix_queue },
];

const MAKE: u64 = 0o1666; // IPC_CREAT, for everybody
const FIND: u64 = 0;
const POSIX_MAKE: u64 = 0o100; // O_CREAT
const REMOVE: Arg<'static> = Arg::Word(0); // IPC_RMID

fn segment(words: &Words<'_>, flags: u64) -> Answer {
    let size = if flags == FIND { 0 } else { 4096 };
    let args = [Arg::Word(words.word(0)?), Arg::Word(size), Arg::Word(flags)];
    answer::of(in_child(&[Call::new(libc::SYS_shmget, &args)])?)
}

fn remove_segment(words: &Words<'_>) -> Answer {
    let find = Call::new(libc::SYS_shmget, &[Arg::Word(words.word(0)?)]);
    let remove = Call::new(libc::SYS_shmctl, &[Arg::Result(0), REMOVE]);
    answer::of(in_child(&[find, remove])?)
}

fn queue(words: &Words<'_>, flags: u64) -> Answer {
    let args = [Arg::Word(words.word(0)?), Arg::Word(flags)];
    answer::of(in_child(&[Call::new(libc::SYS_msgget, &args)])?)
}

fn remove_queue(words: &Words<'_>) -> Answer {
    let find = Call::new(libc::SYS_msgget, &[Arg::Word(words.word(0)?)]);
    let remove = Call::new(libc::SYS_msgctl, &[Arg::Result(0), REMOVE]);
    answer::of(in_child(&[find, remove])?)
}

fn semaphore(words: &Words<'_>, flags: u64) -> Answer {
    let count = u64::from(flags != FIND);
    let args = [Arg::Word(words.word(0)?), Arg::Word(count), Arg::Word(flags)];
    answer::of(in_child(&[Call::new(libc::SYS_semget, &args)])?)
}

fn remove_semaphore(words: &Words<'_>) -> Answer {
    let find = Call::new(libc::SYS_semget, &[Arg::Word(words.word(0)?)]);
    let remove = Call::new(libc::SYS_semctl, &[Arg::Result(0), Arg::Word(0), REMOVE]);
    answer::of(in_child(&[find, remove])?)
}

/// The kernel takes the name without the slash that the library asks for.
fn posix_queue(words: &Words<'_>, flags: u64) -> Answer {
    let name = words.c_text(0)?;
    let args = [Arg::Bytes(&name), Arg::Word(flags), Arg::Word(0o666), Arg::Word(0)];
    answer::of(in_child(&[Call::new(libc::SYS_mq_open, &args)])?)
}

fn remove_posix_queue(words: &Words<'_>) -> Answer {
    let name = words.c_text(0)?;
    answer::of(in_child(&[Call::new(libc::SYS_mq_unlink, &[Arg::Bytes(&name)])])?)
}
