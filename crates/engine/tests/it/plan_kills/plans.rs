//! Random plans of commands and `code` tasks, and the outputs that they have without kills.

use std::fmt::Write as _;

/// A small generator of random numbers (SplitMix64).
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }

    /// Returns true in `percent` of 100 cases.
    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// What a task does outside of its box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing. It waits for a file in its inputs.
    Pure,
    /// It sends a GET request.
    Read,
    /// It sends a POST request, which has an effect.
    Write,
}

#[derive(Debug, Clone)]
pub(super) struct PlannedTask {
    pub(super) kind: Kind,
    /// Whether the worker carries out the task, instead of a command.
    pub(super) is_code: bool,
    /// The tasks whose outputs it reads.
    pub(super) inputs: Vec<usize>,
}

#[derive(Debug, Clone)]
pub(super) struct PlannedRun {
    pub(super) tasks: Vec<PlannedTask>,
}

impl PlannedRun {
    /// Returns a random graph of two to four tasks.
    pub(super) fn random(random: &mut Random) -> Self {
        let count = 2 + random.below(3);
        let mut tasks: Vec<PlannedTask> = Vec::new();
        for number in 0..count {
            let kind = match random.below(10) {
                0..4 => Kind::Pure,
                4..6 => Kind::Read,
                _ => Kind::Write,
            };
            // A script cannot wait for a file.
            let is_code = kind != Kind::Pure && random.chance(35);
            let inputs = (0..number).filter(|_| random.chance(55)).collect();
            tasks.push(PlannedTask { kind, is_code, inputs });
        }
        Self { tasks }
    }

    /// Returns the text of the plan.
    pub(super) fn text(&self, on_crash: &str) -> String {
        let mut text = String::new();
        for (number, task) in self.tasks.iter().enumerate() {
            let work = if task.is_code { task.script(number) } else { task.command(number) };
            let names: Vec<String> =
                task.inputs.iter().map(|input| format!("\"t{input}\"")).collect();
            let net = if task.kind == Kind::Pure { "box = { net = \"none\" }\n" } else { "" };
            writeln!(
                text,
                "[task.t{number}]\ndo = {{ {work} }}\ndata = [{}]\nattempts = 3\nbackoff = \"1s\"\non_crash = \"{on_crash}\"\n{net}",
                names.join(", ")
            )
            .unwrap();
        }
        text
    }

    /// Returns the output of a task.
    pub(super) fn output(&self, task: usize) -> String {
        let value = self.value(task);
        // The output of a script is JSON.
        if self.tasks[task].is_code { serde_json::Value::from(value).to_string() } else { value }
    }

    /// Returns the text that a task makes: the texts of its inputs, and its name. A command sees the outputs
    /// of scripts as JSON.
    fn value(&self, task: usize) -> String {
        let PlannedTask { is_code, inputs, .. } = &self.tasks[task];
        let texts = inputs
            .iter()
            .map(|input| if *is_code { self.value(*input) } else { self.output(*input) });
        texts.collect::<String>() + &format!("t{task}\n")
    }

    pub(super) fn has_dependents(&self, task: usize) -> bool {
        self.tasks.iter().any(|other| other.inputs.contains(&task))
    }
}

impl PlannedTask {
    /// Returns `do` of a command that prints its inputs and its name.
    fn command(&self, number: usize) -> String {
        let curl = |options: &str| {
            format!(
                "curl -sS -f -m 300 -o /dev/null -H \"Idempotency-Key: $BELLJAR_IDEMPOTENCY_KEY\" {options} http://api.example.com/x"
            )
        };
        let act = match self.kind {
            Kind::Pure => {
                "echo waiting >&2; until [ -e /run/task/in/go ]; do sleep 0.03; done".to_owned()
            }
            Kind::Read => curl(""),
            Kind::Write => curl("-d x"),
        };
        let show = if self.inputs.is_empty() { "true" } else { "cat /run/task/in/t?" };
        format!("command = [\"bash\", \"-c\", '''set -e; {act}; {show}; echo t{number}''']")
    }

    /// Returns `do` of a script that returns its inputs and its name.
    fn script(&self, number: usize) -> String {
        let method = if self.kind == Kind::Write { "method: 'POST', body: 'x'" } else { "" };
        format!(
            "code = '''const answer = await fetch('http://api.example.com/x', {{ headers: {{ 'Idempotency-Key': process.env.BELLJAR_IDEMPOTENCY_KEY }}, {method} }}); if (!answer.ok) throw new Error(`status ${{answer.status}}`); const given = typeof input === 'undefined' ? [] : typeof input === 'string' ? [input] : Object.values(input); export default given.join('') + 't{number}\\n';'''"
        )
    }
}
