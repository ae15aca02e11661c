//! System calls by name from a table, by number from the command line, and by the doors that a filter
//! for the native table does not watch: the 32-bit table and the x32 numbers.

mod table;

use belljar_sys::probe::{Abi, Arg, Call, Field, in_child};

use crate::acts::{Act, Words};
use crate::answer::{self, Answer, Stop};

/// One act made of system calls with fixed arguments, performed in a child until one is refused.
pub(crate) struct Row {
    name: &'static str,
    steps: &'static [Step],
}

/// One of the calls of a [`Row`].
pub(crate) struct Step {
    number: i64,
    args: &'static [Arg<'static>],
}

const fn step(number: i64, args: &'static [Arg<'static>]) -> Step {
    Step { number, args }
}

/// Bit 30 of a call number asks for the x32 table.
const X32: i64 = 0x4000_0000;

pub(crate) const ACTS: &[Act] = &[
    Act { name: "call", takes: "NAME (of the table)", run: by_name },
    Act { name: "calls", takes: "(lists the table)", run: list },
    Act { name: "syscall", takes: "NUMBER [WORD…]", run: by_number },
    Act { name: "x32", takes: "NUMBER [WORD…]", run: by_x32_number },
    Act { name: "int80", takes: "NUMBER [WORD…] (three at most)", run: by_int80 },
    Act { name: "ioctl", takes: "DEVICE|- REQUEST TEXT", run: ioctl },
    Act { name: "run-from-memory", takes: "ACT [ARG…]", run: run_from_memory },
];

fn by_name(words: &Words<'_>) -> Answer {
    let name = words.text(0)?;
    let Some(row) = table::ROWS.iter().find(|row| row.name == name) else {
        return Err(Stop::Usage(format!("call NAME; the table has no `{name}`")));
    };
    let calls: Vec<Call<'_>> =
        row.steps.iter().map(|step| Call::new(step.number, step.args)).collect();
    answer::of(in_child(&calls)?)
}

fn list(_: &Words<'_>) -> Answer {
    Ok(table::ROWS.iter().map(|row| row.name).collect::<Vec<_>>().join(" "))
}

fn by_number(words: &Words<'_>) -> Answer {
    answer::of(in_child(&[Call::new(words.number(0)?, &numbers(words)?)])?)
}

fn by_x32_number(words: &Words<'_>) -> Answer {
    answer::of(in_child(&[Call::new(words.number::<i64>(0)? | X32, &numbers(words)?)])?)
}

fn by_int80(words: &Words<'_>) -> Answer {
    answer::of(in_child(&[Call::with_abi(Abi::Int80, words.number(0)?, &numbers(words)?)])?)
}

fn numbers(words: &Words<'_>) -> Result<Vec<Arg<'static>>, Stop> {
    (1..=words.from(1).len()).map(|place| Ok(Arg::Word(words.word(place)?))).collect()
}

/// `-` is standard input as it is; a device is opened first, without making it the controlling terminal.
fn ioctl(words: &Words<'_>) -> Answer {
    let (request, text) = (words.word(1)?, words.c_text(2)?);
    let device = words.c_text(0)?;
    if words.text(0)? == "-" {
        let args = [Arg::Word(0), Arg::Word(request), Arg::Bytes(&text)];
        return answer::of(in_child(&[Call::new(libc::SYS_ioctl, &args)])?);
    }
    let flags = Arg::int((libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK).into());
    let open =
        Call::new(libc::SYS_openat, &[Arg::int(libc::AT_FDCWD.into()), Arg::Bytes(&device), flags]);
    let args = [Arg::Result(0), Arg::Word(request), Arg::Bytes(&text)];
    answer::of(in_child(&[open, Call::new(libc::SYS_ioctl, &args)])?)
}

/// Copies this program into memory that no path names and performs an act from there.
fn run_from_memory(words: &Words<'_>) -> Answer {
    let image = std::fs::read(std::env::current_exe()?)?;
    let mut texts = vec![b"belljar-probe\0".to_vec()];
    for place in 0..words.from(0).len() {
        texts.push(words.c_text(place)?);
    }
    let mut argv: Vec<Field<'_>> = texts.iter().map(|text| Field::Bytes(text)).collect();
    argv.push(Field::Word(0));
    let calls = [
        Call::new(libc::SYS_memfd_create, &[Arg::Bytes(b"probe\0"), Arg::Word(0)]),
        Call::new(
            libc::SYS_write,
            &[Arg::Result(0), Arg::Bytes(&image), Arg::Word(image.len() as u64)],
        ),
        Call::new(
            libc::SYS_execveat,
            &[
                Arg::Result(0),
                Arg::Bytes(b"\0"),
                Arg::Struct(&argv),
                Arg::Word(0),
                Arg::Word(libc::AT_EMPTY_PATH as u64),
            ],
        ),
    ];
    match answer::of(in_child(&calls)?) {
        Ok(_) => Err(Stop::Told(0)),
        refused => refused,
    }
}
