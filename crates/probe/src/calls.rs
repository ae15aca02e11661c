//! Acts that make system calls: by name from a table, by number, and through the 32-bit and x32 interfaces,
//! which a filter for native calls alone would not check.

mod table;

use belljar_sys::probe::{Abi, Arg, Call, Field, in_child};

use crate::acts::{Act, Params};
use crate::result::{self, ActError, ActResult};

/// A list of system calls with fixed arguments, which a child process makes until one fails.
pub(crate) struct Row {
    name: &'static str,
    steps: &'static [Step],
}

/// One system call of a [`Row`], with its arguments.
pub(crate) struct Step {
    number: i64,
    args: &'static [Arg<'static>],
}

const fn step(number: i64, args: &'static [Arg<'static>]) -> Step {
    Step { number, args }
}

/// Bit 30 of a system call number, which selects the x32 table.
const X32: i64 = 0x4000_0000;

pub(crate) const ACTS: &[Act] = &[
    Act { name: "call", takes: "NAME (from the table)", run: by_name },
    Act { name: "calls", takes: "(lists the table)", run: list },
    Act { name: "syscall", takes: "NUMBER [INTEGER…]", run: by_number },
    Act { name: "x32", takes: "NUMBER [INTEGER…]", run: by_x32_number },
    Act { name: "int80", takes: "NUMBER [INTEGER…] (at most three)", run: by_int80 },
    Act { name: "ioctl", takes: "DEVICE|- REQUEST TEXT", run: ioctl },
    Act { name: "run-from-memory", takes: "ACT [ARG…]", run: run_from_memory },
];

fn by_name(params: &Params<'_>) -> ActResult {
    let name = params.text(0)?;
    let Some(row) = table::ROWS.iter().find(|row| row.name == name) else {
        return Err(ActError::Usage(format!(
            "call NAME; unknown call `{name}`; the act `calls` lists the table"
        )));
    };
    let calls: Vec<Call<'_>> =
        row.steps.iter().map(|step| Call::new(step.number, step.args)).collect();
    result::from_outcome(in_child(&calls)?)
}

fn list(_: &Params<'_>) -> ActResult {
    Ok(table::ROWS.iter().map(|row| row.name).collect::<Vec<_>>().join(" "))
}

fn by_number(params: &Params<'_>) -> ActResult {
    result::from_outcome(in_child(&[Call::new(params.number(0)?, &integers(params)?)])?)
}

fn by_x32_number(params: &Params<'_>) -> ActResult {
    result::from_outcome(in_child(&[Call::new(
        params.number::<i64>(0)? | X32,
        &integers(params)?,
    )])?)
}

fn by_int80(params: &Params<'_>) -> ActResult {
    result::from_outcome(in_child(&[Call::with_abi(
        Abi::Int80,
        params.number(0)?,
        &integers(params)?,
    )])?)
}

/// Returns all arguments of the operation after the first as integers.
fn integers(params: &Params<'_>) -> Result<Vec<Arg<'static>>, ActError> {
    (1..=params.rest(1).len()).map(|index| Ok(Arg::Word(params.integer(index)?))).collect()
}

/// Makes an ioctl on standard input (`-`) or on a device, which does not become the controlling terminal.
fn ioctl(params: &Params<'_>) -> ActResult {
    let (request, text) = (params.integer(1)?, params.c_string(2)?);
    let device = params.c_string(0)?;
    if params.text(0)? == "-" {
        let args = [Arg::Word(0), Arg::Word(request), Arg::Bytes(&text)];
        return result::from_outcome(in_child(&[Call::new(libc::SYS_ioctl, &args)])?);
    }
    let flags = Arg::int((libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK).into());
    let open =
        Call::new(libc::SYS_openat, &[Arg::int(libc::AT_FDCWD.into()), Arg::Bytes(&device), flags]);
    let args = [Arg::Result(0), Arg::Word(request), Arg::Bytes(&text)];
    result::from_outcome(in_child(&[open, Call::new(libc::SYS_ioctl, &args)])?)
}

/// Copies the probe into a memory file, executes it and performs an operation there.
fn run_from_memory(params: &Params<'_>) -> ActResult {
    let image = std::fs::read(std::env::current_exe()?)?;
    let mut texts = vec![b"belljar-probe\0".to_vec()];
    for index in 0..params.rest(0).len() {
        texts.push(params.c_string(index)?);
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
    match result::from_outcome(in_child(&calls)?) {
        Ok(_) => Err(ActError::AlreadyPrinted(0)),
        refused => refused,
    }
}
