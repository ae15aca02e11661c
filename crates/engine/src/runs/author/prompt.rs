//! The texts that a model gets to write a plan. Pure.
//!
//! The instructions are fixed, and the names come from the operator's own configuration. Facts about the
//! directory, an earlier plan and its faults are inputs of the task and not part of the prompt.

use std::collections::BTreeSet;

use belljar_model::agent::AgentName;
use belljar_model::net::{Allow, SecretName};
use belljar_model::plan::{PlanFaults, TierName};
use belljar_model::{Net, Template};

/// The instructions. A test checks their examples with the parser of plans.
const FORMAT: &str = include_str!("format.md");
/// The maximum length of the list of faults that the model gets, in bytes.
const MAX_FAULTS: usize = 32 << 10;

/// The names that a plan may use.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    pub(super) tiers: BTreeSet<TierName>,
    pub(super) agents: BTreeSet<AgentName>,
    pub(super) secrets: BTreeSet<SecretName>,
}

/// Returns the prompt: the instructions, the names and the goal.
pub(super) fn prompt(names: &Names, template: &Template, goal: &str, is_repeated: bool) -> String {
    let Names { tiers, agents, secrets } = names;
    let repeated = if is_repeated {
        "\nYour earlier plan was refused. It is the input `input.refused_plan`, and its faults are the input \
         `input.faults`. Write the whole plan again, without these faults.\n"
    } else {
        ""
    };
    format!(
        "{FORMAT}\nYou can use these names and no others:\n\
         template: {}\ntiers: {}\nagents: {}\nsecrets, only in budgets: {}\n\
         network of boxes: {}\n\n\
         The input `input.directory` has facts about the directory.\n{repeated}\n\
         The goal of the person is:\n{goal}\n",
        template.name,
        list(tiers.iter().map(TierName::as_str)),
        list(agents.iter().map(AgentName::as_str)),
        list(secrets.iter().map(SecretName::as_str)),
        network(template),
    )
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Returns what the boxes of a template can reach, in words.
fn network(template: &Template) -> String {
    let rule = |allow: &Allow| match allow {
        Allow::Preset(name) => format!("the preset {name}"),
        Allow::Rule(rule) => rule.what.to_string(),
    };
    let allowed: Vec<String> = template.allow.iter().map(rule).collect();
    match template.net {
        Net::None => "none".to_owned(),
        Net::Restricted if allowed.is_empty() => "none".to_owned(),
        Net::Restricted => format!("only {}", allowed.join(", ")),
        Net::Full => "all public hosts".to_owned(),
    }
}

/// Returns the faults of a plan for the model, without those that do not fit.
pub(super) fn faults(faults: &PlanFaults) -> String {
    let mut text = faults.to_string();
    if text.len() > MAX_FAULTS {
        text.truncate(text.floor_char_boundary(MAX_FAULTS));
        text.push_str("\n…");
    }
    text
}

#[cfg(test)]
mod tests {
    use belljar_model::net::Rule;
    use belljar_model::plan::{Ceiling, Plan, RunBudget, TierFacts};

    use super::*;

    fn names() -> Names {
        Names {
            tiers: ["cheap", "capable"].map(|name| name.parse().unwrap()).into(),
            agents: ["claude".parse().unwrap()].into(),
            secrets: ["models".parse().unwrap()].into(),
        }
    }

    #[test]
    fn examples_in_the_instructions_are_plans_that_a_model_may_write() {
        let Names { tiers, agents, secrets } = names();
        let facts = TierFacts { is_priced: false };
        let ceiling = Ceiling {
            templates: [("default".to_owned(), Template::default())].into(),
            tiers: tiers.into_iter().map(|tier| (tier, facts)).collect(),
            agents,
            budget: RunBudget::default(),
        };
        let blocks = FORMAT.split("```toml\n").skip(1).filter_map(|rest| rest.split_once("```"));
        let mut count = 0;
        for (text, _) in blocks {
            let plan = Plan::parse(text, "plan.toml").unwrap_or_else(|it| panic!("{it}\n{text}"));
            plan.check_authored(&secrets).unwrap_or_else(|it| panic!("{it}\n{text}"));
            plan.check(&ceiling).unwrap_or_else(|it| panic!("{it}\n{text}"));
            count += 1;
        }
        assert_eq!(count, 2);
    }

    #[test]
    fn prompt_has_the_names_the_network_and_the_goal_and_asks_again_after_a_refusal() {
        let mut template = Template { name: "web".to_owned(), ..Template::default() };
        let first = prompt(&names(), &template, "Fix the login.", false);
        assert!(first.starts_with("You write a plan for Belljar."), "{first}");
        assert!(
            first.contains("template: web\ntiers: capable, cheap\nagents: claude\n"),
            "{first}"
        );
        assert!(first.contains("secrets, only in budgets: models\n"), "{first}");
        assert!(first.contains("network of boxes: none\n"), "{first}");
        assert!(first.ends_with("The goal of the person is:\nFix the login.\n"), "{first}");
        assert!(!first.contains("input.refused_plan"), "{first}");
        template.net = Net::Restricted;
        template.allow = vec![Allow::Rule(Box::new(Rule::allow("api.example.com").unwrap()))];
        let second = prompt(&Names::default(), &template, "x", true);
        assert!(
            second.contains("input.refused_plan") && second.contains("input.faults"),
            "{second}"
        );
        assert!(second.contains("network of boxes: only api.example.com\n"), "{second}");
        assert!(second.contains("agents: none\n"), "{second}");
    }

    #[test]
    fn very_long_faults_are_cut() {
        let list = (1..=20).map(|line| (line, "é".repeat(4000)));
        let text = faults(&PlanFaults::of("plan.toml", list).unwrap());
        assert!(text.len() <= MAX_FAULTS + 4 && text.ends_with("\n…"), "{}", text.len());
    }
}
