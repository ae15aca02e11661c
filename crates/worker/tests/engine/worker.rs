//! Starts a worker, sends it a job, and collects its output and result.

#![expect(clippy::disallowed_methods, reason = "a test starts the program that it tests")]

use std::collections::HashMap;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use belljar_wire::{
    self as wire, Dialect, FromWorker, Job, Module, ProgramError, ProgramResult, Script, Stream,
    ToWorker,
};
use serde_json::Value;
use serde_json::value::RawValue;

/// A tool that a test provides: a function from the input to the result.
pub(crate) type Tool = fn(&Value) -> Result<Value, String>;

/// The output and the result of a program.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) done: ProgramResult,
}

impl Outcome {
    /// Returns the result value of the program, or `null` if it has none.
    #[track_caller]
    pub(crate) fn value(&self) -> Value {
        assert!(self.done.trouble.is_none(), "{self:?}");
        self.done
            .value
            .as_ref()
            .map_or(Value::Null, |json| serde_json::from_str(json.get()).unwrap())
    }

    #[track_caller]
    pub(crate) fn error(&self) -> &ProgramError {
        self.done.trouble.as_ref().unwrap_or_else(|| panic!("the program did not fail: {self:?}"))
    }
}

pub(crate) fn script(code: &str) -> Script {
    Script {
        code: code.to_owned(),
        language: Dialect::Ts,
        file: "main.ts".to_owned(),
        input: None,
        modules: Vec::new(),
        apis: Vec::new(),
        tools: Vec::new(),
        memory: 128 << 20,
    }
}

pub(crate) fn module(specifier: &str, source: &str) -> Module {
    Module { specifier: specifier.to_owned(), language: Dialect::Ts, source: source.to_owned() }
}

pub(crate) fn run(code: &str) -> Outcome {
    run_script(script(code))
}

pub(crate) fn run_script(script: Script) -> Outcome {
    run_script_with_tools(script, &HashMap::new())
}

pub(crate) fn run_script_with_tools(script: Script, tools: &HashMap<&str, Tool>) -> Outcome {
    let mut worker = Worker::start();
    worker.send(&Job::Script(script));
    let (mut stdout, mut stderr) = (String::new(), String::new());
    loop {
        match worker.next().expect("a worker reports its result before it exits") {
            FromWorker::Ready => panic!("ready twice"),
            FromWorker::Output { stream: Stream::Stdout, text } => stdout.push_str(&text),
            FromWorker::Output { stream: Stream::Stderr, text } => stderr.push_str(&text),
            FromWorker::Call { id, server, tool, input } => {
                let input = serde_json::from_str(input.get()).unwrap();
                let answer = tools[format!("{server}/{tool}").as_str()](&input);
                let value = answer.map(|value| RawValue::from_string(value.to_string()).unwrap());
                worker.send(&ToWorker::Answer { id, value });
            }
            FromWorker::Done(done) => {
                assert!(worker.next().is_none(), "no message follows the result");
                assert!(worker.child.wait().unwrap().success());
                return Outcome { stdout, stderr, done };
            }
        }
    }
}

pub(crate) struct Worker {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    pub(crate) output: ChildStdout,
}

impl Worker {
    /// Starts a worker and waits until it is ready.
    pub(crate) fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_belljar-worker"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut worker = Self { child, input, output };
        assert!(matches!(worker.next(), Some(FromWorker::Ready)));
        worker
    }

    pub(crate) fn send(&mut self, message: &impl serde::Serialize) {
        wire::write(self.input.as_mut().unwrap(), message).unwrap();
    }

    /// Closes the standard input of the worker.
    pub(crate) fn close_input(&mut self) {
        drop(self.input.take());
    }

    pub(crate) fn next(&mut self) -> Option<FromWorker> {
        wire::read(&mut self.output).unwrap()
    }
}
