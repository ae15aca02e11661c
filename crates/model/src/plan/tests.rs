mod check;
mod labels;
mod parse;
mod stored;

use super::*;
use crate::template::Template;

/// The plan of the design document, with all executors and most keys.
const EXAMPLE: &str = r#"
[run]
template = "agents"
budget = { money = "5 USD", tokens = 400000, calls = 300, time = "2h", boxes = 3 }
input.issue = { file = "issue.md", labels = ["untrusted"] }
answer = "pick"
[task.triage]
do = { model = "cheap", escalate = ["capable"], prompt = "Name area and severity." }
data = ["input.issue"]
output = { type = "json", schema = "triage.json", max = "64 KiB" }
attempts = 2
[task.fix]
do = { agent = "claude", repo = ".", base = "main", prompt_file = "fix.md" }
data = ["triage", "input.issue"]
when = { of = "triage", at = "/severity", in = ["high", "medium"] }
for_each = { values = ["minimal", "thorough"] }
done = ["all tests pass"]
check = [{ command = ["cargo", "test"] }]
box = { timeout = "5m" }
[task.pick]
do = { model = "capable", prompt = "Choose one branch." }
data = ["fix?"]
output = { type = "choice" }
[task.merge]
do = { approval = "Take the chosen fix?", apply = "pick", deadline = "24h" }
needs = ["pick"]
"#;

fn ceiling() -> Ceiling {
    let agents = Template { name: "agents".into(), ..Template::default() };
    let tier = |name: &str, is_priced| (name.parse().unwrap(), TierFacts { is_priced });
    Ceiling {
        templates: [Template::default(), agents].map(|it| (it.name.clone(), it)).into(),
        tiers: [tier("cheap", true), tier("capable", true), tier("local", false)].into(),
        agents: ["claude", "codex"].map(|name| name.parse().unwrap()).into(),
        budget: RunBudget { money: Some("20 USD".parse().unwrap()), ..RunBudget::default() },
    }
}

fn parse(text: &str) -> Result<Plan, String> {
    Plan::parse(text, "p.toml").map_err(|faults| faults.to_string())
}

fn check(text: &str) -> Result<CheckedPlan, String> {
    parse(text)?.check(&ceiling()).map_err(|faults| faults.to_string())
}

fn id(text: &str) -> TaskId {
    text.parse().unwrap()
}

/// Returns a plan of stubs with these edges: `("b", "a")` means that `b` needs `a`.
fn stubs(count: usize, needs: impl Fn(usize) -> Vec<usize>) -> String {
    let task = |at: usize| {
        let needs: Vec<String> = needs(at).iter().map(|on| format!("\"t{on}\"")).collect();
        format!("[task.t{at}]\ndo = {{ stub = 1 }}\nneeds = [{}]\n", needs.join(", "))
    };
    (0..count).map(task).collect()
}
