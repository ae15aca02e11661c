//! Random plans of commands, and the outputs that they have without kills.

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
            let inputs = (0..number).filter(|_| random.chance(55)).collect();
            tasks.push(PlannedTask { kind, inputs });
        }
        Self { tasks }
    }

    /// Returns the text of the plan.
    pub(super) fn text(&self, on_crash: &str) -> String {
        let mut text = String::new();
        for (number, PlannedTask { kind, inputs }) in self.tasks.iter().enumerate() {
            let curl = |options: &str| {
                format!(
                    "curl -sS -f -m 300 -o /dev/null -H \"Idempotency-Key: $BELLJAR_IDEMPOTENCY_KEY\" {options} http://api.example.com/x"
                )
            };
            let act = match kind {
                Kind::Pure => {
                    "echo waiting >&2; until [ -e /run/task/in/go ]; do sleep 0.03; done".to_owned()
                }
                Kind::Read => curl(""),
                Kind::Write => curl("-d x"),
            };
            let show = if inputs.is_empty() { "true" } else { "cat /run/task/in/t?" };
            let names: Vec<String> = inputs.iter().map(|input| format!("\"t{input}\"")).collect();
            let net = if *kind == Kind::Pure { "box = { net = \"none\" }\n" } else { "" };
            writeln!(
                text,
                "[task.t{number}]\ndo = {{ command = [\"bash\", \"-c\", '''set -e; {act}; {show}; echo t{number}'''] }}\ndata = [{}]\nattempts = 3\nbackoff = \"1s\"\non_crash = \"{on_crash}\"\n{net}",
                names.join(", ")
            )
            .unwrap();
        }
        text
    }

    /// Returns the output of a task.
    pub(super) fn output(&self, task: usize) -> String {
        let inputs = self.tasks[task].inputs.iter().map(|input| self.output(*input));
        inputs.collect::<String>() + &format!("t{task}\n")
    }

    pub(super) fn has_dependents(&self, task: usize) -> bool {
        self.tasks.iter().any(|other| other.inputs.contains(&task))
    }
}
